//! Built-in rules for known agents, package registries and code hosts. The data is in `presets.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use interflow_codec::document::from_toml;
use serde::{Deserialize, Serialize};

use super::config::RuleSpec;

/// A named set of rules.
#[derive(Clone, Debug, Serialize)]
pub struct RulePreset {
    /// Its name in the configuration.
    pub name: String,
    pub about: String,
    pub rules: Vec<RuleSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PresetEntry {
    about: String,
    rule: Vec<RuleSpec>,
}

static ALL: LazyLock<Vec<RulePreset>> = LazyLock::new(|| {
    let written: BTreeMap<String, PresetEntry> =
        from_toml(include_str!("presets.toml")).expect("the presets that come with the program are right");
    let preset = |(name, w): (String, PresetEntry)| {
        // Presets allow port 443 only.
        let ports = || vec!["443".to_owned()];
        let rule = |rule: RuleSpec| RuleSpec { ports: ports(), note: Some(format!("preset {name}")), ..rule };
        RulePreset { rules: w.rule.into_iter().map(rule).collect(), about: w.about, name }
    };
    written.into_iter().map(preset).collect()
});

pub fn all() -> &'static [RulePreset] {
    &ALL
}

/// # Errors
/// There is none; lists the available names.
pub fn find(name: &str) -> Result<&'static RulePreset, String> {
    ALL.iter().find(|p| p.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|p| p.name.as_str()).collect();
        format!("there is no preset `{name}`; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule_set::{ApprovalRule, RuleSource};

    #[test]
    fn every_preset_has_valid_rules_with_hosts() {
        assert!(all().len() >= 25);
        for preset in all() {
            assert!(!preset.about.is_empty() && !preset.rules.is_empty(), "{}", preset.name);
            for rule in &preset.rules {
                assert!(!rule.hosts.is_empty(), "{}: it would allow everything", preset.name);
                ApprovalRule::new(preset.name.clone(), RuleSource::Global, rule.clone()).unwrap();
            }
        }
    }

    #[test]
    fn unknown_preset_error_lists_the_existing_ones() {
        assert_eq!(find("npm").unwrap().rules[0].ports, ["443"]);
        assert_eq!(find("npm").unwrap().rules[0].methods, ["GET", "HEAD", "QUERY"], "what is only read");
        let error = find("nmp").unwrap_err();
        assert!(error.contains("`nmp`") && error.contains("claude-code, codex"), "{error}");
    }
}
