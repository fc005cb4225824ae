//! The `[admin]` section of the config.

use std::net::SocketAddr;

use interflow_types::units::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The admin port: API, metrics, health and the web UI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// The address to listen on; keep it on loopback unless a proxy with TLS stands in front.
    pub listen: Option<SocketAddr>,
    /// Names under which the admin side may be reached, besides `localhost` and its own address: the `Host` field is
    /// checked against them, so that no web page can reach in under a name of its own (DNS rebinding).
    pub hosts: Vec<String>,
    /// Let `/metrics` be read without the token.
    pub public_metrics: bool,
    /// How long the web UI stays logged in on a browser that is used; another token ends all sessions.
    pub session_duration: HumanDuration,
    /// How long a client may take for the head of a request, and be silent between two requests.
    pub header_timeout: HumanDuration,
    /// Connections that may be open. When there are more, the oldest one over which no request has come makes room; without
    /// such a one the new connection is turned away with 503.
    pub max_connections: usize,
    /// How long a client of the event socket may take nothing before it is cut.
    pub events_write_timeout: HumanDuration,
    /// Let agents that come over MCP (`/mcp`) change things too: tags and comments of flows, and send requests again. They
    /// only read otherwise.
    pub mcp_writes: bool,
    /// Whether the web UI and the API may change the configuration file: `write`, or `read-only` where something else
    /// manages it.
    pub settings: SettingsAccess,
}

/// Whether the configuration file may be changed over the admin API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SettingsAccess {
    /// It may.
    #[default]
    Write,
    /// It is shown only.
    ReadOnly,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 7072))),
            hosts: Vec::new(),
            public_metrics: false,
            session_duration: HumanDuration::from_secs(30 * 86_400),
            header_timeout: HumanDuration::from_secs(10),
            max_connections: 256,
            events_write_timeout: HumanDuration::from_secs(10),
            mcp_writes: false,
            settings: SettingsAccess::Write,
        }
    }
}
