//! Requests of the client that are in progress, and that it may cancel.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

type Cancellations = Mutex<HashMap<String, Arc<Notify>>>;

/// By id as JSON.
#[derive(Default)]
pub(crate) struct RunningRequests(Arc<Cancellations>);

/// A request in progress.
pub(crate) struct RunningRequest {
    requests: Arc<Cancellations>,
    id: String,
    pub cancelled: Arc<Notify>,
}

impl RunningRequests {
    pub fn begin(&self, id: &Value) -> RunningRequest {
        let (id, cancelled) = (id.to_string(), Arc::new(Notify::new()));
        self.0.lock().insert(id.clone(), Arc::clone(&cancelled));
        RunningRequest { requests: Arc::clone(&self.0), id, cancelled }
    }

    pub fn cancel(&self, id: &Value) {
        if let Some(cancelled) = self.0.lock().get(&id.to_string()) {
            cancelled.notify_one();
        }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        let mut requests = self.requests.lock();
        // Another request may have the same id, against the protocol.
        if requests.get(&self.id).is_some_and(|other| Arc::ptr_eq(other, &self.cancelled)) {
            requests.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_in_progress_can_be_cancelled_by_its_id() {
        let requests = RunningRequests::default();
        let request = requests.begin(&serde_json::json!(1));
        requests.cancel(&serde_json::json!("1"));
        requests.cancel(&serde_json::json!(1));
        request.cancelled.notified().await;
        drop(request);
        assert!(requests.0.lock().is_empty());
    }
}
