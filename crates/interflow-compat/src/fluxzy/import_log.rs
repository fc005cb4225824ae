//! What reading a file of Fluxzy's yields: rules, errors and notes.

use interflow_rules::format::{
    ConvertedRules, ParsedRuleFile, PathSegment, TextField, TextPredicate, unknown_key_message,
};
use interflow_rules::{ConditionExpr, RuleProblem, phase_names};
use interflow_types::Phase;

use super::node::{FluxzyNode, NodePathStep};

/// Collects errors and notes while a rule is read.
pub(crate) struct ImportLog<'p> {
    pub parsed: &'p ParsedRuleFile,
    pub rule: String,
    pub read: ConvertedRules,
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

impl FluxzyNode<'_> {
    pub fn problem_here(&self, message: impl Into<String>) -> RuleProblem {
        let path: Vec<PathSegment<'_>> = self.path.iter().map(NodePathStep::as_segment).collect();
        let log = self.log.borrow();
        log.parsed.problem(&path, Some(&log.rule), message.into())
    }

    /// Reports an error.
    pub fn problem(&self, message: impl Into<String>) {
        let problem = self.problem_here(message);
        self.log.borrow_mut().read.problems.push(problem);
    }

    /// Reports a note.
    pub fn note(&self, message: impl Into<String>) {
        let note = self.problem_here(message);
        let notes = &mut self.log.borrow_mut().read.notes;
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// Fluxzy's scopes, with the phase that each is here.
const SCOPES: [(&str, Phase); 6] = [
    ("onAuthorityReceived", Phase::Authority),
    ("requestHeaderReceivedFromClient", Phase::RequestHead),
    ("requestBodyReceivedFromClient", Phase::RequestBody),
    ("dnsSolveDone", Phase::UpstreamConnect),
    ("responseHeaderReceivedFromRemote", Phase::ResponseHead),
    ("responseBodyReceivedFromRemote", Phase::ResponseBody),
];

/// The phase for a scope; Interflow's names are known, too.
pub(crate) fn phase_by_name(node: &FluxzyNode<'_>, text: &str) -> Option<Phase> {
    let scope = SCOPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, phase)| *phase);
    let phase = scope.or_else(|| phase_names::find(text));
    match phase {
        None => node.problem(unknown_key_message("moment", text, &SCOPES.map(|(name, _)| name))),
        Some(Phase::RequestBody | Phase::ResponseBody) => {
            node.note("Fluxzy never reaches this moment; here it is reached");
        }
        Some(_) => {}
    }
    phase
}

/// A condition on the tags that represent comments.
pub(crate) fn comment_condition(test: TextPredicate) -> ConditionExpr {
    ConditionExpr::Text(TextField::Tag, test)
}
