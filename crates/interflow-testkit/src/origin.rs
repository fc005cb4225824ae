//! Test servers: they accept connections, record what they receive, and fail the test on errors.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::message::Request;
use crate::reply::Reply;
use crate::script::Script;
use crate::tls::TestCa;
use crate::wire::Wire;
use crate::{serve, site};

pub(crate) type Responder = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;
type Handler = Arc<dyn Fn(Wire, usize) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> + Send + Sync>;

/// A server on a loopback port, stopped when dropped.
///
/// # Panics
/// Dropping it panics if a request was malformed or a closure or script panicked, so that the test fails.
pub struct Origin {
    addr: SocketAddr,
    ca: Option<Arc<TestCa>>,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
pub(crate) struct Shared {
    requests: Mutex<Vec<Request>>,
    received: Mutex<Vec<Vec<u8>>>,
    violations: Mutex<Vec<String>>,
    connections: AtomicUsize,
    served: AtomicUsize,
    open: AtomicUsize,
    news: Notify,
    unrecorded: bool,
}

impl Shared {
    pub(crate) fn record(&self, request: &Request) {
        if !self.unrecorded {
            lock(&self.requests).push(request.clone());
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        self.news.notify_waiters();
    }

    pub(crate) fn receive(&self, connection: usize, bytes: &[u8]) {
        let mut received = lock(&self.received);
        if received.len() <= connection {
            received.resize(connection + 1, Vec::new());
        }
        received[connection].extend_from_slice(bytes);
        self.news.notify_waiters();
    }

    fn violation(&self, what: String) {
        lock(&self.violations).push(what);
        self.news.notify_waiters();
    }
}

/// An HTTP origin before it starts.
pub struct OriginBuilder {
    tls: bool,
    alpn: Vec<String>,
    names: Vec<String>,
    ca: Option<Arc<TestCa>>,
    client_ca: Option<Arc<TestCa>>,
    config: Option<Arc<ServerConfig>>,
    respond: Responder,
    bind: SocketAddr,
    unrecorded: bool,
}

impl OriginBuilder {
    /// The protocols offered by ALPN, in order of preference; `["h2", "http/1.1"]` unless set.
    #[must_use]
    pub fn alpn(mut self, protocols: &[&str]) -> Self {
        self.alpn = protocols.iter().map(|p| (*p).to_owned()).collect();
        self
    }

    /// The names in the certificate; `localhost`, `127.0.0.1` and `::1` unless set.
    #[must_use]
    pub fn names(mut self, names: &[&str]) -> Self {
        self.names = names.iter().map(|n| (*n).to_owned()).collect();
        self
    }

    /// Signs the certificate with this CA, so that several origins can share one.
    #[must_use]
    pub fn ca(mut self, ca: Arc<TestCa>) -> Self {
        self.ca = Some(ca);
        self
    }

    /// Demands a client certificate from this CA; without one the handshake fails.
    #[must_use]
    pub fn client_ca(mut self, ca: Arc<TestCa>) -> Self {
        self.client_ca = Some(ca);
        self
    }

    /// Uses this TLS configuration as it is.
    #[must_use]
    pub fn tls_config(mut self, config: Arc<ServerConfig>) -> Self {
        self.tls = true;
        self.config = Some(config);
        self
    }

    /// Responds with this closure in place of [`site`].
    #[must_use]
    pub fn answering(mut self, respond: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        self.respond = Arc::new(respond);
        self
    }

    /// Binds this address instead of a free loopback port.
    #[must_use]
    pub fn bind(mut self, addr: SocketAddr) -> Self {
        self.bind = addr;
        self
    }

    /// Only counts requests, for benches and long runs: a record of each would fill the memory.
    #[must_use]
    pub fn unrecorded(mut self) -> Self {
        self.unrecorded = true;
        self
    }

    /// Binds and starts accepting.
    ///
    /// # Panics
    /// If the address is in use.
    pub async fn start(self) -> Origin {
        let shared = Arc::new(Shared { unrecorded: self.unrecorded, ..Shared::default() });
        let ca = self.tls.then(|| self.ca.unwrap_or_else(|| Arc::new(TestCa::new())));
        let config = self.config.or_else(|| {
            let (names, alpn) = (texts(&self.names), texts(&self.alpn));
            ca.as_ref().map(|ca| ca.server_with(&names, &alpn, self.client_ca.as_deref()))
        });
        let (respond, seen) = (self.respond, shared.clone());
        let handler: Handler = Arc::new(move |wire, connection| {
            Box::pin(serve::connection(wire, connection, config.clone(), respond.clone(), seen.clone()))
        });
        Origin::accept(self.bind, ca, shared, handler).await
    }
}

impl Origin {
    /// A plain HTTP/1 and HTTP/2 (prior knowledge) origin.
    pub fn http() -> OriginBuilder {
        OriginBuilder {
            tls: false,
            alpn: vec!["h2".into(), "http/1.1".into()],
            names: vec!["localhost".into(), "127.0.0.1".into(), "::1".into()],
            ca: None,
            client_ca: None,
            config: None,
            respond: Arc::new(site::respond),
            bind: loopback(),
            unrecorded: false,
        }
    }

    /// A TLS origin with a throwaway CA.
    pub fn https() -> OriginBuilder {
        OriginBuilder { tls: true, ..Self::http() }
    }

    /// A raw TCP origin whose connections each follow the script.
    pub async fn script(script: Script) -> Self {
        let shared = Arc::new(Shared::default());
        let (script, seen) = (Arc::new(script), shared.clone());
        let handler: Handler = Arc::new(move |wire, connection| {
            let (script, seen) = (script.clone(), seen.clone());
            Box::pin(async move { script.play(wire, connection, &seen).await })
        });
        Self::accept(loopback(), None, shared, handler).await
    }

    /// A raw TCP origin whose connections are each handled by a closure, which receives the connection's index (from
    /// 0).
    pub async fn raw<F, Fut>(handle: F) -> Self
    where
        F: Fn(Wire, usize) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |wire, connection| Box::pin(handle(wire, connection)));
        Self::accept(loopback(), None, Arc::default(), handler).await
    }

    /// An address that refuses connections: its socket is bound, so that nobody else gets the port, and never listens.
    pub async fn nobody() -> SocketAddr {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(loopback()).expect("a free port");
        let addr = socket.local_addr().expect("a bound socket has an address");
        // It stays bound until the process ends.
        std::mem::forget(socket);
        addr
    }

    async fn accept(bind: SocketAddr, ca: Option<Arc<TestCa>>, shared: Arc<Shared>, handler: Handler) -> Self {
        let listener = TcpListener::bind(bind).await.unwrap_or_else(|e| panic!("origin cannot bind {bind}: {e}"));
        let addr = listener.local_addr().expect("a bound socket has an address");
        let seen = shared.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    // Ended connections are removed, so that a long run does not collect them.
                    Some(_) = connections.join_next() => {}
                    accepted = listener.accept() => {
                        let Ok((tcp, _)) = accepted else { continue };
                        let _ = tcp.set_nodelay(true);
                        let number = seen.connections.fetch_add(1, Ordering::Relaxed);
                        connections.spawn(guarded(handler(Wire::new(tcp).patience(None), number), seen.clone()));
                    }
                }
            }
        });
        Self { addr, ca, shared, accepting }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    pub fn authority(&self) -> String {
        format!("localhost:{}", self.addr.port())
    }

    /// `http(s)://localhost:PORT` and the path.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.authority())
    }

    /// The CA behind its certificate.
    ///
    /// # Panics
    /// If it is a plain origin.
    pub fn ca(&self) -> &Arc<TestCa> {
        self.ca.as_ref().expect("only a TLS origin has a CA")
    }

    /// The requests received so far, in order of completion.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// The one request received.
    ///
    /// # Panics
    /// If there was none or more than one.
    pub fn only_request(&self) -> Request {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "requests received: {requests:#?}");
        requests.into_iter().next().expect("there is one")
    }

    /// How many requests were answered, recorded or not.
    pub fn served(&self) -> usize {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// The raw bytes received by each connection of a scripted origin.
    pub fn received(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.received).clone()
    }

    /// Waits until `n` requests were received.
    ///
    /// # Panics
    /// After 10 seconds.
    pub async fn wait_for_requests(&self, n: usize) -> Vec<Request> {
        self.wait(&format!("{n} requests"), || self.served() >= n).await;
        self.requests()
    }

    /// Waits until no connection is open.
    ///
    /// # Panics
    /// After 10 seconds.
    pub async fn wait_until_idle(&self) {
        self.wait("all connections to end", || self.open_connections() == 0).await;
    }

    async fn wait(&self, what: &str, done: impl Fn() -> bool) {
        let waiting = async {
            loop {
                // Registered before the check, so that news in between is not missed.
                let news = self.shared.news.notified();
                if done() {
                    return;
                }
                news.await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        assert!(waited.is_ok(), "the origin waited 10 s in vain for {what}; it has {}", self.served());
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
        let violations = lock(&self.shared.violations);
        // A second panic while the test panics would abort the process.
        if !violations.is_empty() && !std::thread::panicking() {
            panic!("the origin saw what may not be: {violations:#?}");
        }
    }
}

/// Runs one connection; a panic or malformed bytes become a violation, a lost connection does not.
async fn guarded(work: impl Future<Output = io::Result<()>>, shared: Arc<Shared>) {
    shared.open.fetch_add(1, Ordering::Relaxed);
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(Err(e)) if e.kind() == io::ErrorKind::InvalidData => shared.violation(e.to_string()),
        Ok(_) => {}
        Err(panic) => shared.violation(
            panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                .unwrap_or_else(|| "a panic without words".into()),
        ),
    }
    shared.open.fetch_sub(1, Ordering::Relaxed);
    shared.news.notify_waiters();
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn texts(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
