//! Actions that leave marks: tags, comments, variables, lines in logs and files.

use std::io::Write as _;

use interflow_flow::Direction;

use super::{At, Effect, failed};
use crate::action::Action;
use crate::given::{Append, Capture, CaptureFrom, Level, LogLine};
use crate::program::{Program, Rule};

pub(super) fn act(at: &mut At<'_>, action: &Action, rule: &Rule, program: &Program) -> Effect {
    match action {
        Action::Tag(t) => {
            let tag = at.fill(program, t);
            if !tag.is_empty() {
                at.flow.tag(tag);
            }
        }
        Action::Comment(t) => {
            let text = at.fill(program, t);
            at.flow.tag(format!("comment:{text}"));
        }
        Action::Colour(names) => names.0.iter().for_each(|c| at.flow.tag(format!("colour:{c}"))),
        Action::SetVariable(all) => {
            for (name, value) in &all.0 {
                let value = at.fill(program, value);
                at.state().set(name, value);
            }
        }
        Action::Capture(c) => capture(at, c, program),
        Action::Log(line) => log(at, line, rule, program),
        Action::Print(t) => {
            let line = at.fill(program, t);
            // A reader that has gone away is no reason to stop traffic.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
        Action::PrintError(t) => {
            let line = at.fill(program, t);
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        Action::AppendFile(a) => return append(at, a, rule, program),
        _ => {}
    }
    Effect::Go
}

fn capture(at: &mut At<'_>, c: &Capture, program: &Program) {
    let mut found: Vec<(String, String)> = Vec::new();
    {
        let view = at.view(program);
        let text = match &c.source {
            CaptureFrom::Text(t) => Some(t.fill_from(&view).into_owned()),
            CaptureFrom::Json(side, path) => {
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
                found.extend(groups.get(1).or(groups.get(0)).map(|m| (c.name.clone(), lossy(m))));
                found.extend(crate::text::names(regex).filter_map(|n| Some((n.to_owned(), lossy(groups.name(n)?)))));
            }
        }
    }
    let state = at.state();
    found.into_iter().for_each(|(name, value)| state.set(&name, value));
}

fn log(at: &At<'_>, line: &LogLine, rule: &Rule, program: &Program) {
    let text = at.fill(program, &line.text);
    let (flow, rule) = (at.flow.id, rule.name.as_str());
    match line.level {
        Level::Debug => tracing::debug!(%flow, rule, "{text}"),
        Level::Info => tracing::info!(%flow, rule, "{text}"),
        Level::Warn => tracing::warn!(%flow, rule, "{text}"),
        Level::Error => tracing::error!(%flow, rule, "{text}"),
    }
}

fn append(at: &mut At<'_>, a: &Append, rule: &Rule, program: &Program) -> Effect {
    let (file, mut line) = (at.fill(program, &a.file), at.fill(program, &a.text));
    if !a.verbatim {
        line.push('\n');
    }
    let written = std::fs::OpenOptions::new().create(true).append(true).open(&file).and_then(|mut f| {
        // One write, so that lines of several workers do not mix.
        f.write_all(line.as_bytes())
    });
    match written {
        Ok(()) => Effect::Go,
        Err(e) => {
            let text = format!("rule `{}` cannot write to {file}", rule.name);
            let error = interflow_flow::Error::new(interflow_flow::Kind::StageFailed, text).because(e);
            failed(program, rule, at.flow, error)
        }
    }
}
