//! The upstream client as a whole, against scripted origins over loopback.

mod bodies;
mod http1;
mod http2;
#[cfg(feature = "impersonate")]
mod impersonate;
mod pooling;
mod retry;
mod tls;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use interflow_types::{
    Body, BodyFrame, BodyStream, Error, FlowClock, FlowTimings, Headers, HttpVersion, Method, Request, RequestHead,
    ResponseHead, Scheme, UpstreamInfo, Url,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::dial::{AllowAllAddresses, Dialer, DialerOptions};
use super::dns::{DnsResolver, ResolverOptions};
use super::*;
use crate::tls::{TlsProfile, TlsProfileOptions};

/// An origin that serves each connection with a closure, which is passed the connection's number, from 0.
struct Origin {
    addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Origin {
    async fn new<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(usize, TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let n = count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(n, stream));
            }
        });
        Self { addr, accepted, task }
    }

    /// Responds to every request head with the same bytes.
    async fn answering(raw: impl Into<Vec<u8>>) -> Self {
        let raw: Arc<[u8]> = raw.into().into();
        Self::new(move |_, mut stream| {
            let raw = raw.clone();
            async move {
                while read_head(&mut stream).await.is_some() {
                    stream.write_all(&raw).await.unwrap();
                }
            }
        })
        .await
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn route(&self) -> UpstreamRoute {
        route(self.addr)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads up to an empty line and no further; `None` if the peer closed before.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Closes with RST.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

fn profile() -> Arc<TlsProfile> {
    TlsProfile::new(TlsProfileOptions::default()).unwrap()
}

fn route(addr: SocketAddr) -> UpstreamRoute {
    thread_local!(static PROFILE: Arc<TlsProfile> = profile());
    UpstreamRoute {
        scheme: Scheme::Http,
        authority: addr.into(),
        connect_to: None,
        via: Arc::new([]),
        protocol: UpstreamProtocol::Auto,
        tls: PROFILE.with(Arc::clone),
        isolation: Isolation::default(),
        resolver: None,
        connect_via: None,
        absolute_form: false,
    }
}

fn egress() -> UpstreamClient {
    egress_with(EgressOptions::default(), None)
}

fn egress_with(options: EgressOptions, cap: Option<u32>) -> UpstreamClient {
    UpstreamClient::new(options, dialer(), EgressShared::new(cap))
}

fn dialer() -> Arc<Dialer> {
    let resolver = DnsResolver::new(ResolverOptions::default());
    Arc::new(Dialer::new(resolver, Arc::new(AllowAllAddresses), DialerOptions::default()))
}

/// What a flow would hold.
struct UpstreamProbe {
    clock: FlowClock,
    timings: FlowTimings,
    upstream: Option<UpstreamInfo>,
    interim: Vec<ResponseHead>,
}

impl UpstreamProbe {
    fn new() -> Self {
        Self { clock: FlowClock::start(), timings: FlowTimings::default(), upstream: None, interim: Vec::new() }
    }

    async fn send(
        &mut self,
        egress: &UpstreamClient,
        route: &UpstreamRoute,
        request: Request,
    ) -> Result<UpstreamResponse, Error> {
        let interim = &mut self.interim;
        let mut exchange = UpstreamReport {
            clock: &self.clock,
            timings: &mut self.timings,
            upstream: &mut self.upstream,
            interim: &mut |head| interim.push(head),
        };
        egress.send(route, request, &mut exchange).await
    }

    fn reused(&self) -> bool {
        self.upstream.as_ref().unwrap().reused
    }
}

fn request(route: &UpstreamRoute, method: Method, path: &str, fields: &[(&str, &str)], body: Body) -> Request {
    let host = route.authority.to_host_header(route.scheme);
    let mut headers: Headers = [("Host", host.as_str())].into_iter().collect();
    for (name, value) in fields {
        headers.append(name, value).unwrap();
    }
    let url = Url { scheme: route.scheme, authority: route.authority.clone(), path: path.into() };
    Request { head: RequestHead { method, url, version: HttpVersion::Http11, headers, protocol: None }, body }
}

fn get(route: &UpstreamRoute) -> Request {
    request(route, Method::GET, "/", &[], Body::Empty)
}

fn post(route: &UpstreamRoute, body: Body) -> Request {
    request(route, Method::POST, "/", &[], body)
}

/// Sends a GET and collects the response body.
async fn fetch(egress: &UpstreamClient, route: &UpstreamRoute) -> (String, UpstreamProbe) {
    let mut probe = UpstreamProbe::new();
    let answer = probe.send(egress, route, get(route)).await.unwrap();
    (text(answer.body).await, probe)
}

async fn text(body: Body) -> String {
    let (data, _) = body.collect(usize::MAX).await.unwrap();
    String::from_utf8(data.to_vec()).unwrap()
}

/// A body in given pieces; `None` stalls until the test ends.
struct Pieces {
    pieces: VecDeque<Option<&'static str>>,
    trailers: Option<Headers>,
    length: Option<u64>,
    polls: Arc<AtomicUsize>,
}

impl Pieces {
    fn new(pieces: &[Option<&'static str>]) -> Self {
        Self { pieces: pieces.iter().copied().collect(), trailers: None, length: None, polls: Arc::default() }
    }
}

impl BodyStream for Pieces {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        match self.pieces.front() {
            Some(None) => Poll::Pending,
            Some(Some(piece)) => {
                let data = Bytes::from_static(piece.as_bytes());
                self.pieces.pop_front();
                Poll::Ready(Some(Ok(BodyFrame::Data(data))))
            }
            None => Poll::Ready(self.trailers.take().map(|t| Ok(BodyFrame::Trailers(t)))),
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.length
    }
}

/// Advances the clock of timers and [`tokio::time::Instant`] without waiting.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
    // The reactor and the tasks whose timers fired run before this returns.
    turns(10).await;
}

/// Lets everything happen that does not wait for time: origins and clients run in this runtime, on one thread.
async fn turns(n: usize) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}

/// Waits until a count stays the same for many turns of the runtime, and returns it.
async fn settled<T: PartialEq>(count: impl Fn() -> T) -> T {
    soon(async {
        loop {
            let before = count();
            turns(2000).await;
            if count() == before {
                return before;
            }
        }
    })
    .await
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), what).await.expect("it came within five seconds")
}
