//! The audit trail: who looked at contents and changed what.

use axum::Json;
use axum::http::StatusCode;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::input::StrictQuery;
use crate::audit::trail::{AuditFilter, AuditRecord};
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::records::blocking;

/// Lines of a page.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuditParams {
    /// Only lines in which this text occurs: a name, an operation, a path, an address.
    text: String,
    /// Only lines before this time, in microseconds since the Unix epoch: `at` of the last line of the page before.
    before: Option<u64>,
    /// At most this many, 1 to 1000; 100 by default.
    limit: Option<usize>,
    /// Only what this replica wrote down, from its own files, where several share a store.
    local: bool,
}

/// Lines of the audit trail, the latest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AuditPage {
    records: Vec<AuditRecord>,
    /// `before` of the next page; null on the last one.
    next: Option<u64>,
}

/// `GET /audit`
pub async fn list(caller: Caller, StrictQuery(params): StrictQuery<AuditParams>) -> Result<Json<AuditPage>> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let filter = AuditFilter { text: params.text, before: params.before, limit, only_local: params.local };
    let audit = caller.audit;
    // The files are read on a thread that may block.
    let read = move || audit.store().map(|store| store.newest(&filter));
    let read = blocking(read).await?;
    let off = || ApiError::unavailable("no_audit", "this instance writes no audit trail");
    let disk = |e: std::io::Error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "disk", format!("the audit trail cannot be read: {e}"))
            .remedy("local=true shows what this replica wrote down")
    };
    let records = read.ok_or_else(off)?.map_err(disk)?;
    let next = (records.len() >= limit).then(|| records.last().map(|r| r.at)).flatten();
    Ok(Json(AuditPage { records, next }))
}
