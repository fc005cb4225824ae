//! The caller of an API operation, as handlers and the audit trail know it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::Extensions;
use interflow_types::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::tokens::ApiTokens;
use super::{Identity, Right, Rights};
use crate::audit::{AdminAudit, AuditEntry, CLIENT_CLOSED_REQUEST};
use crate::auth::ended_sessions::EndedSessions;
use crate::error::ApiError;

/// How many names or ids the detail of a line lists; their number is written in any case.
const MAX_DETAIL_ITEMS: usize = 100;

/// The names of what an operation is about, for the detail of its line: all are counted, the first are listed.
pub(crate) fn listed(names: impl IntoIterator<Item = impl std::fmt::Display>) -> Value {
    let (mut count, mut shown) = (0_usize, Vec::new());
    for name in names {
        count += 1;
        if shown.len() < MAX_DETAIL_ITEMS {
            shown.push(name.to_string());
        }
    }
    json!({ "count": count, "names": shown })
}

/// Who sent a request, from where, and where it is written down. Every authenticated request has one.
#[derive(Clone)]
pub(crate) struct Caller {
    pub identity: Arc<Identity>,
    pub address: Option<IpAddr>,
    pub audit: Arc<AdminAudit>,
    /// To learn that the caller's token was revoked while a connection is open.
    pub tokens: Option<Arc<ApiTokens>>,
    /// Or that they logged out.
    pub ended_sessions: Option<Arc<EndedSessions>>,
    /// What a handler adds to the audit trail's line of the request.
    pub detail: Arc<Mutex<Option<Value>>>,
}

impl Caller {
    /// The caller of a request. The check of every request sets it; without it nothing is answered.
    pub fn of(extensions: &Extensions) -> Result<Self, ApiError> {
        extensions.get::<Self>().cloned().ok_or_else(|| ApiError::internal("the request has no caller"))
    }

    /// # Errors
    /// The caller lacks one of these rights.
    pub fn require(&self, needed: Rights) -> Result<(), ApiError> {
        let missing = self.identity.rights.missing(needed);
        if missing.is_empty() { Ok(()) } else { Err(missing_rights(&missing)) }
    }

    pub fn has(&self, right: Rights) -> bool {
        self.identity.rights.contains(right)
    }

    /// # Errors
    /// The caller is at a command line that has not opened them.
    pub fn tokens(&self) -> Result<Arc<ApiTokens>, ApiError> {
        self.tokens.clone().ok_or_else(|| ApiError::internal("the API tokens are not open"))
    }

    /// Adds to the audit trail's line of this request.
    pub fn record_detail(&self, detail: Value) {
        *self.detail.lock() = Some(detail);
    }

    pub fn record(&self, operation: &str, target: &str, status: u16) {
        let detail = self.detail.lock().take();
        let address = self.address;
        self.audit.record(&AuditEntry { identity: Some(&self.identity), address, operation, target, status, detail });
    }

    /// A line that is written even if the client disconnects before the response is known: what it asked for may be done
    /// nevertheless.
    pub fn begin_record(&self, operation: &str, target: &str) -> PendingRecord {
        PendingRecord { caller: self.clone(), line: Some((operation.to_owned(), target.to_owned())) }
    }

    /// Whether the credential is still valid, for connections that outlive their request.
    pub fn is_active(&self) -> bool {
        let Identity { until, token, session, .. } = &*self.identity;
        let is_token_active = |id: &String| self.tokens.as_ref().is_some_and(|tokens| tokens.is_active(id));
        let is_ended = |id: &String| self.ended_sessions.as_ref().is_some_and(|ended| ended.is_ended(id));
        let has_time_left = until.is_none_or(|at| Timestamp::now() < at);
        has_time_left && token.as_ref().is_none_or(is_token_active) && !session.as_ref().is_some_and(is_ended)
    }
}

/// A line of the audit trail for a request in progress. Dropped with the request's future, it has the status
/// [`CLIENT_CLOSED_REQUEST`].
pub(crate) struct PendingRecord {
    caller: Caller,
    line: Option<(String, String)>,
}

impl PendingRecord {
    pub fn finish(mut self, status: u16) {
        self.write(status);
    }

    fn write(&mut self, status: u16) {
        if let Some((operation, target)) = self.line.take() {
            self.caller.record(&operation, &target, status);
        }
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        self.write(CLIENT_CLOSED_REQUEST);
    }
}

pub(crate) fn missing_rights(missing: &[Right]) -> ApiError {
    let names: Vec<&str> = missing.iter().map(|right| right.as_str()).collect();
    let message = format!("this needs the right {}, which you do not have", names.join(" and "));
    ApiError::new(axum::http::StatusCode::FORBIDDEN, "missing_right", message)
}
