//! DNS over HTTPS against a test server with its own certificate.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use interflow_types::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::ca::CertificateAuthority;
use crate::io::IoStream;
use crate::tls::{Alpn, TlsProfileOptions, accept_tls};

/// What the server responds.
#[derive(Clone, Copy)]
enum Says {
    /// `name.test` has 192.0.2.7 and 2001:db8::7 for a minute; no other name exists. The response's `Age` is this
    /// many seconds.
    Addresses(u32),
    /// HTTP 503.
    Unavailable,
    /// An HTML page instead of a message.
    Page,
    /// Bytes that are not a DNS message.
    Rubbish,
}

struct Server {
    addr: SocketAddr,
    ca: String,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(says: Says) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = CertificateAuthority::open_or_create(dir.path()).unwrap();
        let tls = ca.server_tls(&Host::parse("localhost").unwrap(), Alpn::Http1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let tls = tls.clone();
                tokio::spawn(async move {
                    if let Ok((io, _)) = accept_tls(tcp.into(), &tls, Duration::from_secs(5)).await {
                        serve(io, says).await;
                    }
                });
            }
        });
        Self { addr, ca: ca.certificate_pem().to_owned(), connections }
    }

    /// A resolver that queries this server, and trusts its authority or none.
    fn resolver(&self, trusting: bool) -> DnsResolver {
        let extra = if trusting { vec![self.ca.as_bytes().to_vec()] } else { Vec::new() };
        let options =
            TlsProfileOptions { platform_roots: !trusting, extra_ca_pem: extra, ..TlsProfileOptions::default() };
        let url = format!("https://localhost:{}/ask{{?dns}}", self.addr.port());
        let https = DohServer::parse(&url, TlsProfile::new(options).unwrap()).unwrap();
        DnsResolver::new(ResolverOptions { https: Some(https), ..ResolverOptions::default() })
    }
}

async fn serve(mut io: IoStream, says: Says) {
    let mut read = Vec::new();
    while io.read_buf(&mut read).await.is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
        let Some(head) = text.find("\r\n\r\n").map(|at| at + 4) else { continue };
        assert!(text.starts_with("post /ask http/1.1\r\n") && text.contains("content-type: application/dns-message"));
        let length = text.lines().find_map(|l| l.strip_prefix("content-length: ")).unwrap().parse::<usize>().unwrap();
        if read.len() < head + length {
            continue;
        }
        let question = read[head..head + length].to_vec();
        read.drain(..head + length);
        let (status, media, age, body) = match says {
            Says::Addresses(age) => ("200 OK", MEDIA_TYPE, age, answer(&question)),
            Says::Unavailable => ("503 Busy", MEDIA_TYPE, 0, Vec::new()),
            Says::Page => ("200 OK", "text/html", 0, b"<p>log in first".to_vec()),
            Says::Rubbish => ("200 OK", MEDIA_TYPE, 0, b"\x00\x01".to_vec()),
        };
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: {media}\r\nAge: {age}\r\nContent-Length: {length}\r\n\r\n");
        io.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
        io.flush().await.unwrap();
    }
}

fn answer(query: &[u8]) -> Vec<u8> {
    let question = dns::parse_question(query).unwrap();
    assert_eq!(question.id, 0);
    let mut answer = query.to_vec();
    answer[2] = 0x81;
    let address: &[u8] = match (&*question.name, question.kind) {
        ("name.test", 1) => &[192, 0, 2, 7],
        ("name.test", _) => &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
        _ => {
            answer[3] = dns::NXDOMAIN;
            return answer;
        }
    };
    answer[7] = 1;
    answer.extend([0xc0, 12, 0, question.kind as u8, 0, 1, 0, 0, 0, 60, 0, address.len() as u8]);
    answer.extend(address);
    answer
}

fn host(name: &str) -> Host {
    Host::parse(name).unwrap()
}

#[tokio::test]
async fn names_are_resolved_over_https_and_connections_are_kept() {
    let server = Server::start(Says::Addresses(0)).await;
    let names = server.resolver(true);
    let found = names.resolve(&host("name.test")).await.unwrap();
    let addresses: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["2001:db8::7", "192.0.2.7"]);
    let missing = names.resolve(&host("other.test")).await.unwrap_err();
    assert!(missing.message().contains("the name does not exist"), "{missing}");
    // Two concurrent queries need two HTTP/1 connections, and the next two reuse them.
    assert!(server.connections.load(Ordering::Relaxed) <= 2);
}

#[tokio::test]
async fn an_unverified_server_is_not_queried() {
    let server = Server::start(Says::Addresses(0)).await;
    let refused = server.resolver(false).resolve(&host("name.test")).await.unwrap_err();
    assert_eq!(refused.kind(), interflow_types::ErrorKind::Dns);
    assert!(refused.message().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn invalid_responses_are_reported() {
    for (says, part) in
        [(Says::Unavailable, "503"), (Says::Page, "text/html"), (Says::Rubbish, "its response cannot be parsed")]
    {
        let server = Server::start(says).await;
        let failed = server.resolver(true).resolve(&host("name.test")).await.unwrap_err();
        assert!(failed.message().contains(part), "{failed}");
        assert!(failed.message().contains("https://localhost"), "{failed}");
    }
}

#[test]
fn doh_age_header_is_subtracted_from_the_ttl() {
    let bytes = answer(&dns::write_query(0, "name.test", 1).unwrap());
    for (age, ttl) in [(0, 60), (45, 15), (90, 0)] {
        assert_eq!(DnsAnswer::parse(&bytes, age).unwrap().ttl, Duration::from_secs(ttl));
    }
}

#[test]
fn doh_servers_are_given_by_url_or_well_known_name() {
    let tls = TlsProfile::new(TlsProfileOptions::default()).unwrap();
    for (text, url) in [
        ("cloudflare", "https://cloudflare-dns.com/dns-query"),
        ("GOOGLE", "https://dns.google/dns-query"),
        ("https://dns.test", "https://dns.test/dns-query"),
        ("https://dns.test:8443/q?x=1", "https://dns.test:8443/q?x=1"),
        ("https://192.0.2.1/dns-query{?dns}", "https://192.0.2.1/dns-query"),
    ] {
        assert_eq!(DohServer::parse(text, tls.clone()).unwrap().url.to_string(), url);
    }
    for text in ["http://dns.test/", "yahoo", "https://", "https://u:p@dns.test/", "https://dns.test/a b"] {
        assert!(DohServer::parse(text, tls.clone()).is_err(), "{text}");
    }
}
