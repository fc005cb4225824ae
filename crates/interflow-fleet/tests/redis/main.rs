//! Limits shared by several processes through a real Redis server, and the behaviour when it is unreachable.
//!
//! Needs `redis-server`, which `make test` installs where it can. Without it these tests print a note and return.

mod lost_answers;
mod no_maximum;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_fleet::RedisConnections;
use interflow_limits::{
    AdmissionRejection, CountBy, DeploymentUsage, Quota, QuotaConfig, RequestAttributes, RuleConfig, SharedFailureMode,
    SharedQuotaConfig, UsageEstimate, UsageLimiter, UsageReservation,
};
use interflow_testkit::TestCa;
use interflow_types::CallUsage;
use interflow_types::units::HumanDuration;

/// A private Redis server on a recently free port; killed when dropped.
struct Server {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
    tls: bool,
}

const PASSWORD: &str = "hidden-word";

impl Server {
    fn start() -> Option<Self> {
        Self::start_with(false)
    }

    /// A server with TLS only, a client certificate and a password. Its folder contains `ca.pem`, and `cert.pem` and
    /// `key.pem` for both sides.
    fn start_tls() -> Option<Self> {
        Self::start_with(true)
    }

    fn start_with(tls: bool) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let ca = TestCa::new();
        let (cert, key) = ca.leaf_pem(&["127.0.0.1"]);
        for (name, text) in [("ca.pem", ca.pem()), ("cert.pem", &cert), ("key.pem", &key)] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Some(Self { child: launch(port, dir.path(), tls)?, port, dir, tls })
    }

    fn url(&self) -> String {
        match self.tls {
            true => format!("rediss://:{PASSWORD}@127.0.0.1:{}", self.port),
            false => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn restart(&mut self) {
        self.kill();
        self.child = launch(self.port, self.dir.path(), self.tls).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(port: u16, dir: &Path, tls: bool) -> Option<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]).arg(dir);
    let port_text = port.to_string();
    match tls {
        false => command.args(["--port", &port_text]),
        true => command.args(["--port", "0", "--tls-port", &port_text, "--requirepass", PASSWORD]).args([
            "--tls-cert-file",
            "cert.pem",
            "--tls-key-file",
            "key.pem",
            "--tls-ca-cert-file",
            "ca.pem",
            "--tls-auth-clients",
            "yes",
        ]),
    };
    let mut child = match command.stdout(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(e) => {
            eprintln!("LEFT OUT: redis-server cannot be started ({e}); install it, or run `make test` as root");
            return None;
        }
    };
    let until = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if tls && child.try_wait().unwrap().is_some() {
            eprintln!("LEFT OUT: this redis-server cannot speak TLS; install one that is built with it");
            return None;
        }
        assert!(Instant::now() < until, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(child)
}

fn limits(url: &str, failure: SharedFailureMode, allow: Quota) -> Arc<UsageLimiter> {
    UsageLimiter::with_deps(
        &config(url, failure, allow),
        Path::new("/"),
        &RedisConnections,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap()
}

/// Limits at a TLS server, with the files of its folder; `change` may edit the configuration first.
fn limits_over_tls(
    url: &str,
    dir: &Path,
    allow: Quota,
    change: impl FnOnce(&mut SharedQuotaConfig),
) -> Arc<UsageLimiter> {
    let mut config = config(url, SharedFailureMode::Closed, allow);
    let shared = &mut config.shared;
    (shared.ca, shared.certificate, shared.key) =
        (Some("ca.pem".into()), Some("cert.pem".into()), Some("key.pem".into()));
    change(shared);
    UsageLimiter::with_deps(&config, dir, &RedisConnections, interflow_limits::LimiterDeps::default()).unwrap()
}

fn config(url: &str, failure: SharedFailureMode, allow: Quota) -> QuotaConfig {
    QuotaConfig {
        rule: vec![RuleConfig { name: "all".into(), count_by: CountBy::Global, allow, ..RuleConfig::default() }],
        shared: SharedQuotaConfig {
            redis: Some(url.into()),
            timeout: HumanDuration::from_millis(2_000),
            failure,
            ..SharedQuotaConfig::default()
        },
        ..QuotaConfig::default()
    }
}

fn subject() -> RequestAttributes {
    RequestAttributes { provider: "openai".into(), model: Some("gpt-4o".into()), ..RequestAttributes::default() }
}

const ASK: UsageEstimate = UsageEstimate {
    input: 10,
    max_output: Some(0),
    choices: 1,
    needs_model: false,
    is_uncounted: false,
    images: 0,
    characters: 0,
    tier: None,
};

trait Commit {
    /// Ends a request that used these tokens at a deployment that is not known.
    fn commit(self, tokens: &CallUsage);
}

impl Commit for UsageReservation {
    fn commit(self, tokens: &CallUsage) {
        self.commit_all(&[DeploymentUsage { tokens: *tokens, ..DeploymentUsage::default() }]);
    }
}

fn budget(tokens: u64) -> Quota {
    Quota { tokens_per_day: Some(tokens), ..Quota::default() }
}

const WORKER: &str = "INTERFLOW_TEST_REDIS";
/// The folder with the certificates, if the server uses TLS.
const WORKER_TLS: &str = "INTERFLOW_TEST_REDIS_TLS";

/// Not a test by itself: the body of the processes that the next test starts.
#[tokio::test]
async fn worker() {
    let Ok(url) = std::env::var(WORKER) else { return };
    let l = match std::env::var_os(WORKER_TLS) {
        Some(dir) => limits_over_tls(&url, Path::new(&dir), budget(500), |_| ()),
        None => limits(&url, SharedFailureMode::Closed, budget(500)),
    };
    let mut passed = 0;
    for _ in 0..40 {
        match l.admit(subject(), ASK).await {
            Ok(grant) => {
                grant.commit(&CallUsage { input: 10, ..CallUsage::default() });
                passed += 1;
            }
            Err(AdmissionRejection::Limit { .. }) => {}
            Err(e) => panic!("{e:?}"),
        }
    }
    println!("passed={passed};");
}

#[test]
fn three_processes_share_one_budget() {
    let Some(server) = Server::start() else { return };
    hold_one_budget(&server);
}

#[test]
fn three_processes_share_one_budget_over_tls() {
    let Some(server) = Server::start_tls() else { return };
    hold_one_budget(&server);
}

/// Why a request is refused by limits at this TLS server, after a change to the configuration.
async fn why_unavailable(server: &Server, url: &str, change: fn(&mut SharedQuotaConfig)) -> String {
    let l = limits_over_tls(url, server.dir.path(), budget(1_000), change);
    match l.admit(subject(), ASK).await {
        Err(AdmissionRejection::Unavailable(e)) => e.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("let in at {url}"),
    }
}

#[tokio::test]
async fn redis_over_tls_needs_its_ca_and_a_client_certificate() {
    let Some(server) = Server::start_tls() else { return };
    let url = server.url();
    // The server's CA is not among the system's.
    why_unavailable(&server, &url, |s| s.ca = None).await;
    why_unavailable(&server, &url, |s| (s.certificate, s.key) = (None, None)).await;
    let plain = |s: &mut SharedQuotaConfig| (s.ca, s.certificate, s.key) = (None, None, None);
    why_unavailable(&server, &url.replace("rediss", "redis"), plain).await;
    let l = limits_over_tls(&url, server.dir.path(), budget(1_000), |_| ());
    assert!(l.admit(subject(), ASK).await.is_ok());
}

#[tokio::test]
async fn a_wrong_redis_password_is_refused_and_not_shown() {
    let Some(server) = Server::start_tls() else { return };
    let said = why_unavailable(&server, &server.url().replace(PASSWORD, "another-word"), |_| ()).await;
    assert!(!said.contains("another-word") && !said.contains(PASSWORD), "{said}");
}

#[tokio::test]
async fn unreachable_redis_over_tls_refuses_requests_until_it_is_back() {
    let Some(mut server) = Server::start_tls() else { return };
    let l = limits_over_tls(&server.url(), server.dir.path(), budget(1_000), |_| ());
    l.admit(subject(), ASK).await.unwrap().commit(&CallUsage { input: 30, ..CallUsage::default() });
    server.kill();
    assert!(matches!(l.admit(subject(), ASK).await, Err(AdmissionRejection::Unavailable(_))));
    server.restart();
    admitted(&l).await;
}

#[tokio::test]
async fn unreachable_redis_over_tls_admits_requests_if_failures_do() {
    let Some(mut server) = Server::start_tls() else { return };
    server.kill();
    let open = limits_over_tls(&server.url(), server.dir.path(), budget(0), |s| s.failure = SharedFailureMode::Open);
    assert!(open.admit(subject(), ASK).await.is_ok());
}

/// Waits until a request is admitted.
async fn admitted(l: &Arc<UsageLimiter>) -> UsageReservation {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match l.admit(subject(), ASK).await {
            Ok(grant) => return grant,
            Err(_) => assert!(Instant::now() < until, "requests are refused for good"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn hold_one_budget(server: &Server) {
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let mut worker = Command::new(std::env::current_exe().unwrap());
            worker.args(["--exact", "worker", "--nocapture"]).env(WORKER, server.url()).stdout(Stdio::piped());
            if server.tls {
                worker.env(WORKER_TLS, server.dir.path());
            }
            worker.spawn().unwrap()
        })
        .collect();
    let passed: Vec<u32> = workers
        .into_iter()
        .map(|w| {
            let out = w.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(out.status.success(), "{text}");
            let number = text.split_once("passed=").unwrap().1.split_once(';').unwrap().0;
            number.parse().unwrap()
        })
        .collect();
    // 120 requests of 10 tokens ask for more than the budget, which covers 50.
    assert_eq!(passed.iter().sum::<u32>(), 50, "{passed:?}");
}

#[tokio::test]
async fn unreachable_redis_refuses_requests_until_it_is_back() {
    let Some(mut server) = Server::start() else { return };
    let l = limits(&server.url(), SharedFailureMode::Closed, budget(1_000));
    l.admit(subject(), ASK).await.unwrap().commit(&CallUsage { input: 30, ..CallUsage::default() });
    server.kill();
    let asked = Instant::now();
    assert!(matches!(l.admit(subject(), ASK).await, Err(AdmissionRejection::Unavailable(_))));
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert!(!l.shared_status().unwrap().reachable);
    server.restart();
    admitted(&l).await;
    assert!(l.shared_status().unwrap().reachable);
}

#[tokio::test]
async fn connection_closed_by_redis_is_reopened_without_a_refusal() {
    let Some(server) = Server::start() else { return };
    let l = limits(&server.url(), SharedFailureMode::Closed, budget(1_000));
    l.admit(subject(), ASK).await.unwrap().commit(&CallUsage { input: 30, ..CallUsage::default() });
    let mut other = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    for _ in 0..3 {
        other.write_all(b"CLIENT KILL TYPE normal SKIPME yes\r\n").unwrap();
        let mut answer = [0; 64];
        assert!(other.read(&mut answer).unwrap() > 0);
        assert!(l.admit(subject(), ASK).await.is_ok());
    }
    assert!(l.shared_status().unwrap().reachable);
}

#[tokio::test]
async fn unresponsive_redis_costs_one_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut config = limits(&url, SharedFailureMode::Open, budget(1)).config();
    config.shared.timeout = HumanDuration::from_millis(200);
    let l =
        UsageLimiter::with_deps(&config, Path::new("/"), &RedisConnections, interflow_limits::LimiterDeps::default())
            .unwrap();
    let asked = Instant::now();
    for _ in 0..5 {
        assert!(l.admit(subject(), ASK).await.is_ok());
    }
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(l.shared_status().unwrap().fallbacks, 5);
}

#[tokio::test]
async fn redis_counters_behave_like_in_memory_counters() {
    let Some(server) = Server::start() else { return };
    let allow = Quota {
        requests: Some("4/h".parse().unwrap()),
        tokens: Some("1000/h".parse().unwrap()),
        concurrent: Some(2),
        tokens_per_month: Some(5_000),
        money_per_day: Some(1.0),
        ..Quota::default()
    };
    let shared = limits(&server.url(), SharedFailureMode::Closed, allow.clone());
    let mut config = shared.config();
    config.shared.redis = None;
    let memory =
        UsageLimiter::with_deps(&config, Path::new("/"), &RedisConnections, interflow_limits::LimiterDeps::default())
            .unwrap();
    let mut told = Vec::new();
    for l in [&shared, &memory] {
        let mut steps = Vec::new();
        let first = l.admit(subject(), ASK).await.unwrap();
        let second = l.admit(subject(), ASK).await.unwrap();
        steps.push(refused(l).await);
        first.commit(&CallUsage { input: 100, output: 20, ..CallUsage::default() });
        settled(l, 1.0).await;
        let third = l.admit(subject(), ASK).await.unwrap();
        drop((second, third));
        settled(l, 0.0).await;
        l.admit(subject(), ASK).await.unwrap().commit(&CallUsage::default());
        steps.push(refused(l).await);
        settled(l, 0.0).await;
        let levels: Vec<_> =
            l.snapshot(&subject()).await.unwrap().iter().map(|r| (r.counter, r.used.round())).collect();
        told.push((steps, levels));
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].0, ["concurrent", "requests"]);
    assert!(told[0].1.contains(&("tokens_per_month", 140.0)), "{told:?}");
}

/// Waits until no more than so many requests hold a slot: commits complete in the background, all counters at once.
async fn settled(l: &UsageLimiter, slots: f64) {
    let until = Instant::now() + Duration::from_secs(10);
    while l.snapshot(&subject()).await.unwrap().iter().any(|r| r.counter == "concurrent" && r.used > slots) {
        assert!(Instant::now() < until, "slots are not given back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Not a test by itself: a process that takes a slot and is killed while holding it.
#[tokio::test]
async fn holder() {
    let Ok(url) = std::env::var(HOLDER) else { return };
    let l = UsageLimiter::with_deps(
        &slots(&url, 1),
        Path::new("/"),
        &RedisConnections,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap();
    let _grant = l.admit(subject(), ASK).await.unwrap();
    println!("held;");
    std::future::pending::<()>().await;
}

const HOLDER: &str = "INTERFLOW_TEST_REDIS_HOLDER";

/// So many slots, renewed every 200 ms.
fn slots(url: &str, concurrent: u32) -> QuotaConfig {
    let allow = Quota { concurrent: Some(concurrent), ..Quota::default() };
    let mut config = config(url, SharedFailureMode::Closed, allow);
    config.shared.heartbeat = HumanDuration::from_millis(200);
    config
}

/// A process that holds the only slot; killed when dropped.
struct Holder(Child);

impl Holder {
    fn start(server: &Server) -> Self {
        let mut holder = Command::new(std::env::current_exe().unwrap());
        holder.args(["--exact", "holder", "--nocapture"]).env(HOLDER, server.url()).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let mut said = String::new();
        let mut out = holder.stdout.take().unwrap();
        while !said.contains("held;") {
            let mut some = [0; 256];
            let n = out.read(&mut some).unwrap();
            assert!(n > 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&some[..n]));
        }
        Self(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The slots in the server's memory, and its clock.
struct SlotView(redis::Connection);

impl SlotView {
    fn new(server: &Server) -> Self {
        Self(redis::Client::open(server.url()).unwrap().get_connection().unwrap())
    }

    /// The times at which the slots expire, in microseconds of the server's clock; earliest first.
    fn expiries(&mut self) -> Vec<f64> {
        let keys: Vec<String> = redis::cmd("KEYS").arg("*:concurrent:*").query(&mut self.0).unwrap();
        let mut ranges = keys.iter().map(|key| {
            let mut range = redis::cmd("ZRANGE");
            range.arg(key).arg(0).arg(-1).arg("WITHSCORES");
            range.query::<Vec<(String, f64)>>(&mut self.0).unwrap()
        });
        let slots = ranges.next().unwrap_or_default();
        assert!(ranges.next().is_none(), "one counter");
        slots.into_iter().map(|(_, expiry)| expiry).collect()
    }

    fn now(&mut self) -> f64 {
        let (seconds, micros): (f64, f64) = redis::cmd("TIME").query(&mut self.0).unwrap();
        seconds * 1e6 + micros
    }

    /// Waits until the slots and the clock are as they should be.
    fn until(&mut self, what: &str, holds: impl Fn(&[f64], f64) -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !holds(&self.expiries(), self.now()) {
            assert!(Instant::now() < until, "{what}: {:?} at {}", self.expiries(), self.now());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[tokio::test]
async fn a_slot_is_held_beyond_its_expiry_while_its_process_lives() {
    let Some(server) = Server::start() else { return };
    let _holder = Holder::start(&server);
    let mut view = SlotView::new(&server);
    let expiry = view.expiries()[0];
    view.until("the first expiry", |_, now| now > expiry);
    let l = UsageLimiter::with_deps(
        &slots(&server.url(), 1),
        Path::new("/"),
        &RedisConnections,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap();
    assert_eq!(refused(&l).await, "concurrent");
}

#[tokio::test]
async fn a_slot_of_a_killed_process_expires() {
    let Some(server) = Server::start() else { return };
    let holder = Holder::start(&server);
    let l = UsageLimiter::with_deps(
        &slots(&server.url(), 1),
        Path::new("/"),
        &RedisConnections,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap();
    assert_eq!(refused(&l).await, "concurrent");
    drop(holder);
    admitted(&l).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_leave_a_released_slot_free() {
    let Some(server) = Server::start() else { return };
    let l = UsageLimiter::with_deps(
        &slots(&server.url(), 2),
        Path::new("/"),
        &RedisConnections,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap();
    let _kept = l.admit(subject(), ASK).await.unwrap();
    let released = l.admit(subject(), ASK).await.unwrap();
    assert_eq!(refused(&l).await, "concurrent");
    drop(released);
    let mut view = SlotView::new(&server);
    view.until("the release", |slots, _| slots.len() == 1);
    // Two renewals of the other slot: the second began after the release.
    for _ in 0..2 {
        let before = view.expiries();
        view.until("a renewal", |slots, _| slots != before);
    }
    assert_eq!(view.expiries().len(), 1);
    assert!(l.admit(subject(), ASK).await.is_ok());
}

async fn refused(l: &Arc<UsageLimiter>) -> &'static str {
    match l.admit(subject(), ASK).await {
        Err(AdmissionRejection::Limit { counter, wait, .. }) => {
            assert!(wait > Duration::ZERO);
            counter.as_str()
        }
        Err(e) => panic!("{e:?}"),
        Ok(_) => "let in",
    }
}
