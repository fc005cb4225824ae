//! A login that ends: what it authenticated ends with it, on every kind of connection that outlives a request.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use interflow_testkit::{H2Client, Origin, ProxyLogin, Wire, client, client_trusting};
use interflow_types::{
    Body, BodyFrame, BodyFuture, BodyStream, ErrorKind, Flow, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead,
    ResponseHead, Result, Stage,
};
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::support::{Proxy, inside, request, until};

/// How a login ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    UserRemoved,
    PasswordChanged,
    ExecEnded,
}

const ENDINGS: [Ending; 3] = [Ending::UserRemoved, Ending::PasswordChanged, Ending::ExecEnded];

/// A proxy with users, a login for it, and another user's, which stays valid.
struct House {
    proxy: Proxy,
    user: &'static str,
    password: String,
    ending: Ending,
    /// Holds the origins' CA, which a reload reads again.
    _origins: tempfile::TempDir,
}

const STAYING: ProxyLogin<'_> = ProxyLogin { user: "bob", password: "enigma" };

impl House {
    async fn new(ending: Ending, origins: &[&Origin]) -> Self {
        let pems: Vec<_> = origins.iter().map(|origin| origin.ca().pem().to_owned()).collect();
        let home = tempfile::tempdir().unwrap();
        let extra_ca = home.path().join("origin.pem");
        std::fs::write(&extra_ca, pems.concat()).unwrap();
        let proxy = Proxy::asking(&["ada", "bob"], |c| {
            if !pems.is_empty() {
                c.upstream.extra_ca.push(extra_ca);
            }
        })
        .await;
        let (user, password) = match ending {
            Ending::ExecEnded => ("exec", proxy.engine.issue_credential("exec")),
            _ => ("ada", "enigma".to_owned()),
        };
        Self { proxy, user, password, ending, _origins: home }
    }

    fn login(&self) -> ProxyLogin<'_> {
        ProxyLogin { user: self.user, password: &self.password }
    }

    fn end(&self) {
        let path = self.proxy.home.path().join("users");
        let users = std::fs::read_to_string(&path).unwrap();
        let others: String = users.lines().filter(|line| !line.starts_with("ada:")).map(|l| format!("{l}\n")).collect();
        match self.ending {
            Ending::ExecEnded => return self.proxy.engine.revoke_credential(self.user, &self.password),
            Ending::UserRemoved => std::fs::write(&path, others).unwrap(),
            Ending::PasswordChanged => {
                let hash = bcrypt::hash("other", 4).unwrap();
                std::fs::write(&path, format!("{others}ada:{hash}\n")).unwrap();
            }
        }
        self.proxy.engine.reload(self.proxy.engine.config()).unwrap();
    }

    async fn tunnel(&self, authority: &str, login: ProxyLogin<'_>) -> Wire {
        client::connect_tunnel(self.proxy.addr(), authority, Some(login)).await.unwrap()
    }

    async fn tls(&self, authority: &str, alpn: &str, login: ProxyLogin<'_>) -> Wire {
        let trust = client_trusting(self.proxy.engine.ca().certificate_pem(), &[alpn]);
        self.tunnel(authority, login).await.into_tls("localhost", trust).await.unwrap()
    }

    /// A flow of the ended login is recorded with the reason.
    async fn assert_recorded(&self) {
        until("the reason to be counted", || self.proxy.errors(ErrorKind::Unauthorized) > 0).await;
    }
}

/// Writes down when the response is let go, and when the flow has ended.
#[derive(Default)]
struct ReleaseOrder(Arc<Mutex<Vec<&'static str>>>);

struct Released(Body, Arc<Mutex<Vec<&'static str>>>);

impl BodyStream for Released {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        self.0.poll_frame(cx)
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.1.lock().unwrap().push("released");
    }
}

impl Stage for ReleaseOrder {
    fn name(&self) -> &'static str {
        "release order"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::ResponseBody).with(Phase::Done)
    }
    fn response_body<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a RequestHead,
        _: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        MaybeFuture::Ready(Ok(Body::stream(Released(body, Arc::clone(&self.0)))))
    }
    fn finish(&self, _: &mut Flow) {
        self.0.lock().unwrap().push("finished");
    }
}

#[tokio::test]
async fn what_reads_a_response_is_let_go_before_its_flow_is_settled() {
    let origin = Origin::http().start().await;
    let stage = ReleaseOrder::default();
    let order = Arc::clone(&stage.0);
    let proxy = Proxy::asking_with(&["ada"], vec![Arc::new(stage)], |_| {}).await;
    let login = ProxyLogin { user: "ada", password: "enigma" };
    let mut wire = proxy.connect().await;
    wire.send(with(login, &origin.url("/sse?count=1000&gap=20"))).await.unwrap();
    wire.answer_head().await.unwrap();
    let bob = format!("bob:{}\n", bcrypt::hash("enigma", 4).unwrap());
    std::fs::write(proxy.home.path().join("users"), bob).unwrap();
    proxy.engine.reload(proxy.engine.config()).unwrap();
    until("the flow to end", || order.lock().unwrap().len() == 2).await;
    assert_eq!(*order.lock().unwrap(), ["released", "finished"]);
}

fn with(login: ProxyLogin<'_>, url: &str) -> String {
    request("GET", url, &format!("Proxy-Authorization: {}\r\n", login.basic()))
}

#[tokio::test]
async fn new_connections_are_refused() {
    let origin = Origin::http().start().await;
    for ending in ENDINGS {
        let house = House::new(ending, &[]).await;
        house.end();
        let mut wire = house.proxy.connect().await;
        wire.send(with(house.login(), &origin.url("/"))).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 407, "{ending:?}");
        let answer = client::connect_on(&mut wire, &origin.authority(), Some(house.login())).await.unwrap();
        assert_eq!(answer.status, 407, "{ending:?}");
        let socks = client::socks5_tunnel(house.proxy.addr(), "localhost", origin.port(), Some(house.login())).await;
        assert!(socks.is_err(), "{ending:?}");
    }
    assert_eq!(origin.served(), 0);
}

#[tokio::test]
async fn next_request_of_a_kept_connection_is_refused() {
    let origin = Origin::http().start().await;
    for ending in ENDINGS {
        let house = House::new(ending, &[]).await;
        let (mut wire, mut other) = (house.proxy.connect().await, house.proxy.connect().await);
        for _ in 0..2 {
            wire.send(with(house.login(), &origin.url("/"))).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, 200, "{ending:?}");
        }
        other.send(with(STAYING, &origin.url("/"))).await.unwrap();
        assert_eq!(other.answer().await.unwrap().status, 200, "{ending:?}");
        house.end();
        for _ in 0..2 {
            wire.send(with(house.login(), &origin.url("/"))).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, 407, "{ending:?}");
        }
        other.send(with(STAYING, &origin.url("/"))).await.unwrap();
        assert_eq!(other.answer().await.unwrap().status, 200, "{ending:?}: others go on");
    }
}

#[tokio::test]
async fn next_request_of_an_http2_connection_is_refused() {
    let origin = Origin::http().start().await;
    for ending in ENDINGS {
        let house = House::new(ending, &[]).await;
        let h2 = H2Client::new(house.proxy.connect().await).await.unwrap();
        let get = async || {
            let request = http::Request::get(origin.url("/")).header("proxy-authorization", house.login().basic());
            h2.request(request.body(()).unwrap(), Bytes::new()).await.unwrap().status
        };
        assert_eq!(get().await, 200, "{ending:?}");
        house.end();
        assert_eq!(get().await, 407, "{ending:?}");
    }
}

#[tokio::test]
async fn tunnels_are_closed() {
    // Not a protocol that is inspected: the bytes are relayed.
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        loop {
            let bytes = wire.some().await?;
            if bytes.is_empty() {
                return Ok(());
            }
            wire.send(bytes).await?;
        }
    })
    .await;
    for ending in ENDINGS {
        let house = House::new(ending, &[]).await;
        let mut wire = house.tunnel(&origin.authority(), house.login()).await;
        let socks = client::socks5_tunnel(house.proxy.addr(), "localhost", origin.port(), Some(house.login())).await;
        let mut socks = socks.unwrap();
        let mut other = house.tunnel(&origin.authority(), STAYING).await;
        for wire in [&mut wire, &mut socks, &mut other] {
            wire.send(b"\0\x01hello").await.unwrap();
            assert_eq!(&wire.exactly(7).await.unwrap()[..], b"\0\x01hello", "{ending:?}");
        }
        house.end();
        for wire in [&mut wire, &mut socks] {
            assert!(wire.some().await.map_or(true, |bytes| bytes.is_empty()), "{ending:?}");
        }
        other.send(b"still").await.unwrap();
        assert_eq!(&other.exactly(5).await.unwrap()[..], b"still", "{ending:?}");
        house.assert_recorded().await;
    }
}

#[tokio::test]
async fn silent_tunnels_are_closed_before_their_protocol_is_known() {
    let origin = Origin::raw(|mut wire: Wire, _| async move { wire.some().await.map(drop) }).await;
    let house = House::new(Ending::ExecEnded, &[]).await;
    let mut wire = house.tunnel(&origin.authority(), house.login()).await;
    house.end();
    assert!(wire.some().await.map_or(true, |bytes| bytes.is_empty()));
}

#[tokio::test]
async fn intercepted_tunnels_take_no_further_request() {
    let origin = Origin::https().start().await;
    for ending in ENDINGS {
        let house = House::new(ending, &[&origin]).await;
        let mut h1 = house.tls(&origin.authority(), "http/1.1", house.login()).await;
        let h2 = H2Client::new(house.tls(&origin.authority(), "h2", house.login()).await).await.unwrap();
        let mut other = house.tls(&origin.authority(), "http/1.1", STAYING).await;
        for wire in [&mut h1, &mut other] {
            wire.send(inside(&origin.authority(), "/")).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, 200, "{ending:?}");
        }
        assert_eq!(h2.get(&origin.url("/")).await.unwrap().status, 200, "{ending:?}");
        let served = origin.served();
        house.end();
        // Refused at once, closed soon after.
        h1.send(inside(&origin.authority(), "/")).await.unwrap();
        assert_eq!(h1.answer().await.unwrap().status, 407, "{ending:?}");
        assert!(h1.some().await.map_or(true, |bytes| bytes.is_empty()), "{ending:?}");
        assert!(h2.get(&origin.url("/")).await.map_or(true, |answer| answer.status == 407), "{ending:?}");
        until("the HTTP/2 connection to be closed", || !h2.is_open()).await;
        assert_eq!(origin.served(), served, "{ending:?}: nothing more reached the origin");
        other.send(inside(&origin.authority(), "/")).await.unwrap();
        assert_eq!(other.answer().await.unwrap().status, 200, "{ending:?}");
    }
}

#[tokio::test]
async fn websockets_are_closed_with_the_reason() {
    let (plain, secure) = (Origin::http().start().await, Origin::https().start().await);
    for ending in ENDINGS {
        let house = House::new(ending, &[&secure]).await;
        let mut sockets = Vec::new();
        for (wire, origin) in [
            (house.tunnel(&plain.authority(), house.login()).await, &plain),
            (house.tls(&secure.authority(), "http/1.1", house.login()).await, &secure),
        ] {
            let url = format!("ws://{}/ws", origin.authority());
            let (mut socket, _) = tokio_tungstenite::client_async(url, wire.patience(None)).await.unwrap();
            socket.send(Frame::text("hello")).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), Frame::text("hello"));
            sockets.push(socket);
        }
        house.end();
        for socket in &mut sockets {
            match socket.next().await {
                Some(Ok(Frame::Close(Some(close)))) => {
                    assert_eq!(u16::from(close.code), 1008, "{ending:?}");
                    assert!(close.reason.contains("no longer valid"), "{ending:?}: {close}");
                }
                other => panic!("{ending:?}: {other:?}"),
            }
        }
        let flows = house.proxy.flows(2).await;
        assert!(flows.iter().all(|flow| flow.error() == Some(ErrorKind::Unauthorized)), "{ending:?}: {flows:#?}");
    }
}

#[tokio::test]
async fn responses_in_progress_end() {
    let origin = Origin::http().start().await;
    for ending in ENDINGS {
        let house = House::new(ending, &[]).await;
        let mut wire = house.proxy.connect().await;
        wire.send(with(house.login(), &origin.url("/stall-body"))).await.unwrap();
        assert_eq!(wire.answer_head().await.unwrap().status, 200, "{ending:?}");
        let mut waiting = house.proxy.connect().await;
        waiting.send(with(house.login(), &origin.url("/stall"))).await.unwrap();
        until("both requests to arrive", || origin.open_connections() >= 2).await;
        house.end();
        let rest = tokio::time::timeout(Duration::from_secs(10), wire.to_end()).await;
        assert!(rest.is_ok(), "{ending:?}: the body goes on");
        assert_eq!(waiting.answer().await.unwrap().status, 407, "{ending:?}");
        let flows = house.proxy.flows(2).await;
        assert!(flows.iter().all(|flow| flow.error() == Some(ErrorKind::Unauthorized)), "{ending:?}: {flows:#?}");
    }
}
