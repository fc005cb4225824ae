//! The keys that can be set over the API, in the order in which they are shown. Descriptions, defaults and choices come
//! from the schema of the configuration.

use std::sync::LazyLock;

use interflow_admin::settings::{SettingChoice, SettingGroup, SettingKind};
use interflow_approvals::presets;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::instance::config::env::resolve;

#[derive(Deserialize)]
pub struct SettableKey {
    pub key: &'static str,
    pub label: &'static str,
    pub group: SettingGroup,
    pub kind: SettingKind,
}

/// Its values come from a file of the program; the schema has none.
const PRESETS: &str = "approvals.presets";

pub static SETTABLE: LazyLock<Vec<SettableKey>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../data/settable_keys.json")).expect("a test reads the file of keys")
});

pub fn find(name: &str) -> Option<&'static SettableKey> {
    SETTABLE.iter().find(|k| k.key == name)
}

/// The JSON pointer of a key.
pub fn pointer(key: &str) -> String {
    format!("/{}", key.replace('.', "/"))
}

/// The schema of a key, as its section has it; `None` if there is no such key.
pub fn schema_of<'a>(key: &str, root: &'a Json) -> Option<&'a Json> {
    key.split('.').try_fold(root, |schema, part| resolve(schema, root)["properties"].get(part))
}

/// Its description; that of its type, if the key has none.
pub fn description(schema: &Json, root: &Json) -> String {
    let text = |schema: &Json| schema["description"].as_str().map(|text| text.replace('\n', " "));
    text(schema).or_else(|| text(resolve(schema, root))).unwrap_or_default()
}

/// The values that it may have, if they are listed.
pub fn choices(key: &str, schema: &Json, root: &Json) -> Vec<SettingChoice> {
    if key == PRESETS {
        let choice = |p: &presets::RulePreset| SettingChoice { value: p.name.clone(), description: p.about.clone() };
        return presets::all().iter().map(choice).collect();
    }
    let listed = resolve(schema, root)["oneOf"].as_array();
    let choice = |of: &Json| {
        let value = of["const"].as_str()?.to_owned();
        Some(SettingChoice { value, description: description(of, root) })
    };
    listed.into_iter().flatten().filter_map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::config::InterflowConfig;
    use SettingKind::{Choice, Duration, List, Number, Proxies, Size, Switch, Text};

    #[test]
    fn every_settable_key_is_in_the_schema_with_its_kind() {
        let root = InterflowConfig::schema();
        let defaults = serde_json::to_value(InterflowConfig::default()).unwrap();
        for k in &*SETTABLE {
            let schema = schema_of(k.key, root).unwrap_or_else(|| panic!("{}", k.key));
            assert!(!description(schema, root).is_empty(), "{}", k.key);
            assert_eq!(!choices(k.key, schema, root).is_empty(), k.kind == Choice || k.key == PRESETS, "{}", k.key);
            let default = defaults.pointer(&pointer(k.key)).unwrap_or(&Json::Null);
            let fits = match k.kind {
                Switch => default.is_boolean(),
                Number => default.is_number(),
                List | Proxies => default.is_array(),
                Choice | Size | Duration => default.is_string(),
                Text => default.is_string() || default.is_null(),
            };
            assert!(fits, "{}: {default}", k.key);
        }
        assert!(schema_of("intercept.mod", root).is_none());
    }
}
