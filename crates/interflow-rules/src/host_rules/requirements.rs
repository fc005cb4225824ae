//! What rules and actions require: whole bodies, the request's body at a later phase, or nothing but annotations.

use std::sync::Arc;

use interflow_types::{Direction, Error, ErrorKind, Phase};

use crate::action::Action;
use crate::actions::ActionContext;
use crate::compiled::action_templates::visit_templates;
use crate::compiled::program::CompiledRule;
use crate::matching::condition::ConditionExpr;
use crate::matching::graphql::graphql_paths;
use crate::matching::text_predicate::TextField;
use crate::params::{CaptureParams, CaptureSource};

const SIDES: [Direction; 2] = [Direction::Request, Direction::Response];

/// Whether a condition depends on how often it is evaluated (`chance`, `every`, `first`).
pub(crate) fn is_stateful(rule: &CompiledRule) -> bool {
    rule.cond.any_leaf(&mut |leaf| {
        matches!(leaf, ConditionExpr::Chance(_) | ConditionExpr::Every(..) | ConditionExpr::First(..))
    })
}

/// Whether evaluating a condition has side effects: it counts, or runs a program.
pub(crate) fn has_side_effects(rule: &CompiledRule) -> bool {
    is_stateful(rule) || runs_program(rule)
}

/// Whether a condition is decided by a program, which has to be waited for.
pub(crate) fn runs_program(rule: &CompiledRule) -> bool {
    rule.cond.any_leaf(&mut |leaf| matches!(leaf, ConditionExpr::Exec(_)))
}

/// Whether a rule has to be waited for at the end of a flow: it runs a program, evaluates JSON, or appends to a
/// file.
pub(crate) fn waits_at_end(rule: &CompiledRule) -> bool {
    let reads_json = rule.cond.any_leaf(&mut |leaf| {
        matches!(leaf, ConditionExpr::Text(TextField::Json(..) | TextField::GraphqlOperation, _))
    });
    let waits = |action: &Action| {
        matches!(action, Action::AppendFile(_) | Action::Capture(CaptureParams { source: CaptureSource::Json(..), .. }))
    };
    reads_json || runs_program(rule) || rule.actions.iter().any(|(_, action)| waits(action))
}

/// Whether a rule acts after the request, or on `messages`, and reads the request's body.
pub(crate) fn needs_earlier_request_body(rule: &CompiledRule, messages: bool) -> bool {
    let later = |phase: Phase| phase > Phase::RequestBody && (messages || phase != Phase::Message);
    rule.actions.iter().filter(|(phase, _)| later(*phase)).any(|(_, action)| {
        let mut wants = rule.cond.reads_body(Direction::Request);
        visit_templates(action, &mut |t| wants |= t.wants_body(Direction::Request));
        wants
    })
}

/// Whether an action needs the whole body, by its kind or by a template that reads it.
pub(crate) fn needs_whole_body(action: &Action) -> bool {
    let mut needs = match action {
        Action::Hold(_) | Action::Script(_) | Action::Call(_) => true,
        Action::Capture(CaptureParams { source: CaptureSource::Json(..), .. }) => true,
        Action::Replay(r) => !r.ignore.iter().any(|i| i == "body"),
        _ => false,
    };
    visit_templates(action, &mut |t| needs |= SIDES.into_iter().any(|side| t.wants_body(side)));
    needs
}

/// Evaluates the JSON from which the rule takes variables; whether that is done, or need not be.
pub(crate) fn evaluate_captured_json(rule: &CompiledRule, at: &ActionContext<'_>) -> bool {
    if rule.captures.is_empty() {
        return true;
    }
    let view = at.view();
    rule.captures.iter().all(|(field, _)| match field {
        TextField::Json(..) | TextField::GraphqlOperation => {
            let _ = field.evaluate(&view, &mut |_| false);
            !at.json.wants_any()
        }
        _ => true,
    })
}

/// Why the content that the condition judges cannot be read.
pub(crate) fn unread_by_condition(rule: &CompiledRule, at: &ActionContext<'_>) -> Option<Arc<Error>> {
    // What else a condition on messages may need is known before the first of them.
    if at.unread_message.is_some() {
        return at.unread_message.clone();
    }
    let unread = SIDES.into_iter().find_map(|side| at.unread(side).filter(|_| rule.cond.reads_body(side)));
    if unread.is_some() {
        return unread;
    }
    let mut why = None;
    rule.cond.visit(&mut |leaf| {
        let failed = match leaf {
            ConditionExpr::Text(TextField::Json(side, path), _) => at.json.failure(*side, path),
            ConditionExpr::Text(TextField::GraphqlOperation, _) => {
                graphql_paths().iter().find_map(|path| at.json.failure(Direction::Request, path))
            }
            _ => None,
        };
        // The last one counts.
        why = failed.or_else(|| why.take());
    });
    why
}

/// Why the content cannot be read without which an action would do something else than it should. Text for people is
/// made of what there is; a person decides without it, and a service as its own `on_failure` says.
pub(crate) fn unread_content(action: &Action, at: &ActionContext<'_>) -> Option<Arc<Error>> {
    if let Some(why) = &at.unread_message {
        let mut reads = !action.only_annotates();
        if matches!(action, Action::SetVariable(_) | Action::Capture(_)) {
            visit_templates(action, &mut |t| reads |= t.wants_message());
            reads |= matches!(action, Action::Capture(_));
        }
        return reads.then(|| Arc::clone(why));
    }
    let unread = SIDES.map(|side| at.unread(side));
    // The usual case; what is captured of JSON may have failed by itself.
    if unread.iter().all(Option::is_none) && !matches!(action, Action::Capture(_)) {
        return None;
    }
    let mut reads = [false; 2];
    match action {
        Action::Tag(_)
        | Action::Comment(_)
        | Action::Colour(_)
        | Action::Log(_)
        | Action::Print(_)
        | Action::PrintError(_)
        | Action::AppendFile(_)
        | Action::Hold(_)
        | Action::Call(_) => return None,
        Action::Script(_) => reads[at.side() as usize] = true,
        Action::Capture(CaptureParams { source: CaptureSource::Json(side, path), .. }) => {
            if let Some(why) = at.json.failure(*side, path) {
                return Some(why);
            }
            reads[*side as usize] = true;
        }
        Action::Replay(_) => reads[Direction::Request as usize] = needs_whole_body(action),
        _ => {}
    }
    visit_templates(action, &mut |t| SIDES.into_iter().for_each(|side| reads[side as usize] |= t.wants_body(side)));
    unread.into_iter().zip(reads).find_map(|(why, reads)| why.filter(|_| reads))
}

/// The error that ends a flow whose content a rule cannot read.
pub(crate) fn unread_error(rule: &str, at: &ActionContext<'_>, why: &Error) -> Error {
    let (kind, side) = match at.side() {
        // Of either direction: the connection of its sender ends.
        _ if at.message.is_some() => (ErrorKind::Denied, "message"),
        Direction::Request => (ErrorKind::Denied, "request"),
        Direction::Response => (ErrorKind::BadResponse, "response"),
    };
    let kind = match why.kind() {
        ErrorKind::BodyTooLarge if side != "response" => ErrorKind::BodyTooLarge,
        ErrorKind::Overloaded => ErrorKind::Overloaded,
        ErrorKind::Internal => ErrorKind::Internal,
        _ => kind,
    };
    Error::new(kind, format!("rule `{rule}` depends on content of this {side} that cannot be read: {why}"))
}
