//! The `[compat]` section of the config.

use std::net::{Ipv4Addr, SocketAddr};

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

/// Speaking as other programs do, so that what was made for them goes on working.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "interflow_types::schema::schemars")]
#[serde(deny_unknown_fields, default)]
pub struct CompatConfig {
    /// Serve Greyproxy's API and WebSocket events on its port, take clients on its proxy ports and questions on its DNS port,
    /// and take the name that a client signs in with for its container's. Its API asks for no token, so every program on
    /// this machine can steer the approvals: it listens on loopback only, and refuses web pages of others.
    pub greyproxy: bool,
    /// Where its API is served; a loopback address.
    pub greyproxy_api: SocketAddr,
    /// Its proxy ports, for HTTP and for SOCKS5; each takes both.
    pub greyproxy_proxies: Vec<SocketAddr>,
    /// Its DNS port; one in `dns.listen` takes its place.
    pub greyproxy_dns: SocketAddr,
    /// The hosts that a credential may be sent to whose session names none and which is not known by its label: without any,
    /// such a credential is put in nowhere.
    pub credential_hosts: Vec<String>,
    /// Add philter-ai-proxy's metrics, `philter_proxy_…`, to `/metrics`, for its dashboards and alerts. Read at the start.
    pub philter_metrics: bool,
}

impl Default for CompatConfig {
    fn default() -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            greyproxy: false,
            greyproxy_api: local(43080),
            greyproxy_proxies: vec![local(43051), local(43052)],
            greyproxy_dns: local(43053),
            credential_hosts: Vec::new(),
            philter_metrics: false,
        }
    }
}
