//! The `hold` action: queues a flow and applies the decision.

use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{Error, ErrorKind, Phase};

use super::answers::{self, given_response};
use super::context::ActionContext;
use super::effect::{ActionEffect, PendingAction, invalid_value};
use super::static_files::set_status;
use crate::body::content::BodyContent;
use crate::compiled::phase_names;
use crate::compiled::program::CompiledRule;
use crate::flow::external_changes::ExternalChanges;
use crate::flow::verdict::RuleVerdict;
use crate::params::{HoldParams, final_status, request_method};
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
        Some(HoldDecision::Drop) if at.phase == Phase::Message => ActionEffect::End(at.drop_message()),
        Some(HoldDecision::Drop) => ActionEffect::End(answers::abort_verdict(rule)),
        Some(HoldDecision::Answer { status, headers, body }) => match given_response(status, &headers, body.into()) {
            // A tunnel has no request yet that could be answered, so the answer is kept for it.
            Ok(response) if at.phase == Phase::Authority && at.flow.is_outside_tunnel() => {
                *at.state().answer.get_mut() = Some(response);
                ActionEffect::Stop
            }
            Ok(response) => ActionEffect::End(RuleVerdict::Answer(response)),
            Err(e) => invalid_value(at, rule, "answer", "", e),
        },
        Some(HoldDecision::Change { method, url, status, headers, body }) => {
            // An empty value removes the field.
            let values = |value: String| if value.is_empty() { Vec::new() } else { vec![value.into_bytes()] };
            let fields = headers.into_iter().map(|(name, value)| (name, values(value))).collect();
            let changes = ExternalChanges { method, url, status, fields, body: body.map(Bytes::from) };
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

impl ExternalChanges {
    /// Applies changes made outside (operator, script) as far as the phase allows, all of them or none.
    pub fn apply(self, at: &mut ActionContext<'_>) -> Result<(), String> {
        // On copies, since a change may turn out to be invalid after others were made.
        let mut request = if at.phase < Phase::ResponseHead { at.request_mut().cloned() } else { None };
        let mut response = at.response.as_deref().cloned();
        if let Some(r) = &mut request {
            if let Some(method) = self.method.filter(|m| m != r.method.as_str()) {
                r.method = request_method(&method)?;
            }
            if let Some(url) = &self.url {
                let url = crate::text::url::parse_url(url)?;
                if url.authority != r.url.authority {
                    r.headers.set("Host", url.authority.to_host_header(url.scheme)).map_err(|e| e.to_string())?;
                }
                r.url = url;
            }
        }
        if let (Some(status), Some(response)) = (self.status, &mut response) {
            set_status(response, final_status(status)?);
        }
        let fields = request.as_mut().map(|r| &mut r.headers).or(response.as_mut().map(|r| &mut r.headers));
        if let Some(fields) = fields {
            for (name, values) in &self.fields {
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
        }
        if let (Some(new), Some(r)) = (request, at.request_mut()) {
            *r = new;
        }
        if let (Some(new), Some(r)) = (response, at.response.as_deref_mut()) {
            *r = new;
        }
        if let Some(body) = self.body {
            if let Some(message) = at.message.as_deref_mut() {
                message.payload = body;
                at.flow.tag("edited");
            } else {
                at.set_body(body);
            }
        }
        Ok(())
    }
}
