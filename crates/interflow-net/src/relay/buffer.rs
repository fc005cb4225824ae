//! Buffers that a tunnel, or a connection below TLS, has only while bytes are in it, so that idle ones cost nothing.

use std::cell::RefCell;

/// One read's worth. More was measured to gain nothing over loopback, and costs cache.
pub(crate) const BUFFER_SIZE: usize = 32 * 1024;
/// Buffers kept per worker.
const MAX_POOLED: usize = 32;

thread_local! {
    static POOL: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`SIZE`] bytes, with whatever was in it.
pub(crate) fn take() -> Box<[u8]> {
    POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER_SIZE].into_boxed_slice())
}

/// Gives a buffer to whoever needs the next.
pub(crate) fn release(buffer: Box<[u8]>) {
    POOL.with_borrow_mut(|pool| {
        if pool.len() < MAX_POOLED {
            pool.push(buffer);
        }
    });
}
