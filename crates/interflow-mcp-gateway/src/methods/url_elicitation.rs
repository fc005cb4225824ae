//! Elicitation in URL mode (MCP 2025-11-25, elicitation): a server has the user of a client open a URL, by a request or by
//! the error of a call, and may tell when the user is done.
//!
//! A URL that is redacted leads nowhere, so one that would have to be is refused.

use std::sync::Arc;

use interflow_limits::any_matches;
use interflow_redact::ValuePolicy;
use serde_json::{Map, Value, json};

use super::call_context::CallContext;
use crate::protocol::client_capabilities::ClientRequestKind;
use crate::protocol::jsonrpc::{NOT_INSPECTED, RpcError, URL_ELICITATION_REQUIRED, shown_arguments};
use crate::redaction::restoring::restore_json;
use crate::session::client_session::McpSession;

pub(crate) const COMPLETE: &str = "notifications/elicitation/complete";
/// Bounds on a URL and on the id of an elicitation, in bytes.
const MAX_URL: usize = 8192;
const MAX_ID: usize = 256;
/// Bound on the elicitations of one error.
const MAX_REQUIRED: usize = 16;

/// The known members of an elicitation. For a client with a session it gets an id if the server gave it none, as servers
/// without sessions do; a client without one learns by its next request when the user is done, and needs none.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn known_members(params: &Value, is_stateless: bool) -> Result<Value, &'static str> {
    let text = |name: &str, max: usize| params[name].as_str().filter(|text| !text.is_empty() && text.len() <= max);
    let url = text("url", MAX_URL).ok_or("it has no `url`, or one of more than 8192 bytes")?;
    // Others could make the client run or read something.
    let begins_with = |scheme: &&str| url.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme));
    if !["https://", "http://"].iter().any(begins_with) {
        return Err("its `url` is not http or https");
    }
    // Some clients would read a line break as the end of the URL, and show or open only a part of it.
    if !url.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("its `url` has characters that a URL cannot have (RFC 3986)");
    }
    let message = params["message"].as_str().ok_or("it has no `message`")?;
    let mut known = json!({ "mode": "url", "message": message, "url": url });
    if !is_stateless {
        known["elicitationId"] = match params.get("elicitationId") {
            None => interflow_types::random_token().into(),
            Some(_) => text("elicitationId", MAX_ID).ok_or("its `elicitationId` has more than 256 bytes")?.into(),
        };
    }
    Ok(known)
}

/// Lets an elicitation pass whose URL and id reach the client as the server wrote them, and remembers it.
///
/// # Errors
/// They would not, because something in them is redacted.
pub(crate) fn admit(
    policy: &ValuePolicy,
    session: &McpSession,
    server: &Arc<str>,
    sent: &str,
    redacted: &str,
) -> Result<(), RpcError> {
    let parse = |json: &str| serde_json::from_str::<Value>(json).map_err(|e| RpcError::server(e.to_string()));
    let (sent, redacted) = (parse(sent)?, parse(redacted)?);
    for name in ["url", "elicitationId"].into_iter().filter(|name| sent.get(*name).is_some()) {
        let original = sent[name].to_string();
        // What the client sent itself is restored for it.
        let arrives = redacted[name] == sent[name]
            || policy.restore
                && restore_json(&session.from_client, &redacted[name].to_string()).is_some_and(|json| json == original);
        if !arrives {
            let message =
                format!("not passed on, because `{name}` of the elicitation contains what has to be redacted");
            return Err(RpcError::new(NOT_INSPECTED, message));
        }
    }
    if let (Some(id), Some(client_id)) = (sent["elicitationId"].as_str(), redacted["elicitationId"].as_str()) {
        session.elicitations.add_newest(server, id, client_id);
    }
    Ok(())
}

impl CallContext {
    /// The data for the client of an error by which a server requires that the user opens URLs; `None` for other errors.
    ///
    /// # Errors
    /// The client does not get it, and why.
    pub async fn required_urls(&self, error: &RpcError) -> Result<Option<Value>, RpcError> {
        if error.code != URL_ELICITATION_REQUIRED {
            return Ok(None);
        }
        let (server, session) = (&self.server, &self.session);
        let (name, config) = (&server.name, &server.config);
        if !session.capabilities.urls || !config.client_requests.contains(&ClientRequestKind::Elicitation) {
            let message = format!(
                "the MCP server {name} requires that the user opens a URL, which the client did not declare \
                 (elicitation.url), or the operator does not allow (mcp.server.{name}.client_requests)"
            );
            return Err(RpcError::not_allowed(message));
        }
        let invalid =
            |why: &str| RpcError::server(format!("MCP server {name}: the URLs that it requires are invalid: {why}"));
        let required = error.received_data.as_ref().and_then(|data| data["elicitations"].as_array());
        let required = required.filter(|all| !all.is_empty() && all.len() <= MAX_REQUIRED);
        let mut elicitations = Vec::new();
        for elicitation in required.ok_or_else(|| invalid("there are none, or more than 16"))? {
            if elicitation["mode"] != "url" {
                return Err(invalid("their mode is not `url`"));
            }
            let sent = known_members(elicitation, self.is_stateless()).map_err(invalid)?.to_string();
            let checked = self.inspect(sent.clone()).await?;
            admit(&self.policy, session, name, &sent, &checked)?;
            elicitations.push(serde_json::from_str::<Value>(&checked).map_err(|e| RpcError::server(e.to_string()))?);
        }
        let elicitations = Value::Array(elicitations);
        let method = ClientRequestKind::Elicitation.method();
        if any_matches(&config.approve, method) {
            let _waiting = session.clock.begin();
            self.review(method, &shown_arguments(&elicitations.to_string())).await?;
        }
        Ok(Some(Value::Object(Map::from_iter([("elicitations".to_owned(), elicitations)]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elicitation_has_a_web_address_an_id_and_a_message() {
        let good = json!({ "url": "https://a.test/x", "elicitationId": "1", "message": "m", "more": 1 });
        let known = json!({ "mode": "url", "url": "https://a.test/x", "elicitationId": "1", "message": "m" });
        assert_eq!(known_members(&good, false), Ok(known));
        for (name, value) in [
            ("url", json!("javascript:alert(1)")),
            ("url", json!("file:///etc/passwd")),
            ("url", json!("")),
            ("url", json!("é")),
            ("url", json!("https://a.test/x\r\nSet-Cookie: a=b")),
            ("url", json!("https://a.test/\tx")),
            ("url", json!("https://a.test/ x")),
            ("url", json!("https://a.test/\u{202e}x")),
            ("url", json!(format!("https://{}", "a".repeat(MAX_URL)))),
            ("elicitationId", json!(7)),
            ("message", Value::Null),
        ] {
            let mut bad = good.clone();
            bad[name] = value;
            assert!(known_members(&bad, false).is_err(), "{bad}");
        }
    }
}
