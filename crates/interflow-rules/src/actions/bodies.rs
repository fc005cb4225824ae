//! Actions on bodies and messages. Edits of bodies are collected here, and applied when all rules of the phase have
//! run.

use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{Direction, Error, ErrorKind, InjectedMessages, Method, Phase, StatusCode};

use super::answers::{self, BodySource};
use super::context::ActionContext;
use super::effect::{ActionEffect, action_failed};
use crate::action::Action;
use crate::body::edit::{BodyChange, ReplacementPart, apply_all};
use crate::body::fault_injection::{BodyFault, Throttle};
use crate::body::{html, is_event_stream, strip_body_headers};
use crate::compiled::program::CompiledRule;
use crate::disk::FileOutcome;
use crate::params::{EditParams, InjectHtmlParams, InjectParams, InjectText, JsonTemplate, ThrottleParams};

pub(super) fn apply(at: &mut ActionContext<'_>, action: &Action, rule: &CompiledRule) -> Option<ActionEffect> {
    Some(match action {
        Action::EditRequestBody(edit) | Action::EditResponseBody(edit) => edit_body(at, edit, rule),
        Action::EditMessage(edit) => edit_message(at, edit, rule),
        Action::InjectMessage(inject) => inject_message(at, inject),
        Action::DropMessage(_) => ActionEffect::End(at.drop_message()),
        Action::InjectHtml(tag) => inject_html(at, tag, rule),
        Action::Throttle(speed) => add_throttle(at, speed),
        Action::TruncateResponse(s) => add_fault(at, BodyFault::Truncate(s.after.0)),
        Action::ResetResponse(s) | Action::ResetRequest(s) => add_fault(at, BodyFault::Reset(s.after.0)),
        Action::CorruptResponse(s) => add_fault(at, BodyFault::Corrupt(s.after.0)),
        Action::SaveResponseBody(t) => {
            match at.render_path(t) {
                Ok(path) => at.edits.save.push((path.into(), at.program.runtime.private_files.clone())),
                Err(e) => return Some(action_failed(at, rule, e)),
            }
            ActionEffect::Continue
        }
        _ => return None,
    })
}

/// Renders the templates of an edit with the flow as it is now.
pub(crate) fn render_edit(at: &ActionContext<'_>, edit: &EditParams) -> Result<BodyChange, Error> {
    let view = at.view();
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
        // Read by the action that uses it, because it has to be waited for.
        EditParams::File(_) => return Err(Error::new(ErrorKind::StageFailed, "a rule's file was not read")),
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

fn edit_body(at: &mut ActionContext<'_>, edit: &EditParams, rule: &CompiledRule) -> ActionEffect {
    if has_no_body(at) {
        forget_length(at);
        return ActionEffect::Continue;
    }
    let is_part = at.response.as_ref().is_some_and(|r| r.status == StatusCode::PARTIAL_CONTENT);
    // A whole body does not replace a part of one. Other edits fail: they might miss what they are for.
    if at.phase == Phase::ResponseBody && is_part && matches!(edit, EditParams::Set(_) | EditParams::File(_)) {
        return ActionEffect::Continue;
    }
    if let EditParams::File(path) = edit {
        let path = at.render_path(path);
        return answers::after_reading(at, rule, path, |text| FileOutcome::Body(BodyChange::Set(text)));
    }
    match render_edit(at, edit) {
        Ok(change) => add_change(at, change, rule),
        Err(e) => action_failed(at, rule, e),
    }
}

/// Adds a change to those that are applied when all rules of the phase have run.
pub(super) fn add_change(at: &mut ActionContext<'_>, change: BodyChange, rule: &CompiledRule) -> ActionEffect {
    at.edits.changes.push(change);
    at.edits.by.push(rule.name.clone());
    ActionEffect::Continue
}

/// Whether the response has no body by definition (RFC 9110 6.4.1).
fn has_no_body(at: &ActionContext<'_>) -> bool {
    let head = at.request().is_some_and(|r| r.method == Method::HEAD);
    at.phase == Phase::ResponseBody
        && at
            .response
            .as_ref()
            .is_some_and(|r| head || matches!(r.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED))
}

/// To a response without its body: the length and digests that the origin announced are not those of the edited body.
fn forget_length(at: &mut ActionContext<'_>) {
    if let Some(response) = at.response.as_deref_mut().filter(|r| r.status != StatusCode::PARTIAL_CONTENT) {
        strip_body_headers(&mut response.headers, false);
    }
}

fn edit_message(at: &mut ActionContext<'_>, edit: &EditParams, rule: &CompiledRule) -> ActionEffect {
    if let EditParams::File(path) = edit {
        let path = at.render_path(path);
        return answers::after_reading(at, rule, path, |text| FileOutcome::Message(BodyChange::Set(text)));
    }
    // JSON edits skip messages that are not JSON.
    let skips = matches!(edit, EditParams::JsonSet(_) | EditParams::JsonRemove(_));
    match render_edit(at, edit) {
        Ok(change) => change_message(at, &change, skips, rule),
        Err(_) if skips => ActionEffect::Continue,
        Err(e) => action_failed(at, rule, e),
    }
}

/// Applies a change to the message. `skips`: a message that it does not fit stays as it is.
pub(super) fn change_message(
    at: &mut ActionContext<'_>,
    change: &BodyChange,
    skips: bool,
    rule: &CompiledRule,
) -> ActionEffect {
    let Some(message) = at.message.as_deref_mut() else { return ActionEffect::Continue };
    match apply_all(std::slice::from_ref(change), &message.payload) {
        Ok(new) => {
            if let Some(new) = new {
                message.payload = new;
                at.flow.tag("edited");
            }
            ActionEffect::Continue
        }
        Err(_) if skips => ActionEffect::Continue,
        Err(e) => action_failed(at, rule, e),
    }
}

fn inject_message(at: &mut ActionContext<'_>, inject: &InjectParams) -> ActionEffect {
    let payload = match &inject.text {
        InjectText::Text(text) => Bytes::from(at.render(text)),
        InjectText::Bytes(bytes) => bytes.clone(),
    };
    let injected = at.flow.extension_mut::<InjectedMessages>();
    let list = if inject.back { &mut injected.reply } else { &mut injected.forward };
    list.push(payload);
    at.flow.tag("edited");
    ActionEffect::Continue
}

fn inject_html(at: &mut ActionContext<'_>, tag: &InjectHtmlParams, rule: &CompiledRule) -> ActionEffect {
    let media =
        at.response.as_ref().and_then(|r| r.headers.get_str("content-type")).unwrap_or_default().to_ascii_lowercase();
    let streams = at.response.as_ref().is_some_and(|r| is_event_stream(&r.headers));
    if streams || (tag.only_html && !media.starts_with("text/html") && !media.starts_with("application/xhtml")) {
        return ActionEffect::Continue;
    }
    if has_no_body(at) {
        forget_length(at);
        return ActionEffect::Continue;
    }
    let foreign = media.split_once("charset=").is_some_and(|(_, c)| !c.trim_matches(['"', ' ']).starts_with("utf-8"));
    let name = tag.tag.clone();
    let change = move |html: Bytes| {
        // Bytes of UTF-8 would be misread in a page with another charset.
        let html = if foreign { html::escape_non_ascii(&String::from_utf8_lossy(&html)).into() } else { html };
        BodyChange::Html(name.as_str().into(), html)
    };
    match answers::body_source(at, &tag.html) {
        BodySource::Ready(html) => add_change(at, change(html), rule),
        BodySource::File(path) => answers::after_reading(at, rule, path, move |html| FileOutcome::Body(change(html))),
    }
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
