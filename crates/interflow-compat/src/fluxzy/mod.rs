//! Import of Fluxzy's rule files: filters and actions become Interflow's conditions and actions. Features that are
//! broken or silently ignored in Fluxzy are reported, with Interflow's behaviour.

mod actions;
mod filters;
mod import_log;
mod node;

use interflow_rules::format::{ConvertedRule, ConvertedRules, ParsedRuleFile, RuleFormat, any_rule_has_key, phase_for};
use interflow_types::Phase;
use serde_json::Value;

use import_log::{ImportLog, NetworkErrorUse};
use node::FluxzyNode;

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
        let mut ledger = ImportLog {
            parsed: file,
            rule: String::new(),
            read: ConvertedRules::default(),
            errors: NetworkErrorUse::default(),
        };
        let root = FluxzyNode::root(document);
        let Some(rules) = root.get("rules") else { return ledger.read };
        root.report_unknown(&mut ledger);
        for (i, entry) in rules.items().into_iter().enumerate() {
            ledger.rule = entry
                .get("name")
                .and_then(|n| n.text())
                .filter(|n| !n.is_empty())
                .unwrap_or_else(|| format!("rule {}", i + 1));
            convert_rule(&mut ledger, &entry);
        }
        ledger.read
    }
}

fn convert_rule(ledger: &mut ImportLog<'_>, entry: &FluxzyNode<'_>) {
    let filter = entry.get("filter");
    if entry.get("order").is_some() {
        ledger.note(
            entry,
            "`order` is read and never used by Fluxzy: rules are asked in the order of the file, here too",
        );
    }
    let mut nodes: Vec<FluxzyNode<'_>> = entry.get("action").into_iter().collect();
    nodes.extend(entry.get("actions").into_iter().flat_map(|a| a.items()));
    entry.report_unknown(ledger);
    let Some(filter) = filter else {
        return ledger.problem(entry, "the rule has no filter: `filter: {typeKind: any}` is for every flow");
    };
    if nodes.is_empty() {
        return ledger.problem(entry, "the rule has no action");
    }
    let before = ledger.read.problems.len();
    ledger.errors = NetworkErrorUse::default();
    let cond = filters::read(ledger, &filter);
    let at_the_end = ledger.errors.seen.then(|| {
        ledger.errors.count = true;
        filters::read(ledger, &filter)
    });
    let mut actions = Vec::new();
    let mut last_actions = Vec::new();
    let mut moments: Vec<Phase> = Vec::new();
    for node in &nodes {
        for (phase, action) in actions::read(ledger, node) {
            if at_the_end.is_some() && action.info().latest == Phase::Done {
                last_actions.push((Phase::Done, action));
                continue;
            }
            match phase_for(&action, &cond, phase, None) {
                Ok(phase) => {
                    moments.push(phase);
                    actions.push((phase, action));
                }
                Err(message) => {
                    let message = format!("{message} (Fluxzy never runs it, and does not say so)");
                    ledger.problem(node, message);
                }
            }
        }
    }
    moments.sort_unstable();
    moments.dedup();
    if moments.len() > 1 && moments.first().is_some_and(|first| cond.phase() > *first) {
        ledger.note(
            &filter,
            "Fluxzy decides the filter at the earliest of the actions' moments and keeps the answer, so that later actions never run; here it is decided once it can be",
        );
    }
    if ledger.read.problems.len() > before {
        return;
    }
    let position = ledger.problem_at(entry, String::new());
    for (cond, actions) in [Some((cond, actions)), at_the_end.map(|c| (c, last_actions))].into_iter().flatten() {
        if actions.is_empty() {
            continue;
        }
        let rule = ConvertedRule { name: ledger.rule.clone(), place: position.clone(), condition: cond, actions };
        ledger.read.rules.push(rule);
    }
}
