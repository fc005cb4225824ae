//! `interflow config import-philter`: reads the YAML of philter-ai-proxy and writes the same as our configuration, with notes
//! on what has no counterpart.

use serde_yaml_ng::Value as Yaml;
use toml::{Table, Value};

/// A configuration, and what its owner must do by hand.
pub struct Imported {
    /// TOML.
    pub text: String,
    /// Notes, one sentence each.
    pub notes: Vec<String>,
}

/// Reads a configuration of philter-ai-proxy.
///
/// # Errors
/// When it is no YAML, or of another version than 1.
pub fn import(yaml: &str) -> Result<Imported, String> {
    let root: Yaml = serde_yaml_ng::from_str(yaml).map_err(|e| format!("it is no YAML: {e}"))?;
    if root.get("version").is_some_and(|v| v.as_u64() != Some(1)) {
        return Err("only version 1 of its schema is known".into());
    }
    let mut import = Import::default();
    import.listen(&root["listen"]);
    import.providers(&root["providers"]);
    import.philter(&root["philter"], &root["defaults"]);
    import.defaults(&root["defaults"]);
    import.routes(&root["routes"]);
    import.keys(&root["auth"]);
    for (section, instead) in [
        ("metrics", "metrics are at /metrics of the admin port"),
        ("tracing", "traces are not sent"),
        ("logging", "every request is recorded; see docs/recording.md"),
    ] {
        if !root[section].is_null() {
            import.note(format!("{section}: {instead}"));
        }
    }
    let mut config = Table::new();
    for (name, table) in
        [("gateway", import.gateway), ("llm", import.llm), ("redact", import.redact), ("upstream", import.upstream)]
    {
        if !table.is_empty() {
            config.insert(name.into(), table.into());
        }
    }
    let text = toml::to_string_pretty(&config).map_err(|e| e.to_string())?;
    Ok(Imported { text, notes: import.notes })
}

#[derive(Default)]
struct Import {
    gateway: Table,
    llm: Table,
    redact: Table,
    upstream: Table,
    notes: Vec<String>,
}

impl Import {
    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn listen(&mut self, listen: &Yaml) {
        let port = listen["port"].as_u64().unwrap_or(8080);
        self.gateway.insert("listen".into(), Value::Array(vec![format!("0.0.0.0:{port}").into()]));
        if let (Some(certificate), Some(key)) = (listen["cert"].as_str(), listen["key"].as_str()) {
            let mut tls = Table::new();
            tls.insert("certificate".into(), certificate.into());
            tls.insert("key".into(), key.into());
            self.gateway.insert("tls".into(), tls.into());
        } else {
            self.note("listen: without cert and key the gateway speaks plain HTTP");
        }
        if !listen["clientCA"].is_null() {
            self.note("listen.clientCA: clients' certificates are not asked for");
        }
        if !listen["trustedProxies"].is_null() {
            self.note(
                "listen.trustedProxies: use the PROXY protocol (proxy.accept_proxy_protocol) for clients' addresses",
            );
        }
        if let Some(bytes) = listen["maxRequestBodyBytes"].as_u64() {
            let size = Value::String(bytes.to_string());
            self.redact.insert("max_body".into(), size.clone());
            self.llm.insert("max_body".into(), size);
        }
    }

    fn providers(&mut self, providers: &Yaml) {
        let mut upstreams = Table::new();
        let named = providers.as_mapping().into_iter().flatten().filter_map(|(k, v)| Some((k.as_str()?, v)));
        for (name, own) in named.filter(|(name, _)| *name != "openaiCompatible") {
            let upstream = self.provider(name, own);
            if !upstream.is_empty() {
                upstreams.insert(name.into(), upstream.into());
            }
        }
        let compatible = providers["openaiCompatible"].as_mapping().into_iter().flatten();
        for (name, own) in compatible.filter_map(|(k, v)| Some((k.as_str()?, v))) {
            let upstream = self.provider(name, own);
            upstreams.insert(name.into(), upstream.into());
        }
        if !upstreams.is_empty() {
            self.llm.insert("upstream".into(), upstreams.into());
        }
    }

    fn provider(&mut self, name: &str, own: &Yaml) -> Table {
        let mut upstream = Table::new();
        let keys = [("target", "target"), ("endpoint", "target"), ("apiVersion", "api_version"), ("region", "region")];
        for (theirs, ours) in keys {
            if let Some(value) = own[theirs].as_str() {
                upstream.insert(ours.into(), reference(value).into());
            }
        }
        if own["tlsVerify"].as_bool() == Some(false) {
            let host = own["target"].as_str().and_then(|t| t.split("://").nth(1)?.split(['/', ':']).next());
            if let Some(host) = host {
                let list = self.upstream.entry("danger_insecure_hosts").or_insert(Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    list.push(host.into());
                }
            }
        }
        if name == "bedrock" && !own.is_null() {
            upstream.insert("access_key".into(), "env:AWS_ACCESS_KEY_ID".into());
            upstream.insert("secret_key".into(), "env:AWS_SECRET_ACCESS_KEY".into());
            if let Some(role) = own["roleArn"].as_str() {
                upstream.insert("role_arn".into(), role.into());
            }
            self.note("providers.bedrock: requests are signed with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile's: llm.upstream.bedrock.profile");
        }
        if name == "vertex" && !own.is_null() {
            self.note("providers.vertex: the client's own token goes on; set llm.upstream.vertex.service_account to send one of the gateway's");
        }
        if own["entraID"].as_bool() == Some(true) {
            for (key, value) in [
                ("tenant", "TENANT"),
                ("client_id", "env:AZURE_CLIENT_ID"),
                ("client_secret", "env:AZURE_CLIENT_SECRET"),
            ] {
                upstream.insert(key.into(), value.into());
            }
            self.note("providers.azure.entraID: tokens are fetched with AZURE_CLIENT_ID and AZURE_CLIENT_SECRET; write the tenant's id in llm.upstream.azure.tenant");
        }
        if !own["timeouts"].is_null() {
            self.note(format!("providers.{name}.timeouts: see the section timeouts"));
        }
        upstream
    }

    fn philter(&mut self, philter: &Yaml, defaults: &Yaml) {
        let Some(endpoint) = philter["endpoint"].as_str() else { return };
        let mut backend = Table::new();
        backend.insert("kind".into(), "philter".into());
        backend.insert("url".into(), reference(endpoint).into());
        for key in ["policy", "context"] {
            if let Some(value) = defaults[key].as_str() {
                backend.insert(key.into(), value.into());
            }
        }
        let breaker = &philter["circuitBreaker"];
        if breaker["enabled"].as_bool() == Some(true) && breaker["fallback"].as_str() == Some("passthrough") {
            backend.insert("failure".into(), "open".into());
        }
        self.redact.insert("backend".into(), Value::Array(vec![backend.into()]));
        self.note("philter.endpoint: the server is asked beside the built-in detectors; take redact.backend out to do without it");
    }

    fn defaults(&mut self, defaults: &Yaml) {
        if let Some(context) = defaults["context"].as_str().filter(|c| *c != "none") {
            self.redact.insert("context".into(), context.into());
        }
        self.redact.insert("outbound".into(), outbound(&defaults["outbound"]).into());
        self.redact.insert("restore".into(), false.into());
        self.note(
            "redact.restore is off, as answers stayed redacted before; take the line out to have originals put back",
        );
        if let Some(policy) = defaults["policy"].as_str() {
            self.note(format!(
                "defaults.policy: save the policy {policy} as JSON from Philter and name its file in redact.policy"
            ));
        }
    }

    fn routes(&mut self, routes: &Yaml) {
        let mut all = Vec::new();
        for (i, theirs) in routes.as_sequence().into_iter().flatten().enumerate() {
            let matches = &theirs["match"];
            let mut route = Table::new();
            for key in ["path", "model"] {
                if let Some(value) = matches[key].as_str() {
                    route.insert(key.into(), value.into());
                }
            }
            if let (Some(header), Some(value)) = (matches["header"].as_str(), matches["value"].as_str()) {
                let mut headers = Table::new();
                headers.insert(header.into(), value.into());
                route.insert("headers".into(), headers.into());
            }
            if let Some(context) = theirs["context"].as_str() {
                route.insert("context".into(), context.into());
            }
            // A route of theirs takes nothing over from the defaults.
            route.insert("outbound".into(), outbound(&theirs["outbound"]).into());
            if let Some(policy) = theirs["policy"].as_str() {
                self.note(format!(
                    "routes[{i}].policy: save the policy {policy} as JSON and name its file in redact.route[{i}].policy"
                ));
            }
            all.push(Value::Table(route));
        }
        if !all.is_empty() {
            self.redact.insert("route".into(), Value::Array(all));
        }
    }

    fn keys(&mut self, auth: &Yaml) {
        let keys = auth["apiKeys"].as_sequence().map_or(0, Vec::len);
        if keys > 0 {
            self.note(format!("auth.apiKeys: make its {keys} keys anew with `interflow keys`, scopes included"));
        }
    }
}

/// `${NAME}` as our `env:NAME`.
fn reference(value: &str) -> String {
    let name = value.strip_prefix("${").and_then(|v| v.strip_suffix('}'));
    name.map_or_else(|| value.to_owned(), |name| format!("env:{name}"))
}

fn outbound(theirs: &Yaml) -> &'static str {
    if theirs["enabled"].as_bool() != Some(true) {
        return "off";
    }
    match theirs["action"].as_str() {
        Some("block") => "block",
        Some("flag") => "flag",
        _ => "redact",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const THEIRS: &str = r#"
version: 1
listen: { port: 8443, cert: /etc/tls/c.pem, key: /etc/tls/k.pem, maxRequestBodyBytes: 1048576 }
philter: { endpoint: "https://philter:8080", circuitBreaker: { enabled: true, fallback: passthrough } }
providers:
  openai: { target: "https://openai.internal:8443/base", tlsVerify: false }
  azure: { target: "https://r.openai.azure.com", apiVersion: "2024-10-21", entraID: true }
  bedrock: { region: us-east-1 }
  openaiCompatible: { groq: { target: "https://api.groq.com/openai" } }
defaults: { policy: hipaa, context: ward, outbound: { enabled: true, action: block } }
routes:
  - { match: { model: gpt-4 }, policy: strict }
  - { match: { header: x-team, value: red, path: /v1/messages }, policy: p, outbound: { enabled: true, action: flag } }
auth: { apiKeys: [ { key: "sha256$00", id: a } ] }
rateLimit: { requests: 5 }
"#;

    #[test]
    fn what_has_a_counterpart_is_taken_over_and_the_rest_is_said() {
        let imported = import(THEIRS).unwrap();
        let config: Config = toml::from_str(&imported.text).unwrap_or_else(|e| panic!("{e}\n{}", imported.text));
        assert_eq!(config.gateway.listen[0].port(), 8443);
        assert!(config.gateway.tls.is_some());
        assert_eq!(config.redact.max_body.0, 1 << 20);
        assert_eq!(config.llm.upstream["openai"].target.as_deref(), Some("https://openai.internal:8443/base"));
        assert_eq!(config.upstream.danger_insecure_hosts, ["openai.internal"]);
        assert_eq!(config.llm.upstream["bedrock"].region.as_deref(), Some("us-east-1"));
        assert_eq!(config.llm.upstream["groq"].target.as_deref(), Some("https://api.groq.com/openai"));
        let redact = &config.redact;
        assert_eq!((redact.context.as_str(), redact.outbound), ("ward", interflow_redact::OutboundMode::Block));
        assert_eq!(
            (redact.route[0].outbound, redact.route[1].outbound),
            (Some(interflow_redact::OutboundMode::Off), Some(interflow_redact::OutboundMode::Flag))
        );
        assert_eq!(redact.route[1].headers["x-team"], "red");
        assert_eq!(redact.backend[0].url, "https://philter:8080");
        for says in ["hipaa", "strict", "entraID", "interflow keys"] {
            assert!(imported.notes.iter().any(|n| n.contains(says)), "{says}: {:?}", imported.notes);
        }
    }

    #[test]
    fn another_version_is_refused() {
        assert!(import("version: 2").is_err());
        assert!(import("- [").is_err());
        assert!(import("{}").is_ok());
    }
}
