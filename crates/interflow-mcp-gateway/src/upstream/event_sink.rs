//! What servers send beside their responses.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::protocol::jsonrpc::{METHOD_NOT_FOUND, RpcError};

/// Bound on events that wait to be passed on.
const MAX_QUEUED: usize = 64;

pub(crate) enum ServerEvent {
    /// The params of a progress notification for a request in progress.
    Progress(Value),
    Notification {
        method: String,
        params: Value,
    },
    Request(ServerRequest),
}

/// A request of a server to the client.
pub(crate) struct ServerRequest {
    pub method: String,
    /// As raw JSON.
    pub params: String,
    pub reply: oneshot::Sender<Result<String, RpcError>>,
}

/// Where the events of a server go to, for one request in progress or for one session.
#[derive(Clone)]
pub(crate) struct EventSink {
    events: mpsc::Sender<ServerEvent>,
    pub wants_progress: bool,
    /// Whether the client has the stream outside of calls open, if the sink is not for a request in progress.
    is_attended: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl EventSink {
    pub fn new(wants_progress: bool) -> (Self, mpsc::Receiver<ServerEvent>) {
        let (events, received) = mpsc::channel(MAX_QUEUED);
        (Self { events, wants_progress, is_attended: None }, received)
    }

    /// A sink for what belongs to no request of a session.
    pub fn outside_of_calls(
        is_attended: impl Fn() -> bool + Send + Sync + 'static,
    ) -> (Self, mpsc::Receiver<ServerEvent>) {
        let (sink, received) = Self::new(false);
        (Self { is_attended: Some(Arc::new(is_attended)), ..sink }, received)
    }

    /// Whether the client has the stream open at the moment; it may come back.
    pub fn is_attended(&self) -> bool {
        self.is_attended.as_ref().is_some_and(|is_attended| is_attended())
    }

    pub fn notify(&self, method: String, params: Value) {
        let event = match method.as_str() {
            "notifications/progress" if self.wants_progress => ServerEvent::Progress(params),
            "notifications/progress" => return,
            _ => ServerEvent::Notification { method, params },
        };
        self.pass(event);
    }

    /// Passes on what was sent to another sink. A client that reads slowly misses some.
    pub fn pass(&self, event: ServerEvent) {
        let _ = self.events.try_send(event);
    }

    /// Passes a request on, and returns its answer.
    pub async fn ask(&self, method: String, params: String) -> Result<String, RpcError> {
        let (reply, answered) = oneshot::channel();
        let unasked = || RpcError::server("the client cannot be asked any more");
        self.events.try_send(ServerEvent::Request(ServerRequest { method, params, reply })).map_err(|_| unasked())?;
        answered.await.unwrap_or_else(|_| Err(unasked()))
    }
}

/// Those who listen outside of their requests.
#[derive(Default)]
pub(super) struct Listeners(Mutex<Vec<EventSink>>);

impl Listeners {
    pub fn add(&self, sink: EventSink) {
        self.open();
        self.0.lock().push(sink);
    }

    pub fn open(&self) -> Vec<EventSink> {
        let mut all = self.0.lock();
        all.retain(|sink| !sink.events.is_closed());
        all.clone()
    }
}

/// The answer to a server's own request that needs no client, or that has none; `None` if a client has to answer.
pub(super) fn own_answer(method: &str, has_client: bool) -> Option<Result<String, RpcError>> {
    match method {
        "ping" => Some(Ok("{}".to_owned())),
        _ if has_client => None,
        other => Some(Err(RpcError::new(METHOD_NOT_FOUND, format!("the gateway has no method `{other}`")))),
    }
}
