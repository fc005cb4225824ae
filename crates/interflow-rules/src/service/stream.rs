//! Sends the chunks of a response's body to a service one by one, so that it is not buffered as a whole: an extension
//! for services whose handshake has a hook `http-response-chunk`.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_types::{Body, BodyFrame, BodyStream, BoxFuture, Error, ErrorKind, Result};
use serde_json::json;

use super::{ExternalService, ServiceDecision, ServiceMessageKind};
use crate::body::ChunkFilter;
use crate::config::OnFailure;

impl ChunkFilter for ExternalService {
    /// The next chunk is read only when the last one is decided.
    fn filter_chunks(self: Arc<Self>, exchange: String, body: Body) -> Body {
        Body::stream(ServiceChunkedBody { service: self, id: exchange, body, number: 0, asked: None })
    }
}

struct ServiceChunkedBody {
    service: Arc<ExternalService>,
    id: String,
    body: Body,
    /// Number of chunks so far: the `sequence` of the protocol, from 1.
    number: u64,
    asked: Option<(Bytes, BoxFuture<'static, Result<ServiceDecision, String>>)>,
}

// The future is only polled through `&mut self`.
impl BodyStream for ServiceChunkedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some((chunk, asked)) = &mut self.asked {
                let decided = ready!(asked.as_mut().poll(cx));
                let chunk = std::mem::take(chunk);
                self.asked = None;
                let on = match decided {
                    Ok(ServiceDecision::Pass) => chunk,
                    Ok(ServiceDecision::Rewrite { body, .. }) => body.unwrap_or(chunk),
                    Ok(ServiceDecision::Deny { .. }) => {
                        let text = format!("the service {} cut the response", self.service.name);
                        // The head has been sent, so that the response can only be cut off.
                        return Poll::Ready(Some(Err(Error::new(ErrorKind::Denied, text))));
                    }
                    Err(why) if self.service.def.on_failure == OnFailure::Pass => {
                        tracing::warn!("service {}: {why}; the chunk passes unchanged", self.service.name);
                        chunk
                    }
                    Err(why) => {
                        let text = format!("the service {} failed: {why}", self.service.name);
                        return Poll::Ready(Some(Err(Error::new(ErrorKind::StageFailed, text))));
                    }
                };
                if on.is_empty() {
                    continue;
                }
                return Poll::Ready(Some(Ok(BodyFrame::Data(on))));
            }
            let frame = ready!(self.body.poll_frame(cx));
            let Some(Ok(BodyFrame::Data(chunk))) = frame else { return Poll::Ready(frame) };
            self.number += 1;
            // Each chunk has a reply of its own, and therefore an id of its own.
            let id = format!("{}/{}", self.id, self.number);
            let message = json!({
                "type": ServiceMessageKind::Chunk.as_str(), "id": id, "response_id": self.id, "sequence": self.number, "body": STANDARD.encode(&chunk),
            });
            let service = Arc::clone(&self.service);
            self.asked = Some((chunk, Box::pin(async move { service.ask(&id, message).await })));
        }
    }
}
