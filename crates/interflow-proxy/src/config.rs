//! Configuration of the proxy core; each key is defined here once, with its meaning and default.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use interflow_types::budget::MemoryBudget;
use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use interflow_types::{CertificateFiles, config_sections};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// An invalid configuration value.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ConfigError {
    /// The configuration key.
    pub place: String,
    /// What is wrong with its value.
    pub what: String,
}

impl ConfigError {
    /// Completes an error text with its key.
    pub(crate) fn at_key<E: ToString>(place: impl Into<String>) -> impl FnOnce(E) -> Self {
        let place = place.into();
        move |what| Self { place, what: what.to_string() }
    }
}

/// The proxy core's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyServerConfig {
    /// The proxy port: HTTP, CONNECT and SOCKS5, detected from the client's first bytes.
    pub proxy: ProxyConfig,
    /// The gateway port: requests in origin-form, routed by path and host.
    pub gateway: GatewayConfig,
    /// Who may use the proxy.
    pub auth: AuthConfig,
    /// Which destinations may be reached, and by whom.
    pub access: AccessConfig,
    /// TLS interception.
    pub intercept: InterceptConfig,
    /// TLS towards origins.
    pub upstream: UpstreamConfig,
    /// Limits on what clients may use.
    pub limits: LimitsConfig,
    pub timeouts: TimeoutsConfig,
    /// Threads and processors.
    pub workers: WorkersConfig,
}

config_sections! {
    pub struct ProxyConfig {
        /// Addresses to listen on, IPv4 or IPv6.
        pub listen: Vec<SocketAddr> = vec![SocketAddr::from(([127, 0, 0, 1], 7070))],
        /// Addresses for connections that the firewall redirects (Linux: `REDIRECT`; also `TPROXY` with the capability
        /// `CAP_NET_ADMIN`). No client authentication.
        pub transparent: Vec<SocketAddr>,
        /// Reverse-proxy listeners: clients connect as if to the origin (by `/etc/hosts`, DNS, or a fixed address). The
        /// origin is taken from SNI, or from `Host` for plain HTTP. No client authentication.
        pub reverse: Vec<ReverseListener>,
        /// Also accept TLS on the proxy port (clients configured with an `https://` proxy URL): certificate chain and
        /// key.
        pub tls: Option<TlsFilePair>,
        /// Look up the process of each client on this machine (Linux, macOS), for records, queries and rules; costs some
        /// milliseconds of CPU per connection.
        pub processes: bool,
        /// Look up the Docker or Podman container of each client, for records, queries, rules and approvals.
        pub containers: bool,
        /// Sockets of the container engines to query; if empty, the default ones of Docker and Podman.
        pub container_sockets: Vec<PathBuf>,
        /// Take the client's address from a PROXY protocol header (v1 or v2) sent by these addresses; a connection from
        /// one of them without the header is refused.
        #[schemars(with = "Vec<String>")]
        pub proxy_protocol_trusted: Vec<IpNet>,
        /// Announce the proxy on the local network under this name, by multicast DNS (`_interflow._tcp`). Useful when
        /// `listen` has an address that other machines can reach.
        pub mdns_name: Option<String>,
        /// The pseudonym in `Via` fields; if empty, only requests that another proxy may send back get a random one, by which
        /// the loop is detected.
        pub via: String,
        /// Continue to serve an HTTP/1 request, or to open a SOCKS5 tunnel, whose client has closed its sending side (a
        /// half-close). If false, such a client counts as disconnected and its request is aborted, because the two cannot
        /// be told apart until something is written.
        pub keep_half_closed: bool,
        /// How long connections may take to finish during a graceful shutdown.
        pub drain_timeout: HumanDuration = HumanDuration::from_secs(20),
        /// How long connections are still accepted after SIGTERM, while `/readyz` already answers 503, so that load
        /// balancers stop sending traffic before the port closes. Ctrl-C skips this delay.
        pub drain_delay: HumanDuration = HumanDuration::from_millis(500),
    }
}

/// A reverse-proxy listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReverseListener {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The origins' port. If unset: 443 for TLS, and the port in `Host` for plain HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

config_sections! {
    pub struct GatewayConfig {
        /// Addresses to listen on, IPv4 or IPv6.
        pub listen: Vec<SocketAddr> = vec![SocketAddr::from(([127, 0, 0, 1], 7071))],
        /// Accept TLS on the gateway port: certificate chain and key.
        pub tls: Option<TlsFilePair>,
        /// Without `tls`, accept TLS with certificates that Interflow's CA issues for the requested name or address. For
        /// development: clients must trust that CA.
        pub tls_self_signed: bool,
        /// PEM files with client certificate authorities (mutual TLS). If set, every client must present a certificate
        /// signed by one of them, and requests without TLS are refused; requires `gateway.tls`. The name in the
        /// certificate becomes the request's user, unless a virtual key identifies it.
        pub client_ca: Vec<PathBuf>,
        /// Whether a client certificate is required when `client_ca` is set: `require` (default) or `request`.
        pub client_auth: Option<ClientAuthMode>,
        /// Reverse proxies (CIDR blocks) whose `X-Forwarded-For` is trusted: the client is the right-most address in it
        /// that is not one of them, for access rules, limits per client, records and logs. If empty, the field is
        /// ignored.
        #[schemars(with = "Vec<String>")]
        pub trusted_proxies: Vec<IpNet>,
        /// Continue to serve an HTTP/1 request whose client has closed its sending side, as with
        /// `proxy.keep_half_closed`.
        pub keep_half_closed: bool,
        /// Concurrent requests on the gateway port; further ones get 503 with `Retry-After: 1` and the code
        /// `concurrency_exceeded`. 0: no limit.
        pub max_concurrent_requests: usize,
        /// Host patterns under which clients may reach the gateway, in addition to `localhost`, addresses and the
        /// `hosts` of the routes. A request with another `Host` is refused, which defeats DNS rebinding by web pages. The
        /// media endpoints check this themselves.
        pub hosts: Vec<String>,
        /// Origins whose web pages may send requests to the gateway (`https://app.example.com`), in addition to those of
        /// this machine and of the gateway itself; `*` allows every page.
        pub origins: Vec<String>,
        /// Routes. Of those that match, the one with the longest path is used, then the first.
        pub route: Vec<GatewayRoute>,
    }
}

/// Whether clients must present a certificate when `gateway.client_ca` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuthMode {
    /// A certificate is required; clients without one are refused.
    #[default]
    Require,
    /// A certificate is requested; one that is presented must be valid, and clients without one are served too.
    Request,
}

impl GatewayConfig {
    pub fn requires_certificate(&self) -> bool {
        !self.client_ca.is_empty() && self.client_auth.unwrap_or_default() == ClientAuthMode::Require
    }

    /// Whether this address is a reverse proxy whose `X-Forwarded-For` is trusted.
    pub fn trusts(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.trusted_proxies.iter().any(|net| net.contains(&ip))
    }
}

/// One route of the gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayRoute {
    /// Path prefix, by whole segments: `/api` matches `/api` and `/api/x`, not `/apix`.
    #[serde(default = "root_path")]
    pub path: String,
    /// Host patterns that the request's `Host` must match, without ports; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The origin, optionally with a path that is prepended to the request's: `https://api.example.com/v2`.
    pub to: String,
    /// Remove the route's path from the request's before it is sent.
    #[serde(default)]
    pub strip_path: bool,
    /// Send the client's `Host` instead of the origin's.
    #[serde(default)]
    pub preserve_host: bool,
}

fn root_path() -> String {
    "/".into()
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFilePair {
    /// The certificate, followed by its intermediates.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

config_sections! {
    /// Proxy authentication.
    pub struct AuthConfig {
        /// A file with one line `name:hash` per user; hashes are bcrypt (`htpasswd -B`) or argon2. If unset, the proxy
        /// does not require authentication.
        pub users: Option<PathBuf>,
        /// Without a users file: accept the user name that a client gives, whatever its password. It distinguishes
        /// clients in rules and records, and proves nothing.
        pub accept_unverified_names: bool,
        /// The authentication realm that clients display when they prompt for a password.
        pub realm: String = "Interflow".into(),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Refuse destinations in private, link-local, loopback and other special-purpose address ranges, checked after
    /// DNS resolution. Destinations reached through an upstream proxy are resolved and checked here first.
    pub deny_private: bool,
    /// With `deny_private`, let names that cannot be resolved here go to an upstream proxy; the addresses it resolves
    /// them to are not checked. For media, which lets them anyway, names of private networks too (`nas.lan`).
    pub allow_unresolved: bool,
    /// Special-purpose addresses that may be reached despite `deny_private`.
    #[schemars(with = "Vec<String>")]
    pub allow_private: Vec<IpNet>,
    /// Rules in order; the first match decides. If none matches, the request is allowed.
    pub rule: Vec<AccessRule>,
}

/// One access rule. An empty list matches everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// The decision.
    pub action: AccessAction,
    /// User names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Client addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub clients: Vec<IpNet>,
    /// Host patterns: `example.com` (this name only), `*.example.com` (its subdomains only), `.example.com` (both), `10.*`,
    /// `10.0.0.0/8`, each with an optional `:port`. All lists of hosts are read like this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Ports or ranges: `443`, `8000-8999`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Methods, in any case: `get` counts as GET. A tunnel has the method CONNECT, including one requested by SOCKS5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
}

/// An access rule's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessAction {
    /// Allow.
    Allow,
    /// Refuse with 403.
    Deny,
}

/// Which TLS connections are intercepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InterceptMode {
    /// All except `exclude`.
    #[default]
    All,
    /// None.
    None,
    /// Only `hosts`, except `exclude`.
    Listed,
}

config_sections! {
    /// TLS interception.
    pub struct InterceptConfig {
        /// `all`, `none` or `listed`.
        pub mode: InterceptMode = InterceptMode::All,
        /// Host patterns to intercept when the mode is `listed`.
        pub hosts: Vec<String>,
        /// Host patterns whose TLS is never intercepted.
        pub exclude: Vec<String>,
        /// After this many consecutive handshakes in which a program that accepts Interflow's certificates for other
        /// hosts refused the one for a host, the host counts as pinned by it: its connections there are passed through
        /// without inspection for `pinning_bypass`. 0 turns this off.
        pub pinning_failures: u32 = 2,
        /// How long a pinning program's connections to the host are passed through without inspection.
        pub pinning_bypass: HumanDuration = HumanDuration::from_secs(3600),
        /// How long to wait for the client's first bytes in a tunnel before assuming a protocol in which the server
        /// speaks first.
        pub sniff_timeout: HumanDuration = HumanDuration::from_millis(300),
        /// Leaf certificates kept in memory (LRU). At least 1.
        pub leaf_cache_size: usize = 10_000,
        /// Validity of leaf certificates, in days: 2 to 90.
        pub leaf_validity_days: u32 = 90,
        /// Keep leaf certificates and their keys on disk, so that clients see the same ones after a restart: at most as
        /// many as in memory, the oldest removed first.
        pub persist_leaves: bool,
        /// The CA's certificate (PEM, with those above it if it is not a root), for replicas that share one: `file:PATH` or
        /// `env:NAME`. At the start it takes the place of the CA in the data directory. If unset, a CA is created there.
        pub ca_certificate: Option<String>,
        /// The unencrypted key of `ca_certificate` (PEM): `file:PATH` or `env:NAME`.
        pub ca_key: Option<String>,
    }
}

config_sections! {
    /// Connections to origins.
    pub struct UpstreamConfig {
        /// Accept any certificate from any origin. Dangerous: anyone on the network path can read and change everything.
        pub danger_insecure: bool,
        /// Host patterns whose certificates are not verified.
        pub danger_insecure_hosts: Vec<String>,
        /// PEM files with certificate authorities to trust in addition to the platform's. A server's own certificate in
        /// them, such as a self-signed one, is trusted for the names in it while it is valid.
        pub extra_ca: Vec<PathBuf>,
        /// Client certificates (mTLS) for origins, by host glob; the first match is presented.
        pub client_certificate: Vec<ClientCertificateConfig>,
        /// TLS and HTTP/2 fingerprints to impersonate, by host glob; the first match is used. Needs a build with the
        /// feature `impersonate`.
        pub fingerprint: Vec<FingerprintRule>,
        /// Upstream proxies by host pattern; the first match is used.
        pub proxy: Vec<UpstreamProxyRule>,
        /// Host patterns reached without an upstream proxy. Unlike in `NO_PROXY`, a bare name does not include its
        /// subdomains: write `.example.com`.
        pub no_proxy: Vec<String>,
        /// Static addresses for host names, used instead of DNS.
        pub hosts: BTreeMap<String, Vec<std::net::IpAddr>>,
        /// Name servers to query instead of the system's.
        pub name_servers: Vec<std::net::SocketAddr>,
        /// Resolve names of origins over HTTPS (RFC 8484): `https://host/path`, or `cloudflare`, `google`, `quad9`. The
        /// server's certificate is verified, and there is no fallback when it does not answer. Local names (without a
        /// dot, or ending in `.local`) are resolved by the system.
        pub dns_over_https: Option<String>,
        /// Connections to one origin, over all workers; 0: no limit. Beyond it, requests wait for at most `pool_timeout`.
        pub max_connections_per_host: usize,
        /// How long a request waits for a connection when the limit is reached.
        pub pool_timeout: HumanDuration = HumanDuration::from_secs(30),
        /// How long an idle connection is kept.
        pub idle_timeout: HumanDuration = HumanDuration::from_secs(60),
        /// Idle connections kept to one origin, by each worker.
        pub idle_per_host: usize = 8192,
        /// Idle connections kept in total, by each worker; over all workers never more than half of the process's limit
        /// on open files.
        pub idle_total: usize = 8192,
        /// Host patterns reached by HTTP/2 without TLS (prior knowledge). A client that uses it in a tunnel implies that the
        /// origin supports it; plain-text gRPC always uses it.
        pub h2c_hosts: Vec<String>,
        /// Host patterns reached only by HTTP/1.1.
        pub http1_hosts: Vec<String>,
    }
}

/// A certificate presented to origins that request one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificateConfig {
    /// Host patterns.
    pub hosts: Vec<String>,
    /// The certificate, followed by its intermediates (PEM); or a PKCS#12 file, which holds the key too.
    pub certificate: PathBuf,
    /// The private key (PEM); absent with PKCS#12.
    pub key: Option<PathBuf>,
    /// The password of the PKCS#12 file; may be given as `env:NAME` or `file:PATH`.
    pub password: Option<String>,
}

impl ClientCertificateConfig {
    pub fn files(&self) -> CertificateFiles {
        CertificateFiles::new(self.certificate.clone(), self.key.clone(), self.password.clone())
    }
}

/// The fingerprint for connections to some origins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FingerprintRule {
    /// Host patterns; `*` for all.
    pub hosts: Vec<String>,
    /// `mirror` (the connecting client's fingerprint), the name of a profile (chrome, edge, android, firefox, safari,
    /// ios, okhttp, curl), or `ja3:` and a JA3 string. `none` keeps Interflow's own fingerprint.
    pub profile: String,
}

/// An upstream proxy, or a chain of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamProxyRule {
    /// Host patterns; `*` for all.
    pub hosts: Vec<String>,
    /// The proxies, in order from this one to the origin: `http://user:password@host:port`, `https://…` or
    /// `socks5://…`. The whole URL may be given as `env:NAME` or `file:PATH`. An empty list connects directly to the
    /// origin.
    pub via: Vec<String>,
}

config_sections! {
    /// Limits; 0 means no limit.
    pub struct LimitsConfig {
        /// Client connections in total.
        pub connections: usize = 20_000,
        /// Client connections from one address (one /64 for IPv6).
        pub connections_per_client: usize,
        /// New client connections per second.
        pub accept_rate: u32,
        /// Bytes of a request's head; that of a response may have four times as many.
        pub max_header_bytes: ByteSize = ByteSize(64 << 10),
        /// Bytes of a request line.
        pub request_line_bytes: ByteSize = ByteSize(16 << 10),
        /// Fields in a request's head; that of a response may have four times as many.
        pub max_headers: usize = 200,
        /// Concurrent streams on one HTTP/2 connection of a client.
        pub h2_streams: u32 = 256,
        /// Bytes of requests and responses that the process may hold in memory at once, in total: bodies that are
        /// buffered or decoded, and the work on them. A request that needs more than is left gets 503 with Retry-After.
        pub held_bytes: ByteSize = ByteSize(MemoryBudget::DEFAULT_LIMIT),
    }
}

config_sections! {
    pub struct TimeoutsConfig {
        /// From a request's first byte to the end of its header section.
        pub header_timeout: HumanDuration = HumanDuration::from_secs(30),
        /// Between requests on a client connection.
        pub idle: HumanDuration = HumanDuration::from_secs(120),
        /// Between two chunks of a body, in either direction.
        pub body_idle_timeout: HumanDuration = HumanDuration::from_secs(300),
        /// A TLS handshake, downstream or upstream.
        pub handshake: HumanDuration = HumanDuration::from_secs(15),
        /// Name resolution and connecting, upstream proxies included.
        pub connect: HumanDuration = HumanDuration::from_secs(20),
        /// From the request to the header section of the origin's response.
        pub response_header_timeout: HumanDuration = HumanDuration::from_secs(900),
        /// A tunnel without traffic.
        pub tunnel_idle: HumanDuration = HumanDuration::from_secs(3600),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersConfig {
    /// Number of worker threads, at most 1024; 0: one per processor.
    pub count: usize,
    /// Pin each worker to one processor (Linux).
    pub cpu_affinity: bool,
}
