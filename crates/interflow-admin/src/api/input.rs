//! Strict request parsing: unknown parameters and fields are errors, and so is oversized input.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use interflow_types::{Direction, FlowId};
use serde::de::DeserializeOwned;

use crate::error::{ApiError, Result};

/// Maximum size of a JSON body, in bytes; a replay request contains the body to send.
const MAX_JSON: usize = 64 << 20;

pub(crate) struct StrictQuery<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Query::try_from_uri(&parts.uri).map(|Query(v)| Self(v)).map_err(|e| {
            let text = e.body_text();
            ApiError::bad_request(text).remedy("GET /api/v1/openapi.json lists the parameters of each route")
        })
    }
}

/// A JSON body; an absent one counts as `{}`. The media type must be JSON, which an HTML form of another site cannot
/// send.
pub(crate) struct StrictJson<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for StrictJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let media = media_type(&request);
        let body = axum::body::to_bytes(request.into_body(), MAX_JSON)
            .await
            .map_err(|_| ApiError::too_large("the body", MAX_JSON as u64))?;
        // Without a body there is no media type to check.
        if body.is_empty() {
            return serde_json::from_str("{}").map(Self).map_err(|e| invalid_json(&e));
        }
        if media.as_deref() != Some("application/json") {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(ApiError::new(status, "media_type", "the body must be application/json"));
        }
        serde_json::from_slice(&body).map(Self).map_err(|e| invalid_json(&e))
    }
}

fn media_type(request: &axum::http::Request<Body>) -> Option<String> {
    let value = request.headers().get(axum::http::header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

fn invalid_json(error: &serde_json::Error) -> ApiError {
    ApiError::bad_request(format!("the body cannot be read: {error}"))
        .remedy("GET /api/v1/openapi.json describes the body of each route")
}

pub(crate) struct FlowIdPath(pub FlowId);

impl<S: Send + Sync> FromRequestParts<S> for FlowIdPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let Path(id) = Path::<String>::from_request_parts(parts, state).await.map_err(invalid_path)?;
        flow_id(&id).map(Self)
    }
}

pub(crate) struct FlowSidePath(pub FlowId, pub Direction);

impl<S: Send + Sync> FromRequestParts<S> for FlowSidePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let Path((id, side)) =
            Path::<(String, String)>::from_request_parts(parts, state).await.map_err(invalid_path)?;
        let side = match side.as_str() {
            "request" => Direction::Request,
            "response" => Direction::Response,
            other => {
                let message = format!("a flow has no side `{other}`: ask for request or response");
                return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
            }
        };
        Ok(Self(flow_id(&id)?, side))
    }
}

/// A flow id and the index of one of its messages in the path.
pub(crate) struct MessagePath(pub FlowId, pub u64);

impl<S: Send + Sync> FromRequestParts<S> for MessagePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let Path((id, index)) =
            Path::<(String, String)>::from_request_parts(parts, state).await.map_err(invalid_path)?;
        let index = index.parse().map_err(|_| ApiError::bad_request(format!("`{index}` is not a message's number")))?;
        Ok(Self(flow_id(&id)?, index))
    }
}

fn invalid_path(rejection: axum::extract::rejection::PathRejection) -> ApiError {
    ApiError::bad_request(rejection.body_text())
}

pub(crate) fn flow_id(text: &str) -> Result<FlowId> {
    text.parse().map_err(|e: interflow_types::FlowIdError| ApiError::bad_request(format!("`{text}`: {e}")))
}

pub(crate) fn query(text: &str) -> Result<interflow_query::Query> {
    Ok(interflow_query::Query::parse(text)?)
}

/// A query whose result has no place for a warning, or decides what is deleted or allowed: what is probably not meant
/// is an error.
pub(crate) fn strict_query(text: &str) -> Result<interflow_query::Query> {
    Ok(interflow_query::Query::parse(text)?.without_hint()?)
}

/// What in the query is probably not meant, for the `warnings` of an answer.
pub(crate) fn query_warnings(query: &interflow_query::Query) -> Vec<String> {
    query.hint().map(ToString::to_string).into_iter().collect()
}
