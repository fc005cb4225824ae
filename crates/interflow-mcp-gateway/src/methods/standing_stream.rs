//! The stream of a session that is open outside of calls (`GET`): notifications of servers, and their requests. A client
//! whose connection breaks off resumes it with `Last-Event-ID`.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use interflow_limits::KeyContext;
use interflow_types::{Body, BodyFrame, BodyStream, Error, Flow, RequestHead, Response, StatusCode};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Interval;

use super::call_context::{AnsweredRequest, CallContext, Delivery};
use crate::exchange::{Endpoint, McpExchange, SessionRequest};
use crate::protocol::event_stream::{
    KEEP_ALIVE_COMMENT, accepts_events, event_stream_head, keep_alive, numbered_event,
};
use crate::protocol::header_values::VERSION_HEADER;
use crate::protocol::responses::refusal;
use crate::protocol::versions::PRIMED_SINCE;
use crate::service::McpService;
use crate::session::client_session::McpSession;
use crate::upstream::event_sink::EventSink;

/// Bound on messages of servers that wait to be numbered.
const MAX_QUEUED: usize = 256;
/// How long servers are listened to for a client whose connection broke off.
const RESUME_WITHIN: Duration = Duration::from_secs(60);

/// Opens the stream of a session; one that was open before ends.
///
/// # Errors
/// The refusal of a request that names none, or cannot have a stream.
pub(crate) fn open(
    service: &Arc<McpService>,
    flow: &mut Flow,
    head: &RequestHead,
    endpoint: &Endpoint,
) -> Result<Response, Box<Response>> {
    let settings = service.settings();
    let session = SessionRequest { service, settings: &settings, flow, endpoint }.find(head)?;
    if !accepts_events(head) {
        let message = "the stream of a session has the media type text/event-stream";
        return Err(refusal(StatusCode::NOT_ACCEPTABLE, message).into());
    }
    let key = flow.extension::<KeyContext>().and_then(|context| context.key.clone());
    let servers = settings.of_endpoint(endpoint.0.as_deref());
    let mut request = AnsweredRequest { service, flow, head, session: &session };
    let contexts = request.stream_contexts(servers, key.as_deref(), || Delivery::Session);
    let contexts = contexts.map_err(|e| refusal(StatusCode::INTERNAL_SERVER_ERROR, e.message))?;
    if let Some(context) = contexts.last() {
        flow.extension_mut::<McpExchange>().begin_stream(&session, context.policy.restore);
    }
    let opened = session.standing.open(head.headers.get_str("last-event-id"), &settings);
    if !opened.has_listeners {
        session.standing.attach_listeners(opened.stream, listen(&session, contexts));
    }
    let is_primed = head.headers.get_str(VERSION_HEADER).is_some_and(|version| version >= PRIMED_SINCE);
    let (stream, after, replayed_to) = (opened.stream, opened.after, opened.last);
    let (primer, keep_alive) = (is_primed.then_some(after), keep_alive());
    let body = StandingStream { session, stream, after, replayed_to, primer, keep_alive, is_over: false };
    Ok(Response { head: event_stream_head(), body: Body::stream(body) })
}

/// Starts what passes on the messages of servers to the stream.
fn listen(session: &Arc<McpSession>, contexts: Vec<CallContext>) -> Vec<AbortHandle> {
    let (out, mut messages) = mpsc::channel::<String>(MAX_QUEUED);
    let mut tasks = Vec::new();
    for context in contexts {
        let out = out.clone();
        let attended = Arc::downgrade(&context.session);
        let is_attended = move || attended.upgrade().is_some_and(|session| session.standing.is_open());
        let (sink, events) = EventSink::outside_of_calls(is_attended);
        let listening = context.server.listen(&context.session, sink);
        let task = tokio::spawn(async move {
            tokio::join!(listening, context.dispatch(events, out, None));
        });
        tasks.push(task.abort_handle());
    }
    let numbered = Arc::clone(session);
    let numbering = tokio::spawn(async move {
        while let Some(text) = messages.recv().await {
            numbered.standing.push(text);
        }
    });
    tasks.push(numbering.abort_handle());
    tasks
}

struct StandingStream {
    session: Arc<McpSession>,
    stream: u64,
    /// The number of the event that was sent last.
    after: u64,
    /// The events up to this one were sent on another stream.
    replayed_to: u64,
    /// The id of the event without data at the beginning, from which the client can resume before it has another.
    primer: Option<u64>,
    keep_alive: Interval,
    is_over: bool,
}

impl StandingStream {
    /// Whether a request of a server that is sent again has been answered or given up.
    fn is_stale(&self, json: &str) -> bool {
        let message: Value = serde_json::from_str(json).unwrap_or_default();
        let is_request = message["method"].is_string() && !message["id"].is_null();
        self.after <= self.replayed_to
            && is_request
            && message["id"].as_u64().and_then(|id| self.session.questions.server(id)).is_none()
    }
}

impl BodyStream for StandingStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(id) = self.primer.take() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(Bytes::from(format!("id: {id}\ndata:\n\n"))))));
        }
        while let Poll::Ready(next) = self.session.standing.poll_next(self.stream, &mut self.after, cx) {
            let Some(text) = next else {
                self.is_over = true;
                return Poll::Ready(None);
            };
            if !self.is_stale(&text) {
                return Poll::Ready(Some(Ok(numbered_event(self.after, &text))));
            }
        }
        if self.keep_alive.poll_tick(cx).is_ready() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(Bytes::from_static(KEEP_ALIVE_COMMENT)))));
        }
        Poll::Pending
    }
}

impl Drop for StandingStream {
    fn drop(&mut self) {
        if !self.session.standing.leave(self.stream) {
            return;
        }
        // It was in use until now.
        self.session.touch();
        let (session, stream) = (Arc::clone(&self.session), self.stream);
        let Ok(runtime) = Handle::try_current() else { return session.standing.end_unless_resumed(stream) };
        runtime.spawn(async move {
            tokio::time::sleep(RESUME_WITHIN).await;
            session.standing.end_unless_resumed(stream);
        });
    }
}
