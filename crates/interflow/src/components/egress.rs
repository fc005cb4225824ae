//! An HTTP client for components that are built before the proxy server starts.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use interflow_proxy::ProxyServer;
use interflow_rules::{ServiceTransport, TlsConnector};
use interflow_types::{Authority, BoxFuture, Error, ErrorKind, HttpClient, Request, ResponseFuture};

/// Sends requests through the proxy server once it has started. Holds it weakly, because the server owns the components.
#[derive(Default)]
pub struct DeferredClient(OnceLock<Weak<ProxyServer>>);

impl DeferredClient {
    /// Attaches the server. Later calls have no effect.
    pub fn attach(&self, engine: &Arc<ProxyServer>) {
        let _ = self.0.set(Arc::downgrade(engine));
    }

    fn engine(&self) -> Option<Arc<ProxyServer>> {
        self.0.get().and_then(Weak::upgrade)
    }

    /// Creates a client of another kind from the server on first use.
    pub fn lazy_client(
        self: &Arc<Self>,
        open: impl Fn(&Arc<ProxyServer>) -> Arc<dyn HttpClient> + Send + Sync + 'static,
    ) -> Arc<dyn HttpClient> {
        Arc::new(LazyEgressClient { late: Arc::clone(self), open, made: OnceLock::new() })
    }

    /// A client whose requests are not recorded.
    pub fn unrecorded_client(self: &Arc<Self>) -> Arc<dyn HttpClient> {
        self.lazy_client(ProxyServer::unrecorded_client)
    }

    /// A client that may reach cloud metadata services.
    pub fn metadata(self: &Arc<Self>) -> Arc<dyn HttpClient> {
        self.lazy_client(ProxyServer::metadata_egress)
    }
}

impl HttpClient for DeferredClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let engine = self.engine().ok_or_else(stopped)?;
            HttpClient::send(&*engine, request).await
        })
    }
}

impl TlsConnector for DeferredClient {
    fn connect<'a>(&'a self, authority: &'a Authority) -> BoxFuture<'a, Result<Box<dyn ServiceTransport>, Error>> {
        Box::pin(async move {
            // Services connect when the configuration is read, before the server runs. The caller bounds the wait.
            while self.0.get().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let engine = self.engine().ok_or_else(stopped)?;
            Ok(Box::new(engine.open_tls(authority).await?) as Box<dyn ServiceTransport>)
        })
    }
}

fn stopped() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the proxy is not running yet (or is shutting down); internal requests are unavailable",
    )
}

struct LazyEgressClient<F> {
    late: Arc<DeferredClient>,
    open: F,
    made: OnceLock<Arc<dyn HttpClient>>,
}

impl<F: Fn(&Arc<ProxyServer>) -> Arc<dyn HttpClient> + Send + Sync> HttpClient for LazyEgressClient<F> {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        if self.made.get().is_none()
            && let Some(engine) = self.late.engine()
        {
            let _ = self.made.set((self.open)(&engine));
        }
        match self.made.get() {
            Some(egress) => egress.send(request),
            None => Box::pin(async { Err(stopped()) }),
        }
    }
}
