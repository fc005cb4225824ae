//! A copy of a flow for its messages, which run beside the other phases; its extensions are merged back.

use std::sync::Arc;

use interflow_types::Flow;
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};

/// The flow as seen by the messages of both directions while its exchange is in progress. Clones share one flow, so
/// message stages never run concurrently.
#[derive(Clone)]
pub(crate) struct ForkedFlow(Arc<Mutex<Flow>>);

impl ForkedFlow {
    pub fn new(flow: &mut Flow) -> Self {
        Self(Arc::new(Mutex::new(flow.fork())))
    }

    /// Merges the extensions back; messages wait while the returned guard is alive.
    pub async fn merge(self, flow: &mut Flow) -> OwnedMutexGuard<Flow> {
        let mut lent = self.0.lock_owned().await;
        flow.merge(&mut lent);
        lent
    }

    pub async fn lock(&self) -> MutexGuard<'_, Flow> {
        self.0.lock().await
    }

    pub fn from_guard(guard: &OwnedMutexGuard<Flow>) -> Self {
        Self(Arc::clone(OwnedMutexGuard::mutex(guard)))
    }

    /// Merges at the flow's end. A message that a stage still holds keeps its extensions; they are not merged.
    pub fn merge_at_end(&self, flow: &mut Flow) {
        // `try_lock`: this may run in `drop`, where nothing can be awaited.
        if let Ok(mut lent) = self.0.try_lock() {
            flow.merge(&mut lent);
        }
    }
}
