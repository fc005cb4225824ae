//! Interflow's own requests: who may send them when, where they may go, and which are recorded.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::task::Poll;

use interflow_proxy::LocalClient;
use interflow_proxy::config::UpstreamProxyRule;
use interflow_testkit::Origin;
use interflow_types::{
    Body, BoxFuture, ErrorKind, Flow, GatewayMount, GatewayRequest, Headers, HttpClient, HttpVersion, LocalHandler,
    Method, MountTarget, Request, RequestHead, Response, Result, Scheme, Url,
};

use crate::support::Proxy;

fn ask(origin: &Origin) -> Request {
    ask_at(&origin.authority())
}

fn ask_at(authority: &str) -> Request {
    let url = Url { scheme: Scheme::Http, authority: authority.parse().unwrap(), path: "/bytes/3".into() };
    let head =
        RequestHead { method: Method::GET, url, version: HttpVersion::Http11, headers: Headers::new(), protocol: None };
    Request { head, body: Body::Empty }
}

fn proxy(local: &LocalClient) -> Proxy {
    Proxy::with_components(&[], Vec::new(), Vec::new(), local.clone(), |_| ())
}

#[tokio::test]
async fn a_client_works_from_the_start_of_its_server_to_its_end() {
    let origin = Origin::http().start().await;
    let local = LocalClient::default();
    let unrecorded = local.unrecorded();
    assert_eq!(local.send(ask(&origin)).await.unwrap_err().kind(), ErrorKind::Internal, "no server has started");
    let running = proxy(&local);
    for client in [&local, &unrecorded] {
        assert_eq!(client.send(ask(&origin)).await.unwrap().head.status.as_u16(), 200);
    }
    drop(running);
    assert_eq!(local.send(ask(&origin)).await.unwrap_err().kind(), ErrorKind::Internal, "the server has ended");
}

/// Answers every request with what the origin answers to one of its own.
#[derive(Clone)]
struct Asks(LocalClient, String);

impl GatewayMount for Asks {
    fn name(&self) -> &'static str {
        "asks"
    }

    fn find(&self, _: &GatewayRequest<'_>) -> Option<MountTarget> {
        Some(MountTarget::Serve(Arc::new(self.clone())))
    }
}

impl LocalHandler for Asks {
    fn serve<'a>(&'a self, _: &'a mut Flow, _: Request) -> BoxFuture<'a, Result<Response>> {
        Box::pin(self.0.send(ask_at(&self.1)))
    }
}

#[tokio::test]
async fn components_can_send_requests_when_the_first_connection_is_accepted() {
    let origin = Origin::http().start().await;
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Requests that wait before there are workers; many of these, so that the first serves while others start.
    let client = std::thread::spawn(move || {
        let ask = |_| loop {
            if let Ok(mut io) = TcpStream::connect(addr) {
                io.write_all(b"GET / HTTP/1.1\r\nHost: gate.test\r\n\r\n").unwrap();
                break io;
            }
        };
        let mut waiting: Vec<_> = (0..200).map(ask).collect();
        waiting.iter_mut().map(status).filter(|status| status != "HTTP/1.1 200").collect::<Vec<_>>()
    });
    let local = LocalClient::default();
    let mount = Arc::new(Asks(local.clone(), origin.authority()));
    let _proxy = Proxy::with_components(&[], Vec::new(), vec![mount], local, |c| {
        c.gateway.listen = vec![addr];
        c.gateway.hosts = vec!["gate.test".into()];
        c.workers.count = 64;
    });
    let failed = tokio::task::spawn_blocking(|| client.join().unwrap()).await.unwrap();
    assert_eq!(failed, Vec::<String>::new());
}

fn status(io: &mut TcpStream) -> String {
    let mut status = [0; 12];
    io.read_exact(&mut status).unwrap();
    String::from_utf8_lossy(&status).into_owned()
}

#[tokio::test]
async fn each_kind_of_client_goes_where_it_may_and_is_recorded_as_it_says() {
    let origin = Origin::http().start().await;
    let local = LocalClient::default();
    let proxy = proxy(&local);
    let net = |net: &str| vec![net.parse().unwrap()];
    let cases = [
        ("plain", local.clone(), None, true),
        ("unrecorded", local.unrecorded(), None, false),
        ("filtered", local.filtered(Vec::new(), "key.of.test"), Some(ErrorKind::Denied), true),
        ("filtered with an exception", local.filtered(net("127.0.0.0/8"), "key.of.test"), None, true),
        ("filtered and unrecorded", local.filtered(Vec::new(), "k").unrecorded(), Some(ErrorKind::Denied), false),
        ("metadata", local.metadata(), None, false),
    ];
    let mut recorded = 0;
    for (name, client, error, is_recorded) in cases {
        let answer = client.send(ask(&origin)).await;
        assert_eq!(answer.as_ref().err().map(|e| e.kind()), error, "{name}");
        if let Ok(response) = answer {
            assert_eq!(response.body.collect(10).await.unwrap().0.len(), 3, "{name}");
        }
        recorded += usize::from(is_recorded);
        let flows = proxy.flows(recorded).await;
        assert_eq!(flows.len(), recorded, "{name}");
        assert_eq!(flows.last().unwrap().error(), if is_recorded { error } else { None }, "{name}");
    }
}

#[tokio::test]
async fn a_replay_in_plain_text_uses_the_http_version_that_it_names() {
    let origin = Origin::http().start().await;
    let local = LocalClient::default();
    let _proxy = proxy(&local);
    for (version, content_type) in [(HttpVersion::H2, "application/grpc"), (HttpVersion::Http11, "text/plain")] {
        let mut request = ask(&origin);
        request.head.version = version;
        request.head.headers.append("Content-Type", content_type).unwrap();
        request.head.headers.append("TE", "trailers").unwrap();
        local.send_chosen(request, None).1.await.unwrap();
        let seen = origin.requests().pop().unwrap();
        assert_eq!((seen.version.to_string(), seen.header("te")), (version.as_str().to_owned(), Some("trailers")));
    }
    let mut component = ask(&origin);
    component.head.version = HttpVersion::H2;
    local.send(component).await.unwrap();
    assert_eq!(origin.requests().pop().unwrap().version, "HTTP/1.1", "a component's request does not know its origin");
}

#[tokio::test]
async fn filtered_requests_leave_only_unresolvable_names_to_an_upstream_proxy() {
    let origin = Origin::http().start().await;
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    let far = Proxy::start(|c| {
        for name in ["far.invalid", "metadata.internal", "intranet", "known.invalid"] {
            c.upstream.hosts.insert(name.into(), vec![loopback]);
        }
    })
    .await;
    let unresolved = [("far.invalid", true), ("metadata.internal", false), ("intranet", false)];
    for allow_unresolved in [false, true] {
        let local = LocalClient::default();
        let _proxy = Proxy::with_components(&[], Vec::new(), Vec::new(), local.clone(), |c| {
            let via = vec![format!("http://{}", far.addr())];
            c.upstream.proxy = vec![UpstreamProxyRule { hosts: vec!["*".into()], via }];
            c.upstream.hosts.insert("known.invalid".into(), vec![loopback]);
            c.access.allow_unresolved = allow_unresolved;
        });
        let client = local.filtered(Vec::new(), "key.of.test");
        for (name, is_public) in unresolved {
            let sent = client.send(ask_at(&format!("{name}:{}", origin.port()))).await;
            match sent {
                Ok(response) => {
                    assert!((is_public || allow_unresolved) && response.head.status.as_u16() == 200, "{name}")
                }
                Err(e) => {
                    assert!(!is_public && !allow_unresolved && e.kind() == ErrorKind::Denied, "{name}: {e}");
                    assert!(e.to_string().contains("access.allow_unresolved"), "{e}");
                }
            }
        }
        // What can be judged here is, whatever the proxy would make of it.
        for host in ["127.0.0.1", "10.0.0.1", "2130706433", "0x7f.1", "[::1]", "localhost", "known.invalid"] {
            let refused = client.send(ask_at(&format!("{host}:{}", origin.port()))).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Denied, "{host}");
        }
    }
    assert_eq!(origin.served(), 4);
}

#[tokio::test]
async fn a_tls_connection_of_its_own_waits_for_the_server() {
    let origin = Origin::https().start().await;
    let local = LocalClient::default();
    let (client, authority) = (local.clone(), origin.authority().parse().unwrap());
    let mut opening = std::pin::pin!(client.open_tls(&authority));
    let waits = std::future::poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx).is_pending())).await;
    assert!(waits, "no server has started");
    let _proxy = Proxy::with_components(&[&origin], Vec::new(), Vec::new(), local, |_| ());
    assert!(opening.await.is_ok());
}

#[tokio::test]
async fn connection_bound_credentials_of_a_replay_are_not_shared_with_clients() {
    let origin = Origin::http().start().await;
    let local = LocalClient::default();
    let proxy = proxy(&local);
    let mut request = ask(&origin);
    request.head.headers.append("Authorization", "NTLM TlRMTVNTUAAB").unwrap();
    // Read, so that the connection returns to the pool.
    local.send(request).await.unwrap().body.collect(10).await.unwrap();
    proxy.get(&origin.url("/")).await;
    let connections: Vec<_> = origin.requests().iter().map(|r| r.connection).collect();
    assert_eq!(connections, [0, 1]);
}
