//! Masks secrets of a configuration before it is shown: those known by their place, those with a telling name, and
//! credentials in URLs.

pub use interflow_types::secret_names::without_credentials;
use serde_json::Value;

use crate::mcp::secret_masking::is_secret;

/// Masks the secrets in a configuration, given as in its file.
pub fn mask_config(config: &mut Value) {
    // Two passes: keys that are known to be secret by their place, then those with a telling name.
    mask_keys(config);
    mask_config_secrets(config);
}

/// Whether a key of this name holds a secret. A plain `key` is the path of a file, except for those of [`mask_keys`].
pub fn is_secret_key(key: &str) -> bool {
    // `credential_hosts` lists where credentials may be sent, `auth` is a section, and `approvals.secrets` a file.
    let is_public = ["key", "auth", "secrets"].iter().any(|name| key.eq_ignore_ascii_case(name));
    !is_public && !key.ends_with("_hosts") && !key.ends_with("_lifetime") && is_secret(key)
}

/// Masks keys whose names do not identify them as secret: elsewhere a `key` is the path of a file.
fn mask_keys(config: &mut Value) {
    if let Some(Value::Object(keys)) = config.pointer_mut("/keys/provider") {
        keys.values_mut().for_each(mask_secret);
    }
    if let Some(Value::Object(upstreams)) = config.pointer_mut("/llm/upstream") {
        upstreams.values_mut().filter_map(|u| u.get_mut("key")).for_each(mask_secret);
    }
    // Collectors are authenticated by header fields of any name.
    if let Some(Value::Object(headers)) = config.pointer_mut("/telemetry/headers") {
        headers.values_mut().for_each(mask_secret);
    }
    // So are MCP servers, and programs by variables.
    if let Some(Value::Object(servers)) = config.pointer_mut("/mcp/server") {
        let values = servers.values_mut().filter_map(Value::as_object_mut).flat_map(|server| server.iter_mut());
        values.filter(|(name, _)| matches!(name.as_str(), "headers" | "env")).for_each(|(_, value)| mask_all(value));
    }
    // The URLs of chat programs' webhooks are secrets.
    if let Some(webhooks) = config.pointer_mut("/quota/alerts/webhooks") {
        mask_all(webhooks);
    }
    // Its password may also be a parameter of the URL.
    if let Some(Value::String(store)) = config.pointer_mut("/record/store") {
        *store = interflow_store::masked_url(store);
    }
    for pointer in ["/audit/key", "/admin/audit/key"] {
        config.pointer_mut(pointer).into_iter().for_each(mask_secret);
    }
}

/// Masks a secret; `env:NAME` and `file:PATH` only say where one is.
fn mask_secret(value: &mut Value) {
    if let Value::String(text) = value
        && !text.starts_with("env:")
        && !text.starts_with("file:")
    {
        *text = "***".to_owned();
    }
}

/// Masks every string in a list or map of secrets, however deep.
fn mask_all(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(mask_all),
        Value::Object(map) => map.values_mut().for_each(mask_all),
        text => mask_secret(text),
    }
}

/// Masks secrets, recognised by the key's name, and credentials in URLs. `env:NAME` and `file:PATH` only say where a
/// secret is.
fn mask_config_secrets(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(_) if is_secret_key(key) => mask_secret(value),
                    // Lists and maps of secrets: users' passwords by name, old keys beside the new one.
                    Value::Array(list) if is_secret_key(key) => list.iter_mut().for_each(mask_all),
                    Value::Object(map) if is_secret_key(key) => map.values_mut().for_each(mask_all),
                    other => mask_config_secrets(other),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask_config_secrets),
        Value::String(text) => {
            if let Some(masked) = without_credentials(text) {
                *text = masked;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn config_secrets_are_masked_and_file_paths_are_not() {
        let mut config = json!({
            "upstream": {"proxy": [{"via": ["http://user:p@ss@proxy.test:3128/x@y", "socks5://plain.test"]}]},
            "redact": {"api_key": "sk-1", "vault": {"Passphrase": "hunter2", "token": "env:TOKEN"}},
            "proxy": {"tls": {"key": "/etc/key.pem"}},
            "service": {"headers": {"X-GitHub-Token": "ghp_1", "accept": "*/*"}, "private-token": "g", "tokens": 5},
            "users": {"passwords": {"ann": "a-pass"}, "old_secrets": ["one", "env:TWO"]},
            "limits": {"max_header_bytes": "64KiB"},
            "auth": {"realm": "Interflow"},
            "approvals": {"secrets": "secrets.json"},
            "admin": {"personal_token_lifetime": "90d"},
        });
        mask_config_secrets(&mut config);
        assert_eq!(
            config,
            json!({
                "upstream": {"proxy": [{"via": ["http://***@proxy.test:3128/x@y", "socks5://plain.test"]}]},
                "redact": {"api_key": "***", "vault": {"Passphrase": "***", "token": "env:TOKEN"}},
                "proxy": {"tls": {"key": "/etc/key.pem"}},
                "service": {"headers": {"X-GitHub-Token": "***", "accept": "*/*"}, "private-token": "***", "tokens": 5},
                "users": {"passwords": {"ann": "***"}, "old_secrets": ["***", "env:TWO"]},
                "limits": {"max_header_bytes": "64KiB"},
                "auth": {"realm": "Interflow"},
                "approvals": {"secrets": "secrets.json"},
                "admin": {"personal_token_lifetime": "90d"},
            })
        );
    }

    #[test]
    fn provider_keys_are_masked_and_key_file_paths_are_not() {
        let mut config = json!({
            "keys": {"provider": {"openai": "sk-1", "other": "env:KEY"}},
            "llm": {"upstream": {"x": {"key": "sk-2", "target": "http://a"}}},
            "audit": {"key": "abc"},
            "quota": {"alerts": {"webhooks": ["https://hooks.test/T0/b", "file:/hook"]}},
            "telemetry": {"endpoint": "http://a", "headers": {"x-team": "hc-1", "authorization": "env:AUTH"}},
            "mcp": {"server": {"x": {"url": "http://a", "headers": {"x-team": "hc-1"}, "env": {"PIN": "17", "A": "env:A"}}}},
            "proxy": {"tls": {"key": "/etc/key.pem"}}
        });
        mask_keys(&mut config);
        let server = json!({"url": "http://a", "headers": {"x-team": "***"}, "env": {"PIN": "***", "A": "env:A"}});
        assert_eq!(config["mcp"]["server"]["x"], server);
        assert_eq!(config["telemetry"]["headers"], json!({"x-team": "***", "authorization": "env:AUTH"}));
        assert_eq!(config["keys"]["provider"], json!({"openai": "***", "other": "env:KEY"}));
        assert_eq!(config["llm"]["upstream"]["x"], json!({"key": "***", "target": "http://a"}));
        assert_eq!(config["quota"]["alerts"]["webhooks"], json!(["***", "file:/hook"]));
        assert_eq!((&config["audit"]["key"], &config["proxy"]["tls"]["key"]), (&"***".into(), &"/etc/key.pem".into()));
    }
}
