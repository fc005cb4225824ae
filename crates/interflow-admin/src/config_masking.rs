//! Masks secrets of a configuration before it is shown: those of the keys that may name a file with a secret, those with
//! a telling name, and those in URLs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use interflow_types::secret_names::{has_token, is_secret_name, mask_url, mask_urls};
use serde_json::Value;

/// Keys whose values are paths, by what precedes the path in the value; `*` stands for each element of a list or table.
/// Those of `file:` hold a secret or where it is, except for [`SHOWN_KEYS`].
pub static PATH_KEYS: LazyLock<BTreeMap<&str, Vec<&str>>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../data/path_keys.json")).expect("a test parses it"));

/// A certificate, and URLs of which only what is secret is masked.
const SHOWN_KEYS: &str =
    "intercept.ca_certificate llm.cache.redis quota.shared.redis record.store upstream.proxy.*.via.*";

/// Masks the secrets in a configuration, given as in its file.
pub fn mask_config(config: &mut Value) {
    let is_secret = |key: &&&str| !SHOWN_KEYS.split(' ').any(|shown| shown == **key);
    PATH_KEYS["file:"].iter().filter(is_secret).for_each(|key| mask_at(config, key.split('.')));
    mask_config_secrets(config);
}

/// Whether a key of this name holds a secret, wherever it is. A `key` may be the path of a file.
pub fn is_secret_key(key: &str) -> bool {
    // `credential_hosts` lists where credentials may be sent, `auth` is a section, and `approvals.secrets` a file.
    let is_public = ["key", "auth", "secrets"].iter().any(|name| key.eq_ignore_ascii_case(name));
    !is_public && !key.ends_with("_hosts") && !key.ends_with("_lifetime") && is_secret_name(key)
}

/// Masks the values at a path.
fn mask_at<'k>(value: &mut Value, mut path: impl Iterator<Item = &'k str> + Clone) {
    let Some(part) = path.next() else { return mask_all(value) };
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| mask_at(value, path.clone())),
        Value::Object(map) => {
            let values = map.iter_mut().filter(|(name, _)| part == "*" || *name == part);
            values.for_each(|(_, value)| mask_at(value, path.clone()));
        }
        _ => {}
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

/// Masks a secret, or every one in a list or map, however deep.
fn mask_all(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(mask_all),
        Value::Object(map) => map.values_mut().for_each(mask_all),
        text => mask_secret(text),
    }
}

/// Masks secrets, recognised by the key's name, and those in URLs.
fn mask_config_secrets(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                // Also lists and maps of secrets: users' passwords by name, old keys beside the new one.
                match value {
                    value if is_secret_key(key) => mask_all(value),
                    Value::Array(list) if key == "args" => mask_arguments(list),
                    value => mask_config_secrets(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask_config_secrets),
        // As a whole first: a secret may have characters that end a URL within a message.
        Value::String(text) if text.contains("://") => *text = mask_urls(&mask_url(text)),
        _ => {}
    }
}

/// Masks what arguments of a program have behind a telling name, as in `--token X`, `TOKEN=X` and `Authorization: X`, what
/// looks like a token, and secrets in URLs.
fn mask_arguments(list: &mut [Value]) {
    let mut follows_name = false;
    for value in list {
        let text = value.as_str().unwrap_or_default().to_owned();
        let names_secret = |at: &usize| {
            let name = text[..*at].trim_end_matches(['"', '\'']);
            name.rsplit(['=', ':', '/', '?', '&', '"', '\'', ' ']).next().is_some_and(is_secret_name)
        };
        match text.match_indices(['=', ':']).map(|(at, _)| at).find(names_secret) {
            _ if follows_name => mask_secret(value),
            Some(at) => *value = format!("{}***", &text[..=at]).into(),
            None if !text.contains('/') && has_token(&text) => mask_secret(value),
            None => mask_config_secrets(value),
        }
        follows_name = !follows_name && text.starts_with('-') && !text.contains(['=', ':']) && is_secret_name(&text);
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
    fn secrets_are_masked_in_arguments_of_programs() {
        for (arguments, masked) in [
            (json!(["--api-key", "s", "--port", "80"]), json!(["--api-key", "***", "--port", "80"])),
            (json!(["--token=s", "-e", "GITHUB_TOKEN=s"]), json!(["--token=***", "-e", "GITHUB_TOKEN=***"])),
            (json!(["--header", "Authorization: Bearer s"]), json!(["--header", "Authorization:***"])),
            (
                json!(["--header=X-Api-Key: s", "{\"token\": \"s\"}"]),
                json!(["--header=X-Api-Key:***", "{\"token\":***"]),
            ),
            (json!(["ghp_0123456789abcdef", "--token", "env:T"]), json!(["***", "--token", "env:T"])),
            (
                json!(["http://u:s@a.test/?b=1", "http://a.test/?token=s"]),
                json!(["http://***@a.test/?b=1", "http://a.test/?token=***"]),
            ),
            (
                json!(["-y", "@acme/server@1.2.3", "/srv/0123456789ab", "--max-tokens", "5", "A=1"]),
                json!(["-y", "@acme/server@1.2.3", "/srv/0123456789ab", "--max-tokens", "5", "A=1"]),
            ),
        ] {
            let mut config = json!({"mcp": {"server": {"x": {"command": "npx", "args": arguments}}}});
            mask_config(&mut config);
            assert_eq!(config["mcp"]["server"]["x"]["args"], masked);
        }
    }

    #[test]
    fn secrets_are_masked_by_their_place_and_in_urls_and_paths_are_not() {
        let mut config = json!({
            "keys": {"provider": {"openai": "sk-1", "other": "env:KEY"}},
            "llm": {
                "provider": {"x": {"url": "http://a", "service_account": "{}"}},
                "cache": {"redis": "redis://u:p@ss&w@h:1/0", "redis_key": "AAAA"},
            },
            "audit": {"key": "abc"},
            "intercept": {"ca_certificate": "file:ca.pem", "ca_key": "-----BEGIN"},
            "quota": {"alerts": {"webhooks": ["https://hooks.test/T0/b", "file:/hook"]}},
            "record": {"store": "postgres://h/d?user=u&password=pg"},
            "telemetry": {
                "endpoint": "http://a",
                "headers": {"x-team": "hc-1", "authorization": "env:AUTH"},
                "webhook": [{"url": "https://hooks.test/T1", "headers": {"x-team": "wh-1"}}],
            },
            "mcp": {"server": {"x": {
                "url": "https://a.test/s/0123456789ab/mcp?userApiKey=s'd&b=1",
                "args": ["--from", "postgres://u:p/w@h/d"],
                "headers": {"x-team": "hc-1"},
                "env": {"PIN": "17", "A": "env:A"},
            }}},
            "proxy": {"tls": {"key": "/etc/key.pem"}}
        });
        mask_config(&mut config);
        assert_eq!(
            config,
            json!({
                "keys": {"provider": {"openai": "***", "other": "env:KEY"}},
                "llm": {
                    "provider": {"x": {"url": "http://a", "service_account": "***"}},
                    "cache": {"redis": "redis://***@h:1/0", "redis_key": "***"},
                },
                "audit": {"key": "***"},
                "intercept": {"ca_certificate": "file:ca.pem", "ca_key": "***"},
                "quota": {"alerts": {"webhooks": ["***", "file:/hook"]}},
                "record": {"store": "postgres://h/d?user=u&password=***"},
                "telemetry": {
                    "endpoint": "http://a",
                    "headers": {"x-team": "***", "authorization": "env:AUTH"},
                    "webhook": [{"url": "***", "headers": {"x-team": "***"}}],
                },
                "mcp": {"server": {"x": {
                    "url": "https://a.test/s/***/mcp?userApiKey=***&b=1",
                    "args": ["--from", "postgres://***@h/d"],
                    "headers": {"x-team": "***"},
                    "env": {"PIN": "***", "A": "env:A"},
                }}},
                "proxy": {"tls": {"key": "/etc/key.pem"}}
            })
        );
        for key in SHOWN_KEYS.split(' ') {
            assert!(PATH_KEYS["file:"].contains(&key), "{key}");
        }
    }
}
