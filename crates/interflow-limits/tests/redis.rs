//! One limit held by several processes through a real Redis server, and what happens when it goes away.
//!
//! Needs `redis-server`; `make test` installs it where it may. Without it these tests say so and end.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_flow::units::Span;
use interflow_limits::{
    Estimate, Failure, Limits, NotNow, Per, Quota, QuotaConfig, RuleConfig, SharedConfig, Subject, Tokens,
};

/// A server of the test's own, on a port that was free a moment ago; gone when dropped.
struct Server {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        Some(Self { child: launch(port, dir.path())?, port, dir })
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn restart(&mut self) {
        self.kill();
        self.child = launch(self.port, self.dir.path()).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(port: u16, dir: &Path) -> Option<Child> {
    let started = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
        .arg(dir)
        .args(["--port", &port.to_string()])
        .stdout(Stdio::null())
        .spawn();
    let child = match started {
        Ok(child) => child,
        Err(e) => {
            eprintln!("LEFT OUT: redis-server cannot be started ({e}); install it, or run `make test` as root");
            return None;
        }
    };
    let until = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(child)
}

fn limits(url: &str, failure: Failure, allow: Quota) -> Arc<Limits> {
    let config = QuotaConfig {
        rule: vec![RuleConfig { name: "all".into(), per: Per::Global, allow, ..RuleConfig::default() }],
        shared: SharedConfig {
            redis: Some(url.into()),
            timeout: Span::millis(2_000),
            failure,
            ..SharedConfig::default()
        },
        ..QuotaConfig::default()
    };
    Limits::new(&config, Path::new("/")).unwrap()
}

fn subject() -> Subject {
    Subject {
        key: None,
        user: None,
        route: None,
        provider: "openai".into(),
        model: Some("gpt-4o".into()),
        client: [127, 0, 0, 1].into(),
    }
}

const ASK: Estimate = Estimate { input: 10, max_output: Some(0) };

fn budget(tokens: u64) -> Quota {
    Quota { tokens_per_day: Some(tokens), ..Quota::default() }
}

const WORKER: &str = "INTERFLOW_TEST_REDIS";

/// Not a test by itself: the body of the processes that the next test starts.
#[tokio::test]
async fn worker() {
    let Ok(url) = std::env::var(WORKER) else { return };
    let l = limits(&url, Failure::Closed, budget(500));
    let mut passed = 0;
    for _ in 0..40 {
        match l.begin(subject(), ASK).await {
            Ok(grant) => {
                grant.settle(&Tokens { input: 10, ..Tokens::default() });
                passed += 1;
            }
            Err(NotNow::Limit { .. }) => {}
            Err(NotNow::Unavailable(e)) => panic!("{e}"),
        }
    }
    println!("passed={passed};");
}

#[test]
fn three_processes_hold_one_budget_together() {
    let Some(server) = Server::start() else { return };
    let workers: Vec<_> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "worker", "--nocapture"])
                .env(WORKER, server.url())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
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
    // 120 requests of 10 tokens want what is enough for 50.
    assert_eq!(passed.iter().sum::<u32>(), 50, "{passed:?}");
}

#[tokio::test]
async fn a_cut_connection_refuses_until_the_server_is_back() {
    let Some(mut server) = Server::start() else { return };
    let l = limits(&server.url(), Failure::Closed, budget(1_000));
    l.begin(subject(), ASK).await.unwrap().settle(&Tokens { input: 30, ..Tokens::default() });
    server.kill();
    let asked = Instant::now();
    assert!(matches!(l.begin(subject(), ASK).await, Err(NotNow::Unavailable(_))));
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert!(!l.shared().unwrap().reachable);
    server.restart();
    let until = Instant::now() + Duration::from_secs(10);
    while l.begin(subject(), ASK).await.is_err() {
        assert!(Instant::now() < until, "it does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(l.shared().unwrap().reachable);
}

#[tokio::test]
async fn a_server_that_keeps_silent_costs_the_time_limit_and_no_more() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut config = limits(&url, Failure::Open, budget(1)).config();
    config.shared.timeout = Span::millis(200);
    let l = Limits::new(&config, Path::new("/")).unwrap();
    let asked = Instant::now();
    for _ in 0..5 {
        assert!(l.begin(subject(), ASK).await.is_ok());
    }
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(l.shared().unwrap().fallbacks, 5);
}

#[tokio::test]
async fn all_kinds_of_counters_work_there_as_in_memory() {
    let Some(server) = Server::start() else { return };
    let allow = Quota {
        requests: Some("4/h".parse().unwrap()),
        tokens: Some("1000/h".parse().unwrap()),
        concurrent: Some(2),
        tokens_per_month: Some(5_000),
        money_per_day: Some(1.0),
        ..Quota::default()
    };
    let shared = limits(&server.url(), Failure::Closed, allow.clone());
    let mut config = shared.config();
    config.shared.redis = None;
    let memory = Limits::new(&config, Path::new("/")).unwrap();
    let mut told = Vec::new();
    for l in [&shared, &memory] {
        let mut steps = Vec::new();
        let first = l.begin(subject(), ASK).await.unwrap();
        let second = l.begin(subject(), ASK).await.unwrap();
        steps.push(refused(l).await);
        first.settle(&Tokens { input: 100, output: 20, ..Tokens::default() });
        // Settling goes on beside the traffic.
        while l.read(&subject()).await.unwrap().iter().any(|r| r.counter == "concurrent" && r.used > 1.0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let third = l.begin(subject(), ASK).await.unwrap();
        drop((second, third));
        while l.read(&subject()).await.unwrap().iter().any(|r| r.counter == "concurrent" && r.used > 0.0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        l.begin(subject(), ASK).await.unwrap().settle(&Tokens::default());
        steps.push(refused(l).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let levels: Vec<_> = l.read(&subject()).await.unwrap().iter().map(|r| (r.counter, r.used.round())).collect();
        told.push((steps, levels));
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].0, ["concurrent", "requests"]);
    assert!(told[0].1.contains(&("tokens_per_month", 140.0)), "{told:?}");
}

async fn refused(l: &Arc<Limits>) -> &'static str {
    match l.begin(subject(), ASK).await {
        Err(NotNow::Limit { counter, wait, .. }) => {
            assert!(wait > Duration::ZERO);
            counter.as_str()
        }
        Err(NotNow::Unavailable(e)) => panic!("{e}"),
        Ok(_) => "let in",
    }
}
