//! Adapts a recorded flow with its bodies to queries.

use std::net::SocketAddr;

use interflow_query::{Fact, Flag, Key, QuerySubject, Tristate};
use interflow_store::{FlowRecord, FlowStore, call_text_matches, call_tokens, decoded_body};
use interflow_types::Direction;

/// Maximum size of a body that is searched, in bytes.
const MAX_SEARCHED_BODY: usize = 16 << 20;
/// Messages loaded at a time.
const MESSAGE_STEP: u64 = 256;

/// A row whose bodies and messages are loaded only if a query needs them. One that cannot be loaded does not match.
pub(crate) struct LoadedFlow<'a> {
    pub row: &'a FlowRecord,
    pub store: &'a dyn FlowStore,
}

impl LoadedFlow<'_> {
    fn body_fits(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let Some(headers) =
            FlowRecord::headers(self.row, side).filter(|_| self.row.body(side).is_some_and(|b| b.kept > 0))
        else {
            return false;
        };
        let bytes =
            self.store.body(self.row.id, side, 0..MAX_SEARCHED_BODY as u64).and_then(|b| b.read_all(MAX_SEARCHED_BODY));
        // Decoded, so that a search finds what a person sees.
        bytes.is_ok_and(|b| fits(&decoded_body::decode_body(headers, b, MAX_SEARCHED_BODY).bytes))
    }

    fn message_fits(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        (0..self.row.messages).step_by(MESSAGE_STEP as usize).any(|from| {
            let page = self.store.messages(self.row.id, from..from + MESSAGE_STEP).unwrap_or_default();
            page.iter().any(|m| m.direction == side && fits(&m.payload))
        })
    }
}

impl QuerySubject for LoadedFlow<'_> {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        match key {
            Key::Model | Key::Provider | Key::Agent => {
                let calls = self.store.exchanges_in(self.row.id).unwrap_or_default();
                call_text_matches(&calls, key, fits).unwrap_or(Tristate::Known(false))
            }
            key => self.row.text(key, fits),
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match key {
            Key::Tokens => call_tokens(&self.store.exchanges_in(self.row.id).unwrap_or_default()),
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
        Tristate::Known(self.body_fits(side, fits) || self.message_fits(side, fits))
    }
}
