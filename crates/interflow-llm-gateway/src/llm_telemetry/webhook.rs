//! Webhooks: batches of events as JSON, posted in the background with the headers and the signature of Standard Webhooks.
//! Nobody waits for one: events queue up to a bound, and beyond it they are counted and dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use interflow_types::{
    Body, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Timestamp, Url, random_token,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::Sha256;

/// Events in one request.
const MAX_BATCH: usize = 100;
/// Attempts to deliver a batch; the pauses between them double, from a second.
const MAX_ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Where events are sent.
pub struct WebhookTarget {
    pub url: Url,
    /// Further header fields.
    pub headers: Headers,
    /// The secret that batches are signed with.
    pub secret: Option<Vec<u8>>,
    /// How long events are collected before they are sent.
    pub interval: Duration,
    pub timeout: Duration,
    /// Events that may wait.
    pub max_queue: usize,
}

/// Sends events to one target.
pub struct WebhookSender {
    target: WebhookTarget,
    egress: Arc<dyn HttpClient>,
    queue: Mutex<WebhookQueue>,
    sent: AtomicU64,
    dropped: AtomicU64,
    failing: AtomicBool,
}

#[derive(Default)]
struct WebhookQueue {
    events: VecDeque<Value>,
    /// Whether a task delivers them.
    is_running: bool,
}

impl WebhookSender {
    /// Requests sent over `egress` must not be recorded.
    pub fn new(target: WebhookTarget, egress: Arc<dyn HttpClient>) -> Arc<Self> {
        let (queue, sent, dropped, failing) = Default::default();
        Arc::new(Self { target, egress, queue, sent, dropped, failing })
    }

    /// Events that were delivered.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Events that were not delivered: the queue was full, or the target did not accept them.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Queues an event. Outside a runtime, which only tests are, it is dropped.
    pub fn send(self: &Arc<Self>, event: Value) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.dropped.fetch_add(1, Relaxed);
            return;
        };
        let mut queue = self.queue.lock();
        if queue.events.len() >= self.target.max_queue {
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        queue.events.push_back(event);
        if !std::mem::replace(&mut queue.is_running, true) {
            let sender = Arc::clone(self);
            runtime.spawn(async move { sender.deliver().await });
        }
    }

    async fn deliver(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(self.target.interval).await;
            let batch: Vec<Value> = {
                let mut queue = self.queue.lock();
                let count = queue.events.len().min(MAX_BATCH);
                if count == 0 {
                    queue.is_running = false;
                    return;
                }
                queue.events.drain(..count).collect()
            };
            let count = batch.len() as u64;
            let counter = if self.post_with_retries(&batch).await { &self.sent } else { &self.dropped };
            counter.fetch_add(count, Relaxed);
        }
    }

    async fn post_with_retries(&self, batch: &[Value]) -> bool {
        // The same id for each attempt, by which the receiver knows a batch that it has.
        let id = format!("msg_{}", random_token());
        let body = json!({"type": "interflow.events", "id": id, "events": batch}).to_string();
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=MAX_ATTEMPTS {
            match self.post(&id, &body).await {
                Ok(()) => {
                    if self.failing.swap(false, Relaxed) {
                        tracing::info!("webhook: {} accepts events again", self.target.url.authority);
                    }
                    return true;
                }
                Err(why) => {
                    // The path of a webhook's URL is often its secret.
                    if !self.failing.swap(true, Relaxed) {
                        tracing::warn!("webhook: {} does not accept events: {why}", self.target.url.authority);
                    }
                }
            }
            if attempt < MAX_ATTEMPTS {
                // Spread, so that several senders do not come back at once.
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                pause *= 2;
            }
        }
        false
    }

    async fn post(&self, id: &str, body: &str) -> Result<(), String> {
        let seconds = (Timestamp::now().micros() / 1_000_000).to_string();
        let mut headers = self.target.headers.clone();
        headers.append_unchecked(b"Content-Type", b"application/json");
        headers.append_unchecked(b"webhook-id", id.as_bytes());
        headers.append_unchecked(b"webhook-timestamp", seconds.as_bytes());
        if let Some(secret) = &self.target.secret {
            headers.append_unchecked(b"webhook-signature", sign(secret, id, &seconds, body).as_bytes());
        }
        let head = RequestHead {
            method: Method::POST,
            url: self.target.url.clone(),
            version: HttpVersion::Http11,
            headers,
            protocol: None,
        };
        let request = Request { head, body: Body::from(bytes::Bytes::copy_from_slice(body.as_bytes())) };
        match tokio::time::timeout(self.target.timeout, self.egress.send(request)).await {
            Ok(Ok(answer)) if answer.head.status.is_success() => Ok(()),
            Ok(Ok(answer)) => Err(format!("it answered {}", answer.head.status)),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err(format!("no response within {:?}", self.target.timeout)),
        }
    }
}

/// The signature of Standard Webhooks: of id, time and body, so that an old batch cannot be replayed as a new one.
fn sign(secret: &[u8], id: &str, seconds: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{seconds}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_that_of_standard_webhooks() {
        // The example of the specification.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "{\"test\": 2432232314}");
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
