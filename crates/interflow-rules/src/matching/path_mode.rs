//! Which rules control access by path, and which paths are ambiguous.

use interflow_query::Key;
use interflow_types::{Phase, RequestHead};

use crate::action::Action;
use crate::matching::condition::ConditionExpr;
use crate::matching::text_predicate::TextField;

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
    /// A rule that denies must not be evaded by spelling the path differently, and a rule that exempts must not be
    /// reached that way.
    pub fn for_rule(cond: &ConditionExpr, actions: &[(Phase, Action)], stop: bool) -> Self {
        let decides = |a: &Action| {
            matches!(a, Action::Block(_) | Action::Abort(_) | Action::Hold(_) | Action::Answer(_) | Action::Redirect(_))
        };
        let stops = |a: &Action| matches!(a, Action::Stop(_));
        let mut actions = actions.iter().map(|(_, action)| action);
        if !reads_path(cond) {
            Self::AsWritten
        } else if actions.clone().any(decides) {
            Self::Any
        } else if stop || actions.any(stops) {
            Self::All
        } else {
            Self::AsWritten
        }
    }
}

fn reads_path(cond: &ConditionExpr) -> bool {
    cond.any_leaf(&mut |leaf| match leaf {
        ConditionExpr::Text(TextField::Path | TextField::Target | TextField::Url, _) => true,
        ConditionExpr::Query(query) => {
            let mut asks = false;
            query.expr().visit(&mut |term| asks |= matches!(term.key, Key::Path | Key::Url | Key::Word));
            asks
        }
        _ => false,
    })
}

/// Whether origins may interpret the path differently: it has escapes, backslashes, parameters, empty or dot
/// segments.
pub(crate) fn is_ambiguous(request: &RequestHead) -> bool {
    let path = request.url.path_only().as_bytes();
    path.iter().any(|b| matches!(b, b'%' | b'\\' | b';'))
        || path.windows(2).any(|pair| matches!(pair, [b'/', b'/' | b'.']))
}
