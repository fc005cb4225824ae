//! A recorded flow with its bodies, as a query sees it.

use std::net::SocketAddr;

use interflow_flow::Direction;
use interflow_query::{Fact, Flag, Key, Subject, Truth};
use interflow_record::{FlowRow, Store, content, text_of_calls, tokens_of_calls};

/// The most of a body that is looked at, in bytes.
const SEARCHED: usize = 16 << 20;
/// Messages loaded at a time.
const MESSAGES: u64 = 256;

/// A row whose bodies and messages are loaded when a query asks for them.
pub(crate) struct Whole<'a> {
    pub row: &'a FlowRow,
    pub store: &'a dyn Store,
}

impl Whole<'_> {
    fn body_fits(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let Some(headers) =
            FlowRow::headers(self.row, side).filter(|_| self.row.body(side).is_some_and(|b| b.kept > 0))
        else {
            return false;
        };
        let bytes = self.store.body(self.row.id, side, 0..SEARCHED as u64).and_then(|b| b.read_all(SEARCHED));
        bytes.is_ok_and(|b| fits(&content::decoded(headers, b, SEARCHED).bytes))
    }

    fn message_fits(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        (0..self.row.messages).step_by(MESSAGES as usize).any(|from| {
            let page = self.store.messages(self.row.id, from..from + MESSAGES).unwrap_or_default();
            page.iter().any(|m| m.direction == side && fits(&m.payload))
        })
    }
}

impl Subject for Whole<'_> {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Truth {
        match key {
            Key::Model | Key::Provider | Key::Agent => {
                let calls = self.store.exchanges_in(self.row.id).unwrap_or_default();
                text_of_calls(&calls, key, fits).unwrap_or(Truth::Known(false))
            }
            key => self.row.text(key, fits),
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match key {
            Key::Tokens => tokens_of_calls(&self.store.exchanges_in(self.row.id).unwrap_or_default()),
            key => self.row.number(key),
        }
    }

    fn flag(&self, flag: Flag) -> Truth {
        self.row.flag(flag)
    }

    fn address(&self, key: Key) -> Fact<SocketAddr> {
        self.row.address(key)
    }

    fn headers(&self, side: Direction, fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Truth {
        Subject::headers(self.row, side, fits)
    }

    fn body(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Truth {
        Truth::Known(self.body_fits(side, fits) || self.message_fits(side, fits))
    }
}
