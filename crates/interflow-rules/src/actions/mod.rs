//! Execution of actions within a phase.

mod annotate;
pub(crate) mod answers;
mod bodies;
mod context;
mod effect;
mod external;
mod headers;
pub(crate) mod hold;
mod script_input;
pub(crate) mod static_files;
mod upstream;

pub(crate) use context::{ActionContext, HeadBeforeEdit, RequestAccess};
pub(crate) use effect::{ActionEffect, PendingAction, action_failed};
pub(crate) use headers::disable_caching;

use crate::action::Action;
use crate::compiled::program::CompiledRule;
use crate::disk::FileOutcome;
use crate::flow::verdict::RuleVerdict;

impl PendingAction {
    /// Waits for the operation and applies its result to the flow as it is then.
    pub async fn complete(self, at: &mut ActionContext<'_>, rule: &CompiledRule) -> ActionEffect {
        match self {
            Self::Exec(run) => {
                let (key, answer) = (run.key(), run.run().await);
                at.exec.record(key, answer);
                ActionEffect::Continue
            }
            Self::Json(run) => {
                let done = run.run().await;
                at.json.record(done);
                ActionEffect::Continue
            }
            Self::Capture(capture) => {
                let (run, params) = *capture;
                let done = run.run().await;
                let selected = done.selected.clone();
                at.json.record(done);
                annotate::capture_selected(at, &params, selected, rule)
            }
            Self::Sleep(time) => {
                tokio::time::sleep(time).await;
                ActionEffect::Continue
            }
            Self::Service(service) => external::call_service(at, service, rule).await,
            Self::Script(run) => {
                let ran = at.program.scripts.run(*run).await;
                external::apply_script_outcome(at, rule, ran)
            }
            Self::File(task) => match task.await {
                Ok(outcome) => apply_file_outcome(at, outcome, rule),
                Err(e) => effect::action_failed(at, rule, e),
            },
            Self::Decision(decision, pass) => {
                let decision = decision.await;
                hold::apply_decision(at, rule, decision, pass)
            }
        }
    }
}

fn apply_file_outcome(at: &mut ActionContext<'_>, outcome: FileOutcome, rule: &CompiledRule) -> ActionEffect {
    match outcome {
        FileOutcome::Nothing => ActionEffect::Continue,
        FileOutcome::Response(response) => ActionEffect::End(RuleVerdict::Answer(response)),
        FileOutcome::Body(change) => bodies::add_change(at, change, rule),
        FileOutcome::Message(change) => bodies::change_message(at, &change, false, rule),
    }
}

/// Executes an action. Never blocks: what takes time is returned as [`ActionEffect::Wait`].
pub(crate) fn apply(at: &mut ActionContext<'_>, action: &Action, rule: &CompiledRule) -> ActionEffect {
    match action {
        Action::Nothing(_) => ActionEffect::Continue,
        Action::Stop(_) => ActionEffect::Stop,
        Action::Tunnel(_) => ActionEffect::End(RuleVerdict::Tunnel),
        Action::Intercept(_) => ActionEffect::End(RuleVerdict::Intercept),
        Action::Delay(d) => {
            ActionEffect::Wait(PendingAction::Sleep(crate::body::fault_injection::with_jitter(d.time.0, d.jitter.0)))
        }
        Action::Abort(_) => ActionEffect::End(answers::abort_verdict(rule)),
        Action::Hold(h) => hold::hold(at, h, rule),
        _ => annotate::apply(at, action, rule)
            .or_else(|| external::apply(at, action, rule))
            .or_else(|| answers::apply(at, action, rule))
            .or_else(|| bodies::apply(at, action, rule))
            .or_else(|| headers::apply(at, action, rule))
            .unwrap_or_else(|| upstream::apply(at, action, rule)),
    }
}

/// Stores the named groups of the condition's regexes in variables, from the first value that matches.
pub(crate) fn capture_groups(at: &mut ActionContext<'_>, rule: &CompiledRule) {
    if rule.captures.is_empty() {
        return;
    }
    let mut edits = Vec::new();
    {
        let view = at.view();
        for (place, regex) in &rule.captures {
            let _ = place.evaluate(&view, &mut |value| {
                let Some(groups) = regex.captures(value) else { return false };
                edits.extend(crate::matching::text_predicate::group_names(regex).filter_map(|n| {
                    Some((n.to_owned(), String::from_utf8_lossy(groups.name(n)?.as_bytes()).into_owned()))
                }));
                true
            });
        }
    }
    let state = at.state();
    edits.into_iter().for_each(|(name, value)| state.set_variable(&name, value));
}
