//! Redaction of what a client sends to a server, before it is recorded.

use std::sync::Arc;

use interflow_redact::{RedactMode, ValuePolicy};
use interflow_types::{Direction, Flow, RequestHead};

use crate::protocol::client_message::{ClientMessage, ClientMethod, ClientRequest, CompletionRef};
use crate::protocol::jsonrpc::RpcError;
use crate::redaction::values::Redaction;
use crate::service::McpService;
use crate::session::client_session::McpSession;
use crate::session::listed_names::SchemaValues;
use crate::upstream::server::McpServer;

/// What a message of a session is inspected by.
#[derive(Clone, Copy)]
pub(super) struct RequestInspection<'a> {
    pub service: &'a McpService,
    pub session: &'a McpSession,
    pub policy: &'a ValuePolicy,
}

impl<'a> RequestInspection<'a> {
    fn redaction(self, mode: RedactMode) -> Redaction<'a> {
        Redaction::new(self.policy, mode, &self.session.from_client)
    }

    /// Counts what was found, and tags the flow with it.
    fn note_findings(self, flow: &mut Flow, redaction: &Redaction<'_>) {
        self.service.count_findings(Direction::Request, &redaction.findings);
        if !redaction.findings.is_empty() {
            flow.tag(if redaction.mode == RedactMode::Redact { "redacted" } else { "redact:flagged" });
            redaction.findings.keys().for_each(|kind| flow.tag(format!("found:{kind}")));
        }
    }

    /// Removes from a call that is refused what was not redacted; a name may be no more than text that the client sent.
    pub async fn redact_refusal(self, request: &mut ClientRequest, error: &mut RpcError) {
        request.method.clear_values();
        if let Some(envelope) = &mut request.envelope {
            envelope.passed = "{}".to_owned();
        }
        let Some((_, name)) = request.method.listed_name() else { return };
        let mut redaction = self.redaction(self.policy.mode);
        let redacted = redaction.text(name).await;
        if redacted != *name {
            error.message = redaction.text(&error.message).await;
            *name = redacted;
        }
    }

    /// Redacts for the record what a client calls itself, its requests, and methods that there are not. An id has to come back
    /// as it was, so it stays if nothing is restored.
    pub async fn redact_names(self, flow: &mut Flow, message: &mut ClientMessage) {
        let (mut redaction, mut ids) = (self.redaction(self.policy.mode), Vec::new());
        match message {
            ClientMessage::Cancel(id) => ids.push(id),
            ClientMessage::Request(request) => {
                ids.extend([Some(&mut request.id), request.progress_token.as_mut()].into_iter().flatten());
                match &mut request.method {
                    ClientMethod::Unknown(method) => *method = redaction.text(method).await,
                    ClientMethod::Initialize(_, client, _) => {
                        let redacted = redaction.json(client.to_string()).await.unwrap_or_default();
                        *client = serde_json::from_str(&redacted).unwrap_or_default();
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        for id in ids.into_iter().filter(|id| self.policy.restore && id.is_string()) {
            if let Ok(redacted) = redaction.json(id.to_string()).await {
                *id = serde_json::from_str(&redacted).unwrap_or_default();
            }
        }
        self.note_findings(flow, &redaction);
    }

    /// Redacts what is not for one server, or has no meaning for the gateway.
    pub async fn redact_further(self, flow: &mut Flow, mode: RedactMode, passed: &mut String) -> Result<(), RpcError> {
        let mut redaction = self.redaction(mode);
        *passed = redaction.json(std::mem::take(passed)).await?;
        self.note_findings(flow, &redaction);
        Ok(())
    }

    /// Redacts what the client sends to the server.
    pub async fn redact_values(
        self,
        flow: &mut Flow,
        server: &McpServer,
        listed: &Arc<SchemaValues>,
        method: &mut ClientMethod,
    ) -> Result<(), RpcError> {
        let (mut redaction, resources) = (self.redaction(server.argument_mode(self.policy)), &self.session.resources);
        match method {
            ClientMethod::CallTool(_, arguments) | ClientMethod::GetPrompt(_, arguments) => {
                *arguments = redaction.arguments(std::mem::take(arguments), listed).await?;
            }
            // A URI that the server listed tells it nothing new.
            ClientMethod::ReadResource(uri) | ClientMethod::Subscribe(uri) | ClientMethod::Unsubscribe(uri)
                if resources.of_resource(uri).is_none() =>
            {
                redaction.uri(uri).await?;
            }
            ClientMethod::Complete(reference, values) => {
                *values = redaction.json(std::mem::take(values)).await?;
                if let CompletionRef::Resource(uri) = reference
                    && !resources.is_listed(uri)
                {
                    redaction.uri(uri).await?;
                }
            }
            _ => {}
        }
        self.note_findings(flow, &redaction);
        Ok(())
    }

    /// Redacts what the client answers to a request of a server, and says whether a guard masked or refused something. What
    /// cannot be inspected becomes an error for the server.
    pub async fn redact_answer(
        self,
        flow: &mut Flow,
        head: &RequestHead,
        server: &McpServer,
        answer: Result<String, RpcError>,
    ) -> (Result<String, RpcError>, bool) {
        let mut redaction = self.redaction(server.argument_mode(self.policy));
        flow.tag(format!("mcp:{}", server.name));
        let redacted = match answer {
            Ok(json) => redaction.json(json).await,
            Err(e) => Err(RpcError { message: redaction.text(&e.message).await, ..e }),
        };
        self.note_findings(flow, &redaction);
        match (&self.policy.guard, redacted) {
            (Some(guard), Ok(json)) => {
                let checked = guard.check_arguments(flow, head, json.clone()).await.map_err(RpcError::not_allowed);
                let is_masked = checked.as_ref() != Ok(&json);
                (checked, is_masked)
            }
            (_, redacted) => (redacted, false),
        }
    }
}
