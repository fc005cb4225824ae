//! Extensions of a flow by which a feature changes what the request pipeline does, without the pipeline naming the feature.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::{BoxFuture, Error, Flow, Response, ResponseHead};

/// Renders the response for an error that ends this flow, in place of the generic one: clients of an API expect its own error
/// format. Clients that ask for HTML get the generic page.
#[derive(Clone, Copy, Default)]
pub struct ErrorRenderer(pub Option<RenderError>);

/// Makes the response for an error of a flow.
pub type RenderError = fn(&Flow, &Error) -> Response;

/// The name under which usage limits count this request when it is not an LLM request.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageLabel(pub Option<&'static str>);

/// The flow must not be recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotRecorded;

/// The names that clients were given the flow's address for by the DNS listener, the latest first.
#[derive(Clone, Debug, Default)]
pub struct ResolvedNames(pub Vec<Arc<str>>);

/// Changes response heads that no stage sees: 1xx heads, and the head that accepts an upgrade.
#[derive(Clone, Default)]
pub struct ResponseHeadFilter(pub Option<HeadFilterFn>);

/// Changes a response head in place.
pub type HeadFilterFn = Arc<dyn Fn(&mut ResponseHead) + Send + Sync>;

impl ResponseHeadFilter {
    /// The filter of this flow; one that changes nothing when no stage set any.
    pub fn for_flow(flow: &Flow) -> Self {
        flow.extension::<Self>().cloned().unwrap_or_default()
    }

    /// Applies it to a head.
    pub fn apply(&self, head: &mut ResponseHead) {
        if let Some(filter) = &self.0 {
            filter(head);
        }
    }
}

/// How messages of a WebSocket are treated beyond what each stage decides about each message.
#[derive(Debug, Default)]
pub struct MessagePolicy {
    /// Messages to send in the same direction as the current one, before it. Taken after each message.
    pub before: Vec<Bytes>,
    /// Fail closed: a message that is too large to be held, or that cannot be decoded, ends the connection.
    pub strict: bool,
}

impl MessagePolicy {
    /// Takes the messages that go before the current one.
    pub fn take_before(flow: &mut Flow) -> Vec<Bytes> {
        if flow.extension::<Self>().is_none_or(|p| p.before.is_empty()) {
            return Vec::new();
        }
        std::mem::take(&mut flow.extension_mut::<Self>().before)
    }

    /// Whether messages that cannot be inspected end the connection.
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
    /// What is to be sent in its place.
    replacement: Option<Bytes>,
}

impl BodyPreview {
    /// Appends what has arrived.
    pub fn append(&self, data: &[u8]) {
        self.state().bytes.extend_from_slice(data);
    }

    /// Marks the body as complete.
    pub fn finish(&self) {
        self.state().complete = true;
    }

    /// The whole body; `None` while it is still arriving.
    pub fn complete(&self) -> Option<Vec<u8>> {
        let state = self.state();
        state.complete.then(|| state.bytes.to_vec())
    }

    /// Whoever decides wants another body to be sent. Only one that is complete can be replaced.
    pub fn replace(&self, body: Bytes) {
        let mut state = self.state();
        if state.complete {
            state.replacement = Some(body);
        }
    }

    /// The body that is to be sent as things stand; `None` while it is still arriving.
    pub fn current(&self) -> Option<Vec<u8>> {
        let state = self.state();
        let bytes = state.replacement.as_deref().unwrap_or(&state.bytes);
        state.complete.then(|| bytes.to_vec())
    }

    /// The body as it came and the one to send in its place, where they differ.
    pub fn replacement(&self) -> Option<(Bytes, Bytes)> {
        let state = self.state();
        let replacement = state.replacement.clone().filter(|r| r[..] != state.bytes[..])?;
        Some((Bytes::copy_from_slice(&state.bytes), replacement))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, PreviewState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work that a stage runs beside a flow, whose result belongs on the flow.
pub trait DeferredWork: Send + Sync {
    /// Waits for the result and puts it on the flow. Called before `UpstreamConnect`, when a stage wants that phase, and before
    /// `ResponseHead`.
    fn join<'a>(self: Arc<Self>, flow: &'a mut Flow) -> BoxFuture<'a, ()>;

    /// The flow ends: puts the result on it without waiting for a peer.
    fn finish(self: Arc<Self>, flow: &mut Flow);
}

/// The deferred work of a flow.
#[derive(Default)]
struct DeferredQueue(Vec<Arc<dyn DeferredWork>>);

impl Flow {
    /// Leaves work to be joined by the request pipeline.
    pub fn defer(&mut self, work: Arc<dyn DeferredWork>) {
        self.extension_mut::<DeferredQueue>().0.push(work);
    }

    /// Takes the work that is to be joined; nothing is allocated when there is none.
    pub fn take_deferred(&mut self) -> Vec<Arc<dyn DeferredWork>> {
        if self.extension::<DeferredQueue>().is_none_or(|q| q.0.is_empty()) {
            return Vec::new();
        }
        std::mem::take(&mut self.extension_mut::<DeferredQueue>().0)
    }
}
