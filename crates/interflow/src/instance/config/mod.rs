//! The configuration file: a TOML document whose keys are defined by these structs. Unknown keys are rejected.

pub mod env;
mod file;
mod fleet;
mod load;
mod mistakes;
mod paths;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use interflow_admin::AdminConfig;
use interflow_approvals::config::ApprovalsConfig;
use interflow_limits::{KeysConfig, QuotaConfig};
use interflow_llm::LlmConfig;
use interflow_llm_gateway::llm_telemetry::{AuditConfig, TelemetryConfig};
use interflow_mcp_gateway::McpConfig;
#[cfg(feature = "media")]
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
use interflow_types::schema::JsonSchema;
use interflow_types::units::ByteSize;
use serde::{Deserialize, Serialize};

pub use file::ConfigFile;
pub use fleet::{FleetConfig, SharedSetting};
#[cfg(all(test, not(all(feature = "media", feature = "compat"))))]
pub use load::parse;
pub use load::{LoadError, LoadedConfig, key_position, load, load_text};
pub use mistakes::mistakes;

/// Interflow's configuration. Every key has a default, so the file may be empty or absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "interflow_types::schema::schemars")]
#[serde(deny_unknown_fields, default)]
pub struct InterflowConfig {
    /// Data directory: CA, recordings, tokens. Defaults to the platform's data directory (`$XDG_DATA_HOME/interflow`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    /// Logging.
    pub log: LogConfig,
    /// Proxy listeners: HTTP, CONNECT and SOCKS5 on the same port; the protocol is detected automatically.
    pub proxy: ProxyConfig,
    /// Gateway listeners: requests in origin-form, routed by path and host.
    pub gateway: GatewayConfig,
    /// Admin listener: API, metrics, health checks and web UI.
    pub admin: AdminConfig,
    /// Proxy authentication.
    pub auth: AuthConfig,
    /// Access rules: which clients may reach which destinations.
    pub access: AccessConfig,
    /// Outbound approvals: rules, interactive decisions while a request is held, and secrets for placeholders.
    pub approvals: ApprovalsConfig,
    /// DNS listener, which maps destination addresses back to names.
    pub dns: DnsConfig,
    /// TLS interception.
    pub intercept: InterceptConfig,
    /// Upstream connections.
    pub upstream: UpstreamConfig,
    /// Recording and retention.
    pub record: RecordConfig,
    /// Replicas that share a store, and what else they share.
    pub fleet: FleetConfig,
    /// Media proxy on the gateway: relay, HLS, DASH, decryption with your keys, sealed links.
    #[cfg(feature = "media")]
    pub media: MediaConfig,
    /// LLM providers and their gateway routes.
    pub llm: LlmConfig,
    /// MCP servers behind one endpoint of the gateway.
    pub mcp: McpConfig,
    /// Redaction of personal data and secrets in LLM traffic.
    pub redact: RedactConfig,
    /// Rule files.
    pub rules: RulesConfig,
    /// Resource limits; 0 disables a limit.
    pub limits: LimitsConfig,
    /// Quotas for LLM traffic: requests, tokens, cost.
    pub quota: QuotaConfig,
    /// Audit log: one line per LLM request, without content.
    pub audit: AuditConfig,
    /// OpenTelemetry trace spans of LLM requests.
    pub telemetry: TelemetryConfig,
    /// Virtual keys, which clients present to the gateway instead of provider keys.
    pub keys: KeysConfig,
    /// Timeouts.
    pub timeouts: TimeoutsConfig,
    /// Worker threads.
    pub workers: WorkersConfig,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "interflow_types::schema::schemars")]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Log level: `error`, `warn`, `info`, `debug` or `trace`, or per module: `info,interflow_net=debug`.
    pub level: String,
    /// `text`, or `json` for one JSON object per line.
    pub format: LogFormat,
    /// Maximum size of the log if stderr is a file. At this size nothing more is written until the file is truncated (for
    /// example by `logrotate` with `copytruncate`). 0 disables the limit.
    pub max_size: ByteSize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text, max_size: ByteSize(1 << 30) }
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "interflow_types::schema::schemars")]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl InterflowConfig {
    /// The configuration of the proxy server, including listeners added by compatibility options.
    pub fn engine(&self) -> ProxyServerConfig {
        let mut gateway = self.gateway.clone();
        gateway.listen.extend(self.media_listener());
        ProxyServerConfig {
            proxy: self.proxy.clone(),
            gateway,
            auth: self.auth.clone(),
            access: self.access.clone(),
            intercept: self.intercept.clone(),
            upstream: UpstreamConfig { idle_total: self.unused_connections(), ..self.upstream.clone() },
            limits: self.limits.clone(),
            timeouts: self.timeouts.clone(),
            workers: self.workers.clone(),
        }
    }

    /// The port of `media.compat`, if it is enabled and the gateway does not listen there already.
    fn media_listener(&self) -> Option<SocketAddr> {
        #[cfg(feature = "media")]
        {
            let (port, first) = (self.media.compat.port, *self.gateway.listen.first()?);
            let enabled = self.media.enabled && self.media.compat.enabled && first.port() != 0 && port != 0;
            let listens = self.gateway.listen.iter().any(|a| a.port() == port);
            (enabled && !listens).then(|| SocketAddr::new(first.ip(), port))
        }
        #[cfg(not(feature = "media"))]
        None
    }

    /// Adapts the configuration for an instance that serves one command (`exec`): a free loopback port instead of the
    /// configured listeners, without TLS, PROXY protocol or authentication.
    pub fn make_private(&mut self) {
        self.proxy.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        self.proxy.transparent = Vec::new();
        self.proxy.reverse = Vec::new();
        self.proxy.tls = None;
        self.proxy.proxy_protocol_trusted = Vec::new();
        self.auth.users = None;
        self.gateway.listen = Vec::new();
        self.admin.listen = None;
        self.dns.listen = None;
    }

    /// Maximum number of idle upstream connections per worker. All workers together use at most half of the open-file
    /// limit, so that idle connections never cause clients to be refused.
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

    /// The JSON Schema of the file, generated from its types.
    #[cfg(test)]
    pub fn generate_schema() -> serde_json::Value {
        let mut schema = interflow_types::schema::schemars::schema_for!(Self).to_value();
        schema["title"] = "Interflow configuration".into();
        schema
    }

    /// The JSON Schema of the file: the committed form of what is generated. In tests it is generated, so that one run of
    /// `make docs` writes it and the pages that are made from it.
    pub fn schema() -> &'static serde_json::Value {
        static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| {
            #[cfg(test)]
            return InterflowConfig::generate_schema();
            #[cfg(not(test))]
            serde_json::from_str(include_str!("../../../../../docs/reference/schemas/config.json"))
                .expect("a test parses it")
        });
        &SCHEMA
    }
}
