//! What rules and actions require: whole bodies, the request's body at a later phase, or nothing but annotations.

use interflow_types::Phase;

use crate::action::Action;
use crate::compiled::action_templates::visit_templates;
use crate::compiled::program::CompiledRule;
use crate::matching::condition::ConditionExpr;
use crate::params::{CaptureParams, CaptureSource};

/// Whether an action only annotates the flow, so that it can be repeated for each request of a tunnel.
pub(crate) const fn is_annotation(action: &Action) -> bool {
    matches!(
        action,
        Action::Tag(_)
            | Action::Comment(_)
            | Action::Colour(_)
            | Action::SetVariable(_)
            | Action::Capture(_)
            | Action::Stop(_)
            | Action::Nothing(_)
    )
}

/// Whether a condition depends on how often it is evaluated (`chance`, `every`, `first`).
pub(crate) fn is_stateful(rule: &CompiledRule) -> bool {
    let mut counts = false;
    rule.cond.visit(&mut |leaf| {
        counts |= matches!(leaf, ConditionExpr::Chance(_) | ConditionExpr::Every(..) | ConditionExpr::First(..))
    });
    counts
}

/// Whether evaluating a condition has side effects: it counts, or runs a program.
pub(crate) fn has_side_effects(rule: &CompiledRule) -> bool {
    is_stateful(rule) || runs_program(rule)
}

/// Whether a condition is decided by a program, which has to be waited for.
pub(crate) fn runs_program(rule: &CompiledRule) -> bool {
    let mut runs = false;
    rule.cond.visit(&mut |leaf| runs |= matches!(leaf, ConditionExpr::Exec(_)));
    runs
}

/// Whether a rule has to be waited for at the end of a flow: it runs a program, or appends to a file.
pub(crate) fn waits_at_end(rule: &CompiledRule) -> bool {
    runs_program(rule) || rule.actions.iter().any(|(_, action)| matches!(action, Action::AppendFile(_)))
}

/// Whether a rule acts after the request and reads the request's body.
pub(crate) fn needs_earlier_request_body(rule: &CompiledRule) -> bool {
    let later = |phase: Phase| phase > Phase::RequestBody && phase != Phase::Message;
    let by_text = rule.actions.iter().filter(|(phase, _)| later(*phase)).any(|(_, action)| {
        let mut wants = false;
        visit_templates(action, &mut |t| wants |= t.wants_bodies().0);
        wants
    });
    by_text || rule.actions.iter().any(|(phase, _)| later(*phase)) && rule.cond.wants_request_body()
}

/// Whether an action needs the whole body, by its kind or by a template that reads it.
pub(crate) fn needs_whole_body(action: &Action) -> bool {
    let mut needs = match action {
        Action::Hold(_) | Action::Script(_) | Action::Call(_) => true,
        Action::Capture(CaptureParams { source: CaptureSource::Json(..), .. }) => true,
        Action::Replay(r) => !r.ignore.iter().any(|i| i == "body"),
        _ => false,
    };
    visit_templates(action, &mut |t| needs |= t.wants_bodies() != (false, false));
    needs
}
