//! The keys that can be set over the API, in the order in which they are shown. Descriptions, defaults and choices come
//! from the schema of the configuration.

use interflow_admin::settings::{SettingChoice, SettingGroup, SettingKind};
use interflow_approvals::presets;
use serde_json::Value as Json;

use crate::instance::config::env::resolve;
use SettingGroup::{Interception, Logging, Notifications, Privacy, Recording, Upstream};
use SettingKind::{Choice, Duration, List, Number, Proxies, Size, Switch, Text};

pub struct SettableKey {
    pub key: &'static str,
    pub label: &'static str,
    pub group: SettingGroup,
    pub kind: SettingKind,
}

const fn key(group: SettingGroup, key: &'static str, kind: SettingKind, label: &'static str) -> SettableKey {
    SettableKey { key, label, group, kind }
}

/// Its values come from a file of the program; the schema has none.
const PRESETS: &str = "approvals.presets";

#[rustfmt::skip]
pub const SETTABLE: &[SettableKey] = &[
    key(Interception, "intercept.mode", Choice, "TLS interception"),
    key(Interception, "intercept.hosts", List, "Hosts to intercept"),
    key(Interception, "intercept.exclude", List, "Hosts never intercepted"),
    key(Interception, "intercept.pinning_failures", Number, "Refusals until a host counts as pinned"),
    key(Interception, "intercept.pinning_bypass", Duration, "Pinning bypass"),
    key(Interception, "proxy.processes", Switch, "Look up programs"),
    key(Interception, "proxy.containers", Switch, "Look up containers"),
    key(Recording, "record.enabled", Switch, "Record traffic"),
    key(Recording, "record.bodies", Switch, "Record bodies"),
    key(Recording, "record.large_bodies", Choice, "Media and large bodies"),
    key(Recording, "record.max_body", Size, "Maximum body size"),
    key(Recording, "record.retention_age", Duration, "Keep flows for"),
    key(Recording, "record.retention_bytes", Size, "Maximum disk space"),
    key(Recording, "record.overflow", Choice, "When the recorder falls behind"),
    key(Recording, "record.queue_bytes", Size, "Queue of the recorder"),
    key(Privacy, "redact.gateway", Choice, "Prompts through the gateway"),
    key(Privacy, "redact.proxied", Choice, "Prompts through the proxy"),
    key(Privacy, "redact.responses", Choice, "Responses of models"),
    key(Privacy, "redact.restore", Switch, "Restore placeholders in responses"),
    key(Privacy, "record.mask_headers", List, "Masked header fields"),
    key(Privacy, "record.mask_query", List, "Masked query parameters"),
    key(Upstream, "upstream.proxy", Proxies, "Upstream proxies"),
    key(Upstream, "upstream.no_proxy", List, "Hosts without an upstream proxy"),
    key(Upstream, "upstream.dns_over_https", Text, "DNS over HTTPS"),
    key(Notifications, "approvals.notify", Switch, "Desktop notifications"),
    key(Notifications, "approvals.mode", Choice, "Approval mode"),
    key(Notifications, "approvals.timeout", Duration, "Time for a decision"),
    key(Notifications, PRESETS, List, "Approval presets"),
    key(Logging, "log.level", Text, "Log level"),
];

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

    #[test]
    fn every_settable_key_is_in_the_schema_with_its_kind() {
        let root = InterflowConfig::schema();
        let defaults = serde_json::to_value(InterflowConfig::default()).unwrap();
        for k in SETTABLE {
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
