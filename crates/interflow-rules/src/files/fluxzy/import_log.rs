//! What reading a file of Fluxzy's yields: rules, errors and notes.

use interflow_types::Phase;

use super::node::{FluxzyNode, NodePathStep};
use crate::compiled::phase_names;
use crate::compiled::program::CompiledRule;
use crate::error::RuleProblem;
use crate::files::sources::{ParsedRuleFile, PathSegment};
use crate::matching::condition::ConditionExpr;

/// The result of reading a file.
#[derive(Default)]
pub(crate) struct FluxzyImport {
    /// The rules, each with its location for later errors.
    pub rules: Vec<(CompiledRule, RuleProblem)>,
    /// Errors that make the file unusable.
    pub problems: Vec<RuleProblem>,
    /// Notes about features that are broken, ignored or different in Fluxzy.
    pub notes: Vec<RuleProblem>,
}

/// Collects errors and notes while a rule is read.
pub(crate) struct ImportLog<'p> {
    pub parsed: &'p ParsedRuleFile,
    pub rule: String,
    pub read: FluxzyImport,
    pub errors: NetworkErrorUse,
}

/// How network errors count in a filter, which are known only when the flow has ended.
#[derive(Default)]
pub(crate) struct NetworkErrorUse {
    /// Whether the filter tests for them.
    pub seen: bool,
    /// Whether they match.
    pub count: bool,
}

impl ImportLog<'_> {
    pub fn problem_at(&self, node: &FluxzyNode<'_>, message: String) -> RuleProblem {
        let path: Vec<PathSegment<'_>> = node.path.iter().map(NodePathStep::as_segment).collect();
        self.parsed.problem(&path, Some(&self.rule), message)
    }

    /// Reports an error.
    pub fn problem(&mut self, node: &FluxzyNode<'_>, message: impl Into<String>) {
        let problem = self.problem_at(node, message.into());
        self.read.problems.push(problem);
    }

    /// Reports a note.
    pub fn note(&mut self, node: &FluxzyNode<'_>, message: impl Into<String>) {
        let note = self.problem_at(node, message.into());
        if !self.read.notes.contains(&note) {
            self.read.notes.push(note);
        }
    }
}

/// The phase for Fluxzy's scope name.
pub(crate) fn phase_by_name(ledger: &mut ImportLog<'_>, node: &FluxzyNode<'_>, text: &str) -> Option<Phase> {
    let phase = phase_names::find(text);
    match phase {
        None => {
            let names: Vec<&str> =
                phase_names::PHASE_NAMES.iter().flat_map(|(_, _, others)| others.iter().copied()).collect();
            ledger.problem(node, crate::error::unknown_key_message("moment", text, &names));
        }
        Some(Phase::RequestBody | Phase::ResponseBody) => {
            ledger.note(node, "Fluxzy never reaches this moment; here it is reached");
        }
        Some(_) => {}
    }
    phase
}

/// A condition on the tags that represent comments.
pub(crate) fn comment_condition(test: crate::matching::text_predicate::TextPredicate) -> ConditionExpr {
    ConditionExpr::Text(crate::matching::text_predicate::TextField::Tag, test)
}
