//! Chunks of a response's body shown to a service one by one, so that it is not held back as a whole: an extension of
//! ours, for services whose greeting has a hook `http-response-chunk`.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_flow::{Body, BodyStream, BoxFuture, Error, Frame, Kind, Result};
use serde_json::json;

use super::{Ask, Decided, Service};
use crate::config::OnFailure;

/// The body, each of its chunks passed by the service.
pub(crate) fn chunked(service: Arc<Service>, id: String, body: Body) -> Body {
    Body::stream(Chunked { service, id, body, number: 0, asked: None })
}

struct Chunked {
    service: Arc<Service>,
    id: String,
    body: Body,
    number: u64,
    asked: Option<(Bytes, BoxFuture<'static, Result<Decided, String>>)>,
}

// The future is only polled through `&mut self`.
impl BodyStream for Chunked {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            if let Some((chunk, asked)) = &mut self.asked {
                let decided = ready!(asked.as_mut().poll(cx));
                let chunk = std::mem::take(chunk);
                self.asked = None;
                let on = match decided {
                    Ok(Decided::Pass) => chunk,
                    Ok(Decided::Rewrite { body, .. }) => body.unwrap_or(chunk),
                    Ok(Decided::Deny { .. }) => {
                        let text = format!("the service {} cut the response", self.service.name);
                        return Poll::Ready(Some(Err(Error::new(Kind::Denied, text))));
                    }
                    Err(why) if self.service.def.on_failure == OnFailure::Pass => {
                        tracing::warn!("service {}: {why}; the chunk passes unchanged", self.service.name);
                        chunk
                    }
                    Err(why) => {
                        let text = format!("the service {} failed: {why}", self.service.name);
                        return Poll::Ready(Some(Err(Error::new(Kind::StageFailed, text))));
                    }
                };
                if on.is_empty() {
                    continue;
                }
                return Poll::Ready(Some(Ok(Frame::Data(on))));
            }
            let frame = ready!(self.body.poll_frame(cx));
            let Some(Ok(Frame::Data(chunk))) = frame else { return Poll::Ready(frame) };
            self.number += 1;
            // Each chunk has an answer of its own, and so an id of its own.
            let id = format!("{}/{}", self.id, self.number);
            let message = json!({
                "type": Ask::Chunk.kind(), "id": id, "response_id": self.id, "sequence": self.number, "body": STANDARD.encode(&chunk),
            });
            self.asked = Some((chunk, self.service.asking(id, message)));
        }
    }
}
