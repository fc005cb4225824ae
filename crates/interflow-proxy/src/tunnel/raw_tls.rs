//! Connections of our own that are no requests: bytes over TLS to an authority, for rooms that speak their own protocol.

use interflow_net::egress::UpstreamReport;
use interflow_net::io::IoStream;
use interflow_net::tls::{self, Alpn};
use interflow_types::{Authority, FlowClock, FlowTimings, Result, Scheme};

use crate::server::ProxyServer;

impl ProxyServer {
    /// Connects to an authority, by the upstream proxies that the configuration has for it, and makes TLS with it as with
    /// an origin, offering HTTP/1.1. The connection belongs to the runtime that asks.
    ///
    /// # Errors
    /// Whatever keeps a request from its origin: DNS, the connection, the certificate.
    pub async fn open_tls(&self, authority: &Authority) -> Result<IoStream> {
        let live = self.active_config(0);
        let route = live.settings.route(Scheme::Https, authority, None);
        let (clock, mut timings, mut upstream) = (FlowClock::start(), FlowTimings::default(), None);
        let mut x =
            UpstreamReport { clock: &clock, timings: &mut timings, upstream: &mut upstream, interim: &mut |_| () };
        let io = live.egress.connect(&route, &mut x).await?;
        let limit = live.settings.config.timeouts.handshake.0;
        Ok(tls::connect_tls(io, &authority.host, &route.tls, Alpn::Http1, limit).await?.0)
    }
}
