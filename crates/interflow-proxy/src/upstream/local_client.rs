//! The client for requests that must not be recorded: text that is still to be redacted.

use std::sync::{Arc, Weak};

use interflow_types::{Error, ErrorKind, HttpClient, Request, ResponseFuture};

use crate::server::ProxyServer;

/// Sends requests on the calling worker without recording them.
pub(crate) struct LocalClient(pub Weak<ProxyServer>);

impl HttpClient for LocalClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let stopped = || {
                Error::new(
                    ErrorKind::Internal,
                    "the proxy is not running yet (or is shutting down); internal requests are unavailable",
                )
            };
            let engine: Arc<ProxyServer> = self.0.upgrade().ok_or_else(stopped)?;
            engine.send_unrecorded(request).await
        })
    }
}
