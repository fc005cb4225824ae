//! A client's connection, or the inside of its tunnel: whom requests come from, and where those in origin-form go.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use interflow_flow::{
    Authority, ByteStr, ClientInfo, ClientTls, Clock, Error, Flow, Headers, Kind, Response, Result, Scheme, Transport,
    client_address,
};
use interflow_net::ingress::{Incoming, Outgoing, Service};
use interflow_wire::ClientHello;
use parking_lot::Mutex;

use crate::access::{Asked, Credentials, LoginRefused, Users};
use crate::exchange::Start;
use crate::likeness::Seen;
use crate::plan::{Plan, PlanKey};
use crate::worker::{Live, Worker};
use crate::{connect, exchange};

/// A connection that speaks HTTP to us.
pub(crate) struct Conn {
    pub worker: Arc<Worker>,
    pub client: Arc<ClientInfo>,
    pub entry: Entry,
    /// TLS that we terminated on this connection: of a tunnel, or of the proxy port itself.
    pub tls: Option<Arc<ClientTls>>,
    /// The last credentials that were right, and whose they were, so that a kept-alive connection asks no map.
    known: Mutex<Option<(Vec<u8>, Arc<str>)>>,
    last_plan: Mutex<Option<LastPlan>>,
    /// The client that a trusted reverse proxy named last on this connection.
    last_forwarded: Mutex<Option<Arc<ClientInfo>>>,
    /// Credentials were bound to an upstream connection: from then on this client shares none.
    bound: AtomicBool,
    /// The client is a program that `interflow exec` started: it showed the credentials that it was given.
    of_exec: AtomicBool,
    /// How this client greeted us, for origins that are to be greeted alike.
    pub seen: Seen,
}

/// The plan of the last request, with the generation of the settings, and the client that it was allowed for.
type LastPlan = (u64, IpAddr, PlanKey, Arc<Plan>);

/// How the connection came to be.
pub(crate) enum Entry {
    /// On the proxy port: each request names its authority and shows its credentials.
    Proxy,
    /// On the gateway port: routes decide where requests go.
    Gateway,
    /// In a tunnel, whose authority and user hold for all requests.
    Inside(Inside),
}

/// The inside of a tunnel.
#[derive(Clone)]
pub(crate) struct Inside {
    pub scheme: Scheme,
    /// What requests are for.
    pub authority: Authority,
    /// Where to connect, when that is not the authority: the client named an address, and its TLS a name.
    pub dial: Option<Authority>,
    pub transport: Transport,
    pub user: Option<Arc<str>>,
    /// What `Via` said in the CONNECT that opened the tunnel.
    pub received_via: Option<Arc<str>>,
}

impl Conn {
    pub fn new(worker: Arc<Worker>, client: Arc<ClientInfo>, entry: Entry, tls: Option<Arc<ClientTls>>) -> Self {
        Self {
            worker,
            client,
            entry,
            tls,
            known: Mutex::new(None),
            last_plan: Mutex::new(None),
            last_forwarded: Mutex::new(None),
            bound: AtomicBool::new(false),
            of_exec: AtomicBool::new(false),
            seen: Seen::default(),
        }
    }

    /// With the hello that the client began its TLS with.
    #[must_use]
    pub fn greeted(self, hello: Option<Arc<ClientHello>>) -> Self {
        Self { seen: Seen::new(hello), ..self }
    }

    /// What keeps this client's requests off the upstream connections of others: NTLM and Negotiate prove who asks
    /// once per connection, and whoever sent a request on it later would pass for the same (RFC 4559 6).
    pub fn partition(&self, headers: &Headers) -> u64 {
        let binds = |value: &[u8]| {
            let scheme = value.split(|b| *b == b' ').next().unwrap_or_default();
            scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
        };
        if headers.get("authorization").is_some_and(binds) {
            self.bound.store(true, Relaxed);
        }
        if self.bound.load(Relaxed) { self.client.connection } else { 0 }
    }

    /// A new flow of this connection, which began with the clock. Boxed, since it goes through many hands.
    pub fn flow(
        &self,
        clock: Clock,
        transport: Transport,
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
    pub fn forwarded_client(&self, live: &Live, headers: &Headers) -> Option<Arc<ClientInfo>> {
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
    pub fn known_user(&self, live: &Live, headers: &Headers) -> Option<Option<Arc<str>>> {
        if live.settings.users.is_none() {
            let trusting = live.settings.config.auth.trust_names;
            let Some(shown) = headers.get("proxy-authorization") else { return Some(None) };
            if !trusting && self.is_of_exec() {
                return Some(None);
            }
            let claimed = Credentials::from_basic(shown);
            if let Some(claimed) = &claimed {
                self.shows_pass(claimed);
            }
            return Some(claimed.filter(|c| trusting && !c.name.is_empty()).map(|c| c.name.into()));
        }
        let value = headers.get("proxy-authorization")?;
        let known = self.known.lock();
        known.as_ref().filter(|(shown, _)| shown == value).map(|(_, user)| Some(Arc::clone(user)))
    }

    /// Whose request this is. Every request is asked, not every connection.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`].
    pub async fn authenticate(&self, live: &Live, headers: &Headers) -> Result<Option<Arc<str>>> {
        if let Some(user) = self.known_user(live, headers) {
            return Ok(user);
        }
        let Some(users) = &live.settings.users else { return Ok(None) };
        let Some(value) = headers.get("proxy-authorization") else {
            return Err(Error::new(Kind::Unauthorized, "this proxy asks for a user name and a password"));
        };
        let wrong = || Error::new(Kind::Unauthorized, "the user name or the password is wrong");
        let credentials = Credentials::from_basic(value).ok_or_else(wrong)?;
        if !self.knows(users, &credentials).await? {
            return Err(wrong());
        }
        let user: Arc<str> = credentials.name.into();
        *self.known.lock() = Some((value.to_vec(), Arc::clone(&user)));
        Ok(Some(user))
    }

    /// Whether these are a user's credentials, or a pass.
    ///
    /// # Errors
    /// [`Kind::Limited`]: too many attempts of this client wait.
    pub async fn knows(&self, users: &Users, credentials: &Credentials) -> Result<bool> {
        if self.shows_pass(credentials) {
            return Ok(true);
        }
        users.verify(credentials, self.client.peer.ip()).await.map_err(|LoginRefused| {
            Error::new(Kind::Limited, "too many passwords of this client wait to be checked; try again in a moment")
        })
    }

    fn shows_pass(&self, credentials: &Credentials) -> bool {
        let opens = self.worker.shared.passes.opens(credentials, Instant::now());
        if opens {
            self.of_exec.store(true, Relaxed);
        }
        opens
    }

    /// Whether the client is a program that `interflow exec` started.
    pub fn is_of_exec(&self) -> bool {
        self.of_exec.load(Relaxed)
    }

    /// The plan for this authority, and whether the access rules let the request through.
    ///
    /// # Errors
    /// [`Kind::Denied`].
    pub fn plan(&self, live: &Live, key: &PlanKey, method: &str, client: IpAddr) -> Result<Arc<Plan>> {
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
        let asked = Asked { user: key.user.as_deref(), client, authority: &key.authority, method };
        self.allowed(live, &asked)?;
        let plan = live.plans.get(&live.settings, key.clone());
        *last = Some((live.generation, client, key.clone(), Arc::clone(&plan)));
        Ok(plan)
    }

    /// Whether the access rules let this through.
    ///
    /// # Errors
    /// [`Kind::Denied`].
    pub fn allowed(&self, live: &Live, asked: &Asked<'_>) -> Result<()> {
        live.settings.rules.check(asked).map_err(|i| {
            Error::new(Kind::Denied, format!("access to {} is denied by access.rule[{i}]", asked.authority))
        })
    }

    pub fn plan_key(
        &self,
        scheme: Scheme,
        authority: Authority,
        dial: Option<Authority>,
        transport: Transport,
        user: Option<Arc<str>>,
    ) -> PlanKey {
        PlanKey { listener: Arc::clone(&self.client.listener), user, scheme, authority, dial, transport }
    }

    fn start(&self, incoming: Incoming) -> Start<'_> {
        let live = self.worker.live();
        match &self.entry {
            Entry::Proxy => match incoming.target {
                // What is rare for a connection does not make the place for what is not any larger.
                interflow_flow::Target::Authority(_) => {
                    Start::Later(Box::pin(connect::http_connect(self, live, incoming)))
                }
                _ => exchange::from_proxy(self, live, incoming),
            },
            Entry::Gateway => exchange::from_gateway(self, live, incoming),
            Entry::Inside(inside) => exchange::from_tunnel(self, live, inside, incoming),
        }
    }
}

impl Service for Conn {
    // No `async fn`: its future would carry the request a second time, beside the one that it waits for.
    fn call(&self, incoming: Incoming) -> impl Future<Output = Outgoing> + Send {
        exchange::follow(self, self.start(incoming))
    }

    fn refuse(&self, error: &Error) -> Response {
        let live = self.worker.live();
        exchange::refuse_unread(self, &live, error)
    }
}

/// The response to a request without the right credentials.
pub(crate) fn challenge(mut response: Response, realm: &str) -> Response {
    let realm: String = realm.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect();
    let value = ByteStr::from(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
    response.head.headers.append_parsed(b"Proxy-Authenticate", value.as_bytes());
    response
}
