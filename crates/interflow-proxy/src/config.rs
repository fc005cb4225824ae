//! The keys of the configuration that the corridor obeys, each defined once with its meaning and default.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use interflow_types::CertificateFiles;
use interflow_types::budget::MemoryBudget;
use interflow_types::units::{ByteSize, HumanDuration};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything that the corridor obeys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyServerConfig {
    /// The proxy port: HTTP, CONNECT, SOCKS5, detected by what the client says first.
    pub proxy: ProxyConfig,
    /// The gateway port: requests in origin-form, sent on by path and host.
    pub gateway: GatewayConfig,
    /// Who may use the proxy.
    pub auth: AuthConfig,
    /// What may be reached, and by whom.
    pub access: AccessConfig,
    /// Looking inside TLS.
    pub intercept: InterceptConfig,
    /// TLS towards origins.
    pub upstream: UpstreamConfig,
    /// Caps on what clients may use.
    pub limits: LimitsConfig,
    /// How long things may take.
    pub timeouts: TimeoutsConfig,
    /// The machine: threads and processors.
    pub workers: WorkersConfig,
}

/// The proxy port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyConfig {
    /// Addresses to listen on, IPv4 or IPv6.
    pub listen: Vec<SocketAddr>,
    /// Addresses that take connections which the firewall redirects here (Linux: `REDIRECT`; `TPROXY` too with the
    /// privilege `CAP_NET_ADMIN`). Their clients know of no proxy, so nobody is asked who they are.
    pub transparent: Vec<SocketAddr>,
    /// Addresses for clients that take us for the origin (by `/etc/hosts`, DNS, or a fixed address): the name in their
    /// TLS, or in each request's `Host`, says which origin they mean. Nobody is asked who they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reverse: Vec<ReverseListener>,
    /// Speak TLS on the proxy port too (clients that say `https://` for their proxy): certificate chain and key.
    pub tls: Option<TlsFilePair>,
    /// Look for the process of each client on this machine (Linux, macOS), for records, queries and rules; costs some
    /// milliseconds of CPU per connection.
    pub processes: bool,
    /// Look for the Docker or Podman container of each client, for records, queries, rules and approvals.
    pub containers: bool,
    /// The sockets of the engines that are asked for containers; when the list is empty, the usual ones of Docker and
    /// Podman.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_sockets: Vec<PathBuf>,
    /// Take the client's address from a PROXY protocol header (v1 or v2) sent by these addresses; a connection from
    /// one of them without the header is refused.
    #[schemars(with = "Vec<String>")]
    pub proxy_protocol_trusted: Vec<IpNet>,
    /// Announce the proxy in the local network under this name, by multicast DNS (`_interflow._tcp`). Of use where `listen`
    /// has an address that others reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mdns_name: Option<String>,
    /// The pseudonym for `Via` fields; none are added when it is empty.
    pub via: String,
    /// Go on serving an HTTP/1 request whose client has closed its sending side (a half-close). Without it, such a client
    /// counts as gone, and the request ends at once: until something is written, nothing tells the two apart.
    pub keep_half_closed: bool,
    /// How long connections may take to finish after a signal to stop.
    pub drain_timeout: HumanDuration,
    /// How long after SIGTERM connections are still accepted, while `/readyz` says 503 already, so that balancers turn away
    /// before the port closes. Ctrl-C waits for nothing.
    pub drain_delay: HumanDuration,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 7070))],
            transparent: Vec::new(),
            reverse: Vec::new(),
            processes: false,
            containers: false,
            container_sockets: Vec::new(),
            tls: None,
            proxy_protocol_trusted: Vec::new(),
            mdns_name: None,
            via: String::new(),
            keep_half_closed: false,
            drain_timeout: HumanDuration::from_secs(20),
            drain_delay: HumanDuration::from_millis(500),
        }
    }
}

/// An address for clients that take us for the origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReverseListener {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The origins' port; without it 443 for TLS, and for plain HTTP the port in `Host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// The gateway port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Addresses to listen on, IPv4 or IPv6.
    pub listen: Vec<SocketAddr>,
    /// Speak TLS on the gateway port too: certificate chain and key.
    pub tls: Option<TlsFilePair>,
    /// Without `tls`, speak TLS with certificates that Interflow's own CA signs for the name or address that a client asks for.
    /// For development: clients must trust that CA.
    pub tls_self_signed: bool,
    /// PEM files with the certificate authorities of clients (mutual TLS). With them every client must show a certificate
    /// that one of them signed, and requests without TLS are refused; needs `gateway.tls`. The name in the certificate is
    /// the user of the request, unless a virtual key says who it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_ca: Vec<PathBuf>,
    /// What is asked of clients when there is `client_ca`: `require` (when absent) or `request`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_auth: Option<ClientAuthMode>,
    /// Reverse proxies (CIDR blocks) whose `X-Forwarded-For` is believed: the client is the right-most address
    /// in it that is not one of them, for access rules, limits per client, records and logs. Empty: the field is never
    /// believed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub trusted_proxies: Vec<IpNet>,
    /// Go on serving an HTTP/1 request whose client has closed its sending side, as `proxy.keep_half_closed` does.
    pub keep_half_closed: bool,
    /// Requests served at once on the gateway port; what comes beyond that gets 503 with `Retry-After: 1` and the code
    /// `concurrency_exceeded`. 0 for no cap.
    pub max_concurrent_requests: usize,
    /// Names under which clients may reach the gateway, as globs, besides `localhost`, addresses and the `hosts` of the
    /// routes: a request with another `Host` is refused, so that no web page reaches it under a name of its own (DNS
    /// rebinding). The media endpoints check this themselves.
    pub hosts: Vec<String>,
    /// Origins whose web pages may send requests to the gateway (`https://app.example.com`), besides those of this machine
    /// and of the gateway itself; `*` for any page of any site.
    pub origins: Vec<String>,
    /// Where requests go. Of the routes that match, the one with the longest path is taken, then the first.
    pub route: Vec<GatewayRoute>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 7071))],
            tls: None,
            tls_self_signed: false,
            client_ca: Vec::new(),
            client_auth: None,
            trusted_proxies: Vec::new(),
            keep_half_closed: false,
            max_concurrent_requests: 0,
            hosts: Vec::new(),
            origins: Vec::new(),
            route: Vec::new(),
        }
    }
}

/// What is asked of clients whose authorities `gateway.client_ca` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuthMode {
    /// A certificate; whoever shows none is refused.
    #[default]
    Require,
    /// A certificate, if the client has one: one that is shown must be good, and clients without one are served too.
    Request,
}

impl GatewayConfig {
    /// Whether requests without a client's certificate are refused.
    pub fn requires_certificate(&self) -> bool {
        !self.client_ca.is_empty() && self.client_auth.unwrap_or_default() == ClientAuthMode::Require
    }

    /// Whether this is a reverse proxy whose `X-Forwarded-For` is believed.
    pub fn trusts(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.trusted_proxies.iter().any(|net| net.contains(&ip))
    }
}

/// One route of the gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayRoute {
    /// The beginning of the path, by whole segments: `/api` matches `/api` and `/api/x`, not `/apix`.
    #[serde(default = "root_path")]
    pub path: String,
    /// Host globs that the request's `Host` must match; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The origin, with a path to put before the request's: `https://api.example.com/v2`.
    pub to: String,
    /// Take the route's own path off before the request goes on.
    #[serde(default)]
    pub strip_path: bool,
    /// Send the client's `Host` on instead of the origin's.
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

/// Proxy authentication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// A file with a line `name:hash` per user, the hash bcrypt (`htpasswd -B`) or argon2. Without it nobody is asked.
    pub users: Option<PathBuf>,
    /// Where there is no file of users: take the name that a client gives for its name, whatever its password. It tells
    /// clients apart in rules and records, and proves nothing.
    pub accept_unverified_names: bool,
    /// The realm that clients show when they ask for a password.
    pub realm: String,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self { users: None, accept_unverified_names: false, realm: "Interflow".into() }
    }
}

/// Access rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Refuse destinations in private, link-local, loopback and other special address ranges, judged after DNS. What an
    /// upstream proxy is to reach is resolved and judged here first.
    pub deny_private: bool,
    /// With `deny_private`, let names that cannot be resolved here pass to an upstream proxy, whose addresses then nobody
    /// judges.
    pub allow_unresolved: bool,
    /// Addresses that may be reached although `deny_private` is set.
    #[schemars(with = "Vec<String>")]
    pub allow_private: Vec<IpNet>,
    /// Rules in order; the first that matches decides. Without a match the request is allowed.
    pub rule: Vec<AccessRule>,
}

/// One access rule. An empty list matches everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// What happens.
    pub action: AccessAction,
    /// User names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Client addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub clients: Vec<IpNet>,
    /// Host globs: `*.example.com` (any depth, not the name itself), `example.com`, `10.*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Ports or ranges: `443`, `8000-8999`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Methods. A tunnel has the method CONNECT, also when SOCKS5 asked for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
}

/// What an access rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessAction {
    /// Go on.
    Allow,
    /// Refuse with 403.
    Deny,
}

/// Whether TLS is looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InterceptMode {
    /// Everything but `never`.
    #[default]
    All,
    /// Nothing.
    None,
    /// Only `hosts`, less `never`.
    Listed,
}

/// Looking inside TLS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterceptConfig {
    /// `all`, `none` or `listed`.
    pub mode: InterceptMode,
    /// Host globs that are looked into when the mode is `listed`.
    pub hosts: Vec<String>,
    /// Host globs that always pass unseen.
    pub exclude: Vec<String>,
    /// After this many handshakes in a row in which a program that accepts our certificates for other hosts refused the one
    /// for a host, it pins that host: its connections there pass uninspected for `pinning_pass`. 0 turns this off.
    pub pinning_failures: u32,
    /// How long a program that pins is passed through uninspected.
    pub pinning_bypass: HumanDuration,
    /// How long to wait for a client's first bytes in a tunnel before taking it for a protocol in which the server
    /// speaks first.
    pub sniff_timeout: HumanDuration,
    /// Leaf certificates kept in memory; the one least recently used gives way. At least 1.
    pub leaf_cache_size: usize,
    /// How long a leaf certificate lives, in days: 2 to 90.
    pub leaf_validity_days: u32,
    /// Keep leaf certificates and their keys on disk, so that clients see the same ones after a restart: as many as in memory,
    /// the oldest give way.
    pub persist_leaves: bool,
}

impl Default for InterceptConfig {
    fn default() -> Self {
        Self {
            mode: InterceptMode::All,
            hosts: Vec::new(),
            exclude: Vec::new(),
            pinning_failures: 2,
            pinning_bypass: HumanDuration::from_secs(3600),
            sniff_timeout: HumanDuration::from_millis(300),
            leaf_cache_size: 10_000,
            leaf_validity_days: 90,
            persist_leaves: false,
        }
    }
}

/// The way to the origins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// Accept any certificate from any origin. Dangerous: whoever sits on the way can read and change everything.
    pub danger_insecure: bool,
    /// Host globs whose certificates are not verified.
    pub danger_insecure_hosts: Vec<String>,
    /// PEM files with certificate authorities to trust besides the platform's. A server's own certificate in them, such as a
    /// self-signed one, is trusted for the names in it and as long as it is valid.
    pub extra_ca: Vec<PathBuf>,
    /// Client certificates (mTLS) for origins, by host glob; the first that matches is shown.
    pub client_certificate: Vec<ClientCertificateConfig>,
    /// Whom connections to origins are to be taken for, by host glob; the first that matches holds. Needs a build with the
    /// feature `impersonate`.
    pub fingerprint: Vec<FingerprintRule>,
    /// Upstream proxies by host glob; the first that matches is used.
    pub proxy: Vec<UpstreamProxyRule>,
    /// Hosts reached without an upstream proxy: names (with their subdomains), `.suffix`, addresses, CIDR blocks, `*`,
    /// each with an optional `:port`, as in `NO_PROXY`.
    pub no_proxy: Vec<String>,
    /// Fixed addresses for host names, instead of DNS.
    pub hosts: BTreeMap<String, Vec<std::net::IpAddr>>,
    /// Name servers to ask in place of the system's.
    pub name_servers: Vec<std::net::SocketAddr>,
    /// Resolve the names of origins over HTTPS (RFC 8484): `https://host/path`, or `cloudflare`, `google`, `quad9`. The server's
    /// certificate is verified, and when it does not answer nobody else is asked. Names of the local network (without a
    /// dot, or ending in `.local`) are asked of the system.
    pub dns_over_https: Option<String>,
    /// Open connections to one origin, over all workers; 0: no cap. Requests wait in line for at most `pool_wait`.
    pub max_connections_per_host: usize,
    /// How long a request waits for a connection when the cap is reached.
    pub pool_timeout: HumanDuration,
    /// How long an unused connection is kept.
    pub idle_timeout: HumanDuration,
    /// Unused connections kept to one origin, by each worker.
    pub idle_per_host: usize,
    /// Unused connections kept in all, by each worker; over all workers never more than half of the files that the
    /// system lets us open.
    pub idle_total: usize,
    /// Host globs that are spoken to in HTTP/2 without TLS (prior knowledge). Whoever speaks it in a tunnel is taken to know that
    /// the origin does, and gRPC calls go over it everywhere.
    pub h2c_hosts: Vec<String>,
    /// Host globs that are only spoken to in HTTP/1.1.
    pub http1_hosts: Vec<String>,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            danger_insecure: false,
            danger_insecure_hosts: Vec::new(),
            extra_ca: Vec::new(),
            client_certificate: Vec::new(),
            fingerprint: Vec::new(),
            proxy: Vec::new(),
            no_proxy: Vec::new(),
            hosts: BTreeMap::new(),
            name_servers: Vec::new(),
            dns_over_https: None,
            max_connections_per_host: 0,
            pool_timeout: HumanDuration::from_secs(30),
            idle_timeout: HumanDuration::from_secs(60),
            idle_per_host: 8192,
            idle_total: 8192,
            h2c_hosts: Vec::new(),
            http1_hosts: Vec::new(),
        }
    }
}

/// A certificate shown to origins that ask for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificateConfig {
    /// Host globs.
    pub hosts: Vec<String>,
    /// The certificate, followed by its intermediates (PEM); or a PKCS#12 file, which holds the key too.
    pub certificate: PathBuf,
    /// The private key (PEM); absent with PKCS#12.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// The password of the PKCS#12 file; `env:NAME` and `file:PATH` say where it stands.
    #[serde(default)]
    pub password: Option<String>,
}

impl ClientCertificateConfig {
    /// The files that hold it.
    pub fn files(&self) -> CertificateFiles {
        CertificateFiles::new(self.certificate.clone(), self.key.clone(), self.password.clone())
    }
}

/// Whom connections to some origins are to be taken for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FingerprintRule {
    /// Host globs; `*` for all.
    pub hosts: Vec<String>,
    /// `mirror` (the client that asks), the name of a profile (chrome, edge, android, firefox, safari, ios, okhttp, curl),
    /// or `ja3:` and a JA3 text. `none` keeps our own fingerprint.
    #[serde(rename = "as")]
    pub like: String,
}

/// An upstream proxy, or a chain of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamProxyRule {
    /// Host globs; `*` for all.
    pub hosts: Vec<String>,
    /// The proxies in the order they are passed: `http://user:password@host:port`, `https://…` or `socks5://…`. The whole
    /// URL may be given as `env:NAME` or `file:PATH`. An empty list goes straight to the origin.
    pub via: Vec<String>,
}

/// Caps; 0 stands for no cap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Client connections in all.
    pub connections: usize,
    /// Client connections from one address (one /64 for IPv6).
    pub connections_per_client: usize,
    /// New client connections per second.
    pub accept_rate: u32,
    /// Bytes of a message head.
    pub max_header_bytes: ByteSize,
    /// Bytes of a request line.
    pub request_line_bytes: ByteSize,
    /// Fields in a message head.
    pub max_headers: usize,
    /// Concurrent streams on one HTTP/2 connection of a client.
    pub h2_streams: u32,
    /// Bytes of requests and responses that the process holds in memory at once, in all: bodies that are read whole or
    /// decoded, and the work on them. A request that needs more than is left is answered with 503 and Retry-After.
    pub held_bytes: ByteSize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 20_000,
            connections_per_client: 0,
            accept_rate: 0,
            max_header_bytes: ByteSize(64 << 10),
            request_line_bytes: ByteSize(16 << 10),
            max_headers: 200,
            h2_streams: 256,
            held_bytes: ByteSize(MemoryBudget::DEFAULT_LIMIT),
        }
    }
}

/// Timeouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsConfig {
    /// From a request's first byte to the end of its head.
    pub header_timeout: HumanDuration,
    /// Between requests on a client connection.
    pub idle: HumanDuration,
    /// Between two pieces of a body, either way.
    pub body_idle_timeout: HumanDuration,
    /// A TLS handshake, on either leg.
    pub handshake: HumanDuration,
    /// Name resolution and connecting, upstream proxies included.
    pub connect: HumanDuration,
    /// From the request to the head of the origin's response.
    pub response_header_timeout: HumanDuration,
    /// A tunnel in which nothing moves.
    pub tunnel_idle: HumanDuration,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            header_timeout: HumanDuration::from_secs(30),
            idle: HumanDuration::from_secs(120),
            body_idle_timeout: HumanDuration::from_secs(300),
            handshake: HumanDuration::from_secs(15),
            connect: HumanDuration::from_secs(20),
            response_header_timeout: HumanDuration::from_secs(900),
            tunnel_idle: HumanDuration::from_secs(3600),
        }
    }
}

/// Threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersConfig {
    /// How many; 0: one per processor.
    pub count: usize,
    /// Tie each worker to one processor (Linux).
    pub cpu_affinity: bool,
}
