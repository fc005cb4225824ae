//! The caller of an API operation, as handlers and the audit trail know it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use interflow_types::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::tokens::ApiTokens;
use super::{Identity, Right, Rights};
use crate::admin_audit::{AdminAudit, AuditEntry};
use crate::api::operation::{ApiSchemas, DescribeInput, Operation};
use crate::error::ApiError;

/// Who sent a request, from where, and where it is written down. Every authenticated request has one.
#[derive(Clone)]
pub(crate) struct Caller {
    pub identity: Arc<Identity>,
    pub address: Option<IpAddr>,
    pub audit: Arc<AdminAudit>,
    /// To learn that the caller's token was revoked while a connection is open.
    pub tokens: Arc<ApiTokens>,
    /// What a handler adds to the audit trail's line of the request.
    pub detail: Arc<Mutex<Option<Value>>>,
}

impl Caller {
    /// # Errors
    /// The caller lacks one of these rights.
    pub fn require(&self, needed: Rights) -> Result<(), ApiError> {
        let missing = self.identity.rights.missing(needed);
        if missing.is_empty() { Ok(()) } else { Err(missing_rights(&missing)) }
    }

    pub fn has(&self, right: Rights) -> bool {
        self.identity.rights.contains(right)
    }

    /// Adds to the audit trail's line of this request.
    pub fn set_detail(&self, detail: Value) {
        *self.detail.lock() = Some(detail);
    }

    pub fn record(&self, operation: &str, target: &str, status: u16) {
        let detail = self.detail.lock().take();
        let address = self.address;
        self.audit.record(&AuditEntry { identity: Some(&self.identity), address, operation, target, status, detail });
    }

    /// Whether the credential is still valid, for connections that outlive their request.
    pub fn is_active(&self) -> bool {
        self.identity.until.is_none_or(|at| Timestamp::now() < at)
            && self.identity.token.as_deref().is_none_or(|id| self.tokens.is_active(id))
    }
}

pub(crate) fn missing_rights(missing: &[Right]) -> ApiError {
    let names: Vec<&str> = missing.iter().map(|right| right.as_str()).collect();
    let message = format!("this needs the right {}, which you do not have", names.join(" and "));
    ApiError::new(axum::http::StatusCode::FORBIDDEN, "missing_right", message)
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // The check of every request sets it; without it nothing is answered.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| ApiError::internal("the request has no caller"))
    }
}

impl DescribeInput for Caller {
    fn describe(_: &mut Operation, _: &mut ApiSchemas) {}
}
