//! Import of Fluxzy's rule files: filters and actions become Interflow's conditions and actions. Features that are
//! broken or silently ignored in Fluxzy are reported, with Interflow's behaviour.

mod actions;
mod filters;
mod node;
mod scopes;

use std::cell::RefCell;

use interflow_rules::format::{ConvertedRule, ConvertedRules, ParsedRuleFile, RuleFormat, any_rule_has_key, phase_for};
use interflow_types::Phase;
use serde_json::Value;

use node::{FluxzyNode, ImportLog, NetworkErrorUse};

pub use actions::KINDS as ACTION_KINDS;
pub use filters::KINDS as FILTER_KINDS;

/// An entry with one of these keys makes a file one of Fluxzy's.
const RULE_KEYS: &[&str] = &["filter", "action", "actions"];

/// The format of Fluxzy's rule files.
#[derive(Debug)]
pub struct FluxzyFormat;

impl RuleFormat for FluxzyFormat {
    fn detect(&self, document: &Value) -> bool {
        any_rule_has_key(document, RULE_KEYS)
    }

    fn convert(&self, document: &Value, file: &ParsedRuleFile) -> ConvertedRules {
        let (read, errors) = (ConvertedRules::default(), NetworkErrorUse::default());
        let log = RefCell::new(ImportLog { parsed: file, rule: String::new(), read, errors });
        let root = FluxzyNode::root(document, &log);
        let Some(rules) = root.get("rules") else { return ConvertedRules::default() };
        root.report_unknown();
        for (i, entry) in rules.items().into_iter().enumerate() {
            let name = entry.text_of("name").filter(|n| !n.is_empty());
            log.borrow_mut().rule = name.unwrap_or_else(|| format!("rule {}", i + 1));
            convert_rule(&entry);
        }
        std::mem::take(&mut log.borrow_mut().read)
    }
}

fn convert_rule(entry: &FluxzyNode<'_>) {
    let filter = entry.get("filter");
    if entry.get("order").is_some() {
        entry.note("`order` is read and never used by Fluxzy: rules are asked in the order of the file, here too");
    }
    let mut nodes: Vec<FluxzyNode<'_>> = entry.get("action").into_iter().collect();
    nodes.extend(entry.get("actions").into_iter().flat_map(|a| a.items()));
    entry.report_unknown();
    let Some(filter) = filter else {
        return entry.problem("the rule has no filter: `filter: {typeKind: any}` is for every flow");
    };
    if nodes.is_empty() {
        return entry.problem("the rule has no action");
    }
    let before = entry.log.borrow().read.problems.len();
    entry.log.borrow_mut().errors = NetworkErrorUse::default();
    let cond = filters::read(&filter);
    let tests_errors = entry.log.borrow().errors.seen;
    let at_the_end = tests_errors.then(|| {
        entry.log.borrow_mut().errors.count = true;
        filters::read(&filter)
    });
    let mut actions = Vec::new();
    let mut last_actions = Vec::new();
    let mut moments: Vec<Phase> = Vec::new();
    for node in &nodes {
        if let Some((phase, action)) = actions::read(node) {
            if at_the_end.is_some() && action.info().latest == Phase::Done {
                last_actions.push((Phase::Done, action));
                continue;
            }
            match phase_for(&action, &cond, phase, None) {
                Ok(phase) => {
                    moments.push(phase);
                    actions.push((phase, action));
                }
                Err(message) => node.problem(format!("{message} (Fluxzy never runs it, and does not say so)")),
            }
        }
    }
    moments.sort_unstable();
    moments.dedup();
    if moments.len() > 1 && moments.first().is_some_and(|first| cond.phase() > *first) {
        filter.note("Fluxzy decides the filter at the earliest of the actions' moments and keeps the answer, so that later actions never run; here it is decided once it can be");
    }
    if entry.log.borrow().read.problems.len() > before {
        return;
    }
    let position = entry.problem_here("");
    for (cond, actions) in [Some((cond, actions)), at_the_end.map(|c| (c, last_actions))].into_iter().flatten() {
        if actions.is_empty() {
            continue;
        }
        let rule =
            ConvertedRule { name: entry.log.borrow().rule.clone(), place: position.clone(), condition: cond, actions };
        entry.log.borrow_mut().read.rules.push(rule);
    }
}
