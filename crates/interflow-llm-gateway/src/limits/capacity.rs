//! Limits concurrent requests on the gateway port, independently of keys and quotas; further ones are asked to retry.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use interflow_limits::KeyedEndpoint;
use interflow_llm::LlmRefusal;
use interflow_types::{EntryKind, Flow, Method, RequestHead, StatusCode};

use crate::exchange::for_now;

/// Requests in progress, and their limit. Relaxed atomics suffice: the counter guards no other data.
#[derive(Debug)]
pub(super) struct Capacity {
    max: AtomicUsize,
    in_use: Arc<AtomicUsize>,
}

/// A request's slot: an extension on its flow, so that it is released with the flow however that ends.
#[derive(Debug, Default)]
struct Slot(Option<Arc<AtomicUsize>>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(in_use) = &self.0 {
            in_use.fetch_sub(1, Relaxed);
        }
    }
}

impl Capacity {
    /// 0: no limit.
    pub fn new(max: usize) -> Self {
        Self { max: AtomicUsize::new(max), in_use: Arc::default() }
    }

    /// Changes the limit. Requests in progress stay, even if there are more of them than the new limit.
    pub fn limit(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// Takes a slot for a request of the gateway port; requests of other listeners are neither counted nor limited.
    ///
    /// # Errors
    /// The rejection (503 with `Retry-After`) if none is free.
    pub fn admit(&self, flow: &mut Flow, head: &RequestHead) -> Result<(), LlmRefusal> {
        // Health probes are always answered, above all under load.
        let costs_nothing = |endpoint: &KeyedEndpoint| !endpoint.uses_credentials && endpoint.provider.is_some();
        let is_probe = matches!(head.method, Method::GET | Method::HEAD) && flow.extension().is_some_and(costs_nothing);
        if flow.transport != EntryKind::Gateway || is_probe {
            return Ok(());
        }
        // Counted without a limit too, so that a limit set later includes requests in progress.
        let slot = Slot(Some(Arc::clone(&self.in_use)));
        let before = self.in_use.fetch_add(1, Relaxed);
        let max = self.max.load(Relaxed);
        if max > 0 && before >= max {
            let message = format!(
                "too many concurrent requests: the gateway serves {max} at once; retry, or raise \
                 gateway.max_concurrent_requests"
            );
            let code = "concurrency_exceeded";
            let refusal = LlmRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "capacity", code, message);
            return Err(for_now(refusal));
        }
        *flow.extension_mut::<Slot>() = slot;
        Ok(())
    }
}
