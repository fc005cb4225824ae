//! What requests to a server, and what a server sends beside its responses, have in common, when the flow of the client's
//! request is no longer at hand.

use std::sync::Arc;

use interflow_redact::{RedactMode, ValuePolicy};
use interflow_types::{Direction, Flow, RequestHead};
use parking_lot::Mutex;

use crate::exchange::CallOutcome;
use crate::protocol::jsonrpc::RpcError;
use crate::redaction::results::redact_result;
use crate::redaction::values::Findings;
use crate::service::{CallGuard, McpService};
use crate::session::client_session::McpSession;
use crate::upstream::server::McpServer;

pub(crate) struct CallContext {
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

impl CallContext {
    /// Redacts what the server sent for the client, and has the guard check it.
    ///
    /// # Errors
    /// It cannot be inspected, or the guard refuses it.
    pub async fn inspect(&self, json: String) -> Result<String, RpcError> {
        let mut findings = Findings::new();
        let redacted = redact_result(&self.policy, &self.server, &self.session.from_servers, json, &mut findings).await;
        self.count(findings);
        match &self.guard {
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
    pub fn result_mode(&self) -> RedactMode {
        self.server.config.results.unwrap_or(self.policy.mode)
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
