//! Bodies and messages of flows in PostgreSQL.

use std::ops::Range;

use bytes::{Buf, Bytes};
use interflow_store::stored_form::decompress;
use interflow_store::{BodyReader, MessageRecord, Result, StoreError};
use interflow_types::{Direction, FlowId, MessageKind, Timestamp};

use crate::database::pool::Database;
use crate::database::rows::{signed, uuid_of};
use crate::shipping::objects;

/// The longest piece that is decoded: longer ones are damaged.
const MAX_PIECE: i64 = 64 << 20;

/// A reader of one of a flow's bodies, which may be in its row.
pub(crate) fn reader(database: &Database, id: FlowId, side: usize, inline: Bytes, range: Range<u64>) -> BodyReader {
    if !inline.is_empty() {
        let fetch = move |at: u64| {
            let at = usize::try_from(at).unwrap_or(usize::MAX).min(inline.len());
            Ok(Some(inline.slice(at..)))
        };
        return BodyReader::fetched(Box::new(fetch), range);
    }
    let database = database.clone();
    BodyReader::fetched(Box::new(move |at| piece(&database, id, side, at)), range)
}

/// The bytes of a body from an offset to the end of the piece that holds it.
fn piece(database: &Database, id: FlowId, side: usize, at: u64) -> Result<Option<Bytes>> {
    let (side, at) = (side as i16, signed(at));
    let find = || {
        database.run(move |client| async move {
            let sql = "SELECT at, size, coding, bytes, object, object_offset, stored_size FROM bodies \
                       WHERE flow = $1 AND side = $2 AND at <= $3 ORDER BY at DESC LIMIT 1";
            let statement = client.prepare_cached(sql).await?;
            client.query_opt(&statement, &[&uuid_of(id), &side, &at]).await
        })
    };
    let Some(row) = find()? else { return Ok(None) };
    let damaged = |what: &str| StoreError::damaged(format!("a body of flow {id}"), what);
    let (begin, size, coding, stored_size): (i64, i64, i16, i64) = (row.get(0), row.get(1), row.get(2), row.get(6));
    let skipped = at - begin;
    if skipped >= size {
        return Ok(None);
    }
    if size.max(stored_size) > MAX_PIECE {
        return Err(damaged("its row names a length that no piece has"));
    }
    let stored = match (row.get::<_, Option<&[u8]>>(3), row.get::<_, Option<String>>(4), row.get(5)) {
        (Some(bytes), ..) => Bytes::copy_from_slice(bytes),
        (None, Some(object), Some(offset)) => match objects::read(database, object.clone(), offset, stored_size)? {
            Some(bytes) => bytes,
            // Deleted together with its flow meanwhile.
            None if find()?.is_none() => return Err(StoreError::NotFound(id)),
            None => {
                let what = "is not there any more: it was deleted in the bucket, or record.objects names another one";
                return Err(damaged(&format!("the object `{object}` {what}")));
            }
        },
        _ => return Err(damaged("its bytes are not there")),
    };
    if stored.len() as i64 != stored_size {
        return Err(damaged("fewer bytes are stored than its row says"));
    }
    let mut bytes: Bytes = match coding {
        0 => stored,
        1 => {
            decompress(&stored, size as usize).map_err(|e| damaged(&format!("it cannot be decompressed: {e}")))?.into()
        }
        _ => return Err(damaged("its coding is unknown")),
    };
    if bytes.len() as i64 != size {
        return Err(damaged("it has another length than its row says"));
    }
    bytes.advance(skipped as usize);
    Ok(Some(bytes))
}

/// The messages of a flow whose indexes are in `range`.
pub(crate) fn messages(database: &Database, id: FlowId, range: Range<u64>) -> Result<Vec<MessageRecord>> {
    let (first, end) = (signed(range.start), signed(range.end));
    let rows = database.run(move |client| async move {
        let sql = "SELECT index, direction, kind, at, size, payload FROM messages \
                   WHERE flow = $1 AND index >= $2 AND index < $3 ORDER BY index";
        let statement = client.prepare_cached(sql).await?;
        client.query(&statement, &[&uuid_of(id), &first, &end]).await
    })?;
    let damaged = || StoreError::damaged(format!("a message of flow {id}"), "its kind is unknown");
    rows.iter()
        .map(|row| {
            let kind = usize::try_from(row.get::<_, i16>(2)).ok().and_then(|k| MessageKind::ALL.get(k));
            Ok(MessageRecord {
                index: row.get::<_, i64>(0) as u64,
                direction: Direction::ALL[usize::from(row.get::<_, i16>(1) == 1)],
                kind: *kind.ok_or_else(damaged)?,
                at: Timestamp::from_micros(row.get::<_, i64>(3) as u64),
                size: row.get::<_, i64>(4) as u64,
                payload: Bytes::copy_from_slice(row.get(5)),
            })
        })
        .collect()
}
