//! Why each rule did or did not match a flow, in which phase.

use interflow_flow::Phase;
use interflow_query::{Expr, Fact, Query, Subject, Term, Test, Truth};
use serde::Serialize;

use crate::cond::Cond;
use crate::phases;
use crate::program::{Program, Rule};
use crate::sample::Sample;
use crate::view::View;

/// What is said of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// The rule.
    pub rule: String,
    /// Its file and line.
    pub place: String,
    /// Whether it is for this flow.
    pub matches: bool,
    /// The phases in which it acts, each with what held there.
    pub phases: Vec<PhaseExplained>,
}

/// What held in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseExplained {
    /// The phase.
    pub phase: &'static str,
    /// `matched`, `no`, or `open` when what decides it had not come.
    pub outcome: &'static str,
    /// Why.
    pub why: String,
    /// The actions of this phase.
    pub actions: Vec<&'static str>,
}

/// Explains every rule, in the order in which they are asked. Each is asked of the flow as it was recorded: what an
/// earlier rule would have changed is not taken into account.
pub fn explain(program: &Program, sample: &Sample) -> Vec<Explained> {
    program.rules.iter().map(|rule| one(program, rule, sample)).collect()
}

fn one(program: &Program, rule: &Rule, sample: &Sample) -> Explained {
    let mut all = Vec::new();
    for phase in rule.phases() {
        let of = rule.actions.iter().filter(|(p, _)| *p == phase);
        let actions = of.map(|(_, a)| a.info().name).collect();
        let (truth, why) = if rule.enabled {
            in_phase(program, rule, sample, phase)
        } else {
            (Truth::Known(false), "it is not enabled".into())
        };
        let outcome = match truth {
            Truth::Known(true) => "matched",
            Truth::Known(false) => "no",
            Truth::NotYet => "open",
        };
        all.push(PhaseExplained { phase: phases::name(phase), outcome, why, actions });
    }
    let place = if rule.line > 0 { format!("{}:{}", rule.file, rule.line) } else { rule.file.clone() };
    let matches = all.iter().any(|p| p.outcome == "matched");
    Explained { rule: rule.name.clone(), place, matches, phases: all }
}

fn in_phase(program: &Program, rule: &Rule, sample: &Sample, phase: Phase) -> (Truth, String) {
    if phase >= Phase::ResponseHead && phase <= Phase::ResponseBody && sample.response.is_none() {
        return (Truth::Known(false), "there was no response".into());
    }
    if phase != Phase::Message {
        return judge(&rule.cond, &sample.view(phase, &program.constants));
    }
    if sample.messages.is_empty() {
        return (Truth::Known(false), "there was no message".into());
    }
    let mut last = None;
    for (i, message) in sample.messages.iter().enumerate() {
        let mut view = sample.view(phase, &program.constants);
        view.message = Some(message);
        let (truth, why) = judge(&rule.cond, &view);
        if truth.holds() {
            return (truth, format!("message {}: {why}", i + 1));
        }
        last = Some((truth, format!("no message fits; of the last: {why}")));
    }
    last.unwrap_or((Truth::NotYet, String::new()))
}

/// Whether a condition holds, and why; nothing is counted or drawn by lot.
fn judge(cond: &Cond, view: &View<'_>) -> (Truth, String) {
    match cond {
        Cond::And(parts) => all_of(parts.iter().map(|p| judge(p, view))),
        Cond::Or(parts) => one_of(parts.iter().map(|p| judge(p, view))),
        Cond::Not(inner) => {
            let (truth, why) = judge(inner, view);
            (!truth, format!("not: {why}"))
        }
        Cond::Query(query) => expr(query.expr(), view),
        Cond::Text(place, test) => {
            let truth = cond.ask(view);
            let seen = place.sample(view);
            let shown = match (truth, seen.is_empty()) {
                (Truth::NotYet, _) => format!("{} is not known yet", place.describe()),
                (_, true) => format!("there is no {}", place.describe()),
                (Truth::Known(true), _) => format!("{} {}", place.describe(), test.describe()),
                (Truth::Known(false), _) => {
                    format!(
                        "{} is {:?}; the rule asks for one that {}",
                        place.describe(),
                        seen.join(", "),
                        test.describe()
                    )
                }
            };
            (truth, shown)
        }
        Cond::Chance(_) | Cond::Every(..) | Cond::First(..) | Cond::Exec(_) => {
            (Truth::Known(true), format!("{} (taken to hold)", cond.describe()))
        }
        Cond::Always(true) => (Truth::Known(true), "it is for every flow".into()),
        other => {
            let truth = other.ask(view);
            let word = if truth.holds() { "" } else { "it does not hold that " };
            (truth, format!("{word}{}", other.describe()))
        }
    }
}

fn all_of(parts: impl Iterator<Item = (Truth, String)>) -> (Truth, String) {
    let mut held = Vec::new();
    let mut open: Option<String> = None;
    for (truth, why) in parts {
        match truth {
            Truth::Known(true) => held.push(why),
            Truth::Known(false) => return (truth, why),
            Truth::NotYet => {
                open.get_or_insert(why);
            }
        }
    }
    match open {
        Some(why) => (Truth::NotYet, why),
        None => (Truth::Known(true), held.join(", ")),
    }
}

fn one_of(parts: impl Iterator<Item = (Truth, String)>) -> (Truth, String) {
    let mut against = Vec::new();
    let mut so_far = Truth::Known(false);
    for (truth, why) in parts {
        if truth.holds() {
            return (truth, why);
        }
        so_far = so_far.or(truth);
        against.push(why);
    }
    (so_far, if against.is_empty() { "there is nothing that could hold".into() } else { against.join("; ") })
}

fn expr(e: &Expr, view: &View<'_>) -> (Truth, String) {
    match e {
        Expr::All => (Truth::Known(true), "it is for every flow".into()),
        Expr::And(parts) => all_of(parts.iter().map(|p| expr(p, view))),
        Expr::Or(parts) => one_of(parts.iter().map(|p| expr(p, view))),
        Expr::Not(inner) => {
            let (truth, why) = expr(inner, view);
            (!truth, format!("not: {why}"))
        }
        Expr::Term(term) => {
            let query = Query::from(Expr::Term(term.clone()));
            let truth = query.evaluate(view);
            let why = match (truth, fact(term, view)) {
                (Truth::Known(true), _) => query.to_string(),
                (Truth::NotYet, _) => format!("what {query} asks for is not known yet"),
                (Truth::Known(false), Some(is)) => format!("{} is {is}; the rule asks for {query}", term.key.name()),
                (Truth::Known(false), None) => format!("{query} does not hold"),
            };
            (truth, why)
        }
    }
}

/// What the flow has where a term asks.
fn fact(term: &Term, view: &View<'_>) -> Option<String> {
    match &term.test {
        Test::Number(_) => match view.number(term.key) {
            Fact::Is(n) => Some(n.to_string()),
            Fact::Absent => Some("not there".into()),
            Fact::NotYet => None,
        },
        Test::Text(_) | Test::Present if term.name.is_none() => {
            let mut seen = Vec::new();
            let _ = view.text(term.key, &mut |v| {
                seen.push(v.chars().take(80).collect::<String>());
                seen.len() == 3
            });
            (!seen.is_empty()).then(|| format!("{:?}", seen.join(", ")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{RulesConfig, Source, Surroundings};

    fn explained(when: &str, then: &str) -> PhaseExplained {
        let text = format!("rules: [{{when: {when}, then: {then}}}]");
        let program = Program::from_sources(
            vec![Source::text("r.yaml", text)],
            &RulesConfig::default(),
            Arc::new(Surroundings::default()),
        )
        .unwrap();
        let sample = Sample::get("http://a.test/x").responding(404, &[("Server", "nginx")], "gone").unwrap();
        let mut all = explain(&program, &sample);
        all.remove(0).phases.remove(0)
    }

    #[test]
    fn reasons_name_what_is_there_and_what_is_asked_for() {
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
            assert_eq!((got.phase, got.outcome, got.why.as_str()), (phase, outcome, why), "{when}");
        }
    }
}
