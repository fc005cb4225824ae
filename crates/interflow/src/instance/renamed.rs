//! Former names of flags, commands, variables and configuration keys. They are not accepted; errors suggest the new name.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Former and present flags, and the commands that have them; none stands for all commands.
const FLAGS: [(&str, &str, &[&str]); 5] = [
    ("--home", "--data-dir", &[]),
    ("--proxy", "--listen-proxy", &["run", "demo"]),
    ("--gateway", "--listen-gateway", &["run", "demo"]),
    ("--admin", "--listen-admin", &["run", "demo"]),
    ("--form", "--format", &["ca"]),
];

/// Former commands by parent and name, and the present ones.
const COMMANDS: [(&str, &str, &str); 9] = [
    ("approvals", "secrets", "interflow secrets"),
    ("approvals", "sessions", "interflow sessions"),
    ("approvals", "list", "interflow pending list"),
    ("approvals", "allow", "interflow pending allow"),
    ("approvals", "deny", "interflow pending deny"),
    ("rules", "held", "interflow pending list"),
    ("rules", "decide", "interflow pending"),
    ("rules", "import", "interflow import mitmproxy"),
    ("config", "import-philter", "interflow import philter"),
];

/// Former and present paths of configuration keys; a `*` stands for the name of a table.
const KEYS: [(&str, &str); 35] = [
    ("home", "data_dir"),
    ("admin.events_patience", "admin.events_write_timeout"),
    ("admin.open_metrics", "admin.public_metrics"),
    ("auth.trust_names", "auth.accept_unverified_names"),
    ("dns.keep", "dns.min_ttl"),
    ("gateway.route.keep_host", "gateway.route.preserve_host"),
    ("intercept.leaf_days", "intercept.leaf_validity_days"),
    ("intercept.leaves", "intercept.leaf_cache_size"),
    ("intercept.never", "intercept.exclude"),
    ("intercept.pinning_pass", "intercept.pinning_bypass"),
    ("intercept.server_first_after", "intercept.sniff_timeout"),
    ("keys.required", "keys.require_virtual_key"),
    ("limits.accepts_per_second", "limits.accept_rate"),
    ("limits.head_bytes", "limits.max_header_bytes"),
    ("limits.head_fields", "limits.max_headers"),
    ("llm.upstream", "llm.provider"),
    ("llm.provider.*.key", "llm.provider.*.api_key"),
    ("llm.provider.*.target", "llm.provider.*.url"),
    ("proxy.announce", "proxy.mdns_name"),
    ("proxy.drain", "proxy.drain_timeout"),
    ("proxy.proxy_protocol_from", "proxy.proxy_protocol_trusted"),
    ("quota.rule.per", "quota.rule.count_by"),
    ("redact.intercepted", "redact.proxied"),
    ("redact.memo", "redact.finding_cache_size"),
    ("redact.outbound", "redact.responses"),
    ("timeouts.body", "timeouts.body_idle_timeout"),
    ("timeouts.head", "timeouts.header_timeout"),
    ("timeouts.response", "timeouts.response_header_timeout"),
    ("upstream.connections_per_host", "upstream.max_connections_per_host"),
    ("upstream.fingerprint.as", "upstream.fingerprint.profile"),
    ("upstream.idle", "upstream.idle_timeout"),
    ("upstream.pool_wait", "upstream.pool_timeout"),
    ("upstream.resolve", "upstream.hosts"),
    ("workers.pin", "workers.cpu_affinity"),
    ("redact.route.outbound", "redact.route.responses"),
];

/// The present name of a former configuration key, among the keys that its table has.
pub fn key<'k>(former: &str, known: &[&'k str]) -> Option<&'k str> {
    let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let mut present = KEYS.iter().filter(|(old, _)| last(old) == former).map(|(_, new)| last(new));
    present.find_map(|new| known.iter().copied().find(|k| *k == new))
}

/// The present name of a former environment variable.
pub fn variable(former: &str) -> Option<String> {
    let variable = |path: &str| format!("INTERFLOW_{}", path.replace('.', "_").to_ascii_uppercase());
    KEYS.iter().find(|(old, _)| variable(old) == former).map(|(_, new)| variable(new))
}

/// Adds the present name to an error about a former flag or command.
pub fn suggest(mut error: clap::Error, words: &[std::ffi::OsString]) -> clap::Error {
    let given = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let Some(flag) = given(&error, ContextKind::InvalidArg) else { return error };
            let has = |commands: &[&str]| commands.is_empty() || words.iter().any(|w| commands.iter().any(|c| w == c));
            if let Some((_, new, _)) = FLAGS.iter().find(|(old, _, commands)| *old == flag && has(commands)) {
                error.insert(ContextKind::SuggestedArg, ContextValue::String((*new).into()));
            }
        }
        ErrorKind::InvalidSubcommand => {
            let Some(command) = given(&error, ContextKind::InvalidSubcommand) else { return error };
            let known = COMMANDS.iter().find(|(parent, old, _)| *old == command && words.iter().any(|w| w == parent));
            if let Some((.., new)) = known {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![(*new).into()]));
            }
        }
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
        let error = <crate::cli::Cli as clap::Parser>::try_parse_from(&words).expect_err(line);
        suggest(error, &words).to_string()
    }

    #[test]
    fn renamed_flags_and_commands_are_refused_with_the_new_name() {
        for (line, refused, suggested) in [
            ("interflow --home x run", "'--home'", "'--data-dir'"),
            ("interflow run --home=x", "'--home'", "'--data-dir'"),
            ("interflow run --proxy 127.0.0.1:0", "'--proxy'", "'--listen-proxy'"),
            ("interflow run --gateway 127.0.0.1:0", "'--gateway'", "'--listen-gateway'"),
            ("interflow demo --admin 127.0.0.1:0", "'--admin'", "'--listen-admin'"),
            ("interflow approvals secrets list", "'secrets'", "'interflow secrets'"),
            ("interflow approvals sessions", "'sessions'", "'interflow sessions'"),
            ("interflow config import-philter x", "'import-philter'", "'interflow import philter'"),
            ("interflow rules import map_remote x", "'import'", "'interflow import mitmproxy'"),
            ("interflow rules held", "'held'", "'interflow pending list'"),
            ("interflow rules decide 1 deny", "'decide'", "'interflow pending'"),
            ("interflow approvals list", "'list'", "'interflow pending list'"),
            ("interflow approvals allow 3", "'allow'", "'interflow pending allow'"),
            ("interflow approvals deny 3", "'deny'", "'interflow pending deny'"),
            ("interflow ca export --form der", "'--form'", "'--format'"),
        ] {
            if line.contains(" demo ") && !cfg!(feature = "demo") {
                continue;
            }
            let error = error(line);
            assert!(error.contains(refused) && error.contains(suggested), "{line}: {error}");
        }
        assert!(!error("interflow flows list --admin x").contains("--listen-admin"));
    }

    #[test]
    fn renamed_keys_map_to_existing_ones() {
        let schema = crate::instance::config::InterflowConfig::schema();
        for (old, new) in KEYS {
            assert!(exists(&schema, new), "{new}");
            assert!(!exists(&schema, old), "{old}");
        }
    }

    /// Whether the schema has a key, looking through references, nulls, lists and tables of any name.
    fn exists(schema: &serde_json::Value, path: &str) -> bool {
        let mut at = vec![schema];
        for part in path.split('.') {
            at = at
                .iter()
                .flat_map(|s| open(s, schema))
                .filter_map(|s| match part {
                    "*" => s.get("additionalProperties"),
                    name => s["properties"].get(name),
                })
                .collect();
        }
        !at.is_empty()
    }

    fn open<'s>(schema: &'s serde_json::Value, root: &'s serde_json::Value) -> Vec<&'s serde_json::Value> {
        let mut all = vec![schema];
        if let Some(pointer) = schema["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
            all.extend(root.pointer(pointer).map(|s| open(s, root)).unwrap_or_default());
        }
        all.extend(schema["anyOf"].as_array().into_iter().flatten().flat_map(|s| open(s, root)));
        all.extend(schema.get("items").map(|s| open(s, root)).unwrap_or_default());
        all
    }
}
