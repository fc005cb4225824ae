//! A finished flow on its way from the spool to PostgreSQL. Its details are moved as they are, without being read: both stores
//! have the same encoding of them.

use std::borrow::Cow;

use bytes::Bytes;
use interflow_types::{Authority, FlowId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::model::FlowState;
use crate::serde_repr;
use crate::shared::database::copy_format::CopyRows;
use crate::shared::database::rows::uuid_of;
use crate::shared::shipping::pieces::MAX_INLINE;
use crate::store::details_blob;
use crate::store::rows;
use crate::store::segments::body::StoredBodyParts;
use crate::store::segments::chunk_refs;
use crate::store::segments::chunk_refs::{CERTIFICATES, ChunkRef, SIDES};

/// The columns that are written, in the order in which they are encoded.
pub(crate) const WRITTEN: &str = "id, state, kind, started, duration, transport, scheme, host, port, method, path, url, status, \
     version, username, process, client, listener, request_size, response_size, request_type, response_type, messages, error, \
     tags, kept, replica, stored, detail";
/// Their number.
const WRITTEN_COLUMNS: i16 = 29;

/// The columns that [`SpooledFlow::read`] takes, after [`rows::COLUMNS`].
pub(crate) const MORE_COLUMNS: &str =
    "f.duration, f.status, f.client, f.request_size, f.response_size, f.request_type, f.response_type, f.kept";

pub(crate) struct SpooledFlow {
    pub(crate) seq: i64,
    pub(crate) id: FlowId,
    pub(crate) messages: u64,
    pub(crate) refs: [Vec<ChunkRef>; SIDES],
    /// The lengths of the bodies' ends, which are in the details.
    ends: [u64; SIDES],
    detail: Vec<u8>,
    /// The columns up to `kept`.
    columns: CopyRows,
}

impl SpooledFlow {
    /// Reads the columns of [`rows::COLUMNS`] and [`MORE_COLUMNS`].
    pub(crate) fn read(db: &Connection, r: &Row<'_>) -> Result<Self> {
        let number = |i: usize| r.get::<_, i64>(i);
        let blob = |i: usize| r.get_ref(i)?.as_blob_or_null().map_err(rusqlite::Error::from);
        let seq = number(0)?;
        let mut detail = blob(18)?.unwrap_or_default().to_vec();
        let mut duration: Option<i64> = r.get(19)?;
        if number(2)? == rows::state_number(FlowState::Cut) {
            let cut = rows::read(r)?;
            duration = cut.row.duration().map(|d| d as i64);
            // What a running flow saved is still in its place if the process was killed.
            let sides: [_; SIDES] = std::array::from_fn(|side| StoredBodyParts::for_side(db, &cut, side));
            let mut ends: [Bytes; SIDES] = Default::default();
            for (end, side) in ends.iter_mut().zip(sides) {
                *end = side?.tail;
            }
            detail = details_blob::encode(&cut.row, ends.each_ref().map(|end| &end[..]));
        }
        let id = FlowId::from_u128(u128::from_be_bytes(r.get(1)?));
        Ok(Self {
            seq,
            id,
            messages: r.get(14)?,
            refs: chunk_refs::decode(blob(17)?)?,
            ends: details_blob::inline_lengths(&detail)?,
            columns: encode_columns(r, (seq, id), duration, &detail)?,
            detail,
        })
    }

    pub(crate) const fn uuid(&self) -> Uuid {
        uuid_of(self.id)
    }

    /// The length of one of its bodies, as it is stored.
    pub(crate) fn body_len(&self, side: usize) -> u64 {
        self.refs[side].iter().map(|r| r.len).sum::<u64>() + self.ends[side]
    }

    /// The bytes of all bodies.
    pub(crate) fn body_bytes(&self) -> u64 {
        (0..SIDES).map(|side| self.body_len(side)).sum()
    }

    /// The bytes of a body after its chunks.
    pub(crate) fn end(&self, side: usize) -> &[u8] {
        details_blob::inline_end(&self.detail, side)
    }

    /// Whether a body is part of its flow's row. Certificate chains never are: they are read rarely.
    pub(crate) fn is_inline(&self, side: usize) -> bool {
        side < CERTIFICATES && self.body_len(side) <= MAX_INLINE
    }

    /// Whether there is a body that is stored apart from its flow's row.
    pub(crate) fn is_apart(&self, side: usize) -> bool {
        self.body_len(side) > 0 && !self.is_inline(side)
    }

    /// Whether a body is part of its flow's row, but not of its details.
    pub(crate) fn is_collected(&self, side: usize) -> bool {
        !self.refs[side].is_empty() && self.is_inline(side)
    }

    /// Writes its row, in the columns of [`WRITTEN`], with nothing of its bodies.
    pub(crate) fn write_head(&self, rows: &mut CopyRows, replica: &str) -> Result<()> {
        rows.row(WRITTEN_COLUMNS);
        rows.values(&self.columns);
        rows.text(replica);
        // Not stored yet.
        rows.int8(0);
        let mut detail = Cow::Borrowed(&self.detail[..]);
        for side in (0..SIDES).filter(|side| self.ends[*side] > 0) {
            detail = details_blob::with_inline(&detail, side, &[])?.into();
        }
        rows.bytes(&detail);
        Ok(())
    }

    /// Writes its row, in the columns of [`WRITTEN`]. `collected` has the bodies that [`is_collected`](Self::is_collected)
    /// says.
    pub(crate) fn write(
        &self,
        rows: &mut CopyRows,
        collected: &[Option<Bytes>; SIDES],
        replica: &str,
        now: i64,
    ) -> Result<()> {
        rows.row(WRITTEN_COLUMNS);
        rows.values(&self.columns);
        rows.text(replica);
        rows.int8(now);
        // Nothing of a body that is apart, or that would be taken for all of it.
        let is_other = |side: usize| collected[side].is_some() || (self.is_apart(side) && self.ends[side] > 0);
        let mut detail = Cow::Borrowed(&self.detail[..]);
        for side in (0..SIDES).filter(|side| is_other(*side)) {
            detail = details_blob::with_inline(&detail, side, collected[side].as_deref().unwrap_or_default())?.into();
        }
        rows.bytes(&detail);
        Ok(())
    }
}

fn encode_columns(r: &Row<'_>, (seq, id): (i64, FlowId), duration: Option<i64>, detail: &[u8]) -> Result<CopyRows> {
    let damaged = |what: &str| StoreError::damaged(format!("row {seq}"), what);
    let number = |i: usize| r.get::<_, i64>(i);
    let small = |i: usize| r.get::<_, i16>(i);
    let index = |n: i16| usize::try_from(n).unwrap_or(usize::MAX);
    let scheme = *serde_repr::scheme::ALL.get(index(small(6)?)).ok_or_else(|| damaged("unknown scheme"))?;
    if index(small(5)?) >= serde_repr::transport::ALL.len() {
        return Err(damaged("unknown transport"));
    }
    let host_name = text(r, 7)?.unwrap_or_default();
    let host = rows::host(&host_name).ok_or_else(|| damaged("its host is none"))?;
    let port: u16 = r.get(8)?;
    let authority = Authority::new(host, port);
    let (method, path) = (text(r, 9)?, text(r, 10)?);
    let url = match &method {
        Some(_) => crate::model::url_of(scheme, &authority, path.as_deref().unwrap_or_default()),
        None => authority.to_string(),
    };
    // Of a flow without a request, there is nothing of it.
    let request = |value: Option<Cow<'_, str>>| method.as_ref().map(|_| value.unwrap_or_default().into_owned());
    let mut c = CopyRows::with_capacity(512);
    c.uuid(uuid_of(id));
    c.int2(small(2)?);
    c.int2(small(3)?);
    c.int8(number(4)?);
    c.optional_int8(duration);
    c.int2(small(5)?);
    c.int2(small(6)?);
    c.text(&host_name);
    c.int8(port.into());
    c.optional_text(method.as_deref());
    c.optional_text(request(path).as_deref());
    c.text(&url);
    c.optional_int8(r.get(20)?);
    c.optional_text(request(text(r, 11)?).as_deref());
    c.optional_text(text(r, 12)?.as_deref());
    c.optional_text(details_blob::process_name(detail).as_deref());
    c.optional_text(text(r, 21)?.as_deref());
    c.text(text(r, 13)?.as_deref().unwrap_or_default());
    c.int8(number(22)?);
    c.int8(number(23)?);
    c.optional_text(text(r, 24)?.as_deref());
    c.optional_text(text(r, 25)?.as_deref());
    c.int8(number(14)?);
    c.optional_text(text(r, 15)?.as_deref());
    let tags = text(r, 16)?.unwrap_or_default();
    c.texts(tags.split('\n').filter(|tag| !tag.is_empty()));
    c.int8(number(26)?);
    Ok(c)
}

/// A text of a row. Bytes that are no UTF-8 become replacement characters, as wherever the row is read.
fn text<'r>(r: &'r Row<'_>, column: usize) -> Result<Option<Cow<'r, str>>> {
    Ok(match r.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes)),
        _ => None,
    })
}
