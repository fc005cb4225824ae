//! Connecting through test proxies for CONNECT and SOCKS5, and through misbehaving scripts.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::egress::dial::{AllowAllAddresses, DialTimes, Dialer, DialerOptions};
use crate::egress::dns::{DnsResolver, ResolverOptions};
use crate::tls::tests::{Authority as TestCa, names, trusting};
use crate::tls::{ServerTls, TlsProfile, accept_tls};

/// What a test's proxy was asked for, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// A working proxy: CONNECT over TCP or TLS, or SOCKS5, with `user:pass` if `auth` is set.
struct Proxy {
    kind: ProxyKind,
    auth: bool,
    tls: Option<Arc<ServerTls>>,
    log: Log,
}

impl Proxy {
    async fn start(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let this = Arc::new(self);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let this = this.clone();
                tokio::spawn(async move {
                    let mut io = IoStream::from(tcp);
                    if let Some(tls) = &this.tls {
                        io = accept_tls(io, tls, Duration::from_secs(5)).await.unwrap().0;
                    }
                    let asked = match this.kind {
                        ProxyKind::Socks5 => this.socks5(&mut io).await,
                        _ => this.connect(&mut io).await,
                    };
                    if let Some(target) = asked {
                        let port = target.rsplit_once(':').unwrap().1;
                        let mut origin = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
                        let _ = copy_bidirectional(&mut io, &mut origin).await;
                    }
                });
            }
        });
        addr
    }

    async fn connect(&self, io: &mut IoStream) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(io.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.strip_prefix("CONNECT ").unwrap().split_once(' ').unwrap().0.to_owned();
        assert!(head.contains(&format!("\r\nHost: {target}\r\n")));
        self.log.lock().unwrap().push(format!("connect {target}"));
        if self.auth && !head.contains("\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n") {
            io.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            return None;
        }
        io.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n").await.unwrap();
        Some(target)
    }

    async fn socks5(&self, io: &mut IoStream) -> Option<String> {
        let mut head = [0; 2];
        io.read_exact(&mut head).await.unwrap();
        let mut methods = vec![0; head[1].into()];
        io.read_exact(&mut methods).await.unwrap();
        let method = if self.auth { 2 } else { 0 };
        if !methods.contains(&method) {
            io.write_all(&[5, 0xff]).await.unwrap();
            return None;
        }
        io.write_all(&[5, method]).await.unwrap();
        if self.auth {
            let mut given = [0; 11];
            io.read_exact(&mut given).await.unwrap();
            let good = &given == b"\x01\x04user\x04pass";
            io.write_all(&[1, u8::from(!good)]).await.unwrap();
            if !good {
                return None;
            }
        }
        let mut head = [0; 4];
        io.read_exact(&mut head).await.unwrap();
        assert_eq!(head[..3], [5, 1, 0]);
        let host = match head[3] {
            1 => std::net::Ipv4Addr::from(io.read_u32().await.unwrap()).to_string(),
            4 => format!("[{}]", std::net::Ipv6Addr::from(io.read_u128().await.unwrap())),
            _ => {
                let mut name = vec![0; io.read_u8().await.unwrap().into()];
                io.read_exact(&mut name).await.unwrap();
                String::from_utf8(name).unwrap()
            }
        };
        let target = format!("{host}:{}", io.read_u16().await.unwrap());
        self.log.lock().unwrap().push(format!("socks5 {target}"));
        io.write_all(&[5, 0, 0, 3, 3, b'b', b'n', b'd', 0, 80]).await.unwrap();
        Some(target)
    }
}

/// An origin that speaks first, so that its bytes may arrive with the proxy's response.
async fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                tcp.write_all(b"220 ready\r\n").await.unwrap();
                let mut all = Vec::new();
                tcp.read_to_end(&mut all).await.unwrap();
                tcp.write_all(&all).await.unwrap();
            });
        }
    });
    port
}

fn dialer(ca: Option<&TestCa>) -> Dialer {
    let proxy_tls = ca.map(|ca| TlsProfile::new(trusting(&ca.pem)).unwrap());
    let overrides = [("proxy.example".into(), vec!["127.0.0.1".parse().unwrap()])].into();
    let resolver = DnsResolver::new(ResolverOptions { overrides, ..ResolverOptions::default() });
    let options = DialerOptions { proxy_tls, connect_timeout: Duration::from_millis(500), ..DialerOptions::default() };
    Dialer::new(resolver, Arc::new(AllowAllAddresses), options)
}

/// Receives the greeting, then sends, closes, and expects its own bytes back.
async fn talk(mut io: IoStream) {
    io.write_all(b"echo").await.unwrap();
    io.shutdown().await.unwrap();
    let mut all = Vec::new();
    io.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"220 ready\r\necho");
}

#[tokio::test]
async fn a_tunnel_opens_through_every_kind_of_proxy_with_and_without_credentials() {
    let ca = TestCa::new("CA");
    let port = origin().await;
    for kind in [ProxyKind::Http, ProxyKind::Https, ProxyKind::Socks5] {
        for (auth, given) in [(false, ""), (true, "user:pass@"), (false, "user:pass@")] {
            let log = Log::default();
            let tls = (kind == ProxyKind::Https).then(|| Arc::new(ca.server(&names(&["proxy.example"]))));
            let at = Proxy { kind, auth, tls, log: log.clone() }.start().await;
            let proxy: UpstreamProxy =
                format!("{}://{given}proxy.example:{}", kind.as_str(), at.port()).parse().unwrap();
            for host in ["origin.example", "127.0.0.1", "[::1]"] {
                let target = format!("{host}:{port}").parse().unwrap();
                let mut times = DialTimes::default();
                let dialed = dialer(Some(&ca)).dial(&target, std::slice::from_ref(&proxy), &mut times).await;
                let (io, info) = dialed.unwrap();
                assert_eq!(info.peer.port(), at.port());
                assert_eq!(info.via.as_deref(), Some(&*format!("{}://proxy.example:{}", kind.as_str(), at.port())));
                talk(io).await;
                let asked = log.lock().unwrap().pop().unwrap();
                assert!(asked.ends_with(&format!(" {host}:{port}")), "the proxy resolves the name: {asked}");
            }
        }
    }
}

#[tokio::test]
async fn a_chain_of_proxies_is_walked_in_order() {
    let ca = TestCa::new("CA");
    let port = origin().await;
    let log = Log::default();
    let mut chain = Vec::new();
    for kind in [ProxyKind::Socks5, ProxyKind::Https, ProxyKind::Http] {
        let tls = (kind == ProxyKind::Https).then(|| Arc::new(ca.server(&names(&["proxy.example"]))));
        let at = Proxy { kind, auth: true, tls, log: log.clone() }.start().await;
        chain.push(format!("{}://user:pass@proxy.example:{}", kind.as_str(), at.port()).parse().unwrap());
    }
    let target = format!("origin.example:{port}").parse().unwrap();
    let (io, info) = dialer(Some(&ca)).dial(&target, &chain, &mut DialTimes::default()).await.unwrap();
    talk(io).await;
    let asked = log.lock().unwrap().clone();
    let expected = [
        format!("socks5 {}", chain[1].authority),
        format!("connect {}", chain[2].authority),
        format!("connect origin.example:{port}"),
    ];
    assert_eq!(asked, expected);
    let via = info.via.unwrap();
    assert_eq!(via.matches(" > ").count(), 2);
    assert!(!via.contains("pass"));
}

/// Connects through a proxy that sends one fixed response, and returns the error.
async fn error_of(scheme: &str, answers: &'static [&'static [u8]]) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        for answer in answers {
            let _ = tcp.read(&mut [0; 1024]).await;
            let _ = tcp.write_all(answer).await;
        }
        let _ = tcp.shutdown().await;
        let _ = tcp.read(&mut [0; 1024]).await;
    });
    let proxy = format!("{scheme}{at}").parse().unwrap();
    let target = "origin.example:443".parse().unwrap();
    let error = dialer(None).dial(&target, &[proxy], &mut DialTimes::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UpstreamProxy, "{error}");
    assert!(error.message().contains(&format!("{at}")), "it names the proxy: {error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    error
}

#[tokio::test]
async fn a_proxys_refusal_is_reported() {
    let too_long = format!("HTTP/1.1 200 {}", "x".repeat(20_000)).leak().as_bytes();
    let too_long: &'static [&'static [u8]] = vec![too_long].leak();
    let answers: [(&str, &'static [&'static [u8]], &str); 14] = [
        ("http://", &[b"HTTP/1.1 407 Go away\r\n\r\n"], "answered 407 Proxy Authentication Required"),
        ("http://", &[b"HTTP/1.1 407 Go away\r\n\r\n"], "it wants credentials"),
        ("http://u:secret@", &[b"HTTP/1.1 407 Go away\r\n\r\n"], "it does not accept the credentials"),
        ("http://", &[b"HTTP/1.0 503 Down\r\n\r\n"], "could not reach the destination"),
        ("http://", &[b"SSH-2.0-OpenSSH\r\n\r\n"], "something that is not HTTP"),
        ("http://", too_long, "something that is not HTTP"),
        ("http://", &[b"HTTP/1.1 200"], "closed the connection when asked for origin.example:443"),
        ("socks5://", &[b"\x05\xff"], "wants credentials"),
        ("socks5://u:secret@", &[b"\x05\xff"], "takes no user and password"),
        ("socks5://u:secret@", &[b"\x05\x02", b"\x01\x01"], "does not accept the credentials"),
        ("socks5://", &[b"\x05\x00", b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"], "connection refused"),
        ("socks5://", &[b"\x05\x00", b"\x05\x02\x00\x00"], "refused origin.example:443: not allowed by its rules"),
        ("socks5://", &[b"HTTP/1.1 400 Bad\r\n\r\n"], "something that is not SOCKS5"),
        ("socks5://", &[b"\x05\x00", b"\x05"], "closed the connection"),
    ];
    for (scheme, script, text) in answers {
        let error = error_of(scheme, script).await;
        assert!(error.message().contains(text), "{text:?} in {error}");
    }
}

#[tokio::test]
async fn unreachable_or_unresponsive_upstream_proxy_is_named_in_the_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy: UpstreamProxy = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let target = "origin.example:443".parse().unwrap();
    let chain = [proxy.clone()];
    let error = dialer(None).dial(&target, &chain, &mut DialTimes::default()).await.unwrap_err();
    let message =
        format!("the upstream proxy {proxy} did not open a tunnel to {target} within 0.5 s (timeouts.connect)");
    assert_eq!(error.message(), message);
    // The configured time, not what connecting has left of it.
    let secure: UpstreamProxy = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let error = dialer(None).dial(&target, &[secure], &mut DialTimes::default()).await.unwrap_err();
    assert!(error.to_string().ends_with("handshake was not done within 0.5 s (timeouts.connect)"), "{error}");
    drop(listener);
    let error = dialer(None).dial(&target, &chain, &mut DialTimes::default()).await.unwrap_err();
    assert_eq!(error.message(), format!("the upstream proxy {proxy} cannot be reached"));
    assert!(error.to_string().contains("refused the connection"), "{error}");
    assert_eq!(error.kind(), ErrorKind::UpstreamProxy);
}

#[tokio::test]
async fn bytes_received_with_the_proxys_response_belong_to_the_tunnel() {
    // An interim response, a 2xx with irrelevant framing, and tunnel bytes, in one segment.
    let http: &[&[u8]] = &[b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfirst bytes"];
    let socks: &[&[u8]] = &[b"\x05\x00", b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00first bytes"];
    for (scheme, script) in [("http", http), ("socks5", socks)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            for answer in script {
                let _ = tcp.read(&mut [0; 1024]).await;
                tcp.write_all(answer).await.unwrap();
            }
        });
        let target = "origin.example:25".parse().unwrap();
        let (mut io, _) = dialer(None).dial(&target, &[proxy], &mut DialTimes::default()).await.unwrap();
        let mut all = Vec::new();
        io.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"first bytes", "{scheme}");
    }
}

#[test]
fn proxy_urls_are_parsed_and_displayed_without_credentials() {
    let auth = |u: &str, p: &str| Some((u.to_owned(), p.to_owned()));
    for (url, displayed, credentials) in [
        ("http://corp:3128", "http://corp:3128", None),
        ("HTTP://Corp/", "http://corp:80", None),
        ("https://u:p@corp", "https://corp:443", auth("u", "p")),
        ("socks5://u@[::1]", "socks5://[::1]:1080", auth("u", "")),
        ("socks5h://a:b%40c%3A@h:1", "socks5://h:1", auth("a", "b@c:")),
        ("http://u:p@ss@h:1", "http://h:1", auth("u", "p@ss")),
    ] {
        let proxy: UpstreamProxy = url.parse().unwrap();
        assert_eq!(proxy.to_string(), displayed);
        assert_eq!(proxy.auth, credentials);
        assert!(!format!("{proxy:?}").contains("p@"));
    }
    for url in ["corp:3128", "ftp://h", "http://", "http://:x@h", "http://h:0", "http://u%0a:p@h", "http://h/path"] {
        let error = url.parse::<UpstreamProxy>().unwrap_err();
        assert_eq!(
            (error.kind(), error.error_source()),
            (ErrorKind::UpstreamProxy, interflow_types::ErrorSource::Config),
            "{url}"
        );
    }
}
