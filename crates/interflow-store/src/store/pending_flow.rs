//! What a running flow has told and the writer has not taken yet.

use bytes::Bytes;
use interflow_types::{
    Authority, ByteCounts, ByteStr, ClientInfo, ClientTls, EntryKind, Flow, FlowId, FlowOutcome, FlowTimings, Headers,
    HttpVersion, Method, Passthrough, RequestHead, ResponseHead, Scheme, StreamMessage, Timestamp, UpstreamInfo, Url,
};
use parking_lot::Mutex;
use std::sync::Arc;

use crate::model::{ErrorRow, FlowState, MissingReason};

/// A flow that is being kept. Shared by its capture and the writer.
pub(crate) struct PendingFlow {
    pub(crate) id: FlowId,
    pub(crate) news: Mutex<PendingUpdates>,
}

/// What has come since the writer last looked, and what must be known to go on. All in one piece with its slot: parts of
/// their own would be made by one thread and given back by another.
#[derive(Default)]
pub(crate) struct PendingUpdates {
    /// It stands in the queue, or the writer has it in hand.
    pub(crate) queued: bool,
    /// Bytes it was charged for.
    pub(crate) charge: usize,
    pub(crate) begin: Option<FlowStart>,
    pub(crate) data: [Vec<Bytes>; 2],
    pub(crate) trailers: [Option<Headers>; 2],
    pub(crate) interim: Vec<ResponseHead>,
    pub(crate) response: Option<ResponseHead>,
    pub(crate) state: Option<FlowSnapshot>,
    /// Messages, and how long each was as it passed.
    pub(crate) messages: Vec<(StreamMessage, u64)>,
    pub(crate) end: Option<FlowEnd>,
    /// Bytes that passed so far.
    pub(crate) sizes: [u64; 2],
    /// Why no more bytes are kept.
    pub(crate) missing: [Option<MissingReason>; 2],
    /// The bytes that are kept are hashed.
    pub(crate) hashed: [bool; 2],
    /// What came in, of a flow that was edited.
    pub(crate) original: Option<Box<OriginalUpdates>>,
}

/// News of what came in before it was edited.
#[derive(Default)]
pub(crate) struct OriginalUpdates {
    /// The request's URL and head, and whether its body was edited too.
    pub(crate) request: Option<(Url, RequestStart, bool)>,
    /// The response's head, and whether its body was edited too.
    pub(crate) response: Option<(ResponseHead, bool)>,
    pub(crate) data: [Vec<Bytes>; 2],
    /// Bytes that passed so far.
    pub(crate) sizes: [u64; 2],
    /// Why no more bytes are kept.
    pub(crate) missing: [Option<MissingReason>; 2],
    /// The bytes that are kept are hashed.
    pub(crate) hashed: [bool; 2],
}

impl OriginalUpdates {
    /// What must stay when the news are taken.
    fn retained_state(&self) -> Box<Self> {
        Box::new(Self { sizes: self.sizes, missing: self.missing, hashed: self.hashed, ..Self::default() })
    }
}

impl PendingUpdates {
    /// Takes what is new; what must stay is copied.
    pub(crate) fn take(&mut self) -> Self {
        let original = self.original.as_ref().map(|o| o.retained_state());
        let rest = Self { sizes: self.sizes, missing: self.missing, hashed: self.hashed, original, ..Self::default() };
        std::mem::replace(self, rest)
    }

    /// Nothing more of any body is kept, and why.
    pub(crate) fn mark_missing(&mut self, why: MissingReason) {
        let originals = self.original.as_mut().map(|o| &mut o.missing).into_iter().flatten();
        self.missing.iter_mut().chain(originals).for_each(|m| *m = m.or(Some(why)));
    }

    /// Notes how the flow stands now, in the place of what was noted before.
    pub(crate) fn set_snapshot(&mut self, flow: &Flow) {
        self.state = Some(FlowSnapshot::from_flow(flow));
    }

    /// Whether there is anything for the writer.
    pub(crate) const fn is_empty(&self) -> bool {
        self.charge == 0 && self.end.is_none()
    }
}

/// What is known of a flow at its beginning.
pub(crate) struct FlowStart {
    pub(crate) born: Timestamp,
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) transport: EntryKind,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    pub(crate) parent: Option<FlowId>,
    pub(crate) request: Option<RequestStart>,
}

/// A request's head as the recorder keeps it.
pub(crate) struct RequestStart {
    pub(crate) method: Method,
    pub(crate) path: ByteStr,
    pub(crate) version: HttpVersion,
    pub(crate) headers: Headers,
    pub(crate) protocol: Option<ByteStr>,
}

impl RequestStart {
    pub(crate) fn from_head(h: &RequestHead) -> Self {
        Self {
            method: h.method.clone(),
            path: h.url.path.clone(),
            version: h.version,
            headers: h.headers.clone(),
            protocol: h.protocol.clone(),
        }
    }
}

impl FlowStart {
    pub(crate) fn from_flow(flow: &Flow, head: Option<&RequestHead>) -> Self {
        Self {
            born: flow.clock.started_at(),
            client: flow.client.clone(),
            transport: flow.transport,
            scheme: flow.scheme,
            authority: flow.authority.clone(),
            parent: flow.parent,
            request: head.map(RequestStart::from_head),
        }
    }
}

/// What of a flow may change while it runs.
pub(crate) struct FlowSnapshot {
    pub(crate) client_tls: Option<Arc<ClientTls>>,
    pub(crate) client_http2: Option<ByteStr>,
    pub(crate) ja4h: Option<ByteStr>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) upstream: Option<UpstreamInfo>,
    pub(crate) timings: FlowTimings,
    pub(crate) tags: Vec<ByteStr>,
    pub(crate) passthrough: Option<Passthrough>,
}

impl FlowSnapshot {
    pub(crate) fn from_flow(flow: &Flow) -> Self {
        Self {
            client_tls: flow.client_tls.clone(),
            client_http2: flow.client_http2.clone(),
            ja4h: flow.ja4h.clone(),
            user: flow.user.clone(),
            upstream: flow.upstream.clone(),
            timings: flow.timings,
            tags: flow.tags.clone(),
            passthrough: flow.passthrough,
        }
    }
}

/// How a flow ended.
pub(crate) struct FlowEnd {
    pub(crate) state: FlowState,
    pub(crate) tunnel: Option<ByteCounts>,
    pub(crate) error: Option<ErrorRow>,
    /// Microseconds after its start, for a flow whose timings do not say.
    pub(crate) after: u64,
}

impl FlowEnd {
    pub(crate) fn from_flow(flow: &Flow, outcome: &FlowOutcome<'_>, is_tunnel: bool) -> Self {
        let (state, tunnel, error) = match outcome {
            FlowOutcome::Complete => (FlowState::Complete, None, None),
            FlowOutcome::Tunnelled(bytes) => (FlowState::Complete, Some(*bytes), None),
            FlowOutcome::Failed(e, bytes) => {
                let carried = (is_tunnel || *bytes != ByteCounts::default()).then_some(*bytes);
                (FlowState::Failed, carried, Some(ErrorRow::from_error(e)))
            }
        };
        Self { state, tunnel, error, after: flow.clock.micros() }
    }
}

impl ErrorRow {
    /// What a record keeps of an error.
    pub fn from_error(e: &interflow_types::Error) -> Self {
        use interflow_types::ErrorSource;
        let blame = match e.error_source() {
            ErrorSource::Client => "client",
            ErrorSource::Upstream => "upstream",
            ErrorSource::Config => "config",
            ErrorSource::Internal => "internal",
        };
        Self { kind: e.kind().as_str().into(), blame: blame.into(), message: e.to_string() }
    }
}
