//! Converts client keys of philter-ai-proxy; only hashes are imported.

use serde_json::Value as Yaml;
use toml::{Table, Value};

use crate::draft::{insert_some, non_empty, scalar_text};

pub(super) struct ImportedKeys {
    /// Content of the keys file.
    pub file: String,
    /// Policy files that the keys refer to.
    pub policies: Table,
    /// What could not be imported or must be done manually.
    pub notes: Vec<String>,
}

/// Builds a keys file, with notes on keys that could not be imported.
pub(super) fn file(keys: &[Yaml], value: &mut dyn FnMut(&str) -> Option<String>) -> ImportedKeys {
    let mut notes = Vec::new();
    let mut policies = Table::new();
    let mut all = Vec::new();
    for (i, theirs) in keys.iter().enumerate() {
        let at = format!("auth.apiKeys[{i}]");
        let id = scalar_text(&theirs["id"]).unwrap_or_else(|| format!("key-{i}"));
        let key = theirs["key"].as_str().and_then(&mut *value).ok_or("it cannot be resolved");
        let hash = match key.and_then(|key| key_hash(&key)) {
            Ok(hash) => hash,
            Err(why) => {
                notes.push(format!("{at}.key: {why}; create the key again with `interflow keys add --id {id}`"));
                continue;
            }
        };
        let mut entry = Table::from_iter([("id".to_owned(), Value::from(id)), ("hash".to_owned(), hash.into())]);
        for (axis, prefix) in [("providers", false), ("models", false), ("paths", true)] {
            let list = theirs["scopes"][axis].as_array().into_iter().flatten().filter_map(scalar_text);
            // philter-ai-proxy matches paths as prefixes.
            let converted = |entry: String| if prefix && !entry.ends_with('*') { entry + "*" } else { entry };
            insert_some(&mut entry, axis, non_empty(list.map(converted).collect::<Vec<_>>()));
        }
        if let Some(policy) = theirs["policy"].as_str() {
            entry.insert("policy".into(), policy.into());
            if policy != interflow_redact::MAIN_POLICY && !policies.contains_key(policy) {
                let file = policy_file(policy);
                notes.push(format!(
                    "{at}.policy: save the policy {policy} from Philter as JSON in {file} in the data directory"
                ));
                policies.insert(policy.into(), file.into());
            }
        }
        all.push(Value::Table(entry));
    }
    let file = Table::from_iter([("key".to_owned(), Value::Array(all))]);
    ImportedKeys { file: toml::to_string_pretty(&file).unwrap_or_default(), policies, notes }
}

/// The hash of a key for the keys file: of its text, or as philter-ai-proxy stores it (`sha256$HEX`, `bcrypt$…`).
fn key_hash(key: &str) -> Result<String, &'static str> {
    if let Some(digits) = key.strip_prefix("sha256$").or_else(|| key.strip_prefix("sha256:")) {
        let is_digest = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        return if is_digest { Ok(format!("sha256:{digits}")) } else { Err("its SHA-256 has not 64 hex digits") };
    }
    match ["bcrypt$", "bcrypt:", "$2"].iter().any(|prefix| key.starts_with(prefix)) {
        true => Err("a bcrypt hash cannot be looked up by the key, so it is not supported"),
        false => Ok(interflow_limits::hash_key(key)),
    }
}

fn policy_file(policy: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    format!("{}.json", policy.chars().map(plain).collect::<String>())
}
