//! Strict request parsing: unknown parameters and fields are errors, and so is oversized input.

use axum::extract::Query;
use interflow_types::schema::JsonSchema;
use interflow_types::{Direction, FlowId};
use serde::de::DeserializeOwned;

use crate::api::operations::handler::{OperationInput, OperationRequest};
use crate::error::{ApiError, Result};

pub(crate) struct StrictQuery<T>(pub T);

impl<T: DeserializeOwned + JsonSchema> OperationInput for StrictQuery<T> {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        Query::try_from_uri(&request.parts.uri).map(|Query(v)| Self(v)).map_err(|e| {
            let text = e.body_text();
            ApiError::bad_request(text).remedy("GET /api/v1/openapi.json lists the parameters of each route")
        })
    }
}

/// A JSON body; an absent one counts as `{}`. The media type must be JSON, which an HTML form of another site cannot
/// send.
pub(crate) struct StrictJson<T>(pub T);

impl<T: DeserializeOwned + JsonSchema> OperationInput for StrictJson<T> {
    const IS_JSON: bool = true;

    fn read(request: &mut OperationRequest) -> Result<Self> {
        serde_json::from_slice(&request.json()?).map(Self).map_err(|e| invalid_json(&e))
    }
}

pub(crate) fn invalid_json(error: &serde_json::Error) -> ApiError {
    ApiError::bad_request(format!("the body cannot be read: {error}"))
        .remedy("GET /api/v1/openapi.json describes the body of each route")
}

pub(crate) struct FlowIdPath(pub FlowId);

impl OperationInput for FlowIdPath {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        flow_id(&request.path_value()?).map(Self)
    }
}

pub(crate) struct FlowSidePath(pub FlowId, pub Direction);

impl OperationInput for FlowSidePath {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        let (id, side) = (request.path_value()?, request.path_value()?);
        let side = match side.as_str() {
            "request" => Direction::Request,
            "response" => Direction::Response,
            other => {
                let message = format!("a flow has no side `{other}`: ask for request or response");
                return Err(ApiError::not_found(message));
            }
        };
        Ok(Self(flow_id(&id)?, side))
    }
}

/// A flow id and the index of one of its messages in the path.
pub(crate) struct MessagePath(pub FlowId, pub u64);

impl OperationInput for MessagePath {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        let (id, index) = (request.path_value()?, request.path_value()?);
        let index = index.parse().map_err(|_| ApiError::bad_request(format!("`{index}` is not a message's number")))?;
        Ok(Self(flow_id(&id)?, index))
    }
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
