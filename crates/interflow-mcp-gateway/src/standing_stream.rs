//! The stream of a session that is open outside of calls (`GET`): notifications of servers, and their requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use interflow_limits::KeyContext;
use interflow_types::{Body, BodyFrame, BodyStream, Error, Flow, RequestHead, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Interval;

use crate::client_requests::{EventContext, ReviewedRequest};
use crate::endpoint::Endpoint;
use crate::log_messages::may_log;
use crate::responses::refusal;
use crate::service::McpService;
use crate::stages::{McpExchange, find_session};
use crate::streamed_reply::{KEEP_ALIVE_COMMENT, event, event_stream_head, keep_alive};
use crate::upstream::EventSink;

/// Bound on messages that wait for a slow client.
const MAX_QUEUED: usize = 256;

/// Opens the stream of a session; one that was open before ends.
pub(crate) fn open(service: &Arc<McpService>, flow: &mut Flow, head: &RequestHead, endpoint: &Endpoint) -> Response {
    let settings = service.settings();
    let session = match find_session(service, &settings, flow, head, endpoint) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    if !head.headers.list_items("accept").any(|item| item.starts_with(b"text/event-stream")) {
        return refusal(StatusCode::NOT_ACCEPTABLE, "the stream of a session has the media type text/event-stream");
    }
    let key = flow.extension::<KeyContext>().and_then(|context| context.key.clone());
    let (sender, messages) = mpsc::channel(MAX_QUEUED);
    let ended = session.open_stream(sender.clone());
    let mut listeners = Vec::new();
    for server in settings.of_endpoint(endpoint.0.as_deref()) {
        let policy = match (service.deps.policy)(flow, server.config.policy.as_deref()) {
            Ok(policy) => policy,
            Err(why) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, why),
        };
        flow.extension_mut::<McpExchange>().begin_stream(&session, policy.restore);
        let context = EventContext {
            service: Arc::clone(service),
            session: Arc::clone(&session),
            guard: (service.deps.guard)(flow, &server.name),
            may_log: may_log(&server, key.as_deref()),
            server,
            policy,
            outcome: Arc::clone(&flow.extension_mut::<McpExchange>().outcome),
            review: ReviewedRequest::new(flow, head),
        };
        let out = sender.clone();
        listeners.push(tokio::spawn(async move {
            let (sink, events) = EventSink::new(false);
            let listening = context.server.listen(&context.session, sink);
            tokio::join!(listening, context.dispatch(events, out, None));
        }));
    }
    let body = Body::stream(StandingStream { messages, listeners, ended, keep_alive: keep_alive(), is_over: false });
    Response { head: event_stream_head(), body }
}

struct StandingStream {
    messages: mpsc::Receiver<String>,
    /// End with the stream.
    listeners: Vec<JoinHandle<()>>,
    /// Ends when the session does, or another stream takes this one's place.
    ended: oneshot::Receiver<()>,
    keep_alive: Interval,
    is_over: bool,
}

impl BodyStream for StandingStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(text)) = self.messages.poll_recv(cx) {
            return Poll::Ready(Some(Ok(event(&text))));
        }
        if Pin::new(&mut self.ended).poll(cx).is_ready() {
            self.is_over = true;
            return Poll::Ready(None);
        }
        if self.keep_alive.poll_tick(cx).is_ready() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(Bytes::from_static(KEEP_ALIVE_COMMENT)))));
        }
        Poll::Pending
    }
}

impl Drop for StandingStream {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
    }
}
