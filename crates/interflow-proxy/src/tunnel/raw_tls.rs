//! Raw TLS connections to an authority, for components with a protocol other than HTTP.

use interflow_net::egress::UpstreamReport;
use interflow_net::io::IoStream;
use interflow_net::tls::{self, Alpn};
use interflow_types::{Authority, FlowClock, FlowTimings, Result, Scheme};

use crate::server::ProxyServer;

impl ProxyServer {
    /// Connects to an authority, through the configured upstream proxies, and opens TLS as to an origin, offering
    /// HTTP/1.1. The connection belongs to the calling runtime.
    ///
    /// # Errors
    /// Any failure of an upstream request: DNS, connection, certificate.
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
