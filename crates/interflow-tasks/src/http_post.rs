//! Messages posted to one address, in the background and again after failures.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use interflow_types::{Body, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, StatusCode, Url};
use tokio::runtime::Handle;

use crate::sink_queue::{Sink, SinkWorker};

/// When a message is given up.
#[derive(Clone, Copy, Debug)]
pub struct PostPolicy {
    /// How long a response is awaited.
    pub timeout: Duration,
    pub attempts: u32,
    /// The pause before the second attempt. The pauses double, and vary by half, so that several senders do not come back
    /// at once.
    pub first_pause: Duration,
    /// Whether another attempt may help after a response with this status.
    pub may_retry: fn(StatusCode) -> bool,
}

/// An address that messages are posted to. Its path may be a secret, and is not printed.
pub struct HttpPost {
    name: &'static str,
    url: Url,
    headers: Headers,
    policy: PostPolicy,
    is_failing: AtomicBool,
}

impl fmt::Debug for HttpPost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpPost({})", self.host())
    }
}

impl HttpPost {
    /// `name` begins its log messages.
    pub const fn new(name: &'static str, url: Url, headers: Headers, policy: PostPolicy) -> Self {
        Self { name, url, headers, policy, is_failing: AtomicBool::new(false) }
    }

    pub fn host(&self) -> String {
        self.url.authority.to_string()
    }

    /// Posts a message, several times if need be; `sign` adds header fields to each attempt. Requests of the client must
    /// not be recorded.
    ///
    /// # Errors
    /// Why the last attempt failed.
    pub async fn send(&self, client: &dyn HttpClient, body: &Bytes, sign: impl Fn(&mut Headers)) -> Result<(), String> {
        let (name, host, attempts) = (self.name, self.host(), self.policy.attempts);
        let mut pause = self.policy.first_pause;
        let mut attempt = 1;
        loop {
            let Err((why, may_retry)) = self.attempt(client, body, &sign).await else {
                if self.is_failing.swap(false, Relaxed) {
                    tracing::info!("{name}: {host} accepts messages again");
                }
                return Ok(());
            };
            if !self.is_failing.swap(true, Relaxed) {
                tracing::warn!("{name}: cannot post to {host}: {why}");
            }
            if !may_retry || attempt >= attempts {
                return Err(format!("{why} (attempt {attempt} of {attempts})"));
            }
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            (pause, attempt) = (pause * 2, attempt + 1);
        }
    }

    /// The error says what is wrong, and whether another attempt may succeed.
    async fn attempt(
        &self,
        client: &dyn HttpClient,
        body: &Bytes,
        sign: impl Fn(&mut Headers),
    ) -> Result<(), (String, bool)> {
        let mut headers = self.headers.clone();
        headers.append_unchecked(b"Content-Type", b"application/json");
        sign(&mut headers);
        let (method, url, version) = (Method::POST, self.url.clone(), HttpVersion::Http11);
        let head = RequestHead { method, url, version, headers, protocol: None };
        let request = Request { head, body: Body::from(body.clone()) };
        match tokio::time::timeout(self.policy.timeout, client.send(request)).await {
            Ok(Ok(response)) if response.head.status.is_success() => Ok(()),
            Ok(Ok(response)) => {
                let status = response.head.status;
                Err((format!("it answered {status}"), (self.policy.may_retry)(status)))
            }
            Ok(Err(e)) => Err((e.to_string(), true)),
            Err(_) => Err((format!("no response within {:?}", self.policy.timeout), true)),
        }
    }
}

/// A message of several items.
pub struct PostMessage {
    /// The same for each attempt.
    pub id: String,
    pub body: Bytes,
}

/// Makes messages of the items in a queue.
pub trait PostFormat: Send + Sync + 'static {
    type Item: Send + 'static;

    /// The next message, of one item at least, which it takes from the front. Not called on a thread that serves requests.
    fn message(&self, items: &mut VecDeque<Self::Item>) -> PostMessage;

    /// Header fields of an attempt.
    fn sign(&self, _message: &PostMessage, _headers: &mut Headers) {}
}

/// Collects items for a while, and posts them in messages, one after the other.
pub struct HttpSink<F> {
    pub format: Arc<F>,
    pub post: HttpPost,
    pub client: Arc<dyn HttpClient>,
    pub interval: Duration,
}

impl<F: PostFormat> Sink for HttpSink<F> {
    type Item = F::Item;

    fn start(worker: SinkWorker<Self>, runtime: &Handle) {
        runtime.spawn(Self::run(worker));
    }
}

impl<F: PostFormat> HttpSink<F> {
    async fn run(mut worker: SinkWorker<Self>) {
        let queue = Arc::clone(worker.queue());
        let Self { format, post, client, interval } = queue.sink();
        loop {
            tokio::time::sleep(*interval).await;
            let Some(mut batch) = worker.next_batch() else { return };
            while !batch.items.is_empty() {
                let (formatter, mut items) = (Arc::clone(format), std::mem::take(&mut batch.items));
                let before = items.len();
                let formatted = tokio::task::spawn_blocking(move || (formatter.message(&mut items), items)).await;
                let Ok((message, rest)) = formatted else { break };
                batch.items = rest;
                let result = post.send(&**client, &message.body, |headers| format.sign(&message, headers)).await;
                batch.settle(before - batch.items.len(), result.is_ok());
            }
        }
    }
}
