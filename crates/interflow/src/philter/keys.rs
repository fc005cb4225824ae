//! The keys of philter-ai-proxy's clients as ours: only hashes are taken over.

use serde_json::Value as Yaml;
use toml::{Table, Value};

/// A keys file of these keys, with notes on those that cannot be taken over.
pub(super) fn file(keys: &[Yaml], value: &mut dyn FnMut(&str) -> Option<String>) -> (String, Vec<String>) {
    let mut notes = Vec::new();
    let mut all = Vec::new();
    for (i, theirs) in keys.iter().enumerate() {
        let at = format!("auth.apiKeys[{i}]");
        let id = theirs["id"].as_str().map_or_else(|| format!("key-{i}"), str::to_owned);
        if let Some(policy) = theirs["policy"].as_str() {
            notes.push(format!(
                "{at}.policy: save the policy {policy} as JSON, and add [[redact.route]] with user = \"{id}\" and policy = its file, before the others"
            ));
        }
        let Some(key) = theirs["key"].as_str().and_then(&mut *value) else {
            notes.push(format!(
                "{at}.key: it cannot be had here; make the key anew with `interflow keys add --id {id}`"
            ));
            continue;
        };
        if key.starts_with("bcrypt$") || key.starts_with("$2") {
            notes.push(format!(
                "{at}.key: a bcrypt hash cannot be taken over; make the key anew with `interflow keys add --id {id}`"
            ));
            continue;
        }
        let hash = if key.starts_with("sha256$") { key.replacen('$', ":", 1) } else { interflow_limits::hash_of(&key) };
        let mut entry = Table::from_iter([("id".to_owned(), Value::from(id)), ("hash".to_owned(), hash.into())]);
        for (axis, prefix) in [("providers", false), ("models", false), ("paths", true)] {
            let list = theirs["scopes"][axis].as_array().into_iter().flatten().filter_map(Yaml::as_str);
            // Theirs takes a path for the beginning of one.
            let ours =
                |entry: &str| if prefix && !entry.ends_with('*') { format!("{entry}*") } else { entry.to_owned() };
            let list: Vec<Value> = list.map(|entry| ours(entry).into()).collect();
            if !list.is_empty() {
                entry.insert(axis.into(), list.into());
            }
        }
        all.push(Value::Table(entry));
    }
    let file = Table::from_iter([("key".to_owned(), Value::Array(all))]);
    (toml::to_string_pretty(&file).unwrap_or_default(), notes)
}
