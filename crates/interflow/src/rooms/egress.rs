//! The way out for rooms that are built before the corridor runs.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use interflow_engine::Engine;
use interflow_flow::{Authority, BoxFuture, Egress, Error, Kind, Reply, Request};
use interflow_rules::{Duplex, Opener};

/// Sends over the engine, once there is one. It does not keep the engine alive: the engine keeps the rooms.
#[derive(Default)]
pub struct LateEgress(OnceLock<Weak<Engine>>);

impl LateEgress {
    /// Opens the way. Only the first engine counts.
    pub fn attach(&self, engine: &Arc<Engine>) {
        let _ = self.0.set(Arc::downgrade(engine));
    }

    fn engine(&self) -> Option<Arc<Engine>> {
        self.0.get().and_then(Weak::upgrade)
    }

    /// A way out of another kind, which the engine is asked for at its first use.
    pub fn door(
        self: &Arc<Self>,
        open: impl Fn(&Arc<Engine>) -> Arc<dyn Egress> + Send + Sync + 'static,
    ) -> Arc<dyn Egress> {
        Arc::new(Door { late: Arc::clone(self), open, made: OnceLock::new() })
    }

    /// One that no recorder sees.
    pub fn unrecorded(self: &Arc<Self>) -> Arc<dyn Egress> {
        self.door(Engine::unrecorded_egress)
    }

    /// One to the metadata services of clouds.
    pub fn metadata(self: &Arc<Self>) -> Arc<dyn Egress> {
        self.door(Engine::metadata_egress)
    }
}

impl Egress for LateEgress {
    fn send(&self, request: Request) -> Reply<'_> {
        Box::pin(async move {
            let engine = self.engine().ok_or_else(stopped)?;
            Egress::send(&*engine, request).await
        })
    }
}

impl Opener for LateEgress {
    fn open<'a>(&'a self, authority: &'a Authority) -> BoxFuture<'a, Result<Box<dyn Duplex>, Error>> {
        Box::pin(async move {
            // Services are connected to as soon as they are read, which is before the engine runs. Whoever asks bounds the wait.
            while self.0.get().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let engine = self.engine().ok_or_else(stopped)?;
            Ok(Box::new(engine.open_tls(authority).await?) as Box<dyn Duplex>)
        })
    }
}

fn stopped() -> Error {
    Error::new(Kind::Internal, "the corridor does not run, so nothing can be sent out")
}

struct Door<F> {
    late: Arc<LateEgress>,
    open: F,
    made: OnceLock<Arc<dyn Egress>>,
}

impl<F: Fn(&Arc<Engine>) -> Arc<dyn Egress> + Send + Sync> Egress for Door<F> {
    fn send(&self, request: Request) -> Reply<'_> {
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
