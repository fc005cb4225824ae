//! Actions that answer in the origin's place, or refuse.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use interflow_flow::{Body, Error, Kind, Response, ResponseHead, StatusCode, Verdict};

use super::{At, Effect, failed, unusable};
use crate::action::Action;
use crate::files;
use crate::given::{Answer, AnswerBody, Block, Local};
use crate::program::{Program, Rule};
use crate::template::{Fill, Template};

/// The largest file that is answered with: it is held in memory.
const LARGEST_FILE: u64 = 256 << 20;

pub(super) fn act(at: &mut At<'_>, action: &Action, rule: &Rule, program: &Program) -> Effect {
    match action {
        Action::Answer(a) => match answer(at, a, rule, program) {
            Ok(response) => Effect::End(Verdict::Answer(Box::new(response))),
            Err(e) => failed(program, rule, at.flow, e),
        },
        Action::Block(b) => Effect::End(block(at, b, rule, program)),
        Action::Redirect(r) => {
            let to = at.fill(program, &r.to);
            let mut head = head(r.status);
            match head.headers.append("Location", &to) {
                Ok(()) => Effect::End(Verdict::Answer(Box::new(Response { head, body: Body::Empty }))),
                Err(e) => failed(program, rule, at.flow, unusable(rule, "URL", &to, e)),
            }
        }
        Action::MapLocal(l) => map_local(at, l, rule, program),
        Action::ServeCa(_) => match &program.around.ca {
            Some(pem) => {
                let mut response = Response::full(StatusCode::OK, "application/x-x509-ca-cert", pem.clone());
                response.head.headers.append_parsed(b"Content-Disposition", b"attachment; filename=\"ca.crt\"");
                Effect::End(Verdict::Answer(Box::new(response)))
            }
            None => failed(program, rule, at.flow, Error::new(Kind::StageFailed, "there is no certificate to serve")),
        },
        _ => Effect::Go,
    }
}

/// The connection ends without a word.
pub(super) fn abort(rule: &Rule) -> Verdict {
    Verdict::Deny(Error::new(Kind::ClientGone, format!("rule `{}` closed the connection", rule.name)))
}

fn head(status: u16) -> ResponseHead {
    ResponseHead::new(StatusCode::from_u16(status).expect("statuses are checked when rules are read"))
}

fn block(at: &At<'_>, b: &Block, rule: &Rule, program: &Program) -> Verdict {
    if b.status == 444 {
        return abort(rule);
    }
    let message = b.message.as_ref().map(|m| at.fill(program, m));
    // Before there is a request nothing can be answered with but the error.
    if at.request().is_none() || (b.status == 403 && message.is_none()) {
        let text = message.unwrap_or_else(|| format!("rule `{}` forbids it", rule.name));
        return Verdict::Deny(Error::new(Kind::Denied, text));
    }
    let mut head = head(b.status);
    let reason = head.status.canonical_reason().unwrap_or("Refused");
    let text = message.unwrap_or_else(|| reason.to_owned());
    let media = b.content_type.as_ref().map_or_else(|| "text/plain; charset=utf-8".to_owned(), |t| at.fill(program, t));
    let _ = head.headers.append("Content-Type", media);
    Verdict::Answer(Box::new(Response { head, body: Body::from(Bytes::from(text)) }))
}

fn answer(at: &At<'_>, a: &Answer, rule: &Rule, program: &Program) -> Result<Response, Error> {
    let mut head = head(a.status);
    if let Some(t) = &a.content_type {
        let value = at.fill(program, t);
        head.headers.set("Content-Type", &value).map_err(|e| unusable(rule, "media type", &value, e))?;
    }
    for (name, value) in &a.headers {
        let (name, value) = (at.fill(program, name), at.fill(program, value));
        // What is given wins over what the body's form tells.
        let own = name.eq_ignore_ascii_case("content-type");
        let put = if own { head.headers.set(&name, value) } else { head.headers.append(&name, value) };
        put.map_err(|e| unusable(rule, "field", &name, e))?;
    }
    let body = load(at, &a.body, program)?;
    Ok(Response { head, body: Body::from(body) })
}

/// The bytes of a body of our own.
pub(super) fn load(at: &At<'_>, body: &AnswerBody, program: &Program) -> Result<Bytes, Error> {
    match body {
        AnswerBody::Text(t) => Ok(at.fill(program, t).into()),
        AnswerBody::Bytes(bytes) => Ok(bytes.clone()),
        AnswerBody::File(t) => read_file(Path::new(&at.fill(program, t))),
    }
}

pub(super) fn read_file(path: &Path) -> Result<Bytes, Error> {
    let failed =
        |why: String| Error::new(Kind::StageFailed, format!("a rule's file {} cannot be read: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| failed(e.to_string()))?.len();
    if size > LARGEST_FILE {
        return Err(failed(format!("it has {size} bytes, and at most {LARGEST_FILE} are answered with")));
    }
    std::fs::read(path).map(Bytes::from).map_err(|e| failed(e.to_string()))
}

fn map_local(at: &mut At<'_>, l: &Local, rule: &Rule, program: &Program) -> Effect {
    let found = match local_file(at, l, program) {
        Ok(Some(found)) => found,
        // The rule's own regex does not fit this URL.
        Ok(None) => return Effect::Go,
        Err(Missing) if l.fall_through => return Effect::Go,
        Err(Missing) => {
            let page = Response::full(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                "404 Not Found: there is no such file\n",
            );
            return Effect::End(Verdict::Answer(Box::new(page)));
        }
    };
    let bytes = match read_file(&found) {
        Ok(bytes) => bytes,
        Err(e) => return failed(program, rule, at.flow, e),
    };
    let media = l.content_type.as_deref().or_else(|| files::media_type(found.to_str()?));
    let mut head = head(l.status);
    let _ = head.headers.append("Content-Type", media.unwrap_or("application/octet-stream"));
    Effect::End(Verdict::Answer(Box::new(Response { head, body: Body::from(bytes) })))
}

struct Missing;

fn local_file(at: &At<'_>, l: &Local, program: &Program) -> Result<Option<PathBuf>, Missing> {
    let view = at.view(program);
    let Some(request) = view.request else { return Ok(None) };
    let (base, path) = match &l.regex {
        None => {
            let path = request.url.path_only();
            let path = l.strip.as_ref().map_or(path, |s| path.strip_prefix(s.as_str()).unwrap_or(path));
            (l.path.0.fill_from(&view).into_owned(), path.to_owned())
        }
        Some(regex) => {
            let url = view.url();
            let Some(groups) = regex.captures(url.as_bytes()) else { return Ok(None) };
            // A captured text may not lead out of the folder that the rule names.
            let fixed = fixed_folder(&l.path.0);
            let filled = l.path.0.fill(&Fill { view: &view, previous: None, groups: Some(&groups) }).into_owned();
            if let Some(rest) = filled.strip_prefix(&fixed)
                && rest != filled
                && !rest.is_empty()
                && !fixed.is_empty()
            {
                return files::in_folder(Path::new(&fixed), rest).map(Some).ok_or(Missing);
            }
            let end = groups.get(0).map_or(0, |m| m.end());
            (filled, url.get(end..).unwrap_or_default().to_owned())
        }
    };
    let base = PathBuf::from(base);
    if base.is_file() {
        return Ok(Some(base));
    }
    files::in_folder(&base, &path).map(Some).ok_or(Missing)
}

/// The folder before the first variable of a path.
fn fixed_folder(path: &Template) -> String {
    if path.as_literal().is_some() {
        return String::new();
    }
    let source = path.source();
    let fixed = source.split('$').next().unwrap_or_default();
    fixed.rfind('/').map_or_else(String::new, |at| fixed[..=at].to_owned())
}
