//! The configuration file: one TOML document, every key defined once in Rust, unknown keys refused with a suggestion.

mod env;
mod load;
mod mediaflow;
pub mod reference;

use std::net::SocketAddr;
use std::path::PathBuf;

use interflow_admin::AdminConfig;
use interflow_admin::greyproxy::GreyproxyCompatConfig;
use interflow_approvals::approvals::config::ApprovalsConfig;
use interflow_limits::{KeysConfig, QuotaConfig};
use interflow_llm::LlmConfig;
use interflow_llm_gateway::llm_telemetry::{AuditConfig, TelemetryConfig};
use interflow_media::MediaConfig;
use interflow_proxy::ProxyServerConfig;
use interflow_proxy::config::{
    AccessConfig, AuthConfig, GatewayConfig, InterceptConfig, LimitsConfig, ProxyConfig, TimeoutsConfig,
    UpstreamConfig, WorkersConfig,
};
use interflow_proxy::dns::config::DnsConfig;
use interflow_redact::RedactConfig;
use interflow_rules::RulesConfig;
use interflow_store::RecordConfig;
use interflow_types::units::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use load::{LoadError, LoadedConfig, key_position, load};

/// Interflow's configuration. Every key has a default; an empty file, or none, is a whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterflowConfig {
    /// Data directory: CA, recordings, tokens. Defaults to the platform's data directory (`$XDG_DATA_HOME/interflow`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    /// What is logged.
    pub log: LogConfig,
    /// The proxy port: HTTP, CONNECT and SOCKS5, detected by what the client says first.
    pub proxy: ProxyConfig,
    /// The gateway port: requests in origin-form, sent on by path and host.
    pub gateway: GatewayConfig,
    /// The admin port: API, metrics, health and the web UI.
    pub admin: AdminConfig,
    /// Who may use the proxy.
    pub auth: AuthConfig,
    /// What may be reached, and by whom.
    pub access: AccessConfig,
    /// What may be reached by rules that can be asked for while a flow waits; secrets for placeholders.
    pub approvals: ApprovalsConfig,
    /// The DNS port, by which connections to addresses get names.
    pub dns: DnsConfig,
    /// Speaking as other programs do.
    pub compat: GreyproxyCompatConfig,
    /// Looking inside TLS.
    pub intercept: InterceptConfig,
    /// The way to the origins.
    pub upstream: UpstreamConfig,
    /// What is recorded, where, and for how long.
    pub record: RecordConfig,
    /// Media through the gateway port: relay, HLS, DASH, decryption with the owner's keys, links.
    pub media: MediaConfig,
    /// LLM providers: the gateway's doors to them.
    pub llm: LlmConfig,
    /// Personal data and secrets on the way to LLM providers.
    pub redact: RedactConfig,
    /// Rules: what is done to which flows.
    pub rules: RulesConfig,
    /// Caps on what clients may use; 0 stands for no cap.
    pub limits: LimitsConfig,
    /// What LLM traffic may use: requests, tokens, money.
    pub quota: QuotaConfig,
    /// The audit log: a line for each request to a provider, never any content.
    pub audit: AuditConfig,
    /// Spans of requests to providers, for a collector of OpenTelemetry.
    pub telemetry: TelemetryConfig,
    /// Virtual keys: what clients show the gateway in place of a provider's key.
    pub keys: KeysConfig,
    /// How long things may take.
    pub timeouts: TimeoutsConfig,
    /// Threads.
    pub workers: WorkersConfig,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or per room: `info,interflow_net=debug`.
    pub level: String,
    /// `text`, or `json` for one JSON object per line.
    pub format: LogFormat,
    /// How far the log may grow where standard error is a file: at this size nothing more is written until the file is
    /// emptied (`logrotate` with `copytruncate`, say). 0 stands for no bound.
    pub max_size: ByteSize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text, max_size: ByteSize(1 << 30) }
    }
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl InterflowConfig {
    /// The part that the corridor obeys.
    pub fn engine(&self) -> ProxyServerConfig {
        let mut gateway = self.gateway.clone();
        let port = self.media.compat.port;
        if let Some(first) = gateway.listen.first().copied()
            && self.media.enabled
            && self.media.compat.mediaflow
            && first.port() != 0
            && port != 0
            && !gateway.listen.iter().any(|a| a.port() == port)
        {
            gateway.listen.push(SocketAddr::new(first.ip(), port));
        }
        let (mut proxy, mut auth) = (self.proxy.clone(), self.auth.clone());
        if self.compat.greyproxy {
            proxy.listen.extend(&self.compat.greyproxy_proxies);
            auth.accept_unverified_names = true;
        }
        ProxyServerConfig {
            proxy,
            gateway,
            auth,
            access: self.access.clone(),
            intercept: self.intercept.clone(),
            upstream: UpstreamConfig { idle_total: self.unused_connections(), ..self.upstream.clone() },
            limits: self.limits.clone(),
            timeouts: self.timeouts.clone(),
            workers: self.workers.clone(),
        }
    }

    /// For an instance that serves one command: a free port of loopback in place of the owner's ports, spoken to as
    /// programs are told to by their environment, without TLS, a header in front or a password.
    pub fn make_private(&mut self) {
        self.proxy.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        self.proxy.transparent = Vec::new();
        self.proxy.reverse = Vec::new();
        self.proxy.tls = None;
        self.proxy.proxy_protocol_trusted = Vec::new();
        self.auth.users = None;
        self.gateway.listen = Vec::new();
        self.admin.listen = None;
        self.compat.greyproxy = false;
        self.dns.listen = None;
    }

    /// The DNS port as it is in force.
    pub fn dns(&self) -> DnsConfig {
        let compat = self.compat.greyproxy.then_some(self.compat.greyproxy_dns);
        DnsConfig { listen: self.dns.listen.or(compat), ..self.dns.clone() }
    }

    /// How many unused connections a worker may keep: all workers together at most half of the files that the system
    /// allows, so that clients are never turned away for their sake.
    fn unused_connections(&self) -> usize {
        #[cfg(unix)]
        if let Ok((files, _)) = rlimit::getrlimit(rlimit::Resource::NOFILE) {
            let workers = match self.workers.count {
                0 => std::thread::available_parallelism().map_or(1, usize::from),
                n => n,
            };
            let share = usize::try_from(files).unwrap_or(usize::MAX) / 2 / workers;
            return self.upstream.idle_total.min(share);
        }
        self.upstream.idle_total
    }

    /// The JSON Schema of the file.
    pub fn schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(Self).to_value();
        schema["title"] = "Interflow configuration".into();
        schema
    }
}
