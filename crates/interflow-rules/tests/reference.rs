//! The reference page of rules, `docs/reference/rules.md`, made from the tables of actions, phases and variables and
//! the JSON Schema of rule files.

use std::fmt::Write as _;

use interflow_rules::action::{ACTIONS, ActionInfo};
use interflow_rules::{TEMPLATE_FACTS, TEMPLATE_FAMILIES, generate_schema, phase_names};
use interflow_testkit::docs::{check_reference_page, check_schema};
use interflow_testkit::json_schema::{self, cell, resolve};
use serde_json::Value;

const BEGINNING: &str = "\
# Rules

<!-- Generated from the code by `make docs`; do not edit. -->

A rule file, in YAML or TOML, holds rules: each selects flows with `when` and applies the actions of `then` to them.
[The guide](../guides/rules.md) shows how to use them, and [Fluxzy's rules](../migration/fluxzy.md#all-filters-and-actions) which of Fluxzy's filters and actions are understood.
`interflow rules schema` prints the JSON Schema of a rule file, `interflow rules check FILE` checks one.

```yaml
rules:
  - name: slow staging
    when: host:staging.example.com
    then:
      - delay: 500ms
      - add_response_header: { X-Slow: \"yes\" }
```
";

#[test]
fn the_reference_page_is_current() {
    check_schema("rules.json", &generate_schema());
    check_reference_page("rules.md", &page());
}

fn page() -> String {
    let schema = generate_schema();
    let mut page = String::from(BEGINNING);
    page.push_str("\n## Rule files\n\nThe keys of a rule file:\n\n");
    page.push_str(&json_schema::markdown_table(&schema, &schema, "key"));
    table(&mut page, &schema, "### Rules", "An entry of `rules`:", "RuleDef");
    table(&mut page, &schema, "### Services", "An entry of `services`, for [`call`](#call):", "ServiceDef");
    table(&mut page, &schema, "### Tests", "An entry of `tests`, which `interflow rules test` runs:", "Expectation");
    table(&mut page, &schema, "", "`request` of a test:", "TestRequest");
    table(&mut page, &schema, "", "`response` of a test:", "TestResponse");
    table(&mut page, &schema, "", "`expect` of a test; keys that are absent are not checked:", "ExpectedOutcome");
    table(&mut page, &schema, "", "`request` and `response` of `expect`:", "MessageExpectation");
    phases(&mut page);
    let matchers = "`when` is a [query](query.md), or a table of these matchers, all of which must match:";
    table(&mut page, &schema, "## Matchers", matchers, "MatcherMap");
    let patterns = "A *text pattern* is a text that must match as a whole, in either case, in which `*` stands for anything; \
                    a list of patterns, one of which must match; or a table with one of these forms:";
    table(&mut page, &schema, "### Text patterns", patterns, "PatternMap");
    let hosts = "\nA *host pattern* is `example.com` (this name), `*.example.com` (its subdomains), `.example.com` (both), an \
                 address or a network, each with an optional port; a list of them; or a table as above.\n\n\
                 *Names, or patterns by name* is a name that must be present, a list of such names, or a table of text patterns.\n";
    page.push_str(hosts);
    variables(&mut page);
    actions(&mut page, &schema);
    page
}

/// A section with the table of a definition's members.
fn table(page: &mut String, schema: &Value, heading: &str, intro: &str, definition: &str) {
    let heading = if heading.is_empty() { String::new() } else { format!("\n{heading}\n") };
    let object = &schema["$defs"][definition];
    assert!(object["properties"].is_object(), "{definition} has no members");
    let _ = write!(page, "{heading}\n{intro}\n\n{}", json_schema::markdown_table(object, schema, "key"));
}

fn phases(page: &mut String) {
    page.push_str(
        "\n## Phases\n\nAn action runs in its default phase, or in the first later one in which its condition is known. \
         `phase` of a rule selects another.\n\n| phase | also | when |\n|---|---|---|\n",
    );
    for phase in phase_names::PHASES {
        let also: Vec<_> = phase.aliases.iter().map(|a| format!("`{a}`")).collect();
        let _ = writeln!(page, "| `{}` | {} | {} |", phase.name, also.join(", "), phase.doc);
    }
}

fn variables(page: &mut String) {
    page.push_str(
        "\n## Variables\n\nA *template* is a text in which `${…}` stands for these values. What is absent is an empty text, an \
         unknown variable is an error, and `$${` is a plain `${`. A *replacement* may also contain `$1` for the first group of the \
         regex.\n\n| variable | value |\n|---|---|\n",
    );
    for (name, doc) in TEMPLATE_FACTS.iter() {
        let _ = writeln!(page, "| `${{{name}}}` | {} |", cell(doc));
    }
    for family in TEMPLATE_FAMILIES {
        let _ = writeln!(page, "| `${{{}NAME}}` | {} |", family.prefix, cell(family.doc));
    }
    page.push_str("| `${previous}` | value that the action replaces |\n");
}

fn actions(page: &mut String, schema: &Value) {
    page.push_str(
        "\n## Actions\n\n`then` is an action, a list of actions, or a table of several. An action without required parameters may be \
         written as its name alone.\n\n| action | default phase | does |\n|---|---|---|\n",
    );
    for action in ACTIONS {
        let (name, phase) = (action.name, phase_names::name(action.natural));
        let _ = writeln!(page, "| [`{name}`](#{name}) | `{phase}` | {} |", cell(action.doc));
    }
    let forms = schema["$defs"]["Action"]["anyOf"].as_array().expect("the schema lists the actions");
    for action in ACTIONS {
        let params = forms
            .iter()
            .find_map(|form| form["properties"].get(action.name))
            .unwrap_or_else(|| panic!("the schema does not have {}", action.name));
        section(page, action, params, schema);
    }
}

fn section(page: &mut String, action: &ActionInfo, params: &Value, schema: &Value) {
    let [earliest, natural, latest] = [action.earliest, action.natural, action.latest].map(phase_names::name);
    let phases = match (earliest == latest, earliest == natural) {
        (true, _) => format!("Phase: `{natural}`."),
        (false, true) => format!("Phases: `{earliest}` (default) to `{latest}`."),
        (false, false) => format!("Phases: `{earliest}` to `{latest}`, by default `{natural}`."),
    };
    let doc = action.doc.trim();
    let _ = write!(page, "\n### `{}`\n\n{doc}\n{phases}\nExample: `{}`\n", action.name, action.example());
    parameters(page, params, schema);
}

/// What an action takes: parameters by name, one value, or nothing.
fn parameters(page: &mut String, params: &Value, schema: &Value) {
    let target = resolve(params, schema);
    let forms = target["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
    if forms.iter().any(|f| f["type"] == "null") {
        page.push_str("It has no parameters.\n");
    } else if let [short, map] = forms
        && let Some(field) = short["description"].as_str()
    {
        let table = json_schema::markdown_table(resolve(map, schema), schema, "parameter");
        let _ = write!(page, "A single value is {field}.\n\n{table}");
    } else if target["properties"].is_object() {
        let _ = write!(page, "\n{}", json_schema::markdown_table(target, schema, "parameter"));
    } else {
        let _ = writeln!(page, "It takes a value: {}.", json_schema::type_name(params, schema));
    }
}
