//! The `[dns]` section of the config.

use std::net::SocketAddr;

use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use serde::{Deserialize, Serialize};

/// The DNS listener: forwards queries and records the responses, so that connections to bare addresses can be given
/// names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DnsConfig {
    /// The address to listen on, UDP and TCP; if unset, there is no DNS listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Upstream servers in order: `192.0.2.53:53`; if empty, the system's.
    pub servers: Vec<SocketAddr>,
    /// A name is kept for its TTL, and at least this long: programs use addresses longer than the TTL allows.
    pub min_ttl: HumanDuration,
    /// Addresses whose names are kept; the oldest are dropped first.
    pub max_names: usize,
    /// Concurrent queries; further ones are dropped.
    pub max_queries: usize,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            listen: None,
            servers: Vec::new(),
            min_ttl: HumanDuration::from_secs(3600),
            max_names: 50_000,
            max_queries: 1000,
        }
    }
}
