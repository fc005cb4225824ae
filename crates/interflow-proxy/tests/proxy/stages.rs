//! Stages: every phase runs once and in order, and verdicts take effect.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use interflow_proxy::config::ReverseListener;
use interflow_testkit::{Origin, Wire, client};
use interflow_types::{
    Body, EarlyExit, Error, ErrorKind, Flow, HttpVersion, MaybeFuture, MessageVerdict, Phase, PhaseSet, PlanScope,
    RequestHead, RequestVerdict, Response, ResponseHead, Result, Stage, StatusCode, StreamMessage, TunnelVerdict,
    UpstreamOverrides,
};

use crate::support::{End, Proxy, get, inside, request};

const ALL: [Phase; 10] = [
    Phase::Authority,
    Phase::ClientHello,
    Phase::RequestHead,
    Phase::RequestBody,
    Phase::UpstreamConnect,
    Phase::BeforeSend,
    Phase::ResponseHead,
    Phase::ResponseBody,
    Phase::Message,
    Phase::Done,
];

/// What the stage says at its phase; each phase turns it into its own verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Deny,
    Drop,
    Answer,
    Intercept,
    Tunnel,
}

impl Says {
    fn error() -> Error {
        Error::new(ErrorKind::Denied, "the stage says no")
    }

    fn response() -> Box<Response> {
        Box::new(Response::full(StatusCode::IM_A_TEAPOT, "text/plain", "the stage answers"))
    }

    fn to_tunnel(says: Option<Self>) -> TunnelVerdict {
        match says {
            None => TunnelVerdict::Continue,
            Some(Self::Deny) => TunnelVerdict::Deny(Self::error()),
            Some(Self::Intercept) => TunnelVerdict::Intercept,
            Some(Self::Tunnel) => TunnelVerdict::Tunnel,
            Some(other) => panic!("a tunnel has no verdict {other:?}"),
        }
    }

    fn to_request(says: Option<Self>) -> RequestVerdict {
        match says {
            None => RequestVerdict::Continue,
            Some(Self::Deny) => RequestVerdict::Deny(Self::error()),
            Some(Self::Drop) => RequestVerdict::Deny(Error::new(ErrorKind::Dropped, "the stage drops it")),
            Some(Self::Answer) => RequestVerdict::Answer(Self::response()),
            Some(other) => panic!("a request has no verdict {other:?}"),
        }
    }
}

/// Records each phase, and returns a verdict at one of them.
#[derive(Default)]
struct Noted {
    seen: Mutex<Vec<Phase>>,
    says: Option<(Phase, Says)>,
}

impl Noted {
    fn saying(phase: Phase, says: Says) -> Arc<Self> {
        Arc::new(Self { says: Some((phase, says)), ..Self::default() })
    }

    fn at(&self, phase: Phase) -> Option<Says> {
        self.seen.lock().unwrap().push(phase);
        self.says.filter(|(p, _)| *p == phase).map(|(_, says)| says)
    }

    fn body(&self, phase: Phase, body: Body) -> Result<Body, EarlyExit> {
        Says::to_request(self.at(phase)).into_result().map(|()| body)
    }

    fn take(&self) -> Vec<Phase> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Stage for Noted {
    fn name(&self) -> &'static str {
        "noted"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        ALL.iter().fold(PhaseSet::NONE, |all, p| all.with(*p))
    }
    fn authority<'a>(&'a self, _: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        MaybeFuture::Ready(Says::to_tunnel(self.at(Phase::Authority)))
    }
    fn client_hello<'a>(&'a self, _: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        MaybeFuture::Ready(Says::to_tunnel(self.at(Phase::ClientHello)))
    }
    fn request_head<'a>(&'a self, _: &'a mut Flow, _: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        MaybeFuture::Ready(Says::to_request(self.at(Phase::RequestHead)))
    }
    fn request_body<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a mut RequestHead,
        b: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        MaybeFuture::Ready(self.body(Phase::RequestBody, b))
    }
    fn upstream_connect<'a>(
        &'a self,
        _: &'a mut Flow,
        _: Option<&'a RequestHead>,
        _: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        MaybeFuture::Ready(Says::to_request(self.at(Phase::UpstreamConnect)))
    }
    fn before_send<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a mut RequestHead,
        b: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        MaybeFuture::Ready(self.body(Phase::BeforeSend, b))
    }
    fn response_head<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a RequestHead,
        _: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        MaybeFuture::Ready(Says::to_request(self.at(Phase::ResponseHead)))
    }
    fn response_body<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a RequestHead,
        _: &'a mut ResponseHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        MaybeFuture::Ready(self.body(Phase::ResponseBody, body))
    }
    fn message<'a>(&'a self, _: &'a mut Flow, _: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        self.at(Phase::Message);
        MaybeFuture::Ready(MessageVerdict::Continue)
    }
    fn done(&self, _: &Flow) {
        self.at(Phase::Done);
    }
}

const REQUEST: [Phase; 7] = [
    Phase::RequestHead,
    Phase::RequestBody,
    Phase::UpstreamConnect,
    Phase::BeforeSend,
    Phase::ResponseHead,
    Phase::ResponseBody,
    Phase::Done,
];

#[tokio::test]
async fn every_phase_fires_once_and_in_order() {
    let origin = Origin::http().start().await;
    let noted = Arc::new(Noted::default());
    let proxy = Proxy::with(vec![noted.clone()], |_| ()).await;
    let mut wire = proxy.connect().await;
    for n in 1..=2 {
        wire.send(get(&origin.url("/"))).await.unwrap();
        wire.answer().await.unwrap();
        proxy.flows(n).await;
        let mut expected = vec![Phase::Authority];
        expected.extend(REQUEST);
        assert_eq!(noted.take(), expected);
    }
}

#[tokio::test]
async fn every_phase_of_an_intercepted_request_fires_once_and_in_order() {
    let origin = Origin::https().start().await;
    let noted = Arc::new(Noted::default());
    let proxy = Proxy::build(&[&origin], vec![noted.clone()], |_| ());
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    wire.answer().await.unwrap();
    proxy.flow().await;
    let mut expected = vec![Phase::Authority, Phase::ClientHello];
    expected.extend(REQUEST);
    assert_eq!(noted.take(), expected);
}

#[tokio::test]
async fn tunnel_runs_only_its_own_phases() {
    let origin = Origin::https().start().await;
    let noted = Arc::new(Noted::default());
    let proxy = Proxy::with(vec![noted.clone()], |c| c.intercept.exclude = vec!["localhost".into()]).await;
    let wire = proxy.tunnel(&origin.authority()).await;
    drop(wire.into_tls("localhost", origin.ca().client(&[])).await.unwrap());
    proxy.flow().await;
    assert_eq!(noted.take(), [Phase::Authority, Phase::UpstreamConnect, Phase::ClientHello, Phase::Done]);
}

#[tokio::test]
async fn a_stage_may_deny_or_answer_at_each_phase_of_a_request() {
    let origin = Origin::http().start().await;
    let phases = [&[Phase::Authority], &REQUEST[..6]].concat();
    for phase in phases {
        let before_the_origin = phase < Phase::ResponseHead;
        for (says, status, text) in [(Says::Deny, 403, "the stage says no"), (Says::Answer, 418, "the stage answers")] {
            if (phase, says) == (Phase::Authority, Says::Answer) {
                continue;
            }
            let asked = origin.served();
            let noted = Noted::saying(phase, says);
            let proxy = Proxy::with(vec![noted.clone()], |_| ()).await;
            let mut wire = proxy.connect().await;
            for _ in 0..2 {
                wire.send(request("POST", &origin.url("/echo"), "Content-Length: 4\r\n") + "body").await.unwrap();
                let answer = wire.answer().await.unwrap();
                assert_eq!(answer.status, status, "{phase:?}");
                assert!(answer.text().contains(text), "{phase:?}: {}", answer.text());
            }
            assert_eq!(origin.served() - asked, if before_the_origin { 0 } else { 2 }, "{phase:?}");
            let flow = proxy.flows(2).await.remove(0);
            assert_eq!(flow.error().is_some(), status == 403, "{phase:?}: {flow:#?}");
            assert_eq!(flow.status, Some(status), "{phase:?}");
            assert_eq!(noted.take().iter().filter(|p| **p == Phase::Done).count(), 2, "{phase:?}");
        }
    }
}

#[tokio::test]
async fn a_stage_may_close_the_connection_without_a_response() {
    let origin = Origin::http().start().await;
    for phase in [Phase::RequestHead, Phase::ResponseHead] {
        let proxy = Proxy::with(vec![Noted::saying(phase, Says::Drop)], |_| ()).await;
        let mut wire = proxy.connect().await;
        wire.send(request("GET", &origin.url("/"), "")).await.unwrap();
        assert!(wire.answer().await.is_err(), "{phase:?}");
        assert_eq!(proxy.flow().await.error(), Some(ErrorKind::Dropped), "{phase:?}");
    }
}

/// A way into a tunnel, which denials must close.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Connect,
    Socks5,
}

#[tokio::test]
async fn stage_can_deny_a_tunnel_at_each_of_its_phases() {
    let origin = Origin::https().start().await;
    for entry in [Entry::Connect, Entry::Socks5] {
        for (phase, says) in [
            (Phase::Authority, Says::Deny),
            (Phase::ClientHello, Says::Deny),
            (Phase::UpstreamConnect, Says::Deny),
            // There is no request that could be answered.
            (Phase::UpstreamConnect, Says::Answer),
        ] {
            let noted = Noted::saying(phase, says);
            let proxy = Proxy::with(vec![noted], |c| c.intercept.exclude = vec!["localhost".into()]).await;
            let opened = match entry {
                Entry::Connect => client::connect_tunnel(proxy.addr(), &origin.authority(), None).await,
                Entry::Socks5 => client::socks5_tunnel(proxy.addr(), "localhost", origin.port(), None).await,
            };
            if let Ok(wire) = opened {
                assert_eq!(phase, Phase::ClientHello, "{entry:?}");
                assert!(wire.into_tls("localhost", origin.ca().client(&[])).await.is_err(), "{entry:?} {phase:?}");
            }
            let expected = if says == Says::Deny { ErrorKind::Denied } else { ErrorKind::StageFailed };
            assert_eq!(proxy.flow().await.error(), Some(expected), "{entry:?} {phase:?}");
        }
    }
    assert!(origin.requests().is_empty(), "nothing was sent to the origin");
}

#[tokio::test]
async fn denied_tunnel_reports_the_reason_and_opens_no_connection() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::with(vec![Noted::saying(Phase::Authority, Says::Deny)], |_| ()).await;
    let refused = client::connect_tunnel(proxy.addr(), &origin.authority(), None).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("the stage says no"), "{refused}");
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::Denied));
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn stage_can_choose_interception_or_passthrough() {
    let origin = Origin::https().start().await;
    for phase in [Phase::Authority, Phase::ClientHello] {
        let proxy = Proxy::with(vec![Noted::saying(phase, Says::Tunnel)], |_| ()).await;
        let wire = proxy.tunnel(&origin.authority()).await;
        drop(wire.into_tls("localhost", origin.ca().client(&[])).await.unwrap());
        assert!(matches!(proxy.flow().await.end, Some(End::Tunnelled(_))), "{phase:?}");
        let looks = Noted::saying(phase, Says::Intercept);
        let mode = interflow_proxy::config::InterceptMode::None;
        let proxy = Proxy::build(&[&origin], vec![looks], |c| c.intercept.mode = mode);
        let wire = proxy.tunnel(&origin.authority()).await;
        let ours = interflow_testkit::client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
        assert!(wire.into_tls("localhost", ours).await.is_ok(), "{phase:?}");
    }
}

/// Replaces both bodies, and overrides the route.
struct Rewrite {
    way: UpstreamOverrides,
}

impl Stage for Rewrite {
    fn name(&self) -> &'static str {
        "rewrite"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestBody).with(Phase::ResponseBody).with(Phase::UpstreamConnect)
    }
    fn request_body<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a mut RequestHead,
        b: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        MaybeFuture::pending(async move {
            let (bytes, _) = b
                .collect(1 << 20)
                .await
                .map_err(|e| EarlyExit::Deny(Error::new(ErrorKind::BodyTooLarge, e.to_string())))?;
            Ok(Body::from(Bytes::from([b"<", &bytes[..], b">"].concat())))
        })
    }
    fn upstream_connect<'a>(
        &'a self,
        _: &'a mut Flow,
        _: Option<&'a RequestHead>,
        way: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        *way = self.way.clone();
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
    fn response_body<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a RequestHead,
        _: &'a mut ResponseHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        MaybeFuture::pending(async move {
            let (bytes, _) = body
                .collect(1 << 20)
                .await
                .map_err(|e| EarlyExit::Deny(Error::new(ErrorKind::BadResponse, e.to_string())))?;
            Ok(Body::from(Bytes::from([&bytes[..], b" indeed"].concat())))
        })
    }
}

fn rewrite(way: UpstreamOverrides) -> Vec<Arc<dyn Stage>> {
    vec![Arc::new(Rewrite { way })]
}

#[tokio::test]
async fn bodies_edited_by_a_stage_are_reframed() {
    for speaks in [&["http/1.1"][..], &["h2"]] {
        let origin = Origin::https().alpn(speaks).start().await;
        let proxy = Proxy::build(&[&origin], rewrite(UpstreamOverrides::default()), |_| ());
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        let host = format!("POST /echo HTTP/1.1\r\nHost: {}\r\n", origin.authority());
        for body in ["Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"] {
            wire.send(format!("{host}{body}")).await.unwrap();
            let answer = wire.answer().await.unwrap();
            assert_eq!(answer.text(), "<abc> indeed");
            assert_eq!(answer.header("content-length"), Some("12"));
        }
        wire.send(format!("{host}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")).await.unwrap();
        assert!(wire.head().await.unwrap().unwrap().starts_with(b"HTTP/1.1 100"), "the body is asked for");
        wire.send("abc").await.unwrap();
        assert_eq!(wire.answer().await.unwrap().text(), "<abc> indeed");
        wire.send(format!("HEAD / HTTP/1.1\r\nHost: {}\r\n\r\n", origin.authority())).await.unwrap();
        assert_eq!(wire.answer_to("HEAD").await.unwrap().status, 200);
        let client = proxy.h2(&origin.authority()).await;
        let post = http::Request::post(origin.url("/echo")).header("content-length", "3").body(()).unwrap();
        let answer = client.request(post, Bytes::from_static(b"abc")).await.unwrap();
        assert_eq!((answer.text().as_str(), answer.header("content-length")), ("<abc> indeed", Some("12")));
        let flows = proxy.flows(5).await;
        assert_eq!((&flows[0].sent[..], &flows[0].received[..]), (&b"<abc>"[..], &b"<abc> indeed"[..]));
    }
}

#[tokio::test]
async fn stage_can_override_the_upstream_route() {
    let origin = Origin::https().start().await;
    let elsewhere = Some(format!("localhost:{}", origin.port()).parse().unwrap());
    let proxy =
        Proxy::build(&[&origin], rewrite(UpstreamOverrides { dial: elsewhere, ..UpstreamOverrides::default() }), |c| {
            c.upstream.danger_insecure = true;
        });
    let mut wire = proxy.tls("moved.test:1", &["http/1.1"]).await;
    wire.send("GET / HTTP/1.1\r\nHost: moved.test:1\r\n\r\n").await.unwrap();
    assert_eq!(wire.answer().await.unwrap().text(), "hello\n indeed");
    assert_eq!(origin.only_request().sni.as_deref(), Some("moved.test"));

    let way =
        UpstreamOverrides { version: Some(HttpVersion::Http11), via: Some(Vec::new()), ..UpstreamOverrides::default() };
    let proxy = Proxy::build(&[&origin], rewrite(way), |_| ());
    let client = proxy.h2(&origin.authority()).await;
    client.get(&origin.url("/")).await.unwrap();
    assert_eq!(origin.requests()[1].version, "HTTP/1.1");

    let proxy = Proxy::with(
        rewrite(UpstreamOverrides { via: Some(vec!["ftp://x".into()]), ..UpstreamOverrides::default() }),
        |_| (),
    )
    .await;
    let answer = proxy.get("http://localhost:1/").await;
    assert_eq!((answer.status, answer.header("x-interflow-error")), (500, Some("stage_failed")));
}

/// Reads the body before the request is sent.
struct Reads;

impl Stage for Reads {
    fn name(&self) -> &'static str {
        "reads"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestBody)
    }
    fn request_body<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a mut RequestHead,
        b: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        MaybeFuture::pending(async move { Ok(b.collect(100).await.expect("a small body").0.into()) })
    }
}

#[tokio::test]
async fn stage_reading_the_body_triggers_100_continue_else_the_origin_decides() {
    let cases: [(Arc<dyn Stage>, &str, u16, usize); 2] =
        [(Arc::new(Noted::default()), "", 417, 0), (Arc::new(Reads), "body", 200, 1)];
    for (stage, body, status, told) in cases {
        let origin = Origin::raw(|mut wire: Wire, _| async move {
            let head = wire.head().await?.expect("a request");
            let expects = String::from_utf8_lossy(&head).to_lowercase().contains("100-continue");
            let status = if expects { "417 Expectation Failed" } else { "200 OK" };
            wire.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")).await?;
            wire.to_end().await.map(drop)
        })
        .await;
        let proxy = Proxy::with(vec![stage], |_| ()).await;
        let mut wire = proxy.connect().await;
        let fields = "Expect: 100-continue\r\nContent-Length: 4\r\n";
        wire.send(request("POST", &format!("http://{}/", origin.addr()), fields) + body).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.informational.len()), (status, told));
    }
}

/// Decides about nothing: the client leaves before it does.
struct Undecided(Phase, Arc<tokio::sync::Notify>);

impl Stage for Undecided {
    fn name(&self) -> &'static str {
        "undecided"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(self.0)
    }
    fn authority<'a>(&'a self, _: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        self.1.notify_one();
        MaybeFuture::Pending(Box::pin(std::future::pending()))
    }
    fn request_head<'a>(&'a self, _: &'a mut Flow, _: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        self.1.notify_one();
        MaybeFuture::Pending(Box::pin(std::future::pending()))
    }
}

#[tokio::test]
async fn what_a_client_abandons_while_a_stage_decides_is_recorded() {
    for (phase, ask) in [
        (Phase::RequestHead, get("http://asked.test/")),
        (Phase::Authority, "CONNECT asked.test:80 HTTP/1.1\r\nHost: asked.test:80\r\n\r\n".to_owned()),
    ] {
        let asked = Arc::new(tokio::sync::Notify::new());
        let proxy = Proxy::with(vec![Arc::new(Undecided(phase, Arc::clone(&asked)))], |_| ()).await;
        let mut wire = proxy.connect().await;
        wire.send(ask).await.unwrap();
        asked.notified().await;
        drop(wire);
        let flow = proxy.flow().await;
        assert_eq!((flow.authority.as_str(), flow.error()), ("asked.test:80", Some(ErrorKind::ClientGone)));
    }
}

#[tokio::test]
async fn what_a_client_of_socks_or_without_a_proxy_abandons_while_a_stage_decides_is_recorded() {
    let origin = Origin::https().start().await;
    let hello = crate::life::hello_of(&origin).await;
    let socks = b"\x05\x01\0\x05\x01\0\x03\x09localhost\x01\xbb";
    // A client that began TLS cannot go on without its side of the connection.
    for (entry, sent) in
        [("socks5", &socks[..]), ("reverse", &hello[..]), ("socks5", &[&socks[..], &hello].concat()[..])]
    {
        let asked = Arc::new(tokio::sync::Notify::new());
        let undecided = Undecided(Phase::Authority, Arc::clone(&asked));
        let reverse = ReverseListener { listen: "127.0.0.1:0".parse().unwrap(), port: None };
        let proxy = Proxy::with(vec![Arc::new(undecided)], |c| c.proxy.reverse = vec![reverse]).await;
        let mut wire = match entry {
            "reverse" => Wire::connect(proxy.engine.reverse_addresses()[0]).await.unwrap(),
            _ => proxy.connect().await,
        };
        wire.send(sent).await.unwrap();
        asked.notified().await;
        // Not dropped with unread bytes, which would reset the connection.
        wire.finish().await.unwrap();
        let flow = proxy.flow().await;
        assert_eq!((flow.authority.as_str(), flow.transport.as_str()), ("localhost:443", entry));
        assert_eq!(flow.error(), Some(ErrorKind::ClientGone));
        wire.to_end().await.unwrap();
        assert_eq!(proxy.errors(ErrorKind::ClientGone), 1, "{entry}");
    }
}

#[tokio::test]
async fn a_tunnel_of_socks_is_opened_for_a_half_closed_client_if_configured() {
    let origin = Origin::http().start().await;
    let release = Arc::new(tokio::sync::Notify::new());
    let stage = Arc::new(Slow(Arc::clone(&release)));
    let proxy = Proxy::with(vec![stage], |c| c.proxy.keep_half_closed = true).await;
    let mut wire = proxy.connect().await;
    let [high, low] = origin.port().to_be_bytes();
    wire.send([&b"\x05\x01\0\x05\x01\0\x03\x09localhost"[..], &[high, low]].concat()).await.unwrap();
    wire.finish().await.unwrap();
    assert_eq!(&wire.exactly(2).await.unwrap()[..], b"\x05\0");
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    release.notify_one();
    assert_eq!(wire.exactly(10).await.unwrap()[1], 0);
}

/// Bytes that arrive while a stage decides are the tunnel's.
#[tokio::test]
async fn what_a_client_of_socks_sends_before_the_reply_reaches_the_origin() {
    let origin = Origin::http().start().await;
    let release = Arc::new(tokio::sync::Notify::new());
    let proxy = Proxy::with(vec![Arc::new(Slow(Arc::clone(&release)))], |_| ()).await;
    let mut wire = proxy.connect().await;
    let [high, low] = origin.port().to_be_bytes();
    let socks = [&b"\x05\x01\0\x05\x01\0\x03\x09localhost"[..], &[high, low]].concat();
    wire.send([&socks, inside(&origin.authority(), "/bytes/2").as_bytes()].concat()).await.unwrap();
    // The choice of the method.
    assert_eq!(&wire.exactly(2).await.unwrap()[..], b"\x05\0");
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    release.notify_one();
    assert_eq!(wire.exactly(10).await.unwrap()[1], 0);
    assert_eq!(wire.answer().await.unwrap().body.len(), 2);
}

/// Decides when it is told to.
struct Slow(Arc<tokio::sync::Notify>);

impl Stage for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::Authority)
    }
    fn authority<'a>(&'a self, _: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        MaybeFuture::Pending(Box::pin(async {
            self.0.notified().await;
            TunnelVerdict::Continue
        }))
    }
}
