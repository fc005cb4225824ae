//! The process-wide memory budget for buffered bytes: collected and decoded bodies, and data derived from them.
//!
//! A streamed body is bounded by flow-control windows, but a buffered one only by its own limit, times the number of
//! clients. Code that buffers therefore reserves the bytes here first, and refuses the request if the budget is
//! exhausted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use crate::{Error, ErrorKind};

/// A limit on bytes that are held at the same time by many requests. Reservations fail instead of waiting: if every
/// holder waited for more, none would release any.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: AtomicU64,
    held: AtomicU64,
    refused: AtomicU64,
}

/// The budget of this process (`limits.held_bytes`), which all requests share.
pub static PROCESS_BUDGET: MemoryBudget = MemoryBudget::new(MemoryBudget::DEFAULT_LIMIT);

/// Smaller buffers are not counted: they fit in a connection's read buffer anyway.
const MIN_COUNTED_SIZE: usize = 4 << 10;

impl MemoryBudget {
    /// The limit of [`PROCESS_BUDGET`] before the configuration sets another: 512 MiB.
    pub const DEFAULT_LIMIT: u64 = 512 << 20;

    /// A budget of this many bytes; 0 means unlimited.
    pub const fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), held: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// Changes the limit; 0 means unlimited. Existing reservations are kept.
    pub fn resize(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }

    /// The limit in bytes; 0 if unlimited.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub fn reserved(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// How many reservations have failed since the start.
    pub fn refusal_count(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Reserves bytes until the reservation is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if fewer bytes than that are left.
    pub fn reserve(&'static self, bytes: u64) -> Result<MemoryReservation, Error> {
        let mut reservation = MemoryReservation { budget: self, bytes: 0 };
        reservation.grow_to(bytes)?;
        Ok(reservation)
    }

    /// Counts existing bytes until the last handle to them is dropped.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_bytes(&'static self, bytes: Bytes) -> Result<Bytes, Error> {
        // Small bytes get no owner object, which would cost more than it counts.
        if bytes.len() < MIN_COUNTED_SIZE {
            return Ok(bytes);
        }
        Ok(self.reserve(bytes.len() as u64)?.attach_to(bytes))
    }

    fn add(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.limit();
        // The check and the addition are one atomic step, so that concurrent reservations cannot exceed the limit
        // together.
        let within = |held: u64| held.checked_add(bytes).filter(|sum| limit == 0 || *sum <= limit);
        // Relaxed: the counter guards no other memory, and only its own value matters.
        match self.held.fetch_update(Relaxed, Relaxed, within) {
            Ok(_) => Ok(()),
            Err(held) => {
                self.refused.fetch_add(1, Relaxed);
                let text = format!(
                    "the memory for held requests and responses is spent: {held} of {limit} bytes are in use, and \
                     {bytes} more are needed (limits.held_bytes)"
                );
                Err(Error::new(ErrorKind::Overloaded, text))
            }
        }
    }
}

/// Reserved bytes of a budget, released on drop.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: &'static MemoryBudget,
    bytes: u64,
}

impl MemoryReservation {
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows the reservation to this total; never shrinks it.
    ///
    /// # Errors
    /// As [`MemoryBudget::reserve`]; the existing reservation is kept.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Error> {
        let more = bytes.saturating_sub(self.bytes);
        // Bytes that are counted already are not counted twice.
        if more > 0 {
            self.budget.add(more)?;
            self.bytes += more;
        }
        Ok(())
    }

    /// Grows or shrinks the reservation to this total. Small sizes are not counted.
    ///
    /// # Errors
    /// As [`MemoryBudget::reserve`]; the existing reservation is kept.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Error> {
        let bytes = if bytes < MIN_COUNTED_SIZE { 0 } else { bytes as u64 };
        // Shrinking first: it cannot fail.
        if bytes < self.bytes {
            self.budget.held.fetch_sub(self.bytes - bytes, Relaxed);
            self.bytes = bytes;
        }
        self.grow_to(bytes)
    }

    /// Ties the reservation to the bytes: it is released when the last handle to them is dropped.
    pub fn attach_to(self, bytes: impl Into<Bytes>) -> Bytes {
        let bytes = bytes.into();
        // Without a reservation, no owner is needed.
        if self.bytes == 0 { bytes } else { Bytes::from_owner(ReservedBytes { bytes, _reservation: self }) }
    }
}

/// An empty reservation of the process's budget.
impl Default for MemoryReservation {
    fn default() -> Self {
        Self { budget: &PROCESS_BUDGET, bytes: 0 }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Relaxed);
    }
}

struct ReservedBytes {
    bytes: Bytes,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_excess_and_recovers_what_is_released() {
        static BUDGET: MemoryBudget = MemoryBudget::new(100);
        let mut first = BUDGET.reserve(60).unwrap();
        assert_eq!(BUDGET.reserve(41).unwrap_err().kind(), ErrorKind::Overloaded);
        assert!(first.grow_to(101).is_err());
        first.grow_to(10).unwrap();
        first.grow_to(100).unwrap();
        assert_eq!((BUDGET.reserved(), BUDGET.refusal_count(), first.bytes()), (100, 2, 100));
        let bytes = first.attach_to(vec![1; 100]);
        let part = bytes.slice(90..);
        drop(bytes);
        assert_eq!(BUDGET.reserved(), 100, "a slice keeps the whole reservation");
        drop(part);
        assert_eq!(BUDGET.reserved(), 0);
        let mut some = BUDGET.reserve(0).unwrap();
        BUDGET.resize(10_000);
        some.resize(9000).unwrap();
        some.resize(5000).unwrap();
        assert_eq!(BUDGET.reserved(), 5000);
        assert!(some.resize(10_001).is_err());
        some.resize(MIN_COUNTED_SIZE - 1).unwrap();
        assert_eq!(BUDGET.reserved(), 0, "small sizes are not counted");
        BUDGET.resize(0);
        assert!(BUDGET.reserve(u64::MAX).is_ok());
        assert_eq!(BUDGET.reserved(), 0);
    }
}
