//! Columns of the tables of conversations, and how their rows are read.

use std::cell::RefCell;

use interflow_types::{FlowId, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::conversations::{ConversationRow, ExchangeRow, TokenUsage};
use crate::error::{Result, StoreError};
use crate::store::rows;
use crate::store::segments::compress::{self, Compressor};

pub(crate) const CONVERSATION: &str = "c.id, c.session, c.parent, c.started, c.updated, c.agent, c.model, c.provider, c.host, c.user, c.title, c.turns, c.facts";
pub(crate) const USAGE_SUMS: &str = "count(*), coalesce(sum(input), 0), coalesce(sum(output), 0), coalesce(sum(cache_read), 0), \
     coalesce(sum(cache_write), 0), coalesce(sum(reasoning), 0), coalesce(sum(cost), 0.0), \
     coalesce(sum(cost IS NULL), 0)";
/// The columns of a call, in every database.
pub const EXCHANGE: &str = "flow, part, conversation, started, leaf, agent, model, provider, input, output, cache_read, \
     cache_write, reasoning, cost, facts, failed";
/// Maximum size of a body when read back, in bytes: bounds what a damaged length may allocate.
const MAX_DECOMPRESSED_LEN: usize = 256 << 20;

thread_local! {
    /// To make one takes longer than to compress a short text.
    static COMPRESSOR: RefCell<Compressor> = RefCell::new(Compressor::new(true));
}

/// The calls of models that a flow carried.
pub(crate) fn calls(db: &Connection, flow: FlowId) -> Result<Vec<ExchangeRow>> {
    let sql = format!("SELECT {EXCHANGE} FROM conversation_exchanges WHERE flow = ? ORDER BY part");
    rows::query_all(db, &sql, [flow.to_u128().to_be_bytes()], exchange)
}

pub(crate) fn conversation(r: &Row<'_>) -> Result<ConversationRow> {
    Ok(ConversationRow {
        id: r.get(0)?,
        session: r.get(1)?,
        parent: r.get(2)?,
        started: time(r, 3)?,
        updated: time(r, 4)?,
        agent: r.get(5)?,
        model: r.get(6)?,
        provider: r.get(7)?,
        host: r.get(8)?,
        user: r.get(9)?,
        title: r.get(10)?,
        turns: r.get::<_, i64>(11)?.unsigned_abs(),
        facts: r.get(12)?,
    })
}

pub(crate) fn exchange(r: &Row<'_>) -> Result<ExchangeRow> {
    let count = |i: usize| r.get::<_, i64>(i).map(i64::unsigned_abs);
    let cost: Option<f64> = r.get(13)?;
    Ok(ExchangeRow {
        flow: flow_of(r.get(0)?),
        part: count(1)?,
        conversation: r.get(2)?,
        started: time(r, 3)?,
        leaf: r.get::<_, Option<[u8; 16]>>(4)?.map(u128::from_be_bytes),
        agent: r.get(5)?,
        model: r.get(6)?,
        provider: r.get(7)?,
        used: TokenUsage {
            exchanges: 1,
            input: count(8)?,
            output: count(9)?,
            cache_read: count(10)?,
            cache_write: count(11)?,
            reasoning: count(12)?,
            cost: cost.unwrap_or_default(),
            // A missing cost is counted rather than taken for zero.
            unpriced: u64::from(cost.is_none()),
        },
        facts: r.get(14)?,
        failed: r.get(15)?,
    })
}

pub(crate) fn read_usage(r: &Row<'_>, at: usize) -> rusqlite::Result<TokenUsage> {
    let count = |i: usize| r.get::<_, i64>(at + i).map(i64::unsigned_abs);
    Ok(TokenUsage {
        exchanges: count(0)?,
        input: count(1)?,
        output: count(2)?,
        cache_read: count(3)?,
        cache_write: count(4)?,
        reasoning: count(5)?,
        cost: r.get(at + 6)?,
        unpriced: count(7)?,
    })
}

pub(crate) fn time(r: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    r.get::<_, i64>(at).map(|t| Timestamp::from_micros(t.unsigned_abs()))
}

pub(crate) const fn flow_of(bytes: [u8; 16]) -> FlowId {
    FlowId::from_u128(u128::from_be_bytes(bytes))
}

pub(crate) fn key_of(value: ValueRef<'_>) -> Result<Option<u128>> {
    let ValueRef::Blob(bytes) = value else { return Ok(None) };
    let key =
        bytes.try_into().map_err(|_| StoreError::damaged("a conversation's message", "its name is not a name"))?;
    Ok(Some(u128::from_be_bytes(key)))
}

/// The first byte says whether the rest is compressed.
pub fn compress_text(body: &str) -> Vec<u8> {
    COMPRESSOR.with_borrow_mut(|c| match (c.compress(body.as_bytes()), u32::try_from(body.len())) {
        (Some(squeezed), Ok(length)) => [&[1][..], &length.to_be_bytes(), squeezed].concat(),
        _ => [&[0][..], body.as_bytes()].concat(),
    })
}

pub fn decompress_text(stored: &[u8]) -> Result<String> {
    let damaged = || StoreError::damaged("a conversation's message", "its body cannot be read");
    let bytes = match stored {
        [0, plain @ ..] => plain.to_vec(),
        [1, a, b, c, d, squeezed @ ..] => {
            // A damaged length must not allocate gigabytes.
            let length = (u32::from_be_bytes([*a, *b, *c, *d]) as usize).min(MAX_DECOMPRESSED_LEN);
            compress::decompress(squeezed, length).map_err(|_| damaged())?
        }
        _ => Vec::new(),
    };
    String::from_utf8(bytes).map_err(|_| damaged())
}
