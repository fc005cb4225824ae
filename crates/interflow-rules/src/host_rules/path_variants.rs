//! Ambiguous paths: rules that control access by path are evaluated on every interpretation an origin may use.

use interflow_query::Tristate;
use interflow_types::{RequestHead, path};

use crate::actions::ActionContext;
use crate::compiled::program::CompiledRule;
use crate::matching::condition::ConditionExpr;
use crate::matching::index::{Candidates, RequestIndex};
use crate::matching::path_mode::{PathMatchMode, is_ambiguous};

/// The request with each of the other interpretations of its path (escapes, dots, slashes, parameters); `None` if
/// they cannot be enumerated.
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
pub(crate) fn evaluate(rule: &CompiledRule, at: &ActionContext<'_>) -> Tristate {
    if let ConditionExpr::Always(holds) = rule.cond {
        return Tristate::Known(holds);
    }
    let written = rule.cond.evaluate(&at.view());
    let refuses = match rule.judged {
        PathMatchMode::AsWritten => return written,
        PathMatchMode::Any => true,
        PathMatchMode::All => false,
    };
    // The other interpretations cannot change the answer in the cautious direction.
    if written.holds() == refuses {
        return written;
    }
    let Some(request) = at.request().filter(|request| is_ambiguous(request)) else { return written };
    // An ambiguous path matches every denying rule and no exempting one.
    let Some(others) = other_variants(request) else { return if refuses { written } else { Tristate::Known(false) } };
    let holds = |head: &RequestHead| {
        let mut view = at.view();
        (view.request, view.shared_url) = (Some(head), None);
        rule.cond.evaluate(&view).holds()
    };
    if refuses {
        if others.iter().any(holds) { Tristate::Known(true) } else { written }
    } else {
        if others.iter().all(holds) { written } else { Tristate::Known(false) }
    }
}

/// The rules that this request can match in any of its interpretations. Without the others, the index would hide a
/// rule that a variant matches.
pub(crate) fn candidates(index: &RequestIndex, request: &RequestHead) -> Candidates {
    let mut picked = index.candidates(request);
    if is_ambiguous(request) {
        for head in other_variants(request).unwrap_or_default() {
            picked.iter_mut().zip(index.candidates(&head)).for_each(|(word, more)| *word |= more);
        }
    }
    picked
}
