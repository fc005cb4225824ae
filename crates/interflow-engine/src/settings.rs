//! The configuration, compiled: what a request's way depends on, ready to be asked.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use interflow_flow::{
    Authority, CertificateFiles, Host, Mount, Passthrough, Recorder, Scheme, Stage, TlsVersion, Transport, Way,
};
use interflow_net::egress::dns::{Resolver, ResolverOptions};
use interflow_net::egress::doh::DohServer;
use interflow_net::egress::proxy::UpstreamProxy;
use interflow_net::egress::{Protocol, Route};
use interflow_net::ingress::HttpOptions;
use interflow_net::tls::{Alpn, ClientCertificate, ServerTls, TlsProfile, TlsProfileOptions, pkcs12_to_pem};
use interflow_wire::h1::HeadLimits;
use parking_lot::Mutex;

use crate::access::{AccessRules, Guard, HostGlobs, Users, WebPagePolicy};
use crate::config::{EngineConfig, InterceptMode};
use crate::gateway::Routes;
use crate::likeness::Likenesses;
use crate::loops::Pseudonym;
use crate::no_proxy::NoProxy;

/// What is wrong with a config, and where.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ConfigError {
    /// The key.
    pub place: String,
    /// What is wrong with it.
    pub what: String,
}

impl ConfigError {
    fn at(place: impl Into<String>) -> impl FnOnce(String) -> Self {
        let place = place.into();
        move |what| Self { place, what }
    }
}

/// TLS to an origin as a stage wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsWish {
    /// Any certificate is accepted.
    pub danger: bool,
    /// A client certificate to show.
    pub own: Option<CertificateFiles>,
    /// The only version to speak.
    pub version: Option<TlsVersion>,
}

impl TlsWish {
    /// What a way wishes.
    pub fn of(way: &Way) -> Self {
        Self { danger: way.danger_skip_verify, own: way.client_certificate.clone(), version: way.tls_version }
    }
}

/// A certificate for clients that a stage named, with the protocols offered.
type MadeLeaf = (CertificateFiles, Alpn, Arc<ServerTls>);

/// The client certificates of the configuration, by hosts.
type ClientFiles = Vec<(HostGlobs, CertificateFiles)>;

/// The most profiles, leaves and resolvers that are kept for stages. Rules name a handful of each; who names them without
/// end pays with their preparation.
const MOST_MADE: usize = 64;

/// A config, compiled. A reload makes new settings; flows under way keep theirs.
pub(crate) struct Settings {
    pub config: EngineConfig,
    pub users: Option<Users>,
    pub rules: AccessRules,
    pub guard: Arc<Guard>,
    pub routes: Routes,
    /// Which web pages may use the gateway.
    pub web_pages: WebPagePolicy,
    pub stages: Vec<Arc<dyn Stage>>,
    pub mounts: Vec<Arc<dyn Mount>>,
    pub recorder: Option<Arc<dyn Recorder>>,
    /// Tells of us in `Via`, so that a loop ends.
    pub pseudonym: Pseudonym,
    intercept: HostGlobs,
    never: HostGlobs,
    insecure: HostGlobs,
    h2c: HostGlobs,
    http1: HostGlobs,
    /// What holds for origins that no list names, and for upstream proxies.
    pub tls: Arc<TlsProfile>,
    tls_insecure: Arc<TlsProfile>,
    /// Resolves the names of origins.
    pub resolver: Resolver,
    /// Made for stages that wished something of TLS.
    tls_made: Mutex<Vec<(TlsWish, Arc<TlsProfile>)>>,
    /// Made for stages that named a server of DNS over HTTPS.
    resolvers_made: Mutex<Vec<(String, Resolver)>>,
    /// Made for stages that named a certificate for clients.
    leaves_made: Mutex<Vec<MadeLeaf>>,
    tls_client: Vec<(HostGlobs, Arc<TlsProfile>, Arc<TlsProfile>)>,
    /// The files behind `tls_client`.
    client_certificates: ClientFiles,
    /// Whom connections are to be taken for.
    pub likenesses: Likenesses,
    proxies: Proxies,
    no_proxy: NoProxy,
}

/// The rooms beside the corridor.
#[derive(Clone, Default)]
pub(crate) struct Rooms {
    pub stages: Vec<Arc<dyn Stage>>,
    pub mounts: Vec<Arc<dyn Mount>>,
    pub recorder: Option<Arc<dyn Recorder>>,
    pub pseudonym: Pseudonym,
}

impl Settings {
    pub fn new(config: EngineConfig, own: Vec<SocketAddr>, rooms: Rooms) -> Result<Self, ConfigError> {
        let globs = |place: &str, list: &[String]| HostGlobs::new(list).map_err(ConfigError::at(place));
        let up = &config.upstream;
        let users = config
            .auth
            .users
            .as_deref()
            .map(Users::read)
            .transpose()
            .map_err(|e| ConfigError::at("auth.users")(e.to_string()))?;
        let settings = Self {
            users,
            rules: AccessRules::new(&config.access.rule).map_err(ConfigError::at("access"))?,
            guard: Arc::new(
                Guard::new(config.access.deny_private, config.access.allow_private.clone(), own)
                    .with_unresolved(config.access.allow_unresolved),
            ),
            web_pages: WebPagePolicy::new(&config.gateway).map_err(ConfigError::at("gateway"))?,
            routes: Routes::new(&config.gateway.route).map_err(ConfigError::at("gateway"))?,
            stages: rooms.stages,
            mounts: rooms.mounts,
            recorder: rooms.recorder,
            pseudonym: rooms.pseudonym,
            intercept: globs("intercept.hosts", &config.intercept.hosts)?,
            never: globs("intercept.never", &config.intercept.never)?,
            insecure: globs("upstream.danger_insecure_hosts", &up.danger_insecure_hosts)?,
            h2c: globs("upstream.h2c_hosts", &up.h2c_hosts)?,
            http1: globs("upstream.http1_hosts", &up.http1_hosts)?,
            resolver: resolver(&config)?,
            tls: tls_profile(&config, None, false, None)?,
            tls_insecure: tls_profile(&config, None, true, None)?,
            tls_made: Mutex::default(),
            resolvers_made: Mutex::default(),
            leaves_made: Mutex::default(),
            tls_client: client_profiles(&config)?,
            client_certificates: client_certificates(&config)?,
            likenesses: Likenesses::new(&up.fingerprint)?,
            proxies: proxies(&config)?,
            no_proxy: NoProxy::new(&up.no_proxy).map_err(ConfigError::at("upstream.no_proxy"))?,
            config,
        };
        let own = settings.tls_client.iter().flat_map(|(_, v, u)| [v, u]);
        settings.likenesses.prepare(own.chain([&settings.tls, &settings.tls_insecure]))?;
        Ok(settings)
    }

    /// Reads the platform's roots, which takes some milliseconds, before a request has to wait for them.
    pub fn warm(&self) {
        let profile = Arc::clone(&self.tls);
        std::thread::spawn(move || profile.warm());
    }

    /// Why the config passes TLS to a host through uninspected, if it does: a host that may be known by several names, those
    /// of its tunnel and of its TLS.
    pub fn passthrough(&self, names: &[&Host]) -> Option<Passthrough> {
        if names.iter().any(|host| self.never.matches(host)) {
            return Some(Passthrough::Excluded);
        }
        match self.config.intercept.mode {
            InterceptMode::All => None,
            InterceptMode::None => Some(Passthrough::InterceptionOff),
            InterceptMode::Listed if names.iter().any(|host| self.intercept.matches(host)) => None,
            InterceptMode::Listed => Some(Passthrough::NotListed),
        }
    }

    /// Whether the name in a hello may change what happens to a tunnel that passes through otherwise.
    pub fn names_matter(&self) -> bool {
        !self.rules.is_empty() || !self.stages.is_empty() || self.config.intercept.mode == InterceptMode::Listed
    }

    /// Whether nothing but HTTP/1.1 is spoken with this origin.
    pub fn speaks_http1_alone(&self, host: &Host) -> bool {
        self.http1.matches(host)
    }

    /// The way to an origin. `dial` names the address to connect to when it is not the authority's own.
    pub fn route(&self, scheme: Scheme, authority: &Authority, dial: Option<Authority>) -> Route {
        let host = &authority.host;
        let protocol = if scheme == Scheme::Http && self.h2c.matches(host) {
            Protocol::Http2
        } else if scheme == Scheme::Http || self.http1.matches(host) {
            Protocol::Http1
        } else {
            Protocol::Auto
        };
        Route {
            scheme,
            authority: authority.clone(),
            dial,
            via: self.via(authority),
            protocol,
            tls: self.likenesses.dressed(host, self.tls_for(host)),
            partition: 0,
            names: None,
            connect_via: self.pseudonym.connect_via(None),
        }
    }

    /// The same for a client's requests: what it speaks is spoken to the origin too, so that nothing is translated. Behind
    /// the gateway port there is no origin that the client knows, and what carries many requests at once is preferred.
    pub fn route_of(
        &self,
        transport: Transport,
        scheme: Scheme,
        authority: &Authority,
        dial: Option<Authority>,
    ) -> Route {
        let mut route = self.route(scheme, authority, dial);
        if route.protocol == Protocol::Auto && !matches!(transport, Transport::Gateway | Transport::Internal) {
            route.protocol = Protocol::Same;
        }
        route
    }

    /// TLS to a host as a stage wants it.
    ///
    /// # Errors
    /// A certificate or key that cannot be read.
    pub fn tls_as(&self, host: &Host, mut wish: TlsWish) -> Result<Arc<TlsProfile>, String> {
        wish.danger |= self.config.upstream.danger_insecure || self.insecure.matches(host);
        if wish.own.is_none() {
            if wish.version.is_none() {
                return Ok(if wish.danger { self.tls_between(host).1 } else { self.tls_between(host).0 });
            }
            // The certificate that the configuration has for this host goes along.
            let configured = self.client_certificates.iter().find(|(globs, _)| globs.matches(host));
            wish.own = configured.map(|(_, pair)| pair.clone());
        }
        let mut made = self.tls_made.lock();
        if let Some((_, profile)) = made.iter().find(|(w, _)| *w == wish) {
            return Ok(Arc::clone(profile));
        }
        let shown = match &wish.own {
            Some(files) => Some(pair(files)?),
            None => None,
        };
        let profile = tls_profile(&self.config, shown, wish.danger, wish.version).map_err(|e| e.to_string())?;
        keep(&mut made, (wish, Arc::clone(&profile)));
        Ok(profile)
    }

    /// The resolver that asks this server of DNS over HTTPS, which is verified as origins are.
    ///
    /// # Errors
    /// A text that names no server.
    pub fn resolver_by(&self, server: &str) -> Result<Resolver, String> {
        let mut made = self.resolvers_made.lock();
        if let Some((_, resolver)) = made.iter().find(|(s, _)| s == server) {
            return Ok(resolver.clone());
        }
        let https = Some(DohServer::parse(server, Arc::clone(&self.tls))?);
        let resolver = Resolver::new(ResolverOptions { https, ..overrides(&self.config) });
        keep(&mut made, (server.to_owned(), resolver.clone()));
        Ok(resolver)
    }

    /// A certificate of the owner's for clients, in place of a leaf.
    ///
    /// # Errors
    /// Files that cannot be read or do not belong together.
    pub fn leaf_of(&self, files: &CertificateFiles, alpn: Alpn) -> Result<Arc<ServerTls>, String> {
        let mut made = self.leaves_made.lock();
        if let Some((.., tls)) = made.iter().find(|(f, a, _)| f == files && *a == alpn) {
            return Ok(Arc::clone(tls));
        }
        let ClientCertificate { chain_pem, key_pem } = pair(files)?;
        let tls = ServerTls::from_pem(&chain_pem, &key_pem).map_err(|e| e.to_string())?;
        let tls = Arc::new(tls.with_alpn(alpn));
        keep(&mut made, (files.clone(), alpn, Arc::clone(&tls)));
        Ok(tls)
    }

    fn via(&self, authority: &Authority) -> Arc<[UpstreamProxy]> {
        if self.proxies.is_empty() || self.no_proxy.matches(authority) {
            return Arc::from([]);
        }
        let found = self.proxies.iter().find(|(globs, _)| globs.matches(&authority.host));
        found.map_or_else(|| Arc::from([]), |(_, via)| Arc::clone(via))
    }

    /// How this host is verified, and what is shown to it.
    pub fn tls_for(&self, host: &Host) -> Arc<TlsProfile> {
        let insecure = self.config.upstream.danger_insecure || self.insecure.matches(host);
        let (verified, unverified) = self.tls_between(host);
        if insecure { unverified } else { verified }
    }

    /// TLS with certificates verified, and without.
    fn tls_between(&self, host: &Host) -> (Arc<TlsProfile>, Arc<TlsProfile>) {
        let own = self.tls_client.iter().find(|(globs, ..)| globs.matches(host));
        let (verified, unverified) = own.map_or((&self.tls, &self.tls_insecure), |(_, v, u)| (v, u));
        (Arc::clone(verified), Arc::clone(unverified))
    }

    pub fn head_limits(&self) -> HeadLimits {
        let l = &self.config.limits;
        HeadLimits {
            max_bytes: l.head_bytes.0 as usize,
            max_fields: l.head_fields,
            max_line: l.request_line_bytes.0 as usize,
        }
    }

    /// The bounds of client connections that speak HTTP: on the gateway port, or on any other.
    pub fn http_options(&self, gateway: bool) -> HttpOptions {
        let t = &self.config.timeouts;
        let keep_half_closed =
            if gateway { self.config.gateway.keep_half_closed } else { self.config.proxy.keep_half_closed };
        HttpOptions {
            head: self.head_limits(),
            head_timeout: t.head.0,
            idle_timeout: t.idle.0,
            body_timeout: t.body.0,
            write_timeout: t.body.0,
            keep_half_closed,
            max_streams: self.config.limits.h2_streams,
            ..HttpOptions::default()
        }
    }
}

/// Says what is wrong with a config, files that it names included, without starting anything.
///
/// # Errors
/// The first thing that is wrong, with its key.
pub fn check(config: &EngineConfig) -> Result<(), ConfigError> {
    crate::worker::PortTls::load(config)?;
    if !(2..=90).contains(&config.intercept.leaf_days) {
        return Err(ConfigError::at("intercept.leaf_days")("a leaf lives 2 to 90 days".to_owned()));
    }
    Settings::new(config.clone(), Vec::new(), Rooms::default()).map(drop)
}

fn keep<T>(made: &mut Vec<T>, one: T) {
    if made.len() >= MOST_MADE {
        made.clear();
    }
    made.push(one);
}

fn overrides(config: &EngineConfig) -> ResolverOptions {
    let names = config.upstream.resolve.iter();
    ResolverOptions {
        overrides: names.map(|(n, a)| (n.to_ascii_lowercase().into(), a.clone())).collect(),
        name_servers: config.upstream.name_servers.clone(),
        ..ResolverOptions::default()
    }
}

/// Who resolves the names of origins.
fn resolver(config: &EngineConfig) -> Result<Resolver, ConfigError> {
    let place = "upstream.dns_over_https";
    let https = match config.upstream.dns_over_https.as_deref() {
        None => None,
        Some(_) if !config.upstream.name_servers.is_empty() => {
            return Err(ConfigError::at(place)("`upstream.name_servers` stands beside it: choose one of them".into()));
        }
        Some(server) => {
            let tls = tls_profile(config, None, false, None)?;
            Some(DohServer::parse(server, tls).map_err(ConfigError::at(place))?)
        }
    };
    Ok(Resolver::new(ResolverOptions { https, ..overrides(config) }))
}

fn client_certificates(config: &EngineConfig) -> Result<ClientFiles, ConfigError> {
    let one = |c: &crate::config::ClientCertificate| {
        let globs = HostGlobs::new(&c.hosts).map_err(ConfigError::at("upstream.client_certificate"))?;
        Ok((globs, c.files()))
    };
    config.upstream.client_certificate.iter().map(one).collect()
}

fn tls_profile(
    config: &EngineConfig,
    client: Option<ClientCertificate>,
    danger: bool,
    version: Option<TlsVersion>,
) -> Result<Arc<TlsProfile>, ConfigError> {
    let options = TlsProfileOptions {
        extra_ca_files: config.upstream.extra_ca.clone(),
        client_certificate: client,
        danger_accept_invalid: danger,
        version,
        ..TlsProfileOptions::default()
    };
    TlsProfile::new(options).map_err(|e| ConfigError::at("upstream.extra_ca")(e.to_string()))
}

type ClientProfiles = Vec<(HostGlobs, Arc<TlsProfile>, Arc<TlsProfile>)>;

fn client_profiles(config: &EngineConfig) -> Result<ClientProfiles, ConfigError> {
    let one = |(i, c): (usize, &crate::config::ClientCertificate)| {
        let place = format!("upstream.client_certificate[{i}]");
        let at = || ConfigError::at(place.clone());
        let globs = HostGlobs::new(&c.hosts).map_err(at())?;
        let shown = pair(&c.files()).map_err(at())?;
        let verified = tls_profile(config, Some(shown.clone()), false, None).map_err(|e| at()(e.what))?;
        let unverified = tls_profile(config, Some(shown), true, None).map_err(|e| at()(e.what))?;
        Ok((globs, verified, unverified))
    };
    config.upstream.client_certificate.iter().enumerate().map(one).collect()
}

type Proxies = Vec<(HostGlobs, Arc<[UpstreamProxy]>)>;

fn proxies(config: &EngineConfig) -> Result<Proxies, ConfigError> {
    let one = |(i, rule): (usize, &crate::config::UpstreamProxyRule)| {
        let at = || ConfigError::at(format!("upstream.proxy[{i}]"));
        let globs = HostGlobs::new(&rule.hosts).map_err(at())?;
        let parse = |text: &String| {
            let text = secret(text)?;
            text.parse::<UpstreamProxy>().map_err(|e| e.to_string())
        };
        let via = rule.via.iter().map(parse).collect::<Result<Vec<_>, String>>().map_err(at())?;
        Ok((globs, via.into()))
    };
    config.upstream.proxy.iter().enumerate().map(one).collect()
}

/// What is wrong with a certificate and its key, before anybody is shown it.
///
/// # Errors
/// Files that cannot be read or do not belong together.
pub fn check_certificate(files: &CertificateFiles) -> Result<(), String> {
    pair(files)?.check()
}

/// A certificate and its key.
fn pair(files: &CertificateFiles) -> Result<ClientCertificate, String> {
    let (chain_pem, key_pem) = match files {
        CertificateFiles::Pem { chain, key } => (read(chain)?, read(key)?),
        CertificateFiles::Pkcs12 { file, password } => {
            let (data, password) = (read(file)?, secret(password)?);
            let begun = data.trim_ascii_start().starts_with(b"-----BEGIN");
            if begun {
                return Err(format!("{} is PEM: name the file of its key too, by `key`", file.display()));
            }
            pkcs12_to_pem(&data, &password).map_err(|e| format!("{}: {e}", file.display()))?
        }
    };
    Ok(ClientCertificate { chain_pem, key_pem })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
}

/// A value that may stand elsewhere: `env:NAME` or `file:PATH`.
fn secret(text: &str) -> Result<String, String> {
    if let Some(name) = text.strip_prefix("env:") {
        return std::env::var(name).map_err(|_| format!("the environment variable {name} is not set"));
    }
    if let Some(path) = text.strip_prefix("file:") {
        let read = fs::read_to_string(path).map_err(|e| format!("{path} cannot be read: {e}"))?;
        return Ok(read.trim().to_owned());
    }
    Ok(text.to_owned())
}
