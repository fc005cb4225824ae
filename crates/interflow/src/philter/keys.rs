//! The keys of philter-ai-proxy's clients as ours: only hashes are taken over.

use serde_json::Value as Yaml;
use toml::{Table, Value};

/// Their keys as ours.
pub(super) struct ImportedKeys {
    /// The keys file.
    pub file: String,
    /// The files of the policies that the keys name.
    pub policies: Table,
    /// What cannot be taken over, or is to be done by hand.
    pub notes: Vec<String>,
}

/// A keys file of these keys, with notes on those that cannot be taken over.
pub(super) fn file(keys: &[Yaml], value: &mut dyn FnMut(&str) -> Option<String>) -> ImportedKeys {
    let mut notes = Vec::new();
    let mut policies = Table::new();
    let mut all = Vec::new();
    for (i, theirs) in keys.iter().enumerate() {
        let at = format!("auth.apiKeys[{i}]");
        let id = theirs["id"].as_str().map_or_else(|| format!("key-{i}"), str::to_owned);
        let Some(key) = theirs["key"].as_str().and_then(&mut *value) else {
            notes.push(format!(
                "{at}.key: it cannot be had here; make the key anew with `interflow keys add --id {id}`"
            ));
            continue;
        };
        let hash = match interflow_limits::check_hash(&key) {
            Some(Ok(())) => key,
            Some(Err(why)) => {
                notes.push(format!("{at}.key: {why}; make the key anew with `interflow keys add --id {id}`"));
                continue;
            }
            None => interflow_limits::hash_key(&key),
        };
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
        if let Some(policy) = theirs["policy"].as_str() {
            entry.insert("policy".into(), policy.into());
            if policy != interflow_redact::MAIN_POLICY && !policies.contains_key(policy) {
                let file = policy_file(policy);
                notes.push(format!(
                    "{at}.policy: save the policy {policy} from Philter as JSON in {file} of the data folder"
                ));
                policies.insert(policy.into(), file.into());
            }
        }
        all.push(Value::Table(entry));
    }
    let file = Table::from_iter([("key".to_owned(), Value::Array(all))]);
    ImportedKeys { file: toml::to_string_pretty(&file).unwrap_or_default(), policies, notes }
}

/// Where a policy is to be saved.
fn policy_file(policy: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    format!("{}.json", policy.chars().map(plain).collect::<String>())
}
