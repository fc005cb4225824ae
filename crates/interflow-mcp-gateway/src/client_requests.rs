//! Requests of servers to clients: elicitation, sampling and roots. Their content is redacted as results are, since it may
//! carry what a server knows, and answers as arguments are.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use interflow_limits::any_matches;
use interflow_redact::ValuePolicy;
use interflow_types::{BoxFuture, Direction, Flow, RequestHead};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client_capabilities::{ClientCapabilities, ClientRequestKind};
use crate::jsonrpc::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, notification, request, shown_arguments};
use crate::log_messages;
use crate::redaction::{Findings, redact_result, restore_for_server};
use crate::service::{CallGuard, McpService};
use crate::sessions::McpSession;
use crate::settings::McpServer;
use crate::stages::CallOutcome;
use crate::upstream::{ServerEvent, ServerRequest};
use crate::url_elicitation;

/// All that is needed to pass on what a server sends beside its responses, when the flow of the client's request is no
/// longer at hand.
pub(crate) struct EventContext {
    pub service: Arc<McpService>,
    pub session: Arc<McpSession>,
    pub server: Arc<McpServer>,
    pub policy: ValuePolicy,
    pub guard: Option<Arc<dyn CallGuard>>,
    pub outcome: Arc<Mutex<CallOutcome>>,
    pub review: Arc<ReviewedRequest>,
    /// Whether the client gets the log messages of the server.
    pub may_log: bool,
}

/// What a person is told of the client's request.
pub(crate) struct ReviewedRequest {
    /// Without the tags and extensions of the original.
    pub flow: Flow,
    pub head: RequestHead,
}

impl ReviewedRequest {
    pub fn new(flow: &Flow, head: &RequestHead) -> Arc<Self> {
        let mut copy =
            Flow::begin_at(flow.clock, Arc::clone(&flow.client), flow.transport, flow.scheme, flow.authority.clone());
        (copy.id, copy.user) = (flow.id, flow.user.clone());
        Arc::new(Self { flow: copy, head: head.clone() })
    }
}

/// Makes what the client sees of the params of a progress notification.
pub(crate) type ProgressTranslator = Box<dyn Fn(&Value) -> Value + Send>;

impl EventContext {
    /// Passes on what a server sends, until it sends nothing more. Requests that are not answered by then are given up.
    pub async fn dispatch(
        &self,
        mut events: mpsc::Receiver<ServerEvent>,
        out: mpsc::Sender<String>,
        progress: Option<ProgressTranslator>,
    ) {
        let mut asked = FuturesUnordered::<BoxFuture<'_, ()>>::new();
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                Some(()) = asked.next(), if !asked.is_empty() => continue,
            };
            match event {
                None => return,
                Some(ServerEvent::Progress(params)) => {
                    if let Some(translate) = &progress {
                        // A client that reads slowly misses some.
                        let _ = out.try_send(notification("notifications/progress", &translate(&params)));
                    }
                }
                Some(ServerEvent::Notification { method, params }) if method == log_messages::NOTIFICATION => {
                    self.pass_log_message(&params).await;
                }
                Some(ServerEvent::Notification { method, params }) if method == url_elicitation::COMPLETE => {
                    self.pass_completion(&params, &out);
                }
                Some(ServerEvent::Notification { method, params }) => {
                    self.session.notify(&self.server.name, &method, &params);
                }
                Some(ServerEvent::Request(request)) => {
                    let out = out.clone();
                    asked.push(Box::pin(async move {
                        let ServerRequest { method, params, reply } = request;
                        let _ = reply.send(self.ask(&method, &params, &out).await);
                    }));
                }
            }
        }
    }

    /// Tells the client that the user is done with a URL that it was sent.
    fn pass_completion(&self, params: &Value, out: &mpsc::Sender<String>) {
        let id = params["elicitationId"].as_str();
        let Some(shown) = id.and_then(|id| self.session.elicitations.take(&self.server.name, id)) else { return };
        let text = notification(url_elicitation::COMPLETE, &json!({ "elicitationId": shown }));
        if self.session.standing.keeps_events() {
            self.session.standing.push(text);
        } else {
            let _ = out.try_send(text);
        }
    }

    /// Asks the client; the result is for the server.
    async fn ask(&self, method: &str, params: &str, out: &mpsc::Sender<String>) -> Result<String, RpcError> {
        let (session, config) = (&self.session, &self.server.config);
        let kind = ClientRequestKind::from_method(method);
        let kind =
            kind.filter(|kind| config.client_requests.contains(kind) && session.capabilities.kinds.contains(kind));
        let kind =
            kind.ok_or_else(|| RpcError::new(METHOD_NOT_FOUND, format!("the client has no method `{method}`")))?;
        let (params, is_url) = known_params(kind, params, &session.capabilities)?;
        let mut found = Findings::new();
        let vault = &session.from_servers;
        let redacted = redact_result(&self.policy, &self.server, vault, params.clone(), &mut found).await;
        self.service.count_findings(Direction::Response, &found);
        self.outcome.lock().add(found);
        let sent = params;
        let params = match &self.guard {
            Some(guard) => guard.check_result(redacted?).await.map_err(RpcError::not_allowed)?,
            None => redacted?,
        };
        if is_url {
            url_elicitation::admit(&self.policy, session, &self.server.name, &sent, &params)?;
        }
        let _waiting = session.clock.begin();
        if any_matches(&config.approve, method) {
            let name = &self.server.name;
            let reason =
                format!("request {method} of the MCP server {name} to its client with {}", shown_arguments(&params));
            let review = (self.service.deps.review)(&self.review.flow, &self.review.head, reason);
            review.await.map_err(|why| RpcError::not_allowed(format!("{method} was not approved: {why}")))?;
        }
        let asked = session.begin_ask(&self.server)?;
        let gone = || RpcError::server("the client does not listen any more");
        out.send(request(asked.id, method, &params)).await.map_err(|_| gone())?;
        let limit = config.client_timeout.0;
        let Ok(answered) = tokio::time::timeout(limit, asked.answer()).await else {
            let _ = out.try_send(notification("notifications/cancelled", &json!({ "requestId": asked.id })));
            let limit = interflow_types::units::HumanDuration(limit);
            return Err(RpcError::server(format!("the client did not answer within {limit} (client_timeout)")));
        };
        let answer = answered.unwrap_or_else(|| Err(gone()))?;
        Ok(restore_for_server(&self.server, &self.policy, session, answer))
    }
}

/// The params that are passed on, and whether they ask for a URL to be opened.
fn known_params(
    kind: ClientRequestKind,
    params: &str,
    client: &ClientCapabilities,
) -> Result<(String, bool), RpcError> {
    let invalid = |why: &str| RpcError::new(INVALID_PARAMS, format!("{}: {why}", kind.method()));
    let params: Value = serde_json::from_str(if params.is_empty() { "{}" } else { params })
        .map_err(|e| invalid(&format!("its params are no JSON: {e}")))?;
    if kind == ClientRequestKind::Elicitation {
        match params.get("mode").map_or(Some("form"), Value::as_str) {
            Some("form") if client.forms => {}
            Some("url") if client.urls => {
                return url_elicitation::known_members(&params).map(|known| (known.to_string(), true)).map_err(invalid);
            }
            _ => return Err(invalid("the client does not have this mode")),
        }
    }
    if kind == ClientRequestKind::Sampling && params.get("tools").is_some() && !client.tools {
        return Err(invalid("the client does not sample with tools"));
    }
    let known = kind.members().iter().filter_map(|name| Some(((*name).to_owned(), params.get(name)?.clone())));
    Ok((Value::Object(known.collect()).to_string(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_members_and_modes_are_passed_on() {
        let client = ClientCapabilities::parse(&json!({ "elicitation": {}, "sampling": {} }));
        let form =
            r#"{"message":"m","requestedSchema":{"type":"object"},"mode":"form","_meta":{"a":1},"task":{"ttl":1}}"#;
        let known = known_params(ClientRequestKind::Elicitation, form, &client).unwrap();
        assert_eq!(known, (r#"{"message":"m","requestedSchema":{"type":"object"}}"#.to_owned(), false));
        for (kind, params) in [
            (ClientRequestKind::Elicitation, r#"{"mode":"url","url":"https://a.test"}"#),
            (ClientRequestKind::Sampling, r#"{"messages":[],"tools":[]}"#),
            (ClientRequestKind::Sampling, "["),
        ] {
            assert_eq!(known_params(kind, params, &client).unwrap_err().code, INVALID_PARAMS, "{params}");
        }
        assert_eq!(known_params(ClientRequestKind::Roots, "", &client), Ok(("{}".to_owned(), false)));
        let opens = ClientCapabilities::parse(&json!({ "elicitation": { "url": {} } }));
        let url = r#"{"mode":"url","url":"https://a.test","elicitationId":"1","message":"m"}"#;
        assert!(known_params(ClientRequestKind::Elicitation, url, &opens).unwrap().1);
        assert!(known_params(ClientRequestKind::Elicitation, form, &opens).is_err());
    }
}
