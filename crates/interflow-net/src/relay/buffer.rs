//! Pooled buffers, which a tunnel or a TLS connection holds only while they have content, so that idle connections
//! need none.

use std::cell::RefCell;

/// The size of one read. Larger ones were measured to gain nothing over loopback, and need more cache.
pub(crate) const BUFFER_SIZE: usize = 32 * 1024;
const MAX_POOLED: usize = 32;

thread_local! {
    static POOL: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`BUFFER_SIZE`] bytes with arbitrary content.
pub(crate) fn take() -> Box<[u8]> {
    POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER_SIZE].into_boxed_slice())
}

pub(crate) fn release(buffer: Box<[u8]>) {
    POOL.with_borrow_mut(|pool| {
        if pool.len() < MAX_POOLED {
            pool.push(buffer);
        }
    });
}
