//! Updates of a running flow that the writer has not processed yet.

use bytes::Bytes;
use interflow_types::{
    Attempt, Attempts, Authority, ByteCounts, ByteStr, ClientInfo, ClientTls, EntryKind, Flow, FlowId, FlowOutcome,
    FlowTimings, Headers, HttpVersion, Method, Passthrough, RequestHead, ResponseHead, Scheme, StreamMessage,
    Timestamp, UpstreamInfo, Url,
};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;

use crate::model::{ErrorRecord, FlowState, MissingReason};

/// A flow being recorded; shared by its capture and the writer.
pub(crate) struct PendingFlow {
    pub(crate) id: FlowId,
    pub(crate) updates: Mutex<PendingUpdates>,
}

/// Data received since the last drain, and the state needed to continue. Allocated as one block with its `PendingFlow`,
/// because separate parts would be allocated by one thread and freed by another.
///
/// `charge` is what the queue was charged for it, in bytes. The arrays are indexed by direction: `sizes` are bytes
/// transferred so far, `missing` is why no more bytes are recorded, and `hashed` whether the recorded ones are hashed;
/// these three survive a drain. Messages come with their sizes as transferred, before truncation.
#[derive(Default)]
pub(crate) struct PendingUpdates {
    /// Whether the flow is in the queue or being processed by the writer.
    pub(crate) queued: bool,
    pub(crate) charge: usize,
    pub(crate) begin: Option<FlowStart>,
    pub(crate) data: [Vec<Bytes>; 2],
    pub(crate) trailers: [Option<Headers>; 2],
    pub(crate) interim: Vec<ResponseHead>,
    pub(crate) response: Option<ResponseHead>,
    pub(crate) state: Option<FlowSnapshot>,
    pub(crate) messages: Vec<(StreamMessage, u64)>,
    pub(crate) end: Option<FlowEnd>,
    pub(crate) sizes: [u64; 2],
    pub(crate) missing: [Option<MissingReason>; 2],
    pub(crate) hashed: [bool; 2],
    /// Updates of the received version, if the flow was edited.
    pub(crate) original: Option<Box<OriginalUpdates>>,
    pub(crate) withheld: Option<WithheldResponse>,
}

/// The end of a response that waits for its flow to be stored: it is sent when this is dropped.
pub(crate) type WithheldResponse = oneshot::Sender<()>;

/// Updates of the received version of a flow, before editing; the arrays as in [`PendingUpdates`]. Heads come with
/// whether the body was edited too.
#[derive(Default)]
pub(crate) struct OriginalUpdates {
    pub(crate) request: Option<(Url, RequestStart, bool)>,
    pub(crate) response: Option<(ResponseHead, bool)>,
    pub(crate) data: [Vec<Bytes>; 2],
    pub(crate) sizes: [u64; 2],
    pub(crate) missing: [Option<MissingReason>; 2],
    pub(crate) hashed: [bool; 2],
}

impl OriginalUpdates {
    /// The state that remains after a drain.
    fn retained_state(&self) -> Box<Self> {
        Box::new(Self { sizes: self.sizes, missing: self.missing, hashed: self.hashed, ..Self::default() })
    }
}

impl PendingUpdates {
    /// Takes the updates; state needed later is copied.
    pub(crate) fn take(&mut self) -> Self {
        // Sizes and reasons stay behind: later data of the same bodies continues to count from them.
        let original = self.original.as_ref().map(|o| o.retained_state());
        let rest = Self { sizes: self.sizes, missing: self.missing, hashed: self.hashed, original, ..Self::default() };
        std::mem::replace(self, rest)
    }

    /// Stops recording all bodies for the given reason.
    pub(crate) fn mark_missing(&mut self, why: MissingReason) {
        let originals = self.original.as_mut().map(|o| &mut o.missing).into_iter().flatten();
        // The first reason is kept; it says where the record ends.
        self.missing.iter_mut().chain(originals).for_each(|m| *m = m.or(Some(why)));
    }

    /// Replaces the snapshot of the flow's current state.
    pub(crate) fn set_snapshot(&mut self, flow: &Flow) {
        self.state = Some(FlowSnapshot::from_flow(flow));
    }

    pub(crate) const fn is_empty(&self) -> bool {
        // Every update is charged at least one byte, except an end.
        self.charge == 0 && self.end.is_none()
    }
}

/// The facts known when a flow begins.
pub(crate) struct FlowStart {
    pub(crate) born: Timestamp,
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) transport: EntryKind,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    pub(crate) parent: Option<FlowId>,
    pub(crate) request: Option<RequestStart>,
}

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

/// The facts that may change while a flow runs.
pub(crate) struct FlowSnapshot {
    pub(crate) client_tls: Option<Arc<ClientTls>>,
    pub(crate) client_http2: Option<ByteStr>,
    pub(crate) ja4h: Option<ByteStr>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) upstream: Option<UpstreamInfo>,
    pub(crate) timings: FlowTimings,
    pub(crate) tags: Vec<ByteStr>,
    pub(crate) passthrough: Option<Passthrough>,
    pub(crate) attempts: Vec<Attempt>,
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
            attempts: flow.extension::<Attempts>().map(Attempts::list).unwrap_or_default(),
        }
    }
}

pub(crate) struct FlowEnd {
    pub(crate) state: FlowState,
    pub(crate) tunnel: Option<ByteCounts>,
    pub(crate) error: Option<ErrorRecord>,
    /// Microseconds after the start, for a flow without complete timings; `None` for the present time.
    pub(crate) after: Option<u64>,
}

impl FlowEnd {
    pub(crate) const fn cut(tunnel: Option<ByteCounts>) -> Self {
        Self { state: FlowState::Cut, tunnel, error: None, after: None }
    }

    pub(crate) fn from_flow(flow: &Flow, outcome: &FlowOutcome<'_>, is_tunnel: bool) -> Self {
        let (state, tunnel, error) = match outcome {
            FlowOutcome::Complete => (FlowState::Complete, None, None),
            FlowOutcome::Tunnelled(bytes) => (FlowState::Complete, Some(*bytes), None),
            FlowOutcome::Failed(e, bytes) => {
                // Bytes carried are recorded for tunnels, and for other flows only if there were any.
                let carried = (is_tunnel || *bytes != ByteCounts::default()).then_some(*bytes);
                (FlowState::Failed, carried, Some(ErrorRecord::from_error(e)))
            }
        };
        Self { state, tunnel, error, after: Some(flow.clock.micros()) }
    }
}

impl ErrorRecord {
    /// Converts an error to its recorded form.
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
