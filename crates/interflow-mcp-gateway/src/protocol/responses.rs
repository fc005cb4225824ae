//! Responses of the endpoints over HTTP.

use interflow_types::{Body, Response, ResponseHead, StatusCode};
use serde_json::Value;

use super::jsonrpc::{
    HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_CAPABILITY, PARSE_ERROR,
    RESOURCE_NOT_FOUND, RpcError, UNSUPPORTED_VERSION, member, response,
};

/// A response without a request that it could belong to.
pub(crate) fn refusal(status: StatusCode, message: impl Into<String>) -> Response {
    json_response(status, response(&Value::Null, &Err(RpcError::new(INVALID_REQUEST, message))))
}

pub(crate) fn json_response(status: StatusCode, body: String) -> Response {
    let mut response = Response::full(status, "application/json", body);
    response.head.headers.append_unchecked(b"Cache-Control", b"no-store");
    response
}

/// The response to a message that is not answered.
pub(crate) fn accepted() -> Response {
    Response { head: ResponseHead::new(StatusCode::ACCEPTED), body: Body::Empty }
}

/// The response to a request of a client with or without a session.
pub(crate) fn rpc_response(is_stateless: bool, id: &Value, result: Result<String, RpcError>) -> Response {
    if !is_stateless {
        return json_response(StatusCode::OK, response(id, &result));
    }
    let result = stateless_result(result);
    let status = result.as_ref().map_or_else(|e| stateless_status(e.code), |_| StatusCode::OK);
    json_response(status, response(id, &result))
}

/// The status of an error for a client of the version without sessions.
pub fn stateless_status(code: i64) -> StatusCode {
    match code {
        METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        PARSE_ERROR | INVALID_REQUEST | INVALID_PARAMS | HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}

/// A result or an error as clients of the version without sessions expect it.
pub(crate) fn stateless_result(result: Result<String, RpcError>) -> Result<String, RpcError> {
    match result {
        Ok(json) if member(&json, "resultType").is_none() => {
            Ok(super::jsonrpc::merged(r#"{"resultType":"complete"}"#, &json))
        }
        Err(e) if e.code == RESOURCE_NOT_FOUND => Err(RpcError { code: INVALID_PARAMS, ..e }),
        other => other,
    }
}
