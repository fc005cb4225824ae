//! A client connection, or the decrypted inside of its tunnel: who sends the requests, and where origin-form requests
//! go.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use interflow_codec::ClientHello;
use interflow_types::{
    Authority, ByteStr, ClientInfo, ClientTls, EntryKind, Error, ErrorKind, Flow, FlowClock, Headers, Phase,
    RequestHead, Response, Result, Scheme, client_address,
};
use parking_lot::Mutex;

use crate::compiled::CompiledConfig;
use crate::downstream::access::{AccessRequest, BasicCredentials, Login, LoginQueueFull};
use crate::state::{ActiveConfig, ProxyWorker};
use crate::upstream::fingerprint::ClientFingerprint;
use crate::upstream::plan::{PlanKey, RequestPlan};

/// An HTTP connection from a client.
pub(crate) struct ClientConnection {
    pub worker: Arc<ProxyWorker>,
    pub client: Arc<ClientInfo>,
    pub entry: ConnectionKind,
    /// TLS that Interflow terminated on this connection: a tunnel's, or the proxy port's own.
    pub tls: Option<Arc<ClientTls>>,
    /// The last verified credentials and their login, so that a kept-alive connection needs no lookup.
    verified_credentials: Mutex<Option<(Vec<u8>, Login)>>,
    last_plan: Mutex<Option<LastPlan>>,
    /// The client that a trusted reverse proxy last named on this connection.
    last_forwarded: Mutex<Option<Arc<ClientInfo>>>,
    /// Credentials were bound to an upstream connection (NTLM, Negotiate): from then on this client shares none with
    /// others.
    pinned_upstream: AtomicBool,
    /// The client's TLS and HTTP/2 fingerprint, for origins to which it is mirrored.
    pub client_fingerprint: ClientFingerprint,
}

/// The last request's plan, with the configuration generation and the client that it was allowed for. Most
/// connections send all requests to one authority, so this saves the plan cache's lookup.
type LastPlan = (u64, IpAddr, PlanKey, Arc<RequestPlan>);

pub(crate) enum ConnectionKind {
    /// On the proxy port: each request names its authority and carries its credentials.
    Proxy,
    /// On the gateway port: routes select the origin.
    Gateway,
    /// In a tunnel, whose authority and user apply to all requests.
    Inside(TunnelTarget),
}

#[derive(Clone)]
pub(crate) struct TunnelTarget {
    pub scheme: Scheme,
    pub authority: Authority,
    /// The address to connect to, if it differs from the authority: the client requested an address, and its SNI a
    /// name.
    pub dial: Option<Authority>,
    pub transport: EntryKind,
    pub login: Login,
    /// The `Via` of the CONNECT request that opened the tunnel.
    pub received_via: Option<Arc<str>>,
    /// Why the origin could not be reached when the tunnel was opened.
    pub unreachable: Option<Arc<FailedDial>>,
}

/// A failed attempt to reach the origin of a tunnel. The requests that were waiting for it get its error, so that they
/// do not wait for the same timeout again.
pub(crate) struct FailedDial {
    error: Error,
    at: Instant,
}

/// How long a failed attempt answers for the origin; then it may be back.
const FAILED_DIAL_VALIDITY: Duration = Duration::from_secs(2);

impl FailedDial {
    pub fn new(error: &Error) -> Arc<Self> {
        Arc::new(Self { error: error.without_sources(), at: Instant::now() })
    }
}

impl TunnelTarget {
    /// The error of the last attempt to reach the origin, if it was just now.
    pub fn unreachable(&self) -> Option<Error> {
        let failed = self.unreachable.as_ref().filter(|failed| failed.at.elapsed() < FAILED_DIAL_VALIDITY)?;
        Some(failed.error.without_sources())
    }
}

impl ClientConnection {
    pub fn new(
        worker: Arc<ProxyWorker>,
        client: Arc<ClientInfo>,
        entry: ConnectionKind,
        tls: Option<Arc<ClientTls>>,
    ) -> Self {
        Self {
            worker,
            client,
            entry,
            tls,
            verified_credentials: Mutex::new(None),
            last_plan: Mutex::new(None),
            last_forwarded: Mutex::new(None),
            pinned_upstream: AtomicBool::new(false),
            client_fingerprint: ClientFingerprint::default(),
        }
    }

    pub fn with_client_hello(self, hello: Option<Arc<ClientHello>>) -> Self {
        Self { client_fingerprint: ClientFingerprint::new(hello), ..self }
    }

    /// The number of this connection if its upstream connections must serve no other: NTLM and Negotiate
    /// authenticate a connection rather than a request, and whoever sent a later request on it would be taken for the
    /// same user (RFC 4559 section 6).
    pub fn exclusive_upstream(&self, headers: &Headers) -> Option<u64> {
        // The scheme is the first word of the value; the rest is the token.
        let binds = |value: &[u8]| {
            let scheme = value.split(|b| *b == b' ').next().unwrap_or_default();
            scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
        };
        // Relaxed suffices, because the flag guards no other data.
        if headers.get("authorization").is_some_and(binds) {
            self.pinned_upstream.store(true, Relaxed);
        }
        self.pinned_upstream.load(Relaxed).then_some(self.client.connection)
    }

    /// The error of the attempt to reach this request's origin that was made when its tunnel was opened, if it was just
    /// now and the request goes the same way.
    pub fn unreachable(&self, head: &RequestHead, plan: &RequestPlan) -> Option<Error> {
        let ConnectionKind::Inside(inside) = &self.entry else { return None };
        let same_way = head.url.authority == inside.authority && !plan.wants(Phase::UpstreamConnect);
        inside.unreachable().filter(|_| same_way)
    }

    /// A new flow on this connection. Boxed, because it is moved often.
    pub fn flow(
        &self,
        clock: FlowClock,
        transport: EntryKind,
        scheme: Scheme,
        authority: Authority,
        user: Option<Arc<str>>,
    ) -> Box<Flow> {
        let mut flow = Box::new(Flow::begin_at(clock, Arc::clone(&self.client), transport, scheme, authority));
        flow.client_tls = self.tls.clone();
        flow.user = user;
        flow
    }

    /// The name in the client's verified certificate (mutual TLS), if it presented one.
    pub fn client_name(&self) -> Option<Arc<str>> {
        self.tls.as_ref().and_then(|tls| tls.client_name.clone())
    }

    /// The client that a trusted reverse proxy names in `X-Forwarded-For`; `None` if the peer is not trusted or names
    /// itself.
    pub fn forwarded_client(&self, config: &ActiveConfig, headers: &Headers) -> Option<Arc<ClientInfo>> {
        let gateway = &config.settings.config.gateway;
        let peer = self.client.peer.ip().to_canonical();
        if !gateway.trusts(peer) {
            return None;
        }
        let client = client_address(headers, peer, |ip| gateway.trusts(ip));
        if client == peer {
            return None;
        }
        let mut last = self.last_forwarded.lock();
        if let Some(known) = last.as_ref().filter(|known| known.peer.ip() == client) {
            return Some(Arc::clone(known));
        }
        // Process and container would be the reverse proxy's; the client's port is unknown.
        let peer = SocketAddr::new(client, 0);
        // Only the address is replaced: connection number and listener stay those of the connection that carries the
        // request.
        let info = Arc::new(ClientInfo { peer, process: None, container: None, ..(*self.client).clone() });
        *last = Some(Arc::clone(&info));
        Some(info)
    }

    /// The request's login if no verification is needed: no users are configured, or the credentials are those of the
    /// last request and still valid.
    pub fn cached_login(&self, config: &ActiveConfig, headers: &Headers) -> Option<Login> {
        let value = headers.get("proxy-authorization");
        if let Some(login) = value.and_then(|value| self.last_verified(config, value)) {
            return Some(login);
        }
        if config.settings.users.is_some() {
            return None;
        }
        let Some((value, claimed)) = value.and_then(|value| Some((value, BasicCredentials::from_basic(value)?))) else {
            return Some(Login::Anonymous);
        };
        // A program started by `interflow exec` has its name, although nobody else needs one.
        if let Some(login) = self.exec_login(&claimed) {
            *self.verified_credentials.lock() = Some((value.to_vec(), login.clone()));
            return Some(login);
        }
        let named = config.settings.config.auth.accept_unverified_names && !claimed.name.is_empty();
        Some(if named { Login::Claimed(claimed.name.into()) } else { Login::Anonymous })
    }

    /// The login of the credentials that were verified last, if these are the same and it still holds.
    fn last_verified(&self, config: &ActiveConfig, value: &[u8]) -> Option<Login> {
        let credentials = self.verified_credentials.lock();
        // Compared as raw bytes: any change takes the slow path.
        let cached =
            credentials.as_ref().filter(|(shown, login)| shown == value && config.settings.accepts_login(login));
        cached.map(|(_, login)| login.clone())
    }

    /// Authenticates a request. Every request is authenticated, not every connection.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if the credentials are missing, malformed or wrong; [`ErrorKind::Limited`] as for
    /// [`verify`](Self::verify).
    pub async fn authenticate(&self, config: &ActiveConfig, headers: &Headers) -> Result<Login> {
        if let Some(login) = self.cached_login(config, headers) {
            return Ok(login);
        }
        let Some(value) = headers.get("proxy-authorization") else {
            return Err(Error::new(ErrorKind::Unauthorized, "this proxy requires a user name and a password"));
        };
        let wrong = || Error::new(ErrorKind::Unauthorized, "the user name or the password is wrong");
        let credentials = BasicCredentials::from_basic(value).ok_or_else(wrong)?;
        let login = self.verify(&config.settings, &credentials).await?.ok_or_else(wrong)?;
        *self.verified_credentials.lock() = Some((value.to_vec(), login.clone()));
        Ok(login)
    }

    /// The login of these credentials, of a user or ephemeral ones; `None` if they are wrong.
    ///
    /// # Errors
    /// [`ErrorKind::Limited`]: too many attempts of this client are waiting.
    pub async fn verify(&self, settings: &CompiledConfig, credentials: &BasicCredentials) -> Result<Option<Login>> {
        // First, because these are compared by a fast digest, whereas a user's password costs a slow hash.
        if let Some(login) = self.exec_login(credentials) {
            return Ok(Some(login));
        }
        let Some(users) = &settings.users else { return Ok(None) };
        let right = users.verify(credentials, self.client.peer.ip()).await.map_err(|LoginQueueFull| {
            Error::new(
                ErrorKind::Limited,
                "too many passwords of this client are waiting to be verified; try again in a moment",
            )
        })?;
        let entry = users.entry(&credentials.name).filter(|_| right);
        Ok(entry.map(|entry| Login::Password { user: credentials.name.as_str().into(), entry: Arc::clone(entry) }))
    }

    fn exec_login(&self, credentials: &BasicCredentials) -> Option<Login> {
        let credential = self.worker.shared.ephemeral_credentials.accepts(credentials, Instant::now())?;
        Some(Login::Exec { user: credentials.name.as_str().into(), credential })
    }

    /// The plan for this authority, after the access rules allowed the request. The rules are not checked again if
    /// the last request had the same key and client and no rule tests the method.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`], with the index of the rule.
    pub fn plan(&self, config: &ActiveConfig, key: &PlanKey, method: &str, client: IpAddr) -> Result<Arc<RequestPlan>> {
        let rules = &config.settings.rules;
        let mut last = self.last_plan.lock();
        // Rules that test the method must be checked for each request, so the last plan is reused only without them.
        if let Some((generation, allowed, known, plan)) = &*last
            && *generation == config.generation
            && *allowed == client
            && known == key
            && rules.ignores_method()
        {
            return Ok(Arc::clone(plan));
        }
        let request = AccessRequest { user: key.user.as_deref(), client, authority: &key.authority, method };
        self.check_access(config, &request)?;
        let plan = config.plans.get(&config.settings, key.clone());
        *last = Some((config.generation, client, key.clone(), Arc::clone(&plan)));
        Ok(plan)
    }

    /// Checks the access rules for one request. The error names the rule by its index in the configuration.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub fn check_access(&self, config: &ActiveConfig, request: &AccessRequest<'_>) -> Result<()> {
        config.settings.rules.check(request).map_err(|i| {
            Error::new(ErrorKind::Denied, format!("access to {} is denied by access.rule[{i}]", request.authority))
        })
    }

    pub fn plan_key(
        &self,
        scheme: Scheme,
        authority: Authority,
        dial: Option<Authority>,
        transport: EntryKind,
        user: Option<Arc<str>>,
    ) -> PlanKey {
        PlanKey { listener: Arc::clone(&self.client.listener), user, scheme, authority, dial, transport }
    }
}

/// Adds the challenge that makes a 407 an authentication prompt (RFC 9110 11.7.1). The charset parameter is that of
/// RFC 7617 section 2.1.
pub(crate) fn challenge(mut response: Response, realm: &str) -> Response {
    // The realm goes into a quoted string: characters that would end or escape it are dropped.
    let realm: String = realm.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect();
    let value = ByteStr::from(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
    response.head.headers.append_unchecked(b"Proxy-Authenticate", value.as_bytes());
    response
}
