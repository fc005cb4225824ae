//! The route of a request: everything that two requests must have in common to share a connection.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use interflow_types::{Authority, Body, FlowClock, FlowTimings, ResponseHead, Scheme, UpstreamInfo};

use super::dns::DnsResolver;
use super::proxy::UpstreamProxy;
use crate::io::IoStream;
use crate::tls::TlsProfile;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpstreamProtocol {
    /// The one that ALPN negotiates over TLS, HTTP/1.1 in cleartext. Upgrades use HTTP/1.1.
    #[default]
    Auto,
    /// That of the request, so that nothing is translated. Over TLS, HTTP/1 requests use HTTP/1.1 if the origin
    /// supports it, unless a fingerprint determines what is offered; everything else is as with [`Auto`](Self::Auto).
    MatchClient,
    Http1,
    /// HTTP/2 only; in cleartext with prior knowledge (RFC 9113 3.3).
    Http2,
}

/// Whom an upstream connection serves: it is shared only by requests of which all of this is equal. It holds the
/// identities themselves rather than a hash of them, so that no two can be taken for one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Isolation {
    /// The authenticated user.
    pub user: Option<Arc<str>>,
    /// The client connection that alone uses it, by the number of that connection.
    pub client_connection: Option<u64>,
}

/// A resolver for the names of one route.
#[derive(Clone)]
pub struct RouteResolver {
    /// The server's name or URL; part of the pool key, since another server may give other addresses.
    pub server: Arc<str>,
    pub resolver: DnsResolver,
}

/// Where a request is sent, and how.
#[derive(Clone)]
pub struct UpstreamRoute {
    pub scheme: Scheme,
    pub authority: Authority,
    /// Where to connect if that is not the authority: the client connected to an address, and its TLS has a name.
    pub connect_to: Option<Authority>,
    pub via: Arc<[UpstreamProxy]>,
    pub protocol: UpstreamProtocol,
    pub tls: Arc<TlsProfile>,
    /// Whom the connection serves.
    pub isolation: Isolation,
    /// Overrides the dialler's resolver.
    pub resolver: Option<RouteResolver>,
    /// The `Via` field of CONNECT requests to upstream proxies: the previous hops and this proxy.
    pub connect_via: Option<Arc<str>>,
    /// The authority is another proxy, which the client addresses in a tunnel: requests keep their absolute-form. Part
    /// of the pool key: a connection writes all its requests in one form.
    pub absolute_form: bool,
}

impl UpstreamRoute {
    /// A route straight to an origin, shared by all clients.
    pub fn new(scheme: Scheme, authority: Authority, tls: Arc<TlsProfile>) -> Self {
        Self {
            scheme,
            authority,
            connect_to: None,
            via: Arc::new([]),
            protocol: UpstreamProtocol::Auto,
            tls,
            isolation: Isolation::default(),
            resolver: None,
            connect_via: None,
            absolute_form: false,
        }
    }

    /// The key under which connections with this protocol are pooled.
    pub(crate) fn key_for(&self, protocol: UpstreamProtocol) -> PoolKey {
        PoolKey {
            scheme: self.scheme,
            authority: self.authority.clone(),
            connect_to: self.connect_to.clone(),
            via: self.via.clone(),
            protocol,
            tls: self.tls.id(),
            isolation: self.isolation.clone(),
            resolver: self.resolver.as_ref().map(|r| r.server.clone()),
            absolute_form: self.absolute_form,
        }
    }

    /// The resolver of this route's names, if it has one of its own.
    pub(crate) fn resolver(&self) -> Option<&DnsResolver> {
        self.resolver.as_ref().map(|r| &r.resolver)
    }

    /// Whether `key` is this route's with this protocol; compares without building a key.
    pub(crate) fn has_key(&self, protocol: UpstreamProtocol, key: &PoolKey) -> bool {
        self.scheme == key.scheme
            && protocol == key.protocol
            && self.absolute_form == key.absolute_form
            && self.isolation == key.isolation
            // Compared before the authority, which is a longer comparison.
            && self.resolver.as_ref().map(|r| &r.server) == key.resolver.as_ref()
            && self.tls.id() == key.tls
            && self.authority == key.authority
            && self.connect_to == key.connect_to
            // Routes of one rule share their chain, which makes the pointer comparison the usual case.
            && (Arc::ptr_eq(&self.via, &key.via) || self.via == key.via)
    }

    /// Hashes what distinguishes routes; the resolver and the chain of proxies are left to [`has_key`](Self::has_key).
    pub(crate) fn hash_for(&self, protocol: UpstreamProtocol, hasher: &mut impl Hasher) {
        // Only what usually differs is hashed; the rest is compared by `has_key`.
        // The hash is computed for each request, hence only the fields that usually differ.
        self.authority.hash(hasher);
        hasher.write_u64(self.tls.id());
        self.isolation.hash(hasher);
        hasher.write_u8(self.scheme as u8);
        hasher.write_u8(protocol as u8);
    }
}

/// Everything that affects the identity of an upstream connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    scheme: Scheme,
    pub(super) authority: Authority,
    connect_to: Option<Authority>,
    via: Arc<[UpstreamProxy]>,
    protocol: UpstreamProtocol,
    tls: u64,
    isolation: Isolation,
    resolver: Option<Arc<str>>,
    absolute_form: bool,
}

/// What a call reports to its flow while it runs.
pub struct UpstreamReport<'a> {
    pub clock: &'a FlowClock,
    /// Filled with the timings of the upstream side.
    pub timings: &'a mut FlowTimings,
    /// Filled as soon as there is a connection.
    pub upstream: &'a mut Option<UpstreamInfo>,
    /// Called with each interim response (1xx except 101).
    pub interim: &'a mut (dyn FnMut(ResponseHead) + Send),
}

#[derive(Debug)]
pub struct UpstreamResponse {
    pub head: ResponseHead,
    /// The body. Reading it also sends the rest of the request's body; dropping it cancels both.
    pub body: Body,
    /// The stream after a 101 (HTTP/1.1) or after a 2xx to an extended CONNECT (RFC 8441).
    pub upgrade: Option<IoStream>,
}
