//! Actions on bodies and messages. Edits of bodies are collected here, and applied when all rules of the phase have
//! run.

use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{Direction, Error, ErrorKind, InjectedMessages, Method, Phase, StatusCode};

use super::answers;
use super::context::ActionContext;
use super::effect::{ActionEffect, action_failed};
use crate::action::Action;
use crate::body::edit::{BodyChange, ReplacementPart, apply_all};
use crate::body::fault_injection::{BodyFault, Throttle};
use crate::body::{html, is_event_stream};
use crate::compiled::program::{CompiledRule, RuleProgram};
use crate::flow::verdict::RuleVerdict;
use crate::params::{EditParams, InjectHtmlParams, InjectParams, InjectText, JsonTemplate, ThrottleParams};

pub(super) fn apply(
    at: &mut ActionContext<'_>,
    action: &Action,
    rule: &CompiledRule,
    program: &RuleProgram,
) -> ActionEffect {
    match action {
        Action::EditRequestBody(edit) | Action::EditResponseBody(edit) => edit_body(at, edit, rule, program),
        Action::EditMessage(edit) => edit_message(at, edit, rule, program),
        Action::InjectMessage(inject) => inject_message(at, inject, program),
        Action::DropMessage(_) => ActionEffect::End(RuleVerdict::Drop),
        Action::InjectHtml(tag) => inject_html(at, tag, rule, program),
        Action::Throttle(speed) => add_throttle(at, speed),
        Action::TruncateResponse(s) => add_fault(at, BodyFault::Truncate(s.after.0)),
        Action::ResetResponse(s) | Action::ResetRequest(s) => add_fault(at, BodyFault::Reset(s.after.0)),
        Action::CorruptResponse(s) => add_fault(at, BodyFault::Corrupt(s.after.0)),
        Action::SaveResponseBody(t) => {
            let path = at.render(program, t).into();
            at.edits.save.push(path);
            ActionEffect::Continue
        }
        _ => ActionEffect::Continue,
    }
}

/// Renders the templates of an edit with the flow as it is now.
pub(crate) fn render_edit(
    at: &ActionContext<'_>,
    edit: &EditParams,
    program: &RuleProgram,
) -> Result<BodyChange, Error> {
    let view = at.view(program);
    Ok(match edit {
        EditParams::Find(find, with) => {
            let (find, with) = (find.render_view(&view).into_owned(), with.render_view(&view).into_owned());
            // An empty text would match everywhere.
            if find.is_empty() {
                return Err(Error::new(ErrorKind::StageFailed, "a rule looks for a text that turned out empty"));
            }
            BodyChange::Find(find.into(), with.into())
        }
        EditParams::Regex(regex, with) => {
            let mut parts = Vec::new();
            with.0.render_parts(&view, &mut |text, group| {
                parts.push(match group {
                    Some(group) => ReplacementPart::Group(group.to_owned()),
                    None => ReplacementPart::Text(Bytes::from(text)),
                });
            });
            BodyChange::Regex(regex.clone(), parts)
        }
        EditParams::Set(t) => BodyChange::Set(t.render_view(&view).into_owned().into()),
        EditParams::File(t) => BodyChange::Set(answers::read_file(std::path::Path::new(&*t.render_view(&view)))?),
        EditParams::JsonSet(sets) => {
            let one = |(path, value): &(crate::text::json::JsonPath, JsonTemplate)| {
                let value = match value {
                    JsonTemplate::Plain(v) => v.clone(),
                    JsonTemplate::Filled(t) => t.render_view(&view).into_owned().into(),
                };
                (path.clone(), value)
            };
            BodyChange::JsonSet(sets.iter().map(one).collect())
        }
        EditParams::JsonRemove(paths) => BodyChange::JsonRemove(paths.clone()),
        EditParams::JsonPatch(patch) => BodyChange::JsonPatch(patch.clone()),
    })
}

fn edit_body(
    at: &mut ActionContext<'_>,
    edit: &EditParams,
    rule: &CompiledRule,
    program: &RuleProgram,
) -> ActionEffect {
    if has_no_body(at) {
        return ActionEffect::Continue;
    }
    match render_edit(at, edit, program) {
        Ok(change) => {
            at.edits.changes.push(change);
            at.edits.by.push(rule.name.clone());
            ActionEffect::Continue
        }
        Err(e) => action_failed(program, rule, at.flow, e),
    }
}

/// Whether the response has no body by definition (RFC 9110 6.4.1), or is a range (15.3.7), which cannot be edited.
fn has_no_body(at: &ActionContext<'_>) -> bool {
    let head = at.request().is_some_and(|r| r.method == Method::HEAD);
    at.phase == Phase::ResponseBody
        && at.response.as_ref().is_some_and(|r| {
            head || matches!(r.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT)
        })
}

fn edit_message(
    at: &mut ActionContext<'_>,
    edit: &EditParams,
    rule: &CompiledRule,
    program: &RuleProgram,
) -> ActionEffect {
    let changed = render_edit(at, edit, program).and_then(|change| match &at.message {
        Some(m) => apply_all(&[change], &m.payload),
        None => Ok(None),
    });
    match (changed, at.message.as_deref_mut()) {
        (Ok(Some(new)), Some(message)) => {
            message.payload = new;
            ActionEffect::Continue
        }
        (Ok(_), _) => ActionEffect::Continue,
        // JSON edits skip messages that are not JSON.
        (Err(_), _) if matches!(edit, EditParams::JsonSet(_) | EditParams::JsonRemove(_)) => ActionEffect::Continue,
        (Err(e), _) => action_failed(program, rule, at.flow, e),
    }
}

fn inject_message(at: &mut ActionContext<'_>, inject: &InjectParams, program: &RuleProgram) -> ActionEffect {
    let payload = match &inject.text {
        InjectText::Text(text) => Bytes::from(at.render(program, text)),
        InjectText::Bytes(bytes) => bytes.clone(),
    };
    let injected = at.flow.extension_mut::<InjectedMessages>();
    let list = if inject.back { &mut injected.reply } else { &mut injected.forward };
    list.push(payload);
    ActionEffect::Continue
}

fn inject_html(
    at: &mut ActionContext<'_>,
    tag: &InjectHtmlParams,
    rule: &CompiledRule,
    program: &RuleProgram,
) -> ActionEffect {
    let media =
        at.response.as_ref().and_then(|r| r.headers.get_str("content-type")).unwrap_or_default().to_ascii_lowercase();
    let streams = at.response.as_ref().is_some_and(|r| is_event_stream(&r.headers));
    if has_no_body(at)
        || streams
        || (tag.only_html && !media.starts_with("text/html") && !media.starts_with("application/xhtml"))
    {
        return ActionEffect::Continue;
    }
    let html = match answers::load_body(at, &tag.html, program) {
        Ok(html) => html,
        Err(e) => return action_failed(program, rule, at.flow, e),
    };
    let foreign = media.split_once("charset=").is_some_and(|(_, c)| !c.trim_matches(['"', ' ']).starts_with("utf-8"));
    // Bytes of UTF-8 would be misread in a page with another charset.
    let html = if foreign { html::escape_non_ascii(&String::from_utf8_lossy(&html)).into() } else { html };
    at.edits.changes.push(BodyChange::Html(tag.tag.as_str().into(), html));
    ActionEffect::Continue
}

/// Limits the speed of each direction; a later rule replaces an earlier one.
fn add_throttle(at: &mut ActionContext<'_>, speed: &ThrottleParams) -> ActionEffect {
    let cap = |side: Direction| {
        let rate = if side == Direction::Request { speed.request } else { speed.response }?;
        let budget = speed.shared.as_ref().map_or_else(Arc::default, |s| Arc::clone(&s[side as usize]));
        Some(Arc::new(Throttle::new(rate.0, budget)))
    };
    let caps = [cap(Direction::Request), cap(Direction::Response)];
    let state = at.state();
    for (slot, cap) in state.throttle.iter_mut().zip(caps) {
        if cap.is_some() {
            *slot = cap;
        }
    }
    ActionEffect::Continue
}

fn add_fault(at: &mut ActionContext<'_>, fault: BodyFault) -> ActionEffect {
    at.edits.faults.push(fault);
    // An announced length would no longer be true.
    if let (BodyFault::Truncate(_), Some(response)) = (fault, at.response.as_deref_mut()) {
        response.headers.remove("content-length");
    }
    ActionEffect::Continue
}
