//! A finished flow on its way from the spool to PostgreSQL. Its details are moved as they are, without being read: both stores
//! have the same encoding of them.

use std::borrow::Cow;

use bytes::Bytes;
use interflow_store::stored_form::chunk_refs::{CERTIFICATES, ChunkRef, SIDES};
use interflow_store::stored_form::{self, SpooledRow, details_blob};
use interflow_store::{Result, StoreError};
use interflow_types::{Authority, EntryKind, FlowId, Scheme};
use uuid::Uuid;

use crate::database::copy_format::CopyRows;
use crate::database::rows::uuid_of;

/// Bodies up to this length are part of their flow's row; lists read them along.
pub(crate) const MAX_INLINE: u64 = 4096;
/// The columns that are written, in the order in which they are encoded.
pub(crate) const WRITTEN: &str = "id, state, kind, started, duration, transport, scheme, host, port, method, path, url, status, \
     version, username, process, client, listener, request_size, response_size, request_type, response_type, messages, error, \
     tags, kept, replica, stored, detail";
/// Their number.
const WRITTEN_COLUMNS: i16 = 29;

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
    pub(crate) fn read(row: SpooledRow<'_>) -> Result<Self> {
        Ok(Self {
            seq: row.seq,
            id: row.id,
            messages: row.messages,
            ends: details_blob::inline_lengths(&row.detail)?,
            columns: encode_columns(&row)?,
            refs: row.chunks,
            detail: row.detail,
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
        // Not stored yet.
        self.write_with(rows, replica, 0, |side| (self.ends[side] > 0).then_some(&[][..]))
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
        // Nothing of a body that is apart, or that would be taken for all of it.
        let apart = |side: usize| (self.is_apart(side) && self.ends[side] > 0).then_some(&[][..]);
        self.write_with(rows, replica, now, |side| collected[side].as_deref().or_else(|| apart(side)))
    }

    /// Writes its row; `inline` has what replaces the ends of bodies in the details.
    fn write_with<'b>(
        &self,
        rows: &mut CopyRows,
        replica: &str,
        stored: i64,
        inline: impl Fn(usize) -> Option<&'b [u8]>,
    ) -> Result<()> {
        rows.row(WRITTEN_COLUMNS);
        rows.values(&self.columns);
        rows.text(replica);
        rows.int8(stored);
        let mut detail = Cow::Borrowed(&self.detail[..]);
        for side in 0..SIDES {
            if let Some(bytes) = inline(side) {
                detail = details_blob::with_inline(&detail, side, bytes)?.into();
            }
        }
        rows.bytes(&detail);
        Ok(())
    }
}

fn encode_columns(row: &SpooledRow<'_>) -> Result<CopyRows> {
    let damaged = |what: &str| StoreError::damaged(format!("row {}", row.seq), what);
    let index = |n: i16| usize::try_from(n).unwrap_or(usize::MAX);
    let scheme = *Scheme::ALL.get(index(row.scheme)).ok_or_else(|| damaged("unknown scheme"))?;
    if index(row.transport) >= EntryKind::ALL.len() {
        return Err(damaged("unknown transport"));
    }
    let host = stored_form::host(&row.host).ok_or_else(|| damaged("its host is none"))?;
    let authority = Authority::new(host, row.port);
    let url = match &row.method {
        Some(_) => stored_form::url_of(scheme, &authority, row.path.as_deref().unwrap_or_default()),
        None => authority.to_string(),
    };
    let mut c = CopyRows::with_capacity(512);
    c.uuid(uuid_of(row.id));
    c.int2(row.state);
    c.int2(row.kind);
    c.int8(row.started);
    c.optional_int8(row.duration);
    c.int2(row.transport);
    c.int2(row.scheme);
    c.text(&row.host);
    c.int8(row.port.into());
    c.optional_text(row.method.as_deref());
    c.optional_text(of_request(row, row.path.as_deref()));
    c.text(&url);
    c.optional_int8(row.status);
    c.optional_text(of_request(row, row.version.as_deref()));
    c.optional_text(row.user.as_deref());
    c.optional_text(details_blob::process_name(&row.detail).as_deref());
    c.optional_text(row.client.as_deref());
    c.text(&row.listener);
    c.int8(row.request_size);
    c.int8(row.response_size);
    c.optional_text(row.request_type.as_deref());
    c.optional_text(row.response_type.as_deref());
    c.int8(stored_form::signed(row.messages));
    c.optional_text(row.error.as_deref());
    c.texts(row.tags.split('\n').filter(|tag| !tag.is_empty()));
    c.int8(row.stored_bytes);
    Ok(c)
}

/// Of a flow without a request, there is nothing of it.
fn of_request<'r>(row: &SpooledRow<'_>, value: Option<&'r str>) -> Option<&'r str> {
    row.method.as_ref().map(|_| value.unwrap_or_default())
}
