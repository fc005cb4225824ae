//! Actions on bodies and messages.

use std::sync::Arc;

use bytes::Bytes;
use interflow_flow::{Direction, Error, Injected, Kind, Method, Phase, StatusCode, Verdict};

use super::{At, Effect, answers, failed};
use crate::action::Action;
use crate::body::edit::{Change, Part, apply_all};
use crate::body::{html, is_event_stream};
use crate::faults::{Fault, Throttle};
use crate::given::{Edit, HtmlTag, Inject, InjectText, JsonValue, Speed};
use crate::program::{Program, Rule};

pub(super) fn act(at: &mut At<'_>, action: &Action, rule: &Rule, program: &Program) -> Effect {
    match action {
        Action::EditRequestBody(edit) | Action::EditResponseBody(edit) => edit_body(at, edit, rule, program),
        Action::EditMessage(edit) => edit_message(at, edit, rule, program),
        Action::InjectMessage(inject) => inject_message(at, inject, program),
        Action::DropMessage(_) => Effect::End(Verdict::Drop),
        Action::InjectHtml(tag) => inject(at, tag, rule, program),
        Action::Throttle(speed) => throttle(at, speed),
        Action::TruncateResponse(s) => fault(at, Fault::Truncate(s.after.0)),
        Action::ResetResponse(s) | Action::ResetRequest(s) => fault(at, Fault::Reset(s.after.0)),
        Action::CorruptResponse(s) => fault(at, Fault::Corrupt(s.after.0)),
        Action::SaveResponseBody(t) => {
            let path = at.fill(program, t).into();
            at.work.save.push(path);
            Effect::Go
        }
        _ => Effect::Go,
    }
}

/// An edit with its variables filled in.
pub(crate) fn change(at: &At<'_>, edit: &Edit, program: &Program) -> Result<Change, Error> {
    let view = at.view(program);
    Ok(match edit {
        Edit::Find(find, with) => {
            let (find, with) = (find.fill_from(&view).into_owned(), with.fill_from(&view).into_owned());
            if find.is_empty() {
                return Err(Error::new(Kind::StageFailed, "a rule looks for a text that turned out empty"));
            }
            Change::Find(find.into(), with.into())
        }
        Edit::Regex(regex, with) => {
            let mut parts = Vec::new();
            with.0.frozen(&view, &mut |text, group| {
                parts.push(match group {
                    Some(group) => Part::Group(group.to_owned()),
                    None => Part::Text(Bytes::from(text)),
                });
            });
            Change::Regex(regex.clone(), parts)
        }
        Edit::Set(t) => Change::Set(t.fill_from(&view).into_owned().into()),
        Edit::File(t) => Change::Set(answers::read_file(std::path::Path::new(&*t.fill_from(&view)))?),
        Edit::JsonSet(sets) => {
            let one = |(path, value): &(crate::json::Path, JsonValue)| {
                let value = match value {
                    JsonValue::Plain(v) => v.clone(),
                    JsonValue::Filled(t) => t.fill_from(&view).into_owned().into(),
                };
                (path.clone(), value)
            };
            Change::JsonSet(sets.iter().map(one).collect())
        }
        Edit::JsonRemove(paths) => Change::JsonRemove(paths.clone()),
        Edit::JsonPatch(patch) => Change::JsonPatch(patch.clone()),
    })
}

fn edit_body(at: &mut At<'_>, edit: &Edit, rule: &Rule, program: &Program) -> Effect {
    if is_bodiless(at) {
        return Effect::Go;
    }
    match change(at, edit, program) {
        Ok(change) => {
            at.work.changes.push(change);
            at.work.by.push(rule.name.clone());
            Effect::Go
        }
        Err(e) => failed(program, rule, at.flow, e),
    }
}

/// Whether the response has no body by its nature (RFC 9110 6.4.1), or is a part of one (15.3.7), which no change fits.
fn is_bodiless(at: &At<'_>) -> bool {
    let head = at.request().is_some_and(|r| r.method == Method::HEAD);
    at.phase == Phase::ResponseBody
        && at.response.as_ref().is_some_and(|r| {
            head || matches!(r.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT)
        })
}

fn edit_message(at: &mut At<'_>, edit: &Edit, rule: &Rule, program: &Program) -> Effect {
    let changed = change(at, edit, program).and_then(|change| match &at.message {
        Some(m) => apply_all(&[change], &m.payload),
        None => Ok(None),
    });
    match (changed, at.message.as_deref_mut()) {
        (Ok(Some(new)), Some(message)) => {
            message.payload = new;
            Effect::Go
        }
        (Ok(_), _) => Effect::Go,
        // A message that is no JSON is none that the rule is about.
        (Err(_), _) if matches!(edit, Edit::JsonSet(_) | Edit::JsonRemove(_)) => Effect::Go,
        (Err(e), _) => failed(program, rule, at.flow, e),
    }
}

fn inject_message(at: &mut At<'_>, inject: &Inject, program: &Program) -> Effect {
    let payload = match &inject.text {
        InjectText::Text(text) => Bytes::from(at.fill(program, text)),
        InjectText::Bytes(bytes) => bytes.clone(),
    };
    let injected = at.flow.note_mut::<Injected>();
    let list = if inject.back { &mut injected.back } else { &mut injected.onward };
    list.push(payload);
    Effect::Go
}

fn inject(at: &mut At<'_>, tag: &HtmlTag, rule: &Rule, program: &Program) -> Effect {
    let media =
        at.response.as_ref().and_then(|r| r.headers.get_str("content-type")).unwrap_or_default().to_ascii_lowercase();
    let streams = at.response.as_ref().is_some_and(|r| is_event_stream(&r.headers));
    if is_bodiless(at)
        || streams
        || (tag.only_html && !media.starts_with("text/html") && !media.starts_with("application/xhtml"))
    {
        return Effect::Go;
    }
    let html = match answers::load(at, &tag.html, program) {
        Ok(html) => html,
        Err(e) => return failed(program, rule, at.flow, e),
    };
    let foreign = media.split_once("charset=").is_some_and(|(_, c)| !c.trim_matches(['"', ' ']).starts_with("utf-8"));
    let html = if foreign { html::ascii(&String::from_utf8_lossy(&html)).into() } else { html };
    at.work.changes.push(Change::Html(tag.tag.as_str().into(), html));
    Effect::Go
}

fn throttle(at: &mut At<'_>, speed: &Speed) -> Effect {
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
    Effect::Go
}

fn fault(at: &mut At<'_>, fault: Fault) -> Effect {
    at.work.faults.push(fault);
    // A length that was announced would not be kept.
    if let (Fault::Truncate(_), Some(response)) = (fault, at.response.as_deref_mut()) {
        response.headers.remove("content-length");
    }
    Effect::Go
}
