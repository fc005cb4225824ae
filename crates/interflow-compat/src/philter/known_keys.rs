//! All keys of philter-ai-proxy's configuration, to report unknown ones.

use interflow_types::data_file;
use serde_json::Value as Yaml;
use std::sync::LazyLock;

/// Key paths; `*` matches any name, `[]` the elements of a list.
static KEYS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/philter_keys.txt")).collect());

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
