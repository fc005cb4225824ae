//! A response as an event stream, for calls during which the server tells or asks the client something: notifications and
//! requests, then the response.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use interflow_types::{Body, BodyFrame, BodyStream, BoxFuture, Error, RequestHead, Response, ResponseHead, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

/// A comment is sent this often, so that no proxy between takes the connection for dead.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(crate) const KEEP_ALIVE_COMMENT: &[u8] = b": waiting\n\n";

pub(crate) struct StreamedReply {
    /// Ends with the response as JSON.
    pub call: BoxFuture<'static, String>,
    /// What the client gets before it.
    pub messages: mpsc::Receiver<String>,
    pub first: Option<String>,
}

struct EventStream {
    reply: StreamedReply,
    keep_alive: Interval,
    response: Option<String>,
    is_over: bool,
}

impl StreamedReply {
    pub fn into_response(self) -> Response {
        let body = EventStream { reply: self, keep_alive: keep_alive(), response: None, is_over: false };
        Response { head: event_stream_head(), body: Body::stream(body) }
    }
}

pub(crate) fn accepts_events(head: &RequestHead) -> bool {
    head.headers.list_items("accept").any(|item| item.starts_with(b"text/event-stream"))
}

pub(crate) fn event_stream_head() -> ResponseHead {
    ResponseHead::new(StatusCode::OK)
        .with_header("Content-Type", "text/event-stream")
        .with_header("Cache-Control", "no-store")
        // Some servers between would collect events until there are many.
        .with_header("X-Accel-Buffering", "no")
}

pub(crate) fn keep_alive() -> Interval {
    let mut keep_alive = tokio::time::interval_at(tokio::time::Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    keep_alive
}

pub(crate) fn event(json: &str) -> BodyFrame {
    BodyFrame::Data(Bytes::from(event_text(json)))
}

/// An event with an id by which the stream can be resumed.
pub(crate) fn numbered_event(number: u64, json: &str) -> BodyFrame {
    BodyFrame::Data(Bytes::from(format!("id: {number}\n{}", event_text(json))))
}

/// On one line: JSON has line breaks only between tokens, where a space is the same.
fn event_text(json: &str) -> String {
    format!("event: message\ndata: {}\n\n", json.replace(['\r', '\n'], " "))
}

impl BodyStream for EventStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(text) = self.reply.first.take() {
            return Poll::Ready(Some(Ok(event(&text))));
        }
        if self.response.is_none()
            && let Poll::Ready(response) = self.reply.call.as_mut().poll(cx)
        {
            self.response = Some(response);
        }
        // What the server sent until then: nothing may follow the response.
        if let Poll::Ready(Some(text)) = self.reply.messages.poll_recv(cx) {
            return Poll::Ready(Some(Ok(event(&text))));
        }
        if let Some(response) = self.response.take() {
            self.is_over = true;
            return Poll::Ready(Some(Ok(event(&response))));
        }
        if self.keep_alive.poll_tick(cx).is_ready() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(Bytes::from_static(KEEP_ALIVE_COMMENT)))));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_line_breaks_is_the_data_of_one_event() {
        let json = "{\n  \"a\": 1,\r\n\n  \"b\": 2\r}";
        let data = "event: message\ndata: {   \"a\": 1,     \"b\": 2 }\n\n";
        for (frame, text) in [(event(json), data.to_owned()), (numbered_event(7, json), format!("id: 7\n{data}"))] {
            assert!(matches!(frame, BodyFrame::Data(sent) if sent == text), "{text}");
        }
    }
}
