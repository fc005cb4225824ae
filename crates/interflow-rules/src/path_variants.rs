//! Ambiguous paths: rules that control access by path are evaluated on every interpretation an origin may use.

use interflow_query::{Key, Tristate};
use interflow_types::{RequestHead, path};

use crate::action::Action;
use crate::actions::ActionContext;
use crate::condition::ConditionExpr;
use crate::index::{Candidates, RequestIndex};
use crate::program::{CompiledRule, RuleProgram};
use crate::text_predicate::TextField;

/// On which interpretations of the path a condition must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PathMatchMode {
    /// The path as written: the rule does not read it, or does not control access.
    #[default]
    AsWritten,
    /// Any of them: the rule denies, holds or answers.
    Any,
    /// All of them: the rule exempts the request from later rules.
    All,
}

impl PathMatchMode {
    pub fn for_rule(rule: &CompiledRule) -> Self {
        let decides = |a: &Action| {
            matches!(a, Action::Block(_) | Action::Abort(_) | Action::Hold(_) | Action::Answer(_) | Action::Redirect(_))
        };
        let stops = |a: &Action| matches!(a, Action::Stop(_));
        let mut actions = rule.actions.iter().map(|(_, action)| action);
        if !reads_path(&rule.cond) {
            Self::AsWritten
        } else if actions.clone().any(decides) {
            Self::Any
        } else if rule.stop || actions.any(stops) {
            Self::All
        } else {
            Self::AsWritten
        }
    }
}

fn reads_path(cond: &ConditionExpr) -> bool {
    let mut asks = false;
    cond.visit(&mut |leaf| match leaf {
        ConditionExpr::Text(TextField::Path | TextField::Target | TextField::Url, _) => asks = true,
        ConditionExpr::Query(query) => {
            query.expr().visit(&mut |term| asks |= matches!(term.key, Key::Path | Key::Url | Key::Word));
        }
        _ => {}
    });
    asks
}

/// Whether the path may have other interpretations.
pub(crate) fn is_ambiguous(request: &RequestHead) -> bool {
    let path = request.url.path_only().as_bytes();
    path.iter().any(|b| matches!(b, b'%' | b'\\' | b';'))
        || path.windows(2).any(|pair| matches!(pair, [b'/', b'/' | b'.']))
}

/// The request with each of the other interpretations; `None` if they cannot be enumerated.
fn other_variants(request: &RequestHead) -> Option<Vec<RequestHead>> {
    let written = request.url.path_only();
    let query = request.url.path.get(written.len()..).unwrap_or_default();
    let read = |path: &String| {
        let mut head = request.clone();
        head.url.path = format!("{path}{query}").into();
        head
    };
    Some(path::variants(written)?.iter().skip(1).map(read).collect())
}

/// Evaluates the condition on the interpretations that its mode requires.
pub(crate) fn evaluate(rule: &CompiledRule, at: &ActionContext<'_>, program: &RuleProgram) -> Tristate {
    let written = rule.cond.evaluate(&at.view(program));
    let refuses = match rule.judged {
        PathMatchMode::AsWritten => return written,
        PathMatchMode::Any => true,
        PathMatchMode::All => false,
    };
    if written.holds() == refuses {
        return written;
    }
    let Some(request) = at.request().filter(|request| is_ambiguous(request)) else { return written };
    // An ambiguous path matches every denying rule and no exempting one.
    let Some(others) = other_variants(request) else { return if refuses { written } else { Tristate::Known(false) } };
    let holds = |head: &RequestHead| {
        let mut view = at.view(program);
        (view.request, view.shared_url) = (Some(head), None);
        rule.cond.evaluate(&view).holds()
    };
    if refuses {
        if others.iter().any(holds) { Tristate::Known(true) } else { written }
    } else {
        if others.iter().all(holds) { written } else { Tristate::Known(false) }
    }
}

/// The rules that this request can match in any of its interpretations.
pub(crate) fn candidates(index: &RequestIndex, request: &RequestHead) -> Candidates {
    let mut picked = index.candidates(request);
    if is_ambiguous(request) {
        for head in other_variants(request).unwrap_or_default() {
            picked.iter_mut().zip(index.candidates(&head)).for_each(|(word, more)| *word |= more);
        }
    }
    picked
}
