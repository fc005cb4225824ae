//! What is passed through without inspection, and why; clients that refuse Interflow's certificate; names known only
//! from SNI.

use std::sync::Arc;

use interflow_proxy::config::{AccessAction, AccessRule, InterceptMode};
use interflow_testkit::client::ProxyLogin;
use interflow_testkit::{Origin, Script, Wire, client, client_trusting};
use interflow_types::{
    DialedAuthority, Error, ErrorKind, Flow, MaybeFuture, Passthrough, Phase, PhaseSet, PlanScope, RequestHead,
    RequestVerdict, Stage, TunnelVerdict, UpstreamOverrides,
};

use crate::support::{End, Proxy, get, inside, until};

const H1: &[&str] = &["http/1.1"];

/// An origin with two names, and its tunnel by address.
async fn named() -> (Origin, String) {
    let origin = Origin::https().names(&["a.test", "b.test", "127.0.0.1"]).alpn(H1).start().await;
    let address = format!("127.0.0.1:{}", origin.port());
    (origin, address)
}

/// A client that trusts Interflow's CA sends a request.
async fn accepts(proxy: &Proxy, tunnel: Wire, name: &str) {
    let ours = client_trusting(proxy.engine.ca().certificate_pem(), H1);
    let mut wire = tunnel.into_tls(name, ours).await.unwrap();
    wire.send(inside(name, "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
}

/// A client that trusts only the origin's CA refuses the certificate this many times.
async fn refuses(proxy: &Proxy, origin: &Origin, address: &str, name: &str, times: u64) {
    let before = proxy.engine.snapshot().leaf_refused;
    for i in 1..=times {
        let theirs = client_trusting(origin.ca().pem(), H1);
        assert!(proxy.tunnel(address).await.into_tls(name, theirs).await.is_err());
        until("the refusal to be counted", || proxy.engine.snapshot().leaf_refused == before + i).await;
    }
}

#[tokio::test]
async fn untrusting_client_is_refused_without_affecting_others() {
    let (origin, address) = named().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.intercept.pinning_failures = 2).await;
    refuses(&proxy, &origin, &address, "a.test", 4).await;
    assert!(proxy.engine.bypassed_clients().is_empty());
    accepts(&proxy, proxy.tunnel(&address).await, "a.test").await;
    let flows = proxy.flows(5).await;
    assert_eq!(flows[3].error(), Some(ErrorKind::ClientTls));
    for word in ["unknown_ca", "does not trust Interflow's CA", "interflow ca install"] {
        assert!(flows[3].cause().contains(word), "{}", flows[3].cause());
    }
    // Nor does the same program, now that it has accepted the certificate for this host.
    refuses(&proxy, &origin, &address, "a.test", 3).await;
    assert!(proxy.engine.bypassed_clients().is_empty());
}

#[tokio::test]
async fn pinning_client_is_bypassed_until_cleared() {
    let (origin, address) = named().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.intercept.pinning_failures = 2).await;
    accepts(&proxy, proxy.tunnel(&address).await, "a.test").await;
    refuses(&proxy, &origin, &address, "b.test", 2).await;
    assert_eq!(proxy.engine.bypassed_clients().len(), 1);
    let theirs = || client_trusting(origin.ca().pem(), H1);
    let mut wire = proxy.tunnel(&address).await.into_tls("b.test", theirs()).await.unwrap();
    wire.send(inside("b.test", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    drop(wire);
    let flows = proxy.flows(4).await;
    assert!(flows[2].cause().contains("pins"), "{}", flows[2].cause());
    assert!(matches!(flows[3].end, Some(End::Tunnelled(_))), "{:#?}", flows[3]);
    assert_eq!(flows[3].passthrough, Some(Passthrough::PinningBypass));
    // Another program of the same machine is still intercepted.
    let other = client_trusting(proxy.engine.ca().certificate_pem(), &["h2", "http/1.1"]);
    let mut wire = proxy.tunnel(&address).await.into_tls("b.test", other).await.unwrap();
    wire.send(inside("b.test", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let b = interflow_types::Host::parse("b.test").unwrap();
    assert_eq!((proxy.engine.clear_bypass(Some(&b)), proxy.engine.bypassed_clients().len()), (1, 0));
    assert!(proxy.tunnel(&address).await.into_tls("b.test", theirs()).await.is_err(), "intercepted again");
}

#[tokio::test]
async fn exec_programs_are_never_bypassed_and_their_start_clears_the_bypass() {
    let (origin, address) = named().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.intercept.pinning_failures = 1).await;
    accepts(&proxy, proxy.tunnel(&address).await, "a.test").await;
    refuses(&proxy, &origin, &address, "b.test", 1).await;
    assert_eq!(proxy.engine.bypassed_clients().len(), 1);
    let password = proxy.engine.issue_credential("exec");
    assert!(proxy.engine.bypassed_clients().is_empty(), "whoever starts a program with the CA starts afresh");
    refuses(&proxy, &origin, &address, "b.test", 1).await;
    assert_eq!(proxy.engine.bypassed_clients().len(), 1);
    let login = || Some(ProxyLogin { user: "exec", password: &password });
    let ours = client_trusting(proxy.engine.ca().certificate_pem(), H1);
    let tunnel = client::connect_tunnel(proxy.addr(), &address, login()).await.unwrap();
    let mut wire = tunnel.into_tls("b.test", ours).await.expect("it is intercepted");
    wire.send(inside("b.test", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    proxy.engine.clear_bypass(None);
    for _ in 0..3 {
        let tunnel = client::connect_tunnel(proxy.addr(), &address, login()).await.unwrap();
        let theirs = client_trusting(origin.ca().pem(), H1);
        assert!(tunnel.into_tls("a.test", theirs).await.is_err());
    }
    assert!(proxy.engine.bypassed_clients().is_empty());
}

/// Protects the traffic.
struct Protects;

impl Stage for Protects {
    fn name(&self) -> &'static str {
        "protects"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestHead)
    }
    fn needs_inspection(&self, scope: &PlanScope<'_>) -> bool {
        scope.authority.host.to_string() == "b.test"
    }
}

#[tokio::test]
async fn refused_leaf_fails_closed_if_a_stage_or_rule_needs_inspection() {
    let by_method = || AccessRule {
        action: AccessAction::Deny,
        users: Vec::new(),
        clients: Vec::new(),
        hosts: vec!["b.test".into()],
        ports: Vec::new(),
        methods: vec!["DELETE".into()],
    };
    for (stage, rule) in [(true, false), (false, true), (false, false)] {
        let (origin, address) = named().await;
        let stages: Vec<Arc<dyn Stage>> = if stage { vec![Arc::new(Protects)] } else { Vec::new() };
        let proxy = Proxy::with(stages, |c| {
            c.upstream.danger_insecure = true;
            c.intercept.pinning_failures = 1;
            c.access.rule.extend(rule.then(by_method));
        })
        .await;
        accepts(&proxy, proxy.tunnel(&address).await, "a.test").await;
        refuses(&proxy, &origin, &address, "b.test", 3 - 2 * u64::from(!stage && !rule)).await;
        assert_eq!(proxy.engine.bypassed_clients().is_empty(), stage || rule, "{stage} {rule}");
        if stage || rule {
            let flows = proxy.flows(4).await;
            let by = if stage { "protects" } else { "access.rule" };
            assert!(flows[3].cause().contains(by), "{}", flows[3].cause());
        }
    }
}

#[tokio::test]
async fn client_closing_right_after_the_handshake_is_recorded_with_its_cause() {
    for alpn in [&["http/1.1"][..], &["h2"], &[]] {
        let (origin, address) = named().await;
        let proxy = Proxy::trusting(&[&origin], |_| ()).await;
        let ours = client_trusting(proxy.engine.ca().certificate_pem(), alpn);
        let wire = proxy.tunnel(&address).await.into_tls("a.test", ours).await.unwrap();
        drop(wire);
        let flow = proxy.flow().await;
        assert_eq!((flow.error(), flow.passthrough), (Some(ErrorKind::ClientTls), None), "{alpn:?}");
        assert!(flow.cause().contains("right after Interflow's certificate"), "{}", flow.cause());
        assert_eq!(flow.authority, format!("a.test:{}", origin.port()));
        assert!(proxy.engine.bypassed_clients().is_empty());
    }
}

#[tokio::test]
async fn unused_preconnect_is_not_an_error() {
    let (origin, address) = named().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    accepts(&proxy, proxy.tunnel(&address).await, "a.test").await;
    let ours = client_trusting(proxy.engine.ca().certificate_pem(), H1);
    let mut wire = proxy.tunnel(&address).await.into_tls("a.test", ours).await.unwrap();
    wire.finish().await.unwrap();
    let flows = proxy.flows(2).await;
    assert!(matches!(flows[1].end, Some(End::Tunnelled(_))), "{:#?}", flows[1]);
    assert_eq!(flows[1].tags, ["no_request"]);
}

fn denies(host: &str) -> AccessRule {
    AccessRule {
        action: AccessAction::Deny,
        users: Vec::new(),
        clients: Vec::new(),
        hosts: vec![host.into()],
        ports: Vec::new(),
        methods: Vec::new(),
    }
}

#[tokio::test]
async fn access_rules_match_the_sni_of_a_tunnel_to_an_address() {
    for mode in [InterceptMode::None, InterceptMode::All] {
        let (origin, address) = named().await;
        let proxy = Proxy::trusting(&[&origin], |c| {
            c.intercept.mode = mode;
            c.access.rule = vec![denies("b.test")];
        })
        .await;
        let pem = if mode == InterceptMode::None { origin.ca().pem() } else { proxy.engine.ca().certificate_pem() };
        let wire = proxy.tunnel(&address).await.into_tls("b.test", client_trusting(pem, H1)).await;
        assert!(wire.is_err(), "{mode:?}");
        let flow = proxy.flow().await;
        assert_eq!(flow.error(), Some(ErrorKind::Denied));
        assert!(flow.cause().contains("b.test") && flow.cause().contains("access.rule[0]"), "{}", flow.cause());
        let mut wire = proxy.tunnel(&address).await.into_tls("a.test", client_trusting(pem, H1)).await.unwrap();
        wire.send(inside("a.test", "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn intercept_host_lists_match_the_sni_of_a_tunnel_to_an_address() {
    let (origin, address) = named().await;
    let excluding = Proxy::trusting(&[&origin], |c| c.intercept.exclude = vec!["a.test".into()]).await;
    let listing = Proxy::trusting(&[&origin], |c| {
        c.intercept.mode = InterceptMode::Listed;
        c.intercept.hosts = vec!["b.test".into()];
    })
    .await;
    for (proxy, name, why) in [
        (&excluding, "a.test", Some(Passthrough::Excluded)),
        (&excluding, "b.test", None),
        (&listing, "a.test", Some(Passthrough::NotListed)),
        (&listing, "b.test", None),
    ] {
        let pem = if why.is_some() { origin.ca().pem() } else { proxy.engine.ca().certificate_pem() };
        let mut wire = proxy.tunnel(&address).await.into_tls(name, client_trusting(pem, H1)).await.unwrap();
        wire.send(inside(name, "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200, "{name}");
        drop(wire);
        let flows = proxy.flows(if name == "a.test" { 1 } else { 2 }).await;
        let flow = flows.last().unwrap();
        assert_eq!((flow.passthrough, flow.url.is_some()), (why, why.is_none()), "{flow:#?}");
    }
}

/// Passes a host through by the tunnel's name or its SNI.
struct Tunnels(&'static str);

impl Stage for Tunnels {
    fn name(&self) -> &'static str {
        "tunnels"
    }
    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        if scope.authority.host.to_string() == self.0 { PhaseSet::from_phase(Phase::Authority) } else { PhaseSet::NONE }
    }
    fn authority<'a>(&'a self, _: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        MaybeFuture::Ready(TunnelVerdict::Tunnel)
    }
}

#[tokio::test]
async fn passthrough_rule_matches_the_sni_of_a_tunnel_to_an_address() {
    let (origin, address) = named().await;
    let proxy = Proxy::with(vec![Arc::new(Tunnels("a.test"))], |c| c.upstream.danger_insecure = true).await;
    let theirs = client_trusting(origin.ca().pem(), H1);
    let mut wire = proxy.tunnel(&address).await.into_tls("a.test", theirs).await.unwrap();
    wire.send(inside("a.test", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    drop(wire);
    assert_eq!(proxy.flow().await.passthrough, Some(Passthrough::Rule));
    accepts(&proxy, proxy.tunnel(&address).await, "b.test").await;
}

/// Denies connections with this server name.
struct DeniesName(&'static str);

impl Stage for DeniesName {
    fn name(&self) -> &'static str {
        "denies-name"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::UpstreamConnect)
    }
    fn upstream_connect<'a>(
        &'a self,
        flow: &'a mut Flow,
        _: Option<&'a RequestHead>,
        _: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let is_denied = flow.client_tls.as_ref().is_some_and(|tls| tls.sni.as_deref() == Some(self.0));
        MaybeFuture::Ready(match is_denied {
            true => RequestVerdict::Deny(Error::new(ErrorKind::Denied, "not this name")),
            false => RequestVerdict::Continue,
        })
    }
}

#[tokio::test]
async fn stages_decide_on_the_server_name_of_a_tunnel_that_is_connected_already() {
    let origin = Origin::https().names(&["localhost", "a.test", "b.test"]).alpn(H1).start().await;
    for (mode, exclude) in [(InterceptMode::None, &[][..]), (InterceptMode::All, &["localhost"])] {
        let proxy = Proxy::with(vec![Arc::new(DeniesName("b.test"))], |c| {
            c.intercept.mode = mode;
            c.intercept.exclude = exclude.iter().map(ToString::to_string).collect();
        })
        .await;
        for (name, is_open) in [("localhost", true), ("a.test", true), ("b.test", false)] {
            let theirs = client_trusting(origin.ca().pem(), H1);
            let wire = proxy.tunnel(&origin.authority()).await.into_tls(name, theirs).await;
            assert_eq!(wire.is_ok(), is_open, "{mode:?} {name}");
        }
        assert_eq!(proxy.flows(3).await[2].error(), Some(ErrorKind::Denied), "{mode:?}");
    }
    // A client that waited so long that the server might have spoken first.
    let proxy =
        Proxy::with(vec![Arc::new(DeniesName("b.test"))], |c| c.intercept.exclude = vec!["b.test".into()]).await;
    let before = origin.connections();
    let wire = proxy.tunnel(&origin.authority()).await;
    until("the origin to be connected to", || origin.connections() > before).await;
    assert!(wire.into_tls("b.test", client_trusting(origin.ca().pem(), H1)).await.is_err());
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::Denied));
}

/// Tags requests with where they go.
struct TagsDialed;

impl Stage for TagsDialed {
    fn name(&self) -> &'static str {
        "tags-dialed"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestHead)
    }
    fn request_head<'a>(&'a self, flow: &'a mut Flow, _: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        let dialed = flow.extension::<DialedAuthority>().and_then(|dialed| dialed.0.as_ref());
        flow.tag(dialed.map(ToString::to_string).unwrap_or_default());
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
}

#[tokio::test]
async fn stages_know_the_tunnel_of_a_request_for_another_name() {
    let origin = Origin::https().names(&["localhost", "a.test", "127.0.0.1"]).alpn(H1).start().await;
    let by_name = origin.authority();
    let by_address = format!("127.0.0.1:{}", origin.port());
    for (tunnel, name, dialed) in
        [(&by_name, "a.test", by_name.as_str()), (&by_name, "localhost", ""), (&by_address, "a.test", "")]
    {
        let proxy = Proxy::build(&[&origin], vec![Arc::new(TagsDialed)], |_| ());
        accepts(&proxy, proxy.tunnel(tunnel).await, name).await;
        assert!(proxy.flow().await.tags.iter().any(|tag| tag == dialed), "{tunnel} {name}");
    }
}

#[tokio::test]
async fn every_passthrough_tunnel_records_its_reason() {
    let origin = Origin::script(Script::new().send("220 ready\r\n").to_end()).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.line().await.unwrap();
    drop(wire);
    assert_eq!(proxy.flow().await.passthrough, Some(Passthrough::ServerFirst));

    let origin = Origin::script(Script::new().exactly(6).send("what?")).await;
    for (mode, why) in
        [(InterceptMode::All, Passthrough::UnknownProtocol), (InterceptMode::None, Passthrough::InterceptionOff)]
    {
        let proxy = Proxy::start(|c| c.intercept.mode = mode).await;
        let mut wire = proxy.tunnel(&origin.authority()).await;
        wire.send([0, 9, 9, 1, 1, 1]).await.unwrap();
        wire.to_end().await.unwrap();
        drop(wire);
        assert_eq!(proxy.flow().await.passthrough, Some(why));
    }
}

#[tokio::test]
async fn partial_client_hello_times_out_like_a_request_head() {
    let origin = Origin::https().start().await;
    let proxy =
        Proxy::start(|c| c.timeouts.header_timeout = interflow_types::units::HumanDuration::from_millis(200)).await;
    let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252];
    let mut wire = proxy.connect().await;
    wire.send(hello).await.unwrap();
    assert!(wire.to_end().await.is_ok_and(|b| b.is_empty()), "on the port");
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send(hello).await.unwrap();
    assert!(wire.to_end().await.is_ok_and(|b| b.is_empty()), "in a tunnel");
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::ClientTimeout));
    assert_eq!(origin.connections(), 0);
}

/// Replaces `Host`.
struct SetsHost;

impl Stage for SetsHost {
    fn name(&self) -> &'static str {
        "sets-host"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestHead)
    }
    fn request_head<'a>(&'a self, _: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        assert!(head.headers.get_str("host").is_some_and(|h| h.starts_with("localhost")), "what the target says");
        head.headers.set("Host", "other.test").unwrap();
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
}

#[tokio::test]
async fn host_set_by_a_stage_is_sent_over_every_http_version() {
    let plain = Origin::http().start().await;
    let proxy = Proxy::with(vec![Arc::new(SetsHost)], |c| c.upstream.danger_insecure = true).await;
    let mut wire = proxy.connect().await;
    wire.send(get(&plain.url("/")).replace("Host: localhost", "Host: wrong")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(plain.only_request().authority, "other.test");
    for alpn in ["http/1.1", "h2"] {
        let origin = Origin::https().alpn(&[alpn]).start().await;
        if alpn == "h2" {
            let client = proxy.h2(&origin.authority()).await;
            assert_eq!(client.get(&origin.url("/")).await.unwrap().status, 200);
        } else {
            let mut wire = proxy.tls(&origin.authority(), H1).await;
            wire.send(inside(&origin.authority(), "/")).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, 200);
        }
        assert_eq!(origin.only_request().authority, "other.test", "{alpn}");
    }
}

#[tokio::test]
async fn origin_that_replies_with_http2_frames_is_reported_with_h2c_hosts() {
    let origin = Origin::script(Script::new().head().send(&[0, 0, 0, 4, 0, 0, 0, 0, 0][..]).to_end()).await;
    let proxy = Proxy::start(|_| ()).await;
    let client = interflow_testkit::H2Client::new(proxy.connect().await).await.unwrap();
    let answer = client.get(&origin.url("/")).await.unwrap();
    assert_eq!(answer.status, 502);
    assert_eq!(answer.text().matches("upstream.h2c_hosts").count(), 1, "{}", answer.text());
    // Of an origin that answers in HTTP/1.1, the setting is not missing.
    let origin = Origin::script(Script::new().head().send("HTTP/1.1 200 OK\r\nbad field\r\n\r\n").to_end()).await;
    let answer = client.get(&origin.url("/")).await.unwrap();
    assert_eq!((answer.status, answer.header("x-interflow-error")), (502, Some("bad_response")));
    assert!(!answer.text().contains("h2c_hosts"), "{}", answer.text());
}

#[tokio::test]
async fn unused_connections_of_a_trusting_program_do_not_end_inspection() {
    for alpn in [H1, &["h2"]] {
        let (origin, address) = named().await;
        let proxy = Proxy::trusting(&[&origin], |c| c.intercept.pinning_failures = 2).await;
        let ours = || client_trusting(proxy.engine.ca().certificate_pem(), alpn);
        let mut wire = proxy.tunnel(&address).await.into_tls("a.test", ours()).await.unwrap();
        wire.send("GET / HTTP/1.1\r\n").await.unwrap();
        until("the program to be trusted", || proxy.engine.snapshot().intercepted == 1).await;
        drop(wire);
        for i in 1..=4 {
            drop(proxy.tunnel(&address).await.into_tls("b.test", ours()).await.unwrap());
            until("the close to be counted", || proxy.engine.snapshot().leaf_refused == i).await;
        }
        assert!(proxy.engine.bypassed_clients().is_empty(), "{alpn:?}");
        let last = proxy.flows(4).await;
        let last = last.iter().rfind(|flow| flow.error() == Some(ErrorKind::ClientTls)).unwrap();
        assert!(last.cause().contains("intercept.exclude"), "{}", last.cause());
        // What it does send is inspected.
        let ours = client_trusting(proxy.engine.ca().certificate_pem(), alpn);
        assert!(proxy.tunnel(&address).await.into_tls("b.test", ours).await.is_ok(), "{alpn:?}");
    }
}
