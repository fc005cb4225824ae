//! The resolver against a test name server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use tokio::net::UdpSocket;

use super::*;

const A: u16 = 1;

/// How the name server responds.
#[derive(Clone, Copy)]
enum Zone {
    /// Every name has this IPv4 address, with this TTL in seconds.
    Has([u8; 4], u32),
    /// No name exists.
    Empty,
    /// Every name exists, and none has an address.
    NoAddress,
    /// No query is answered.
    Silent,
}

struct NameServer {
    addr: SocketAddr,
    asked: Arc<AtomicUsize>,
    /// Answers are sent only while this is open.
    gate: watch::Sender<bool>,
}

impl NameServer {
    async fn start(zone: Zone) -> Self {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let addr = socket.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let (gate, open) = watch::channel(true);
        tokio::spawn(async move {
            let mut buf = [0; 512];
            while let Ok((n, from)) = socket.recv_from(&mut buf).await {
                let (answer, kind) = answer(&buf[..n], zone);
                if kind == A {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                let (socket, mut open) = (socket.clone(), open.clone());
                tokio::spawn(async move {
                    if open.wait_for(|open| *open).await.is_ok() && !matches!(zone, Zone::Silent) {
                        socket.send_to(&answer, from).await.unwrap();
                    }
                });
            }
        });
        Self { addr, asked, gate }
    }

    /// Answers wait until the gate is opened.
    fn close_gate(&self) {
        self.gate.send_replace(false);
    }

    fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// Waits until a query was received.
    async fn received(&self) {
        while self.asked() == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// How many queries for an IPv4 address were received.
    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn resolver(&self, change: impl FnOnce(&mut ResolverOptions)) -> DnsResolver {
        let mut options = ResolverOptions { name_servers: vec![self.addr], ..ResolverOptions::default() };
        change(&mut options);
        DnsResolver::new(options)
    }
}

/// The response to a query with one question (RFC 1035 4.1), and the question's type.
fn answer(query: &[u8], zone: Zone) -> (Vec<u8>, u16) {
    let name_end = 12 + query[12..].iter().position(|b| *b == 0).unwrap() + 1;
    let kind = u16::from_be_bytes([query[name_end], query[name_end + 1]]);
    let (code, record) = match zone {
        Zone::Has(ip, ttl) if kind == A => (0, Some((ip, ttl))),
        Zone::Empty => (3, None),
        _ => (0, None),
    };
    let mut out = query[..2].to_vec();
    out.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(record.is_some()), 0, 0, 0, 0]);
    out.extend(&query[12..name_end + 4]);
    if let Some((ip, ttl)) = record {
        out.extend([0xc0, 12, 0, 1, 0, 1]);
        out.extend(ttl.to_be_bytes());
        out.extend([0, 4]);
        out.extend(ip);
    }
    (out, kind)
}

fn name(s: &str) -> Host {
    Host::parse(s).unwrap()
}

#[tokio::test]
async fn concurrent_lookups_of_a_name_share_one_query() {
    let server = NameServer::start(Zone::Has([192, 0, 2, 7], 60)).await;
    let resolver = server.resolver(|_| {});
    server.close_gate();
    let waiting = Arc::new(AtomicUsize::new(0));
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let (resolver, waiting) = (resolver.clone(), waiting.clone());
            tokio::spawn(async move {
                waiting.fetch_add(1, Ordering::Relaxed);
                resolver.resolve(&name("a.example")).await.unwrap()[0]
            })
        })
        .collect();
    while waiting.load(Ordering::Relaxed) < 200 {
        tokio::task::yield_now().await;
    }
    server.open_gate();
    for answer in futures_util::future::join_all(asking).await {
        assert_eq!(answer.unwrap(), IpAddr::from([192, 0, 2, 7]));
    }
    assert_eq!(server.asked(), 1);
    resolver.resolve(&name("a.example")).await.unwrap();
    assert_eq!((server.asked(), resolver.cached_names()), (1, 1));
}

/// Advances the clock of the cache without waiting.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn an_answer_is_cached_for_its_ttl_within_bounds() {
    for (ttl, kept) in [(0, 60), (100, 100), (7200, 3600)] {
        let server = NameServer::start(Zone::Has([192, 0, 2, 7], ttl)).await;
        let resolver = server.resolver(|o| {
            (o.min_ttl, o.max_ttl) = (Duration::from_secs(60), Duration::from_secs(3600));
        });
        resolver.resolve(&name("a.example")).await.unwrap();
        pass(kept - 5).await;
        resolver.resolve(&name("a.example")).await.unwrap();
        assert_eq!(server.asked(), 1, "ttl {ttl}");
        pass(6).await;
        resolver.resolve(&name("a.example")).await.unwrap();
        assert_eq!(server.asked(), 2, "ttl {ttl}");
    }
}

#[tokio::test]
async fn nonexistence_is_cached() {
    let server = NameServer::start(Zone::Empty).await;
    let resolver = server.resolver(|o| o.negative_ttl = Duration::from_secs(60));
    for _ in 0..3 {
        let error = resolver.resolve(&name("gone.example")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Dns);
        assert_eq!(error.message(), "gone.example could not be resolved: the name does not exist");
    }
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn a_name_without_addresses_is_distinguished_from_nonexistence() {
    let server = NameServer::start(Zone::NoAddress).await;
    let error = server.resolver(|_| {}).resolve(&name("mail.example")).await.unwrap_err();
    assert_eq!(error.message(), "mail.example could not be resolved: it has no address");
}

#[tokio::test]
async fn dns_timeout_is_reported_and_cached_briefly() {
    let server = NameServer::start(Zone::Silent).await;
    let resolver = server.resolver(|o| {
        (o.timeout, o.min_ttl) = (Duration::from_millis(100), Duration::from_secs(1));
    });
    let error = resolver.resolve(&name("a.example")).await.unwrap_err();
    assert!(error.message().contains("no name server answered within 0.1 s"), "{error}");
    assert_eq!(error.retryable(), Retryable::Yes);
    let asked = server.asked();
    resolver.resolve(&name("a.example")).await.unwrap_err();
    assert_eq!(server.asked(), asked);
    pass(2).await;
    resolver.resolve(&name("a.example")).await.unwrap_err();
    assert!(server.asked() > asked);
}

#[tokio::test]
async fn loopback_names_addresses_and_overrides_cause_no_query() {
    let server = NameServer::start(Zone::Has([192, 0, 2, 7], 60)).await;
    let fixed: IpAddr = [192, 0, 2, 9].into();
    let resolver = server.resolver(|o| {
        o.overrides.insert("fixed.example".into(), vec![fixed]);
    });
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for (host, expected) in [
        ("localhost", &loopback[..]),
        ("a.localhost.", &loopback),
        ("fixed.example", &[fixed]),
        ("fixed.example.", &[fixed]),
        ("192.0.2.1", &[[192, 0, 2, 1].into()]),
        ("[::1]", &loopback[1..]),
    ] {
        assert_eq!(&resolver.resolve(&name(host)).await.unwrap()[..], expected, "{host}");
    }
    assert_eq!((server.asked(), resolver.cached_names()), (0, 0));
}

#[tokio::test]
async fn the_cache_is_bounded() {
    let server = NameServer::start(Zone::Has([192, 0, 2, 7], 60)).await;
    let resolver = server.resolver(|o| o.capacity = 8);
    for i in 0..30 {
        resolver.resolve(&name(&format!("h{i}.example"))).await.unwrap();
        assert!(resolver.cached_names() <= 8);
    }
}

#[tokio::test]
async fn a_lookup_continues_when_its_first_caller_is_cancelled() {
    let server = NameServer::start(Zone::Has([192, 0, 2, 7], 60)).await;
    let resolver = server.resolver(|_| {});
    server.close_gate();
    let host = name("a.example");
    tokio::select! {
        found = resolver.resolve(&host) => panic!("{found:?}"),
        () = server.received() => {}
    }
    server.open_gate();
    resolver.resolve(&name("a.example")).await.unwrap();
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn a_worker_that_ends_during_a_lookup_leaves_no_pending_entry() {
    let server = NameServer::start(Zone::Has([192, 0, 2, 7], 60)).await;
    let resolver = server.resolver(|_| {});
    let left = resolver.clone();
    // Nothing answers meanwhile: the name server runs in this thread, which waits for the other.
    let worker = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let host = name("a.example");
            let mut begun = std::pin::pin!(left.resolve(&host));
            let polled = std::future::poll_fn(|cx| Poll::Ready(begun.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            // The lookup is a task of its own, which this lets begin.
            tokio::task::yield_now().await;
        });
    });
    worker.join().unwrap();
    let found = tokio::time::timeout(Duration::from_secs(10), resolver.resolve(&name("a.example"))).await;
    assert_eq!(found.unwrap().unwrap()[0], IpAddr::from([192, 0, 2, 7]));
}
