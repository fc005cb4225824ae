//! A response as an event stream, for calls whose progress the client wants to see: notifications, then the response.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use interflow_types::{Body, BodyFrame, BodyStream, BoxFuture, Error, Response, ResponseHead, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

use crate::jsonrpc::notification;

/// A comment is sent this often, so that no proxy between takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) struct StreamedReply {
    /// Ends with the response as JSON.
    pub call: BoxFuture<'static, String>,
    pub progress: mpsc::Receiver<Value>,
    /// Makes what the client sees of a notification's params.
    pub translate: Box<dyn Fn(&Value) -> Value + Send>,
}

struct EventStream {
    reply: StreamedReply,
    keep_alive: Interval,
    response: Option<String>,
    is_over: bool,
}

impl StreamedReply {
    pub fn into_response(self) -> Response {
        let mut keep_alive = tokio::time::interval_at(tokio::time::Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let head = ResponseHead::new(StatusCode::OK)
            .with_header("Content-Type", "text/event-stream")
            .with_header("Cache-Control", "no-store");
        Response { head, body: Body::stream(EventStream { reply: self, keep_alive, response: None, is_over: false }) }
    }
}

fn event(json: &str) -> BodyFrame {
    BodyFrame::Data(Bytes::from(format!("event: message\ndata: {json}\n\n")))
}

impl BodyStream for EventStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.response.is_none()
            && let Poll::Ready(response) = self.reply.call.as_mut().poll(cx)
        {
            self.response = Some(response);
        }
        // What the call reported until then: nothing may follow the response.
        if let Poll::Ready(Some(params)) = self.reply.progress.poll_recv(cx) {
            let text = notification("notifications/progress", &(self.reply.translate)(&params));
            return Poll::Ready(Some(Ok(event(&text))));
        }
        if let Some(response) = self.response.take() {
            self.is_over = true;
            return Poll::Ready(Some(Ok(event(&response))));
        }
        if self.keep_alive.poll_tick(cx).is_ready() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(Bytes::from_static(b": waiting\n\n")))));
        }
        Poll::Pending
    }
}
