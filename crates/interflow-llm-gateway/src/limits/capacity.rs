//! How many requests the gateway port serves at once: what comes beyond that is asked to come back, whoever sends it. Quotas of
//! keys are another matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use interflow_llm::LlmRefusal;
use interflow_types::{EntryKind, Flow, Method, RequestHead, StatusCode};

use interflow_types::NotRecorded;

/// The count of requests under way, and its bound.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    max: AtomicUsize,
    in_use: Arc<AtomicUsize>,
}

/// A request's place among those under way; a note on its flow, given up with it.
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
    /// The most requests at once; 0 for no bound.
    pub fn set(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// Takes a place for a request of the gateway port, if there is one left.
    ///
    /// # Errors
    /// The refusal when all are taken.
    pub fn admit(&self, flow: &mut Flow, head: &RequestHead) -> Result<(), LlmRefusal> {
        // Probes of health are answered at once, above all when there is much to do.
        let probe = flow.extension::<NotRecorded>().is_some() && matches!(head.method, Method::GET | Method::HEAD);
        if flow.transport != EntryKind::Gateway || probe {
            return Ok(());
        }
        // Counted without a bound too, so that one which is set later knows of those under way.
        let slot = Slot(Some(Arc::clone(&self.in_use)));
        let before = self.in_use.fetch_add(1, Relaxed);
        let max = self.max.load(Relaxed);
        if max > 0 && before >= max {
            let message = format!(
                "the gateway serves {max} requests at once, and all places are taken: come back in a moment, or raise \
                 gateway.max_concurrent_requests"
            );
            let code = "concurrency_exceeded";
            let refusal = LlmRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "capacity", code, message);
            return Err(LlmRefusal { retry_after: Some(Duration::from_secs(1)), ..refusal });
        }
        *flow.extension_mut::<Slot>() = slot;
        Ok(())
    }
}
