//! Cost of impersonation: client CPU per handshake and per request of 8 KiB, and requests per second, compared with
//! plain TLS: `cargo run --release -p interflow-net --features impersonate --example disguise_cost -- [FILE]
//! [HANDSHAKES] [REQUESTS]`. Five rounds; medians are printed, and written to the file as JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_codec::fingerprint::PROFILES;
use interflow_net::ca::CertificateAuthority;
use interflow_net::egress::dial::{AllowAllAddresses, Dialer, DialerOptions};
use interflow_net::egress::dns::{DnsResolver, ResolverOptions};
use interflow_net::egress::{
    EgressOptions, EgressShared, UpstreamClient, UpstreamProtocol, UpstreamReport, UpstreamRoute,
};
use interflow_net::io::IoStream;
use interflow_net::tls::{Alpn, TlsProfile, TlsProfileOptions, accept_tls, connect_tls};
use interflow_types::{
    Body, BodyFrame, FlowClock, FlowTimings, Headers, Host, HttpVersion, Method, Request, RequestHead, Scheme, Url,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LIMIT: Duration = Duration::from_secs(10);
const BODY: usize = 8192;
const ROUNDS: usize = 5;

fn main() {
    let arg = |n, default| std::env::args().nth(n).map_or(default, |a| a.parse().expect("a number"));
    let file = std::env::args().nth(1);
    let (handshakes, requests): (usize, usize) = (arg(2, 300), arg(3, 10_000));
    let dir = tempfile::tempdir().expect("a temporary folder");
    let ca = CertificateAuthority::open_or_create(dir.path()).expect("a certificate authority");
    let trusting = TlsProfileOptions {
        platform_roots: false,
        extra_ca_pem: vec![ca.certificate_pem().as_bytes().to_vec()],
        ..TlsProfileOptions::default()
    };
    let plain = TlsProfile::new(trusting).expect("the authority can be trusted");
    let addr = origin(&ca);
    let mut ways = vec![("plain", Arc::clone(&plain))];
    for profile in PROFILES.iter() {
        let like = plain.with_fingerprint(profile.name, profile.fingerprint(), false).expect("a build by `make`");
        ways.push((profile.name, like));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut found: Vec<[Vec<f64>; 3]> = ways.iter().map(|_| Default::default()).collect();
        // In rounds, so that warm-up and noise affect all variants alike.
        for _ in 0..ROUNDS {
            for ((_, tls), found) in ways.iter().zip(&mut found) {
                let shake = handshake(addr, tls, handshakes).await;
                let (cpu, rate) = exchange(addr, tls, requests).await;
                found.iter_mut().zip([shake, cpu, rate]).for_each(|(all, one)| all.push(one));
            }
        }
        let mut rows = Vec::new();
        for ((name, _), found) in ways.iter().zip(found) {
            let [shake, cpu, rate] = found.map(median);
            println!("{name:10} {shake:7.1} us of CPU per handshake, {cpu:6.2} us per request, {rate:.0} requests/s");
            rows.push(format!(
                "    {{\"fingerprint\": \"{name}\", \"handshake_cpu_us\": {shake:.1}, \"request_cpu_us\": {cpu:.2}, \"requests_per_s\": {rate:.0}}}"
            ));
        }
        if let Some(file) = file {
            let rows = rows.join(",\n");
            let text = format!(
                "{{\n  \"rounds\": {ROUNDS},\n  \"handshakes\": {handshakes},\n  \"requests\": {requests},\n  \"body_bytes\": {BODY},\n  \"rows\": [\n{rows}\n  ]\n}}\n"
            );
            std::fs::write(&file, text).expect("the file can be written");
        }
    });
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

async fn handshake(addr: SocketAddr, tls: &TlsProfile, times: usize) -> f64 {
    let host = Host::parse("localhost").expect("a name");
    let cpu = cpu_nanos();
    for _ in 0..times {
        let tcp = TcpStream::connect(addr).await.expect("the origin is there");
        connect_tls(IoStream::from(tcp), &host, tls, Alpn::Http1, LIMIT).await.expect("a handshake");
    }
    (cpu_nanos() - cpu) as f64 / 1000.0 / times as f64
}

async fn exchange(addr: SocketAddr, tls: &Arc<TlsProfile>, times: usize) -> (f64, f64) {
    let route = UpstreamRoute {
        scheme: Scheme::Https,
        authority: format!("localhost:{}", addr.port()).parse().expect("an authority"),
        connect_to: Some(addr.into()),
        via: Arc::new([]),
        protocol: UpstreamProtocol::Http1,
        tls: Arc::clone(tls),
        isolation: Default::default(),
        resolver: None,
        connect_via: None,
        absolute_form: false,
    };
    let resolver = DnsResolver::new(ResolverOptions::default());
    let dialer = Arc::new(Dialer::new(resolver, Arc::new(AllowAllAddresses), DialerOptions::default()));
    let egress = UpstreamClient::new(EgressOptions::default(), dialer, EgressShared::new(None));
    let (begun, cpu) = (Instant::now(), cpu_nanos());
    for _ in 0..times {
        let clock = FlowClock::start();
        let (mut timings, mut upstream) = (FlowTimings::default(), None);
        let mut x =
            UpstreamReport { clock: &clock, timings: &mut timings, upstream: &mut upstream, interim: &mut |_| {} };
        let mut answer = egress.send(&route, request(&route), &mut x).await.expect("an answer");
        let mut got = 0;
        while let Some(frame) = answer.body.frame().await {
            if let BodyFrame::Data(data) = frame.expect("a whole body") {
                got += data.len();
            }
        }
        assert_eq!(got, BODY);
    }
    let n = times as f64;
    ((cpu_nanos() - cpu) as f64 / 1000.0 / n, n / begun.elapsed().as_secs_f64())
}

fn request(route: &UpstreamRoute) -> Request {
    let headers: Headers = [("Host", "localhost"), ("User-Agent", "bench/1"), ("Accept", "*/*")].into_iter().collect();
    let url = Url { scheme: route.scheme, authority: route.authority.clone(), path: "/x?y".into() };
    let head = RequestHead { method: Method::GET, url, version: HttpVersion::Http11, headers, protocol: None };
    Request { head, body: Body::Empty }
}

/// An origin in a thread of its own, so that its work is not counted.
fn origin(ca: &CertificateAuthority) -> SocketAddr {
    let tls = ca.server_tls(&Host::parse("localhost").expect("a name"), Alpn::Http1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket like any other");
    let addr = listener.local_addr().expect("a bound address");
    let answer: Arc<[u8]> =
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").as_bytes(), &[b'x'; BODY]].concat().into();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((tcp, _)) = listener.accept().await {
                let (tls, answer) = (tls.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok((mut io, _)) = accept_tls(IoStream::from(tcp), &tls, LIMIT).await else { return };
                    let mut buf = [0; 16 * 1024];
                    while io.read(&mut buf).await.is_ok_and(|n| n > 0) && io.write_all(&answer).await.is_ok() {
                        let _ = io.flush().await;
                    }
                });
            }
        });
    });
    addr
}

/// CPU time of this thread.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split_whitespace().next().and_then(|n| n.parse().ok()).expect("nanoseconds of CPU come first")
}
