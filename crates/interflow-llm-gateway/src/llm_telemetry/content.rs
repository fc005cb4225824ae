//! Copies of requests and responses for spans with content (`telemetry.content`).

use std::sync::Arc;

use bytes::Bytes;
use interflow_llm::LlmCall;
use interflow_types::budget::MemoryReservation;
use interflow_types::{
    Body, BodyFrame, EarlyExit, EntryKind, Flow, Headers, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead,
    ResponseHead, Result, Stage,
};
use parking_lot::Mutex;

use super::{ActiveRequestMarker, ContentMode, LlmTelemetry};
use crate::redaction;

/// Maximum size of a request or response that is copied for a span; of a larger one the span has no content.
const MAX_COPIED_BYTES: usize = 8 << 20;

/// Where in the pipeline a stage takes its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentPosition {
    /// The request as the client sent it.
    BeforeRedaction,
    /// The request as the provider gets it, and the response with its placeholders.
    AfterRedaction,
    /// The response as the client gets it.
    AfterRestoring,
}

/// Takes the copies of one position, if the configuration wants them from there.
pub struct ContentStage {
    pub telemetry: Arc<LlmTelemetry>,
    pub position: ContentPosition,
}

/// What was copied of a flow.
#[derive(Clone, Default)]
pub(super) struct FlowContent {
    pub request: Option<CopiedBody>,
    pub response: Option<CopiedBody>,
    pub path: String,
}

/// A body on its way, as far as it was relayed.
#[derive(Clone)]
pub(super) struct CopiedBody {
    pub headers: Headers,
    pub bytes: Arc<Mutex<BodyCopy>>,
}

#[derive(Default)]
pub(super) struct BodyCopy {
    chunks: Vec<Bytes>,
    length: usize,
    /// The bytes count against the process's budget while they are held.
    held: MemoryReservation,
    is_given_up: bool,
}

impl BodyCopy {
    fn push(&mut self, data: &Bytes) {
        if self.is_given_up {
            return;
        }
        self.length += data.len();
        if self.length > MAX_COPIED_BYTES || self.held.resize(self.length).is_err() {
            *self = Self { is_given_up: true, ..Self::default() };
        } else {
            self.chunks.push(data.clone());
        }
    }

    /// The bytes with their reservation, once.
    pub fn take(&mut self) -> Option<Bytes> {
        let copy = std::mem::take(self);
        let whole = if let [one] = &copy.chunks[..] { one.clone() } else { Bytes::from(copy.chunks.concat()) };
        (!whole.is_empty()).then(|| copy.held.attach_to(whole))
    }
}

impl CopiedBody {
    fn new(headers: &Headers) -> Self {
        Self { headers: headers.clone(), bytes: Arc::default() }
    }
}

impl ContentStage {
    fn takes(&self) -> (bool, bool) {
        use ContentPosition::{AfterRedaction, AfterRestoring, BeforeRedaction};
        match (self.telemetry.content_mode(), self.position) {
            (ContentMode::Redacted, AfterRedaction) => (true, true),
            (ContentMode::Full, BeforeRedaction) => (true, false),
            (ContentMode::Full, AfterRestoring) => (false, true),
            _ => (false, false),
        }
    }

    /// Whether a span of this flow may have content. Where it may only be redacted content, the request must have been
    /// redacted: one that a policy merely flags, or does not cover, is withheld.
    fn may_copy(&self, flow: &Flow) -> bool {
        let is_exported = flow
            .extension::<ActiveRequestMarker>()
            .is_some_and(|marker| marker.trace.as_ref().is_some_and(super::TraceContext::is_sampled));
        let mode = self.telemetry.content_mode();
        flow.extension::<LlmCall>().is_some_and(|call| call.operation.has_model())
            && is_exported
            && (mode == ContentMode::Full || redaction::redacts_flow(flow) == Some(true))
    }
}

impl Stage for ContentStage {
    fn name(&self) -> &'static str {
        "span-content"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        let is_visible = scope.intercepted || matches!(scope.transport, EntryKind::Absolute | EntryKind::Gateway);
        if !is_visible || scope.transport == EntryKind::Internal {
            return PhaseSet::NONE;
        }
        match self.takes() {
            (false, false) => PhaseSet::NONE,
            (true, false) => PhaseSet::from_phase(Phase::RequestBody),
            (false, true) => PhaseSet::from_phase(Phase::ResponseBody),
            (true, true) => PhaseSet::from_phase(Phase::RequestBody).with(Phase::ResponseBody),
        }
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        // A call whose body is not there as a whole was too large for the stage that reads its model.
        if let Body::Full(bytes) = &body
            && self.takes().0
            && self.may_copy(flow)
        {
            let copied = CopiedBody::new(&head.headers);
            copied.bytes.lock().push(bytes);
            let content = flow.extension_mut::<FlowContent>();
            content.path = str::to_owned(&head.url.path);
            content.request = Some(copied);
        }
        MaybeFuture::Ready(Ok(body))
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        if body.is_empty() || !self.takes().1 || !self.may_copy(flow) {
            return MaybeFuture::Ready(Ok(body));
        }
        let copied = CopiedBody::new(&head.headers);
        flow.extension_mut::<FlowContent>().response = Some(copied.clone());
        MaybeFuture::Ready(Ok(match body {
            Body::Full(bytes) => {
                copied.bytes.lock().push(&bytes);
                Body::Full(bytes)
            }
            body => body.inspect(move |frame| {
                if let Some(Ok(BodyFrame::Data(data))) = frame {
                    copied.bytes.lock().push(data);
                }
            }),
        }))
    }
}

/// What is kept of a flow's content until its span is written: bytes, not texts, which are made of them outside the
/// request's way.
pub(super) struct SpanContent {
    pub path: String,
    pub status: u16,
    pub request: Option<(Headers, Bytes)>,
    pub response: Option<(Headers, Bytes)>,
}

impl SpanContent {
    pub fn take(flow: &Flow, status: u16) -> Option<Self> {
        let content = flow.extension::<FlowContent>()?;
        let copied_text = |copied: &Option<CopiedBody>| {
            let copied = copied.as_ref()?;
            Some((copied.headers.clone(), copied.bytes.lock().take()?))
        };
        let (request, response) = (copied_text(&content.request), copied_text(&content.response));
        (request.is_some() || response.is_some()).then(|| Self {
            path: content.path.clone(),
            status,
            request,
            response,
        })
    }

    pub fn size(&self) -> usize {
        let size = |body: &Option<(Headers, Bytes)>| body.as_ref().map_or(0, |(_, bytes)| bytes.len());
        size(&self.request) + size(&self.response)
    }
}
