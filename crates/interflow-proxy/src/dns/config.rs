//! The `[dns]` section of the config.

use std::net::SocketAddr;

use interflow_types::units::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The DNS port: passes questions on and remembers answers, so that connections which clients make to addresses have names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DnsConfig {
    /// The address to listen on, UDP and TCP; nowhere when it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The servers that are asked, in order: `192.0.2.53:53`; the system's when the list is empty.
    pub servers: Vec<SocketAddr>,
    /// A name is remembered as long as its answer may be kept, and at least this long: programs keep addresses longer than
    /// they should.
    pub min_ttl: HumanDuration,
    /// Addresses whose names are remembered; the ones heard of longest ago go first.
    pub max_names: usize,
    /// Questions under way at a time; more go unanswered.
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
