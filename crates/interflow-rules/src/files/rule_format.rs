//! The seam for rule files of other programs: a format recognizes its files and converts them to rules.

use std::fmt::Debug;

use interflow_types::Phase;
use serde_json::Value;

use crate::action::Action;
use crate::error::RuleProblem;
use crate::files::sources::ParsedRuleFile;
use crate::matching::condition::ConditionExpr;

/// A format of rule files in YAML or JSON besides Interflow's own; registered with
/// [`RuleRuntime::with_formats`](crate::RuleRuntime::with_formats).
pub trait RuleFormat: Debug + Send + Sync {
    /// Whether a document has this format. The first format that says so converts it.
    fn detect(&self, document: &Value) -> bool;

    /// Converts a document; `file` locates what it reports.
    fn convert(&self, document: &Value, file: &ParsedRuleFile) -> ConvertedRules;
}

/// What a rule file of another format becomes.
#[derive(Debug, Default)]
pub struct ConvertedRules {
    pub rules: Vec<ConvertedRule>,
    /// Errors that make the file unusable.
    pub problems: Vec<RuleProblem>,
    /// What behaves differently here, or has no effect.
    pub notes: Vec<RuleProblem>,
}

#[derive(Debug)]
pub struct ConvertedRule {
    /// Numbered if another rule has the same name.
    pub name: String,
    /// Where it begins, for later errors.
    pub place: RuleProblem,
    pub condition: ConditionExpr,
    /// Its actions with their phases, from `format::phase_for`.
    pub actions: Vec<(Phase, Action)>,
}

/// Whether an entry of the document's `rules` has one of these keys, in any case.
pub fn any_rule_has_key(document: &Value, keys: &[&str]) -> bool {
    let has = |rule: &Value| {
        rule.as_object().is_some_and(|map| map.keys().any(|k| keys.iter().any(|key| k.eq_ignore_ascii_case(key))))
    };
    let rules = document.as_object().and_then(|map| map.iter().find(|(k, _)| k.eq_ignore_ascii_case("rules")));
    rules.and_then(|(_, rules)| rules.as_array()).is_some_and(|rules| rules.iter().any(has))
}
