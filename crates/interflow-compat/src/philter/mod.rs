//! Converts philter-ai-proxy's YAML configuration, with notes on settings that have no counterpart.

mod keys;
mod known_keys;

use interflow_types::data_file;
use serde_json::Value as Yaml;
use toml::{Table, Value};

use crate::draft::{ConfigDraft, ImportedConfig, insert_some, non_empty, scalar_text};

/// Translates a configuration file of philter-ai-proxy.
///
/// # Errors
/// The input is not valid YAML, or its schema version is not 1.
pub fn import(yaml: &str) -> Result<ImportedConfig, String> {
    let root: Yaml = interflow_codec::document::from_yaml(yaml).map_err(|e| format!("invalid YAML: {e}"))?;
    if root.get("version").is_some_and(|v| v.as_u64() != Some(1)) {
        return Err("only schema version 1 is supported".into());
    }
    let mut import = PhilterImporter::default();
    for key in known_keys::unknown(&root) {
        import.draft.note(format!("{key}: unknown key; ignored"));
    }
    import.listen(&root["listen"]);
    import.providers(&root["providers"]);
    import.philter(&root["philter"], &root["defaults"]);
    import.defaults(&root["defaults"]);
    import.routes(&root["routes"]);
    let keys = import.keys(&root["auth"]);
    import.import_telemetry(&root);
    import.note_removed(&root);
    import.draft.finish(keys)
}

#[derive(Default)]
struct PhilterImporter {
    draft: ConfigDraft,
}

impl PhilterImporter {
    /// Resolves `${NAME}` and `file:PATH` references, as philter-ai-proxy does at startup.
    fn value(&mut self, theirs: &str) -> Option<String> {
        if let Some(path) = theirs.strip_prefix("file:") {
            match std::fs::read_to_string(path) {
                Ok(text) => return Some(text.trim().to_owned()),
                Err(e) => self.draft.note(format!("{path} cannot be read: {e}")),
            }
            return None;
        }
        let mut out = String::new();
        let mut rest = theirs;
        while let Some((before, (name, after))) = rest.split_once("${").and_then(|(b, r)| Some((b, r.split_once('}')?)))
        {
            let Ok(value) = std::env::var(name) else {
                self.draft
                    .note(format!("the environment variable {name} is not set, so `{theirs}` cannot be resolved"));
                return None;
            };
            out.push_str(before);
            out.push_str(&value);
            rest = after;
        }
        Some(out + rest)
    }

    fn listen(&mut self, listen: &Yaml) {
        let port = listen["port"].as_u64().unwrap_or(8080);
        self.draft.push("gateway", "listen", format!("0.0.0.0:{port}"));
        if let (Some(certificate), Some(key)) = (listen["cert"].as_str(), listen["key"].as_str()) {
            let tls = [("certificate".to_owned(), certificate.into()), ("key".to_owned(), key.into())];
            self.draft.set("gateway", "tls", Table::from_iter(tls));
        } else if listen["devSelfSignedCert"].as_bool() == Some(true) {
            self.draft.set("gateway", "tls_self_signed", true);
            self.draft
                .note("listen.devSelfSignedCert: certificates are signed by Interflow's CA, which clients must trust");
        } else {
            self.draft.note("listen: without cert and key the gateway serves plain HTTP");
        }
        if let Some(authorities) = listen["clientCA"].as_str() {
            self.draft.push("gateway", "client_ca", authorities);
        }
        for trusted in listen["trustedProxies"].as_array().into_iter().flatten().filter_map(Yaml::as_str) {
            self.draft.push("gateway", "trusted_proxies", trusted);
            self.draft.note("listen.trustedProxies: the client is the right-most address of X-Forwarded-For that is not one of them, not the left-most");
        }
        for (theirs, section, key) in [
            ("maxRequestBodyBytes", "redact", "max_body"),
            ("maxRequestBodyBytes", "llm", "max_body"),
            ("maxHeaderBytes", "limits", "max_header_bytes"),
        ] {
            self.draft.set_some(section, key, listen[theirs].as_u64().map(|bytes| bytes.to_string()));
        }
        let most = listen["maxConcurrentRequests"].as_u64().filter(|n| *n > 0);
        self.draft.set_some("gateway", "max_concurrent_requests", most.map(|n| n as i64));
        for (theirs, key) in [
            ("readHeaderTimeoutMs", "header_timeout"),
            ("readTimeoutMs", "body_idle_timeout"),
            ("tlsHandshakeTimeoutMs", "handshake"),
        ] {
            self.draft.set_some("timeouts", key, milliseconds(&listen[theirs]));
        }
        let drain = &listen["shutdownTimeout"];
        let drain = drain.as_str().map(str::to_owned).or_else(|| drain.as_u64().map(|s| format!("{s}s")));
        self.draft.set_some("proxy", "drain_timeout", drain);
        if !listen["maxConcurrentTLSHandshakes"].is_null() {
            self.draft.note("listen.maxConcurrentTLSHandshakes: limits.connections and limits.accept_rate limit connections instead");
        }
    }

    fn providers(&mut self, providers: &Yaml) {
        let mut upstreams = Table::new();
        let entries = || providers.as_object().into_iter().flatten();
        let compatible = || providers["openaiCompatible"].as_object().into_iter().flatten();
        for (name, own) in entries().filter(|(name, _)| *name != "openaiCompatible") {
            insert_some(&mut upstreams, name, non_empty(self.provider(name, own)));
        }
        upstreams.extend(compatible().map(|(name, own)| (name.clone(), self.provider(name, own).into())));
        self.draft.set_some("llm", "provider", non_empty(upstreams));
        let longest =
            |key: &str| entries().chain(compatible()).filter_map(|(_, own)| own["timeouts"][key].as_u64()).max();
        for (theirs, section, key) in [
            ("connectMs", "timeouts", "connect"),
            ("responseHeaderMs", "timeouts", "response_header_timeout"),
            ("idleConnMs", "upstream", "idle_timeout"),
        ] {
            if let Some(ms) = longest(theirs).filter(|ms| *ms > 0) {
                self.draft.set(section, key, format!("{ms}ms"));
                self.draft.note(format!(
                    "providers.*.timeouts.{theirs}: the longest one applies to all providers, as {section}.{key}"
                ));
            }
        }
        if longest("tlsHandshakeMs").is_some() {
            self.draft.note("providers.*.timeouts.tlsHandshakeMs: timeouts.handshake applies to clients and upstreams");
        }
    }

    /// Hosts without certificate verification.
    fn verify(&mut self, own: &Yaml, url: Option<&str>, at: &str) {
        if own["tlsVerify"].as_bool() != Some(false) {
            return;
        }
        match url.and_then(|t| t.split("://").nth(1)?.split(['/', ':']).next()) {
            Some(host) => self.draft.push("upstream", "danger_insecure_hosts", host),
            None => self.draft.note(format!("{at}.tlsVerify: the provider's own certificate is still verified")),
        }
    }

    fn provider(&mut self, name: &str, own: &Yaml) -> Table {
        let mut upstream = Table::new();
        let keys = [("target", "url"), ("endpoint", "url"), ("apiVersion", "api_version"), ("region", "region")];
        for (theirs, key) in keys {
            insert_some(&mut upstream, key, own[theirs].as_str().and_then(|v| self.value(v)));
        }
        let target = upstream.get("url").and_then(Value::as_str).map(str::to_owned);
        self.verify(own, target.as_deref(), &format!("providers.{name}"));
        // These providers take credentials from the environment of the process.
        let entra = own["entraID"].as_bool() == Some(true);
        if entra || matches!(name, "bedrock" | "vertex") && !own.is_null() {
            upstream.insert("credentials".into(), "ambient".into());
            self.draft.note(format!("providers.{name}: credentials come from the environment of the process (credentials = \"ambient\"), entraID and roles included"));
        }
        insert_some(&mut upstream, "role_arn", own["roleArn"].as_str().filter(|_| name == "bedrock"));
        upstream
    }

    fn philter(&mut self, philter: &Yaml, defaults: &Yaml) {
        let Some(endpoint) = philter["endpoint"].as_str().and_then(|v| self.value(v)) else { return };
        self.verify(philter, Some(&endpoint), "philter");
        if let Some(ca) = philter["caCert"].as_str() {
            self.draft.push("upstream", "extra_ca", ca);
        }
        let mut backend = Table::new();
        backend.insert("kind".into(), "philter".into());
        backend.insert("url".into(), endpoint.into());
        copy_texts(&mut backend, defaults, &["policy", "context"]);
        insert_some(&mut backend, "timeout", milliseconds(&philter["timeouts"]["responseHeaderMs"]));
        let breaker = &philter["circuitBreaker"];
        if breaker["enabled"].as_bool() == Some(true) && breaker["fallback"].as_str() == Some("passthrough") {
            backend.insert("failure".into(), "open".into());
            self.draft.note("philter.circuitBreaker.fallback passthrough: the backend's failure = \"open\"; the built-in detectors still apply");
        }
        if !philter["retry"].is_null() || !breaker.is_null() {
            self.draft.note(
                "philter.retry, philter.circuitBreaker: the server is called once; if it fails, the request is refused",
            );
        }
        self.draft.push("redact", "backend", backend);
        self.draft.note("philter.endpoint: the server is called in addition to the built-in detectors; remove redact.backend to disable it, or set redact.backend.token for Philter 4");
    }

    fn defaults(&mut self, defaults: &Yaml) {
        self.draft.set_some("redact", "context", defaults["context"].as_str().filter(|c| *c != "none"));
        self.draft.set("redact", "responses", response_mode(&defaults["outbound"]));
        self.draft.set("redact", "restore", false);
        if defaults["outbound"]["allowUnscannedStreams"].as_bool() == Some(true) {
            self.draft.note("defaults.outbound.allowUnscannedStreams: streams are scanned as they pass");
        }
        self.draft.note(
            "redact.restore is off, because philter-ai-proxy leaves responses redacted; remove the line to restore original values",
        );
        if let Some(policy) = defaults["policy"].as_str() {
            self.draft.note(format!(
                "defaults.policy: save the policy {policy} as JSON from Philter and name its file in redact.policy"
            ));
        }
    }

    fn routes(&mut self, routes: &Yaml) {
        let mut all = Vec::new();
        for (i, theirs) in routes.as_array().into_iter().flatten().enumerate() {
            let matches = &theirs["match"];
            let mut route = Table::new();
            copy_texts(&mut route, matches, &["path", "model"]);
            copy_texts(&mut route, theirs, &["context"]);
            if route.contains_key("path") {
                self.draft.note(format!("routes[{i}].match.path: it also matches the paths below it"));
            }
            match (scalar_text(&matches["header"]), scalar_text(&matches["value"])) {
                (Some(header), Some(value)) => {
                    route.insert("headers".into(), Table::from_iter([(header, value.into())]).into());
                }
                (None, None) => {}
                _ => self.draft.note(format!("routes[{i}].match: `header` and `value` belong together; left out")),
            }
            // In philter-ai-proxy, a route does not inherit from the defaults.
            route.insert("responses".into(), response_mode(&theirs["outbound"]).into());
            if let Some(policy) = theirs["policy"].as_str() {
                self.draft.note(format!(
                    "routes[{i}].policy: save the policy {policy} as JSON and name its file in redact.route[{i}].policy"
                ));
            }
            all.push(Value::Table(route));
        }
        self.draft.set_some("redact", "route", non_empty(all));
    }

    /// Imports the client keys. They are sent in addition to the client's provider credentials, which are forwarded.
    fn keys(&mut self, auth: &Yaml) -> Option<String> {
        let keys = auth["apiKeys"].as_array().filter(|keys| !keys.is_empty())?;
        let required = auth["enabled"].as_bool() != Some(false);
        self.draft.set("keys", "require_virtual_key", required);
        if required {
            // Every client presents a key, which a web page does not have, so DNS rebinding needs no host check.
            self.draft.set("gateway", "hosts", vec!["*"]);
        }
        self.draft.set("keys", "header", auth["header"].as_str().unwrap_or("x-philter-proxy-key"));
        let imported = keys::file(keys, &mut |theirs| self.value(theirs));
        self.draft.notes.extend(imported.notes);
        self.draft.set_some("redact", "policies", non_empty(imported.policies));
        Some(imported.file)
    }

    fn import_telemetry(&mut self, root: &Yaml) {
        if root["logging"]["enabled"].as_bool() != Some(false) {
            self.draft.set("audit", "enabled", true);
            self.draft.set("audit", "file", root["logging"]["file"].as_str().unwrap_or("-"));
        }
        let tracing = &root["tracing"];
        if tracing["enabled"].as_bool() == Some(true) {
            self.draft.set_some("telemetry", "service", tracing["serviceName"].as_str());
            self.draft.note(
                "tracing: the collector is the one in OTEL_EXPORTER_OTLP_ENDPOINT; without it write telemetry.endpoint",
            );
        }
        if root["metrics"]["enabled"].as_bool() != Some(false) {
            self.draft.note("metrics: they are at /metrics of the admin port, under Interflow's names, which docs/migration/philter-ai-proxy.md compares; admin.public_metrics lets them be read without the token");
        }
    }

    fn note_removed(&mut self, root: &Yaml) {
        let removed = data_file::records(include_str!("../../data/philter_removed.txt"));
        for [section, instead] in removed.filter(|[section, _]| !root[*section].is_null()) {
            self.draft.note(format!("{section}: not imported; {instead}"));
        }
    }
}

/// A number of milliseconds as a duration, if it is not zero.
fn milliseconds(theirs: &Yaml) -> Option<String> {
    theirs.as_u64().filter(|ms| *ms > 0).map(|ms| format!("{ms}ms"))
}

fn copy_texts(table: &mut Table, theirs: &Yaml, keys: &[&str]) {
    let texts = keys.iter().filter_map(|key| Some(((*key).to_owned(), scalar_text(&theirs[*key])?.into())));
    table.extend(texts);
}

fn response_mode(theirs: &Yaml) -> &'static str {
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

    #[test]
    fn values_that_are_no_texts_in_yaml_are_not_lost() {
        let text = "
routes:
  - { match: { header: x-team, value: 7 } }
  - { match: { model: 4 } }
  - { match: { header: x-team } }
auth: { apiKeys: [{ id: 12, key: word, scopes: { models: [4] } }] }
";
        let imported = import(text).unwrap();
        let config: Table = toml::from_str(&imported.text).unwrap();
        let routes = config["redact"]["route"].as_array().unwrap();
        assert_eq!(routes[0]["headers"]["x-team"].as_str(), Some("7"));
        assert_eq!(routes[1]["model"].as_str(), Some("4"));
        assert!(imported.notes.iter().any(|n| n.starts_with("routes[2].match: ")), "{:#?}", imported.notes);
        let keys = imported.keys.unwrap();
        assert!(keys.contains("id = \"12\"") && keys.contains("models = [\"4\"]"), "{keys}");
    }
}
