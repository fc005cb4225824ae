//! What overviews need of a flow, as compact columns of 1,024 consecutive rows.
//!
//! Reading the rows themselves costs some microseconds each, and their columns are spread over as many pages as the
//! table has. A block holds about 20 bytes per flow, is read in one piece, and stays valid until one of its flows ends
//! or is deleted. The columns are exact, so a span of time may begin and be divided anywhere.

use std::collections::HashMap;

use rusqlite::{Connection, Row, params};

use crate::error::{Result, StoreError};
use crate::store::details_blob;
use crate::store::segments::varint::{VarintReader, write_signed, write_varint};

/// Rows per block, by their numbers.
pub const BLOCK_ROWS: i64 = 1024;
/// The encoding. Blocks of another one are made anew.
const ENCODING: u8 = 1;

const ROWS: &str = "SELECT f.seq, f.started, f.kind, f.state, f.status, f.duration, f.request_size, f.response_size, \
     f.error IS NOT NULL, h.name, f.user, f.error, d.detail \
     FROM flows f JOIN hosts h ON h.id = f.host LEFT JOIN details d ON d.seq = f.seq \
     WHERE f.seq >= ? AND f.seq < ? ORDER BY f.seq";

/// A flow. Texts are numbers in the block's list, of which 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowColumns {
    pub seq: i64,
    pub started: u64,
    /// Whether it is an HTTP exchange, rather than a WebSocket or a tunnel.
    pub is_http: bool,
    pub is_open: bool,
    pub has_failed: bool,
    /// 0 without a response, and while the flow is open.
    pub status: u16,
    pub duration: Option<u64>,
    pub sent: u64,
    pub received: u64,
    pub host: u32,
    pub user: u32,
    pub process: u32,
    pub error: u32,
}

/// A block in the form in which it is stored.
#[derive(Clone, Debug)]
pub struct EncodedBlock {
    pub block: i64,
    /// When its flows began, the first and the last.
    pub span: (u64, u64),
    pub data: Vec<u8>,
    /// What tells whether rows have changed since the block was made.
    pub seal: BlockSeal,
}

/// Count and sum of the row numbers, and how many of the flows are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSeal(i64, i64, i64);

impl BlockSeal {
    /// The seal of a block's rows as they are now.
    pub fn read(db: &Connection, block: i64) -> Result<Self> {
        let sql = "SELECT count(*), coalesce(sum(seq), 0), coalesce(sum(state = 0), 0) FROM flows \
                   WHERE seq >= ? AND seq < ?";
        let range = params![block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS];
        Ok(db.prepare_cached(sql)?.query_row(range, |r| Ok(Self(r.get(0)?, r.get(1)?, r.get(2)?)))?)
    }
}

/// The texts of a block while it is made.
#[derive(Default)]
pub struct TextNumbers(HashMap<String, u32>, Vec<String>);

impl TextNumbers {
    pub fn number(&mut self, text: Option<String>) -> u32 {
        let Some(text) = text.filter(|t| !t.is_empty()) else { return 0 };
        if let Some(known) = self.0.get(&text) {
            return *known;
        }
        self.1.push(text.clone());
        let number = self.1.len() as u32;
        self.0.insert(text, number);
        number
    }

    pub fn texts(&self) -> Vec<&str> {
        self.1.iter().map(String::as_str).collect()
    }
}

/// Makes a block from its rows; `None` if there are none.
pub fn read_rows(db: &Connection, block: i64) -> Result<Option<EncodedBlock>> {
    let mut texts = TextNumbers::default();
    let mut flows = Vec::new();
    let mut statement = db.prepare_cached(ROWS)?;
    let mut rows = statement.query(params![block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS])?;
    while let Some(row) = rows.next()? {
        flows.push(flow(row, &mut texts)?);
    }
    let (Some(first), Some(last)) = (flows.iter().map(|f| f.started).min(), flows.iter().map(|f| f.started).max())
    else {
        return Ok(None);
    };
    let seal = BlockSeal(
        flows.len() as i64,
        flows.iter().map(|f| f.seq).sum(),
        flows.iter().filter(|f| f.is_open).count() as i64,
    );
    Ok(Some(EncodedBlock { block, span: (first, last), data: encode(block, &flows, &texts.1), seal }))
}

fn flow(row: &Row<'_>, texts: &mut TextNumbers) -> Result<FlowColumns> {
    let number = |i: usize| row.get::<_, Option<i64>>(i).map(|n| n.unwrap_or_default().max(0) as u64);
    let text = |i: usize| -> Result<Option<String>> {
        Ok(row.get_ref(i)?.as_bytes_or_null().ok().flatten().map(|t| String::from_utf8_lossy(t).into_owned()))
    };
    let open = number(3)? == 0;
    let process = row.get_ref(12)?.as_blob_or_null().ok().flatten().and_then(details_blob::process_name);
    let mut flow = FlowColumns {
        seq: row.get(0)?,
        started: number(1)?,
        is_http: number(2)? == 0,
        is_open: open,
        host: texts.number(text(9)?),
        user: texts.number(text(10)?),
        process: texts.number(process),
        ..FlowColumns::default()
    };
    // The rest may change until the flow ends, and only its end makes the block again.
    if !open {
        flow.has_failed = number(3)? == 2 || number(8)? != 0;
        flow.status = u16::try_from(number(4)?).unwrap_or_default();
        flow.duration = row.get::<_, Option<i64>>(5)?.map(i64::unsigned_abs);
        (flow.sent, flow.received) = (number(6)?, number(7)?);
        flow.error = texts.number(text(11)?);
    }
    Ok(flow)
}

const HTTP: u64 = 1;
const OPEN: u64 = 2;
const FAILED: u64 = 4;
const TIMED: u64 = 8;
const USER: u64 = 16;
const PROCESS: u64 = 32;
const ERROR: u64 = 64;

fn encode(block: i64, flows: &[FlowColumns], texts: &[String]) -> Vec<u8> {
    let mut out = Vec::with_capacity(flows.len() * 20);
    out.push(ENCODING);
    write_varint(&mut out, texts.len() as u64);
    for text in texts {
        write_varint(&mut out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
    write_varint(&mut out, flows.len() as u64);
    let (mut seq, mut started) = (block * BLOCK_ROWS, 0);
    for f in flows {
        write_varint(&mut out, (f.seq - seq) as u64);
        write_signed(&mut out, f.started as i64 - started);
        (seq, started) = (f.seq, f.started as i64);
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        let flags = flag(f.is_http, HTTP)
            | flag(f.is_open, OPEN)
            | flag(f.has_failed, FAILED)
            | flag(f.duration.is_some(), TIMED)
            | flag(f.user != 0, USER)
            | flag(f.process != 0, PROCESS)
            | flag(f.error != 0, ERROR);
        let optional = [(f.user, USER), (f.process, PROCESS), (f.error, ERROR)];
        for n in [flags, u64::from(f.status), f.sent, f.received, u64::from(f.host)] {
            write_varint(&mut out, n);
        }
        f.duration.iter().for_each(|d| write_varint(&mut out, *d));
        optional.iter().filter(|(_, bit)| flags & bit != 0).for_each(|(n, _)| write_varint(&mut out, u64::from(*n)));
    }
    out
}

/// A stored block, opened: its texts, whose numbers begin at 1, and its flows.
pub fn open<'a>(block: i64, data: &'a [u8]) -> Result<(Vec<&'a str>, FlowReader<'a>)> {
    let mut input = VarintReader(data);
    if input.byte()? != ENCODING {
        return Err(damaged(block));
    }
    let texts = (0..input.number()?).map(|_| std::str::from_utf8(input.bytes()?).map_err(|_| damaged(block)));
    let texts = texts.collect::<Result<Vec<_>>>()?;
    let text_count = texts.len() as u64;
    Ok((texts, FlowReader { block, text_count, input }))
}

fn damaged(block: i64) -> StoreError {
    StoreError::damaged(format!("columns of block {block}"), "they cannot be read")
}

/// Reads the flows of a block.
pub struct FlowReader<'a> {
    block: i64,
    /// How many texts the block has.
    text_count: u64,
    input: VarintReader<'a>,
}

impl FlowReader<'_> {
    /// Calls `each` with every flow, in the order of their rows.
    pub fn for_each(mut self, mut each: impl FnMut(&FlowColumns)) -> Result<()> {
        let input = &mut self.input;
        let (mut seq, mut started) = (self.block * BLOCK_ROWS, 0i64);
        let text = |n: u64| if n <= self.text_count { Ok(n as u32) } else { Err(damaged(self.block)) };
        for _ in 0..input.number()? {
            seq = seq.wrapping_add(input.number()? as i64);
            started = started.wrapping_add(input.signed()?);
            let flags = input.number()?;
            let optional = |bit: u64, input: &mut VarintReader<'_>| match flags & bit {
                0 => Ok(0),
                _ => input.number(),
            };
            let status = input.number()? as u16;
            let (sent, received) = (input.number()?, input.number()?);
            let host = text(input.number()?)?;
            let duration = optional(TIMED, input)?;
            each(&FlowColumns {
                seq,
                started: started.max(0) as u64,
                is_http: flags & HTTP != 0,
                is_open: flags & OPEN != 0,
                has_failed: flags & FAILED != 0,
                status,
                duration: (flags & TIMED != 0).then_some(duration),
                sent,
                received,
                host,
                user: text(optional(USER, input)?)?,
                process: text(optional(PROCESS, input)?)?,
                error: text(optional(ERROR, input)?)?,
            });
        }
        Ok(())
    }
}

/// The row number behind the last stored block.
pub(crate) fn columns_end(db: &Connection) -> Result<i64> {
    let last: Option<i64> = db.query_row("SELECT max(block) FROM flow_columns", [], |r| r.get(0))?;
    Ok(last.map_or(0, |block| (block + 1) * BLOCK_ROWS))
}

/// Deletes the blocks of open flows, which are about to be marked as cut off.
pub(crate) fn forget_open(db: &Connection) -> Result<()> {
    let sql = "DELETE FROM flow_columns WHERE block IN (SELECT seq / ? FROM flows WHERE state = 0)";
    Ok(db.execute(sql, [BLOCK_ROWS]).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn a_flow() -> impl Strategy<Value = FlowColumns> {
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), proptest::option::of(0u64..1 << 40));
        (1i64..4, 0u64..1 << 50, flags, 0u16..600, any::<u32>(), any::<u32>(), 0u32..3, 0u32..3).prop_map(
            |(seq, started, (is_http, is_open, has_failed, duration), status, sent, received, host, user)| {
                FlowColumns {
                    seq,
                    started,
                    is_http,
                    is_open,
                    has_failed,
                    status,
                    duration,
                    sent: sent.into(),
                    received: received.into(),
                    host,
                    user,
                    process: user,
                    error: host,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn columns_round_trip(steps in proptest::collection::vec(a_flow(), 0..50)) {
            let texts = ["a.test".to_owned(), "alice".to_owned()];
            let mut flows = steps;
            let mut seq = 7 * BLOCK_ROWS;
            for f in &mut flows {
                seq += f.seq;
                f.seq = seq;
            }
            let data = encode(7, &flows, &texts);
            let (names, reader) = open(7, &data).unwrap();
            let mut found = Vec::new();
            reader.for_each(|f| found.push(*f)).unwrap();
            prop_assert_eq!(found, flows);
            prop_assert_eq!(names, texts);
        }

        #[test]
        fn arbitrary_bytes_never_panic(data: Vec<u8>) {
            let data = [&[ENCODING], &data[..]].concat();
            if let Ok((_, reader)) = open(1, &data) {
                let _ = reader.for_each(|_| ());
            }
        }
    }
}
