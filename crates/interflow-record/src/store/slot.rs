//! What a running flow has told and the writer has not taken yet.

use bytes::Bytes;
use interflow_flow::{
    Authority, ByteStr, ClientInfo, ClientTls, Flow, FlowId, Headers, Message, Method, Outcome, Passthrough,
    RequestHead, ResponseHead, Scheme, Timestamp, Timings, Transport, TunnelBytes, UpstreamInfo, Url, Version,
};
use parking_lot::Mutex;
use std::sync::Arc;

use crate::model::{ErrorRow, FlowState, Missing};

/// A flow that is being kept. Shared by its capture and the writer.
pub(crate) struct Slot {
    pub(crate) id: FlowId,
    pub(crate) news: Mutex<News>,
}

/// What has come since the writer last looked, and what must be known to go on. All in one piece with its slot: parts of
/// their own would be made by one thread and given back by another.
#[derive(Default)]
pub(crate) struct News {
    /// It stands in the queue, or the writer has it in hand.
    pub(crate) queued: bool,
    /// Bytes it was charged for.
    pub(crate) charge: usize,
    pub(crate) begin: Option<Begin>,
    pub(crate) data: [Vec<Bytes>; 2],
    pub(crate) trailers: [Option<Headers>; 2],
    pub(crate) interim: Vec<ResponseHead>,
    pub(crate) response: Option<ResponseHead>,
    pub(crate) state: Option<Snapshot>,
    /// Messages, and how long each was as it passed.
    pub(crate) messages: Vec<(Message, u64)>,
    pub(crate) end: Option<End>,
    /// Bytes that passed so far.
    pub(crate) sizes: [u64; 2],
    /// Why no more bytes are kept.
    pub(crate) missing: [Option<Missing>; 2],
    /// The bytes that are kept are hashed.
    pub(crate) hashed: [bool; 2],
    /// What came in, of a flow that was edited.
    pub(crate) original: Option<Box<OriginalNews>>,
}

/// News of what came in before it was edited.
#[derive(Default)]
pub(crate) struct OriginalNews {
    /// The request's URL and head, and whether its body was edited too.
    pub(crate) request: Option<(Url, RequestBegin, bool)>,
    /// The response's head, and whether its body was edited too.
    pub(crate) response: Option<(ResponseHead, bool)>,
    pub(crate) data: [Vec<Bytes>; 2],
    /// Bytes that passed so far.
    pub(crate) sizes: [u64; 2],
    /// Why no more bytes are kept.
    pub(crate) missing: [Option<Missing>; 2],
    /// The bytes that are kept are hashed.
    pub(crate) hashed: [bool; 2],
}

impl OriginalNews {
    /// What must stay when the news are taken.
    fn rest(&self) -> Box<Self> {
        Box::new(Self { sizes: self.sizes, missing: self.missing, hashed: self.hashed, ..Self::default() })
    }
}

impl News {
    /// Takes what is new; what must stay is copied.
    pub(crate) fn take(&mut self) -> Self {
        let original = self.original.as_ref().map(|o| o.rest());
        let rest = Self { sizes: self.sizes, missing: self.missing, hashed: self.hashed, original, ..Self::default() };
        std::mem::replace(self, rest)
    }

    /// Nothing more of any body is kept, and why.
    pub(crate) fn miss(&mut self, why: Missing) {
        let originals = self.original.as_mut().map(|o| &mut o.missing).into_iter().flatten();
        self.missing.iter_mut().chain(originals).for_each(|m| *m = m.or(Some(why)));
    }

    /// Notes how the flow stands now, in the place of what was noted before.
    pub(crate) fn see(&mut self, flow: &Flow) {
        self.state = Some(Snapshot::of(flow));
    }

    /// Whether there is anything for the writer.
    pub(crate) const fn is_empty(&self) -> bool {
        self.charge == 0 && self.end.is_none()
    }
}

/// What is known of a flow at its beginning.
pub(crate) struct Begin {
    pub(crate) born: Timestamp,
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) transport: Transport,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    pub(crate) parent: Option<FlowId>,
    pub(crate) request: Option<RequestBegin>,
}

/// A request's head as the recorder keeps it.
pub(crate) struct RequestBegin {
    pub(crate) method: Method,
    pub(crate) path: ByteStr,
    pub(crate) version: Version,
    pub(crate) headers: Headers,
    pub(crate) protocol: Option<ByteStr>,
}

impl RequestBegin {
    pub(crate) fn of(h: &RequestHead) -> Self {
        Self {
            method: h.method.clone(),
            path: h.url.path.clone(),
            version: h.version,
            headers: h.headers.clone(),
            protocol: h.protocol.clone(),
        }
    }
}

impl Begin {
    pub(crate) fn of(flow: &Flow, head: Option<&RequestHead>) -> Self {
        Self {
            born: flow.clock.born(),
            client: flow.client.clone(),
            transport: flow.transport,
            scheme: flow.scheme,
            authority: flow.authority.clone(),
            parent: flow.parent,
            request: head.map(RequestBegin::of),
        }
    }
}

/// What of a flow may change while it runs.
pub(crate) struct Snapshot {
    pub(crate) client_tls: Option<Arc<ClientTls>>,
    pub(crate) client_http2: Option<ByteStr>,
    pub(crate) ja4h: Option<ByteStr>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) upstream: Option<UpstreamInfo>,
    pub(crate) timings: Timings,
    pub(crate) tags: Vec<ByteStr>,
    pub(crate) passthrough: Option<Passthrough>,
}

impl Snapshot {
    pub(crate) fn of(flow: &Flow) -> Self {
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
pub(crate) struct End {
    pub(crate) state: FlowState,
    pub(crate) tunnel: Option<TunnelBytes>,
    pub(crate) error: Option<ErrorRow>,
    /// Microseconds after its start, for a flow whose timings do not say.
    pub(crate) after: u64,
}

impl End {
    pub(crate) fn of(flow: &Flow, outcome: &Outcome<'_>, is_tunnel: bool) -> Self {
        let (state, tunnel, error) = match outcome {
            Outcome::Complete => (FlowState::Complete, None, None),
            Outcome::Tunnelled(bytes) => (FlowState::Complete, Some(*bytes), None),
            Outcome::Failed(e, bytes) => {
                let carried = (is_tunnel || *bytes != TunnelBytes::default()).then_some(*bytes);
                (FlowState::Failed, carried, Some(ErrorRow::of(e)))
            }
        };
        Self { state, tunnel, error, after: flow.clock.micros() }
    }
}

impl ErrorRow {
    /// What a record keeps of an error.
    pub fn of(e: &interflow_flow::Error) -> Self {
        use interflow_flow::Blame;
        let blame = match e.blame() {
            Blame::Client => "client",
            Blame::Upstream => "upstream",
            Blame::Config => "config",
            Blame::Internal => "internal",
        };
        Self { kind: e.kind().as_str().into(), blame: blame.into(), message: e.to_string() }
    }
}
