//! Annotation actions: tags, comments, variables, log lines and lines in files. They change nothing that is sent.

use std::io::Write as _;

use interflow_types::{Error, ErrorKind};

use super::context::ActionContext;
use super::effect::{ActionEffect, PendingAction, action_failed};
use crate::action::Action;
use crate::compiled::program::CompiledRule;
use crate::disk::{self, FileOutcome};
use crate::flow::json_answers::JsonSelection;
use crate::host_rules::unread_error;
use crate::params::{AppendFileParams, CaptureParams, CaptureSource, LogLevel, LogParams};

pub(super) fn apply(at: &mut ActionContext<'_>, action: &Action, rule: &CompiledRule) -> Option<ActionEffect> {
    match action {
        Action::Tag(t) => {
            let tag = at.render(t);
            if !tag.is_empty() {
                at.flow.tag(tag);
            }
        }
        Action::Comment(t) => {
            let text = at.render(t);
            at.flow.tag(format!("comment:{text}"));
        }
        Action::Colour(names) => names.0.iter().for_each(|c| at.flow.tag(format!("colour:{c}"))),
        Action::SetVariable(all) => {
            for (name, value) in &all.0 {
                let (is_fixed, value) = (value.is_fixed(&at.view()), at.render(value));
                at.state().put_variable(name, value, is_fixed);
            }
        }
        Action::Capture(c) => return Some(capture_value(at, c, rule)),
        Action::Log(line) => log_line(at, line, rule),
        Action::Print(t) => {
            let line = at.render(t);
            // A closed standard output must not interrupt traffic.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
        Action::PrintError(t) => {
            let line = at.render(t);
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        Action::AppendFile(a) => return Some(append_to_file(at, a, rule)),
        _ => return None,
    }
    Some(ActionEffect::Continue)
}

/// Stores a part of the flow in variables: the whole text, or the groups of a regex. Nothing is stored if it is
/// absent.
fn capture_value(at: &mut ActionContext<'_>, c: &CaptureParams, rule: &CompiledRule) -> ActionEffect {
    let selected = {
        let view = at.view();
        match &c.source {
            CaptureSource::Text(t) => Some(Ok([t.render_view(&view).into_owned().into()].into())),
            CaptureSource::Json(side, path) => match view.body_of(*side) {
                Some(content) => at.json.select(*side, path, content),
                None => return ActionEffect::Continue,
            },
        }
    };
    match (selected, at.json.take_wanted()) {
        (Some(selected), _) => capture_selected(at, c, selected, rule),
        (None, Some(run)) => ActionEffect::Wait(PendingAction::Capture(Box::new((*run, c.clone())))),
        (None, None) => ActionEffect::Continue,
    }
}

/// Stores the first of the selected values.
pub(super) fn capture_selected(
    at: &mut ActionContext<'_>,
    c: &CaptureParams,
    selected: JsonSelection,
    rule: &CompiledRule,
) -> ActionEffect {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let values = match selected {
        Ok(values) => values,
        Err(why) => return action_failed(at, rule, unread_error(&rule.name, at, &why)),
    };
    let Some(text) = values.first() else { return ActionEffect::Continue };
    let mut captures: Vec<(String, String)> = Vec::new();
    match &c.regex {
        None => captures.push((c.name.clone(), lossy(text))),
        Some(regex) => {
            let Some(groups) = regex.captures(text) else { return ActionEffect::Continue };
            // The first group if there is one, else the whole match.
            captures.extend(groups.get(1).or(groups.get(0)).map(|m| (c.name.clone(), lossy(m.as_bytes()))));
            captures.extend(
                crate::matching::text_predicate::group_names(regex)
                    .filter_map(|n| Some((n.to_owned(), lossy(groups.name(n)?.as_bytes())))),
            );
        }
    }
    let state = at.state();
    captures.into_iter().for_each(|(name, value)| state.set_variable(&name, value));
    ActionEffect::Continue
}

fn log_line(at: &ActionContext<'_>, line: &LogParams, rule: &CompiledRule) {
    let text = at.render(&line.text);
    let (flow, rule) = (at.flow.id, rule.name.as_str());
    match line.level {
        LogLevel::Debug => tracing::debug!(%flow, rule, "{text}"),
        LogLevel::Info => tracing::info!(%flow, rule, "{text}"),
        LogLevel::Warn => tracing::warn!(%flow, rule, "{text}"),
        LogLevel::Error => tracing::error!(%flow, rule, "{text}"),
    }
}

fn append_to_file(at: &mut ActionContext<'_>, a: &AppendFileParams, rule: &CompiledRule) -> ActionEffect {
    let (file, mut line) = match at.render_path(&a.file) {
        Ok(file) => (file, at.render(&a.text)),
        Err(e) => return action_failed(at, rule, e),
    };
    if !a.verbatim {
        line.push('\n');
    }
    let (text, name) = (format!("rule `{}` cannot write to its file", rule.name), file.clone());
    let private = at.program.runtime.private_files.clone();
    let write = move || {
        let file = std::path::Path::new(&file);
        private.check_write(file)?;
        file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        // A single write, so that lines of several workers do not interleave.
        std::fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
    };
    ActionEffect::Wait(PendingAction::File(Box::pin(async move {
        let written = disk::run(write).await;
        written.map(|()| FileOutcome::Nothing).map_err(|error| {
            tracing::warn!(file = name, %error, "{text}");
            // Not with what it says, which may name the file: clients may see this error.
            Error::new(ErrorKind::StageFailed, text)
        })
    })))
}
