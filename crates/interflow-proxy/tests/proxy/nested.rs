//! Requests that a client sends, in a tunnel, to a proxy at its end.

use std::sync::{Arc, Mutex};

use interflow_testkit::{Origin, Reply};
use interflow_types::{
    BoxFuture, Flow, HttpVersion, LocalHandler, MaybeFuture, Phase, PhaseSet, PlanScope, Request, RequestHead,
    RequestVerdict, Response, Result, ServedBy, Stage, StatusCode, UpstreamOverrides,
};

use crate::support::{Proxy, inside, request, until};

const LOGIN: &str = "Proxy-Authorization: Basic eDp5\r\n";

/// Overrides the route to the host `localhost`, where the origins of these tests are.
struct Reroute(UpstreamOverrides);

impl Stage for Reroute {
    fn name(&self) -> &'static str {
        "reroute"
    }
    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        match scope.authority.host.to_string().as_str() {
            "localhost" => PhaseSet::from_phase(Phase::UpstreamConnect),
            _ => PhaseSet::NONE,
        }
    }
    fn upstream_connect<'a>(
        &'a self,
        _: &'a mut Flow,
        _: Option<&'a RequestHead>,
        way: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        *way = self.0.clone();
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
}

/// A host that must be inspected.
struct Covers(&'static str);

impl Stage for Covers {
    fn name(&self) -> &'static str {
        "covers"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestHead)
    }
    fn needs_inspection(&self, scope: &PlanScope<'_>) -> bool {
        scope.authority.host.to_string() == self.0
    }
}

/// Never decides on the route to `localhost`; notes the origin of each flow that it sees there, or at the end of flows
/// to other hosts.
#[derive(Default)]
struct NeverDecides {
    connecting: Mutex<Vec<String>>,
    done: Mutex<Vec<String>>,
}

fn origin_of(flow: &Flow) -> String {
    format!("{}://{}", flow.scheme.as_str(), flow.authority)
}

impl Stage for NeverDecides {
    fn name(&self) -> &'static str {
        "never-decides"
    }
    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        let is_tunnel = scope.authority.host.to_string() == "localhost";
        PhaseSet::from_phase(if is_tunnel { Phase::UpstreamConnect } else { Phase::Done })
    }
    fn upstream_connect<'a>(
        &'a self,
        flow: &'a mut Flow,
        _: Option<&'a RequestHead>,
        _: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        self.connecting.lock().unwrap().push(origin_of(flow));
        MaybeFuture::pending(std::future::pending())
    }
    fn done(&self, flow: &Flow) {
        self.done.lock().unwrap().push(origin_of(flow));
    }
}

/// Answers every request with the fields that it received.
#[derive(Clone)]
struct ShowsFields;

impl Stage for ShowsFields {
    fn name(&self) -> &'static str {
        "shows-fields"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestHead)
    }
    fn request_head<'a>(&'a self, flow: &'a mut Flow, _: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        *flow.extension_mut() = ServedBy(Some(Arc::new(self.clone())));
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
}

impl LocalHandler for ShowsFields {
    fn serve<'a>(&'a self, _: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        let names: Vec<_> = request.head.headers.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
        let response = Response::full(StatusCode::OK, "text/plain", names.join(" ").to_ascii_lowercase());
        Box::pin(async move { Ok(response) })
    }
}

#[tokio::test]
async fn a_covered_host_gets_no_requests_for_other_hosts() {
    let origin = Origin::http().start().await;
    for (covered, status) in [("localhost", 403), ("open.test", 200)] {
        let proxy = Proxy::with(vec![Arc::new(Covers(covered))], |_| ()).await;
        let mut wire = proxy.tunnel(&origin.authority()).await;
        wire.send(request("POST", "http://open.test/", "Content-Length: 0\r\n")).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!(answer.status, status, "{covered}");
        assert_eq!(answer.text().contains("covers"), status == 403, "the stage is named: {}", answer.text());
    }
    assert_eq!(origin.only_request().target, "http://open.test/");
    let proxy = Proxy::with(vec![Arc::new(Covers("localhost"))], |_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200, "its own requests are inspected");
}

#[tokio::test]
async fn the_scheme_is_kept_where_the_proxy_supports_http2() {
    let origin = Origin::https().start().await;
    for version in [None, Some(HttpVersion::H2)] {
        let reroute = Reroute(UpstreamOverrides { version, ..UpstreamOverrides::default() });
        let proxy = Proxy::build(&[&origin], vec![Arc::new(reroute)], |_| ());
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(request("GET", "http://open.test/a", "")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
    }
    for seen in origin.requests() {
        assert_eq!((seen.target.as_str(), seen.version.as_str()), ("http://open.test/a", "HTTP/1.1"));
    }
    assert_eq!(origin.served(), 2);
}

#[tokio::test]
async fn a_request_whose_client_leaves_ends_as_one_for_the_named_host() {
    let origin = Origin::https().start().await;
    let stage = Arc::new(NeverDecides::default());
    let proxy = Proxy::build(&[&origin], vec![stage.clone()], |_| ());
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(request("GET", "http://open.test/", "")).await.unwrap();
    until("the route to be asked for", || !stage.connecting.lock().unwrap().is_empty()).await;
    drop(wire);
    proxy.flow().await;
    assert_eq!(*stage.connecting.lock().unwrap(), [format!("https://{}", origin.authority())]);
    until("the end of the flow", || !stage.done.lock().unwrap().is_empty()).await;
    assert_eq!(*stage.done.lock().unwrap(), ["http://open.test:80"]);
}

#[tokio::test]
async fn tls_overrides_of_the_tunnels_host_apply() {
    let origin = Origin::https().start().await;
    for (danger_skip_verify, status) in [(false, 502), (true, 200)] {
        let reroute = Reroute(UpstreamOverrides { danger_skip_verify, ..UpstreamOverrides::default() });
        let proxy = Proxy::with(vec![Arc::new(reroute)], |_| ()).await;
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(request("GET", "http://open.test/", "")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, status);
    }
}

#[tokio::test]
async fn every_challenge_of_the_proxy_reaches_the_client() {
    let origin = Origin::http().answering(|_| {
        let reply = Reply::status(407).header("Proxy-Authenticate", "Negotiate");
        reply.header("Proxy-Authenticate", "Basic realm=\"x\"").header("Proxy-Authentication-Info", "nextnonce=\"1\"")
    });
    let origin = origin.start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send(request("GET", "http://open.test/", "")).await.unwrap();
    let answer = wire.answer().await.unwrap();
    let values = |name| answer.headers.get_all(name).map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(values("proxy-authenticate"), [&b"Negotiate"[..], b"Basic realm=\"x\""]);
    assert_eq!(values("proxy-authentication-info"), [b"nextnonce=\"1\""]);
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().header("proxy-authenticate"), None, "an origin may not ask");
}

#[tokio::test]
async fn credentials_of_the_proxy_are_not_shown_to_a_local_handler() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::with(vec![Arc::new(ShowsFields)], |_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send(request("GET", "http://open.test/", LOGIN)).await.unwrap();
    let fields = wire.answer().await.unwrap().text();
    assert!(fields.contains("host") && !fields.contains("proxy-authorization"), "{fields}");
}
