//! Responses of the endpoints over HTTP.

use interflow_types::{Response, StatusCode};
use serde_json::Value;

use super::jsonrpc::{INVALID_REQUEST, RpcError, response};

/// A response without a request that it could belong to.
pub(crate) fn refusal(status: StatusCode, message: impl Into<String>) -> Response {
    json_response(status, response(&Value::Null, &Err(RpcError::new(INVALID_REQUEST, message))))
}

pub(crate) fn json_response(status: StatusCode, body: String) -> Response {
    let mut response = Response::full(status, "application/json", body);
    response.head.headers.append_unchecked(b"Cache-Control", b"no-store");
    response
}
