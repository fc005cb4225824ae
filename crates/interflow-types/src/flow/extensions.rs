//! Extensions of a flow by which a feature changes what the request pipeline does, without the pipeline naming the
//! feature.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::{Authority, BoxFuture, Error, Flow, Headers, Response, ResponseHead};

/// Renders the error response of this flow instead of the generic one, because clients of an API expect its own error
/// format. Clients that accept HTML get the generic page.
#[derive(Clone, Copy, Default)]
pub struct ErrorRenderer(pub Option<RenderError>);

/// Renders the response for the error that ended a flow. A function without state: what it needs is on the flow.
pub type RenderError = fn(&Flow, &Error) -> Response;

/// The name under which usage limits count this request when it is not an LLM request.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageLabel(pub Option<&'static str>);

/// Header fields of the response for the client, from whichever part of the gateway it comes: an origin, a stage, an error.
#[derive(Clone, Debug, Default)]
pub struct ClientResponseFields(pub Headers);

impl ClientResponseFields {
    /// Adds those of a flow to the head of its response.
    pub fn put(flow: &Flow, headers: &mut Headers) {
        for (name, value) in flow.extension::<Self>().into_iter().flat_map(|own| own.0.iter()) {
            headers.append_unchecked(name, value);
        }
    }
}

/// Asks that the exchange with the origin goes on if its client leaves, at most for this time: its response is then read to
/// its end and discarded. Set before the request is sent.
#[derive(Clone, Debug, Default)]
pub struct OutlivesClient {
    pub limit: Option<Duration>,
    /// Whether the client left.
    pub is_abandoned: Arc<AtomicBool>,
}

/// Marks a flow that must not be recorded, neither its content nor its metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotRecorded;

/// The names that Interflow's DNS listener resolved to the flow's address, latest first.
#[derive(Clone, Debug, Default)]
pub struct ResolvedNames(pub Vec<Arc<str>>);

/// The origin of the tunnel, for a request to a proxy at its end: the flow's own authority is the host that the proxy is
/// asked for.
#[derive(Clone, Debug, Default)]
pub struct TunnelOrigin(pub Option<Authority>);

/// Where the flow's connection goes, if nothing proves that the authority is there: the address of a redirected client
/// that names its host only in `Host`, or the host of a tunnel whose TLS names another.
#[derive(Clone, Debug, Default)]
pub struct DialedAuthority(pub Option<Authority>);

/// Edits response heads that no stage sees: 1xx heads, and the head that accepts an upgrade.
#[derive(Clone, Default)]
pub struct ResponseHeadFilter(pub Option<HeadFilterFn>);

pub type HeadFilterFn = Arc<dyn Fn(&mut ResponseHead) + Send + Sync>;

impl ResponseHeadFilter {
    /// The flow's filter; a no-op if no stage set one.
    pub fn for_flow(flow: &Flow) -> Self {
        flow.extension::<Self>().cloned().unwrap_or_default()
    }

    /// Edits the head in place; without a filter it stays as it is.
    pub fn apply(&self, head: &mut ResponseHead) {
        if let Some(filter) = &self.0 {
            filter(head);
        }
    }
}

/// Handling of the messages of a WebSocket or a gRPC call, beyond what each stage decides about each message.
#[derive(Debug, Default)]
pub struct MessagePolicy {
    /// Messages to send before the current one, in its direction. Taken after each message. Ignored for gRPC.
    pub before: Vec<Bytes>,
    /// Fail closed: a message that exceeds the inspection limit or cannot be decoded ends the connection, or the gRPC
    /// call. For gRPC it has to be set before the body of the direction is sent.
    pub strict: bool,
}

impl MessagePolicy {
    /// Takes the messages to send before the current one.
    pub fn take_before(flow: &mut Flow) -> Vec<Bytes> {
        if flow.extension::<Self>().is_none_or(|p| p.before.is_empty()) {
            return Vec::new();
        }
        std::mem::take(&mut flow.extension_mut::<Self>().before)
    }

    pub fn is_strict(flow: &Flow) -> bool {
        flow.extension::<Self>().is_some_and(|p| p.strict)
    }
}

/// The part of a short request body that has arrived while the request waits for a person's decision.
#[derive(Clone, Debug, Default)]
pub struct BodyPreview(Arc<Mutex<PreviewState>>);

#[derive(Debug, Default)]
struct PreviewState {
    bytes: BytesMut,
    complete: bool,
    replacement: Option<Bytes>,
}

impl BodyPreview {
    /// Adds bytes that have arrived, in their order.
    pub fn append(&self, data: &[u8]) {
        self.state().bytes.extend_from_slice(data);
    }

    pub fn finish(&self) {
        self.state().complete = true;
    }

    /// The complete body; `None` while it is still arriving.
    pub fn complete(&self) -> Option<Vec<u8>> {
        let state = self.state();
        state.complete.then(|| state.bytes.to_vec())
    }

    /// Replaces the body to send. Ignored unless the body is complete.
    pub fn replace(&self, body: Bytes) {
        // A decision that was made on part of a body must not replace all of it.
        let mut state = self.state();
        if state.complete {
            state.replacement = Some(body);
        }
    }

    /// The body that would be sent now; `None` while it is still arriving.
    pub fn current(&self) -> Option<Vec<u8>> {
        let state = self.state();
        let bytes = state.replacement.as_deref().unwrap_or(&state.bytes);
        state.complete.then(|| bytes.to_vec())
    }

    /// The body as received and its replacement, if there is one.
    pub fn replacement(&self) -> Option<(Bytes, Bytes)> {
        let state = self.state();
        // An edit that changes nothing is none: the request keeps its framing and digests.
        let replacement = state.replacement.clone().filter(|r| r[..] != state.bytes[..])?;
        Some((Bytes::copy_from_slice(&state.bytes), replacement))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, PreviewState> {
        // A panic of another holder leaves whole bytes behind: each operation is a single assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work that a stage runs concurrently with a flow and whose result belongs on the flow. Queue it with [`Flow::defer`].
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use interflow_types::{BoxFuture, DeferredWork, Flow};
///
/// /// Set by another thread once a scan of the request has found something.
/// #[derive(Default)]
/// struct Scan {
///     found: AtomicBool,
/// }
///
/// impl DeferredWork for Scan {
///     fn join<'a>(self: Arc<Self>, flow: &'a mut Flow) -> BoxFuture<'a, ()> {
///         Box::pin(async move { drop(self.finish(flow)) })
///     }
///
///     fn finish(self: Arc<Self>, flow: &mut Flow) -> bool {
///         if self.found.load(Ordering::Relaxed) {
///             flow.tag("flagged");
///         }
///         true
///     }
/// }
/// ```
pub trait DeferredWork: Send + Sync {
    /// Waits for the result and stores it on the flow. Called before `UpstreamConnect`, if a stage registered for
    /// that phase, and before `ResponseHead`.
    fn join<'a>(self: Arc<Self>, flow: &'a mut Flow) -> BoxFuture<'a, ()>;

    /// Called when the flow ends: stores the result, or gives the work up if nobody needs it any more. Must not block:
    /// returns false if the result is still to come, and then the flow is recorded only after a [`join`](Self::join).
    fn finish(self: Arc<Self>, flow: &mut Flow) -> bool;
}

/// Kept as an extension, so that a flow without deferred work pays nothing.
#[derive(Default)]
struct DeferredQueue(Vec<Arc<dyn DeferredWork>>);

impl Flow {
    /// Queues work for the request pipeline to join.
    pub fn defer(&mut self, work: Arc<dyn DeferredWork>) {
        self.extension_mut::<DeferredQueue>().0.push(work);
    }

    /// Takes the queued work; allocates nothing if there is none.
    pub fn take_deferred(&mut self) -> Vec<Arc<dyn DeferredWork>> {
        if self.extension::<DeferredQueue>().is_none_or(|q| q.0.is_empty()) {
            return Vec::new();
        }
        std::mem::take(&mut self.extension_mut::<DeferredQueue>().0)
    }
}
