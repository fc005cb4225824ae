//! A client's connection, or the inside of its tunnel: whom requests come from, and where those in origin-form go.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use interflow_codec::ClientHello;
use interflow_limits::LoginQueueFull;
use interflow_net::ingress::{HttpService, IncomingRequest, ServiceReply};
use interflow_types::{
    Authority, ByteStr, ClientInfo, ClientTls, EntryKind, Error, ErrorKind, Flow, FlowClock, Headers, Response, Result,
    Scheme, client_address,
};
use parking_lot::Mutex;

use crate::downstream::access::{AccessRequest, BasicCredentials, UserDatabase};
use crate::http::pipeline;
use crate::http::pipeline::PipelineStart;
use crate::tunnel::connect;
use crate::upstream::fingerprint::ClientFingerprint;
use crate::upstream::plan::{PlanKey, RequestPlan};
use crate::worker::{ActiveConfig, ProxyWorker};

/// A connection that speaks HTTP to us.
pub(crate) struct ClientConnection {
    pub worker: Arc<ProxyWorker>,
    pub client: Arc<ClientInfo>,
    pub entry: ConnectionKind,
    /// TLS that we terminated on this connection: of a tunnel, or of the proxy port itself.
    pub tls: Option<Arc<ClientTls>>,
    /// The last credentials that were right, and whose they were, so that a kept-alive connection asks no map.
    verified_credentials: Mutex<Option<(Vec<u8>, Arc<str>)>>,
    last_plan: Mutex<Option<LastPlan>>,
    /// The client that a trusted reverse proxy named last on this connection.
    last_forwarded: Mutex<Option<Arc<ClientInfo>>>,
    /// Credentials were bound to an upstream connection: from then on this client shares none.
    pinned_upstream: AtomicBool,
    /// The client is a program that `interflow exec` started: it showed the credentials that it was given.
    of_exec: AtomicBool,
    /// How this client greeted us, for origins that are to be greeted alike.
    pub client_fingerprint: ClientFingerprint,
}

/// The plan of the last request, with the generation of the settings, and the client that it was allowed for.
type LastPlan = (u64, IpAddr, PlanKey, Arc<RequestPlan>);

/// How the connection came to be.
pub(crate) enum ConnectionKind {
    /// On the proxy port: each request names its authority and shows its credentials.
    Proxy,
    /// On the gateway port: routes decide where requests go.
    Gateway,
    /// In a tunnel, whose authority and user hold for all requests.
    Inside(TunnelTarget),
}

/// The inside of a tunnel.
#[derive(Clone)]
pub(crate) struct TunnelTarget {
    pub scheme: Scheme,
    /// What requests are for.
    pub authority: Authority,
    /// Where to connect, when that is not the authority: the client named an address, and its TLS a name.
    pub dial: Option<Authority>,
    pub transport: EntryKind,
    pub user: Option<Arc<str>>,
    /// What `Via` said in the CONNECT that opened the tunnel.
    pub received_via: Option<Arc<str>>,
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
            of_exec: AtomicBool::new(false),
            client_fingerprint: ClientFingerprint::default(),
        }
    }

    /// With the hello that the client began its TLS with.
    #[must_use]
    pub fn with_client_hello(self, hello: Option<Arc<ClientHello>>) -> Self {
        Self { client_fingerprint: ClientFingerprint::new(hello), ..self }
    }

    /// What keeps this client's requests off the upstream connections of others: NTLM and Negotiate prove who asks
    /// once per connection, and whoever sent a request on it later would pass for the same (RFC 4559 6).
    pub fn partition(&self, headers: &Headers) -> u64 {
        let binds = |value: &[u8]| {
            let scheme = value.split(|b| *b == b' ').next().unwrap_or_default();
            scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
        };
        if headers.get("authorization").is_some_and(binds) {
            self.pinned_upstream.store(true, Relaxed);
        }
        if self.pinned_upstream.load(Relaxed) { self.client.connection } else { 0 }
    }

    /// A new flow of this connection, which began with the clock. Boxed, since it goes through many hands.
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

    /// The name in the client's verified certificate.
    pub fn client_name(&self) -> Option<Arc<str>> {
        self.tls.as_ref().and_then(|tls| tls.client_name.clone())
    }

    /// Whom a request on the gateway port comes from, when a trusted reverse proxy says so.
    pub fn forwarded_client(&self, live: &ActiveConfig, headers: &Headers) -> Option<Arc<ClientInfo>> {
        let gateway = &live.settings.config.gateway;
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
        // Process and container are the proxy's; the client's port nobody knows.
        let peer = SocketAddr::new(client, 0);
        let info = Arc::new(ClientInfo { peer, process: None, container: None, ..(*self.client).clone() });
        *last = Some(Arc::clone(&info));
        Some(info)
    }

    /// Whose request this is, when that takes no time: without users, or when it shows what the last one did.
    pub fn cached_user(&self, live: &ActiveConfig, headers: &Headers) -> Option<Option<Arc<str>>> {
        if live.settings.users.is_none() {
            let trusting = live.settings.config.auth.accept_unverified_names;
            let Some(shown) = headers.get("proxy-authorization") else { return Some(None) };
            if !trusting && self.is_from_exec() {
                return Some(None);
            }
            let claimed = BasicCredentials::from_basic(shown);
            if let Some(claimed) = &claimed {
                self.has_ephemeral_credentials(claimed);
            }
            return Some(claimed.filter(|c| trusting && !c.name.is_empty()).map(|c| c.name.into()));
        }
        let value = headers.get("proxy-authorization")?;
        let known = self.verified_credentials.lock();
        known.as_ref().filter(|(shown, _)| shown == value).map(|(_, user)| Some(Arc::clone(user)))
    }

    /// Whose request this is. Every request is asked, not every connection.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`].
    pub async fn authenticate(&self, live: &ActiveConfig, headers: &Headers) -> Result<Option<Arc<str>>> {
        if let Some(user) = self.cached_user(live, headers) {
            return Ok(user);
        }
        let Some(users) = &live.settings.users else { return Ok(None) };
        let Some(value) = headers.get("proxy-authorization") else {
            return Err(Error::new(ErrorKind::Unauthorized, "this proxy asks for a user name and a password"));
        };
        let wrong = || Error::new(ErrorKind::Unauthorized, "the user name or the password is wrong");
        let credentials = BasicCredentials::from_basic(value).ok_or_else(wrong)?;
        if !self.verify(users, &credentials).await? {
            return Err(wrong());
        }
        let user: Arc<str> = credentials.name.into();
        *self.verified_credentials.lock() = Some((value.to_vec(), Arc::clone(&user)));
        Ok(Some(user))
    }

    /// Whether these are a user's credentials, or a pass.
    ///
    /// # Errors
    /// [`ErrorKind::Limited`]: too many attempts of this client wait.
    pub async fn verify(&self, users: &UserDatabase, credentials: &BasicCredentials) -> Result<bool> {
        if self.has_ephemeral_credentials(credentials) {
            return Ok(true);
        }
        users.verify(credentials, self.client.peer.ip()).await.map_err(|LoginQueueFull| {
            Error::new(
                ErrorKind::Limited,
                "too many passwords of this client wait to be checked; try again in a moment",
            )
        })
    }

    fn has_ephemeral_credentials(&self, credentials: &BasicCredentials) -> bool {
        let opens = self.worker.shared.ephemeral_credentials.accepts(credentials, Instant::now());
        if opens {
            self.of_exec.store(true, Relaxed);
        }
        opens
    }

    /// Whether the client is a program that `interflow exec` started.
    pub fn is_from_exec(&self) -> bool {
        self.of_exec.load(Relaxed)
    }

    /// The plan for this authority, and whether the access rules let the request through.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub fn plan(&self, live: &ActiveConfig, key: &PlanKey, method: &str, client: IpAddr) -> Result<Arc<RequestPlan>> {
        let rules = &live.settings.rules;
        let mut last = self.last_plan.lock();
        if let Some((generation, allowed, known, plan)) = &*last
            && *generation == live.generation
            && *allowed == client
            && known == key
            && rules.ignores_method()
        {
            return Ok(Arc::clone(plan));
        }
        let asked = AccessRequest { user: key.user.as_deref(), client, authority: &key.authority, method };
        self.check_access(live, &asked)?;
        let plan = live.plans.get(&live.settings, key.clone());
        *last = Some((live.generation, client, key.clone(), Arc::clone(&plan)));
        Ok(plan)
    }

    /// Whether the access rules let this through.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub fn check_access(&self, live: &ActiveConfig, asked: &AccessRequest<'_>) -> Result<()> {
        live.settings.rules.check(asked).map_err(|i| {
            Error::new(ErrorKind::Denied, format!("access to {} is denied by access.rule[{i}]", asked.authority))
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

    fn begin_request(&self, incoming: IncomingRequest) -> PipelineStart<'_> {
        let live = self.worker.active_config();
        match &self.entry {
            ConnectionKind::Proxy => match incoming.target {
                // What is rare for a connection does not make the place for what is not any larger.
                interflow_types::RequestTarget::Authority(_) => {
                    PipelineStart::Later(Box::pin(connect::http_connect(self, live, incoming)))
                }
                _ => pipeline::from_proxy(self, live, incoming),
            },
            ConnectionKind::Gateway => pipeline::from_gateway(self, live, incoming),
            ConnectionKind::Inside(inside) => pipeline::from_tunnel(self, live, inside, incoming),
        }
    }
}

impl HttpService for ClientConnection {
    // No `async fn`: its future would carry the request a second time, beside the one that it waits for.
    fn call(&self, incoming: IncomingRequest) -> impl Future<Output = ServiceReply> + Send {
        pipeline::run_request(self, self.begin_request(incoming))
    }

    fn error_response(&self, error: &Error) -> Response {
        let live = self.worker.active_config();
        pipeline::reject_malformed(self, &live, error)
    }
}

/// The response to a request without the right credentials.
pub(crate) fn challenge(mut response: Response, realm: &str) -> Response {
    let realm: String = realm.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect();
    let value = ByteStr::from(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
    response.head.headers.append_unchecked(b"Proxy-Authenticate", value.as_bytes());
    response
}
