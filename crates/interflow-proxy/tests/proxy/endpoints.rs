//! Components with endpoints of their own on the gateway port.

use std::sync::Arc;

use bytes::Bytes;
use interflow_testkit::{Origin, Wire};
use interflow_types::{
    BoxFuture, Flow, GatewayMount, GatewayRequest, LocalHandler, MountTarget, Request, Response, Result, Scheme,
    StatusCode, Url,
};

use crate::support::{End, Proxy};

/// Echoes requests to its endpoint, and forwards its other paths.
struct EchoMount {
    to: String,
}

impl GatewayMount for EchoMount {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn find(&self, knock: &GatewayRequest<'_>) -> Option<MountTarget> {
        let path = knock.path.as_str();
        if path == "/echo" {
            return Some(MountTarget::Serve(Arc::new(Echo)));
        }
        let rest = path.strip_prefix("/on")?;
        let authority = self.to.parse().ok()?;
        let url = Url { scheme: Scheme::Http, authority, path: rest.to_owned().into() };
        Some(MountTarget::Forward { url, keep_host: false, endpoint: None })
    }
}

struct Echo;

impl LocalHandler for Echo {
    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        Box::pin(async move {
            flow.tag("echoed");
            let named = request.head.url.authority.to_string();
            let (body, _) = request.body.collect(1 << 20).await.unwrap();
            let text = [named.as_bytes(), b" ", &body].concat();
            Ok(Response::full(StatusCode::OK, "text/plain", Bytes::from(text)))
        })
    }
}

#[tokio::test]
async fn local_handler_response_is_recorded_like_an_origins() {
    let proxy = Proxy::mounted(vec![Arc::new(EchoMount { to: "localhost:1".into() })], |c| {
        c.gateway.hosts = vec!["gate.test".into()];
    })
    .await;
    let mut wire = Wire::connect(proxy.gateway()).await.unwrap();
    for _ in 0..2 {
        wire.send("POST /echo HTTP/1.1\r\nHost: gate.test\r\nContent-Length: 5\r\n\r\nhello").await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "gate.test:80 hello"));
    }
    let flow = &proxy.flows(2).await[0];
    assert_eq!(flow.url.as_deref(), Some("POST http://gate.test/echo"));
    assert_eq!((flow.sent.as_slice(), flow.received.as_slice()), (&b"hello"[..], &b"gate.test:80 hello"[..]));
    assert_eq!((flow.tags.as_slice(), flow.end.clone()), (&["echoed".to_owned()][..], Some(End::Complete)));
}

#[tokio::test]
async fn a_mount_forwards_requests_and_configured_routes_take_precedence() {
    let (origin, owners) = (Origin::http().start().await, Origin::http().start().await);
    let mount = EchoMount { to: origin.authority() };
    let to = owners.url("/");
    let proxy = Proxy::mounted(vec![Arc::new(mount)], |c| {
        c.gateway.hosts = vec!["gate.test".into()];
        c.gateway.route = vec![interflow_proxy::config::GatewayRoute {
            path: "/on/owned".into(),
            hosts: Vec::new(),
            to,
            strip_path: false,
            preserve_host: false,
        }];
    })
    .await;
    let mut wire = Wire::connect(proxy.gateway()).await.unwrap();
    for (path, status) in [("/on/a?b", 200), ("/on/owned", 200), ("/nowhere", 404)] {
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: gate.test\r\n\r\n")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, status, "{path}");
    }
    let seen = origin.only_request();
    assert_eq!((seen.target.as_str(), seen.authority), ("/a?b", origin.authority()));
    assert_eq!(owners.only_request().target, "/on/owned");
}

#[tokio::test]
async fn cross_site_requests_reach_neither_route_nor_mount() {
    let origin = Origin::http().start().await;
    let (to, mount) = (origin.url("/"), EchoMount { to: origin.authority() });
    let proxy = Proxy::mounted(vec![Arc::new(mount)], |c| {
        c.gateway.origins = vec!["https://app.test".into()];
        c.gateway.route = vec![interflow_proxy::config::GatewayRoute {
            path: "/route".into(),
            hosts: Vec::new(),
            to,
            strip_path: false,
            preserve_host: false,
        }];
    })
    .await;
    let post = async |path: &str, fields: &str| {
        let mut wire = Wire::connect(proxy.gateway()).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\n{fields}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}");
        wire.send(head).await.unwrap();
        wire.answer().await.unwrap().status
    };
    for path in ["/route", "/on/a", "/echo", "/nowhere"] {
        for (fields, status) in [
            ("Host: evil.test\r\n", 421),
            ("Host: evil.test\r\nOrigin: http://evil.test\r\n", 421),
            ("Host: 127.0.0.1\r\nOrigin: http://evil.test\r\n", 403),
            ("Host: localhost\r\nOrigin: null\r\n", 403),
            ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ] {
            assert_eq!(post(path, fields).await, status, "{path} {fields:?}");
        }
        let absolute = format!("http://evil.test{path}");
        assert_eq!(post(&absolute, "Host: evil.test\r\n").await, 421, "{absolute}");
    }
    assert_eq!(origin.requests().len(), 0);
    for fields in ["Host: localhost\r\n", "Host: 127.0.0.1\r\nOrigin: https://app.test\r\n"] {
        assert_eq!(post("/route", fields).await, 200, "{fields:?}");
        assert_eq!(post("/on/a", fields).await, 200, "{fields:?}");
    }
    assert_eq!(origin.requests().len(), 4);
}
