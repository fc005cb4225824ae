//! Environment variables `INTERFLOW_SECTION_KEY`, one for each key of the configuration file.

use interflow_query::closest_name;
use serde_json::Value as Json;
use toml::Value;

use super::InterflowConfig;
use crate::instance::{environment, features};

const PREFIX: &str = "INTERFLOW_";

/// A variable's name, the path of its key, and its value.
pub type EnvOverride = (String, Vec<String>, Value);

#[derive(Debug, Default)]
pub struct EnvOverrides {
    pub values: Vec<EnvOverride>,
    /// One warning per unknown variable, with a suggestion if a known one is similar.
    pub unknown: Vec<String>,
}

/// Extracts overrides from these variables. Unknown variables produce warnings, not errors: other software may set them.
pub fn overrides(vars: &[(String, String)]) -> EnvOverrides {
    let is_override = |name: &str| name.starts_with(PREFIX) && !environment::is_own(name);
    let mut variables: Vec<_> = vars.iter().filter(|(name, _)| is_override(name)).collect();
    let mut overrides = EnvOverrides::default();
    // The schema is only built if there is something to look up.
    if variables.is_empty() {
        return overrides;
    }
    // Sorted, so that warnings come in the same order each time.
    variables.sort();
    let keys = keys();
    for (name, text) in variables {
        // Checked first: a key's variable can look like a Service variable (`media.compat.port`); the value distinguishes
        // them.
        if is_service_link(name, text) {
            continue;
        }
        match keys.iter().find(|(known, _)| known == name) {
            Some((_, path)) => overrides.values.push((name.clone(), path.clone(), value(text))),
            None => overrides.unknown.push(unknown(name, &keys)),
        }
    }
    overrides
}

fn unknown(name: &str, keys: &[(String, Vec<String>)]) -> String {
    let section = name[PREFIX.len()..].split('_').next().unwrap_or_default().to_ascii_lowercase();
    if let Some(feature) = features::left_out(&section) {
        return format!("the environment variable {name} is ignored: {}", features::missing(&section, feature));
    }
    let suffixes = keys.iter().map(|(key, _)| key.as_str()).chain(environment::OWN.iter().map(|(own, _)| *own));
    let near = closest_name(&name[PREFIX.len()..], suffixes.map(|known| &known[PREFIX.len()..]));
    let near = near.map(|suffix| format!(": did you mean {PREFIX}{suffix}?")).unwrap_or_default();
    format!("the environment variable {name} is not a configuration key and is ignored{near}")
}

/// Whether this is a Kubernetes Service variable: `X_SERVICE_HOST`, `X_SERVICE_PORT`, `X_SERVICE_PORT_NAME`, `X_PORT` (a
/// URL), `X_PORT_7070_TCP`, `X_PORT_7070_TCP_ADDR` and so on. `X_PORT` with a bare number is not one.
fn is_service_link(name: &str, value: &str) -> bool {
    let service = ["_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|end| name.ends_with(end));
    if service || name.contains("_SERVICE_PORT_") || (name.ends_with("_PORT") && value.contains("://")) {
        return true;
    }
    name.match_indices("_PORT_").any(|(at, part)| {
        let mut rest = name[at + part.len()..].split('_');
        let number = rest.next().is_some_and(|n| n.parse::<u16>().is_ok());
        number && rest.next().is_some_and(|protocol| matches!(protocol, "TCP" | "UDP" | "SCTP"))
    })
}

/// Parses a value as TOML if possible (number, list, table); otherwise it is a string.
fn value(text: &str) -> Value {
    toml::from_str::<toml::Table>(&format!("v = {text}"))
        .ok()
        .and_then(|mut t| t.remove("v"))
        .unwrap_or_else(|| Value::String(text.into()))
}

/// All configuration keys, as variable name and path.
pub fn keys() -> Vec<(String, Vec<String>)> {
    let schema = InterflowConfig::schema();
    let mut keys = Vec::new();
    walk(schema, schema, &mut Vec::new(), &mut keys);
    keys
}

fn walk(schema: &Json, root: &Json, path: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    let target = resolve(schema, root);
    match target["properties"].as_object() {
        Some(properties) => {
            for (name, inner) in properties {
                path.push(name.clone());
                walk(inner, root, path, found);
                path.pop();
            }
        }
        None => found.push((format!("INTERFLOW_{}", path.join("_").to_ascii_uppercase()), path.clone())),
    }
}

/// Follows `$ref` and selects the non-null alternative of `anyOf`.
pub fn resolve<'a>(schema: &'a Json, root: &'a Json) -> &'a Json {
    if let Some(pointer) = schema["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
        return root.pointer(pointer).unwrap_or(schema);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        // An optional key is a choice between its type and null.
        return any.iter().map(|s| resolve(s, root)).find(|s| s["type"] != "null").unwrap_or(schema);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_variable() {
        let keys = keys();
        for name in
            ["INTERFLOW_PROXY_LISTEN", "INTERFLOW_TIMEOUTS_HEADER_TIMEOUT", "INTERFLOW_UPSTREAM_DANGER_INSECURE"]
        {
            assert!(keys.iter().any(|(k, _)| k == name), "{name}");
        }
        let mut names: Vec<_> = keys.iter().map(|(k, _)| k).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), keys.len(), "no two keys share a variable");
    }

    fn of(list: &[(&str, &str)]) -> EnvOverrides {
        overrides(&list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn unknown_variable_is_ignored_and_reported_with_a_suggestion() {
        let found = of(&[
            ("INTERFLOW_INTERCEPT_MOD", "none"),
            ("INTERFLOW_ZZZ", "1"),
            ("INTERFLOW_PROXY_PORT", "8080"),
            ("INTERFLOW_WORKERS_COUNT", "3"),
        ]);
        assert_eq!(found.values.len(), 1);
        assert_eq!(found.unknown.len(), 3);
        assert!(found.unknown[0].contains("INTERFLOW_INTERCEPT_MOD is not a configuration key"), "{:?}", found.unknown);
        assert!(found.unknown[0].ends_with("did you mean INTERFLOW_INTERCEPT_MODE?"), "{:?}", found.unknown);
        assert!(found.unknown[1].contains("INTERFLOW_PROXY_PORT"), "{:?}", found.unknown);
        assert!(found.unknown[2].ends_with("is ignored"), "nothing is near: {:?}", found.unknown);
    }

    #[test]
    fn kubernetes_service_variables_and_tool_variables_are_not_reported() {
        let found = of(&[
            ("INTERFLOW_SERVICE_HOST", "10.0.0.1"),
            ("INTERFLOW_SERVICE_PORT", "7070"),
            ("INTERFLOW_SERVICE_PORT_HTTP_GATEWAY", "7071"),
            ("INTERFLOW_PORT", "tcp://10.0.0.1:7070"),
            ("INTERFLOW_PORT_7070_TCP", "tcp://10.0.0.1:7070"),
            ("INTERFLOW_PORT_7070_TCP_ADDR", "10.0.0.1"),
            ("INTERFLOW_PORT_7070_TCP_PORT", "7070"),
            ("INTERFLOW_PORT_7070_TCP_PROTO", "tcp"),
            ("INTERFLOW_ADMIN_SERVICE_HOST", "10.0.0.2"),
            ("INTERFLOW_ADMIN_PORT", "tcp://10.0.0.2:7072"),
            ("INTERFLOW_BIN", "target/debug/interflow"),
            ("INTERFLOW_ADMIN", "http://127.0.0.1:7072"),
            ("INTERFLOW_DATA_DIR", "/data"),
            ("INTERFLOW_PREFIX", "/usr/local"),
            ("INTERFLOW_BASE_URL", "http://127.0.0.1:8000"),
        ]);
        assert!(found.values.is_empty() && found.unknown.is_empty(), "{found:?}");
    }

    #[test]
    fn kubernetes_service_variables_never_set_a_key() {
        for (name, _) in keys() {
            assert!(!is_service_link(&name, "7070"), "{name}: the key cannot be set");
            let looks_like_a_service = name.ends_with("_PORT");
            assert_eq!(is_service_link(&name, "tcp://10.0.0.1:7070"), looks_like_a_service, "{name}");
        }
        let found = of(&[("INTERFLOW_MEDIA_COMPAT_PORT", "tcp://10.0.0.1:8888")]);
        assert!(found.values.is_empty() && found.unknown.is_empty(), "{found:?}");
        #[cfg(feature = "media")]
        assert_eq!(of(&[("INTERFLOW_MEDIA_COMPAT_PORT", "8889")]).values.len(), 1);
    }
}
