//! All keys of philter-ai-proxy's configuration, to report unknown ones.

use serde_json::Value as Yaml;

/// Key paths; `*` matches any name, `[]` the elements of a list.
const KEYS: [&str; 71] = [
    "version",
    "listen.port",
    "listen.cert",
    "listen.key",
    "listen.devSelfSignedCert",
    "listen.clientCA",
    "listen.maxConcurrentRequests",
    "listen.maxRequestBodyBytes",
    "listen.maxHeaderBytes",
    "listen.readHeaderTimeoutMs",
    "listen.readTimeoutMs",
    "listen.tlsHandshakeTimeoutMs",
    "listen.maxConcurrentTLSHandshakes",
    "listen.trustedProxies[]",
    "listen.shutdownTimeout",
    "philter.endpoint",
    "philter.tlsVerify",
    "philter.caCert",
    "philter.timeouts.connectMs",
    "philter.timeouts.tlsHandshakeMs",
    "philter.timeouts.responseHeaderMs",
    "philter.timeouts.idleConnMs",
    "philter.retry.maxAttempts",
    "philter.retry.initialBackoffMs",
    "philter.retry.maxBackoffMs",
    "philter.circuitBreaker.enabled",
    "philter.circuitBreaker.threshold",
    "philter.circuitBreaker.timeoutSeconds",
    "philter.circuitBreaker.fallback",
    "providers.azure.apiVersion",
    "providers.azure.entraID",
    "providers.bedrock.region",
    "providers.bedrock.roleArn",
    "providers.vertex.project",
    "providers.vertex.location",
    "providers.vertex.endpoint",
    "providers.*.target",
    "providers.*.tlsVerify",
    "providers.*.timeouts.connectMs",
    "providers.*.timeouts.tlsHandshakeMs",
    "providers.*.timeouts.responseHeaderMs",
    "providers.*.timeouts.idleConnMs",
    "providers.openaiCompatible.*.target",
    "providers.openaiCompatible.*.tlsVerify",
    "providers.openaiCompatible.*.timeouts.connectMs",
    "providers.openaiCompatible.*.timeouts.tlsHandshakeMs",
    "providers.openaiCompatible.*.timeouts.responseHeaderMs",
    "providers.openaiCompatible.*.timeouts.idleConnMs",
    "defaults.policy",
    "defaults.context",
    "defaults.outbound.enabled",
    "defaults.outbound.action",
    "defaults.outbound.allowUnscannedStreams",
    "routes[].match.header",
    "routes[].match.value",
    "routes[].match.path",
    "routes[].match.model",
    "routes[].policy",
    "routes[].context",
    "routes[].outbound.enabled",
    "routes[].outbound.action",
    "routes[].outbound.allowUnscannedStreams",
    "auth.enabled",
    "auth.header",
    "auth.apiKeys[].key",
    "auth.apiKeys[].id",
    "auth.apiKeys[].policy",
    "auth.apiKeys[].scopes.providers[]",
    "auth.apiKeys[].scopes.models[]",
    "auth.apiKeys[].scopes.paths[]",
    "tracing.serviceName",
];

/// Keys whose section is covered by a note.
const SECTIONS: [&str; 7] = ["metrics", "tracing", "logging", "rateLimit", "cache", "quotas", "usage"];

const PROVIDERS: [&str; 8] =
    ["openai", "anthropic", "gemini", "ollama", "azure", "bedrock", "vertex", "openaiCompatible"];

/// Paths of unknown keys in a configuration.
pub(super) fn unknown(root: &Yaml) -> Vec<String> {
    let mut out = Vec::new();
    walk(root, "", "", &mut out);
    out
}

fn walk(value: &Yaml, path: &str, shape: &str, out: &mut Vec<String>) {
    match value {
        Yaml::Object(members) => {
            for (name, inner) in members {
                let name = name.as_str();
                if path.is_empty() && SECTIONS.contains(&name) {
                    continue;
                }
                let dot = if path.is_empty() { "" } else { "." };
                let (path, plain) = (format!("{path}{dot}{name}"), format!("{shape}{dot}{name}"));
                let any = format!("{shape}{dot}*");
                let strange = shape == "providers" && !PROVIDERS.contains(&name);
                let next = [plain, any].into_iter().find(|shape| !strange && is_known_prefix(shape));
                match next {
                    // Each provider has its own keys in addition to the common ones.
                    Some(shape) if shape.starts_with("providers.") => provider(inner, &path, &shape, out),
                    Some(shape) => walk(inner, &path, &shape, out),
                    None => out.push(path),
                }
            }
        }
        Yaml::Array(all) => {
            let shape = format!("{shape}[]");
            for (i, inner) in all.iter().enumerate() {
                let path = format!("{path}[{i}]");
                if is_known_prefix(&shape) { walk(inner, &path, &shape, out) } else { out.push(path) }
            }
        }
        Yaml::Null => {}
        _ if KEYS.contains(&shape) => {}
        _ => out.push(path.to_owned()),
    }
}

fn provider(value: &Yaml, path: &str, shape: &str, out: &mut Vec<String>) {
    let (mut own, mut common) = (Vec::new(), Vec::new());
    walk(value, path, shape, &mut own);
    walk(value, path, "providers.*", &mut common);
    let named = shape == "providers.openaiCompatible" || shape.starts_with("providers.openaiCompatible.");
    out.extend(own.into_iter().filter(|path| named || common.contains(path)));
}

/// Whether a known key equals this path or is below it.
fn is_known_prefix(shape: &str) -> bool {
    KEYS.iter().any(|key| key.strip_prefix(shape).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_philter_keys_are_named() {
        let root: Yaml = interflow_codec::document::from_yaml(
            r#"
version: 1
listen: { port: 8080, prot: 1, trustedProxies: ["10.0.0.0/8"] }
philter: { endpoint: x, retry: { maxAttempts: 3, backoff: 2 } }
providers:
  openai: { target: x, tlsVerify: true, timeouts: { connectMs: 1, conectMs: 2 }, region: r }
  azure: { target: x, apiVersion: v, entraID: true }
  bedrock: { region: r, roleArn: a }
  cohere: { target: x }
  openaiCompatible: { groq: { target: x, tlsVerify: false, timeouts: { idleConnMs: 4 }, key: k } }
routes: [{ match: { header: a, value: b }, policy: p }, { match: { modle: x }, policy: p }]
auth: { header: h, apiKeys: [{ key: k, id: i, scopes: { models: [a, b], regions: [c] } }] }
metrics: { whatever: 1 }
extra: { a: 1 }
"#,
        )
        .unwrap();
        assert_eq!(
            unknown(&root),
            [
                "listen.prot",
                "philter.retry.backoff",
                "providers.openai.timeouts.conectMs",
                "providers.openai.region",
                "providers.cohere",
                "providers.openaiCompatible.groq.key",
                "routes[1].match.modle",
                "auth.apiKeys[0].scopes.regions",
                "extra"
            ]
        );
    }
}
