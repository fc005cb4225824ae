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
use crate::redaction::{Findings, redact_result, restore_json};
use crate::service::{CallGuard, McpService};
use crate::sessions::McpSession;
use crate::settings::McpServer;
use crate::stages::CallOutcome;
use crate::upstream::{ServerEvent, ServerRequest};

/// All that is needed to pass on what a server sends beside its responses, when the flow of the client's request is no
/// longer at hand.
pub(crate) struct EventContext {
    pub service: Arc<McpService>,
    pub session: Arc<McpSession>,
    pub server: Arc<McpServer>,
    pub policy: ValuePolicy,
    pub guard: Option<Arc<dyn CallGuard>>,
    pub outcome: Arc<Mutex<CallOutcome>>,
    pub review: ReviewedRequest,
    /// Whether the client gets the log messages of the server.
    pub may_log: bool,
}

/// What a person is told of the client's request.
pub(crate) struct ReviewedRequest {
    /// Without the tags and extensions of the original.
    flow: Flow,
    head: RequestHead,
}

impl ReviewedRequest {
    pub fn new(flow: &Flow, head: &RequestHead) -> Self {
        let mut copy =
            Flow::begin_at(flow.clock, Arc::clone(&flow.client), flow.transport, flow.scheme, flow.authority.clone());
        (copy.id, copy.user) = (flow.id, flow.user.clone());
        Self { flow: copy, head: head.clone() }
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

    /// Asks the client; the result is for the server.
    async fn ask(&self, method: &str, params: &str, out: &mpsc::Sender<String>) -> Result<String, RpcError> {
        let (session, config) = (&self.session, &self.server.config);
        let kind = ClientRequestKind::from_method(method);
        let kind =
            kind.filter(|kind| config.client_requests.contains(kind) && session.capabilities.kinds.contains(kind));
        let kind =
            kind.ok_or_else(|| RpcError::new(METHOD_NOT_FOUND, format!("the client has no method `{method}`")))?;
        let params = known_params(kind, params, &session.capabilities)?;
        let mut found = Findings::new();
        let vault = &session.from_servers;
        let redacted = redact_result(&self.policy, &self.server, vault, params, &mut found).await;
        self.service.count_findings(Direction::Response, &found);
        self.outcome.lock().add(found);
        let params = match &self.guard {
            Some(guard) => guard.check_result(redacted?).await.map_err(RpcError::not_allowed)?,
            None => redacted?,
        };
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
        let restored = config.restore_arguments.then(|| restore_json(&session.from_servers, &answer)).flatten();
        Ok(restored.unwrap_or(answer))
    }
}

fn known_params(kind: ClientRequestKind, params: &str, client: &ClientCapabilities) -> Result<String, RpcError> {
    let invalid = |why: &str| RpcError::new(INVALID_PARAMS, format!("{}: {why}", kind.method()));
    let params: Value = serde_json::from_str(if params.is_empty() { "{}" } else { params })
        .map_err(|e| invalid(&format!("its params are no JSON: {e}")))?;
    if kind == ClientRequestKind::Elicitation && params.get("mode").is_some_and(|mode| mode != "form") {
        return Err(invalid("of its modes only `form` is passed on"));
    }
    if kind == ClientRequestKind::Sampling && params.get("tools").is_some() && !client.tools {
        return Err(invalid("the client does not sample with tools"));
    }
    let known = kind.members().iter().filter_map(|name| Some(((*name).to_owned(), params.get(name)?.clone())));
    Ok(Value::Object(known.collect()).to_string())
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
        assert_eq!(known, r#"{"message":"m","requestedSchema":{"type":"object"}}"#);
        for (kind, params) in [
            (ClientRequestKind::Elicitation, r#"{"mode":"url","url":"https://a.test"}"#),
            (ClientRequestKind::Sampling, r#"{"messages":[],"tools":[]}"#),
            (ClientRequestKind::Sampling, "["),
        ] {
            assert_eq!(known_params(kind, params, &client).unwrap_err().code, INVALID_PARAMS, "{params}");
        }
        assert_eq!(known_params(ClientRequestKind::Roots, "", &client).as_deref(), Ok("{}"));
    }
}
