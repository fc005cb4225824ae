//! What requests to a server, and what a server sends beside its responses, have in common, when the flow of the client's
//! request is no longer at hand.

use std::sync::Arc;

use interflow_limits::VirtualKey;
use interflow_redact::ValuePolicy;
use interflow_types::{Direction, Flow, RequestHead};
use parking_lot::Mutex;
use serde_json::Value;

use crate::access::may_log;
use crate::exchange::McpExchange;
use crate::protocol::jsonrpc::RpcError;
use crate::protocol::listen_filter::ListenFilter;
use crate::redaction::values::{Findings, Redaction};
use crate::service::McpService;
use crate::session::call_outcome::CallOutcome;
use crate::session::client_session::McpSession;
use crate::session::request_state::{RequestState, StateBinding};
use crate::upstream::server::McpServer;

/// A request of a client that is being answered.
pub(crate) struct AnsweredRequest<'a> {
    pub service: &'a Arc<McpService>,
    pub flow: &'a mut Flow,
    pub head: &'a RequestHead,
    pub session: &'a Arc<McpSession>,
}

impl AnsweredRequest<'_> {
    /// What is needed for a stream of what these servers send.
    ///
    /// # Errors
    /// One has no policy.
    pub fn stream_contexts(
        &mut self,
        servers: Vec<Arc<McpServer>>,
        key: Option<&VirtualKey>,
        delivery: impl Fn() -> Delivery,
    ) -> Result<Vec<CallContext>, RpcError> {
        let context = |server: Arc<McpServer>| {
            let policy = self.service.policy(self.flow, &server)?;
            Ok(CallContext::new(self, server, key, policy, delivery()))
        };
        servers.into_iter().map(context).collect()
    }
}

pub(crate) struct CallContext {
    pub service: Arc<McpService>,
    pub session: Arc<McpSession>,
    pub server: Arc<McpServer>,
    pub policy: ValuePolicy,
    pub outcome: Arc<Mutex<CallOutcome>>,
    pub review: Arc<ReviewedRequest>,
    /// Whether the client gets the log messages of the server.
    pub may_log: bool,
    pub delivery: Delivery,
}

/// Where a client gets what a server sends beside its responses.
pub(crate) enum Delivery {
    /// On the stream of its session, and requests of the server on that of its call.
    Session,
    /// Without a session: on the stream of its request.
    Request,
    /// The stream is that of a request for these notifications, with this id.
    Listen(Arc<ListenFilter>, Value),
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

impl CallContext {
    pub fn new(
        request: &mut AnsweredRequest<'_>,
        server: Arc<McpServer>,
        key: Option<&VirtualKey>,
        policy: ValuePolicy,
        delivery: Delivery,
    ) -> Self {
        let (service, session) = (Arc::clone(request.service), Arc::clone(request.session));
        let outcome = Arc::clone(&request.flow.extension_mut::<McpExchange>().outcome);
        let (may_log, review) = (may_log(&server, key), ReviewedRequest::new(request.flow, request.head));
        Self { service, session, server, policy, outcome, review, may_log, delivery }
    }

    /// Whether the client has no session.
    pub fn is_stateless(&self) -> bool {
        self.session.is_stateless()
    }

    /// Seals what the client sends back with its next request, for as long as a client may take to answer.
    ///
    /// # Errors
    /// It is too long.
    pub fn seal(&self, state: RequestState, binding: &StateBinding) -> Result<String, RpcError> {
        self.service.sealer.seal(state, binding, self.server.config.client_timeout.0)
    }

    /// Redacts what the server sent for the client, and has the guard check it.
    ///
    /// # Errors
    /// It cannot be inspected, or the guard refuses it.
    pub async fn inspect(&self, json: String) -> Result<String, RpcError> {
        let mut redaction = self.redaction();
        let redacted = redaction.result(&self.server, json).await;
        self.count(redaction.findings);
        match &self.policy.guard {
            Some(guard) => guard.check_result(redacted?).await.map_err(RpcError::not_allowed),
            None => redacted,
        }
    }

    /// Counts findings in what the server sent.
    pub fn count(&self, findings: Findings) {
        self.service.count_findings(Direction::Response, &findings);
        self.outcome.lock().add(findings);
    }

    /// How what the server sends is redacted.
    pub fn redaction(&self) -> Redaction<'_> {
        Redaction::of_results(&self.policy, &self.server, &self.session.from_servers)
    }

    /// Asks a person about a request of the server to its client.
    ///
    /// # Errors
    /// It was not approved.
    pub async fn review(&self, method: &str, values: &str) -> Result<(), RpcError> {
        let name = &self.server.name;
        let reason = format!("request {method} of the MCP server {name} to its client with {values}");
        let review = (self.service.deps.review)(&self.review.flow, &self.review.head, reason);
        review.await.map_err(|why| RpcError::not_allowed(format!("{method} was not approved: {why}")))
    }
}
