//! Stages: rooms beside the corridor that are shown a flow at the phases they asked for.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::http_client::BoxFuture;
use crate::{
    Authority, Body, ClientInfo, EntryKind, Error, Flow, HttpVersion, RequestHead, Response, ResponseHead, Result,
    StreamMessage,
};

/// The moments of a flow's life, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// A client connected.
    Accepted,
    /// User and authority are known.
    Authority,
    /// The client's TLS hello is known.
    ClientHello,
    /// The request's head is known.
    RequestHead,
    /// The request's body may be looked into.
    RequestBody,
    /// The upstream connection is about to be made or taken from the pool.
    UpstreamConnect,
    /// The request leaves, after it was recorded.
    BeforeSend,
    /// The response's head is known.
    ResponseHead,
    /// The response's body may be looked into.
    ResponseBody,
    /// A WebSocket or gRPC message passes.
    Message,
    /// Everything is known.
    Done,
}

/// A set of phases.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PhaseSet(u16);

impl PhaseSet {
    /// No phase: the stage costs this plan nothing.
    pub const NONE: Self = Self(0);

    /// This one phase.
    pub const fn from_phase(phase: Phase) -> Self {
        Self(1 << phase as u16)
    }

    /// These and that one.
    #[must_use]
    pub const fn with(self, phase: Phase) -> Self {
        Self(self.0 | 1 << phase as u16)
    }

    /// The phases of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the phase is in it.
    pub const fn contains(self, phase: Phase) -> bool {
        self.0 & 1 << phase as u16 != 0
    }
}

impl fmt::Debug for PhaseSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Phase::*;
        let all = [
            Accepted,
            Authority,
            ClientHello,
            RequestHead,
            RequestBody,
            UpstreamConnect,
            BeforeSend,
            ResponseHead,
            ResponseBody,
            Message,
            Done,
        ];
        f.debug_set().entries(all.into_iter().filter(|p| self.contains(*p))).finish()
    }
}

/// What a plan is made for: the facts that hold for every request of a client to one authority.
#[derive(Clone, Debug)]
pub struct PlanScope<'a> {
    /// The listener's name: `proxy`, `gateway`, or the name from the config.
    pub listener: &'a str,
    /// The authenticated user.
    pub user: Option<&'a str>,
    /// The origin.
    pub authority: &'a Authority,
    /// How the client asked for it.
    pub transport: EntryKind,
    /// Whether requests inside can be seen: false for a tunnel that passes unseen.
    pub intercepted: bool,
}

/// The way of a request to its origin, as far as a stage may choose it at `Dial`. What is `None` stays as the
/// configuration has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamOverrides {
    /// The HTTP version to speak with the origin; HTTP/1.0 counts as HTTP/1.1. Of no use to a tunnel.
    pub version: Option<HttpVersion>,
    /// Upstream proxies in the order they are passed, as URLs: `http://user:password@host:port`, `socks5://…`; an empty
    /// list goes straight to the origin.
    pub via: Option<Vec<String>>,
    /// Where to connect in place of the authority; certificates are still checked for the authority's name.
    pub dial: Option<Authority>,
    /// Accept any certificate of the origin.
    pub danger_skip_verify: bool,
    /// Show the origin this client certificate.
    pub client_certificate: Option<CertificateFiles>,
    /// Share upstream connections with no flow of another number.
    pub partition: Option<u64>,
    /// The only version of TLS to speak with the origin.
    pub tls_version: Option<TlsVersion>,
    /// The server that resolves the origin's name over HTTPS (RFC 8484): its URL, or the name of a well-known one.
    pub dns_over_https: Option<String>,
    /// Greet the origin as another client does: `mirror` (as this one), the name of a profile, or `ja3:` and a JA3 text.
    pub fingerprint: Option<String>,
}

/// A version of TLS that may be demanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Messages that a stage puts in beside the one it is shown: a note that it leaves on the flow at `StreamMessage`. They go out
/// whether that one passes or is dropped, behind it, and are of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InjectedMessages {
    /// To where the message goes.
    pub forward: Vec<Bytes>,
    /// To where it came from. Of no use to gRPC, whose answers have a body of their own.
    pub reply: Vec<Bytes>,
}

/// What a client shall be shown when its TLS is looked into: a note that a stage leaves on the flow at `Authority` or
/// `ClientHello`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsOverride {
    /// Offer HTTP/1.1 and nothing else.
    pub http1: bool,
    /// Show this certificate in place of a leaf of our own.
    pub certificate: Option<CertificateFiles>,
}

/// A certificate of the owner's with its key, in files.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum CertificateFiles {
    /// The chain, leaf first, and the key, both in PEM.
    Pem {
        /// The chain.
        chain: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// Both in one file of PKCS#12 (RFC 7292).
    Pkcs12 {
        /// The file.
        file: PathBuf,
        /// Its password as the owner wrote it; `env:NAME` and `file:PATH` say where it is.
        password: String,
    },
}

impl CertificateFiles {
    /// From what an owner writes: without a key the certificate's file is one of PKCS#12.
    pub fn new(certificate: PathBuf, key: Option<PathBuf>, password: Option<String>) -> Self {
        match key {
            Some(key) => Self::Pem { chain: certificate, key },
            None => Self::Pkcs12 { file: certificate, password: password.unwrap_or_default() },
        }
    }
}

impl fmt::Debug for CertificateFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pem { chain, key } => f.debug_struct("Pem").field("chain", chain).field("key", key).finish(),
            Self::Pkcs12 { file, .. } => f.debug_struct("Pkcs12").field("file", file).finish_non_exhaustive(),
        }
    }
}

/// What a stage says of a flow. A stage that holds a flow until somebody decides simply answers later.
#[derive(Debug)]
pub enum StageVerdict {
    /// Go on.
    Continue,
    /// Here is the response; nothing is sent upstream (or, at `ResponseHead`, instead of the upstream's).
    Answer(Box<Response>),
    /// No, with the reason; the engine's error table makes the page.
    Deny(Error),
    /// At `Authority` and `ClientHello`: look inside the TLS.
    Intercept,
    /// At `Authority` and `ClientHello`: pass the bytes through unseen.
    Tunnel,
    /// At `StreamMessage`: swallow this message.
    Drop,
}

/// An answer that is there at once, or comes later. The usual case, at once, allocates nothing.
pub enum MaybeFuture<'a, T> {
    /// At once.
    Ready(T),
    /// Later.
    Pending(BoxFuture<'a, T>),
}

impl<'a, T> MaybeFuture<'a, T> {
    /// From a future.
    pub fn pending(f: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Pending(Box::pin(f))
    }

    /// Waits for the answer.
    pub async fn resolve(self) -> T {
        match self {
            Self::Ready(t) => t,
            Self::Pending(f) => f.await,
        }
    }
}

/// A room beside the corridor. Each method belongs to one phase and is called only for plans in which
/// [`interest`](Self::interest) named that phase; the defaults change nothing.
///
/// A method must be cancel-safe: when the client goes away its future is dropped.
pub trait Stage: Send + Sync {
    /// The name in logs, metrics and `explain`.
    fn name(&self) -> &'static str;

    /// Which phases this stage wants for flows of this scope. Asked once per plan, not per request.
    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet;

    /// A stage made for this scope alone, which the plan then keeps and calls in this one's place: what holds for all
    /// requests of a plan can be prepared in it once.
    fn specialize(&self, _scope: &PlanScope<'_>) -> Option<Arc<dyn Stage>> {
        None
    }

    /// Whether this stage protects what passes in this scope, so that nothing of it may pass uninspected because a client
    /// refuses our certificate: such a client is refused instead.
    fn needs_inspection(&self, _scope: &PlanScope<'_>) -> bool {
        false
    }

    /// Whether this stage wants to be asked about the connections of a listener, before anything but the client's
    /// address is known of them.
    fn watches(&self, _listener: &str) -> bool {
        false
    }

    /// A client connected. `Deny` closes the connection without a word; no other verdict means anything here.
    fn accepted<'a>(&'a self, _client: &'a ClientInfo) -> MaybeFuture<'a, StageVerdict> {
        MaybeFuture::Ready(StageVerdict::Continue)
    }

    /// User and authority are known, nothing is sent yet.
    fn authority<'a>(&'a self, _flow: &'a mut Flow) -> MaybeFuture<'a, StageVerdict> {
        MaybeFuture::Ready(StageVerdict::Continue)
    }

    /// The client's TLS hello is known (`flow.client_tls`).
    fn client_hello<'a>(&'a self, _flow: &'a mut Flow) -> MaybeFuture<'a, StageVerdict> {
        MaybeFuture::Ready(StageVerdict::Continue)
    }

    /// The request's head may be changed, answered or denied.
    fn request_head<'a>(&'a self, _flow: &'a mut Flow, _head: &'a mut RequestHead) -> MaybeFuture<'a, StageVerdict> {
        MaybeFuture::Ready(StageVerdict::Continue)
    }

    /// The request's body may be replaced by another, or wrapped; the head may still be changed. Framing follows the
    /// body that is given back. `Err(verdict)` answers or denies instead.
    fn request_body<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _head: &'a mut RequestHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, StageVerdict>> {
        MaybeFuture::Ready(Ok(body))
    }

    /// The upstream connection is about to be made, or taken from the pool; `head` is `None` for a tunnel. The stage
    /// may choose another way for it, answer in its place, or deny.
    fn upstream_connect<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _head: Option<&'a RequestHead>,
        _way: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, StageVerdict> {
        MaybeFuture::Ready(StageVerdict::Continue)
    }

    /// The request leaves for its origin, and was recorded: what is put in now is seen by nobody else. Not for tunnels, nor
    /// for requests that a room of ours answers. Framing follows the body that is given back.
    fn before_send<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _head: &'a mut RequestHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, StageVerdict>> {
        MaybeFuture::Ready(Ok(body))
    }

    /// The response's head may be changed or replaced.
    fn response_head<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _request: &'a RequestHead,
        _head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, StageVerdict> {
        MaybeFuture::Ready(StageVerdict::Continue)
    }

    /// The response's body may be replaced or wrapped; its head is not sent before this is answered.
    fn response_body<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _request: &'a RequestHead,
        _head: &'a mut ResponseHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, StageVerdict>> {
        MaybeFuture::Ready(Ok(body))
    }

    /// Whether what this stage makes of the flow's response is for the client alone: it puts originals back. The
    /// recorder is then shown the response as it is before this stage. Asked at `ResponseBody`.
    fn restores_secrets(&self, _flow: &Flow) -> bool {
        false
    }

    /// Whether this stage wants to be shown the messages of this flow's WebSocket, asked once, when the protocol has changed.
    /// Of a WebSocket whose messages nobody wants, every byte goes on as it comes.
    fn wants_messages(&self, _flow: &Flow) -> bool {
        true
    }

    /// One message of a WebSocket or a gRPC call may be changed, dropped or answered by denial. The two directions of
    /// a flow are never shown at once; while a stage works on the response's head or body, gRPC messages of the request
    /// wait.
    fn message<'a>(&'a self, _flow: &'a mut Flow, _message: &'a mut StreamMessage) -> MaybeFuture<'a, StageVerdict> {
        MaybeFuture::Ready(StageVerdict::Continue)
    }

    /// Whether this stage is shown, besides what the client says, the messages that another stage puts in on their way to the
    /// origin, wherever that one stands: it answers for all that leaves.
    fn inspects_injected_messages(&self) -> bool {
        false
    }

    /// A message of a WebSocket leaves, and was recorded: what is put in now is seen by nobody else. Asked of stages that want
    /// the phase `StreamMessage`.
    fn before_message_send(&self, _flow: &mut Flow, _message: &mut StreamMessage) {}

    /// Whether `request_head` may take as long as a person needs to decide. The client's connection is then watched meanwhile,
    /// so that a client which leaves withdraws its request, and a short body is read ahead as a [`BodyPreview`](crate::BodyPreview).
    fn may_wait_for_human(&self) -> bool {
        false
    }

    /// Whether the request and response as they came in must not be recorded beside the edited ones: they hold what this stage
    /// removes. Asked of stages that want `RequestBody`.
    fn withholds_originals(&self, _flow: &Flow) -> bool {
        false
    }

    /// The flow has ended and is about to be recorded as complete: the last chance to add to it. Called in the phase `Done`,
    /// before [`done`](Self::done).
    fn finish(&self, _flow: &mut Flow) {}

    /// Everything is over.
    fn done(&self, _flow: &Flow) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interest_holds_what_was_put_in() {
        let i = PhaseSet::from_phase(Phase::RequestHead).with(Phase::Done);
        assert!(i.contains(Phase::RequestHead) && i.contains(Phase::Done) && !i.contains(Phase::RequestBody));
        assert_eq!(format!("{i:?}"), "{RequestHead, Done}");
        assert_eq!(i.union(PhaseSet::NONE), i);
    }
}
