//! A rule that holds the requests to one host and path: added to a rule file of the instance, and taken out again.

use interflow_store::FlowSummary;
use serde_json::{Value, json};

use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::members;

/// What the rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldTarget {
    host: String,
    port: u16,
    /// Without the query.
    path: String,
}

/// A rule that was added, and the text of its file before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRule {
    pub target: HoldTarget,
    file: String,
    before: String,
    after: String,
}

impl HoldTarget {
    /// `None` for a tunnel, which has no path.
    pub fn from_flow(flow: &FlowSummary) -> Option<Self> {
        let path = flow.path.as_deref()?;
        Some(Self {
            host: flow.authority.host.to_string(),
            port: flow.authority.port,
            path: path.split('?').next().unwrap_or_default().to_owned(),
        })
    }

    fn name(&self) -> String {
        format!("hold {}:{}{}", self.host, self.port, self.path)
    }

    /// The rule as a text of a rule file, in the format of this file.
    fn rule(&self, file: &str) -> String {
        // Strings in JSON are strings in YAML and TOML, too.
        let quoted = |text: &str| Value::from(text).to_string();
        let host = self.host.trim_matches(['[', ']']);
        let term = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let when = format!("host:={} port:{} path:={}", term(host), self.port, term(&self.path));
        let (name, when) = (quoted(&self.name()), quoted(&when));
        if file.ends_with(".toml") {
            format!("[[rules]]\nname = {name}\nwhen = {when}\nthen = \"hold\"\n")
        } else {
            format!("rules:\n  - name: {name}\n    when: {when}\n    then: hold\n")
        }
    }
}

/// Adds the rule at the end of the first rule file.
///
/// # Errors
/// The instance has no rule file, or refuses the rule.
pub fn add(api: &InstanceApi, target: &HoldTarget) -> Result<HoldRule, String> {
    let message = |e: crate::CliError| e.to_string();
    let view = api.call(&OperationId::ListRules.call()).map_err(message)?;
    let file = view["files"][0].as_str().ok_or("the instance has no rule file: name one in rules.files")?.to_owned();
    if members(&view, "rules").any(|rule| rule["name"] == target.name().as_str()) {
        return Err(format!("{file} has the rule `{}` already", target.name()));
    }
    let before = source(api, &file)?;
    let proposal = json!({ "text": target.rule(&file), "reason": "hold, by `interflow top`" });
    let proposal = api.call(&OperationId::ProposeRules.call().body(proposal)).map_err(message)?;
    let id = &proposal["id"];
    if let Err(e) = api.call(&OperationId::ApplyProposal.call().path(id).body(json!({ "file": file }))) {
        let _ = api.call(&OperationId::DismissProposal.call().path(id));
        return Err(message(e));
    }
    let after = source(api, &file)?;
    Ok(HoldRule { target: target.clone(), file, before, after })
}

/// Takes the rule out again, unless the file was changed since.
///
/// # Errors
/// The file was changed, or cannot be written.
pub fn remove(api: &InstanceApi, rule: &HoldRule) -> Result<String, String> {
    let change = json!({ "text": rule.before, "base": rule.after });
    let save = OperationId::SaveRules.call().query("file", &rule.file).body(change);
    api.call(&save).map_err(|e| e.to_string())?;
    Ok(format!("removed from {}: {}", rule.file, rule.target.name()))
}

/// What to tell about a rule that was added.
pub fn added(rule: &HoldRule) -> String {
    format!("added to {}: {}; B again removes it", rule.file, rule.target.name())
}

/// The text of a rule file; a default one may not exist yet.
fn source(api: &InstanceApi, file: &str) -> Result<String, String> {
    let answer = api.call(&OperationId::RuleSource.call().query("file", file)).map_err(|e| e.to_string())?;
    answer["text"].as_str().map(str::to_owned).ok_or_else(|| format!("{file} cannot be read"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use interflow_rules::{RuleFileSource, RuleProgram, RulesConfig};

    use super::*;

    #[test]
    fn the_rule_is_valid_in_both_formats_whatever_the_path() {
        for path in ["/", "/a b/\"c\"\\d", "/*/~x&y|(z)", "/ü"] {
            let target = HoldTarget { host: "[::1]".into(), port: 8080, path: path.into() };
            for file in ["rules.yaml", "rules.toml"] {
                let text = target.rule(file);
                let source = RuleFileSource::from_text(file, text.clone());
                let program = RuleProgram::from_sources(vec![source], &RulesConfig::default(), Arc::default());
                let program = program.unwrap_or_else(|e| panic!("{text}: {e:?}"));
                assert_eq!(program.rules.len(), 1, "{text}");
            }
        }
    }
}
