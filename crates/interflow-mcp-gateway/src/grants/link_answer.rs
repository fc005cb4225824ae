//! How the clients of each version are given a link.

use serde_json::json;

use crate::protocol::client_capabilities::ClientRequestKind;
use crate::protocol::envelope::input_required;
use crate::protocol::jsonrpc::{NOT_ALLOWED, RpcError};
use crate::session::client_session::McpSession;

/// The answer for a client to a request that may have failed because the user has to open a link: as an elicitation, if it
/// shows those, or as an error with the link. `is_call` is of a request that can be answered by a question.
pub(crate) fn with_link(
    session: &McpSession,
    is_call: bool,
    result: Result<String, RpcError>,
) -> Result<String, RpcError> {
    let error = match result {
        Err(e) if e.has_own_link() => e,
        result => return result,
    };
    match (session.capabilities.urls, session.is_stateless()) {
        (true, false) => Err(error),
        (true, true) if is_call => {
            let mut params = error.data.map(|mut data| data["elicitations"][0].take()).unwrap_or_default();
            if let Some(members) = params.as_object_mut() {
                members.remove("elicitationId");
            }
            let method = ClientRequestKind::Elicitation.method();
            Ok(input_required(&json!({ "account": { "method": method, "params": params } }), None))
        }
        _ => Err(RpcError::new(NOT_ALLOWED, error.message)),
    }
}
