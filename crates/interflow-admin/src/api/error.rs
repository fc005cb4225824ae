//! API errors: `{"error": {"kind", "message", "remedy"}}` with a matching status.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use interflow_archive::ImportError;
use interflow_archive::replay::ReplayError;
use interflow_query::QueryError;
use interflow_store::StoreError;
use serde_json::{Map, Value, json};

pub type Result<T, E = ApiError> = std::result::Result<T, E>;

/// An error response of the API.
#[derive(Debug)]
pub struct ApiError(Box<ApiErrorDetails>);

#[derive(Debug)]
struct ApiErrorDetails {
    status: StatusCode,
    kind: &'static str,
    message: String,
    remedy: Option<String>,
    /// Additional members of the error object.
    facts: Map<String, Value>,
}

impl ApiError {
    pub fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(ApiErrorDetails { status, kind, message: message.into(), remedy: None, facts: Map::new() }))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn too_large(what: &str, limit: u64) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("{what} is larger than {limit} bytes"))
    }

    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "too many long requests run already")
            .remedy("try again in a moment")
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    pub(crate) fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.facts.insert(name.to_owned(), value.into());
        self
    }

    /// The error object, as used in responses and in messages of the event socket.
    pub fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("kind".into(), self.0.kind.into());
        error.insert("message".into(), self.0.message.as_str().into());
        if let Some(remedy) = &self.0.remedy {
            error.insert("remedy".into(), remedy.as_str().into());
        }
        error.extend(self.0.facts.clone());
        json!({ "error": error })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.0.status.is_server_error() {
            tracing::warn!(kind = self.0.kind, "admin: {}", self.0.message);
        }
        let mut response = (self.0.status, Json(self.to_json())).into_response();
        if self.0.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let (status, kind) = match &error {
            StoreError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            StoreError::Damaged { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "damaged"),
            StoreError::Suspended(_) => (StatusCode::SERVICE_UNAVAILABLE, "suspended"),
            StoreError::Overloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
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
        let made =
            Self::new(StatusCode::BAD_REQUEST, "bad_query", format!("column {}: {}", error.column, error.message))
                .fact("column", error.column)
                .fact("start", error.span.start)
                .fact("end", error.span.end);
        match error.remedy {
            Some(remedy) => made.remedy(remedy),
            None => made,
        }
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
            ImportError::Malformed { report, .. } => {
                (Self::new(StatusCode::UNPROCESSABLE_ENTITY, "malformed_archive", message), report)
            }
            ImportError::Io { source, report } => match source.downcast::<StoreError>() {
                Ok(store) => (Self::from(store), report),
                Err(_) => (Self::new(StatusCode::BAD_REQUEST, "broken_upload", message), report),
            },
        };
        made.fact("imported", report.flows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::FlowId;

    #[test]
    fn each_kind_of_trouble_has_its_status() {
        for (error, status, kind) in [
            (StoreError::NotFound(FlowId::from_u128(7)).into(), 404, "not_found"),
            (StoreError::Suspended("disk full".into()).into(), 503, "suspended"),
            (StoreError::Closed.into(), 503, "unavailable"),
            (ReplayError::Tunnel("x".into()).into(), 422, "not_replayable"),
            (ReplayError::Url("x".into()).into(), 400, "bad_request"),
            (interflow_query::Query::parse("stats:4").unwrap_err().into(), 400, "bad_query"),
        ] as [(ApiError, u16, &str); 6]
        {
            assert_eq!((error.0.status.as_u16(), error.0.kind), (status, kind), "{error:?}");
        }
    }

    #[test]
    fn a_query_error_names_its_place() {
        let error: ApiError = interflow_query::Query::parse("a stats:4").unwrap_err().into();
        let json = error.to_json();
        assert_eq!(json["error"]["column"], 3);
        assert_eq!((json["error"]["start"].as_u64(), json["error"]["end"].as_u64()), (Some(2), Some(7)));
        assert!(json["error"]["remedy"].as_str().is_some_and(|r| r.contains("status")), "{json}");
    }
}
