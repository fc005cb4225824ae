//! Flow rows in PostgreSQL, as they are read; see `spooled_flow` for how they are written.

pub(crate) use interflow_store::stored_form::signed;
use interflow_store::stored_form::{details_blob, host, kind_of, state_of, version};
use interflow_store::{ErrorRecord, FlowRecord, RequestRecord, Result, StoreError, StoredFlow};
use interflow_types::{Authority, EntryKind, FlowId, Scheme, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::database::pool::Failure;

/// The columns that [`read`] takes, of `flows f`.
pub(crate) const READ: &str = "f.id, f.position, f.state, f.kind, f.started, f.transport, f.scheme, f.host, f.port, f.method, \
     f.path, f.version, f.username, f.listener, f.messages, f.error, f.tags, f.detail";

/// Their number.
pub(crate) const READ_COLUMNS: usize = 18;

/// PostgreSQL's texts hold no NUL.
pub(crate) fn clean(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text.to_owned() }
}

pub(crate) const fn uuid_of(id: FlowId) -> Uuid {
    Uuid::from_u128(id.to_u128())
}

/// Reads the columns of [`READ`].
pub(crate) fn read(r: &Row) -> Result<StoredFlow> {
    read_columns(r).map_err(|e| match e {
        Failure::Database(e) => StoreError::Shared(format!("a row of the shared store: {e}")),
        Failure::Store(e) => e,
    })
}

fn read_columns(r: &Row) -> Result<StoredFlow, Failure> {
    let text = |i: usize| r.try_get::<_, Option<String>>(i);
    let small = |i: usize| r.try_get::<_, i16>(i);
    let id = FlowId::from_u128(r.try_get::<_, Uuid>(0)?.as_u128());
    let damaged = |what: &str| Failure::from(StoreError::damaged(format!("flow {id}"), what));
    let started = Timestamp::from_micros(r.try_get::<_, i64>(4)? as u64);
    let index = |n: i16| usize::try_from(n).unwrap_or(usize::MAX);
    let transport = *EntryKind::ALL.get(index(small(5)?)).ok_or_else(|| damaged("unknown transport"))?;
    let scheme = *Scheme::ALL.get(index(small(6)?)).ok_or_else(|| damaged("unknown scheme"))?;
    let host = host(r.try_get::<_, &str>(7)?).ok_or_else(|| damaged("its host is none"))?;
    let port = u16::try_from(r.try_get::<_, i64>(8)?).map_err(|_| damaged("its port is none"))?;
    let mut row = FlowRecord::new(id, started, transport, scheme, Authority::new(host, port));
    row.state = state_of(small(2)?.into());
    row.kind = kind_of(small(3)?.into());
    if let Some(method) = text(9)? {
        row.request = Some(RequestRecord {
            method,
            path: text(10)?.unwrap_or_default(),
            version: version(text(11)?.unwrap_or_default()),
            ..RequestRecord::default()
        });
    }
    row.user = text(12)?.map(Into::into);
    row.client.listener = text(13)?.unwrap_or_default().into();
    row.messages = r.try_get::<_, i64>(14)? as u64;
    row.error = text(15)?.map(|kind| ErrorRecord { kind: kind.into(), ..ErrorRecord::default() });
    row.tags = r.try_get(16)?;
    let inline = details_blob::decode(r.try_get::<_, &[u8]>(17)?, &mut row)?;
    Ok(StoredFlow { row, position: r.try_get(1)?, refs: Default::default(), inline })
}
