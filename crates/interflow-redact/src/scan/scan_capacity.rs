//! Bounds the memory of detection by the number of bytes that are scanned at the same time, of LLM requests and of MCP
//! messages together.

use tokio::sync::{Semaphore, SemaphorePermit};

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
