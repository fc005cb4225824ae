//! The way out for rooms that are built before the corridor runs.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use interflow_proxy::ProxyServer;
use interflow_rules::{ServiceTransport, TlsConnector};
use interflow_types::{Authority, BoxFuture, Error, ErrorKind, HttpClient, Request, ResponseFuture};

/// Sends over the engine, once there is one. It does not keep the engine alive: the engine keeps the rooms.
#[derive(Default)]
pub struct DeferredClient(OnceLock<Weak<ProxyServer>>);

impl DeferredClient {
    /// Opens the way. Only the first engine counts.
    pub fn attach(&self, engine: &Arc<ProxyServer>) {
        let _ = self.0.set(Arc::downgrade(engine));
    }

    fn engine(&self) -> Option<Arc<ProxyServer>> {
        self.0.get().and_then(Weak::upgrade)
    }

    /// A way out of another kind, which the engine is asked for at its first use.
    pub fn lazy_client(
        self: &Arc<Self>,
        open: impl Fn(&Arc<ProxyServer>) -> Arc<dyn HttpClient> + Send + Sync + 'static,
    ) -> Arc<dyn HttpClient> {
        Arc::new(LazyEgressClient { late: Arc::clone(self), open, made: OnceLock::new() })
    }

    /// One that no recorder sees.
    pub fn unrecorded_client(self: &Arc<Self>) -> Arc<dyn HttpClient> {
        self.lazy_client(ProxyServer::unrecorded_client)
    }

    /// One to the metadata services of clouds.
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
            // Services are connected to as soon as they are read, which is before the engine runs. Whoever asks bounds the wait.
            while self.0.get().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let engine = self.engine().ok_or_else(stopped)?;
            Ok(Box::new(engine.open_tls(authority).await?) as Box<dyn ServiceTransport>)
        })
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Internal, "the corridor does not run, so nothing can be sent out")
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
