//! Scripts, services and recordings: others that change, answer or deny.

use std::sync::Arc;

use bytes::Bytes;
use interflow_flow::{Body, Error, Kind, Phase, Response, ResponseHead, StatusCode, Verdict};

use super::{At, Effect, Waiting, answers, failed, unusable};
use crate::action::Action;
use crate::body::edit::Change;
use crate::config::OnFailure;
use crate::given::{Extra, Replay, Script};
use crate::program::{Program, Rule};
use crate::script::{self, End, Outcome};
use crate::service::{Ask, Decided, Service};

pub(super) fn act(at: &mut At<'_>, action: &Action, rule: &Rule, program: &Program) -> Effect {
    match action {
        Action::Replay(r) => replay(at, r, rule),
        Action::Script(s) => run(at, s, rule, program),
        Action::Call(names) => {
            let name = names.0.first().map(String::as_str).unwrap_or_default();
            match program.services.get(name) {
                Some(service) => Effect::Wait(Waiting::Service(Arc::clone(service))),
                None => failed(
                    program,
                    rule,
                    at.flow,
                    Error::new(Kind::StageFailed, format!("the service {name} does not run here")),
                ),
            }
        }
        _ => Effect::Go,
    }
}

fn replay(at: &mut At<'_>, r: &Replay, rule: &Rule) -> Effect {
    let answer = at.request().and_then(|request| r.answer(request, at.body.as_deref()));
    match (answer, r.extra) {
        (Some(response), _) => {
            at.flow.tag("replayed");
            Effect::End(Verdict::Answer(Box::new(response)))
        }
        (None, Extra::Forward) => Effect::Go,
        (None, Extra::Status(status)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
            let text = format!("{status}: this request is not in the recording\n");
            Effect::End(Verdict::Answer(Box::new(Response::full(status, "text/plain; charset=utf-8", text))))
        }
        (None, Extra::Abort) => Effect::End(answers::abort(rule)),
    }
}

fn run(at: &mut At<'_>, s: &Script, rule: &Rule, program: &Program) -> Effect {
    match s.ready(&program.config) {
        Ok(compiled) => Effect::Wait(Waiting::Script(Box::new(script::Run::new(compiled, at, program)))),
        Err(e) => ran(at, rule, program, Err(e)),
    }
}

/// Does what a script came to.
pub(super) fn ran(at: &mut At<'_>, rule: &Rule, program: &Program, ran: Result<Outcome, String>) -> Effect {
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(e) => {
            let place = format!("{}:{}", rule.file, rule.line);
            tracing::warn!(flow = %at.flow.id, rule = rule.name, place, "the script failed: {e}");
            let error = Error::new(Kind::StageFailed, format!("rule `{}`: the script failed: {e}", rule.name));
            return failed(program, rule, at.flow, error);
        }
    };
    outcome.tags.into_iter().for_each(|t| at.flow.tag(t));
    for (name, value) in outcome.variables {
        at.state().set(&name, value);
    }
    if let Err(e) = outcome.changes.apply(at) {
        return failed(program, rule, at.flow, unusable(rule, "change", "", e));
    }
    match outcome.end {
        None => Effect::Go,
        Some(End::Drop) if at.phase == Phase::Message => Effect::End(Verdict::Drop),
        Some(End::Drop) => Effect::End(answers::abort(rule)),
        Some(End::Deny(reason)) => {
            let text = reason.unwrap_or_else(|| format!("the script of rule `{}` refused it", rule.name));
            Effect::End(Verdict::Deny(Error::new(Kind::Denied, text)))
        }
        Some(End::Answer { status, headers, body }) => answer(at, rule, program, status, &headers, body),
    }
}

fn answer(
    at: &mut At<'_>,
    rule: &Rule,
    program: &Program,
    status: u16,
    headers: &[(String, Vec<u8>)],
    body: Bytes,
) -> Effect {
    let Some(status) = StatusCode::from_u16(status).ok().filter(|s| s.as_u16() >= 200) else {
        return failed(program, rule, at.flow, unusable(rule, "status", &status.to_string(), "it is none"));
    };
    let mut head = ResponseHead::new(status);
    for (name, value) in headers {
        if let Err(e) = head.headers.append(name, value) {
            return failed(program, rule, at.flow, unusable(rule, "field", name, e));
        }
    }
    Effect::End(Verdict::Answer(Box::new(Response { head, body: Body::from(body) })))
}

/// Asks a service about the message at hand, and does what it decides.
pub(super) async fn ask(at: &mut At<'_>, service: Arc<Service>, rule: &Rule, program: &Program) -> Effect {
    let hello = match service.hello().await {
        Ok(hello) => hello,
        Err(why) => return unanswered(at, &service, rule, &why),
    };
    let request = at.phase < Phase::ResponseHead;
    let kind = if request { Ask::Request } else { Ask::Response };
    let id = format!("{:032x}", u128::from_be_bytes(crate::template::random()));
    if !request && hello.wants(Ask::Chunk, &at.view(program)) {
        at.work.chunks.push((Arc::clone(&service), id.clone()));
    }
    if !hello.wants(kind, &at.view(program)) {
        return Effect::Go;
    }
    let Some(head) = at.request() else { return Effect::Go };
    let message = if request {
        crate::service::request(&hello, &id, at.flow, head, at.body.as_deref())
    } else {
        let asked = at.flow.note::<crate::state::RuleState>().and_then(|s| s.request_body.clone());
        let Some(response) = at.response.as_deref() else { return Effect::Go };
        crate::service::response(&hello, &id, at.flow, (head, asked.as_deref()), response, at.body.as_deref())
    };
    match service.ask(&id, message).await {
        Err(why) => unanswered(at, &service, rule, &why),
        Ok(Decided::Pass) => Effect::Go,
        Ok(Decided::Deny { status, body }) => {
            at.flow.tag(format!("denied by {}", service.name));
            let status = status.unwrap_or(if request { 403 } else { 502 });
            answer(at, rule, program, status, &[], body.unwrap_or_default())
        }
        Ok(Decided::Rewrite { status, headers, body }) => {
            at.flow.tag(format!("rewritten by {}", service.name));
            rewrite(at, status, headers, body);
            Effect::Go
        }
    }
}

fn rewrite(at: &mut At<'_>, status: Option<u16>, headers: Vec<(String, Vec<String>)>, body: Option<Bytes>) {
    if let (Some(status), Some(response)) =
        (status.and_then(|s| StatusCode::from_u16(s).ok()), at.response.as_deref_mut())
    {
        response.status = status;
        response.reason = status.canonical_reason().unwrap_or_default().into();
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
        at.body = Some(body.clone());
        at.work.changes.push(Change::Set(body));
    }
}

/// The service is not there, or too late: its own setting decides.
fn unanswered(at: &mut At<'_>, service: &Service, rule: &Rule, why: &str) -> Effect {
    at.flow.tag("rule_failed");
    let request = at.phase < Phase::ResponseHead;
    match service.def.on_failure {
        OnFailure::Pass => {
            tracing::warn!(flow = %at.flow.id, rule = rule.name, "service {}: {why}; fallback action=allow", service.name);
            Effect::Go
        }
        OnFailure::Deny => {
            tracing::warn!(flow = %at.flow.id, rule = rule.name, "service {}: {why}; fallback action=deny", service.name);
            let kind = if request { Kind::Denied } else { Kind::BadResponse };
            Effect::End(Verdict::Deny(Error::new(
                kind,
                format!("the service {} of rule `{}` failed: {why}", service.name, rule.name),
            )))
        }
    }
}
