//! API errors: `{"error": {"kind", "message", "remedy"}}` with a matching status.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use interflow_archive::ImportError;
use interflow_archive::replay::ReplayError;
use interflow_query::QueryError;
use interflow_redact::PolicyProblem;
use interflow_rules::RuleProblem;
use interflow_store::StoreError;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error_kinds;

pub type Result<T, E = ApiError> = std::result::Result<T, E>;

/// An error response of the API. Boxed, so that results stay small.
#[derive(Debug)]
pub struct ApiError(Box<(StatusCode, ErrorDetails)>);

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetails,
}

/// What went wrong.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ErrorDetails {
    /// A constant name, such as `not_found`.
    pub kind: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Of a query: where the error begins, in characters from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// Of a query: where the error begins, in bytes from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<usize>,
    /// Of a query: where the error ends, in bytes from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<usize>,
    /// Of an import: flows imported before the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imported: Option<u64>,
    /// The files that exist, if the named one does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Of rules or a policy: every error with its position.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<TextProblem>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum TextProblem {
    Rule(RuleProblem),
    Policy(PolicyProblem),
}

impl ApiError {
    /// An error of a kind of the [table](error_kinds::API_ERROR_KINDS), with its remedy.
    pub fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let listed = error_kinds::find(kind);
        debug_assert!(
            listed.is_some_and(|k| k.statuses.contains(&status.as_u16())),
            "{kind} with {status} is not in error_kinds.rs"
        );
        let remedy = listed.map(|k| k.remedy.to_owned()).filter(|r| !r.is_empty());
        Self(Box::new((status, ErrorDetails { kind, message: message.into(), remedy, ..ErrorDetails::default() })))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The instance cannot do it, or not now.
    pub(crate) fn unavailable(kind: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, message)
    }

    /// What a removal or a change answers, if there is what it names.
    pub(crate) fn no_content(exists: bool, missing: impl FnOnce() -> Self) -> Result<StatusCode> {
        exists.then_some(StatusCode::NO_CONTENT).ok_or_else(missing)
    }

    /// The request can be read, and what it asks for cannot be done.
    pub(crate) fn unprocessable(kind: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, kind, message)
    }

    pub(crate) fn too_large(what: &str, limit: u64) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("{what} is larger than {limit} bytes"))
    }

    pub(crate) fn busy() -> Self {
        Self::unavailable("busy", "too many long requests run already")
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.0.1.remedy = Some(remedy.into());
        self
    }

    pub(crate) fn with(mut self, set: impl FnOnce(&mut ErrorDetails)) -> Self {
        set(&mut self.0.1);
        self
    }

    pub(crate) fn into_details(self) -> ErrorDetails {
        self.0.1
    }
}

/// An error as one replica tells it to another, which may be of another version.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RemoteError {
    status: u16,
    kind: String,
    message: String,
    remedy: Option<String>,
}

impl From<ApiError> for RemoteError {
    fn from(ApiError(error): ApiError) -> Self {
        let (status, details) = *error;
        let ErrorDetails { kind, message, remedy, .. } = details;
        Self { status: status.as_u16(), kind: kind.to_owned(), message, remedy }
    }
}

impl From<RemoteError> for ApiError {
    fn from(error: RemoteError) -> Self {
        let listed = error_kinds::find(&error.kind).filter(|kind| kind.statuses.contains(&error.status));
        let status = StatusCode::from_u16(error.status).ok();
        match listed.zip(status) {
            Some((kind, status)) => {
                Self::new(status, kind.name, error.message).with(|details| details.remedy = error.remedy)
            }
            None => Self::internal(error.message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, error) = *self.0;
        // Errors of clients are not logged: anyone could fill the log with them.
        if status.is_server_error() {
            tracing::warn!(kind = error.kind, "admin: {}", error.message);
        }
        let mut response = (status, Json(ErrorBody { error })).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let (status, kind) = match &error {
            StoreError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            StoreError::Elsewhere { .. } => (StatusCode::CONFLICT, "elsewhere"),
            StoreError::Damaged { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "damaged"),
            StoreError::Suspended(_) => (StatusCode::SERVICE_UNAVAILABLE, "suspended"),
            StoreError::Overloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            StoreError::Shared(_) | StoreError::Refused(_) => (StatusCode::SERVICE_UNAVAILABLE, "shared_store"),
            StoreError::Closed | StoreError::ReadOnly | StoreError::Busy(_) | StoreError::Cancelled => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "store"),
        };
        Self::new(status, kind, error.to_string())
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let message = format!("column {}: {}", error.column, error.message);
        let made = Self::new(StatusCode::BAD_REQUEST, "bad_query", message).with(|details| {
            details.column = Some(error.column);
            (details.start, details.end) = (Some(error.span.start), Some(error.span.end));
        });
        if let Some(remedy) = error.remedy { made.remedy(remedy) } else { made }
    }
}

impl From<ReplayError> for ApiError {
    fn from(error: ReplayError) -> Self {
        let bad_edit = matches!(error, ReplayError::Method(_) | ReplayError::Url(_) | ReplayError::Header(_));
        let (status, kind) = match bad_edit {
            true => (StatusCode::BAD_REQUEST, "bad_request"),
            false => (StatusCode::UNPROCESSABLE_ENTITY, "not_replayable"),
        };
        Self::new(status, kind, error.to_string())
    }
}

impl From<ImportError> for ApiError {
    fn from(error: ImportError) -> Self {
        let message = error.to_string();
        let (made, report) = match error {
            ImportError::Malformed { report, .. } => (Self::unprocessable("malformed_archive", message), report),
            // Told apart by what failed: the store is our fault, the upload the client's.
            ImportError::Io { source, report } => match source.downcast::<StoreError>() {
                Ok(store) => (Self::from(store), report),
                Err(_) => (Self::new(StatusCode::BAD_REQUEST, "broken_upload", message), report),
            },
        };
        made.with(|details| details.imported = Some(report.flows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::FlowId;

    #[test]
    fn every_error_kind_has_its_status() {
        for (error, status, kind) in [
            (StoreError::NotFound(FlowId::from_u128(7)).into(), 404, "not_found"),
            (StoreError::Suspended("disk full".into()).into(), 503, "suspended"),
            (StoreError::Closed.into(), 503, "unavailable"),
            (ReplayError::Tunnel("x".into()).into(), 422, "not_replayable"),
            (ReplayError::Url("x".into()).into(), 400, "bad_request"),
            (interflow_query::Query::parse("stats:4").unwrap_err().into(), 400, "bad_query"),
        ] as [(ApiError, u16, &str); 6]
        {
            assert_eq!((error.0.0.as_u16(), error.0.1.kind), (status, kind), "{error:?}");
        }
    }

    #[test]
    fn errors_of_other_replicas_keep_status_kind_and_remedy() {
        let told = |error: ApiError| ApiError::from(RemoteError::from(error)).0;
        let error = told(ApiError::not_found("gone").remedy("look"));
        assert_eq!((error.0.as_u16(), error.1.kind, &*error.1.message), (404, "not_found", "gone"));
        assert_eq!(error.1.remedy.as_deref(), Some("look"));
        let newer = RemoteError { status: 418, kind: "teapot".into(), message: "no".into(), remedy: None };
        let error = ApiError::from(newer).0;
        assert_eq!((error.0.as_u16(), error.1.kind, &*error.1.message), (500, "internal", "no"));
    }

    #[test]
    fn query_error_reports_its_position() {
        let error: ApiError = interflow_query::Query::parse("a stats:4").unwrap_err().into();
        let error = error.into_details();
        assert_eq!((error.column, error.start, error.end), (Some(3), Some(2), Some(7)));
        assert!(error.remedy.as_ref().is_some_and(|r| r.contains("status")), "{error:?}");
    }
}
