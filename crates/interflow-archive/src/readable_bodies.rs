//! The intact bytes of a store's flows: a damaged body ends at the damage, so that it does not abort a whole export.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, Read};

use interflow_types::Direction;

use super::{BodySource, MessageIter, PAGE, message_pages, original_of, stored};
use interflow_store::{BodyReader, BodyRecord, FlowRecord, FlowStore, MissingReason, Result, StoreError};

/// Reads intact data, and counts damaged flows. Damage is found by reading, so a body is read twice: for its row, and
/// for its bytes.
pub struct ReadableBodySource<'s> {
    store: &'s dyn FlowStore,
    cut: Cell<u64>,
}

impl<'s> ReadableBodySource<'s> {
    pub const fn new(store: &'s dyn FlowStore) -> Self {
        Self { store, cut: Cell::new(0) }
    }

    /// Number of flows with damage so far.
    pub const fn truncated_flows(&self) -> u64 {
        self.cut.get()
    }

    /// The row, adjusted to the readable part of its bodies, with damage marked. Reads every byte to find out.
    ///
    /// # Errors
    /// A database or disk error; damage is not an error.
    pub fn row<'a>(&self, row: &'a FlowRecord) -> Result<Cow<'a, FlowRecord>> {
        let mut sound = Cow::Borrowed(row);
        for direction in [Direction::Request, Direction::Response] {
            let Some(body) = row.body(direction).copied().filter(|b| b.kept > 0) else { continue };
            let readable = readable_bytes(self.store.body(row.id, direction, 0..body.kept))?;
            // The row must agree with the bytes that follow, because formats write the length before the body.
            if readable < body.kept {
                let changed = sound.to_mut();
                let cut = BodyRecord::partial(body.size, readable, Some(MissingReason::Lost));
                match direction {
                    Direction::Request => changed.request.iter_mut().for_each(|r| r.body = cut),
                    Direction::Response => changed.response.iter_mut().for_each(|r| r.body = cut),
                }
            }
        }
        for direction in [Direction::Request, Direction::Response] {
            let edited = row.original.as_ref().and_then(|o| o.edited_body(direction)).copied();
            let Some(body) = edited.filter(|b| b.kept > 0) else { continue };
            let readable = readable_bytes(self.store.original_body(row.id, direction, 0..body.kept))?;
            if readable < body.kept {
                let cut = sound.to_mut().original.as_mut().and_then(|o| o.edited_body_mut(direction));
                cut.into_iter().for_each(|b| *b = BodyRecord::partial(body.size, readable, Some(MissingReason::Lost)));
            }
        }
        let messages = self.readable_messages(row)?;
        if messages < row.messages {
            sound.to_mut().messages = messages;
        }
        if matches!(sound, Cow::Owned(_)) {
            self.cut.set(self.cut.get() + 1);
        }
        Ok(sound)
    }

    fn readable_messages(&self, row: &FlowRecord) -> Result<u64> {
        let mut first = 0;
        while first < row.messages {
            // Whole pages only: a page with damage is left out completely.
            match self.store.messages(row.id, first..first + PAGE) {
                Ok(_) => first += PAGE,
                Err(e) if is_damage(&e) => return Ok(first),
                // They are at the replica where the flow runs, and not damaged.
                Err(StoreError::Elsewhere { .. }) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(row.messages)
    }
}

fn readable_bytes(opened: Result<BodyReader>) -> Result<u64> {
    let mut reader = match opened {
        Err(e) if is_damage(&e) => return Ok(0),
        opened => opened?,
    };
    let mut readable = 0;
    loop {
        // The bytes before the damage remain readable.
        match reader.next_piece() {
            Ok(Some(piece)) => readable += piece.len() as u64,
            Ok(None) => return Ok(readable),
            Err(e) if is_damage(&e) => return Ok(readable),
            Err(e) => return Err(e),
        }
    }
}

/// Whether bytes are damaged, or were deleted since the row was read.
pub const fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Damaged { .. } | StoreError::NotFound(_))
}

impl BodySource for ReadableBodySource<'_> {
    fn body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        stored(flow.body(direction), |kept| self.store.body(flow.id, direction, 0..kept))
    }

    fn original_body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        original_of(self.store, flow, direction)
    }

    fn messages<'a>(&'a self, flow: &'a FlowRecord) -> io::Result<MessageIter<'a>> {
        Ok(message_pages(self.store, flow))
    }
}
