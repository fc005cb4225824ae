//! Actions that consult scripts, external services and recordings.

use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{Error, ErrorKind, Phase, Response, StatusCode};

use super::answers::{self, given_response};
use super::context::ActionContext;
use super::effect::{ActionEffect, PendingAction, action_failed, invalid_value};
use super::static_files::set_status;
use crate::action::Action;
use crate::compiled::program::CompiledRule;
use crate::config::OnFailure;
use crate::flow::verdict::RuleVerdict;
use crate::params::{OnMiss, ReplayParams, ScriptParams, final_status};
use crate::script::{self, ScriptOutcome, ScriptVerdict};
use crate::service::{ExternalService, ServiceDecision, ServiceMessageKind};

pub(super) fn apply(at: &mut ActionContext<'_>, action: &Action, rule: &CompiledRule) -> Option<ActionEffect> {
    Some(match action {
        Action::Replay(r) => answer_from_recording(at, r, rule),
        Action::Script(s) => prepare_script(at, s, rule),
        Action::Call(names) => {
            let name = names.0.first().map(String::as_str).unwrap_or_default();
            match at.program.services.get(name) {
                Some(service) => ActionEffect::Wait(PendingAction::Service(Arc::clone(service))),
                None => action_failed(
                    at,
                    rule,
                    Error::new(ErrorKind::StageFailed, format!("the service {name} does not run here")),
                ),
            }
        }
        _ => return None,
    })
}

/// Answers from a recording, or as configured if it does not contain the request.
fn answer_from_recording(at: &mut ActionContext<'_>, r: &ReplayParams, rule: &CompiledRule) -> ActionEffect {
    let answer = at.request().and_then(|request| r.answer(request, at.body.as_ref().map(|b| &b.bytes()[..])));
    match (answer, r.extra) {
        (Some(response), _) => {
            at.flow.tag("replayed");
            ActionEffect::End(RuleVerdict::Answer(Box::new(response)))
        }
        (None, OnMiss::Forward) => ActionEffect::Continue,
        (None, OnMiss::Status(status)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
            let text = format!("{status}: this request is not in the recording\n");
            ActionEffect::End(RuleVerdict::Answer(Box::new(Response::full(status, "text/plain; charset=utf-8", text))))
        }
        (None, OnMiss::Abort) => ActionEffect::End(answers::abort_verdict(rule)),
    }
}

/// Compiles the script, once for all flows, and takes the snapshot that it works on.
fn prepare_script(at: &mut ActionContext<'_>, s: &ScriptParams, rule: &CompiledRule) -> ActionEffect {
    match s.compile(&at.program.config) {
        Ok(compiled) => ActionEffect::Wait(PendingAction::Script(Box::new(script::ScriptRun::new(compiled, at)))),
        Err(e) => apply_script_outcome(at, rule, Err(e)),
    }
}

/// Applies the result of a script to the flow: changes, tags, variables, and its verdict. A failed script changes
/// nothing, and so does one whose answer or change cannot be sent.
pub(super) fn apply_script_outcome(
    at: &mut ActionContext<'_>,
    rule: &CompiledRule,
    ran: Result<ScriptOutcome, String>,
) -> ActionEffect {
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(e) => {
            let location = format!("{}:{}", rule.file, rule.line);
            tracing::warn!(flow = %at.flow.id, rule = rule.name, location, "the script failed: {e}");
            let error = Error::new(ErrorKind::StageFailed, format!("rule `{}`: the script failed: {e}", rule.name));
            return action_failed(at, rule, error);
        }
    };
    let end = match outcome.end {
        None => None,
        Some(ScriptVerdict::Drop) if at.phase == Phase::Message => Some(at.drop_message()),
        Some(ScriptVerdict::Drop) => Some(answers::abort_verdict(rule)),
        Some(ScriptVerdict::Deny(reason)) => {
            let text = reason.unwrap_or_else(|| format!("the script of rule `{}` refused it", rule.name));
            Some(RuleVerdict::Deny(Error::new(ErrorKind::Denied, text)))
        }
        Some(ScriptVerdict::Answer { status, headers, body }) => match given_response(status, &headers, body) {
            Ok(response) => Some(RuleVerdict::Answer(response)),
            Err(e) => return invalid_value(at, rule, "answer", "", e),
        },
    };
    if let Err(e) = outcome.changes.apply(at) {
        return invalid_value(at, rule, "change", "", e);
    }
    outcome.tags.into_iter().for_each(|t| at.flow.tag(t));
    for (name, value) in outcome.variables {
        at.state().set_variable(&name, value);
    }
    end.map_or(ActionEffect::Continue, ActionEffect::End)
}

/// Calls a service with the current message and applies its decision. The service has said in its handshake which
/// messages it wants.
pub(super) async fn call_service(
    at: &mut ActionContext<'_>,
    service: Arc<ExternalService>,
    rule: &CompiledRule,
) -> ActionEffect {
    let hello = match service.handshake().await {
        Ok(hello) => hello,
        Err(why) => return service_failed(at, &service, rule, &why),
    };
    let request = at.phase < Phase::ResponseHead;
    let kind = if request { ServiceMessageKind::Request } else { ServiceMessageKind::Response };
    let id = format!("{:032x}", u128::from_be_bytes(interflow_types::random_bytes::<16>()));
    // Chunks are sent while the body is relayed, after this phase.
    if !request && hello.wants_message(ServiceMessageKind::Chunk, &at.view()) {
        at.edits.chunks.push((Arc::clone(&service) as _, id.clone()));
    }
    if !hello.wants_message(kind, &at.view()) {
        return ActionEffect::Continue;
    }
    // A service that limits the size of bodies expects messages without one.
    if let Some(why) = at.unread.clone().filter(|_| hello.max_body == 0) {
        return service_failed(at, &service, rule, &format!("the body cannot be read: {why}"));
    }
    let Some(head) = at.request() else { return ActionEffect::Continue };
    let body = at.body.as_ref().map(|b| &b.text()[..]);
    let message = if request {
        hello.request_message(&id, at.flow, head, body)
    } else {
        let request_body =
            at.flow.extension::<crate::flow::flow_state::RuleState>().and_then(|s| s.request_body.clone());
        let Some(response) = at.response.as_deref() else { return ActionEffect::Continue };
        let request = (head, request_body.as_ref().map(|b| &b.text()[..]));
        hello.response_message(&id, at.flow, request, response, body)
    };
    match service.ask(&id, message).await {
        Err(why) => service_failed(at, &service, rule, &why),
        Ok(ServiceDecision::Pass) => ActionEffect::Continue,
        Ok(ServiceDecision::Deny { status, body }) => {
            at.flow.tag(format!("denied by {}", service.name));
            let status = status.unwrap_or(if request { 403 } else { 502 });
            let response = given_response(status, &[] as &[(String, String)], body.unwrap_or_default());
            ActionEffect::End(RuleVerdict::Answer(response.expect("only final statuses are read from a decision")))
        }
        Ok(ServiceDecision::Rewrite { status, headers, body }) => {
            at.flow.tag(format!("rewritten by {}", service.name));
            apply_rewrite(at, status, headers, body);
            ActionEffect::Continue
        }
    }
}

/// Applies a service's changes. A field that is not valid is dropped with a warning: the service's text must not
/// break the message.
fn apply_rewrite(
    at: &mut ActionContext<'_>,
    status: Option<u16>,
    headers: Vec<(String, Vec<String>)>,
    body: Option<Bytes>,
) {
    if let (Some(Ok(status)), Some(response)) = (status.map(final_status), at.response.as_deref_mut()) {
        set_status(response, status);
    }
    if let Some(fields) = at.head_mut() {
        for (name, values) in headers {
            fields.remove(&name);
            for value in values {
                if let Err(e) = fields.append(&name, value) {
                    tracing::warn!("a service set the field {name} to what none may be: {e}");
                }
            }
        }
    }
    if let Some(body) = body {
        at.set_body(body);
    }
}

/// The service is unavailable or timed out: its own `on_failure` decides, not that of the rules.
fn service_failed(
    at: &mut ActionContext<'_>,
    service: &ExternalService,
    rule: &CompiledRule,
    why: &str,
) -> ActionEffect {
    at.flow.tag("rule_failed");
    let passes = service.def.on_failure == OnFailure::Pass;
    let action = if passes { "allow" } else { "deny" };
    tracing::warn!(flow = %at.flow.id, rule = rule.name, "service {}: {why}; fallback action={action}", service.name);
    if passes {
        return ActionEffect::Continue;
    }
    let kind = if at.phase < Phase::ResponseHead { ErrorKind::Denied } else { ErrorKind::BadResponse };
    let why = format!("the service {} of rule `{}` failed: {why}", service.name, rule.name);
    ActionEffect::End(RuleVerdict::Deny(Error::new(kind, why)))
}
