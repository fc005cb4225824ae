//! Responses of the endpoints over HTTP.

use interflow_types::{Body, Response, ResponseHead, StatusCode};
use serde_json::{Value, json};

use super::envelope::{SERVER_INFO_KEY, own_meta};
use super::jsonrpc::{
    HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_CAPABILITY, PARSE_ERROR,
    RESOURCE_NOT_FOUND, RpcError, UNSUPPORTED_VERSION, member, members, merged, object, response, without,
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
    let result = result_of_version(is_stateless, result);
    let status = match &result {
        Err(e) if is_stateless => stateless_status(e.code),
        _ => StatusCode::OK,
    };
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

/// Members of results that versions with sessions do not have.
const STATELESS_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// A result or an error as clients of a version with or without sessions know it, whatever the version of the server.
pub(crate) fn result_of_version(is_stateless: bool, result: Result<String, RpcError>) -> Result<String, RpcError> {
    match result {
        Ok(json) if is_stateless => {
            let own = json!({ "_meta": own_meta() }).to_string();
            Ok(merged(&merged(r#"{"resultType":"complete"}"#, &json), &own))
        }
        Ok(json) => Ok(without_stateless_members(json)),
        Err(e) if is_stateless && e.code == RESOURCE_NOT_FOUND => Err(RpcError { code: INVALID_PARAMS, ..e }),
        Err(e) => Err(e),
    }
}

fn without_stateless_members(json: String) -> String {
    let is_stateless_member = |name: &str| STATELESS_MEMBERS.contains(&name);
    let json = match members(&json).iter().any(|(name, _)| is_stateless_member(name)) {
        true => without(&json, is_stateless_member),
        false => json,
    };
    let meta = member(&json, "_meta").filter(|meta| meta.contains(SERVER_INFO_KEY));
    let Some(meta) = meta.map(|meta| without(meta, |name| name == SERVER_INFO_KEY)) else { return json };
    let rest = without(&json, |name| name == "_meta");
    if meta == "{}" { rest } else { merged(&rest, &object([("_meta", meta.as_str())])) }
}
