//! Restores originals in a response on its way to the client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use interflow_types::{Body, BodyFrame, BodyStream, CollectError, Error, ErrorKind, Result};

use crate::redaction::restore_json;
use crate::sessions::McpSession;

/// Restores in a response that is one message.
pub(crate) async fn restore_message(session: &McpSession, body: Body) -> Result<Body> {
    // The handler made it of a message within the bound of messages.
    let (bytes, trailers) = body.collect(usize::MAX).await.map_err(|e| match e {
        CollectError::Broken(e) => e,
        CollectError::TooLarge(_) => Error::new(ErrorKind::Internal, "a response larger than memory"),
    })?;
    let restored = std::str::from_utf8(&bytes).ok().and_then(|text| restore_json(&session.from_client, text));
    Ok(Body::with_trailers(restored.map_or(bytes, Bytes::from), trailers))
}

/// Restores in a response that is an event stream.
pub(crate) fn restore_events(session: Arc<McpSession>, body: Body) -> Body {
    Body::stream(RestoredEvents { session, body, partial: BytesMut::new(), ready: VecDeque::new(), is_over: false })
}

struct RestoredEvents {
    session: Arc<McpSession>,
    body: Body,
    /// The beginning of a line.
    partial: BytesMut,
    ready: VecDeque<Result<BodyFrame>>,
    is_over: bool,
}

impl RestoredEvents {
    fn restore_line(&self, line: &[u8]) -> Option<Bytes> {
        let text = std::str::from_utf8(line).ok()?;
        let json = text.strip_prefix("data:")?.trim();
        let restored = restore_json(&self.session.from_client, json)?;
        Some(Bytes::from(format!("data: {restored}\n")))
    }

    fn take_lines(&mut self, data: &[u8]) {
        self.partial.extend_from_slice(data);
        while let Some(end) = self.partial.iter().position(|b| *b == b'\n') {
            let line = self.partial.split_to(end + 1).freeze();
            let line = self.restore_line(&line).unwrap_or(line);
            self.ready.push_back(Ok(BodyFrame::Data(line)));
        }
    }
}

impl BodyStream for RestoredEvents {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Poll::Ready(Some(frame));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.body.poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(BodyFrame::Data(data)))) => self.take_lines(&data),
                Poll::Ready(last) => {
                    self.is_over = !matches!(last, Some(Ok(_)));
                    let rest = self.partial.split().freeze();
                    if !rest.is_empty() {
                        self.ready.push_back(Ok(BodyFrame::Data(rest)));
                    }
                    self.ready.extend(last);
                }
            }
        }
    }
}
