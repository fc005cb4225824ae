//! A copy of bytes that are relayed, within a bound.

use bytes::Bytes;
use interflow_types::budget::MemoryReservation;

/// The bytes so far, unless they were too many.
#[derive(Default)]
pub(crate) struct BodyCopy {
    chunks: Vec<Bytes>,
    length: usize,
    /// The bytes count against the process's budget while they are held.
    held: MemoryReservation,
    is_given_up: bool,
}

impl BodyCopy {
    /// Adds bytes; with more than `max` in all, or without memory for them, there is no copy. Whether there is one.
    pub fn push(&mut self, data: &Bytes, max: usize) -> bool {
        if self.is_given_up {
            return false;
        }
        self.length += data.len();
        if self.length > max || self.held.resize(self.length).is_err() {
            self.give_up();
        } else {
            self.chunks.push(data.clone());
        }
        !self.is_given_up
    }

    pub fn give_up(&mut self) {
        *self = Self { is_given_up: true, ..Self::default() };
    }

    /// The bytes with their reservation, once; `None` if there are none.
    pub fn take(&mut self) -> Option<Bytes> {
        let copy = std::mem::take(self);
        let whole = if let [one] = &copy.chunks[..] { one.clone() } else { Bytes::from(copy.chunks.concat()) };
        (!whole.is_empty()).then(|| copy.held.attach_to(whole))
    }
}
