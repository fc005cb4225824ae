//! The flow itself: one unit of traffic as the owner sees it.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::{
    Authority, ByteStr, ErrorKind, FlowClock, FlowId, FlowTimings, HttpVersion, Scheme, StatusCode, Timestamp,
};

/// How the client asked for the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A request in absolute-form to the proxy.
    Absolute,
    /// A CONNECT tunnel.
    Connect,
    /// A SOCKS5 tunnel.
    Socks5,
    /// A connection that the firewall redirected here without the client's knowing.
    Transparent,
    /// A connection from a client that takes us for the origin: its own words say for which.
    Reverse,
    /// A request in origin-form to a gateway route.
    Gateway,
    /// A request that Interflow itself makes: a replay, a stage's own call.
    Internal,
}

impl EntryKind {
    /// The name in records and queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absolute => "absolute",
            Self::Connect => "connect",
            Self::Socks5 => "socks5",
            Self::Transparent => "transparent",
            Self::Reverse => "reverse",
            Self::Gateway => "gateway",
            Self::Internal => "internal",
        }
    }
}

/// Why the bytes of a tunnel were passed through uninspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passthrough {
    /// Interception is off.
    InterceptionOff,
    /// Only listed hosts are intercepted, and this is none.
    NotListed,
    /// The configuration excludes the host from interception.
    Excluded,
    /// A rule, or another stage, decided so.
    Rule,
    /// The client refuses our certificate for this host although it trusts our CA: it pins.
    PinningBypass,
    /// The bytes are neither TLS nor HTTP.
    UnknownProtocol,
    /// The server spoke first.
    ServerFirst,
    /// What is inside the intercepted TLS is not HTTP.
    NotHttp,
    /// The tunnel leads to another proxy, which is asked for something inside it.
    NestedProxy,
}

impl Passthrough {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::InterceptionOff,
        Self::NotListed,
        Self::Excluded,
        Self::Rule,
        Self::PinningBypass,
        Self::UnknownProtocol,
        Self::ServerFirst,
        Self::NotHttp,
        Self::NestedProxy,
    ];

    /// The label in records and queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InterceptionOff => "interception_off",
            Self::NotListed => "not_listed",
            Self::Excluded => "excluded",
            Self::Rule => "rule",
            Self::PinningBypass => "pinning_bypass",
            Self::UnknownProtocol => "unknown_protocol",
            Self::ServerFirst => "server_first",
            Self::NotHttp => "not_http",
            Self::NestedProxy => "nested_proxy",
        }
    }

    /// The reason with this label.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.as_str() == label)
    }

    /// The reason in a word or two, for a column of a table.
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

    /// The reason in words, with what to do about it.
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

/// What is known of a client's connection.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// A number of the connection, unique within the process.
    pub connection: u64,
    /// The client's address: the PROXY protocol's, when that was trusted.
    pub peer: SocketAddr,
    /// The address that accepted it.
    pub local: SocketAddr,
    /// The listener's name.
    pub listener: Arc<str>,
    /// When it was accepted.
    pub accepted: Timestamp,
    /// The client's process, when it was looked for and found.
    pub process: Option<Arc<ClientProcess>>,
    /// The name of its Docker or Podman container, when it was looked for and found.
    pub container: Option<ByteStr>,
}

/// The process that a connection comes from, when it runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientProcess {
    /// Its number.
    pub pid: u32,
    /// The file name of its program.
    pub name: ByteStr,
}

/// The TLS of the client's leg.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// Server name asked for.
    pub sni: Option<ByteStr>,
    /// Protocol version agreed on: `TLSv1.3`.
    pub version: Option<&'static str>,
    /// Cipher suite agreed on.
    pub cipher: Option<ByteStr>,
    /// Application protocols offered.
    pub alpn_offered: Vec<ByteStr>,
    /// Application protocol agreed on.
    pub alpn: Option<ByteStr>,
    /// JA3 fingerprint (MD5 in hex).
    pub ja3: Option<ByteStr>,
    /// JA4 fingerprint.
    pub ja4: Option<ByteStr>,
    /// The name in the client's own certificate, when it showed one and an authority of `gateway.client_ca` signed it.
    pub client_name: Option<Arc<str>>,
}

/// The TLS of the upstream leg.
#[derive(Clone, Debug, Default)]
pub struct UpstreamTls {
    /// Protocol version agreed on.
    pub version: Option<&'static str>,
    /// Cipher suite agreed on.
    pub cipher: Option<ByteStr>,
    /// Application protocol agreed on.
    pub alpn: Option<ByteStr>,
    /// The origin's certificate does not hold, and was accepted by the owner's wish.
    pub unverified: bool,
    /// What is wrong with such a certificate, in words.
    pub problem: Option<ByteStr>,
    /// Whether the handshake resumed an earlier session.
    pub resumed: bool,
    /// Whose fingerprint the connection has, when it is not our own: `chrome`, or `mirror` with what could not be mirrored.
    pub fingerprint: Option<ByteStr>,
}

/// What is known of the upstream leg.
#[derive(Clone, Debug)]
pub struct UpstreamInfo {
    /// The address connected to: the origin's or the upstream proxy's.
    pub peer: Option<SocketAddr>,
    /// Our own address on that connection.
    pub local: Option<SocketAddr>,
    /// The upstream proxy's name, without credentials, when there is one.
    pub via: Option<Arc<str>>,
    /// The protocol spoken.
    pub version: HttpVersion,
    /// A number of the connection, unique within the process.
    pub connection: u64,
    /// Whether the connection had carried a request before.
    pub reused: bool,
    /// Its TLS, when it has one.
    pub tls: Option<Arc<UpstreamTls>>,
}

/// Something a stage wants to remember until the flow ends.
pub type Extension = Box<dyn Any + Send + Sync>;

/// One unit of traffic: an HTTP exchange, a WebSocket, or a raw tunnel.
#[derive(Debug)]
pub struct Flow {
    /// Its name.
    pub id: FlowId,
    /// Its clock.
    pub clock: FlowClock,
    /// The client's connection.
    pub client: Arc<ClientInfo>,
    /// The client's TLS, when it was terminated here.
    pub client_tls: Option<Arc<ClientTls>>,
    /// How the client opened its HTTP/2 connection: Akamai's fingerprint.
    pub client_http2: Option<ByteStr>,
    /// The shape of the request: its JA4H fingerprint.
    pub ja4h: Option<ByteStr>,
    /// How the client asked.
    pub transport: EntryKind,
    /// The authenticated user.
    pub user: Option<Arc<str>>,
    /// Scheme of the origin as far as it is known.
    pub scheme: Scheme,
    /// The origin.
    pub authority: Authority,
    /// The upstream leg, once there is one.
    pub upstream: Option<UpstreamInfo>,
    /// When things happened.
    pub timings: FlowTimings,
    /// The flow this one was made from: what was replayed.
    pub parent: Option<FlowId>,
    /// Whether the request has a body; known with its head.
    pub has_request_body: Option<bool>,
    /// Why its bytes were passed through uninspected, when they were.
    pub passthrough: Option<Passthrough>,
    /// The status of the response that goes to the client, once there is one.
    pub status: Option<StatusCode>,
    /// The kind of the error that ended it, known at `Done`.
    pub error_kind: Option<ErrorKind>,
    /// Tags set by stages (`redacted`, `rule-matched`) and by rules.
    pub tags: Vec<ByteStr>,
    extensions: Vec<Extension>,
}

impl Flow {
    /// A flow that begins now.
    pub fn begin(client: Arc<ClientInfo>, transport: EntryKind, scheme: Scheme, authority: Authority) -> Self {
        Self::begin_at(FlowClock::start(), client, transport, scheme, authority)
    }

    /// A flow that began with this clock.
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

    /// Puts a mark on, once.
    pub fn tag(&mut self, tag: impl Into<ByteStr>) {
        let tag = tag.into();
        if !self.tags.contains(&tag) {
            self.tags.push(tag);
        }
    }

    /// The stage's own note of this type.
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.extensions.iter().find_map(|n| n.downcast_ref())
    }

    /// The stage's own note of this type, made when it is not there.
    pub fn extension_mut<T: Any + Send + Sync + Default>(&mut self) -> &mut T {
        let at = self.extensions.iter().position(|n| n.is::<T>()).unwrap_or_else(|| {
            self.extensions.push(Box::new(T::default()));
            self.extensions.len() - 1
        });
        self.extensions[at].downcast_mut().expect("the note at this place is of this type")
    }

    /// A second handle to the same flow, for a phase that runs beside the others: it knows what is known so far, and
    /// takes the notes over until they are [taken back](Self::take_back).
    #[must_use]
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

    /// Takes back the notes, and the marks that were put on meanwhile.
    pub fn merge(&mut self, lent: &mut Self) {
        self.extensions.append(&mut lent.extensions);
        for tag in std::mem::take(&mut lent.tags) {
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
    fn each_stage_finds_its_own_note() {
        let mut f = flow();
        *f.extension_mut::<u32>() += 2;
        f.extension_mut::<String>().push('x');
        *f.extension_mut::<u32>() += 3;
        assert_eq!(f.extension::<u32>(), Some(&5));
        assert_eq!(f.extension::<String>().map(String::as_str), Some("x"));
        assert_eq!(f.extension::<u8>(), None);
    }

    #[test]
    fn what_was_lent_comes_back_with_what_was_added() {
        let mut f = flow();
        f.tag("before");
        *f.extension_mut::<u32>() = 2;
        let mut lent = f.fork();
        assert_eq!((f.extension::<u32>(), lent.extension::<u32>(), lent.id), (None, Some(&2), f.id));
        *lent.extension_mut::<u32>() = 3;
        lent.tag("meanwhile");
        f.merge(&mut lent);
        assert_eq!((f.extension::<u32>(), lent.extension::<u32>()), (Some(&3), None));
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
    fn a_tag_is_put_on_once() {
        let mut f = flow();
        f.tag("a");
        f.tag("a");
        assert_eq!(f.tags, ["a"]);
    }
}
