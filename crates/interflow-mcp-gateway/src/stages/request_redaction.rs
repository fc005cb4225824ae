//! Redaction of what a client sends to a server, before it is recorded.

use std::sync::Arc;

use interflow_redact::{RedactMode, ValuePolicy};
use interflow_types::{Direction, Flow, RequestHead};
use serde_json::Value;

use crate::protocol::client_message::{ClientMethod, ClientRequest, CompletionRef};
use crate::protocol::jsonrpc::{INTERNAL_ERROR, RpcError};
use crate::redaction::values::{Findings, redact_arguments, redact_json, redact_text};
use crate::service::McpService;
use crate::session::client_session::McpSession;
use crate::session::listed_names::SchemaValues;
use crate::upstream::server::McpServer;

/// Removes from a call that is refused what was not redacted; a name may be no more than text that the client sent.
pub(super) async fn redact_refusal(
    policy: &ValuePolicy,
    session: &McpSession,
    request: &mut ClientRequest,
    error: &mut RpcError,
) {
    request.method.clear_values();
    if let Some(envelope) = &mut request.envelope {
        envelope.passed = "{}".to_owned();
    }
    let Some((_, name)) = request.method.listed_name() else { return };
    let (vault, mut findings) = (&session.from_client, Findings::new());
    let redacted = redact_text(policy, policy.mode, vault, name, &mut findings).await;
    if redacted != *name {
        error.message = redact_text(policy, policy.mode, vault, &error.message, &mut findings).await;
        *name = redacted;
    }
}

/// Redacts what is not for one server, or has no meaning for the gateway.
pub(super) async fn redact_further(
    service: &McpService,
    flow: &mut Flow,
    mode: RedactMode,
    policy: &ValuePolicy,
    session: &McpSession,
    passed: &mut String,
) -> Result<(), RpcError> {
    let mut findings = Findings::new();
    *passed = redact_json(policy, mode, &session.from_client, std::mem::take(passed), &mut findings).await?;
    service.count_findings(Direction::Request, &findings);
    tag_findings(flow, mode, &findings);
    Ok(())
}

/// Redacts what the client sends to the server.
pub(super) async fn redact_values(
    service: &McpService,
    flow: &mut Flow,
    server: &McpServer,
    policy: &ValuePolicy,
    session: &McpSession,
    listed: &Arc<SchemaValues>,
    method: &mut ClientMethod,
) -> Result<(), RpcError> {
    let mode = server.argument_mode(policy);
    let mut findings = Findings::new();
    let vault = &session.from_client;
    match method {
        ClientMethod::CallTool(_, arguments) | ClientMethod::GetPrompt(_, arguments) => {
            *arguments =
                redact_arguments(policy, mode, vault, std::mem::take(arguments), listed, &mut findings).await?;
        }
        // A URI that the server listed tells it nothing new.
        ClientMethod::ReadResource(uri) | ClientMethod::Subscribe(uri) | ClientMethod::Unsubscribe(uri)
            if session.resources.of_resource(uri).is_none() =>
        {
            redact_uri(policy, mode, session, uri, &mut findings).await?;
        }
        ClientMethod::Complete(reference, values) => {
            *values = redact_json(policy, mode, vault, std::mem::take(values), &mut findings).await?;
            if let CompletionRef::Resource(uri) = reference
                && !session.resources.is_listed(uri)
            {
                redact_uri(policy, mode, session, uri, &mut findings).await?;
            }
        }
        _ => {}
    }
    service.count_findings(Direction::Request, &findings);
    tag_findings(flow, mode, &findings);
    Ok(())
}

async fn redact_uri(
    policy: &ValuePolicy,
    mode: RedactMode,
    session: &McpSession,
    uri: &mut String,
    findings: &mut Findings,
) -> Result<(), RpcError> {
    let json = redact_json(policy, mode, &session.from_client, Value::from(uri.as_str()).to_string(), findings).await?;
    *uri = serde_json::from_str(&json).map_err(|e| RpcError::new(INTERNAL_ERROR, e.to_string()))?;
    Ok(())
}

/// Redacts what the client answers to a request of a server, and says whether a guard masked or refused something. What
/// cannot be inspected becomes an error for the server.
///
/// # Errors
/// There is no policy.
pub(super) async fn redact_answer(
    service: &Arc<McpService>,
    flow: &mut Flow,
    head: &RequestHead,
    server: &Arc<McpServer>,
    session: &McpSession,
    answer: Result<String, RpcError>,
) -> Result<(Result<String, RpcError>, bool), String> {
    let policy = (service.deps.policy)(flow, server.config.policy.as_deref())?;
    let mode = server.argument_mode(&policy);
    let (mut findings, vault) = (Findings::new(), &session.from_client);
    flow.tag(format!("mcp:{}", server.name));
    let redacted = match answer {
        Ok(json) => redact_json(&policy, mode, vault, json, &mut findings).await,
        Err(e) => {
            let message = redact_text(&policy, mode, vault, &e.message, &mut findings).await;
            Err(RpcError { message, ..e })
        }
    };
    service.count_findings(Direction::Request, &findings);
    tag_findings(flow, mode, &findings);
    Ok(match ((service.deps.guard)(flow, &server.name), redacted) {
        (Some(guard), Ok(json)) => {
            let checked = guard.check_arguments(flow, head, json.clone()).await.map_err(RpcError::not_allowed);
            let is_masked = checked.as_ref() != Ok(&json);
            (checked, is_masked)
        }
        (_, redacted) => (redacted, false),
    })
}

fn tag_findings(flow: &mut Flow, mode: RedactMode, findings: &Findings) {
    if !findings.is_empty() {
        flow.tag(if mode == RedactMode::Redact { "redacted" } else { "redact:flagged" });
        findings.keys().for_each(|kind| flow.tag(format!("found:{kind}")));
    }
}
