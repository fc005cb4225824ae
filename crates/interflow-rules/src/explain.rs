//! Explains why each rule did or did not match a flow, phase by phase.

use interflow_query::{Expr, Fact, Query, QuerySubject, Term, TermTest, Tristate};
use interflow_types::schema::JsonSchema;
use interflow_types::{Phase, RequestHead};
use serde::Serialize;

use crate::compiled::phase_names;
use crate::compiled::program::{CompiledRule, RuleProgram};
use crate::flow::fixture::FlowFixture;
use crate::flow::view::FlowView;
use crate::host_rules::judge;
use crate::matching::condition::ConditionExpr;

/// The explanation of one rule for one recorded flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RuleExplanation {
    pub rule: String,
    /// Its file and line, as `file:line`.
    pub location: String,
    /// Whether it matches this flow in at least one phase.
    pub matches: bool,
    /// The phases in which it has actions.
    pub phases: Vec<PhaseExplanation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PhaseExplanation {
    pub phase: &'static str,
    pub outcome: PhaseOutcome,
    pub why: String,
    /// Names of the actions of this phase.
    pub actions: Vec<&'static str>,
}

interflow_types::labelled_enum! {
    /// Whether a rule's condition holds in a phase.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum PhaseOutcome {
        Matched "matched",
        No "no",
        /// The deciding data was not available in this phase, or was not recorded.
        Open "open",
    }
}

/// Explains every rule in order of evaluation. Each is evaluated on the flow as recorded: changes by earlier rules are
/// not taken into account.
pub fn explain(program: &RuleProgram, sample: &FlowFixture) -> Vec<RuleExplanation> {
    program.rules.iter().map(|rule| explain_rule(program, rule, sample)).collect()
}

fn explain_rule(program: &RuleProgram, rule: &CompiledRule, sample: &FlowFixture) -> RuleExplanation {
    let mut all = Vec::new();
    for phase in rule.phases() {
        let of = rule.actions.iter().filter(|(p, _)| *p == phase);
        let actions = of.map(|(_, a)| a.info().name).collect();
        let (truth, why) = if rule.enabled {
            explain_phase(program, rule, sample, phase)
        } else {
            (Tristate::Known(false), "it is not enabled".into())
        };
        let outcome = match truth {
            Tristate::Known(true) => PhaseOutcome::Matched,
            Tristate::Known(false) => PhaseOutcome::No,
            Tristate::NotYet => PhaseOutcome::Open,
        };
        all.push(PhaseExplanation { phase: phase_names::name(phase), outcome, why, actions });
    }
    let location = if rule.line > 0 { format!("{}:{}", rule.file, rule.line) } else { rule.file.clone() };
    let matches = all.iter().any(|p| p.outcome == PhaseOutcome::Matched);
    RuleExplanation { rule: rule.name.clone(), location, matches, phases: all }
}

/// Evaluates the rule in one phase; in the message phase, on each message until one matches.
fn explain_phase(program: &RuleProgram, rule: &CompiledRule, sample: &FlowFixture, phase: Phase) -> (Tristate, String) {
    if phase >= Phase::ResponseHead && phase <= Phase::ResponseBody && sample.response.is_none() {
        return (Tristate::Known(false), "there was no response".into());
    }
    let explained = |message| {
        let evaluate = |other: Option<&RequestHead>| {
            let mut view = sample.view(phase, &program.constants);
            (view.message, view.request) = (message, other.or(view.request));
            explain_condition(&rule.cond, &view)
        };
        let (truth, why) = judge(rule.judged, sample.view(phase, &program.constants).request, evaluate);
        (truth, if why.is_empty() { "an origin may read this path in a way that is not known".into() } else { why })
    };
    if phase != Phase::Message {
        return explained(None);
    }
    let mut last = (Tristate::Known(false), "there was no message".into());
    for (i, message) in sample.messages.iter().enumerate() {
        let (truth, why) = explained(Some(message));
        if truth.holds() {
            return (truth, format!("message {}: {why}", i + 1));
        }
        last = (truth, format!("no message fits; of the last: {why}"));
    }
    last
}

/// Evaluates a condition and gives the reason, without side effects on counters and without randomness: explaining a
/// flow must not change what happens to the next one.
fn explain_condition(cond: &ConditionExpr, view: &FlowView<'_>) -> (Tristate, String) {
    match cond {
        ConditionExpr::And(parts) => explain_all(parts.iter().map(|p| explain_condition(p, view))),
        ConditionExpr::Or(parts) => explain_any(parts.iter().map(|p| explain_condition(p, view))),
        ConditionExpr::Not(inner) => {
            let (truth, why) = explain_condition(inner, view);
            (!truth, format!("not: {why}"))
        }
        ConditionExpr::Query(query) => explain_expr(query.expr(), view),
        ConditionExpr::Text(place, test) => {
            let truth = cond.evaluate(view);
            let samples = place.sample_values(view);
            let detail = match (truth, samples.is_empty()) {
                (Tristate::NotYet, _) => format!("{} is not known yet", place.describe()),
                (_, true) => format!("there is no {}", place.describe()),
                (Tristate::Known(true), _) => format!("{} {}", place.describe(), test.describe()),
                (Tristate::Known(false), _) => {
                    format!(
                        "{} is {:?}; the rule asks for one that {}",
                        place.describe(),
                        samples.join(", "),
                        test.describe()
                    )
                }
            };
            (truth, detail)
        }
        ConditionExpr::Chance(_) | ConditionExpr::Every(..) | ConditionExpr::First(..) | ConditionExpr::Exec(_) => {
            (Tristate::Known(true), format!("{} (taken to hold)", cond.describe()))
        }
        ConditionExpr::Always(true) => (Tristate::Known(true), "it is for every flow".into()),
        other => {
            let truth = other.evaluate(view);
            let word = if truth.holds() { "" } else { "it does not hold that " };
            (truth, format!("{word}{}", other.describe()))
        }
    }
}

/// The conjunction with its reason: the first part that fails, else the first that is unknown, else all of them.
fn explain_all(parts: impl Iterator<Item = (Tristate, String)>) -> (Tristate, String) {
    let mut held = Vec::new();
    let mut open: Option<String> = None;
    for (truth, why) in parts {
        match truth {
            Tristate::Known(true) => held.push(why),
            Tristate::Known(false) => return (truth, why),
            Tristate::NotYet => {
                open.get_or_insert(why);
            }
        }
    }
    if let Some(why) = open { (Tristate::NotYet, why) } else { (Tristate::Known(true), held.join(", ")) }
}

/// The disjunction with its reason: the part that holds, else why none does.
fn explain_any(parts: impl Iterator<Item = (Tristate, String)>) -> (Tristate, String) {
    let mut against = Vec::new();
    let mut so_far = Tristate::Known(false);
    for (truth, why) in parts {
        if truth.holds() {
            return (truth, why);
        }
        so_far = so_far.or(truth);
        against.push(why);
    }
    (so_far, if against.is_empty() { "there is nothing that could hold".into() } else { against.join("; ") })
}

fn explain_expr(e: &Expr, view: &FlowView<'_>) -> (Tristate, String) {
    match e {
        Expr::All => (Tristate::Known(true), "it is for every flow".into()),
        Expr::And(parts) => explain_all(parts.iter().map(|p| explain_expr(p, view))),
        Expr::Or(parts) => explain_any(parts.iter().map(|p| explain_expr(p, view))),
        Expr::Not(inner) => {
            let (truth, why) = explain_expr(inner, view);
            (!truth, format!("not: {why}"))
        }
        Expr::Term(term) => {
            let query = Query::from(Expr::Term(term.clone()));
            let truth = query.evaluate(view);
            let why = match (truth, observed_fact(term, view)) {
                (Tristate::Known(true), _) => query.to_string(),
                (Tristate::NotYet, _) => format!("what {query} asks for is not known yet"),
                (Tristate::Known(false), Some(is)) => format!("{} is {is}; the rule asks for {query}", term.key.name()),
                (Tristate::Known(false), None) => format!("{query} does not hold"),
            };
            (truth, why)
        }
    }
}

/// The flow's actual value for a term of a query, shortened; `None` if it is not known.
fn observed_fact(term: &Term, view: &FlowView<'_>) -> Option<String> {
    match &term.test {
        TermTest::Number(_) => match view.number(term.key) {
            Fact::Is(n) => Some(n.to_string()),
            Fact::Absent => Some("not there".into()),
            Fact::NotYet => None,
        },
        TermTest::Text(_) | TermTest::Present if term.name.is_none() => {
            let mut values = Vec::new();
            let _ = view.text(term.key, &mut |v| {
                values.push(v.chars().take(80).collect::<String>());
                values.len() == 3
            });
            (!values.is_empty()).then(|| format!("{:?}", values.join(", ")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{RuleFileSource, RuleRuntime, RulesConfig};

    fn explained(when: &str, then: &str) -> PhaseExplanation {
        let sample =
            FlowFixture::for_get("http://a.test/x").with_response(404, &[("Server", "nginx")], "gone").unwrap();
        explained_for(&sample, when, then)
    }

    fn explained_for(sample: &FlowFixture, when: &str, then: &str) -> PhaseExplanation {
        let text = format!("rules: [{{when: {when}, then: {then}}}]");
        let program = RuleProgram::from_sources(
            vec![RuleFileSource::from_text("r.yaml", text)],
            &RulesConfig::default(),
            Arc::new(RuleRuntime::default()),
        )
        .unwrap();
        let mut all = explain(&program, sample);
        all.remove(0).phases.remove(0)
    }

    #[test]
    fn paths_are_explained_in_the_interpretation_that_decides() {
        for (path, then, outcome, why) in [
            ("/pub/%2e%2e/admin/x", "block", "matched", "path:/admin/*"),
            ("/admin/../x", "stop", "no", "path is \"/x\"; the rule asks for path:/admin/*"),
            ("/admin/%00", "stop", "no", "an origin may read this path in a way that is not known"),
            (
                "/pub/%2e%2e/admin/x",
                "{set_method: GET}",
                "no",
                "path is \"/pub/%2e%2e/admin/x\"; the rule asks for path:/admin/*",
            ),
        ] {
            let sample = FlowFixture::for_get(&format!("http://a.test{path}"));
            let got = explained_for(&sample, "'path:/admin/*'", then);
            assert_eq!((got.outcome.as_str(), got.why.as_str()), (outcome, why), "{path} {then}");
        }
    }

    #[test]
    fn explanations_give_actual_and_expected_values() {
        for (when, then, phase, outcome, why) in [
            ("'host:b.test'", "abort", "request", "no", "host is \"a.test\"; the rule asks for host:b.test"),
            ("'host:a.test path:/x'", "abort", "request", "matched", "host:a.test, path:\"/x\""),
            ("'status:500'", "{set_status: 200}", "response", "no", "status is 404; the rule asks for status:500"),
            ("{path: /y}", "abort", "request", "no", "path is \"/x\"; the rule asks for one that is \"/y\""),
            ("{cookie: {sid: 1}}", "abort", "request", "no", "there is no cookie sid"),
            ("{not: 'host:a.test'}", "abort", "request", "no", "not: host:a.test"),
            (
                "{any: ['host:b.test', {path: /z}]}",
                "abort",
                "request",
                "no",
                "path is \"/x\"; the rule asks for one that is \"/z\"; host is \"a.test\"; the rule asks for host:b.test",
            ),
            ("{chance: 0}", "abort", "request", "matched", "chance 0 (taken to hold)"),
            (
                "{response_body: {contains: gone}}",
                "{set_status: 200}",
                "response_body",
                "matched",
                "response body contains \"gone\"",
            ),
            ("'is:websocket'", "drop_message", "message", "no", "there was no message"),
        ] {
            let got = explained(when, then);
            assert_eq!((got.phase, got.outcome.as_str(), got.why.as_str()), (phase, outcome, why), "{when}");
        }
    }
}
