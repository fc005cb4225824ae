//! CPU cost of a request through one worker's pool, without the origin's own work: `cargo run --release -p
//! interflow-net --example egress_cost -- [BODY_BYTES] [REQUESTS] [CONCURRENCY]`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use interflow_net::egress::dial::{AllowAllAddresses, Dialer, DialerOptions};
use interflow_net::egress::dns::{DnsResolver, ResolverOptions};
use interflow_net::egress::{
    EgressOptions, EgressShared, UpstreamClient, UpstreamProtocol, UpstreamReport, UpstreamRoute,
};
use interflow_net::tls::{TlsProfile, TlsProfileOptions};
use interflow_types::{
    Body, BodyFrame, FlowClock, FlowTimings, Headers, HttpVersion, Method, Request, RequestHead, Scheme, Url,
};

fn main() {
    let arg = |n, default| std::env::args().nth(n).map_or(default, |a| a.parse().expect("a number"));
    let (body, total, width): (usize, usize, usize) = (arg(1, 0), arg(2, 200_000), arg(3, 16));
    let route = Arc::new(UpstreamRoute {
        scheme: Scheme::Http,
        authority: origin(body).into(),
        connect_to: None,
        via: Arc::new([]),
        protocol: UpstreamProtocol::Auto,
        tls: TlsProfile::new(TlsProfileOptions::default()).expect("default options are sound"),
        isolation: Default::default(),
        resolver: None,
        connect_via: None,
        absolute_form: false,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let resolver = DnsResolver::new(ResolverOptions::default());
        let dialer = Arc::new(Dialer::new(resolver, Arc::new(AllowAllAddresses), DialerOptions::default()));
        let egress = Arc::new(UpstreamClient::new(EgressOptions::default(), dialer, EgressShared::new(None)));
        for _ in 0..3 {
            let (begun, cpu) = (Instant::now(), cpu_nanos());
            let tasks: Vec<_> =
                (0..width).map(|_| tokio::spawn(client(egress.clone(), route.clone(), total / width, body))).collect();
            for task in tasks {
                task.await.expect("every exchange went well");
            }
            let n = (total / width * width) as f64;
            let (cost, rate) = ((cpu_nanos() - cpu) as f64 / 1000.0 / n, n / begun.elapsed().as_secs_f64());
            println!("{cost:.2} us of CPU per request, {rate:.0} requests/s");
        }
    });
}

async fn client(egress: Arc<UpstreamClient>, route: Arc<UpstreamRoute>, requests: usize, body: usize) {
    for _ in 0..requests {
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
        assert_eq!(got, body);
    }
}

fn request(route: &UpstreamRoute) -> Request {
    let headers: Headers =
        [("Host", "127.0.0.1:8080"), ("User-Agent", "bench/1"), ("Accept", "*/*")].into_iter().collect();
    let url = Url { scheme: Scheme::Http, authority: route.authority.clone(), path: "/x?y".into() };
    let head = RequestHead { method: Method::GET, url, version: HttpVersion::Http11, headers, protocol: None };
    Request { head, body: Body::Empty }
}

/// An origin in threads of its own, so that its work is not counted.
fn origin(body: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("a bound address");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {body}\r\n\r\n");
    let answer: Arc<[u8]> = [head.as_bytes(), &vec![b'x'; body]].concat().into();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || serve(stream, &answer));
        }
    });
    addr
}

fn serve(mut stream: TcpStream, answer: &[u8]) {
    let mut buf = [0; 16 * 1024];
    while stream.read(&mut buf).is_ok_and(|n| n > 0) && stream.write_all(answer).is_ok() {}
}

/// CPU time of this thread.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split_whitespace().next().and_then(|n| n.parse().ok()).expect("nanoseconds of CPU come first")
}
