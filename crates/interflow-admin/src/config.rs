//! The `[admin]` section of the config.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::oidc::config::OidcConfig;

config_sections! {
    /// The admin port: API, metrics, health and the web UI.
    pub struct AdminConfig {
        /// The address to listen on; keep it on loopback unless a proxy with TLS stands in front.
        pub listen: Option<SocketAddr> = Some(SocketAddr::from(([127, 0, 0, 1], 7072))),
        /// Names under which the admin side may be reached, besides `localhost` and its own address: the `Host` field is
        /// checked against them, so that no web page can reach in under a name of its own (DNS rebinding).
        pub hosts: Vec<String>,
        /// Let `/metrics` be read without the token.
        pub public_metrics: bool,
        /// How long the web UI stays logged in on a browser that is used; another token ends all sessions.
        pub session_duration: HumanDuration = HumanDuration::from_secs(30 * 86_400),
        /// How long a client may take for the head of a request, and be silent between two requests.
        pub header_timeout: HumanDuration = HumanDuration::from_secs(10),
        /// Connections that may be open. When there are more, the oldest one over which no request has come makes room; without
        /// such a one the new connection is turned away with 503.
        pub max_connections: usize = 256,
        /// How long a client of the event socket may take nothing before it is cut.
        pub events_write_timeout: HumanDuration = HumanDuration::from_secs(10),
        /// Let agents that come over MCP (`/mcp`) change things too: tags and comments of flows, and send requests again. They
        /// only read otherwise.
        pub mcp_writes: bool,
        /// Whether the web UI and the API may change the configuration file: `write`, or `read-only` where something else
        /// manages it.
        pub settings: SettingsAccess = SettingsAccess::Write,
        /// Reverse proxies, as addresses or networks, whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed: the client's
        /// address in the audit trail and in limits of failed logins, and `Secure` cookies behind TLS.
        #[schemars(with = "Vec<String>")]
        #[serde(deserialize_with = "networks")]
        pub trusted_proxies: Vec<IpNet>,
        /// The longest life of an API token that a person makes for programs of their own.
        pub personal_token_lifetime: HumanDuration = HumanDuration::from_secs(90 * 86_400),
        /// The longest life of an API token of a service; without it, such a token need not expire.
        pub service_token_lifetime: Option<HumanDuration>,
        /// Login of people at an OpenID Connect issuer.
        pub oidc: Option<OidcConfig>,
        /// The audit trail: who looked at contents, and who changed what.
        pub audit: AdminAuditConfig,
    }
}

config_sections! {
    /// The audit trail of the admin side.
    pub struct AdminAuditConfig {
        /// Whether it is written.
        pub enabled: bool = true,
        /// The file, relative to the data directory. Its lines are hash-chained (`interflow audit verify`).
        pub file: PathBuf = "admin-audit.jsonl".into(),
        /// A secret for keyed hashes (HMAC), without which the chain cannot be forged: `env:NAME` or `file:PATH`.
        pub key: Option<String>,
        /// The size at which the file is rotated; the old one becomes `FILE.1`.
        pub rotate: ByteSize = ByteSize(10_000_000),
        /// Rotated files to keep.
        pub keep: u32 = 5,
        /// How long lines stay in the database, where `record.store` names one and the trail of all replicas is kept there.
        pub max_age: HumanDuration = HumanDuration::from_secs(400 * 86_400),
    }
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

/// Networks; an address alone is that address.
fn networks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    let parse = |text: String| {
        let network = text.parse::<IpAddr>().map(IpNet::from).or_else(|_| text.parse());
        network.map_err(|_| de::Error::custom(format!("`{text}` is not an address or network")))
    };
    Vec::<String>::deserialize(from)?.into_iter().map(parse).collect()
}
