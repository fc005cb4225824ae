//! Actions that respond in the origin's place or reject the flow.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use interflow_types::{Body, Error, ErrorKind, Method, Response, ResponseHead, StatusCode, media_type};

use super::context::ActionContext;
use super::effect::{ActionEffect, PendingAction, action_failed, invalid_value, invalid_value_error};
use crate::action::Action;
use crate::actions::static_files::{self, FileConditions};
use crate::compiled::program::CompiledRule;
use crate::disk::{self, FileOutcome};
use crate::files::private_files::PrivateFiles;
use crate::flow::render::RenderContext;
use crate::flow::verdict::RuleVerdict;
use crate::params::{AnswerBody, AnswerParams, BlockParams, MapLocalParams, RegexParam, final_status};
use crate::text::template::TextTemplate;

pub(super) fn apply(at: &mut ActionContext<'_>, action: &Action, rule: &CompiledRule) -> Option<ActionEffect> {
    Some(match action {
        Action::Answer(a) => match answer_head(at, a, rule) {
            Ok(head) => match body_source(at, &a.body) {
                BodySource::Ready(body) => {
                    ActionEffect::End(RuleVerdict::Answer(Box::new(Response { head, body: Body::from(body) })))
                }
                BodySource::File(path) => after_reading(at, rule, path, |body| {
                    FileOutcome::Response(Box::new(Response { head, body: Body::from(body) }))
                }),
            },
            Err(e) => action_failed(at, rule, e),
        },
        Action::Block(b) => ActionEffect::End(block_verdict(at, b, rule)),
        Action::Redirect(r) => {
            let to = at.render(&r.to);
            let mut head = response_head(r.status);
            match head.headers.append("Location", &to) {
                Ok(()) => ActionEffect::End(RuleVerdict::Answer(Box::new(Response { head, body: Body::Empty }))),
                Err(e) => invalid_value(at, rule, "URL", &to, e),
            }
        }
        Action::MapLocal(l) => map_local(at, l),
        Action::ServeCa(_) => match &at.program.runtime.ca {
            Some(pem) => {
                let mut response = Response::full(StatusCode::OK, "application/x-x509-ca-cert", pem.clone());
                response.head.headers.append_unchecked(b"Content-Disposition", b"attachment; filename=\"ca.crt\"");
                ActionEffect::End(RuleVerdict::Answer(Box::new(response)))
            }
            None => action_failed(at, rule, Error::new(ErrorKind::StageFailed, "there is no certificate to serve")),
        },
        _ => return None,
    })
}

/// The verdict that closes the connection without a response.
pub(super) fn abort_verdict(rule: &CompiledRule) -> RuleVerdict {
    RuleVerdict::Deny(Error::new(ErrorKind::Dropped, format!("rule `{}` closed the connection", rule.name)))
}

fn response_head(status: u16) -> ResponseHead {
    ResponseHead::new(StatusCode::from_u16(status).expect("statuses are checked when rules are read"))
}

/// The response that a person, a script or a service gave.
///
/// # Errors
/// The status is not a final one, or a field cannot be sent.
pub(super) fn given_response(
    status: u16,
    headers: &[(String, impl AsRef<[u8]>)],
    body: Bytes,
) -> Result<Box<Response>, String> {
    let mut head = ResponseHead::new(final_status(status)?);
    for (name, value) in headers {
        head.headers.append(name, value).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(Box::new(Response { head, body: Body::from(body) }))
}

/// The response for a blocked request. Status 444 closes the connection, as in nginx.
fn block_verdict(at: &ActionContext<'_>, b: &BlockParams, rule: &CompiledRule) -> RuleVerdict {
    if b.status == 444 {
        return abort_verdict(rule);
    }
    let message = b.message.as_ref().map(|m| at.render(m));
    // Before the request is known, only an error can be returned.
    if at.request().is_none() || (b.status == 403 && message.is_none()) {
        let text = message.unwrap_or_else(|| format!("rule `{}` forbids it", rule.name));
        return RuleVerdict::Deny(Error::new(ErrorKind::Denied, text));
    }
    let mut head = response_head(b.status);
    let reason = head.status.canonical_reason().unwrap_or("Refused");
    let text = message.unwrap_or_else(|| reason.to_owned());
    let media = b.content_type.as_ref().map_or_else(|| "text/plain; charset=utf-8".to_owned(), |t| at.render(t));
    let _ = head.headers.append("Content-Type", media);
    RuleVerdict::Answer(Box::new(Response { head, body: Body::from(Bytes::from(text)) }))
}

fn answer_head(at: &ActionContext<'_>, a: &AnswerParams, rule: &CompiledRule) -> Result<ResponseHead, Error> {
    let mut head = response_head(a.status);
    if let Some(t) = &a.content_type {
        let value = at.render(t);
        head.headers.set("Content-Type", &value).map_err(|e| invalid_value_error(rule, "media type", &value, e))?;
    }
    for (name, value) in &a.headers {
        let (name, value) = (at.render(name), at.render(value));
        // An explicit `content-type` field overrides the one derived from the body.
        let own = name.eq_ignore_ascii_case("content-type");
        let put = if own { head.headers.set(&name, value) } else { head.headers.append(&name, value) };
        put.map_err(|e| invalid_value_error(rule, "field", &name, e))?;
    }
    Ok(head)
}

/// Where the body of a local response comes from.
pub(super) enum BodySource {
    Ready(Bytes),
    /// Read for each response, so it may change.
    File(Result<String, Error>),
}

pub(super) fn body_source(at: &ActionContext<'_>, body: &AnswerBody) -> BodySource {
    match body {
        AnswerBody::Text(t) => BodySource::Ready(at.render(t).into()),
        AnswerBody::Bytes(bytes) => BodySource::Ready(bytes.clone()),
        AnswerBody::File(t) => BodySource::File(at.render_path(t)),
    }
}

/// Waits for the content of a file of at most [`static_files::MAX_FILE_SIZE`], unless it is private.
pub(super) fn after_reading(
    at: &mut ActionContext<'_>,
    rule: &CompiledRule,
    path: Result<String, Error>,
    then: impl FnOnce(Bytes) -> FileOutcome + Send + 'static,
) -> ActionEffect {
    let path = match path {
        Ok(path) => path.into(),
        Err(e) => return action_failed(at, rule, e),
    };
    let content = on_disk(path, at.program.runtime.private_files.clone(), |path| {
        static_files::check_size(std::fs::metadata(path)?.len())?;
        std::fs::read(path).map(Bytes::from)
    });
    ActionEffect::Wait(PendingAction::File(Box::pin(async move { content.await.map(then) })))
}

/// Reads a file that is not private on a thread for files.
async fn on_disk<T: Send + 'static>(
    path: PathBuf,
    private: PrivateFiles,
    read: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let file = path.display().to_string();
    disk::run(move || private.check_read(&path).and_then(|()| read(&path))).await.map_err(|error| {
        // Clients may see the error, but not where the operator's files are.
        tracing::warn!(file, %error, "cannot read a rule's file");
        Error::new(ErrorKind::StageFailed, format!("a rule's file cannot be read: {}", error.kind()))
    })
}

fn map_local(at: &mut ActionContext<'_>, l: &MapLocalParams) -> ActionEffect {
    // The action's own regex may not match this URL.
    let Some(wanted) = local_file(at, l) else { return ActionEffect::Continue };
    let (status, content_type, fall_through) = (l.status, l.content_type.clone(), l.fall_through);
    // Another status says something else about the file than that it is there.
    let conditions = at.request().filter(|_| status == 200).map(FileConditions::of).unwrap_or_default();
    let is_head = at.request().is_some_and(|r| r.method == Method::HEAD);
    let private = at.program.runtime.private_files.clone();
    ActionEffect::Wait(PendingAction::File(Box::pin(async move {
        let lookup = disk::run(move || Ok(wanted.find())).await;
        let local_path = lookup.map_err(|e| Error::new(ErrorKind::StageFailed, "a rule's file").with_source(e))?;
        let Some(local_path) = local_path else {
            let text = "404 Not Found: there is no such file\n";
            let missing = || Response::full(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", text);
            return Ok(if fall_through { FileOutcome::Nothing } else { FileOutcome::Response(Box::new(missing())) });
        };
        let media = content_type.as_deref().or_else(|| media_type::by_file_name(local_path.to_str()?));
        let mut head = response_head(status);
        let _ = head.headers.append("Content-Type", media.unwrap_or("application/octet-stream"));
        let response = on_disk(local_path, private, move |path| conditions.answer(path, head, is_head)).await?;
        Ok(FileOutcome::Response(Box::new(response)))
    })))
}

/// A file to look for: the base itself if it is a file, else what is at the path below it.
struct LocalFile {
    /// `None` if a value of the flow leads elsewhere.
    base: Option<PathBuf>,
    path: String,
    /// Whether the base itself is never meant.
    is_below: bool,
}

impl LocalFile {
    fn find(&self) -> Option<PathBuf> {
        let base = self.base.as_ref()?;
        if !self.is_below && base.is_file() {
            return Some(base.clone());
        }
        static_files::find_in_folder(base, &self.path)
    }
}

/// The file for a URL; `None` if the action's own regex does not match it.
fn local_file(at: &ActionContext<'_>, l: &MapLocalParams) -> Option<LocalFile> {
    let view = at.view();
    let request = view.request?;
    let (base, path) = match &l.regex {
        None => {
            let path = request.url.path_only();
            let path = l.strip.as_ref().map_or(path, |s| path.strip_prefix(s.as_str()).unwrap_or(path));
            (l.path.0.render_path(&RenderContext::from_view(&view)), path.to_owned())
        }
        Some(RegexParam(regex)) => {
            let url = view.url();
            let groups = regex.captures(url.as_bytes())?;
            // Captured text must not lead outside the folder that the rule names.
            let fixed = literal_folder(&l.path.0);
            let filled = l.path.0.render_path(&RenderContext { view: &view, previous: None, groups: Some(&groups) });
            if let Ok(filled) = &filled
                && let Some(rest) = filled.strip_prefix(&fixed)
                && rest != filled
                && !rest.is_empty()
                && !fixed.is_empty()
            {
                return Some(LocalFile { base: Some(PathBuf::from(&fixed)), path: rest.to_owned(), is_below: true });
            }
            let end = groups.get(0).map_or(0, |m| m.end());
            (filled, url.get(end..).unwrap_or_default().to_owned())
        }
    };
    Some(LocalFile { base: base.ok().map(PathBuf::from), path, is_below: false })
}

/// The folder before the first variable of a path; empty if the path has none. Files are served from within it only.
fn literal_folder(path: &TextTemplate) -> String {
    if path.as_literal().is_some() {
        return String::new();
    }
    let source = path.source();
    let fixed = source.split('$').next().unwrap_or_default();
    fixed.rfind('/').map_or_else(String::new, |at| fixed[..=at].to_owned())
}
