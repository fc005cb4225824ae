//! The rule file format.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use crate::action::ActionList;
use crate::compiled::expect::Expectation;
use crate::compiled::phase_names;
use crate::files::constant::FileConstant;
use crate::matching::matchers::RuleCondition;
use crate::service::ServiceDef;
use crate::text::shape::written_schema;
use crate::text::string_list::OneOrManyStrings;

/// A rule file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuleFile {
    /// Other rule files, relative to this one, that are evaluated before it.
    pub include: IncludeFiles,
    /// Constants: `${var.NAME}` in every rule.
    pub variables: BTreeMap<String, FileConstant>,
    /// Services for `call`, by name.
    pub services: BTreeMap<String, ServiceDef>,
    /// The rules, in order of evaluation.
    pub rules: Vec<RuleDef>,
    /// Tests of the rules, run by `interflow rules test`.
    pub tests: Vec<Expectation>,
}

/// A rule.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuleDef {
    /// Its name in metrics, explanations and logs; derived from its position when absent.
    pub name: Option<String>,
    /// Which flows it matches: a query, or matchers by name. Every flow when absent.
    pub when: RuleCondition,
    /// Its actions, in order.
    pub then: ActionList,
    /// The phase in which it acts, if not the natural one: connect, hello, request, request_body, dial, response,
    /// response_body, message or done.
    pub phase: Option<PhaseName>,
    /// Whether it is enabled; true when absent.
    pub enabled: Option<bool>,
    /// Whether later rules of the phase are skipped once it matched.
    pub stop: bool,
}

/// The name of a phase.
#[derive(Clone, Copy, Debug)]
pub struct PhaseName(pub interflow_types::Phase);

impl<'de> Deserialize<'de> for PhaseName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        phase_names::find(&text).map(Self).ok_or_else(|| {
            let names: Vec<&str> = phase_names::PHASES.iter().map(|p| p.name).collect();
            de::Error::custom(interflow_query::unknown_key_message("phase", &text, &names))
        })
    }
}

written_schema!(PhaseName, "Phase", |_| {
    let names: Vec<&str> = phase_names::PHASES.iter().map(|p| p.name).collect();
    json_schema!({ "type": "string", "enum": names })
});

/// One file or several.
#[derive(Debug, Default)]
pub struct IncludeFiles(pub Vec<PathBuf>);

impl<'de> Deserialize<'de> for IncludeFiles {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        OneOrManyStrings::deserialize(d).map(|t| Self(t.0.into_iter().map(PathBuf::from).collect()))
    }
}

written_schema!(IncludeFiles, "Files", |g| OneOrManyStrings::json_schema(g));

/// The JSON Schema of a rule file, generated from its types.
#[cfg(feature = "schema")]
pub fn generate_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(RuleFile).to_value();
    schema["title"] = "Interflow rules".into();
    schema
}

/// The JSON Schema of a rule file: the committed form of what is generated.
pub fn schema() -> serde_json::Value {
    serde_json::from_str(include_str!("../../../../docs/reference/schemas/rules.json")).expect("a test parses it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_contains_every_action_and_its_references_resolve() {
        let schema = schema();
        let text = schema.to_string();
        for action in crate::action::ACTIONS {
            assert!(text.contains(&format!("\"{}\"", action.name)), "{}", action.name);
        }
        for part in text.split("#/$defs/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schema["$defs"].get(name).is_some(), "{name}");
        }
    }
}
