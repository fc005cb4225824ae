//! How the clients of each version are given a link, and how the recording is left without it.

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::LINK_PATH;
use crate::protocol::client_capabilities::ClientRequestKind;
use crate::protocol::envelope::input_required;
use crate::protocol::jsonrpc::{NOT_ALLOWED, RpcError};
use crate::session::call_outcome::CallOutcome;
use crate::session::client_session::McpSession;

/// What stands for the token of a link in a recording.
const MASKED: &str = "?token=***";

/// A link for the recording. The client gets the link itself.
pub(crate) fn masked(url: &str, outcome: &Mutex<CallOutcome>) -> String {
    let Some((page, token)) = url.split_once("?token=") else { return url.to_owned() };
    outcome.lock().link = Some(token.to_owned());
    format!("{page}{MASKED}")
}

/// A message with the link that it is the answer with; `None` for any other: what a server repeats of a recording stays
/// masked.
pub(crate) fn with_token(text: &str, outcome: &Mutex<CallOutcome>) -> Option<String> {
    let link = format!("{LINK_PATH}{MASKED}");
    let token = outcome.lock().link.take_if(|_| text.contains(&link))?;
    Some(text.replace(&link, &format!("{LINK_PATH}?token={token}")))
}

/// The answer for a client to a request that may have failed because the user has to open a link: as an elicitation, if it
/// shows those, or as an error with the link. `is_call` is of a request that can be answered by a question, and repeated with
/// this state.
pub(crate) fn with_link(
    session: &McpSession,
    is_call: bool,
    result: Result<String, RpcError>,
    outcome: &Mutex<CallOutcome>,
    state: Option<String>,
) -> Result<String, RpcError> {
    let mut error = match result {
        Err(e) if e.has_own_link() => e,
        result => return result,
    };
    if let Some(Value::String(url)) = error.data.as_mut().map(|data| &mut data["elicitations"][0]["url"]) {
        let recorded = masked(url, outcome);
        error.message = error.message.replace(&*url, &recorded);
        *url = recorded;
    }
    match (session.capabilities.urls, session.is_stateless()) {
        (true, false) => Err(error),
        (true, true) if is_call => {
            let mut params = error.data.map(|mut data| data["elicitations"][0].take()).unwrap_or_default();
            if let Some(members) = params.as_object_mut() {
                members.remove("elicitationId");
            }
            let method = ClientRequestKind::Elicitation.method();
            Ok(input_required(&json!({ "account": { "method": method, "params": params } }), state))
        }
        _ => Err(RpcError::new(NOT_ALLOWED, error.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_alone_gets_its_link() {
        let outcome = Mutex::default();
        assert_eq!(with_token("{}", &outcome), None);
        let link = "https://gate.test/mcp-accounts/link?token=secret";
        let recorded = masked(link, &outcome);
        assert_eq!(recorded, "https://gate.test/mcp-accounts/link?token=***");
        assert_eq!(with_token(r#"{"progress": 1}"#, &outcome), None);
        assert_eq!(with_token(&format!("{recorded} {recorded}"), &outcome), Some(format!("{link} {link}")));
        assert_eq!(with_token(&recorded, &outcome), None, "what a server repeats stays masked");
    }
}
