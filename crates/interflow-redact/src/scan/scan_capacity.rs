//! What takes long runs on a blocking thread, and stops when nobody waits for it any more. The memory of detection is bounded
//! by the number of bytes that are scanned at the same time, of LLM requests and of MCP messages together.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::stop_flag::StopFlag;

/// Findings and their working copies take up to fifteen times the size of a text full of personal data, so that without a bound
/// a dozen compressed requests of 30 KB each take more than a gigabyte. More scans than processors would not be done sooner.
const MAX_BYTES: u32 = 16 << 20;

static CAPACITY: Semaphore = Semaphore::const_new(MAX_BYTES as usize);

/// Waits until `bytes` may be scanned, in the order of arrival; a body beyond the bound is scanned alone. Dropping the future
/// leaves the queue.
pub async fn reserve(bytes: usize) -> SemaphorePermit<'static> {
    let permits = u32::try_from(bytes).unwrap_or(MAX_BYTES).min(MAX_BYTES);
    CAPACITY.acquire_many(permits).await.expect("the semaphore is never closed")
}

/// Whether work on so many bytes is done where its caller runs: the worker serves other requests.
pub const fn is_inline(size: usize) -> bool {
    size <= 64 << 10
}

/// Runs work on a body of `size` bytes. `None` if it panicked.
///
/// # Cancellation
/// A future that is dropped while it waits for the permit never starts the work; later, the work is told to stop by its
/// [`StopFlag`], and holds the permit until it has.
pub async fn off_worker<T: Send + 'static>(size: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if is_inline(size) {
        return Some(work());
    }
    let capacity = reserve(size).await;
    let stop = StopFlag::default();
    let _stop_on_drop = stop.on_drop();
    let scan = move || {
        let _capacity = capacity;
        stop.run(work)
    };
    tokio::task::spawn_blocking(scan).await.ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn scans_beyond_the_bound_wait_for_others_to_end() {
        let first = reserve(10 << 20).await;
        let beside = reserve(6 << 20).await;
        let waiting = tokio::spawn(async { drop(reserve(usize::MAX).await) });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        drop((first, beside));
        waiting.await.unwrap();
    }
}
