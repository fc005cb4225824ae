//! Copies of requests and responses for spans with content (`telemetry.content`).

use std::sync::Arc;

use bytes::Bytes;
use interflow_llm::LlmCall;
use interflow_types::{Body, BodyFrame, Flow, Headers, RequestHead, ResponseHead};
use parking_lot::Mutex;

use super::{ActiveRequestMarker, ContentMode, LlmTelemetry};
use crate::exchange::response::body_copy::BodyCopy;
use crate::{exchange, redaction};

/// Maximum size of a request or response that is copied for a span; of a larger one the span has no content.
const MAX_COPIED_BYTES: usize = 8 << 20;

/// What was copied of a flow.
#[derive(Clone, Default)]
pub(super) struct FlowContent {
    /// Without its content coding.
    pub request: Option<Bytes>,
    pub response: Option<CopiedBody>,
    pub path: String,
}

/// A body on its way, as far as it was relayed.
#[derive(Clone)]
pub(super) struct CopiedBody {
    pub headers: Headers,
    pub bytes: Arc<Mutex<BodyCopy>>,
}

impl LlmTelemetry {
    /// Whether a span of this flow may have content. Where it may only be redacted content, the request must have been
    /// redacted: one that a policy merely flags, or does not cover, is withheld.
    fn may_copy(&self, flow: &Flow) -> bool {
        let is_exported = flow
            .extension::<ActiveRequestMarker>()
            .is_some_and(|marker| marker.trace.as_ref().is_some_and(super::TraceContext::is_sampled));
        let mode = self.content_mode();
        flow.extension::<LlmCall>().is_some_and(|call| call.operation.has_model())
            && is_exported
            && (mode == ContentMode::Full || redaction::redacts_flow(flow) == Some(true))
    }

    /// Copies a request for its span, if that has the texts of this mode.
    pub(crate) fn copy_request(&self, mode: ContentMode, flow: &mut Flow, head: &RequestHead, body: &Body) {
        // A call whose body is not there as a whole was too large for the pass that reads its model.
        if let Body::Full(bytes) = body
            && bytes.len() <= MAX_COPIED_BYTES
            && self.content_mode() == mode
            && self.may_copy(flow)
            && let Some(request) = exchange::current(flow, &head.headers, bytes)
        {
            let content = flow.extension_mut::<FlowContent>();
            content.path = str::to_owned(&head.url.path);
            content.request = Some(request.plain().clone());
        }
    }

    /// Copies a response as it passes, likewise.
    pub(crate) fn copy_response(&self, mode: ContentMode, flow: &mut Flow, head: &ResponseHead, body: Body) -> Body {
        if body.is_empty() || self.content_mode() != mode || !self.may_copy(flow) {
            return body;
        }
        let copied = CopiedBody { headers: head.headers.clone(), bytes: Arc::default() };
        flow.extension_mut::<FlowContent>().response = Some(copied.clone());
        match body {
            Body::Full(bytes) => {
                copied.bytes.lock().push(&bytes, MAX_COPIED_BYTES);
                Body::Full(bytes)
            }
            body => body.inspect(move |frame| {
                if let Some(Ok(BodyFrame::Data(data))) = frame {
                    copied.bytes.lock().push(data, MAX_COPIED_BYTES);
                }
            }),
        }
    }
}

/// What is kept of a flow's content until its span is written: bytes, not texts, which are made of them outside the
/// request's way.
pub(super) struct SpanContent {
    pub path: String,
    pub status: u16,
    /// Without its content coding.
    pub request: Option<Bytes>,
    pub response: Option<(Headers, Bytes)>,
}

impl SpanContent {
    pub fn take(flow: &Flow, status: u16) -> Option<Self> {
        let content = flow.extension::<FlowContent>()?;
        let copied = |copied: &CopiedBody| Some((copied.headers.clone(), copied.bytes.lock().take()?));
        let (request, response) = (content.request.clone(), content.response.as_ref().and_then(copied));
        let path = content.path.clone();
        (request.is_some() || response.is_some()).then_some(Self { path, status, request, response })
    }

    pub fn size(&self) -> usize {
        self.request.as_ref().map_or(0, Bytes::len) + self.response.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }
}
