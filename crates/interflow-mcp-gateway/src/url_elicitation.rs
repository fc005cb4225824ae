//! Elicitation in URL mode (MCP 2025-11-25, elicitation): a server has the user of a client open a URL, by a request or by
//! the error of a call, and may tell when the user is done.
//!
//! A URL that is redacted leads nowhere, so one that would have to be is refused.

use std::collections::VecDeque;
use std::sync::Arc;

use interflow_limits::any_matches;
use interflow_redact::ValuePolicy;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::client_capabilities::ClientRequestKind;
use crate::jsonrpc::{NOT_INSPECTED, RpcError, URL_ELICITATION_REQUIRED, shown_arguments};
use crate::redaction::{Findings, redact_result, restore_json};
use crate::sessions::McpSession;
use crate::tool_call::ServerCall;

pub(crate) const COMPLETE: &str = "notifications/elicitation/complete";
/// Bounds on a URL and on the id of an elicitation, in bytes.
const MAX_URL: usize = 8192;
const MAX_ID: usize = 256;
/// Bound on the elicitations of one error.
const MAX_REQUIRED: usize = 16;
/// Bound on the elicitations that a session remembers.
const MAX_REMEMBERED: usize = 256;

/// The elicitations that a client was sent: the server, the id there, and the id as the client was sent it, redacted.
#[derive(Default)]
pub(crate) struct SentElicitations(Mutex<VecDeque<(Arc<str>, String, String)>>);

impl SentElicitations {
    fn remember(&self, server: &Arc<str>, id: &str, shown: &str) {
        let mut all = self.0.lock();
        if all.len() >= MAX_REMEMBERED {
            all.pop_front();
        }
        all.push_back((Arc::clone(server), id.to_owned(), shown.to_owned()));
    }

    /// The id for the client of an elicitation that is complete now.
    pub fn take(&self, server: &Arc<str>, id: &str) -> Option<String> {
        let mut all = self.0.lock();
        let at = all.iter().position(|(owner, known, _)| owner == server && known == id)?;
        all.remove(at).map(|(_, _, shown)| shown)
    }
}

/// The known members of an elicitation.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn known_members(params: &Value) -> Result<Value, &'static str> {
    let text = |name: &str, max: usize| params[name].as_str().filter(|text| !text.is_empty() && text.len() <= max);
    let url = text("url", MAX_URL).ok_or("it has no `url`, or one of more than 8192 bytes")?;
    // Others could make the client run or read something.
    if !["https://", "http://"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme)))
    {
        return Err("its `url` is none of http or https");
    }
    // Some clients would read a line break as the end of the URL, and show or open only a part of it.
    if !url.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("its `url` has characters that a URL cannot have (RFC 3986)");
    }
    let id = text("elicitationId", MAX_ID).ok_or("it has no `elicitationId`, or one of more than 256 bytes")?;
    let message = params["message"].as_str().ok_or("it has no `message`")?;
    Ok(json!({ "mode": "url", "message": message, "url": url, "elicitationId": id }))
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
    for name in ["url", "elicitationId"] {
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
    if let (Some(id), Some(shown)) = (sent["elicitationId"].as_str(), redacted["elicitationId"].as_str()) {
        session.elicitations.remember(server, id, shown);
    }
    Ok(())
}

impl ServerCall {
    /// The data for the client of an error by which a server requires that the user opens URLs; `None` for other errors.
    ///
    /// # Errors
    /// The client does not get it, and why.
    pub(crate) async fn required_urls(
        &self,
        error: &RpcError,
        found: &mut Findings,
    ) -> Result<Option<Value>, RpcError> {
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
        let mut shown = Vec::new();
        for elicitation in required.ok_or_else(|| invalid("there are none, or more than 16"))? {
            if elicitation["mode"] != "url" {
                return Err(invalid("their mode is not `url`"));
            }
            let sent = known_members(elicitation).map_err(invalid)?.to_string();
            let redacted = redact_result(&self.policy, server, &session.from_servers, sent.clone(), found).await?;
            let checked = match &self.guard {
                Some(guard) => guard.check_result(redacted).await.map_err(RpcError::not_allowed)?,
                None => redacted,
            };
            admit(&self.policy, session, name, &sent, &checked)?;
            shown.push(serde_json::from_str::<Value>(&checked).map_err(|e| RpcError::server(e.to_string()))?);
        }
        let shown = Value::Array(shown);
        let method = ClientRequestKind::Elicitation.method();
        if any_matches(&config.approve, method) {
            let urls = shown_arguments(&shown.to_string());
            let reason = format!("request {method} of the MCP server {name} to its client with {urls}");
            let _waiting = session.clock.begin();
            let review = (self.service.deps.review)(&self.review.flow, &self.review.head, reason);
            review.await.map_err(|why| RpcError::not_allowed(format!("{method} was not approved: {why}")))?;
        }
        Ok(Some(Value::Object(Map::from_iter([("elicitations".to_owned(), shown)]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elicitation_has_a_web_address_an_id_and_a_message() {
        let good = json!({ "url": "https://a.test/x", "elicitationId": "1", "message": "m", "more": 1 });
        let known = json!({ "mode": "url", "url": "https://a.test/x", "elicitationId": "1", "message": "m" });
        assert_eq!(known_members(&good), Ok(known));
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
            assert!(known_members(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_elicitation_is_complete_once_and_for_its_server() {
        let (all, a, b) = (SentElicitations::default(), Arc::from("a"), Arc::from("b"));
        all.remember(&a, "1", "x");
        assert_eq!(all.take(&b, "1"), None);
        assert_eq!(all.take(&a, "1").as_deref(), Some("x"));
        assert_eq!(all.take(&a, "1"), None);
        (0..=MAX_REMEMBERED).for_each(|n| all.remember(&a, &n.to_string(), "x"));
        assert_eq!(all.take(&a, "0"), None, "the oldest made room");
    }
}
