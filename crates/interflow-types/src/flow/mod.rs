//! [`Flow`]: one unit of traffic with its client, upstream, timings and extensions.

pub mod attempts;
pub mod extensions;
pub mod id;
pub mod original;
pub mod recorder;
pub mod timings;

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::labelled_enum;
use crate::schema::JsonSchema;

use crate::{
    Authority, ByteStr, CertificateChain, ErrorKind, FlowClock, FlowId, FlowTimings, HttpVersion, Scheme, StatusCode,
    Timestamp,
};

labelled_enum! {
    // Stored by number and by name: neither may change.
    /// How a request or tunnel reached the proxy.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum EntryKind {
        /// A proxy request in absolute-form.
        Absolute "absolute",
        /// A CONNECT tunnel.
        Connect "connect",
        /// A SOCKS5 tunnel.
        Socks5 "socks5",
        /// A connection redirected by the firewall; the client is not aware of the proxy.
        Transparent "transparent",
        /// A connection from a client that takes the proxy for the origin; SNI or `Host` selects the origin.
        Reverse "reverse",
        /// A request in origin-form to a gateway route.
        Gateway "gateway",
        /// A request that Interflow itself sends: a replay, or a stage's own request.
        Internal "internal",
    }
}

labelled_enum! {
    /// Why the bytes of a tunnel were passed through without inspection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Passthrough {
        InterceptionOff "interception_off",
        /// Only listed hosts are intercepted, and this one is not listed.
        NotListed "not_listed",
        /// The configuration excludes the host from interception.
        Excluded "excluded",
        /// A rule or another stage decided it.
        Rule "rule",
        /// The client rejects Interflow's certificate for this host although it trusts the CA: certificate pinning.
        PinningBypass "pinning_bypass",
        /// The bytes are neither TLS nor HTTP.
        UnknownProtocol "unknown_protocol",
        /// The server spoke first, as in SMTP or SSH; HTTP and TLS servers wait for the client.
        ServerFirst "server_first",
        /// The decrypted content is not HTTP.
        NotHttp "not_http",
        /// The tunnel leads to another proxy, from which a further tunnel is requested.
        NestedProxy "nested_proxy",
    }
}

impl Passthrough {
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.as_str() == label)
    }

    /// A label of one or two words, for a table column.
    pub const fn short_label(self) -> &'static str {
        match self {
            Self::InterceptionOff => "off",
            Self::NotListed => "not listed",
            Self::Excluded => "excluded",
            Self::Rule => "rule",
            Self::PinningBypass => "pinned",
            Self::UnknownProtocol => "unknown",
            Self::ServerFirst => "server 1st",
            Self::NotHttp => "not HTTP",
            Self::NestedProxy => "proxy",
        }
    }

    /// An explanation, with what to do about it.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::InterceptionOff => "interception is off (intercept.mode)",
            Self::NotListed => "the host is not listed in intercept.hosts",
            Self::Excluded => "the host is excluded by intercept.exclude",
            Self::Rule => "a rule passes it through",
            Self::PinningBypass => {
                "the client pins: it refused our certificate for this host although it trusts the CA; \
                 `interflow ca retry` intercepts it again"
            }
            Self::UnknownProtocol => "the bytes are neither TLS nor HTTP",
            Self::ServerFirst => "the server spoke first",
            Self::NotHttp => "what is inside the TLS is not HTTP",
            Self::NestedProxy => "the tunnel leads to another proxy",
        }
    }
}

/// The client's side of a flow: its connection.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// The connection's number, unique within the process.
    pub connection: u64,
    /// The client's address; from the PROXY protocol if the sender was trusted.
    pub peer: SocketAddr,
    /// The local address that accepted it.
    pub local: SocketAddr,
    pub listener: Arc<str>,
    pub accepted: Timestamp,
    /// The client's process, if looked up and found.
    pub process: Option<Arc<ClientProcess>>,
    /// The name of its Docker or Podman container, if looked up and found.
    pub container: Option<ByteStr>,
}

/// The local process that opened a connection, by the operating system's socket table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientProcess {
    pub pid: u32,
    pub name: ByteStr,
}

/// The TLS session with the client: what it offered in its ClientHello, and what was negotiated.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// The server name requested (RFC 6066 3); absent for an IP address.
    pub sni: Option<ByteStr>,
    /// The negotiated protocol version, such as `TLSv1.3`.
    pub version: Option<&'static str>,
    pub cipher: Option<ByteStr>,
    pub alpn_offered: Vec<ByteStr>,
    pub alpn: Option<ByteStr>,
    /// The JA3 fingerprint of the ClientHello: an MD5 in hex.
    pub ja3: Option<ByteStr>,
    pub ja4: Option<ByteStr>,
    /// The name in the client's certificate, if it presented one signed by `gateway.client_ca`.
    pub client_name: Option<Arc<str>>,
    /// The chain that was presented to the client.
    pub certificates: Option<CertificateChain>,
}

/// The TLS session with the upstream, as negotiated.
#[derive(Clone, Debug, Default)]
pub struct UpstreamTls {
    pub version: Option<&'static str>,
    pub cipher: Option<ByteStr>,
    pub alpn: Option<ByteStr>,
    /// The origin's certificate failed verification and was accepted because the configuration or a rule says so.
    pub unverified: bool,
    /// What is wrong with such a certificate.
    pub problem: Option<ByteStr>,
    /// Whether the handshake resumed an earlier session.
    pub resumed: bool,
    /// The impersonated fingerprint, if any: `chrome`, or `mirror` with the parts that could not be mirrored.
    pub fingerprint: Option<ByteStr>,
    /// The chain that the origin presented; for a resumed session, in the handshake that began it.
    pub certificates: Option<CertificateChain>,
}

/// The upstream side of a flow: its connection to the origin.
#[derive(Clone, Debug)]
pub struct UpstreamInfo {
    /// The remote address: the origin's or the upstream proxy's.
    pub peer: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    /// The upstream proxy's name without credentials, if there is one.
    pub via: Option<Arc<str>>,
    pub version: HttpVersion,
    /// The connection's number, unique within the process.
    pub connection: u64,
    /// Whether the connection had carried a request before.
    pub reused: bool,
    pub tls: Option<Arc<UpstreamTls>>,
}

/// State that a stage attaches to a flow until it ends.
pub type Extension = Box<dyn Any + Send + Sync>;

/// One unit of traffic: an HTTP exchange, a WebSocket, or a raw tunnel.
///
/// A flow accumulates what is known as it passes through the request pipeline; fields that depend on a later
/// [`Phase`](crate::Phase) are `None` before it. Message heads and bodies are not part of it: they are passed to
/// stages as separate arguments, so that bodies can stream.
///
/// Stages attach their own state by type with [`extension_mut`](Self::extension_mut), as the `http` crate does:
///
/// ```
/// use interflow_types::Flow;
///
/// /// How many messages a stage has counted.
/// #[derive(Default)]
/// struct MessageCount(u64);
///
/// fn count(flow: &mut Flow) {
///     flow.extension_mut::<MessageCount>().0 += 1;
///     flow.tag("counted");
/// }
/// ```
#[derive(Debug)]
pub struct Flow {
    pub id: FlowId,
    pub clock: FlowClock,
    pub client: Arc<ClientInfo>,
    /// The client's TLS session, if it was terminated here.
    pub client_tls: Option<Arc<ClientTls>>,
    /// The client's HTTP/2 fingerprint in Akamai's format.
    pub client_http2: Option<ByteStr>,
    /// The JA4H fingerprint, computed from the request's head.
    pub ja4h: Option<ByteStr>,
    /// How the request or tunnel reached the proxy.
    pub transport: EntryKind,
    /// The user who authenticated at the proxy or gateway; `None` if nobody did.
    pub user: Option<Arc<str>>,
    /// The origin's scheme; a guess for a tunnel until its content is known.
    pub scheme: Scheme,
    pub authority: Authority,
    /// The upstream connection; `None` until there is one.
    pub upstream: Option<UpstreamInfo>,
    pub timings: FlowTimings,
    /// The flow that this one replays, if it is a replay.
    pub parent: Option<FlowId>,
    /// Whether the request has a body; known with its head.
    pub has_request_body: Option<bool>,
    /// Why the tunnel was passed through without inspection, if it was.
    pub passthrough: Option<Passthrough>,
    /// The status of the response sent to the client.
    pub status: Option<StatusCode>,
    /// The kind of the error that ended the flow; known at `Done`.
    pub error_kind: Option<ErrorKind>,
    /// Labels added by stages (`redacted`, a rule's own tags), shown and searchable in recordings.
    pub tags: Vec<ByteStr>,
    extensions: Vec<Extension>,
}

impl Flow {
    /// Whether the flow is a request that reached Interflow outside a tunnel. Nothing authorized it before its head
    /// was read, so [`Phase::Authority`](crate::Phase::Authority) belongs to the request itself. For requests in a
    /// tunnel, that phase ran for the tunnel.
    pub fn is_outside_tunnel(&self) -> bool {
        matches!(self.transport, EntryKind::Absolute | EntryKind::Gateway)
            // With TLS, a reverse-proxy connection is treated as a tunnel.
            || self.transport == EntryKind::Reverse && self.scheme == Scheme::Http
    }

    pub fn begin(client: Arc<ClientInfo>, transport: EntryKind, scheme: Scheme, authority: Authority) -> Self {
        Self::begin_at(FlowClock::start(), client, transport, scheme, authority)
    }

    /// A flow that began with this clock, whose start also becomes part of its id.
    pub fn begin_at(
        clock: FlowClock,
        client: Arc<ClientInfo>,
        transport: EntryKind,
        scheme: Scheme,
        authority: Authority,
    ) -> Self {
        Self {
            id: FlowId::new(clock.started_at()),
            clock,
            client,
            client_tls: None,
            client_http2: None,
            ja4h: None,
            transport,
            user: None,
            scheme,
            authority,
            upstream: None,
            timings: FlowTimings::default(),
            parent: None,
            passthrough: None,
            status: None,
            error_kind: None,
            has_request_body: None,
            tags: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// Adds a tag, unless the flow has it already.
    pub fn tag(&mut self, tag: impl Into<ByteStr>) {
        let tag = tag.into();
        // A flow has a handful of tags, so a scan is faster than a set.
        if !self.tags.contains(&tag) {
            self.tags.push(tag);
        }
    }

    /// The extension of this type, if it was set. Types identify extensions, so each feature should use a type of its
    /// own.
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.extensions.iter().find_map(|n| n.downcast_ref())
    }

    /// The extension of this type; inserts its default if it was not set.
    pub fn extension_mut<T: Any + Send + Sync + Default>(&mut self) -> &mut T {
        // Searched linearly: a flow has few extensions.
        let at = self.extensions.iter().position(|n| n.is::<T>()).unwrap_or_else(|| {
            self.extensions.push(Box::new(T::default()));
            self.extensions.len() - 1
        });
        self.extensions[at].downcast_mut().expect("the type at this index was checked")
    }

    /// A second handle to the same flow, for a phase that runs concurrently with others. It has a copy of what is
    /// known so far, and takes the extensions until [`merge`](Self::merge) returns them.
    pub fn fork(&mut self) -> Self {
        Self {
            id: self.id,
            clock: self.clock,
            client: Arc::clone(&self.client),
            client_tls: self.client_tls.clone(),
            client_http2: self.client_http2.clone(),
            ja4h: self.ja4h.clone(),
            transport: self.transport,
            user: self.user.clone(),
            scheme: self.scheme,
            authority: self.authority.clone(),
            upstream: self.upstream.clone(),
            timings: self.timings,
            parent: self.parent,
            passthrough: self.passthrough,
            status: self.status,
            error_kind: self.error_kind,
            has_request_body: self.has_request_body,
            tags: self.tags.clone(),
            extensions: std::mem::take(&mut self.extensions),
        }
    }

    /// Takes back the extensions of a [fork](Self::fork), and the tags added to it.
    pub fn merge(&mut self, fork: &mut Self) {
        // The fork's extensions come last; a type that both set meanwhile is found in the flow first.
        self.extensions.append(&mut fork.extensions);
        for tag in std::mem::take(&mut fork.tags) {
            self.tag(tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        let client = ClientInfo {
            connection: 1,
            peer: "127.0.0.1:1".parse().unwrap(),
            local: "127.0.0.1:2".parse().unwrap(),
            listener: "proxy".into(),
            accepted: Timestamp::now(),
            container: None,
            process: None,
        };
        Flow::begin(client.into(), EntryKind::Absolute, Scheme::Http, "a:80".parse().unwrap())
    }

    #[test]
    fn extensions_are_found_by_type() {
        let mut f = flow();
        *f.extension_mut::<u32>() += 2;
        f.extension_mut::<String>().push('x');
        *f.extension_mut::<u32>() += 3;
        assert_eq!(f.extension::<u32>(), Some(&5));
        assert_eq!(f.extension::<String>().map(String::as_str), Some("x"));
        assert_eq!(f.extension::<u8>(), None);
    }

    #[test]
    fn merge_returns_extensions_and_new_tags() {
        let mut f = flow();
        f.tag("before");
        *f.extension_mut::<u32>() = 2;
        let mut fork = f.fork();
        assert_eq!((f.extension::<u32>(), fork.extension::<u32>(), fork.id), (None, Some(&2), f.id));
        *fork.extension_mut::<u32>() = 3;
        fork.tag("meanwhile");
        f.merge(&mut fork);
        assert_eq!((f.extension::<u32>(), fork.extension::<u32>()), (Some(&3), None));
        assert_eq!(f.tags, ["before", "meanwhile"]);
    }

    #[test]
    fn every_reason_is_found_by_its_label() {
        for reason in Passthrough::ALL {
            assert_eq!(Passthrough::from_label(reason.as_str()), Some(reason));
        }
        assert_eq!(Passthrough::from_label("why"), None);
    }

    #[test]
    fn repeated_tag_is_added_once() {
        let mut f = flow();
        f.tag("a");
        f.tag("a");
        assert_eq!(f.tags, ["a"]);
    }
}
