//! The [`Stage`] trait: filters that the request pipeline calls at the phases they registered interest in.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::messages::http_client::BoxFuture;
use crate::{
    Authority, Body, EntryKind, Error, Flow, HttpVersion, RequestHead, Response, ResponseHead, Result, StreamMessage,
};

/// The points of the request pipeline at which stages are called, in the order in which they are reached.
///
/// Which of them a flow reaches depends on its kind: a plain-text request has no `ClientHello`; a tunnel passed
/// through without inspection has only `Authority`, `ClientHello`, `UpstreamConnect` and `Done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The user and the origin's authority are known, before any TLS of a tunnel is read ([`Stage::authority`]).
    Authority,
    /// The ClientHello of a tunnel was read ([`Stage::client_hello`]).
    ClientHello,
    /// The request head was parsed ([`Stage::request_head`]).
    RequestHead,
    /// The request body can be inspected or replaced ([`Stage::request_body`]).
    RequestBody,
    /// An upstream connection is about to be opened or taken from the pool ([`Stage::upstream_connect`]).
    UpstreamConnect,
    /// The request was recorded and is about to be sent ([`Stage::before_send`]).
    BeforeSend,
    /// The response head was received ([`Stage::response_head`]).
    ResponseHead,
    /// The response body can be inspected or replaced ([`Stage::response_body`]).
    ResponseBody,
    /// A WebSocket or gRPC message was received ([`Stage::message`]).
    Message,
    /// The flow has ended ([`Stage::finish`], [`Stage::done`]).
    Done,
}

/// A set of phases, as returned by [`Stage::interest`]: one bit each, so that a plan can test it at no cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseSet(u16);

impl PhaseSet {
    /// No phase: the stage is left out of the plan and costs its requests nothing.
    pub const NONE: Self = Self(0);

    pub const fn from_phase(phase: Phase) -> Self {
        Self(1 << phase as u16)
    }

    pub const fn with(self, phase: Phase) -> Self {
        Self(self.0 | 1 << phase as u16)
    }

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn contains(self, phase: Phase) -> bool {
        self.0 & 1 << phase as u16 != 0
    }
}

/// The facts shared by all requests of one client to one authority. Stages state their interest per scope, and the
/// result is cached as a plan.
#[derive(Clone, Debug)]
pub struct PlanScope<'a> {
    /// The listener's name: `proxy`, `gateway`, or the name from the configuration.
    pub listener: &'a str,
    /// The authenticated user; `None` if the client did not authenticate.
    pub user: Option<&'a str>,
    pub authority: &'a Authority,
    /// How the client reached the proxy.
    pub transport: EntryKind,
    /// Whether requests can be inspected: `false` for a tunnel whose TLS is not decrypted.
    pub intercepted: bool,
}

/// How one request reaches its origin, as far as a stage may override it at [`Phase::UpstreamConnect`]. Fields left
/// `None` keep the configured behaviour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamOverrides {
    /// The HTTP version for the origin; HTTP/1.0 is treated as HTTP/1.1. Ignored for tunnels.
    pub version: Option<HttpVersion>,
    /// Upstream proxies as URLs, in connection order: `http://user:password@host:port`, `socks5://…`. An empty list
    /// connects directly to the origin.
    pub via: Option<Vec<String>>,
    /// The address to connect to instead of the authority. Certificates are still verified against the authority's
    /// name.
    pub dial: Option<Authority>,
    /// Skip verification of the origin's certificate.
    pub danger_skip_verify: bool,
    /// The client certificate to present to the origin.
    pub client_certificate: Option<CertificateFiles>,
    /// Use upstream connections that serve this client connection alone.
    pub own_connection: bool,
    /// The only TLS version to offer the origin.
    pub tls_version: Option<TlsVersion>,
    /// The DNS over HTTPS server (RFC 8484) that resolves the origin's name: a URL, or the name of a well-known
    /// server.
    pub dns_over_https: Option<String>,
    /// The TLS and HTTP/2 fingerprint to present to the origin: `mirror` (the client's), the name of a profile, or
    /// `ja3:` and a JA3 string.
    pub fingerprint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// Messages that a stage injects at [`Phase::Message`]: an extension of the flow. They are sent after the current
/// message, whether that one is forwarded or dropped, and have its [`MessageKind`](crate::MessageKind).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InjectedMessages {
    /// Messages sent in the direction of the current message.
    pub forward: Vec<Bytes>,
    /// Messages sent back to the peer that sent the current one. Ignored for gRPC, where the response is a separate
    /// body.
    pub reply: Vec<Bytes>,
}

/// How Interflow's TLS server presents itself to an intercepted client: an extension that a stage sets on the flow at
/// [`Phase::Authority`] or [`Phase::ClientHello`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsOverride {
    /// Offer only HTTP/1.1 by ALPN.
    pub http1: bool,
    /// The certificate to present instead of a leaf issued by Interflow's CA, for clients that trust another issuer.
    pub certificate: Option<CertificateFiles>,
}

/// Files with a certificate chain and its private key, supplied by the operator.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum CertificateFiles {
    /// A certificate chain (leaf first) and a private key, both in PEM.
    Pem { chain: PathBuf, key: PathBuf },
    /// Chain and key in one PKCS#12 file (RFC 7292).
    Pkcs12 {
        file: PathBuf,
        /// The password as configured: literal, or a reference (`env:NAME`, `file:PATH`) that is not resolved yet.
        password: String,
    },
}

impl CertificateFiles {
    /// Builds from the configuration's three options. Without a key, the certificate file is read as PKCS#12.
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
            // The password is left out: `Debug` text ends up in logs.
        }
    }
}

/// What happens to a tunnel after [`Stage::authority`] or [`Stage::client_hello`]. There is no request yet that could
/// be answered. For a request outside a tunnel, `Intercept` and `Tunnel` change nothing: it has no TLS to decide about.
#[derive(Debug)]
pub enum TunnelVerdict {
    /// Proceed to the next stage; the configuration decides if no stage does.
    Continue,
    /// Decrypt the tunnel's TLS.
    Intercept,
    /// Pass the tunnel's bytes through without inspection.
    Tunnel,
    /// Refuse the tunnel. The proxy's error table maps the error's [`ErrorKind`](crate::ErrorKind) to the reply.
    Deny(Error),
}

/// What happens to a request or a response after a phase that has no body to return: [`Stage::request_head`],
/// [`Stage::upstream_connect`] and [`Stage::response_head`].
#[derive(Debug)]
pub enum RequestVerdict {
    /// Proceed to the next stage.
    Continue,
    /// Respond with this. Before the request is sent, nothing goes upstream; at [`Phase::ResponseHead`] it replaces
    /// the upstream's response.
    Answer(Box<Response>),
    /// End the flow with an error. The proxy's error table maps its [`ErrorKind`](crate::ErrorKind) to the response.
    Deny(Error),
}

impl RequestVerdict {
    /// Splits the verdict into going on and ending, so that `?` ends.
    ///
    /// # Errors
    /// The response or the error that ends the request.
    pub fn into_result(self) -> Result<(), EarlyExit> {
        match self {
            Self::Continue => Ok(()),
            Self::Answer(response) => Err(EarlyExit::Answer(response)),
            Self::Deny(error) => Err(EarlyExit::Deny(error)),
        }
    }
}

/// Why a request is not sent, or its response not delivered: the error type of the phases that return a body.
#[derive(Debug)]
pub enum EarlyExit {
    /// As [`RequestVerdict::Answer`].
    Answer(Box<Response>),
    /// As [`RequestVerdict::Deny`].
    Deny(Error),
}

impl From<EarlyExit> for RequestVerdict {
    fn from(exit: EarlyExit) -> Self {
        match exit {
            EarlyExit::Answer(response) => Self::Answer(response),
            EarlyExit::Deny(error) => Self::Deny(error),
        }
    }
}

impl From<Result<(), EarlyExit>> for RequestVerdict {
    fn from(result: Result<(), EarlyExit>) -> Self {
        result.map_or_else(Self::from, |()| Self::Continue)
    }
}

impl From<Error> for EarlyExit {
    fn from(error: Error) -> Self {
        Self::Deny(error)
    }
}

/// What happens to a message after [`Stage::message`].
#[derive(Debug)]
pub enum MessageVerdict {
    /// Proceed to the next stage.
    Continue,
    /// Discard this message; the stream goes on.
    Drop,
    /// End the stream with an error.
    Deny(Error),
}

/// A result that is available now, or a future of it. The common case, `Ready`, allocates nothing.
pub enum MaybeFuture<'a, T> {
    Ready(T),
    Pending(BoxFuture<'a, T>),
}

/// What a stage makes of a body.
pub type BodyFuture<'a> = MaybeFuture<'a, Result<Body, EarlyExit>>;

impl<'a, T> MaybeFuture<'a, T> {
    pub fn pending(f: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Pending(Box::pin(f))
    }

    pub async fn resolve(self) -> T {
        match self {
            Self::Ready(t) => t,
            Self::Pending(f) => f.await,
        }
    }
}

/// A filter in the request pipeline. Each method belongs to one [`Phase`] and is called only if
/// [`interest`](Self::interest) included that phase for the flow's scope; the default implementations change nothing.
///
/// Stages run in a fixed order, one after another. A stage must be cancel-safe: if the client disconnects, the
/// pending future is dropped. Per-flow state belongs in the flow's [extensions](Flow::extension_mut), because one
/// stage serves many flows at the same time.
///
/// ```
/// use interflow_types::{
///     ErrorKind, Error, Flow, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead, RequestVerdict, Stage,
/// };
///
/// /// Allows only GET and HEAD.
/// struct ReadOnly;
///
/// impl Stage for ReadOnly {
///     fn name(&self) -> &'static str {
///         "read-only"
///     }
///
///     fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
///         if scope.intercepted { PhaseSet::from_phase(Phase::RequestHead) } else { PhaseSet::NONE }
///     }
///
///     fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
///         if matches!(head.method.as_str(), "GET" | "HEAD") {
///             return MaybeFuture::Ready(RequestVerdict::Continue);
///         }
///         flow.tag("read-only");
///         let error = Error::new(ErrorKind::Denied, format!("{} is not allowed here", head.method));
///         MaybeFuture::Ready(RequestVerdict::Deny(error))
///     }
/// }
/// ```
pub trait Stage: Send + Sync {
    /// The stage's name in logs, metrics and `explain`.
    fn name(&self) -> &'static str;

    /// The phases at which this stage is called for flows of this scope. Called once per plan, not per request.
    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet;

    /// Returns a variant of this stage for one scope, which the plan stores and calls instead of `self`. Use it to
    /// precompute what is the same for all requests of the plan.
    fn specialize(&self, _scope: &PlanScope<'_>) -> Option<Arc<dyn Stage>> {
        None
    }

    /// Whether traffic of this scope must not bypass inspection. If so, a client that rejects Interflow's certificate
    /// (pinning) is refused instead of being passed through.
    fn needs_inspection(&self, _scope: &PlanScope<'_>) -> bool {
        false
    }

    /// The user and the authority are known; nothing was sent to the origin yet.
    fn authority<'a>(&'a self, _flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        MaybeFuture::Ready(TunnelVerdict::Continue)
    }

    /// The ClientHello of a tunnel was read; see `flow.client_tls`. Called a second time, with the SNI as authority,
    /// if the tunnel was requested under another name.
    fn client_hello<'a>(&'a self, _flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        MaybeFuture::Ready(TunnelVerdict::Continue)
    }

    /// The stage may edit the request head, respond, or deny.
    fn request_head<'a>(&'a self, _flow: &'a mut Flow, _head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        MaybeFuture::Ready(RequestVerdict::Continue)
    }

    /// The stage may replace or wrap the request body, and still edit the head. The codec derives the framing
    /// (`Content-Length`, chunked) from the returned body. `Err` responds or denies instead.
    fn request_body<'a>(&'a self, _flow: &'a mut Flow, _head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        MaybeFuture::Ready(Ok(body))
    }

    /// An upstream connection is about to be opened or taken from the pool; `head` is `None` for a tunnel. The stage
    /// may override the route, respond, or deny.
    fn upstream_connect<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _head: Option<&'a RequestHead>,
        _overrides: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        MaybeFuture::Ready(RequestVerdict::Continue)
    }

    /// The request was recorded and is about to be sent, so what is injected here (secrets) is not recorded and not
    /// seen by other stages. Not called for tunnels and [local handlers](crate::LocalHandler). The codec derives the
    /// framing from the returned body.
    fn before_send<'a>(&'a self, _flow: &'a mut Flow, _head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        MaybeFuture::Ready(Ok(body))
    }

    /// The stage may edit the response head, or replace the whole response.
    fn response_head<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _request: &'a RequestHead,
        _head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        MaybeFuture::Ready(RequestVerdict::Continue)
    }

    /// The stage may replace or wrap the response body. The head is not sent to the client until this returns.
    fn response_body<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _request: &'a RequestHead,
        _head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        MaybeFuture::Ready(Ok(body))
    }

    /// Whether this stage changes the flow's response for the client alone: it restores secrets, or leaves out what the
    /// client did not ask for. The recorder then receives the response as it was before this stage. Called at [`Phase::ResponseBody`], and for each message of a WebSocket.
    /// For gRPC, the answer at [`Phase::ResponseBody`] holds for all messages of the response: if it is true, the recorder
    /// receives them as the origin sent them.
    fn restores_secrets(&self, _flow: &Flow) -> bool {
        false
    }

    /// Whether this stage inspects the messages of this flow's WebSocket. Called once, after the upgrade. If no stage
    /// does, the proxy copies the bytes without parsing frames.
    fn wants_messages(&self, _flow: &Flow) -> bool {
        true
    }

    /// The stage may edit, drop or deny one WebSocket or gRPC message. Messages of a flow's two directions are never
    /// passed concurrently. While a stage processes the response's head or body, gRPC messages of the request wait.
    fn message<'a>(&'a self, _flow: &'a mut Flow, _message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        MaybeFuture::Ready(MessageVerdict::Continue)
    }

    /// A WebSocket or gRPC message cannot be read whole, so that it is not passed to [`message`](Self::message): it is
    /// too large, or cannot be decoded. The payload is empty, and a change of it has no effect. An error ends the
    /// connection or the call; otherwise the message is forwarded unread.
    fn unreadable_message<'a>(
        &'a self,
        _flow: &'a mut Flow,
        _message: &'a mut StreamMessage,
        _why: &'a Error,
    ) -> MaybeFuture<'a, Result<()>> {
        MaybeFuture::Ready(Ok(()))
    }

    /// Whether this stage is also called for messages that other stages inject towards the origin, wherever it is in
    /// the order. For stages that must inspect everything that is sent.
    fn inspects_injected_messages(&self) -> bool {
        false
    }

    /// A WebSocket message was recorded and is about to be sent, so what is injected here is not recorded. Requires
    /// [`Phase::Message`]. Not called for gRPC, whose messages are part of a body: what is injected into that at
    /// [`Phase::BeforeSend`] is not recorded.
    fn before_message_send(&self, _flow: &mut Flow, _message: &mut StreamMessage) {}

    /// Whether `request_head` may wait for a person's decision. The pipeline then watches the client's connection, so
    /// that a disconnect withdraws the request, and reads a short body ahead into a
    /// [`BodyPreview`](crate::BodyPreview).
    fn may_wait_for_human(&self) -> bool {
        false
    }

    /// Whether the unedited request and response must not be recorded, because they contain what this stage removes.
    /// Requires [`Phase::RequestBody`].
    fn withholds_originals(&self, _flow: &Flow) -> bool {
        false
    }

    /// The flow has ended and is about to be recorded as complete: the last chance to change it. Called at
    /// [`Phase::Done`], before [`done`](Self::done).
    fn finish(&self, _flow: &mut Flow) {}

    /// The flow has ended and was recorded. For notifications: nothing can be changed any more.
    fn done(&self, _flow: &Flow) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_set_contains_the_inserted_phases() {
        let i = PhaseSet::from_phase(Phase::RequestHead).with(Phase::Done);
        assert!(i.contains(Phase::RequestHead) && i.contains(Phase::Done) && !i.contains(Phase::RequestBody));
        assert_eq!(i.union(PhaseSet::NONE), i);
    }
}
