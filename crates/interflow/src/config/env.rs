//! `INTERFLOW_SECTION_KEY` variables: each key of the file has one.

use serde_json::Value as Json;
use toml::Value;

use super::{Config, LoadError};

/// Variables with a meaning of their own.
const RESERVED: [&str; 4] = ["INTERFLOW_HOME", "INTERFLOW_CONFIG", "INTERFLOW_LOG", "INTERFLOW_TOKEN"];

/// A variable's name, the path of its key, and its value.
pub type Override = (String, Vec<String>, Value);

/// The overrides among these variables.
///
/// # Errors
/// A variable that begins with `INTERFLOW_` and names no key.
pub fn overrides(vars: &[(String, String)]) -> Result<Vec<Override>, LoadError> {
    let ours = |name: &str| name.starts_with("INTERFLOW_") && !RESERVED.contains(&name);
    let mut ours: Vec<_> = vars.iter().filter(|(name, _)| ours(name)).collect();
    if ours.is_empty() {
        return Ok(Vec::new());
    }
    ours.sort();
    let keys = keys();
    ours.into_iter().map(|(name, text)| one(name, text, &keys)).collect()
}

fn one(name: &str, text: &str, keys: &[(String, Vec<String>)]) -> Result<Override, LoadError> {
    let Some((_, path)) = keys.iter().find(|(known, _)| known == name) else {
        let near = keys.iter().min_by_key(|(known, _)| strsim::damerau_levenshtein(known, name));
        let near = near.map(|(known, _)| format!(": did you mean {known}?")).unwrap_or_default();
        return Err(LoadError { place: name.into(), what: format!("no such key{near}") });
    };
    Ok((name.into(), path.clone(), value(text)))
}

/// TOML where it is TOML (numbers, lists, tables), a string otherwise.
fn value(text: &str) -> Value {
    toml::from_str::<toml::Table>(&format!("v = {text}"))
        .ok()
        .and_then(|mut t| t.remove("v"))
        .unwrap_or_else(|| Value::String(text.into()))
}

/// Every key of the file: the name of its variable, and its path.
fn keys() -> Vec<(String, Vec<String>)> {
    let schema = Config::schema();
    let mut found = Vec::new();
    walk(&schema, &schema, &mut Vec::new(), &mut found);
    found
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

/// Follows a `$ref`, and picks the object out of "this or null".
fn resolve<'a>(schema: &'a Json, root: &'a Json) -> &'a Json {
    if let Some(pointer) = schema["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
        return root.pointer(pointer).unwrap_or(schema);
    }
    if let Some(any) = schema["anyOf"].as_array() {
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
        for name in ["INTERFLOW_PROXY_LISTEN", "INTERFLOW_TIMEOUTS_HEAD", "INTERFLOW_UPSTREAM_DANGER_INSECURE"] {
            assert!(keys.iter().any(|(k, _)| k == name), "{name}");
        }
        let mut names: Vec<_> = keys.iter().map(|(k, _)| k).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), keys.len(), "no two keys share a variable");
    }
}
