//! LLM traffic through gateway and proxy, redacted and restored, with a provider that detects leaks.

mod answers;
mod attempts;
mod bad_input;
mod bound_thinking;
mod charges;
mod coalescing;
mod corpus;
mod corpus_cases;
mod credentials;
mod deployments;
mod key_scopes;
mod leaks;
mod mixed_histories;
mod newest_models;
mod owners;
mod routing;
mod side_endpoints;
mod sockets;
mod strings;
/// The harness of the proxy's own tests, partly used.
#[allow(dead_code, unexpected_cfgs)]
#[path = "../../../interflow-proxy/tests/proxy/support.rs"]
mod support;
mod telemetry;
mod vectors;

use std::path::Path;
use std::sync::Arc;

use interflow_limits::{KeyStore, KeysConfig, LimiterDeps, NoRedis, QuotaConfig, SpendLedger, UsageLimiter};
use interflow_llm::{LlmConfig, LlmUpstreamConfig};
use interflow_llm_gateway::gateway::{GatewayDeps, LlmGateway, LlmGatewayMount};
use interflow_llm_gateway::guardrails::{GuardrailService, Reviewer};
use interflow_llm_gateway::limits::{KeyRules, LimitPass};
use interflow_llm_gateway::llm_telemetry::{AuditConfig, LlmTelemetry, TelemetryConfig};
use interflow_llm_gateway::redaction::RedactionService;
use interflow_llm_gateway::stage;
use interflow_proxy::LocalClient;
use interflow_proxy::config::InterceptMode;
use interflow_redact::RedactConfig;
use interflow_testkit::{Answer, Origin, Reply as Answering, Wire};
use interflow_types::HttpClient;
use serde_json::Value;

use support::Proxy;

/// Values that must never reach a provider.
pub const SSN: &str = "123-45-6789";
pub const MAIL: &str = "anna.berg@firm.com";

/// A proxy with LLM and redaction components, and every built-in upstream at this origin.
pub struct Gate {
    pub proxy: Proxy,
    pub gateway: Arc<LlmGateway>,
    pub limits: Arc<UsageLimiter>,
}

pub struct Components<'a> {
    pub redact: RedactConfig,
    pub llm: LlmConfig,
    pub trusted: Vec<&'a Origin>,
    /// Virtual keys, in the format of the keys file.
    pub keys: String,
    pub quota: QuotaConfig,
    pub spend: Option<Arc<SpendLedger>>,
    /// Which tunnels are decrypted.
    pub intercept: InterceptMode,
}

impl Gate {
    pub async fn start(origin: &Origin) -> Self {
        Self::with(origin, |_| ()).await
    }

    pub async fn with<'a>(origin: &'a Origin, change: impl FnOnce(&mut Components<'a>)) -> Self {
        let mut components = Components {
            redact: RedactConfig::default(),
            llm: LlmConfig::default(),
            trusted: Vec::new(),
            keys: String::new(),
            quota: QuotaConfig::default(),
            spend: None,
            intercept: InterceptMode::default(),
        };
        for name in ["openai", "anthropic", "gemini", "ollama", "azure", "bedrock", "vertex", "cohere", "mistral"] {
            let at = LlmUpstreamConfig {
                url: Some(origin.url("").trim_end_matches('/').into()),
                ..LlmUpstreamConfig::default()
            };
            components.llm.provider.insert(name.into(), at);
        }
        change(&mut components);
        if !components.keys.is_empty() {
            components.llm.provider.values_mut().for_each(|at| {
                at.api_key.get_or_insert_with(|| "sk-real".into());
            });
        }
        let secret = |text: &str| Ok(text.to_owned());
        let local = LocalClient::default();
        let redaction =
            RedactionService::new(&components.redact, Path::new("/"), [7; 32], Arc::new(local.clone())).unwrap();
        let service = Arc::clone(&redaction);
        let limits = {
            let deps = LimiterDeps { spend: components.spend.take(), alerts: None };
            UsageLimiter::with_deps(&components.quota, Path::new("/"), &NoRedis, deps).unwrap()
        };
        let deps = GatewayDeps {
            egress: Arc::new(local.clone()),
            unrecorded: Arc::new(local.clone()),
            metadata: Arc::new(local.clone()),
            limits: Arc::clone(&limits),
            inspects_everywhere: Box::new(move |transport| service.redacts(transport)),
        };
        let gateway = LlmGateway::new(LlmGateway::compile(&components.llm, &secret).unwrap(), deps);
        let egress: Arc<dyn HttpClient> = Arc::new(local.clone());
        let (audit, telemetry) = (AuditConfig::default(), TelemetryConfig::default());
        let telemetry =
            LlmTelemetry::new(&audit, &telemetry, Path::new("/"), Arc::clone(&limits), Arc::clone(&egress), 0).unwrap();
        let nobody: Reviewer = Box::new(|_, _, _| Box::pin(async { Err("there is no one to ask".to_owned()) }));
        let guardrails =
            GuardrailService::new(&components.llm, Path::new("/"), Arc::clone(&gateway), egress, nobody).unwrap();
        let pass = limit_pass(&components.keys, &limits, &gateway);
        let stages = stage::stages(&gateway, telemetry, pass, redaction, guardrails).to_vec();
        let proxy = Proxy::with_components(
            &components.trusted,
            stages,
            vec![Arc::new(LlmGatewayMount(Arc::clone(&gateway)))],
            local,
            |config| config.intercept.mode = components.intercept,
        );
        Self { proxy, gateway, limits }
    }

    /// A POST to the gateway port.
    pub async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("POST", path, "Content-Type: application/json\r\n", body.as_ref()).await.unwrap()
    }

    pub async fn send(&self, method: &str, path: &str, fields: &str, body: &[u8]) -> std::io::Result<Answer> {
        let mut wire = Wire::connect(self.proxy.gateway()).await.unwrap();
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: gate\r\nx-api-key: k\r\n{length}{fields}\r\n");
        wire.send([head.as_bytes(), body].concat()).await.unwrap();
        wire.answer_to(method).await
    }
}

/// The pass of limits with these keys.
fn limit_pass(keys: &str, limits: &Arc<UsageLimiter>, gateway: &Arc<LlmGateway>) -> Arc<LimitPass> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("keys.toml");
    std::fs::write(&path, keys).unwrap();
    let store = Arc::new(KeyStore::open(&path).unwrap());
    let rules = KeyRules::new(&KeysConfig::default()).unwrap();
    Arc::new(LimitPass::new(store, rules, Arc::clone(limits), Arc::clone(gateway), 0))
}

/// A provider that answers every request with these bytes.
pub async fn provider(media_type: &'static str, body: impl Into<Vec<u8>>) -> Origin {
    let body = body.into();
    Origin::http().answering(move |_| Answering::ok(body.clone()).header("Content-Type", media_type)).start().await
}

/// A provider that echoes what it received as the text of a chat.
pub async fn parrot() -> Origin {
    let say = |request: &interflow_testkit::Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let text = body["messages"][0]["content"].clone();
        Answering::json(&serde_json::json!({ "choices": [{ "message": { "role": "assistant", "content": text } }] }))
    };
    Origin::http().answering(say).start().await
}

/// What the provider received, as text.
pub fn arrived(origin: &Origin) -> String {
    String::from_utf8_lossy(&origin.requests().last().expect("a request arrived").body).into_owned()
}

pub fn sse(payloads: &[Value]) -> Vec<u8> {
    let mut out: String = payloads.iter().map(|p| format!("data: {p}\n\n")).collect();
    out.push_str("data: [DONE]\n\n");
    out.into_bytes()
}

/// The concatenated deltas of a chat stream.
pub fn chat_text(stream: &str) -> String {
    let data = stream.lines().filter_map(|l| l.strip_prefix("data: ")).filter(|d| *d != "[DONE]");
    data.filter_map(|d| {
        serde_json::from_str::<Value>(d).ok()?["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
    })
    .collect()
}
