//! The way out for rooms that are built before the corridor runs.

use std::sync::{Arc, OnceLock, Weak};

use interflow_engine::Engine;
use interflow_flow::{Egress, Error, Kind, Reply, Request};

/// Sends over the engine, once there is one. It does not keep the engine alive: the engine keeps the rooms.
#[derive(Default)]
pub struct LateEgress(OnceLock<Weak<Engine>>);

impl LateEgress {
    /// Opens the way. Only the first engine counts.
    pub fn attach(&self, engine: &Arc<Engine>) {
        let _ = self.0.set(Arc::downgrade(engine));
    }

    /// The engine, while it runs.
    pub fn engine(&self) -> Option<Arc<Engine>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

impl Egress for LateEgress {
    fn send(&self, request: Request) -> Reply<'_> {
        Box::pin(async move {
            let stopped = || Error::new(Kind::Internal, "the corridor does not run, so nothing can be sent out");
            let engine = self.engine().ok_or_else(stopped)?;
            Egress::send(&*engine, request).await
        })
    }
}
