//! Resolves and checks the files that actions name, before the rules are activated.

use std::path::{Path, PathBuf};

use crate::action::Action;
use crate::config::RulesConfig;
use crate::params::{AnswerBody, EditParams, ReplayParams, ReplaySource, ScriptParams, ScriptSource};
use crate::state::runtime::RuleRuntime;
use crate::text::template::{ReplacementTemplate, TextTemplate};

/// Makes relative files relative to the rule file, whatever the working directory. Templates that begin with a
/// variable stay.
pub(crate) fn resolve_relative(action: &mut Action, folder: Option<&Path>) {
    let Some(folder) = folder.filter(|f| !f.as_os_str().is_empty()) else { return };
    let path = |p: &mut PathBuf| *p = folder.join(&*p);
    let text = |t: &mut TextTemplate| {
        let new = resolve_in_folder(folder, t.source()).and_then(|p| TextTemplate::parse(&p).ok());
        if let Some(new) = new {
            *t = new;
        }
    };
    let body = |b: &mut AnswerBody| {
        if let AnswerBody::File(t) = b {
            text(t);
        }
    };
    match action {
        Action::MapLocal(l) => {
            let new =
                resolve_in_folder(folder, l.path.0.source()).and_then(|p| TextTemplate::parse_replacement(&p).ok());
            if let Some(new) = new {
                l.path = ReplacementTemplate(new);
            }
        }
        Action::Replay(r) => {
            if let ReplaySource::File(f) = &mut r.from {
                path(f);
            }
        }
        Action::Script(s) => {
            if let ScriptSource::File(f) = &mut s.source {
                path(f);
            }
        }
        Action::Answer(a) => body(&mut a.body),
        Action::InjectHtml(h) => body(&mut h.html),
        Action::EditRequestBody(EditParams::File(t))
        | Action::EditResponseBody(EditParams::File(t))
        | Action::EditMessage(EditParams::File(t)) => text(t),
        Action::ClientCertificate(c) | Action::ShowCertificate(c) => {
            path(&mut c.certificate);
            c.key.iter_mut().for_each(path);
        }
        Action::SaveResponseBody(t) => text(t),
        Action::AppendFile(a) => text(&mut a.file),
        _ => {}
    }
}

fn resolve_in_folder(folder: &Path, file: &str) -> Option<String> {
    (Path::new(file).is_relative() && !file.starts_with("${")).then(|| folder.join(file).to_string_lossy().into_owned())
}

/// Whether the files that an action reads exist, its scripts and recordings load, and this build supports it.
///
/// # Errors
/// What is missing or wrong.
pub(crate) fn check_files(action: &Action, config: &RulesConfig, around: &RuleRuntime) -> Result<(), String> {
    let private = &around.private_files;
    let there = |path: &Path| {
        private.check_read(path).map_err(|e| e.to_string())?;
        if path.exists() { Ok(()) } else { Err(format!("{} is not there", path.display())) }
    };
    let literal = |t: &TextTemplate| t.as_literal().map_or(Ok(()), |p| there(Path::new(p)));
    let writable = |t: &TextTemplate| {
        t.as_literal().map_or(Ok(()), |p| private.check_write(Path::new(p)).map_err(|e| e.to_string()))
    };
    let body = |b: &AnswerBody| match b {
        AnswerBody::File(t) => literal(t),
        _ => Ok(()),
    };
    match action {
        Action::SaveResponseBody(t) => writable(t),
        Action::AppendFile(a) => writable(&a.file),
        Action::MapLocal(l) => literal(&l.path.0),
        Action::Answer(a) => body(&a.body),
        Action::InjectHtml(h) => body(&h.html),
        Action::EditRequestBody(EditParams::File(t))
        | Action::EditResponseBody(EditParams::File(t))
        | Action::EditMessage(EditParams::File(t)) => literal(t),
        Action::ClientCertificate(c) | Action::ShowCertificate(c) => {
            let password = c.password.as_deref().and_then(|p| p.strip_prefix("file:")).map(Path::new);
            let files = [Some(c.certificate.as_path()), c.key.as_deref(), password];
            let mut files = files.into_iter().flatten();
            files.try_for_each(|file| private.check_read(file)).map_err(|e| e.to_string())?;
            match &around.capabilities {
                Some(means) => means.check_certificate(&c.files()),
                None => there(&c.certificate).and_then(|()| c.key.as_deref().map_or(Ok(()), there)),
            }
        }
        Action::Impersonate(like) => {
            around.capabilities.as_ref().map_or(Ok(()), |m| m.check_fingerprint(like.as_str()))
        }
        Action::Replay(ReplayParams { from: ReplaySource::File(file), .. })
        | Action::Script(ScriptParams { source: ScriptSource::File(file), .. })
            if private.check_read(file).is_err() =>
        {
            private.check_read(file).map_err(|e| e.to_string())
        }
        Action::Replay(r) => {
            // Whether a query finds flows makes no difference to a check.
            let reads = around.is_live || matches!(r.from, ReplaySource::File(_));
            r.load(around.recordings.as_deref().filter(|_| reads))
        }
        Action::Script(s) => s.compile(config).map(drop),
        _ => Ok(()),
    }
}
