//! The `hold` action: queues a flow and applies the decision.

use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{Body, Error, ErrorKind, Method, Phase, Response, ResponseHead, StatusCode};

use super::answers;
use super::context::ActionContext;
use super::effect::{ActionEffect, PendingAction, invalid_value};
use crate::body::content::BodyContent;
use crate::compiled::phase_names;
use crate::compiled::program::CompiledRule;
use crate::flow::external_changes::ExternalChanges;
use crate::flow::verdict::RuleVerdict;
use crate::params::HoldParams;
use crate::state::hold::{HeldFlow, HeldPart, HoldDecision};

/// Maximum part of a body presented to the operator, in bytes; a larger or binary one is not presented at all.
const MAX_SHOWN_BODY: usize = 256 << 10;

pub(super) fn hold(at: &mut ActionContext<'_>, h: &HoldParams, rule: &CompiledRule) -> ActionEffect {
    let note = h.note.as_ref().map(|n| at.render(n));
    let timeout = h.timeout.unwrap_or(at.program.config.hold_timeout).0;
    at.flow.tag("held");
    let body = match (&at.message, &at.body) {
        (Some(m), _) => Some(&m.payload),
        (None, body) => body.as_ref().map(BodyContent::text),
    };
    let body =
        body.filter(|b| b.len() <= MAX_SHOWN_BODY).and_then(|b| std::str::from_utf8(b).ok().map(ToOwned::to_owned));
    let held = {
        let view = at.view();
        let fields = view.head_of(at.side()).into_iter().flatten();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        HeldFlow {
            flow: at.flow.id.to_string(),
            rule: rule.name.clone(),
            phase: phase_names::name(at.phase),
            what: HeldPart::of_phase(at.phase),
            note,
            client: at.flow.client.peer.ip().to_canonical().to_string(),
            user: at.flow.user.as_deref().map(str::to_owned),
            process: at.flow.client.process.as_deref().map(|p| p.name.to_string()),
            continue_on_timeout: h.pass,
            method: view.request.map(|r| r.method.to_string()),
            url: view.url().to_owned(),
            status: view.response.map(|r| r.status.as_u16()),
            headers: fields.map(|(n, v)| (text(n), text(v))).collect(),
            body,
            // The queue sets the rest.
            ..HeldFlow::default()
        }
    };
    let waiting = Arc::clone(&at.program.runtime.holds).wait(held, timeout, at.program.config.max_held);
    ActionEffect::Wait(PendingAction::Decision(Box::pin(waiting), h.pass))
}

/// Applies the operator's decision; `None` means that there was none in time.
pub(super) fn apply_decision(
    at: &mut ActionContext<'_>,
    rule: &CompiledRule,
    decision: Option<HoldDecision>,
    pass: bool,
) -> ActionEffect {
    match decision {
        // During shutdown no decision can be made, so `pass` does not apply.
        None if at.program.runtime.holds.is_closed() => {
            let why = format!("rule `{}` held it when Interflow stopped; send it again", rule.name);
            ActionEffect::End(RuleVerdict::Deny(Error::new(ErrorKind::Draining, why)))
        }
        None if pass => ActionEffect::Continue,
        None => deny_effect(rule, "it was not decided in time"),
        Some(HoldDecision::Continue) => ActionEffect::Continue,
        Some(HoldDecision::Deny { reason }) => deny_effect(rule, reason.as_deref().unwrap_or("it was refused")),
        Some(HoldDecision::Drop) if at.phase == Phase::Message => ActionEffect::End(RuleVerdict::Drop),
        Some(HoldDecision::Drop) => ActionEffect::End(answers::abort_verdict(rule)),
        Some(HoldDecision::Answer { status, headers, body }) => match decision_response(status, &headers, body) {
            // A tunnel has no request yet that could be answered, so the answer is kept for it.
            Ok(response) if at.phase == Phase::Authority && at.flow.is_outside_tunnel() => {
                *at.state().answer.get_mut() = Some(Box::new(response));
                ActionEffect::Stop
            }
            Ok(response) => ActionEffect::End(RuleVerdict::Answer(Box::new(response))),
            Err(e) => invalid_value(at, rule, "answer", "", e),
        },
        Some(HoldDecision::Change { method, url, status, headers, body }) => {
            let changes = ExternalChanges {
                method,
                url,
                status,
                headers,
                body: body.map(Bytes::from),
                ..ExternalChanges::default()
            };
            match changes.apply(at) {
                Ok(()) => ActionEffect::Continue,
                Err(e) => invalid_value(at, rule, "change", "", e),
            }
        }
    }
}

fn deny_effect(rule: &CompiledRule, why: &str) -> ActionEffect {
    ActionEffect::End(RuleVerdict::Deny(Error::new(ErrorKind::Denied, format!("rule `{}` held it: {why}", rule.name))))
}

fn decision_response(status: u16, headers: &[(String, String)], body: String) -> Result<Response, String> {
    let status = StatusCode::from_u16(status).ok().filter(|s| s.as_u16() >= 200).ok_or("the status is none")?;
    let mut head = ResponseHead::new(status);
    for (name, value) in headers {
        head.headers.append(name, value).map_err(|e| e.to_string())?;
    }
    Ok(Response { head, body: Body::from(Bytes::from(body)) })
}

impl ExternalChanges {
    /// Applies changes made outside (operator, script, service) as far as the phase allows. An empty value removes a
    /// field.
    pub fn apply(self, at: &mut ActionContext<'_>) -> Result<(), String> {
        let request = at.phase < Phase::ResponseHead;
        if let (Some(method), true) = (&self.method, request) {
            let method = Method::from_bytes(method.as_bytes()).map_err(|e| e.to_string())?;
            if let Some(r) = at.request_mut() {
                r.method = method;
            }
        }
        if let (Some(url), true) = (&self.url, request) {
            let url = crate::text::url::parse_url(url)?;
            if let Some(r) = at.request_mut() {
                if url.authority != r.url.authority {
                    r.headers.set("Host", url.authority.to_host_header(url.scheme)).map_err(|e| e.to_string())?;
                }
                r.url = url;
            }
        }
        if let (Some(status), Some(response)) = (self.status, at.response.as_deref_mut()) {
            response.status = StatusCode::from_u16(status).map_err(|e| e.to_string())?;
            response.reason = response.status.canonical_reason().unwrap_or_default().into();
        }
        for (name, value) in &self.headers {
            let Some(fields) = at.head_mut() else { break };
            if value.is_empty() {
                fields.remove(name);
            } else {
                fields.set(name, value).map_err(|e| format!("{name}: {e}"))?;
            }
        }
        for (name, values) in &self.fields {
            let Some(fields) = at.head_mut() else { break };
            let Some((first, more)) = values.split_first() else {
                fields.remove(name);
                continue;
            };
            // The first value keeps the position and spelling of the field.
            fields.set(name, first).map_err(|e| format!("{name}: {e}"))?;
            for value in more {
                fields.append(name, value).map_err(|e| format!("{name}: {e}"))?;
            }
        }
        if let Some(body) = self.body {
            match at.message.as_deref_mut() {
                Some(message) => message.payload = body,
                None => at.set_body(body),
            }
        }
        Ok(())
    }
}
