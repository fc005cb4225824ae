//! The templates in the parameters of actions.

use crate::action::Action;
use crate::params::{AnswerBody, CaptureSource, EditParams, InjectText, JsonTemplate};
use crate::text::template::TextTemplate;

/// Visits every template of an action, to find the variables and the phases it needs. New templates must be added
/// here.
pub(crate) fn visit_templates<'a>(action: &'a Action, see: &mut dyn FnMut(&'a TextTemplate)) {
    let mut pairs = |pairs: &'a [(TextTemplate, TextTemplate)]| {
        for (a, b) in pairs {
            see(a);
            see(b);
        }
    };
    match action {
        Action::AddRequestHeader(p)
        | Action::SetRequestHeader(p)
        | Action::UpdateRequestHeader(p)
        | Action::SetQuery(p)
        | Action::SetRequestCookie(p)
        | Action::AddResponseHeader(p)
        | Action::SetResponseHeader(p)
        | Action::UpdateResponseHeader(p) => pairs(&p.0),
        Action::RemoveRequestHeader(n)
        | Action::RemoveQuery(n)
        | Action::RemoveRequestCookie(n)
        | Action::RemoveResponseHeader(n)
        | Action::RemoveResponseCookie(n) => n.0.iter().for_each(see),
        Action::ReplaceRequestHeader(r) | Action::ReplaceResponseHeader(r) => {
            see(&r.name);
            see(&r.with.0);
        }
        Action::SetMethod(t)
        | Action::SetPath(t)
        | Action::SetUrl(t)
        | Action::BearerToken(t)
        | Action::SetStatus(t)
        | Action::SaveResponseBody(t)
        | Action::Tag(t)
        | Action::Comment(t)
        | Action::Print(t)
        | Action::PrintError(t) => see(t),
        Action::BasicAuth(b) => [&b.user, &b.password].into_iter().for_each(see),
        Action::MapRemote(r) => see(&r.to.0),
        Action::MapLocal(l) => see(&l.path.0),
        Action::Redirect(r) => see(&r.to),
        Action::UpstreamProxy(b) => b.via.iter().for_each(see),
        Action::ConnectTo(s) => see(&s.to),
        Action::Answer(a) => {
            pairs(&a.headers);
            a.content_type.iter().for_each(&mut *see);
            body_template(&a.body).into_iter().for_each(see);
        }
        Action::Block(b) => b.message.iter().chain(&b.content_type).for_each(see),
        Action::SetResponseCookie(c) => {
            [Some(&c.name), Some(&c.value), c.path.as_ref(), c.domain.as_ref()].into_iter().flatten().for_each(see);
        }
        Action::EditRequestBody(e) | Action::EditResponseBody(e) | Action::EditMessage(e) => match e {
            EditParams::Find(a, b) => [a, b].into_iter().for_each(see),
            EditParams::Regex(_, with) => see(&with.0),
            EditParams::Set(t) | EditParams::File(t) => see(t),
            EditParams::JsonSet(sets) => sets.iter().for_each(|(_, v)| {
                if let JsonTemplate::Filled(t) = v {
                    see(t);
                }
            }),
            EditParams::JsonRemove(_) | EditParams::JsonPatch(_) => {}
        },
        Action::InjectMessage(i) => {
            if let InjectText::Text(t) = &i.text {
                see(t);
            }
        }
        Action::InjectHtml(h) => body_template(&h.html).into_iter().for_each(see),
        Action::SetVariable(v) => v.0.iter().for_each(|(_, t)| see(t)),
        Action::Capture(c) => {
            if let CaptureSource::Text(t) = &c.source {
                see(t);
            }
        }
        Action::Log(l) => see(&l.text),
        Action::AppendFile(a) => [&a.file, &a.text].into_iter().for_each(see),
        Action::Hold(h) => h.note.iter().for_each(see),
        Action::ApplySession(s) | Action::ClearSession(s) => s.domain.iter().for_each(see),
        _ => {}
    }
}

fn body_template(body: &AnswerBody) -> Option<&TextTemplate> {
    match body {
        AnswerBody::Text(t) | AnswerBody::File(t) => Some(t),
        AnswerBody::Bytes(_) => None,
    }
}
