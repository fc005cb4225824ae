//! A proxy under test that starts in one line, with a recorder that keeps everything.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use interflow_net::ca::CertificateAuthority;
use interflow_proxy::{LocalClient, ProxyServer, ProxyServerConfig, ServerDeps};
use interflow_testkit::{Answer, H2Client, Origin, Wire, client, client_trusting};
use interflow_types::{
    Attempt, Attempts, ByteCounts, Direction, ErrorKind, Flow, FlowOutcome, FlowRecording, FlowStored, GatewayMount,
    Headers, Passthrough, Recorder, RequestHead, ResponseHead, Stage, StreamMessage,
};
use tempfile::TempDir;
use tokio::sync::watch;

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Complete,
    Tunnelled(ByteCounts),
    Failed(ErrorKind, String),
}

/// A recorded flow.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub authority: String,
    pub transport: String,
    pub user: Option<String>,
    pub tags: Vec<String>,
    pub url: Option<String>,
    pub sent: Vec<u8>,
    pub status: Option<u16>,
    pub received: Vec<u8>,
    pub trailers: Headers,
    pub interim: Vec<u16>,
    pub messages: Vec<StreamMessage>,
    /// What there was of it had to be stored before its end.
    pub stored_early: bool,
    pub end: Option<End>,
    pub fingerprints: [Option<String>; 3],
    pub process: Option<(u32, String)>,
    pub passthrough: Option<Passthrough>,
    pub attempts: Vec<Attempt>,
    /// The address that it was sent to.
    pub upstream: Option<SocketAddr>,
    #[cfg(feature = "impersonate")]
    pub connection: u64,
    /// The fingerprint impersonated upstream.
    #[cfg(feature = "impersonate")]
    pub imitated: Option<String>,
}

impl Kept {
    /// The error's message.
    pub fn cause(&self) -> &str {
        match &self.end {
            Some(End::Failed(_, text)) => text,
            _ => "",
        }
    }

    pub fn error(&self) -> Option<ErrorKind> {
        match self.end {
            Some(End::Failed(kind, _)) => Some(kind),
            _ => None,
        }
    }
}

#[derive(Clone, Default)]
struct Memory {
    flows: Arc<Mutex<Vec<Arc<Mutex<Kept>>>>>,
    /// What the ends of responses wait for, if anything.
    storing: Arc<Mutex<Option<watch::Receiver<bool>>>>,
}

struct Keeper {
    kept: Arc<Mutex<Kept>>,
    storing: Option<watch::Receiver<bool>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder for Memory {
    fn begin(&self, flow: &Flow, head: Option<&RequestHead>) -> Option<Box<dyn FlowRecording>> {
        let kept = Arc::new(Mutex::new(Kept {
            authority: flow.authority.to_string(),
            transport: flow.transport.as_str().into(),
            user: flow.user.as_deref().map(Into::into),
            fingerprints: [
                flow.client_tls.as_ref().and_then(|t| t.ja4.clone()),
                flow.client_http2.clone(),
                flow.ja4h.clone(),
            ]
            .map(|f| f.map(|f| f.to_string())),
            process: flow.client.process.as_ref().map(|p| (p.pid, p.name.to_string())),
            #[cfg(feature = "impersonate")]
            connection: flow.client.connection,
            url: head.map(|h| format!("{} {}", h.method, h.url)),
            ..Kept::default()
        }));
        lock(&self.flows).push(Arc::clone(&kept));
        Some(Box::new(Keeper { kept, storing: lock(&self.storing).clone() }))
    }
}

impl FlowRecording for Keeper {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    fn data(&mut self, direction: Direction, chunk: &Bytes) {
        let mut kept = lock(&self.kept);
        match direction {
            Direction::Request => kept.sent.extend_from_slice(chunk),
            Direction::Response => kept.received.extend_from_slice(chunk),
        }
    }
    fn trailers(&mut self, _: Direction, trailers: &Headers) {
        lock(&self.kept).trailers = trailers.clone();
    }
    fn interim(&mut self, head: &ResponseHead) {
        lock(&self.kept).interim.push(head.status.as_u16());
    }
    fn response(&mut self, _: &Flow, head: &ResponseHead) {
        lock(&self.kept).status = Some(head.status.as_u16());
    }
    fn message(&mut self, message: &StreamMessage) {
        lock(&self.kept).messages.push(message.clone());
    }
    fn until_stored(&mut self) -> Option<FlowStored> {
        let mut storing = self.storing.take()?;
        Some(Box::pin(async move { drop(storing.wait_for(|stored| *stored).await) }))
    }
    fn store_now(&mut self, _: &Flow) {
        lock(&self.kept).stored_early = true;
    }
    fn finish(self: Box<Self>, flow: &Flow, outcome: FlowOutcome<'_>) {
        let mut kept = lock(&self.kept);
        #[cfg(feature = "impersonate")]
        {
            let tls = flow.upstream.as_ref().and_then(|u| u.tls.as_ref());
            kept.imitated = tls.and_then(|t| t.fingerprint.as_ref()).map(ToString::to_string);
        }
        kept.passthrough = flow.passthrough;
        kept.attempts = flow.extension::<Attempts>().map(Attempts::list).unwrap_or_default();
        kept.upstream = flow.upstream.as_ref().and_then(|upstream| upstream.peer);
        kept.tags = flow.tags.iter().map(ToString::to_string).collect();
        kept.end = Some(match outcome {
            FlowOutcome::Complete => End::Complete,
            FlowOutcome::Tunnelled(bytes) => End::Tunnelled(bytes),
            FlowOutcome::Failed(e, _) => End::Failed(e.kind(), e.to_string()),
        });
    }
}

pub struct Proxy {
    pub engine: Arc<ProxyServer>,
    memory: Memory,
    pub home: TempDir,
}

/// A configuration for tests: port 0, one worker.
pub fn config() -> ProxyServerConfig {
    let mut config = ProxyServerConfig::default();
    config.proxy.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    config.gateway.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    config.workers.count = 1;
    config.intercept.sniff_timeout = interflow_types::units::HumanDuration::from_millis(50);
    config
}

/// Stages, mounts on the gateway port, and the client that they send requests with.
#[derive(Default)]
struct Beside {
    stages: Vec<Arc<dyn Stage>>,
    mounts: Vec<Arc<dyn GatewayMount>>,
    local: LocalClient,
}

impl Proxy {
    pub async fn start(change: impl FnOnce(&mut ProxyServerConfig)) -> Self {
        Self::with(Vec::new(), change).await
    }

    /// A proxy that trusts these origins.
    pub async fn trusting(origins: &[&Origin], change: impl FnOnce(&mut ProxyServerConfig)) -> Self {
        Self::build(origins, Vec::new(), change)
    }

    pub async fn with(stages: Vec<Arc<dyn Stage>>, change: impl FnOnce(&mut ProxyServerConfig)) -> Self {
        Self::build(&[], stages, change)
    }

    pub fn build(
        origins: &[&Origin],
        stages: Vec<Arc<dyn Stage>>,
        change: impl FnOnce(&mut ProxyServerConfig),
    ) -> Self {
        Self::build_in(tempfile::tempdir().unwrap(), origins, stages, change)
    }

    /// A proxy with components that have endpoints on the gateway port.
    pub async fn mounted(mounts: Vec<Arc<dyn GatewayMount>>, change: impl FnOnce(&mut ProxyServerConfig)) -> Self {
        Self::put_together(tempfile::tempdir().unwrap(), &[], Beside { mounts, ..Beside::default() }, change)
    }

    /// A proxy with stages and mounts.
    #[allow(dead_code)] // used by the tests of interflow-llm-gateway
    pub fn with_components(
        origins: &[&Origin],
        stages: Vec<Arc<dyn Stage>>,
        mounts: Vec<Arc<dyn GatewayMount>>,
        local: LocalClient,
        change: impl FnOnce(&mut ProxyServerConfig),
    ) -> Self {
        Self::put_together(tempfile::tempdir().unwrap(), origins, Beside { stages, mounts, local }, change)
    }

    /// A proxy with authentication for these users, each with the password `enigma`.
    pub async fn asking(users: &[&str], change: impl FnOnce(&mut ProxyServerConfig)) -> Self {
        Self::asking_with(users, Vec::new(), change).await
    }

    /// The same, with stages.
    pub async fn asking_with(
        users: &[&str],
        stages: Vec<Arc<dyn Stage>>,
        change: impl FnOnce(&mut ProxyServerConfig),
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        let hash = bcrypt::hash("enigma", 4).unwrap();
        std::fs::write(&path, users.iter().map(|u| format!("{u}:{hash}\n")).collect::<String>()).unwrap();
        Self::build_in(home, &[], stages, |c| {
            c.auth.users = Some(path);
            change(c);
        })
    }

    fn build_in(
        home: TempDir,
        origins: &[&Origin],
        stages: Vec<Arc<dyn Stage>>,
        change: impl FnOnce(&mut ProxyServerConfig),
    ) -> Self {
        Self::put_together(home, origins, Beside { stages, ..Beside::default() }, change)
    }

    fn put_together(
        home: TempDir,
        origins: &[&Origin],
        Beside { stages, mounts, local }: Beside,
        change: impl FnOnce(&mut ProxyServerConfig),
    ) -> Self {
        let mut config = config();
        for (i, origin) in origins.iter().enumerate() {
            let path = home.path().join(format!("origin-{i}.pem"));
            std::fs::write(&path, origin.ca().pem()).unwrap();
            config.upstream.extra_ca.push(path);
        }
        change(&mut config);
        let memory = Memory::default();
        let parts = ServerDeps {
            ca: Arc::new(CertificateAuthority::open_or_create(&home.path().join("ca")).unwrap()),
            recorder: Some(Arc::new(memory.clone())),
            stages,
            mounts,
            own: Vec::new(),
            local,
            sockets: Default::default(),
        };
        let engine = ProxyServer::start(config, parts).unwrap_or_else(|e| panic!("{e}"));
        Self { engine, memory, home }
    }

    /// From now on, the end of a response is withheld until `true` is sent.
    #[allow(dead_code)] // used by the tests of this crate
    pub fn withhold_responses(&self) -> watch::Sender<bool> {
        let (stored, storing) = watch::channel(false);
        *lock(&self.memory.storing) = Some(storing);
        stored
    }

    pub fn addr(&self) -> SocketAddr {
        self.engine.proxy_addresses()[0]
    }

    pub fn gateway(&self) -> SocketAddr {
        self.engine.gateway_addresses()[0]
    }

    pub async fn connect(&self) -> Wire {
        Wire::connect(self.addr()).await.unwrap()
    }

    /// One request in absolute-form on its own connection.
    pub async fn get(&self, url: &str) -> Answer {
        client::get_through(self.addr(), url).await.unwrap()
    }

    pub async fn tunnel(&self, authority: &str) -> Wire {
        client::connect_tunnel(self.addr(), authority, None).await.unwrap()
    }

    /// A tunnel with TLS in it that trusts Interflow's CA.
    pub async fn tls(&self, authority: &str, alpn: &[&str]) -> Wire {
        self.try_tls(authority, alpn).await.unwrap()
    }

    pub async fn try_tls(&self, authority: &str, alpn: &[&str]) -> std::io::Result<Wire> {
        let (host, _) = authority.rsplit_once(':').unwrap();
        let wire = self.tunnel(authority).await;
        wire.into_tls(host.trim_matches(['[', ']']), client_trusting(self.engine.ca().certificate_pem(), alpn)).await
    }

    pub async fn h2(&self, authority: &str) -> H2Client {
        H2Client::new(self.tls(authority, &["h2"]).await).await.unwrap()
    }

    /// The recorded flows, once at least `n` are complete.
    pub async fn flows(&self, n: usize) -> Vec<Kept> {
        for _ in 0..1000 {
            let all: Vec<Kept> = lock(&self.memory.flows).iter().map(|k| lock(k).clone()).collect();
            if all.iter().filter(|k| k.end.is_some()).count() >= n {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{n} flows were not over in time: {:#?}", lock(&self.memory.flows));
    }

    /// The first flow that has come so far.
    #[allow(dead_code)] // used by the tests of this crate
    pub async fn open_flow(&self, is_so_far: impl Fn(&Kept) -> bool) -> Kept {
        let flow = || lock(&self.memory.flows).iter().map(|k| lock(k).clone()).find(&is_so_far);
        until("a flow to come so far", || flow().is_some()).await;
        flow().unwrap()
    }

    /// The only recorded flow.
    pub async fn flow(&self) -> Kept {
        let flows = self.flows(1).await;
        assert_eq!(flows.len(), 1, "{flows:#?}");
        flows.into_iter().next().unwrap()
    }

    /// The counted errors of this kind.
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.engine.snapshot().errors.iter().find(|(k, _)| *k == kind.as_str()).map_or(0, |(_, n)| *n)
    }
}

/// An address without a listener, reserved while this is alive.
pub struct Nobody(tokio::net::TcpSocket);

impl Nobody {
    pub fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self(socket)
    }

    pub fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

pub fn get(url: &str) -> String {
    request("GET", url, "")
}

/// A request in absolute-form with more fields, each with its CRLF.
pub fn request(method: &str, url: &str, fields: &str) -> String {
    let host = url.split('/').nth(2).unwrap_or_default();
    format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
}

pub fn inside(authority: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

/// Waits until the condition is true.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("in vain waited for: {what}");
}
