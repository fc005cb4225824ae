//! The `[dns]` section of the config.

use std::net::SocketAddr;

use interflow_types::config_sections;
use interflow_types::units::HumanDuration;

config_sections! {
    /// The DNS listener: forwards queries and records the responses, so that connections to bare addresses can be given
    /// names.
    pub struct DnsConfig {
        /// The address to listen on, UDP and TCP; if unset, there is no DNS listener.
        pub listen: Option<SocketAddr>,
        /// Upstream servers in order: `192.0.2.53:53`; if empty, the system's.
        pub servers: Vec<SocketAddr>,
        /// A name is kept for its TTL, and at least this long: programs use addresses longer than the TTL allows.
        pub min_ttl: HumanDuration = HumanDuration::from_secs(3600),
        /// Addresses whose names are kept; the oldest are dropped first.
        pub max_names: usize = 50_000,
        /// Concurrent queries; further ones are dropped.
        pub max_queries: usize = 1000,
    }
}
