//! A recorded flow as a query sees it: its record, and its bodies, messages and model calls where the query asks for them.

use std::net::SocketAddr;
use std::ops::Range;

use bytes::Bytes;
use interflow_query::{Fact, Flag, Key, Query, QuerySubject, Tristate};
use interflow_types::Direction;

use crate::conversations::{ExchangeRow, call_text_matches, call_tokens};
use crate::decoded_body;
use crate::error::{Result, StoreError};
use crate::model::{FlowRecord, MessageRecord};
use crate::store::FlowStore;

/// Maximum size of a body that a search examines, before and after decoding. A match after it is not found.
pub const MAX_SEARCHED_BODY: usize = 64 << 20;
/// Messages loaded at a time by a search, so that a long stream is not held in memory as a whole.
const MESSAGE_STEP: u64 = 256;

/// What a flow has beside its record.
pub trait FlowContents {
    fn calls(&self) -> Result<Vec<ExchangeRow>>;

    /// A body as it is stored, at most [`MAX_SEARCHED_BODY`] bytes.
    fn body(&self, direction: Direction) -> Result<Bytes>;

    fn messages(&self, range: Range<u64>) -> Result<Vec<MessageRecord>>;

    /// Whether bodies and messages are here.
    fn has_bodies(&self) -> bool {
        true
    }

    /// Takes note of a body or messages that could not be read, and therefore do not match.
    fn note_unread(&self, _: StoreError) {}
}

/// Whether a query selects a flow of a store. What cannot be read of it does not match.
pub fn flow_matches(store: &dyn FlowStore, row: &FlowRecord, query: &Query) -> bool {
    query.matches(&FlowSubject { row, contents: StoreContents { store, row } })
}

struct StoreContents<'a> {
    store: &'a dyn FlowStore,
    row: &'a FlowRecord,
}

impl FlowContents for StoreContents<'_> {
    fn calls(&self) -> Result<Vec<ExchangeRow>> {
        self.store.exchanges_in(self.row.id)
    }

    fn body(&self, direction: Direction) -> Result<Bytes> {
        self.store.body(self.row.id, direction, 0..MAX_SEARCHED_BODY as u64)?.read_all(MAX_SEARCHED_BODY)
    }

    fn messages(&self, range: Range<u64>) -> Result<Vec<MessageRecord>> {
        self.store.messages(self.row.id, range)
    }
}

/// A flow whose contents are read only if a query asks for them.
pub struct FlowSubject<'a, C> {
    pub row: &'a FlowRecord,
    pub contents: C,
}

impl<C: FlowContents> FlowSubject<'_, C> {
    /// What was read; nothing if it could not be.
    fn readable<T: Default>(&self, read: Result<T>) -> T {
        read.unwrap_or_else(|error| {
            self.contents.note_unread(error);
            T::default()
        })
    }

    /// Model calls. An index that cannot be read means no match, not a failed search.
    fn calls(&self) -> Vec<ExchangeRow> {
        self.contents.calls().unwrap_or_default()
    }

    /// The decoded body, so that a search finds what a person sees.
    fn decoded_body(&self, direction: Direction) -> Result<Bytes> {
        let body = self.contents.body(direction)?;
        Ok(match FlowRecord::headers(self.row, direction) {
            Some(headers) => decoded_body::decode_body(headers, body, MAX_SEARCHED_BODY).bytes,
            None => body,
        })
    }

    fn any_message(&self, direction: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool> {
        for first in (0..self.row.messages).step_by(MESSAGE_STEP as usize) {
            let messages = self.contents.messages(first..first + MESSAGE_STEP)?;
            if messages.iter().any(|m| m.direction == direction && fits(&m.payload)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<C: FlowContents> QuerySubject for FlowSubject<'_, C> {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        match key {
            Key::Model | Key::Provider | Key::Agent => {
                call_text_matches(&self.calls(), key, fits).unwrap_or(Tristate::Known(false))
            }
            key => self.row.text(key, fits),
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match key {
            Key::Tokens => call_tokens(&self.calls()),
            key => self.row.number(key),
        }
    }

    fn flag(&self, flag: Flag) -> Tristate {
        self.row.flag(flag)
    }

    fn address(&self, key: Key) -> Fact<SocketAddr> {
        self.row.address(key)
    }

    fn headers(&self, side: Direction, fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Tristate {
        QuerySubject::headers(self.row, side, fits)
    }

    fn body(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        if !self.contents.has_bodies() {
            return Tristate::NotYet;
        }
        let is_recorded = self.row.body(side).is_some_and(|body| body.kept > 0);
        let whole = is_recorded && self.readable(self.decoded_body(side).map(|body| fits(&body)));
        Tristate::Known(whole || self.readable(self.any_message(side, fits)))
    }
}

#[cfg(test)]
mod tests {
    use interflow_types::{EntryKind, FlowId, Headers, Scheme, Timestamp};

    use super::*;
    use crate::model::{BodyRecord, ResponseRecord};

    struct OneBody;

    impl FlowContents for OneBody {
        fn calls(&self) -> Result<Vec<ExchangeRow>> {
            Ok(Vec::new())
        }

        fn body(&self, _: Direction) -> Result<Bytes> {
            Ok(Bytes::from_static(b"plain text"))
        }

        fn messages(&self, _: Range<u64>) -> Result<Vec<MessageRecord>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_body_that_is_not_in_its_declared_coding_is_searched_as_it_is() {
        let authority = "a.test:443".parse().unwrap();
        let (id, started) = (FlowId::from_u128(1), Timestamp::from_micros(1));
        let mut row = FlowRecord::new(id, started, EntryKind::Connect, Scheme::Https, authority);
        row.response = Some(ResponseRecord {
            headers: Headers::from_iter([("content-encoding", "gzip")]),
            body: BodyRecord::whole(10),
            ..ResponseRecord::default()
        });
        assert!(Query::parse("body:\"plain text\"").unwrap().matches(&FlowSubject { row: &row, contents: OneBody }));
    }
}
