//! Recovery when a store is opened after its writer did not shut down cleanly.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;

use interflow_types::{Direction, FlowId};
use rusqlite::{Connection, params};

use crate::error::{Result, StoreError};
use crate::model::{BodyRecord, MissingReason};
use crate::store::rows;
use crate::store::segments::segment::{RecordLocation, SegmentAppender};
use crate::store::segments::{chunk_refs, segment};
use crate::store::upkeep::damage::is_of_row;

/// What was found when a store was opened. All zero after an orderly shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StoreRecovery {
    /// The last writer did not close the store.
    pub unclean: bool,
    /// Flows that were running then; they are kept, marked as cut off.
    pub cut_flows: u64,
    /// Bytes of the last, incomplete batch that were removed from the newest segment.
    pub cut_bytes: u64,
    /// Flows that lost stored body data; their rows say so.
    pub damaged_flows: u64,
    /// The database was unreadable and was moved away: the store started empty.
    pub set_aside: bool,
    /// The disk is full: recording is suspended until space is available.
    pub full: bool,
}

/// The marker file that exists while the store is being written.
pub(crate) fn marker(dir: &Path) -> std::path::PathBuf {
    dir.join("writing")
}

/// Makes the store consistent (all chunks named by rows exist) and opens its newest segment.
pub(crate) fn recover(dir: &Path, segments: &Path, db: &Connection) -> Result<(SegmentAppender, StoreRecovery)> {
    let mut recovery = StoreRecovery { unclean: marker(dir).exists(), ..StoreRecovery::default() };
    let files = segment::list(segments)?;
    let named: Option<u64> = db.query_row("SELECT max(segment) FROM chunks", [], |r| r.get(0))?;
    // The file may be missing while chunks still name it, and a new file may have no chunk yet; numbers are never
    // reused.
    let newest = files.last().map_or(0, |(n, _)| *n).max(named.unwrap_or(0)).max(1);
    // The marker exists from open to orderly close. Without it, the checks below, which read the whole newest segment,
    // are not needed.
    if recovery.unclean {
        crate::store::overview::columns::forget_open(db)?;
        recovery.cut_flows = mark_open_as_cut(db)?;
        let lost = lost_chunks(segments, db, &files.into_iter().collect(), newest)?;
        if !lost.is_empty() {
            recovery.damaged_flows = mark_lost(db, &lost)?;
        }
    }
    // What follows the last named chunk is the rest of a batch that was not committed.
    let end: Option<u64> =
        db.query_row("SELECT max(offset + len) FROM chunks WHERE segment = ?", [newest], |r| r.get(0))?;
    let (appender, cut) = SegmentAppender::open(segments, newest, end.unwrap_or(0))?;
    recovery.cut_bytes = cut;
    let path = marker(dir);
    // Written last, when the store is consistent: a failure before this leaves the old marker as it was.
    std::fs::write(&path, b"").map_err(StoreError::io("could not write", path))?;
    Ok((appender, recovery))
}

/// Marks flows that were running as cut off when the last row was inserted, which is the last time known of all.
fn mark_open_as_cut(db: &Connection) -> Result<u64> {
    let work = db.unchecked_transaction()?;
    let sql = "SELECT id, (SELECT stored FROM flows ORDER BY seq DESC LIMIT 1) FROM flows WHERE state = 0";
    let mut open = db.prepare(sql)?;
    let open: Vec<([u8; 16], u64)> = open.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    // In the database 3 is `Cut` and 0 is `Open`. At once, because rows that cannot be read are cut off as well.
    let cut = db.execute("UPDATE flows SET state = 3 WHERE state = 0", [])? as u64;
    for (id, last) in open {
        if let Ok(mut stored) = rows::get(db, FlowId::from_u128(u128::from_be_bytes(id))) {
            let ran = last.saturating_sub(stored.row.started.micros());
            stored.row.timings.done = stored.row.duration().max(Some(ran));
            rows::update(db, &stored.as_new())?;
        }
    }
    work.commit()?;
    Ok(cut)
}

/// Chunks named by rows but missing in segments: checked by length in all segments, by reading in the newest one.
fn lost_chunks(segments: &Path, db: &Connection, files: &HashMap<u64, u64>, newest: u64) -> Result<HashSet<u64>> {
    let file = File::open(segment::path(segments, newest)).ok();
    let mut statement = db.prepare("SELECT id, segment, offset, len FROM chunks")?;
    let mut rows = statement.query([])?;
    let mut lost = HashSet::new();
    while let Some(row) = rows.next()? {
        let location = RecordLocation { segment: row.get(1)?, offset: row.get(2)?, len: row.get(3)? };
        let there = files.get(&location.segment).is_some_and(|len| location.offset + location.len <= *len);
        let whole =
            // Older segments were synced when they were closed; their length is evidence enough.
            there && (location.segment != newest || file.as_ref().is_some_and(|f| segment::read(f, location).is_ok()));
        if !whole {
            lost.insert(row.get(0)?);
        }
    }
    Ok(lost)
}

/// Marks flows that lost a part of their bodies, and removes lost chunks from the index.
fn mark_lost(db: &Connection, lost: &HashSet<u64>) -> Result<u64> {
    let mut hit = Vec::new();
    {
        let mut statement = db.prepare("SELECT seq, id, chunks FROM flows WHERE chunks IS NOT NULL")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            // A row whose list is damaged cannot be repaired here; it is reported when it is read.
            let Ok(lists) = chunk_refs::decode(row.get_ref(2)?.as_blob_or_null().map_err(rusqlite::Error::from)?)
            else {
                continue;
            };
            if lists.iter().flatten().any(|r| lost.contains(&r.id)) {
                hit.push(u128::from_be_bytes(row.get(1)?));
            }
        }
    }
    db.execute_batch("BEGIN IMMEDIATE")?;
    for id in &hit {
        let mut stored = match rows::get(db, FlowId::from_u128(*id)) {
            // A damaged row is skipped, not fatal: the store opens with the rest.
            Err(e) if is_of_row(&e) => continue,
            read => read?,
        };
        for (side, refs) in stored.refs.iter_mut().enumerate() {
            let Some(first) = refs.iter().position(|r| lost.contains(&r.id)) else { continue };
            // A body with a hole is of no use, so it ends at the first lost chunk.
            refs.truncate(first);
            let kept = refs.iter().map(|r| r.len).sum();
            // The inline end belongs after the lost part.
            stored.inline[side].clear();
            db.execute("DELETE FROM tails WHERE seq = ? AND direction = ?", params![stored.position, side])?;
            let row = &mut stored.row;
            // Sides 0 and 1 are the bodies as sent, 2 and 3 as received, the rest certificates.
            let direction = if side % 2 == 0 { Direction::Request } else { Direction::Response };
            let body = match (side, direction) {
                (chunk_refs::CERTIFICATES.., _) => None,
                (2.., _) => row.original.as_mut().and_then(|o| o.edited_body_mut(direction)),
                (_, Direction::Request) => row.request.as_mut().map(|r| &mut r.body),
                (_, Direction::Response) => row.response.as_mut().map(|r| &mut r.body),
            };
            if let Some(b) = body {
                *b = BodyRecord::partial(b.size, kept, Some(MissingReason::Lost));
            }
        }
        rows::update(db, &stored.as_new())?;
    }
    for id in lost {
        db.prepare_cached("DELETE FROM chunks WHERE id = ?")?.execute([id])?;
    }
    db.execute_batch("COMMIT")?;
    Ok(hit.len() as u64)
}
