//! Where a request goes and by which way: all that two requests must share before they may share a connection.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use interflow_types::{Authority, Body, FlowClock, FlowTimings, ResponseHead, Scheme, UpstreamInfo};

use super::dns::DnsResolver;
use super::proxy::UpstreamProxy;
use crate::io::IoStream;
use crate::tls::TlsProfile;

/// The protocol to speak with an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpstreamProtocol {
    /// What ALPN agrees on over TLS, HTTP/1.1 in cleartext. Upgrades go over HTTP/1.1.
    #[default]
    Auto,
    /// That of the request, so that nothing is translated: over TLS, HTTP/1 requests go over HTTP/1.1 as long as the origin
    /// takes it and no fingerprint decides what is offered; everything else as with [`Auto`](Self::Auto).
    MatchClient,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only; in cleartext with prior knowledge (RFC 9113 3.3).
    Http2,
}

/// Where a request goes and by which way.
#[derive(Clone)]
pub struct UpstreamRoute {
    /// Cleartext or TLS.
    pub scheme: Scheme,
    /// The origin.
    pub authority: Authority,
    /// Where to connect when that is not the authority: the client named an address, and its TLS a name.
    pub connect_to: Option<Authority>,
    /// Upstream proxies on the way, the one nearest to us first.
    pub via: Arc<[UpstreamProxy]>,
    /// The protocol to speak.
    pub protocol: UpstreamProtocol,
    /// How TLS is done with the origin.
    pub tls: Arc<TlsProfile>,
    /// Anything else that must not share a connection: a user, a client's own identity. 0 when there is none.
    pub partition: u64,
    /// Who resolves names, when it is not the dialler's own resolver. Whoever sets it sets `partition` as well.
    pub resolver: Option<DnsResolver>,
    /// The `Via` field of CONNECT requests to upstream proxies: the hops before us, and we.
    pub connect_via: Option<Arc<str>>,
}

impl UpstreamRoute {
    /// What a pool files connections under.
    pub fn key(&self) -> PoolKey {
        self.key_for(self.protocol)
    }

    /// The key of the same route with another protocol.
    pub(crate) fn key_for(&self, protocol: UpstreamProtocol) -> PoolKey {
        PoolKey {
            scheme: self.scheme,
            authority: self.authority.clone(),
            connect_to: self.connect_to.clone(),
            via: self.via.clone(),
            protocol,
            tls: self.tls.id(),
            partition: self.partition,
        }
    }

    /// Whether `key` is this route's with that protocol; compares without making a key.
    pub(crate) fn has_key(&self, protocol: UpstreamProtocol, key: &PoolKey) -> bool {
        self.scheme == key.scheme
            && protocol == key.protocol
            && self.partition == key.partition
            && self.tls.id() == key.tls
            && self.authority == key.authority
            && self.connect_to == key.connect_to
            && (Arc::ptr_eq(&self.via, &key.via) || self.via == key.via)
    }

    /// Feeds a hasher with what tells routes apart; the chain of proxies is left to [`has_key`](Self::has_key).
    pub(crate) fn hash_for(&self, protocol: UpstreamProtocol, hasher: &mut impl Hasher) {
        self.authority.hash(hasher);
        hasher.write_u64(self.tls.id());
        hasher.write_u64(self.partition);
        hasher.write_u8(self.scheme as u8);
        hasher.write_u8(protocol as u8);
    }
}

/// Everything that changes the identity of an upstream connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    scheme: Scheme,
    authority: Authority,
    connect_to: Option<Authority>,
    via: Arc<[UpstreamProxy]>,
    protocol: UpstreamProtocol,
    tls: u64,
    partition: u64,
}

impl PoolKey {
    /// The origin.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }
}

/// What a call reports back to its flow while it runs.
pub struct UpstreamReport<'a> {
    /// The flow's clock.
    pub clock: &'a FlowClock,
    /// Filled with the moments of the upstream leg.
    pub timings: &'a mut FlowTimings,
    /// Filled as soon as a connection is there.
    pub upstream: &'a mut Option<UpstreamInfo>,
    /// Given each interim response (1xx but 101) that comes before the final one.
    pub interim: &'a mut (dyn FnMut(ResponseHead) + Send),
}

/// The upstream's answer.
#[derive(Debug)]
pub struct UpstreamResponse {
    /// The head as it came.
    pub head: ResponseHead,
    /// The body. While it is read it also drives what is left of the request's body; dropping it ends both.
    pub body: Body,
    /// The bytes behind a 101 (HTTP/1.1) or behind a 2xx to an extended CONNECT (RFC 8441).
    pub upgrade: Option<IoStream>,
}
