//! `interflow help rules`: matchers, actions and template values, from the tables that rule files are read with.

use interflow_rules::TEMPLATE_FACTS;
use interflow_rules::action::ACTIONS;
use interflow_rules::phase_names;

use crate::cli::output::wrap_words;

/// Width of the text, in characters.
const WIDTH: usize = 90;
/// Width of the column of names.
const NAMES: usize = 26;

/// What follows the help of the command.
pub fn text() -> String {
    let schema = serde_json::to_value(interflow_rules::schema()).unwrap_or_default();
    let matchers = schema["$defs"]["MatcherMap"]["properties"].as_object().cloned().unwrap_or_default();
    let mut out = String::from(
        "\nMatchers (`when:` is a query, as in `interflow help query`, or a map of these; all must hold):\n",
    );
    for (name, member) in &matchers {
        line(&mut out, name, member["description"].as_str().unwrap_or_default());
    }
    out.push_str("\nActions (`then:` is a list of these), with the phase in which each runs by default:\n");
    for a in ACTIONS {
        line(&mut out, a.name, &format!("({}) {}", phase_names::name(a.natural), a.doc.trim()));
    }
    out.push_str("\nValues in texts (`${host}`):\n");
    for (name, meaning) in TEMPLATE_FACTS.iter() {
        line(&mut out, name, meaning);
    }
    out.push_str("\n`interflow rules schema` describes the parameters of each action.\n");
    out
}

/// A name and its meaning, wrapped beside it.
fn line(out: &mut String, name: &str, meaning: &str) {
    let meaning = meaning.split_whitespace().collect::<Vec<_>>().join(" ");
    let row = wrap_words(&format!("  {name:<NAMES$} {meaning}"), NAMES + 3, Some(WIDTH));
    out.push_str(row.trim_end());
    out.push('\n');
}
