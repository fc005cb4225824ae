//! Flows chosen by a query: what SQL can say is left to SQL, the rest is matched row by row, bodies last.

use std::ops::ControlFlow;

use bytes::Bytes;
use interflow_flow::{Direction, FlowId};
use interflow_query::sql::{Param, Where};
use interflow_query::{Fact, Flag, Key, Query, Subject, Truth};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::body::{BodyReader, Files, Parts};
use super::damage::Damages;
use super::refs::side;
use super::rows::{self, Stored};
use super::{conversations, messages, segments_dir};
use crate::content;
use crate::conversations::{text_of_calls, tokens_of_calls};
use crate::error::{Result, StoreError};
use crate::model::FlowRow;
use crate::subject::Tables;

/// The most of a decoded body that a search looks at.
const SEARCHED: usize = 64 << 20;
/// Messages loaded at a time by a search.
const MESSAGES: u64 = 256;

/// In which order flows are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The latest first.
    #[default]
    Newest,
    /// The earliest first.
    Oldest,
}

/// What is asked of a list.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Which flows.
    pub query: Query,
    /// In which order.
    pub order: Order,
    /// Only flows behind this one in that order: the last id of the page before.
    pub after: Option<FlowId>,
    /// At most so many.
    pub limit: usize,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { query: Query::all(), order: Order::Newest, after: None, limit: 100 }
    }
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Flows looked at.
    pub looked: u64,
    /// Flows found.
    pub found: u64,
    /// How many there are to look at, as far as the database can tell.
    pub total: u64,
}

/// Walks the flows that a query selects. `each` is shown every one; `watch` is told of the rows looked at, and may
/// stop the walk. Damaged rows are noted and left out.
pub(crate) fn walk(
    (db, dir, damages): (&Connection, &std::path::Path, &Damages),
    options: &ListOptions,
    watch: &mut dyn FnMut() -> ControlFlow<()>,
    each: &mut dyn FnMut(Stored) -> ControlFlow<()>,
) -> Result<()> {
    let Where { sql, params, residual } = options.query.to_sql(&Tables);
    let values = values(params);
    let (order, beyond) = match options.order {
        Order::Newest => ("DESC", "<"),
        Order::Oldest => ("ASC", ">"),
    };
    let mut one = db.prepare_cached(&format!("SELECT {} FROM {} WHERE f.seq = ?", rows::COLUMNS, rows::SOURCES))?;
    let mut after = options.after.map(|id| id.to_u128().to_be_bytes().to_vec());
    let mut found = 0;
    loop {
        let mut values = values.clone();
        let cursor = match after.clone() {
            Some(id) => {
                values.push(Value::Blob(id));
                format!(" AND f.id {beyond} ?")
            }
            None => String::new(),
        };
        // Without the limit a matcher may need many rows; with it SQLite stops sorting early.
        let left = options.limit - found;
        let limit = if residual.is_none() { format!(" LIMIT {}", left.min(1 << 62)) } else { String::new() };
        // Which rows, then the rows: what SQLite may have to sort stays narrow, and an index alone often tells it.
        let text = format!("SELECT f.seq, f.id FROM flows f WHERE {sql}{cursor} ORDER BY f.id {order}{limit}");
        let mut which = db.prepare_cached(&text)?;
        let mut chosen = which.query(params_from_iter(values))?;
        let mut skipped = false;
        while found < options.limit
            && let Some(row) = chosen.next()?
        {
            if watch().is_break() {
                return Err(StoreError::Cancelled);
            }
            let seq = row.get::<_, i64>(0)?;
            let read = one.query_row([seq], |r| Ok(rows::read(r))).map_err(StoreError::from).and_then(|read| read);
            let Some(mut stored) = damages.sift(seq, read)? else {
                skipped = true;
                after = row.get(1).ok();
                continue;
            };
            let selected = match &residual {
                None => true,
                Some(query) => matches(db, dir, &mut stored, query),
            };
            if skipped {
                after = row.get(1).ok();
            }
            if selected {
                found += 1;
                if each(stored).is_break() {
                    return Ok(());
                }
            }
        }
        // Rows that were left out stood in the place of others that the limit cut off.
        if !skipped || residual.is_some() || found >= options.limit || after.is_none() {
            return Ok(());
        }
    }
}

/// How many flows a query selects, when SQL alone can tell.
pub(crate) fn count(db: &Connection, query: &Query) -> Result<(u64, bool)> {
    let Where { sql, params, residual } = query.to_sql(&Tables);
    let text = format!("SELECT count(*) FROM flows f WHERE {sql}");
    let n = db.prepare_cached(&text)?.query_row(params_from_iter(values(params)), |r| r.get(0))?;
    Ok((n, residual.is_none()))
}

pub(crate) fn values(params: Vec<Param>) -> Vec<Value> {
    params
        .into_iter()
        .map(|p| match p {
            Param::Text(t) => Value::Text(t),
            Param::Integer(n) => Value::Integer(n),
        })
        .collect()
}

pub(crate) fn matches(db: &Connection, dir: &std::path::Path, stored: &mut Stored, query: &Query) -> bool {
    query.matches(&WithBodies { db, dir, stored })
}

/// A row whose bodies and messages are loaded when a query asks for them.
struct WithBodies<'a> {
    db: &'a Connection,
    dir: &'a std::path::Path,
    stored: &'a Stored,
}

impl WithBodies<'_> {
    fn row(&self) -> &FlowRow {
        &self.stored.row
    }

    /// The decoded body, at most [`SEARCHED`] of it; nothing where it is damaged.
    fn load(&self, direction: Direction) -> Result<Bytes> {
        let at = side(direction);
        let mut copy = Stored {
            seq: self.stored.seq,
            row: self.row().clone(),
            refs: self.stored.refs.clone(),
            inline: self.stored.inline.clone(),
        };
        let parts = Parts::of(self.db, &mut copy, at)?;
        let body = BodyReader::pieces(self.db, &segments_dir(self.dir), parts, SEARCHED)?;
        Ok(match FlowRow::headers(self.row(), direction) {
            Some(h) => content::decoded(h, body, SEARCHED).bytes,
            None => body,
        })
    }

    fn any_message(&self, direction: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool> {
        let mut files = Files::default();
        let segments = segments_dir(self.dir);
        let mut reader = super::body::ChunkReader::new(self.db, &segments, &mut files);
        let mut first = 0;
        while first < self.row().messages {
            let block = messages::read(self.db, &mut reader, self.stored.seq, first..first + MESSAGES)?;
            if block.iter().any(|m| m.direction == direction && fits(&m.payload)) {
                return Ok(true);
            }
            first += MESSAGES;
        }
        Ok(false)
    }
}

impl Subject for WithBodies<'_> {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Truth {
        match key {
            Key::Model | Key::Provider | Key::Agent => {
                let calls = conversations::calls(self.db, self.row().id).unwrap_or_default();
                text_of_calls(&calls, key, fits).unwrap_or(Truth::Known(false))
            }
            key => self.row().text(key, fits),
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match key {
            Key::Tokens => tokens_of_calls(&conversations::calls(self.db, self.row().id).unwrap_or_default()),
            key => self.row().number(key),
        }
    }

    fn flag(&self, flag: Flag) -> Truth {
        self.row().flag(flag)
    }

    fn address(&self, key: Key) -> Fact<std::net::SocketAddr> {
        self.row().address(key)
    }

    fn headers(&self, side: Direction, fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Truth {
        Subject::headers(self.row(), side, fits)
    }

    fn body(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Truth {
        let whole = self.row().body(side).is_some_and(|b| b.kept > 0) && self.load(side).is_ok_and(|b| fits(&b));
        Truth::Known(whole || self.any_message(side, fits).unwrap_or(false))
    }
}
