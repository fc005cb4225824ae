//! `interflow import philter`: converts the configuration of philter-ai-proxy and prints it.

use std::io::Write as _;
use std::path::PathBuf;

use interflow_compat::philter::import;

use crate::CliError;

#[derive(Debug, clap::Args)]
pub struct PhilterArgs {
    /// Configuration file of philter-ai-proxy (YAML).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write the clients' keys, as hashes, to this new file.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
}

/// Prints the converted configuration; notes go to stderr.
pub fn run(args: &PhilterArgs) -> Result<(), CliError> {
    let (file, keys) = (&args.file, args.keys.as_deref());
    let shown = file.display();
    let yaml = std::fs::read_to_string(file).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    let imported = import(&yaml).map_err(|e| format!("{shown}: {e}"))?;
    for note in imported.notes {
        interflow_host::errln!("{note}");
    }
    match (imported.keys, keys) {
        (Some(text), Some(path)) => {
            let wrong = |e| format!("{} cannot be written: {e}", path.display());
            let mut file = std::fs::File::create_new(path).map_err(wrong)?;
            file.write_all(text.as_bytes()).map_err(wrong)?;
        }
        (Some(_), None) => {
            interflow_host::errln!("auth.apiKeys: --keys FILE writes them, as hashes; name that file in keys.file")
        }
        (None, _) => {}
    }
    crate::cli::output::print(&imported.text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::config::InterflowConfig;

    const THEIRS: &str = r#"
version: 1
listen: { port: 8443, cert: /etc/tls/c.pem, key: /etc/tls/k.pem, maxRequestBodyBytes: 1048576, maxHeaderBytes: 65536, maxConcurrentRequests: 9, readHeaderTimeoutMs: 5000, readTimeoutMs: 6000, shutdownTimeout: 30s, clientCA: /etc/tls/ca.pem, trustedProxies: [10.0.0.0/8] }
philter: { endpoint: "https://philter:8080", tlsVerify: false, caCert: /etc/ca.pem, timeouts: { responseHeaderMs: 7000 }, circuitBreaker: { enabled: true, fallback: passthrough } }
providers:
  openai: { target: "https://openai.internal:8443/base", tlsVerify: false, timeouts: { connectMs: 1500, responseHeaderMs: 2000, idleConnMs: 9000 } }
  azure: { target: "https://r.openai.azure.com", apiVersion: "2024-10-21", entraID: true }
  bedrock: { region: us-east-1 }
  openaiCompatible: { groq: { target: "https://api.groq.com/openai" } }
defaults: { policy: hipaa, context: ward, outbound: { enabled: true, action: block } }
routes:
  - { match: { model: gpt-4 }, policy: strict }
  - { match: { header: x-team, value: red, path: /v1/messages }, policy: p, outbound: { enabled: true, action: flag } }
auth: { header: x-team-key, apiKeys: [ { key: plain-word, id: a, scopes: { models: ["gpt-4*"], paths: [/v1/chat] } }, { key: "bcrypt$x" }, { key: "sha256$x" }, { key: "sha256$d21886a6fcd60c911631b3b19f67c03f1997de6bf6b4226ed955707b18f12a47", id: hashed, policy: strict } ] }
rateLimit: { requests: 5 }
logging: { file: /var/log/audit.jsonl }
lisen: { port: 1 }
"#;

    #[test]
    fn philter_config_is_imported_and_unsupported_keys_are_reported() {
        let imported = import(THEIRS).unwrap();
        let config: InterflowConfig =
            toml::from_str(&imported.text).unwrap_or_else(|e| panic!("{e}\n{}", imported.text));
        assert_eq!(config.gateway.listen[0].port(), 8443);
        assert!(config.gateway.tls.is_some());
        assert_eq!(config.gateway.client_ca, [std::path::PathBuf::from("/etc/tls/ca.pem")]);
        assert!(config.gateway.trusts([10, 1, 2, 3].into()) && !config.gateway.trusts([11, 1, 2, 3].into()));
        assert_eq!(config.redact.policies["strict"], std::path::Path::new("strict.json"));
        assert_eq!(config.redact.max_body.0, 1 << 20);
        assert_eq!(config.llm.provider["openai"].url.as_deref(), Some("https://openai.internal:8443/base"));
        assert_eq!(config.upstream.danger_insecure_hosts, ["openai.internal", "philter"]);
        assert_eq!(config.upstream.extra_ca, [std::path::PathBuf::from("/etc/ca.pem")]);
        assert_eq!(config.llm.provider["bedrock"].region.as_deref(), Some("us-east-1"));
        let ambient = Some(interflow_llm::CredentialsMode::Ambient);
        assert_eq!(
            [config.llm.provider["bedrock"].credentials, config.llm.provider["azure"].credentials],
            [ambient; 2]
        );
        assert_eq!(config.llm.provider["groq"].url.as_deref(), Some("https://api.groq.com/openai"));
        let redact = &config.redact;
        assert_eq!((redact.context.as_str(), redact.responses), ("ward", interflow_redact::OutboundMode::Block));
        assert_eq!(
            (redact.route[0].responses, redact.route[1].responses),
            (Some(interflow_redact::OutboundMode::Off), Some(interflow_redact::OutboundMode::Flag))
        );
        assert_eq!(redact.route[1].headers["x-team"], "red");
        assert_eq!(redact.backend[0].url, "https://philter:8080");
        assert_eq!(redact.backend[0].timeout.0.as_secs(), 7);
        assert_eq!((config.timeouts.connect.0.as_millis(), config.timeouts.header_timeout.0.as_secs()), (1500, 5));
        assert_eq!(config.timeouts.response_header_timeout.0.as_secs(), 2);
        assert_eq!(config.upstream.idle_timeout.0.as_secs(), 9);
        assert_eq!((config.gateway.max_concurrent_requests, config.proxy.drain_timeout.0.as_secs()), (9, 30));
        assert_eq!((config.keys.require_virtual_key, config.keys.header.as_str()), (Some(true), "x-team-key"));
        assert!(config.audit.enabled && config.audit.file == std::path::Path::new("/var/log/audit.jsonl"));
        let ring = interflow_limits::VirtualKeyRing::parse(imported.keys.as_deref().unwrap()).unwrap();
        assert_eq!(ring.find_now("b-word").unwrap().policy.as_deref(), Some("strict"));
        assert!(!imported.text.contains("[compat]"), "{}", imported.text);
        let key = ring.find_now("plain-word").unwrap();
        assert_eq!(
            (&*key.id, &key.scope.models[..], &key.scope.paths[..]),
            ("a", &["gpt-4*".to_owned()][..], &["/v1/chat*".to_owned()][..])
        );
        assert!(!imported.keys.unwrap().contains("plain-word") && !imported.text.contains("plain-word"));
        for says in [
            "hipaa",
            "strict",
            "entraID",
            "apiKeys[1].key: a bcrypt hash",
            "apiKeys[2].key: its SHA-256",
            "metrics: ",
            "rateLimit: ",
            "lisen: unknown key",
        ] {
            assert!(imported.notes.iter().any(|n| n.contains(says)), "{says}: {:?}", imported.notes);
        }
    }

    #[test]
    fn unsupported_philter_config_version_is_refused() {
        assert!(import("version: 2").is_err());
        assert!(import("- [").is_err());
        assert!(import("{}").is_ok());
    }
}
