//! An HTTP client without a proxy around it, for requests that Interflow sends on its own behalf and that are no flows:
//! to object storage, from the server and from commands that run without one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::{Error, FlowClock, FlowTimings, HttpClient, Request, Response, ResponseFuture, Url};

use super::dial::{AllowAllAddresses, Dialer, DialerOptions};
use super::dns::{DnsResolver, ResolverOptions};
use super::{EgressOptions, EgressShared, ExchangeOptions, UpstreamClient, UpstreamReport, UpstreamRoute};
use crate::tls::{TlsProfile, TlsProfileOptions};

options! {
    /// How a [`StandaloneClient`] connects. `timeout` limits the wait for a response's head, and a pause within a body.
    #[derive(Clone, Debug)]
    pub struct StandaloneOptions {
        /// Files with certificate authorities to trust besides those of the platform.
        pub extra_ca: Vec<PathBuf>,
        pub connect_timeout: Duration = Duration::from_secs(5),
        pub timeout: Duration = Duration::from_secs(30),
    }
}

/// Sends requests directly to the origin in their URL. Its connections belong to the runtime that it is used on, which
/// has to be the same for all requests.
pub struct StandaloneClient {
    egress: UpstreamClient,
    tls: Arc<TlsProfile>,
}

impl StandaloneClient {
    /// # Errors
    /// A certificate authority that cannot be read.
    pub fn new(options: StandaloneOptions) -> Result<Self, Error> {
        let tls = TlsProfile::new(TlsProfileOptions { extra_ca_files: options.extra_ca, ..Default::default() })?;
        let names = DnsResolver::new(ResolverOptions { timeout: options.connect_timeout, ..Default::default() });
        let dial = DialerOptions { connect_timeout: options.connect_timeout, ..Default::default() };
        let dialer = Dialer::new(names, Arc::new(AllowAllAddresses), dial);
        let exchange = ExchangeOptions {
            head_timeout: options.timeout,
            body_timeout: options.timeout,
            ..ExchangeOptions::default()
        };
        let egress = EgressOptions { exchange, tls_timeout: options.connect_timeout, ..EgressOptions::default() };
        Ok(Self { egress: UpstreamClient::new(egress, Arc::new(dialer), EgressShared::new(None)), tls })
    }

    async fn exchange(&self, request: Request) -> Result<Response, Error> {
        let Url { scheme, authority, .. } = &request.head.url;
        let route = UpstreamRoute::new(*scheme, authority.clone(), Arc::clone(&self.tls));
        let (clock, mut timings, mut upstream) = (FlowClock::start(), FlowTimings::default(), None);
        let mut report =
            UpstreamReport { clock: &clock, timings: &mut timings, upstream: &mut upstream, interim: &mut |_| () };
        let answer = self.egress.send(&route, request, &mut report).await?;
        Ok(Response { head: answer.head, body: answer.body })
    }
}

impl HttpClient for StandaloneClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(self.exchange(request))
    }
}
