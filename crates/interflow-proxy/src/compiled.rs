//! The compiled configuration: everything the request pipeline looks up per request, prepared once per reload.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use hashlink::LruCache;
use interflow_codec::h1::HeadLimits;
use interflow_files::resolve_secret_ref;
use interflow_net::egress::dns::{DnsResolver, ResolverOptions};
use interflow_net::egress::doh::DohServer;
use interflow_net::egress::proxy::UpstreamProxy;
use interflow_net::egress::{UpstreamProtocol, UpstreamRoute};
use interflow_net::ingress::HttpOptions;
use interflow_net::tls::{Alpn, ClientCertificate, ServerTls, TlsProfile, TlsProfileOptions, pkcs12_to_pem};
use interflow_types::units::HumanDuration;
use interflow_types::{
    Authority, CertificateFiles, EntryKind, GatewayMount, Host, HostPatterns, Passthrough, Recorder, Scheme, Stage,
    TlsVersion, UpstreamOverrides,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::build_cache::BuildCache;
use crate::config::{ConfigError, InterceptConfig, InterceptMode, ProxyServerConfig, TimeoutsConfig};
use crate::downstream::access::{
    AccessRules, Login, PrivateAddressFilter, UnresolvedNames, UserDatabase, WebPagePolicy,
};
use crate::downstream::gateway::GatewayRoutes;
use crate::http::loop_detection::ViaPseudonym;
use crate::listener_tls::{ListenerTls, read_file};
use crate::upstream::fingerprint::FingerprintRules;

/// A stage's overrides of the TLS settings for one upstream connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TlsOverride {
    /// Accept any certificate.
    pub danger: bool,
    /// The client certificate to present to the origin (mTLS), in place of a configured one.
    pub own: Option<CertificateFiles>,
    pub version: Option<TlsVersion>,
}

impl TlsOverride {
    pub fn from_overrides(overrides: &UpstreamOverrides) -> Self {
        Self {
            danger: overrides.danger_skip_verify,
            own: overrides.client_certificate.clone(),
            version: overrides.tls_version,
        }
    }
}

/// The client certificate for some hosts, with a verifying and a non-verifying profile.
struct HostClientCertificate {
    hosts: HostPatterns,
    files: CertificateFiles,
    verified: Arc<TlsProfile>,
    unverified: Arc<TlsProfile>,
}

/// Bound on each cache of profiles, leaves and resolvers prepared for stages, of which rules usually name a handful.
const MAX_CACHED: usize = 64;

/// A compiled configuration. A reload compiles a new one; flows in progress keep theirs.
pub(crate) struct CompiledConfig {
    pub config: ProxyServerConfig,
    pub users: Option<UserDatabase>,
    pub rules: AccessRules,
    pub guard: Arc<PrivateAddressFilter>,
    pub routes: GatewayRoutes,
    pub web_pages: WebPagePolicy,
    pub stages: Vec<Arc<dyn Stage>>,
    pub mounts: Vec<Arc<dyn GatewayMount>>,
    pub recorder: Option<Arc<dyn Recorder>>,
    pub pseudonym: ViaPseudonym,
    // `intercept.hosts` and `intercept.exclude`; the exclusion takes precedence over the mode and the list.
    intercept: HostPatterns,
    never: HostPatterns,
    insecure: HostPatterns,
    h2c: HostPatterns,
    http1: HostPatterns,
    // Two profiles for origins without a client certificate: one verifies the origin, the other accepts anything.
    pub tls: Arc<TlsProfile>,
    tls_insecure: Arc<TlsProfile>,
    pub resolver: DnsResolver,
    /// Profiles, resolvers and server certificates that stages selected, built once and cached.
    tls_made: BuildCache<TlsOverride, Arc<TlsProfile>>,
    resolvers_made: Mutex<LruCache<String, DnsResolver>>,
    leaves_made: BuildCache<(CertificateFiles, Alpn), Arc<ServerTls>>,
    client_certificates: Vec<HostClientCertificate>,
    pub fingerprints: FingerprintRules,
    proxies: ProxiesByHost,
    no_proxy: HostPatterns,
}

/// What a server is built from besides its configuration. It outlives reloads, which combine it with a new one.
#[derive(Clone, Default)]
pub(crate) struct ServerComponents {
    pub stages: Vec<Arc<dyn Stage>>,
    pub mounts: Vec<Arc<dyn GatewayMount>>,
    pub recorder: Option<Arc<dyn Recorder>>,
    pub pseudonym: ViaPseudonym,
}

impl CompiledConfig {
    /// Whether a client that logged in earlier may go on under this configuration.
    pub fn accepts_login(&self, login: &Login) -> bool {
        login.is_valid(self.users.as_ref(), self.config.auth.accept_unverified_names)
    }

    pub fn new(
        config: ProxyServerConfig,
        own: Vec<SocketAddr>,
        components: ServerComponents,
    ) -> Result<Self, ConfigError> {
        check_timeouts(&config.timeouts)?;
        let hosts = |place: &str, list: &[String]| HostPatterns::parse(list).map_err(ConfigError::at_key(place));
        let up = &config.upstream;
        let users = config.auth.users.as_deref().map(UserDatabase::read).transpose();
        let settings = Self {
            users: users.map_err(ConfigError::at_key("auth.users"))?,
            rules: AccessRules::new(&config.access.rule).map_err(ConfigError::at_key("access"))?,
            guard: Arc::new(
                PrivateAddressFilter::new(config.access.deny_private, config.access.allow_private.clone(), own)
                    .with_unresolved(match config.access.allow_unresolved {
                        true => UnresolvedNames::All,
                        false => UnresolvedNames::Refused,
                    }),
            ),
            web_pages: WebPagePolicy::new(&config.gateway).map_err(ConfigError::at_key("gateway"))?,
            routes: GatewayRoutes::new(&config.gateway.route).map_err(ConfigError::at_key("gateway"))?,
            stages: components.stages,
            mounts: components.mounts,
            recorder: components.recorder,
            pseudonym: components.pseudonym,
            intercept: hosts("intercept.hosts", &config.intercept.hosts)?,
            never: hosts("intercept.exclude", &config.intercept.exclude)?,
            insecure: hosts("upstream.danger_insecure_hosts", &up.danger_insecure_hosts)?,
            h2c: hosts("upstream.h2c_hosts", &up.h2c_hosts)?,
            http1: hosts("upstream.http1_hosts", &up.http1_hosts)?,
            resolver: resolver(&config)?,
            tls: tls_profile(&up.extra_ca, None, false, None)?,
            tls_insecure: tls_profile(&up.extra_ca, None, true, None)?,
            tls_made: BuildCache::new(MAX_CACHED),
            resolvers_made: Mutex::new(LruCache::new(MAX_CACHED)),
            leaves_made: BuildCache::new(MAX_CACHED),
            client_certificates: client_certificates(&config)?,
            fingerprints: FingerprintRules::new(&up.fingerprint)?,
            proxies: proxies(&config)?,
            no_proxy: hosts("upstream.no_proxy", &up.no_proxy)?,
            config,
        };
        // Fingerprints are compiled for every profile now: a bad one must fail the reload, not a client's handshake.
        let own = settings.client_certificates.iter().flat_map(|own| [&own.verified, &own.unverified]);
        settings.fingerprints.prepare(own.chain([&settings.tls, &settings.tls_insecure]))?;
        Ok(settings)
    }

    /// Loads the platform's trust roots (some milliseconds), so that no request has to wait for it.
    pub fn preload_roots(&self) {
        let profile = Arc::clone(&self.tls);
        std::thread::spawn(move || profile.preload());
    }

    /// Why the configuration passes TLS to a host through without inspection, if it does. `names` are all names of
    /// the host: the tunnel's authority and the SNI.
    pub fn passthrough(&self, names: &[&Host], port: u16) -> Option<Passthrough> {
        // A client may CONNECT to an address and put the name into SNI only, so an exclusion applies to either.
        if names.iter().any(|host| self.never.matches(host, port)) {
            return Some(Passthrough::Excluded);
        }
        match self.config.intercept.mode {
            InterceptMode::All => None,
            InterceptMode::None => Some(Passthrough::InterceptionOff),
            InterceptMode::Listed if names.iter().any(|host| self.intercept.matches(host, port)) => None,
            InterceptMode::Listed => Some(Passthrough::NotListed),
        }
    }

    /// Whether the SNI could change the decision for a tunnel that would otherwise be passed through.
    pub fn needs_tls_name(&self) -> bool {
        !self.rules.is_empty() || !self.stages.is_empty() || self.config.intercept.mode == InterceptMode::Listed
    }

    pub fn is_http1_only(&self, to: &Authority) -> bool {
        self.http1.matches(&to.host, to.port)
    }

    /// The route to an origin. `dial` is the address to connect to when it differs from the authority.
    pub fn route(&self, scheme: Scheme, authority: &Authority, dial: Option<Authority>) -> UpstreamRoute {
        // Without TLS there is no ALPN to negotiate HTTP/2 with, so plain HTTP uses it by prior knowledge only.
        let protocol = if scheme == Scheme::Http && self.h2c.matches(&authority.host, authority.port) {
            UpstreamProtocol::Http2
        } else if scheme == Scheme::Http || self.is_http1_only(authority) {
            UpstreamProtocol::Http1
        } else {
            UpstreamProtocol::Auto
        };
        let tls = self.fingerprints.profile_for(authority, self.tls_for(authority));
        UpstreamRoute {
            connect_to: dial,
            via: self.via(authority),
            protocol,
            connect_via: self.pseudonym.connect_via(None),
            ..UpstreamRoute::new(scheme, authority.clone(), tls)
        }
    }

    /// The route for a client's request. The client's HTTP version is used to the origin too, to avoid translation,
    /// except on the gateway port, where a multiplexing protocol is preferred.
    pub fn route_of(
        &self,
        transport: EntryKind,
        scheme: Scheme,
        authority: &Authority,
        dial: Option<Authority>,
    ) -> UpstreamRoute {
        let mut route = self.route(scheme, authority, dial);
        if route.protocol == UpstreamProtocol::Auto && !matches!(transport, EntryKind::Gateway | EntryKind::Internal) {
            route.protocol = UpstreamProtocol::MatchClient;
        }
        route
    }

    /// The TLS profile for a host with a stage's overrides.
    ///
    /// # Errors
    /// A certificate or key that cannot be read.
    pub async fn tls_with(&self, to: &Authority, mut overrides: TlsOverride) -> Result<Arc<TlsProfile>, String> {
        // A stage can turn verification off, but not on again for a host that is configured as insecure.
        overrides.danger |= self.config.upstream.danger_insecure || self.insecure.matches(&to.host, to.port);
        if overrides.own.is_none() {
            if overrides.version.is_none() {
                return Ok(if overrides.danger { self.tls_pair(to).1 } else { self.tls_pair(to).0 });
            }
            // The configured client certificate for this host still applies.
            overrides.own = self.client_certificate(to).map(|own| own.files.clone());
        }
        let (key, extra_ca) = (overrides.clone(), self.config.upstream.extra_ca.clone());
        let build = move || {
            let certificate = overrides.own.as_ref().map(read_client_certificate).transpose()?;
            let made = tls_profile(&extra_ca, certificate, overrides.danger, overrides.version);
            let profile = made.map_err(|e| e.to_string())?;
            profile.preload();
            Ok(profile)
        };
        self.tls_made.get_or_build(key, build).await
    }

    /// The DNS-over-HTTPS resolver for `server`, whose certificate is verified as an origin's is.
    ///
    /// # Errors
    /// `server` is not a valid server.
    pub fn resolver_for(&self, server: &str) -> Result<DnsResolver, String> {
        if let Some(resolver) = self.resolvers_made.lock().get(server) {
            return Ok(resolver.clone());
        }
        // The lock is not held meanwhile: two concurrent callers may both build a resolver, and the later one is kept.
        let https = Some(DohServer::parse(server, Arc::clone(&self.tls))?);
        let resolver = DnsResolver::new(ResolverOptions { https, ..resolver_options(&self.config) });
        self.resolvers_made.lock().insert(server.to_owned(), resolver.clone());
        Ok(resolver)
    }

    /// Server TLS with an operator's certificate in place of an issued leaf.
    ///
    /// # Errors
    /// Files that cannot be read or do not belong together.
    pub async fn leaf_from_files(&self, files: &CertificateFiles, alpn: Alpn) -> Result<Arc<ServerTls>, String> {
        let (key, files) = ((files.clone(), alpn), files.clone());
        let build = move || {
            let ClientCertificate { chain_pem, key_pem } = read_client_certificate(&files)?;
            let tls = ServerTls::from_pem(&chain_pem, &key_pem).map_err(|e| e.to_string())?;
            Ok(Arc::new(tls.with_alpn(alpn)))
        };
        self.leaves_made.get_or_build(key, build).await
    }

    fn via(&self, authority: &Authority) -> Arc<[UpstreamProxy]> {
        if self.proxies.is_empty() || self.no_proxy.matches(&authority.host, authority.port) {
            return Arc::from([]);
        }
        let proxy = self.proxies.iter().find(|(hosts, _)| hosts.matches(&authority.host, authority.port));
        proxy.map_or_else(|| Arc::from([]), |(_, via)| Arc::clone(via))
    }

    /// The TLS profile for a host: its client certificate, and verification as configured. The caller applies the
    /// fingerprint.
    pub fn tls_for(&self, to: &Authority) -> Arc<TlsProfile> {
        let insecure = self.config.upstream.danger_insecure || self.insecure.matches(&to.host, to.port);
        let (verified, unverified) = self.tls_pair(to);
        if insecure { unverified } else { verified }
    }

    /// TLS profiles with and without certificate verification.
    fn tls_pair(&self, to: &Authority) -> (Arc<TlsProfile>, Arc<TlsProfile>) {
        let own = self.client_certificate(to).map(|own| (&own.verified, &own.unverified));
        let (verified, unverified) = own.unwrap_or((&self.tls, &self.tls_insecure));
        (Arc::clone(verified), Arc::clone(unverified))
    }

    fn client_certificate(&self, to: &Authority) -> Option<&HostClientCertificate> {
        self.client_certificates.iter().find(|own| own.hosts.matches(&to.host, to.port))
    }

    pub fn head_limits(&self) -> HeadLimits {
        let l = &self.config.limits;
        HeadLimits {
            max_bytes: l.max_header_bytes.0 as usize,
            max_fields: l.max_headers,
            max_line: l.request_line_bytes.0 as usize,
        }
    }

    /// The limits of responses, which browsers take at sizes that no server takes of requests (256 KiB).
    pub fn response_head_limits(&self) -> HeadLimits {
        let request = self.head_limits();
        HeadLimits {
            max_bytes: request.max_bytes.saturating_mul(4),
            max_fields: request.max_fields.saturating_mul(4),
            ..request
        }
    }

    /// HTTP limits and timeouts for client connections on the gateway port or on any other.
    pub fn http_options(&self, gateway: bool) -> HttpOptions {
        let t = &self.config.timeouts;
        let keep_half_closed =
            if gateway { self.config.gateway.keep_half_closed } else { self.config.proxy.keep_half_closed };
        HttpOptions {
            head: self.head_limits(),
            head_timeout: t.header_timeout.0,
            idle_timeout: t.idle.0,
            body_timeout: t.body_idle_timeout.0,
            // A client that stops reading stalls the body just as one that stops sending, so one key bounds both.
            write_timeout: t.body_idle_timeout.0,
            keep_half_closed,
            max_streams: self.config.limits.h2_streams,
            ..HttpOptions::default()
        }
    }
}

/// Checks a configuration, including the files it names, without starting anything.
///
/// # Errors
/// The first invalid value, with its key.
pub fn check(config: &ProxyServerConfig) -> Result<(), ConfigError> {
    ListenerTls::load(config)?;
    if !(2..=90).contains(&config.intercept.leaf_validity_days) {
        let what = "the validity of leaf certificates must be 2 to 90 days";
        return Err(ConfigError::at_key("intercept.leaf_validity_days")(what));
    }
    check_ca(&config.intercept)?;
    if config.workers.count > MAX_WORKERS {
        return Err(ConfigError::at_key("workers.count")(format!("at most {MAX_WORKERS} worker threads")));
    }
    check_listeners(config, None)?;
    CompiledConfig::new(config.clone(), Vec::new(), ServerComponents::default()).map(drop)
}

/// Requests would time out before they begin.
fn check_timeouts(timeouts: &TimeoutsConfig) -> Result<(), ConfigError> {
    let all = serde_json::to_value(timeouts).unwrap_or_default();
    let zero = all.as_object().into_iter().flatten().find(|(_, time)| **time == json!(HumanDuration::default()));
    let what = "0 leaves no time at all; set at least 1ms";
    zero.map_or(Ok(()), |(key, _)| Err(ConfigError::at_key(format!("timeouts.{key}"))(what)))
}

/// Each worker is a thread with descriptors of its own for every listener.
const MAX_WORKERS: usize = 1024;

/// No address is listened on twice, that of the admin port included.
///
/// # Errors
/// The second of the two, with its key.
pub fn check_listeners(config: &ProxyServerConfig, admin: Option<SocketAddr>) -> Result<(), ConfigError> {
    let (proxy, gateway) = (&config.proxy, &config.gateway);
    let keyed = |key: &'static str, addresses: &[SocketAddr]| addresses.iter().map(|a| (key, *a)).collect::<Vec<_>>();
    let reverse: Vec<SocketAddr> = proxy.reverse.iter().map(|r| r.listen).collect();
    let all = [
        keyed("proxy.listen", &proxy.listen),
        keyed("gateway.listen", &gateway.listen),
        keyed("proxy.transparent", &proxy.transparent),
        keyed("proxy.reverse", &reverse),
        keyed("admin.listen", admin.as_slice()),
    ]
    .concat();
    // All addresses of a family contain each one of it.
    let contains = |all: &SocketAddr, one: &SocketAddr| all.ip().is_unspecified() && all.is_ipv4() == one.is_ipv4();
    let overlap = |a: &SocketAddr, b: &SocketAddr| a.port() == b.port() && (a == b || contains(a, b) || contains(b, a));
    for (i, (key, address)) in all.iter().enumerate().filter(|(_, (_, address))| address.port() != 0) {
        if let Some((other, taken)) = all[..i].iter().find(|(_, earlier)| overlap(earlier, address)) {
            let what = format!("{other} listens on {taken} already: use another port than that of {address}");
            return Err(ConfigError::at_key(*key)(what));
        }
    }
    Ok(())
}

/// A CA of the configuration has both halves, and neither is written into the configuration itself, which others may read.
fn check_ca(config: &InterceptConfig) -> Result<(), ConfigError> {
    let halves = [("intercept.ca_certificate", &config.ca_certificate), ("intercept.ca_key", &config.ca_key)];
    for ((key, value), (other, _)) in [(halves[0], halves[1]), (halves[1], halves[0])] {
        match value {
            None if config.ca_certificate.is_some() || config.ca_key.is_some() => {
                return Err(ConfigError::at_key(key)(format!("it is needed, since {other} is set")));
            }
            Some(text) if !text.starts_with("file:") && !text.starts_with("env:") => {
                return Err(ConfigError::at_key(key)("it must be file:PATH or env:NAME"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn resolver_options(config: &ProxyServerConfig) -> ResolverOptions {
    let names = config.upstream.hosts.iter();
    ResolverOptions {
        overrides: names.map(|(n, a)| (n.to_ascii_lowercase().into(), a.clone())).collect(),
        name_servers: config.upstream.name_servers.clone(),
        ..ResolverOptions::default()
    }
}

/// The resolver for names of origins.
fn resolver(config: &ProxyServerConfig) -> Result<DnsResolver, ConfigError> {
    let key = "upstream.dns_over_https";
    let https = match config.upstream.dns_over_https.as_deref() {
        None => None,
        Some(_) if !config.upstream.name_servers.is_empty() => {
            return Err(ConfigError::at_key(key)("conflicts with `upstream.name_servers`: set only one of them"));
        }
        Some(server) => {
            let tls = tls_profile(&config.upstream.extra_ca, None, false, None)?;
            Some(DohServer::parse(server, tls).map_err(ConfigError::at_key(key))?)
        }
    };
    Ok(DnsResolver::new(ResolverOptions { https, ..resolver_options(config) }))
}

fn tls_profile(
    extra_ca: &[PathBuf],
    client: Option<ClientCertificate>,
    danger: bool,
    version: Option<TlsVersion>,
) -> Result<Arc<TlsProfile>, ConfigError> {
    let options = TlsProfileOptions {
        extra_ca_files: extra_ca.to_vec(),
        client_certificate: client,
        danger_accept_invalid: danger,
        version,
        ..TlsProfileOptions::default()
    };
    TlsProfile::new(options).map_err(ConfigError::at_key("upstream.extra_ca"))
}

fn client_certificates(config: &ProxyServerConfig) -> Result<Vec<HostClientCertificate>, ConfigError> {
    let one = |(i, c): (usize, &crate::config::ClientCertificateConfig)| {
        let key = format!("upstream.client_certificate[{i}]");
        let hosts = HostPatterns::parse(&c.hosts).map_err(ConfigError::at_key(&key))?;
        let files = c.files();
        let certificate = read_client_certificate(&files).map_err(ConfigError::at_key(&key))?;
        let profile = |danger| {
            let profile = tls_profile(&config.upstream.extra_ca, Some(certificate.clone()), danger, None);
            profile.map_err(|e| ConfigError { place: key.clone(), ..e })
        };
        let (verified, unverified) = (profile(false)?, profile(true)?);
        Ok(HostClientCertificate { hosts, files, verified, unverified })
    };
    config.upstream.client_certificate.iter().enumerate().map(one).collect()
}

type ProxiesByHost = Vec<(HostPatterns, Arc<[UpstreamProxy]>)>;

fn proxies(config: &ProxyServerConfig) -> Result<ProxiesByHost, ConfigError> {
    let one = |(i, rule): (usize, &crate::config::UpstreamProxyRule)| {
        let key = format!("upstream.proxy[{i}]");
        let hosts = HostPatterns::parse(&rule.hosts).map_err(ConfigError::at_key(&key))?;
        let parse = |text: &String| {
            let text = resolve_secret_ref(text)?;
            text.parse::<UpstreamProxy>().map_err(|e| e.to_string())
        };
        let via = rule.via.iter().map(parse).collect::<Result<Vec<_>, String>>().map_err(ConfigError::at_key(&key))?;
        Ok((hosts, via.into()))
    };
    config.upstream.proxy.iter().enumerate().map(one).collect()
}

/// Checks that a certificate and its key can be read and belong together.
///
/// # Errors
/// They cannot be read or do not match.
pub fn check_certificate(files: &CertificateFiles) -> Result<(), String> {
    read_client_certificate(files)?.check()
}

fn read_client_certificate(files: &CertificateFiles) -> Result<ClientCertificate, String> {
    let (chain_pem, key_pem) = match files {
        CertificateFiles::Pem { chain, key } => (read_file(chain)?, read_file(key)?),
        CertificateFiles::Pkcs12 { file, password } => {
            let (data, password) = (read_file(file)?, resolve_secret_ref(password)?);
            let begun = data.trim_ascii_start().starts_with(b"-----BEGIN");
            // A likely mistake, which the error of a PKCS#12 parser would not explain.
            if begun {
                return Err(format!("{} is PEM: also set `key` to the file of its private key", file.display()));
            }
            pkcs12_to_pem(&data, &password).map_err(|e| format!("{}: {e}", file.display()))?
        }
    };
    Ok(ClientCertificate { chain_pem, key_pem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_listened_on_once() {
        let mut config = ProxyServerConfig::default();
        config.proxy.listen = vec!["127.0.0.1:0".parse().unwrap(), "127.0.0.1:7070".parse().unwrap()];
        config.gateway.listen = vec!["127.0.0.1:0".parse().unwrap(), "127.0.0.1:7071".parse().unwrap()];
        check(&config).unwrap();
        config.gateway.listen.push("127.0.0.1:7070".parse().unwrap());
        let error = check(&config).unwrap_err().to_string();
        assert!(error.contains("gateway.listen: proxy.listen listens on 127.0.0.1:7070 already"), "{error}");
    }
}
