//! Annotation actions: tags, comments, variables, log lines and lines in files. They change nothing that is sent.

use std::io::Write as _;

use interflow_types::{Direction, Error, ErrorKind};

use super::context::ActionContext;
use super::effect::{ActionEffect, PendingAction};
use crate::action::Action;
use crate::compiled::program::{CompiledRule, RuleProgram};
use crate::disk::{self, FileOutcome};
use crate::params::{AppendFileParams, CaptureParams, CaptureSource, LogLevel, LogParams};

pub(super) fn apply(
    at: &mut ActionContext<'_>,
    action: &Action,
    rule: &CompiledRule,
    program: &RuleProgram,
) -> ActionEffect {
    match action {
        Action::Tag(t) => {
            let tag = at.render(program, t);
            if !tag.is_empty() {
                at.flow.tag(tag);
            }
        }
        Action::Comment(t) => {
            let text = at.render(program, t);
            at.flow.tag(format!("comment:{text}"));
        }
        Action::Colour(names) => names.0.iter().for_each(|c| at.flow.tag(format!("colour:{c}"))),
        Action::SetVariable(all) => {
            for (name, value) in &all.0 {
                let value = at.render(program, value);
                at.state().set_variable(name, value);
            }
        }
        Action::Capture(c) => capture_value(at, c, program),
        Action::Log(line) => log_line(at, line, rule, program),
        Action::Print(t) => {
            let line = at.render(program, t);
            // A closed standard output must not interrupt traffic.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
        Action::PrintError(t) => {
            let line = at.render(program, t);
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        Action::AppendFile(a) => return append_to_file(at, a, rule, program),
        _ => {}
    }
    ActionEffect::Continue
}

/// Stores a part of the flow in variables: the whole text, or the groups of a regex. Nothing is stored if it is
/// absent.
fn capture_value(at: &mut ActionContext<'_>, c: &CaptureParams, program: &RuleProgram) {
    let mut found: Vec<(String, String)> = Vec::new();
    {
        let view = at.view(program);
        let text = match &c.source {
            CaptureSource::Text(t) => Some(t.render_view(&view).into_owned()),
            CaptureSource::Json(side, path) => {
                let body = if *side == Direction::Request { view.request_body } else { view.response_body };
                let value: Option<serde_json::Value> = body.and_then(|b| serde_json::from_slice(b).ok());
                value.as_ref().and_then(|v| path.find(v).first().copied()).map(|v| match v {
                    serde_json::Value::String(s) => s.clone(),
                    other => other.to_string(),
                })
            }
        };
        let Some(text) = text else { return };
        match &c.regex {
            None => found.push((c.name.clone(), text)),
            Some(regex) => {
                let Some(groups) = regex.captures(text.as_bytes()) else { return };
                let lossy = |m: regex::bytes::Match<'_>| String::from_utf8_lossy(m.as_bytes()).into_owned();
                // The first group if there is one, else the whole match.
                found.extend(groups.get(1).or(groups.get(0)).map(|m| (c.name.clone(), lossy(m))));
                found.extend(
                    crate::matching::text_predicate::group_names(regex)
                        .filter_map(|n| Some((n.to_owned(), lossy(groups.name(n)?)))),
                );
            }
        }
    }
    let state = at.state();
    found.into_iter().for_each(|(name, value)| state.set_variable(&name, value));
}

fn log_line(at: &ActionContext<'_>, line: &LogParams, rule: &CompiledRule, program: &RuleProgram) {
    let text = at.render(program, &line.text);
    let (flow, rule) = (at.flow.id, rule.name.as_str());
    match line.level {
        LogLevel::Debug => tracing::debug!(%flow, rule, "{text}"),
        LogLevel::Info => tracing::info!(%flow, rule, "{text}"),
        LogLevel::Warn => tracing::warn!(%flow, rule, "{text}"),
        LogLevel::Error => tracing::error!(%flow, rule, "{text}"),
    }
}

fn append_to_file(
    at: &mut ActionContext<'_>,
    a: &AppendFileParams,
    rule: &CompiledRule,
    program: &RuleProgram,
) -> ActionEffect {
    let (file, mut line) = (at.render(program, &a.file), at.render(program, &a.text));
    if !a.verbatim {
        line.push('\n');
    }
    let text = format!("rule `{}` cannot write to {file}", rule.name);
    let private = program.runtime.private_files.clone();
    let write = move || {
        private.check_write(std::path::Path::new(&file))?;
        // A single write, so that lines of several workers do not interleave.
        std::fs::OpenOptions::new().create(true).append(true).open(&file)?.write_all(line.as_bytes())
    };
    ActionEffect::Wait(PendingAction::File(Box::pin(async move {
        let written = disk::run(write).await;
        written.map(|()| FileOutcome::Nothing).map_err(|e| Error::new(ErrorKind::StageFailed, text).with_source(e))
    })))
}
