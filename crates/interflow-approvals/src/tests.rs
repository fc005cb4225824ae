//! Resolutions, modes, sessions and files.

use std::task::{Context, Poll};

use interflow_types::{
    Body, BodyFrame, BodyStream, ClientInfo, ClientTls, DialedAuthority, EntryKind, Error, Flow, FlowId, HttpVersion,
    Method, RequestHead, RequestVerdict, ResolvedNames, Stage, Timestamp, TunnelOrigin, UpstreamOverrides, Url,
};

use super::pending::PendingRequester;
use super::*;

fn approvals(mode: ApprovalMode) -> (tempfile::TempDir, Arc<Approvals>) {
    let home = tempfile::tempdir().unwrap();
    let config = ApprovalsConfig { mode, ..ApprovalsConfig::default() };
    let approvals = Approvals::new(&config, home.path()).unwrap();
    (home, Arc::new(approvals))
}

fn question(host: &str, path: &str) -> PendingQuestion {
    PendingQuestion {
        user: None,
        process: Some("curl".into()),
        container: None,
        client: "192.0.2.1".into(),
        sessions: Vec::new(),
        host: host.into(),
        port: 443,
        method: Some("GET".into()),
        path: Some(path.into()),
        ..PendingQuestion::default()
    }
}

fn judge(approvals: &Approvals, host: &str, request: Option<(&str, &str)>) -> String {
    let host = Host::parse(host).unwrap();
    let q = AccessQuestion {
        user: None,
        process: Some("curl"),
        container: None,
        sessions: &[],
        agents: &[],
        host: &host,
        port: 443,
        request,
        now: now(),
    };
    let word = approvals.decide(&q, request.is_none());
    format!("{word:?}").split('(').next().unwrap().to_owned()
}

fn requester() -> PendingRequester {
    PendingRequester { flow: FlowId::new(Timestamp::now()), asked: None }
}

fn rule(action: ApprovalAction, host: &str) -> RuleSpec {
    RuleSpec { hosts: vec![host.to_owned()], ..RuleSpec::new(action) }
}

#[tokio::test]
async fn rules_and_the_mode_do_not_decide_a_guardrails_question() {
    let (_home, approvals) = approvals(ApprovalMode::Observe);
    let question = PendingQuestion { reason: Some("guardrail g: word".into()), ..question("a.test", "/") };
    let flow = requester();
    let wait = approvals.waiting.wait_for_decision(question, flow, Duration::from_secs(60), 9);
    tokio::pin!(wait);
    assert!(futures_util::poll!(&mut wait).is_pending());
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Allow, "a.test")).unwrap();
    let id = approvals.waiting.list()[0].id;
    let once: Resolution = serde_json::from_str(r#"{"action": "deny"}"#).unwrap();
    let scoped = Resolution { scope: ResolutionScope::Host, ..once.clone() };
    assert!(matches!(approvals.resolve(&EditTurn::unlimited(), id, &scoped), Err(ApprovalsError::Invalid(_))));
    approvals.resolve(&EditTurn::unlimited(), id, &once).unwrap();
    assert_eq!(wait.await, Some(ApprovalAction::Deny));
}

#[test]
fn the_mode_decides_flows_without_a_matching_rule() {
    for (mode, word, denied) in [
        (ApprovalMode::Observe, "Allow", "WouldDeny"),
        (ApprovalMode::Ask, "Ask", "Deny"),
        (ApprovalMode::Enforce, "Deny", "Deny"),
    ] {
        let (_home, approvals) = approvals(mode);
        approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "bad.test")).unwrap();
        assert_eq!(judge(&approvals, "any.test", Some(("GET", "/"))), word, "{mode:?}");
        assert_eq!(judge(&approvals, "any.test", None), "Allow", "{mode:?}: a tunnel is asked about by its requests");
        assert_eq!(judge(&approvals, "bad.test", Some(("GET", "/"))), denied, "{mode:?}");
        assert_eq!(judge(&approvals, "bad.test", None), denied, "{mode:?}");
        assert_eq!(judge(&approvals, "localhost", Some(("GET", "/"))), "Allow", "{mode:?}");
        assert_eq!(judge(&approvals, "[::1]", Some(("GET", "/"))), "Allow", "{mode:?}");
    }
}

#[test]
fn a_tunnel_to_a_host_with_only_one_allowed_path_is_intercepted() {
    let (_home, approvals) = approvals(ApprovalMode::Enforce);
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "h.test")).unwrap();
    approvals
        .add_rule(
            &EditTurn::unlimited(),
            RuleSpec { paths: vec!["/ok*".into()], ..rule(ApprovalAction::Allow, "h.test") },
        )
        .unwrap();
    assert_eq!(judge(&approvals, "h.test", None), "Allow");
    assert_eq!(judge(&approvals, "h.test", Some(("GET", "/ok"))), "Allow");
    assert_eq!(judge(&approvals, "h.test", Some(("GET", "/no"))), "Deny");
}

#[tokio::test]
async fn a_resolution_creates_the_rule_it_describes() {
    for (scope, host, path, decides, not) in [
        (ResolutionScope::Path, "a.b.test", "/x*y", ("a.b.test", "/x*y"), ("a.b.test", "/xzy")),
        (ResolutionScope::Host, "a.b.test", "/x", ("a.b.test", "/other"), ("c.b.test", "/x")),
        (ResolutionScope::Subdomains, "a.b.test", "/x", ("c.a.b.test", "/"), ("c.b.test", "/")),
        (ResolutionScope::Subdomains, "b.test", "/x", ("b.test", "/"), ("a.test", "/")),
        (ResolutionScope::Subdomains, "user.github.io", "/x", ("user.github.io", "/"), ("other.github.io", "/")),
        (ResolutionScope::Subdomains, "example.co.uk", "/x", ("a.example.co.uk", "/"), ("other.co.uk", "/")),
        (ResolutionScope::Subdomains, "uk", "/x", ("uk", "/"), ("co.uk", "/")),
        (ResolutionScope::Subdomains, "192.0.2.7", "/x", ("192.0.2.7", "/"), ("a.192.0.2.7.test", "/")),
    ] {
        let (_home, approvals) = approvals(ApprovalMode::Ask);
        let ask = approvals.waiting.wait_for_decision(question(host, path), requester(), Duration::from_secs(60), 10);
        tokio::pin!(ask);
        assert!(futures_util::poll!(&mut ask).is_pending());
        let text = format!(r#"{{"action": "allow", "scope": "{}", "for": "1h"}}"#, scope_name(scope));
        let answer: Resolution = serde_json::from_str(&text).unwrap();
        let done = approvals.resolve(&EditTurn::unlimited(), approvals.waiting.list()[0].id, &answer).unwrap();
        assert_eq!(ask.await, Some(ApprovalAction::Allow), "{scope:?}");
        assert_eq!(done.flows, 1);
        let made = done.rule.unwrap();
        assert_eq!((made.spec.processes.len(), made.spec.until.is_some()), (1, true));
        assert_eq!(judge(&approvals, decides.0, Some(("GET", decides.1))), "Allow", "{scope:?}");
        assert_eq!(judge(&approvals, not.0, Some(("GET", not.1))), "Ask", "{scope:?}");
    }
}

fn scope_name(scope: ResolutionScope) -> &'static str {
    match scope {
        ResolutionScope::Once => "once",
        ResolutionScope::Path => "path",
        ResolutionScope::Host => "host",
        ResolutionScope::AnyPort => "any_port",
        ResolutionScope::Subdomains => "subdomains",
    }
}

#[tokio::test]
async fn new_rule_or_mode_resolves_pending_requests() {
    let (_home, approvals) = approvals(ApprovalMode::Ask);
    let ask = |host| approvals.waiting.wait_for_decision(question(host, "/"), requester(), Duration::from_secs(60), 10);
    let (first, second) = (ask("a.test"), ask("b.test"));
    tokio::pin!(first, second);
    assert!(futures_util::poll!(&mut first).is_pending() && futures_util::poll!(&mut second).is_pending());
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "a.test")).unwrap();
    assert_eq!(first.await, Some(ApprovalAction::Deny));
    approvals
        .change_mode(&EditTurn::unlimited(), Some((ApprovalMode::Observe, Some(Duration::from_secs(60)))))
        .unwrap();
    assert_eq!(second.await, Some(ApprovalAction::Allow));
    assert_eq!(approvals.temporary_mode().unwrap().0, ApprovalMode::Observe);
    approvals.change_mode(&EditTurn::unlimited(), None).unwrap();
    assert_eq!(approvals.mode(), ApprovalMode::Ask);
}

#[test]
fn rules_and_secrets_survive_a_restart() {
    let (home, first) = approvals(ApprovalMode::Enforce);
    let kept = first.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Allow, "a.test")).unwrap();
    assert_eq!(
        first.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Allow, "a.test")).unwrap().id,
        kept.id,
        "the same rule is one rule"
    );
    let secret =
        SecretSpec { label: "key".into(), value: "v".into(), hosts: vec!["a.test".into()], ..SecretSpec::default() };
    first.add_secret(&EditTurn::unlimited(), secret.clone()).unwrap();
    assert!(
        matches!(first.add_secret(&EditTurn::unlimited(), secret), Err(ApprovalsError::Invalid(_))),
        "a label is taken once"
    );
    let again = Approvals::new(&ApprovalsConfig::default(), home.path()).unwrap();
    assert!(again.rules().iter().any(|r| r.id == kept.id && r.removable));
    assert_eq!(again.secrets()[0].label, "key");
    again.remove_rule(&EditTurn::unlimited(), &kept.id).unwrap();
    again.remove_secret(&EditTurn::unlimited(), "key").unwrap();
    assert!(
        again.remove_rule(&EditTurn::unlimited(), &kept.id).is_err()
            && again.remove_secret(&EditTurn::unlimited(), "key").is_err()
    );
    let last = Approvals::new(&ApprovalsConfig::default(), home.path()).unwrap();
    assert_eq!((last.rules().len(), last.secrets().len()), (1, 0), "only the built-in rule is left");
}

#[test]
fn a_rule_is_added_to_those_that_the_file_has_though_no_reload_has_taken_them_over() {
    let (home, first) = approvals(ApprovalMode::Enforce);
    // Another replica's rules, as they come into the file.
    let other = Approvals::new(&ApprovalsConfig::default(), home.path()).unwrap();
    let theirs = other.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "theirs.test")).unwrap();
    let ours = first.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "ours.test")).unwrap();
    let stored = Approvals::new(&ApprovalsConfig::default(), home.path()).unwrap();
    for id in [theirs.id, ours.id] {
        assert!([&*first, &stored].iter().all(|a| a.rules().iter().any(|r| r.id == id)));
    }
}

#[test]
fn a_secret_is_added_to_those_that_the_file_has_though_no_reload_has_taken_them_over() {
    let (home, first) = approvals(ApprovalMode::Enforce);
    let secret = |label: &str| SecretSpec {
        label: label.into(),
        value: "v".into(),
        hosts: vec!["a.test".into()],
        ..SecretSpec::default()
    };
    // Another replica's secrets, as they come into the file.
    let other = Approvals::new(&ApprovalsConfig::default(), home.path()).unwrap();
    other.add_secret(&EditTurn::unlimited(), secret("theirs")).unwrap();
    first.add_secret(&EditTurn::unlimited(), secret("ours")).unwrap();
    assert!(first.add_secret(&EditTurn::unlimited(), secret("theirs")).is_err(), "the label is taken");
    let labels = |a: &Approvals| a.secrets().into_iter().map(|s| s.label).collect::<Vec<_>>();
    assert_eq!(labels(&first), ["theirs", "ours"]);
    first.remove_secret(&EditTurn::unlimited(), "theirs").unwrap();
    let stored = Approvals::new(&ApprovalsConfig::default(), home.path()).unwrap();
    assert_eq!(labels(&stored), ["ours"]);
}

#[test]
fn a_reload_takes_over_the_files_and_keeps_what_did_not_change() {
    let (home, first) = approvals(ApprovalMode::Enforce);
    let kept = first.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Allow, "a.test")).unwrap();
    let second = Approvals::new(&ApprovalsConfig::default(), home.path()).unwrap();
    let added = second.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "b.test")).unwrap();
    let secret =
        SecretSpec { label: "key".into(), value: "v".into(), hosts: vec!["a.test".into()], ..SecretSpec::default() };
    second.add_secret(&EditTurn::unlimited(), secret).unwrap();
    let before = Arc::as_ptr(&first.state.lock().made[0]);
    first.prepare(&ApprovalsConfig::default()).unwrap()();
    assert!([&kept.id, &added.id].iter().all(|id| first.rules().iter().any(|r| r.id == **id)));
    assert_eq!(first.secrets()[0].label, "key");
    assert_eq!(Arc::as_ptr(&first.state.lock().made[0]), before, "its counts go on");
    std::fs::write(home.path().join("approvals.json"), "{").unwrap();
    assert!(first.prepare(&ApprovalsConfig::default()).err().unwrap().contains("approvals.json"));
    assert_eq!(first.rules().len(), 3, "a file that is wrong changes nothing");
}

#[test]
fn session_rules_end_with_the_session() {
    let (_home, approvals) = approvals(ApprovalMode::Enforce);
    let spec: SessionSpec = serde_json::from_str(
        r#"{"id": "s1", "agent": "coder", "process": "curl", "ttl": "1m", "rules": [{"action": "allow", "hosts": ["a.test"]}],
            "secrets": [{"label": "k", "value": "v", "hosts": ["a.test"]}]}"#,
    )
    .unwrap();
    let view = approvals.add_session(spec.clone()).unwrap();
    assert_eq!((view.rules, view.secrets.len()), (1, 1));
    let host = Host::parse("a.test").unwrap();
    let ids: Vec<Arc<str>> = vec!["s1".into()];
    let decide = |sessions: &[Arc<str>]| {
        let q = AccessQuestion {
            user: None,
            process: Some("curl"),
            container: None,
            sessions,
            agents: &[],
            host: &host,
            port: 443,
            request: Some(("GET", "/")),
            now: now(),
        };
        matches!(approvals.decide(&q, false), Decision::Allow)
    };
    assert!(decide(&ids) && !decide(&[]), "its rules are for its flows");
    assert!(approvals.heartbeat("s1").unwrap().until >= view.until);
    assert!(approvals.heartbeat("s2").is_err());
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "*")).unwrap();
    assert!(!decide(&ids), "the operator's rules take precedence");
    approvals.end_session("s1").unwrap();
    assert!(approvals.sessions().is_empty() && approvals.secrets().is_empty());
    for (bad, why) in [
        (SessionSpec { process: None, ..spec.clone() }, "identify its flows"),
        (SessionSpec { id: Some("a b".into()), ..spec.clone() }, "letters"),
        (SessionSpec { client: Some("x".into()), ..spec }, "neither"),
    ] {
        assert!(approvals.add_session(bad).unwrap_err().to_string().contains(why));
    }
}

#[test]
fn stage_is_inactive_without_rules_or_secrets() {
    let (_home, approvals) = approvals(ApprovalMode::Observe);
    let told = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&told);
    approvals.on_interest_change(move || {
        count.fetch_add(1, Relaxed);
    });
    assert_eq!(approvals.interest(), (false, false));
    let made = approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "a.test")).unwrap();
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "b.test")).unwrap();
    assert_eq!((approvals.interest(), told.load(Relaxed)), ((true, false), 1));
    approvals.remove_rule(&EditTurn::unlimited(), &made.id).unwrap();
    assert_eq!(approvals.interest(), (true, false));
}

#[cfg(unix)]
#[test]
fn requests_do_not_wait_for_the_files_of_a_change() {
    let (home, approvals) = approvals(ApprovalMode::Observe);
    let path = home.path().join(&ApprovalsConfig::default().file);
    // Reading it lasts as long as the other end is open.
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    std::thread::scope(|scope| {
        let change = scope.spawn(|| approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Deny, "a.test")));
        // Opened once the change reads.
        let written = std::fs::File::options().write(true).open(&path).unwrap();
        let (done, answered) = std::sync::mpsc::channel();
        let asked = Arc::clone(&approvals);
        std::thread::spawn(move || done.send(asked.interest()));
        let answered = answered.recv_timeout(Duration::from_secs(10));
        drop(written);
        // A pipe is no place for rules.
        assert!(change.join().unwrap().is_err());
        assert_eq!(answered, Ok((false, false)), "the state is locked while the file is read");
    });
}

/// A request for `url` to a proxy at the end of a tunnel to `tunnel`, or, without it, to the URL's own host.
fn tunnelled(url: &str, tunnel: Option<&str>) -> (Flow, RequestHead) {
    let client = ClientInfo {
        peer: "192.0.2.1:9".parse().unwrap(),
        local: "192.0.2.2:7070".parse().unwrap(),
        connection: 1,
        listener: "proxy".into(),
        accepted: Timestamp::now(),
        process: None,
        container: None,
    };
    let url = Url::of_service(url).unwrap();
    let mut flow = Flow::begin(client.into(), EntryKind::Connect, url.scheme, url.authority.clone());
    if let Some(authority) = tunnel {
        *flow.extension_mut() = TunnelOrigin(Some(authority.parse().unwrap()));
    }
    let headers = [("X-Key", PLACEHOLDER)].into_iter().collect();
    (flow, RequestHead { method: Method::GET, url, version: HttpVersion::Http11, headers, protocol: None })
}

const PLACEHOLDER: &str = "placeholder-of-the-key";

#[tokio::test]
async fn a_secret_is_not_sent_to_the_proxy_in_a_tunnel() {
    let (_home, approvals) = approvals(ApprovalMode::Observe);
    let hosts = vec!["api.test".to_owned(), "https://both.test:8443".to_owned()];
    let placeholder = Some(PLACEHOLDER.to_owned());
    let spec = SecretSpec { label: "key".into(), value: "hidden".into(), hosts, placeholder, plain_http: false };
    approvals.add_secret(&EditTurn::unlimited(), spec).unwrap();
    let stage = ApprovalsStage::new(approvals);
    for (tunnel, sent) in
        [(None, "hidden"), (Some("other.test:443"), PLACEHOLDER), (Some("both.test:8443"), PLACEHOLDER)]
    {
        let (mut flow, mut head) = tunnelled("https://api.test/", tunnel);
        assert!(stage.before_send(&mut flow, &mut head, Body::Empty).resolve().await.is_ok());
        assert_eq!(head.headers.get_str("x-key"), Some(sent), "{tunnel:?}");
    }
}

/// A body of 100 bytes of which the last have not come.
struct Begun(std::vec::IntoIter<BodyFrame>);

impl BodyStream for Begun {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        self.0.next().map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))))
    }
    fn remaining(&self) -> Option<u64> {
        Some(100)
    }
}

#[tokio::test]
async fn a_secret_is_inserted_into_a_body_that_is_forwarded_as_it_comes() {
    let (_home, approvals) = approvals(ApprovalMode::Observe);
    let (hosts, placeholder) = (vec!["api.test".to_owned()], Some(PLACEHOLDER.to_owned()));
    let spec = SecretSpec { label: "key".into(), value: "hidden".into(), hosts, placeholder, plain_http: false };
    approvals.add_secret(&EditTurn::unlimited(), spec).unwrap();
    let stage = ApprovalsStage::new(approvals);
    // An encoded one would have to be held, so that it is forwarded with its placeholder.
    for (coding, sent) in [("identity", "key=hidden;"), ("gzip", "key=placeholder-of-the-key;")] {
        let (mut flow, mut head) = tunnelled("https://api.test/", None);
        head.headers.append_unchecked(b"Incremental", b"?1");
        head.headers.append_unchecked(b"Content-Encoding", coding.as_bytes());
        let begun = format!("key={PLACEHOLDER};{}", ".".repeat(40));
        // The placeholder comes in two frames.
        let frames = [&begun[..9], &begun[9..]].map(|part| BodyFrame::Data(part.to_owned().into()));
        let body = Body::stream(Begun(Vec::from(frames).into_iter()));
        let sending = stage.before_send(&mut flow, &mut head, body).resolve();
        let sending = tokio::time::timeout(std::time::Duration::from_secs(5), sending).await;
        let mut body = sending.expect("the body is not held").ok().unwrap();
        let (mut forwarded, mut context) = (Vec::new(), Context::from_waker(std::task::Waker::noop()));
        while let Poll::Ready(Some(Ok(BodyFrame::Data(data)))) = body.poll_frame(&mut context) {
            forwarded.extend_from_slice(&data);
        }
        assert!(forwarded.starts_with(sent.as_bytes()), "{}", String::from_utf8_lossy(&forwarded));
    }
}

#[tokio::test]
async fn rules_for_paths_apply_to_the_proxy_in_a_tunnel() {
    let (_home, approvals) = approvals(ApprovalMode::Enforce);
    let denies = RuleSpec { paths: vec!["/admin".into()], ..rule(ApprovalAction::Deny, "proxy.test") };
    approvals.add_rule(&EditTurn::unlimited(), denies).unwrap();
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Allow, "proxy.test")).unwrap();
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Allow, "api.test")).unwrap();
    let stage = ApprovalsStage::new(approvals);
    let tunnel = Some("proxy.test:443");
    for (path, tunnel, allowed) in
        [("admin", None, true), ("admin", tunnel, false), ("other", tunnel, true), ("other", Some("x.test:443"), false)]
    {
        let (mut flow, mut head) = tunnelled(&format!("http://api.test/{path}"), tunnel);
        let verdict = stage.request_head(&mut flow, &mut head).resolve().await;
        assert_eq!(matches!(verdict, RequestVerdict::Continue), allowed, "{path} {tunnel:?}");
    }
}

#[tokio::test]
async fn where_a_request_goes_must_be_allowed_beside_the_name_that_it_claims() {
    let (_home, approvals) = approvals(ApprovalMode::Enforce);
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Allow, "docs.test")).unwrap();
    let hosts = vec!["http://docs.test".to_owned(), "https://docs.test".to_owned()];
    let placeholder = Some(PLACEHOLDER.to_owned());
    let spec = SecretSpec { label: "key".into(), value: "hidden".into(), hosts, placeholder, plain_http: false };
    approvals.add_secret(&EditTurn::unlimited(), spec).unwrap();
    let stage = ApprovalsStage::new(approvals);
    for (url, dialed, known, is_allowed) in [
        ("http://docs.test/", None, None, true),
        ("http://docs.test/", Some("203.0.113.9:80"), None, false),
        ("http://docs.test/", Some("203.0.113.9:80"), Some("other.test"), false),
        ("http://docs.test/", Some("203.0.113.9:80"), Some("docs.test"), true),
        ("https://docs.test/", Some("other.test:443"), None, false),
    ] {
        let (mut flow, mut head) = tunnelled(url, None);
        *flow.extension_mut() = DialedAuthority(dialed.map(|dialed| dialed.parse().unwrap()));
        *flow.extension_mut() = ResolvedNames(known.into_iter().map(Into::into).collect());
        let verdict = stage.request_head(&mut flow, &mut head).resolve().await;
        assert_eq!(matches!(verdict, RequestVerdict::Continue), is_allowed, "{dialed:?} {known:?}");
        assert!(stage.before_send(&mut flow, &mut head, Body::Empty).resolve().await.is_ok());
        assert_eq!(head.headers.get_str("x-key") == Some("hidden"), is_allowed, "{dialed:?} {known:?}");
    }
}

/// A tunnel to `docs.test` with this server name.
fn passed_through(sni: &str) -> Flow {
    let (mut flow, _) = tunnelled("https://docs.test/", None);
    flow.client_tls = Some(Arc::new(ClientTls { sni: Some(sni.into()), ..ClientTls::default() }));
    flow
}

#[tokio::test]
async fn the_server_name_of_a_tunnel_must_be_allowed_beside_its_host() {
    let (_home, approvals) = approvals(ApprovalMode::Enforce);
    approvals.add_rule(&EditTurn::unlimited(), rule(ApprovalAction::Allow, "docs.test")).unwrap();
    let stage = ApprovalsStage::new(approvals);
    for (sni, dialed, is_allowed) in [
        ("docs.test", None, true),
        ("evil.test", None, false),
        ("127.0.0.1", None, true),
        ("docs.test", Some("evil.test:443"), false),
    ] {
        let mut flow = passed_through(sni);
        *flow.extension_mut() = DialedAuthority(dialed.map(|dialed| dialed.parse().unwrap()));
        let verdict = stage.upstream_connect(&mut flow, None, &mut UpstreamOverrides::default()).resolve().await;
        assert_eq!(matches!(verdict, RequestVerdict::Continue), is_allowed, "{sni} {dialed:?}");
    }
}

#[tokio::test]
async fn the_host_of_a_tunnel_is_asked_about_once() {
    let (_home, approvals) = approvals(ApprovalMode::Ask);
    let stage = ApprovalsStage::new(Arc::clone(&approvals));
    let mut flow = passed_through("docs.test");
    for (sni, asked) in [("docs.test", Some("docs.test")), ("other.test", Some("other.test")), ("docs.test", None)] {
        flow.client_tls = passed_through(sni).client_tls;
        let mut overrides = UpstreamOverrides::default();
        let deciding = stage.upstream_connect(&mut flow, None, &mut overrides).resolve();
        tokio::pin!(deciding);
        let decided = futures_util::poll!(&mut deciding);
        let waiting = approvals.waiting.list();
        assert_eq!(waiting.iter().map(|held| held.question.host.as_str()).next(), asked);
        assert_eq!(decided.is_ready(), asked.is_none());
        if let Some(held) = waiting.first() {
            approvals.waiting.resolve(held.id, ApprovalAction::Allow, "once", None);
            assert!(matches!(deciding.await, RequestVerdict::Continue));
        }
    }
}
