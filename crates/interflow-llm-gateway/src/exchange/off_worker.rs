//! What takes long runs on a blocking thread, within the bound on scans, and stops when nobody waits for it any more.

use interflow_redact::{StopFlag, scan_capacity};

/// Whether work on so many bytes is done where its stage runs: the worker serves other requests.
pub(crate) const fn is_inline(size: usize) -> bool {
    size <= 64 << 10
}

/// Runs work on a body of `size` bytes. `None` if it panicked.
///
/// # Cancellation
/// A future that is dropped while it waits for the permit never starts the work; later, the work is told to stop by its
/// [`StopFlag`], and holds the permit until it has.
pub(crate) async fn off_worker<T: Send + 'static>(size: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if is_inline(size) {
        return Some(work());
    }
    let capacity = scan_capacity::reserve(size).await;
    let stop = StopFlag::default();
    let _stop_on_drop = stop.on_drop();
    let scan = move || {
        let _capacity = capacity;
        stop.run(work)
    };
    tokio::task::spawn_blocking(scan).await.ok()
}
