//! `interflow import philter` and `litellm`: converts the configuration of another program and prints it.

use std::io::Write as _;
use std::path::PathBuf;

use interflow_compat::ImportedConfig;

use crate::Result;

#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// The other program's configuration file (YAML).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write the clients' keys, as hashes, to this new file.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
}

/// Prints the converted configuration; notes go to stderr.
pub fn run(args: &ConfigArgs, import: fn(&str) -> Result<ImportedConfig, String>) -> Result<()> {
    let shown = args.file.display();
    let yaml = std::fs::read_to_string(&args.file).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    let imported = import(&yaml).map_err(|e| format!("{shown}: {e}"))?;
    for note in imported.notes {
        interflow_host::errln!("{note}");
    }
    match (imported.keys, &args.keys) {
        (Some(text), Some(path)) => {
            let wrong = |e| format!("{} cannot be written: {e}", path.display());
            let mut file = std::fs::File::create_new(path).map_err(wrong)?;
            file.write_all(text.as_bytes()).map_err(wrong)?;
        }
        (Some(_), None) => {
            interflow_host::errln!("keys of clients: --keys FILE writes them, as hashes; name that file in keys.file")
        }
        (None, _) => {}
    }
    crate::cli::output::print(&imported.text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use interflow_compat::{litellm, philter::import};

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
        assert_eq!(redact.route[1].headers.as_ref().unwrap()["x-team"], "red");
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

    const THEIR_MODELS: &str = r#"
model_list:
  - { model_name: fast, litellm_params: { model: openai/gpt-6-luna, api_key: os.environ/OPENAI_API_KEY, rpm: 60, weight: 3 } }
  - { model_name: fast, litellm_params: { model: azure/luna, api_base: "https://r.openai.azure.com/", api_key: sk-azure-secret, api_version: "2024-10-21", rpm: 40 } }
  - { model_name: claude, litellm_params: { model: claude-sonnet-5-5, timeout: 30, input_cost_per_token: 0.1 } }
  - { model_name: claude, litellm_params: { model: "bedrock/converse/us.anthropic.claude-sonnet-5-5", aws_region_name: us-east-1, order: 2 } }
  - { model_name: local, litellm_params: { model: openai/llama, api_base: "http://10.0.0.5:8000/v1", api_key: none } }
  - { model_name: nobody, litellm_params: { model: replicate/x } }
router_settings: { routing_strategy: latency-based-routing, num_retries: 1, fallbacks: [ { fast: [claude] } ], model_group_alias: { quick: fast } }
litellm_settings: { request_timeout: 600, max_budget: 50, budget_duration: 1d, cache: true, drop_params: true }
general_settings: { master_key: sk-1234, max_parallel_requests: 8, database_url: "postgres://x" }
mcp_servers:
  files: { command: npx, args: ["-y", server], env: { TOKEN: secret-token, HOME: os.environ/HOME }, allowed_tools: [read] }
  old: { url: "https://x.example/sse", transport: sse }
guardrails: [ {} ]
"#;

    #[test]
    fn litellm_config_becomes_routes_limits_and_servers_and_the_rest_is_reported() {
        let imported = litellm::import(THEIR_MODELS).unwrap();
        let config: InterflowConfig =
            toml::from_str(&imported.text).unwrap_or_else(|e| panic!("{e}\n{}", imported.text));
        let deployments = |route: &str| {
            let of = &config.llm.route[route].deployments;
            of.iter().map(|d| (d.provider.as_str(), d.model.as_deref(), d.weight, d.priority)).collect::<Vec<_>>()
        };
        let bedrock = ("bedrock", Some("us.anthropic.claude-sonnet-5-5"), 1);
        let anthropic = ("anthropic", Some("claude-sonnet-5-5"), 1);
        assert_eq!(
            deployments("fast"),
            [
                ("openai", Some("gpt-6-luna"), 3, 0),
                ("azure", Some("luna"), 1, 0),
                (anthropic.0, anthropic.1, 1, 1),
                (bedrock.0, bedrock.1, 1, 3)
            ]
        );
        assert_eq!(deployments("claude"), [(anthropic.0, anthropic.1, 1, 0), (bedrock.0, bedrock.1, 1, 2)]);
        assert_eq!(deployments("local"), [("openai-2", Some("llama"), 1, 0)]);
        let provider = |name: &str| &config.llm.provider[name];
        assert_eq!(provider("openai").api_key.as_deref(), Some("env:OPENAI_API_KEY"));
        assert_eq!(provider("anthropic").api_key.as_deref(), Some("env:ANTHROPIC_API_KEY"));
        assert_eq!(provider("azure").url.as_deref(), Some("https://r.openai.azure.com"));
        assert_eq!(provider("openai-2").url.as_deref(), Some("http://10.0.0.5:8000"));
        assert_eq!(provider("bedrock").credentials, Some(interflow_llm::CredentialsMode::Ambient));
        let route = &config.llm.route["fast"];
        assert_eq!((route.retries, route.timeout.0.as_secs()), (1, 600));
        assert_eq!(route.strategy, interflow_llm::RouteStrategy::Latency);
        assert_eq!(config.llm.aliases["quick"], "fast");
        let limits = toml::to_string(&config.quota.rule).unwrap_or_else(|_| format!("{:?}", config.quota.rule));
        assert!(limits.contains("model fast") && limits.contains("money_per_day: Some(50.0)"), "{limits}");
        let server = &config.mcp.server["files"];
        assert_eq!(
            (server.env["TOKEN"].as_str(), server.env["HOME"].as_str()),
            ("env:LITELLM_MCP_FILES_TOKEN", "env:HOME")
        );
        assert_eq!((&server.args[..], &server.tools[..]), (&["-y".into(), "server".into()][..], &["read".into()][..]));
        assert!(!config.mcp.server.contains_key("old"));
        let ring = interflow_limits::VirtualKeyRing::parse(imported.keys.as_deref().unwrap()).unwrap();
        assert_eq!(&*ring.find_now("sk-1234").unwrap().id, "master");
        for secret in ["sk-azure-secret", "secret-token", "sk-1234"] {
            assert!(!imported.text.contains(secret), "{}", imported.text);
        }
        for says in [
            "model_list[1].litellm_params.api_key: the secret is not copied; put it in the environment variable LITELLM_AZURE_API_KEY",
            "model_list[2].litellm_params.input_cost_per_token: write it in the file of quota.prices",
            "the provider of `replicate/x` is not supported",
            "mcp_servers.old.transport",
            "litellm_settings.cache: left out; write [llm.cache]",
            "general_settings.database_url",
            "guardrails: left out",
        ] {
            assert!(imported.notes.iter().any(|n| n.contains(says)), "{says}: {:#?}", imported.notes);
        }
        assert!(!imported.notes.iter().any(|n| n.contains("drop_params")), "{:#?}", imported.notes);
        assert!(litellm::import("version: 1").is_err() && litellm::import("model_list: 5").is_err());
    }

    #[test]
    fn secrets_of_one_provider_are_never_another_ones_and_odd_values_are_reported() {
        let imported = litellm::import(
            r#"
model_list:
  - { model_name: a, litellm_params: { model: openai/x, api_key: sk-third, api_base: "http://me:pw@third.example/v1?key=sk-q" } }
  - { model_name: a, litellm_params: { model: openai/x, api_key: os.environ/OPENAI_API_KEY, rpm: -5, tpm: 1.5 } }
  - { model_name: a, litellm_params: { model: openai/x, api_key: sk-second, timeout: "30" } }
  - { model_name: a, litellm_params: { model: openai/x, api_key: sk-second } }
  - { model_name: b, litellm_params: { model: azure/x } }
  - { model_name: c, litellm_params: { model: bedrock/x, aws_region_name: eu-west-1 } }
  - { model_name: c, litellm_params: { model: bedrock/x, aws_region_name: eu-west-2 } }
router_settings: { num_retries: -1, allowed_fails: 99999999999, fallbacks: [ { a: [a] } ] }
mcp_servers: { "bad name": { url: "https://x.example" }, s: { command: x, args: ["--token=sk-arg"] } }
"#,
        )
        .unwrap();
        let config: InterflowConfig =
            toml::from_str(&imported.text).unwrap_or_else(|e| panic!("{e}\n{}", imported.text));
        let of = |name: &str| {
            let provider = &config.llm.provider[name];
            (provider.url.as_deref().unwrap_or_default(), provider.api_key.as_deref().unwrap_or_default())
        };
        assert_eq!(of("openai"), ("http://third.example", "env:LITELLM_OPENAI_API_KEY"));
        assert_eq!(of("openai-2"), ("", "env:OPENAI_API_KEY"));
        assert_eq!(of("openai-3"), ("", "env:LITELLM_OPENAI_API_KEY_2"));
        let second = &config.llm.provider["bedrock-2"];
        assert_eq!((second.kind.as_deref(), second.region.as_deref()), (Some("bedrock"), Some("eu-west-2")));
        let compiled = interflow_llm_gateway::gateway::LlmGateway::compile(&config.llm, &|text| Ok(text.to_owned()));
        assert!(compiled.is_ok(), "{:?}", compiled.err());
        assert_eq!(config.llm.route["a"].deployments.len(), 3);
        for says in [
            "model_list[0].litellm_params.api_base: name, password and query",
            "model_list[1].rpm: `-5` is not a positive number",
            "model_list[1].tpm: `1.5` is not a whole number",
            "model_list[3]: the same model of the same account",
            "model_list[4]: `azure` needs api_base",
            "num_retries: `-1` is not",
            "allowed_fails: `99999999999` is not",
            "`a` to `a`",
            "mcp_servers.bad name: a name has",
            "mcp_servers.s.args: they are copied",
        ] {
            assert!(imported.notes.iter().any(|n| n.contains(says)), "{says}: {:#?}", imported.notes);
        }
        assert!(!imported.text.contains("sk-q") && !imported.text.contains("pw@"), "{}", imported.text);
    }
}
