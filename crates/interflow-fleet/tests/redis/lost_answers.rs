//! Answers of the server that come late, or never: nothing is counted twice, and nothing stays counted for a request that
//! was not admitted.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use interflow_fleet::RedisConnections;
use interflow_limits::{AdmissionRejection, Quota, SharedFailureMode, UsageLimiter};
use interflow_types::CallUsage;
use interflow_types::units::HumanDuration;

use crate::{ASK, Commit as _, Server, config, limits, subject};

/// A way to the server on which answers can be lost or held back.
struct Road {
    port: u16,
    answers: Arc<Answers>,
}

#[derive(Default)]
struct Answers {
    /// So many answers are swallowed, and their connections closed.
    lost: AtomicUsize,
    held: AtomicBool,
}

impl Road {
    fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let road = Self { port: listener.local_addr().unwrap().port(), answers: Arc::default() };
        let (target, answers) = (server.port, Arc::clone(&road.answers));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || carry(from, to, &Answers::default()));
                let answers = Arc::clone(&answers);
                std::thread::spawn(move || carry(server, client, &answers));
            }
        });
        road
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, answers: &Answers) {
    let mut some = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut some) {
        while answers.held.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_lost = answers.lost.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_lost || to.write_all(&some[..n]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn one_slot_and_budgets() -> Quota {
    Quota {
        concurrent: Some(1),
        requests: Some("3/d".parse().unwrap()),
        tokens_per_day: Some(1_000),
        money_per_month: Some(1.0),
        ..Quota::default()
    }
}

async fn levels(l: &UsageLimiter) -> Vec<(&'static str, f64)> {
    let shown = l.snapshot(&subject()).await.unwrap();
    shown.iter().map(|r| (r.counter, r.used.round())).filter(|(_, used)| *used > 0.0).collect()
}

async fn until_levels_are(l: &UsageLimiter, wanted: &[(&'static str, f64)]) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let now = levels(l).await;
        if now == wanted {
            return;
        }
        assert!(Instant::now() < until, "{now:?}, not {wanted:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Makes a first request, so that there is a connection and the server knows the scripts. Returns what it used.
async fn used_before(l: &Arc<UsageLimiter>) -> Vec<(&'static str, f64)> {
    l.admit(subject(), ASK).await.unwrap().commit(&CallUsage { input: 7, ..CallUsage::default() });
    let used = [("requests", 1.0), ("tokens_per_day", 7.0)];
    until_levels_are(l, &used).await;
    used.to_vec()
}

#[tokio::test]
async fn a_repeated_take_or_settlement_counts_once() {
    let Some(server) = Server::start() else { return };
    let road = Road::to(&server);
    let l = limits(&road.url(), SharedFailureMode::Closed, one_slot_and_budgets());
    let before = used_before(&l).await;
    assert_eq!(before, [("requests", 1.0), ("tokens_per_day", 7.0)]);
    road.answers.lost.store(1, SeqCst);
    let grant = l.admit(subject(), ASK).await.expect("it is not refused because of its own slot");
    assert_eq!(road.answers.lost.load(SeqCst), 0);
    assert_eq!(levels(&l).await, [("requests", 2.0), ("concurrent", 1.0), ("tokens_per_day", 17.0)]);
    road.answers.lost.store(1, SeqCst);
    grant.commit(&CallUsage { input: 3, ..CallUsage::default() });
    until_levels_are(&l, &[("requests", 2.0), ("tokens_per_day", 10.0)]).await;
    assert_eq!(road.answers.lost.load(SeqCst), 0);
}

#[tokio::test]
async fn a_take_that_is_cancelled_while_the_server_answers_is_given_back() {
    let Some(server) = Server::start() else { return };
    let road = Road::to(&server);
    let l = limits(&road.url(), SharedFailureMode::Closed, one_slot_and_budgets());
    let before = used_before(&l).await;
    road.answers.held.store(true, SeqCst);
    let mut admission = Box::pin(l.admit(subject(), ASK));
    for _ in 0..20 {
        assert!(admission.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(admission);
    road.answers.held.store(false, SeqCst);
    until_levels_are(&l, &before).await;
    let other = limits(&server.url(), SharedFailureMode::Closed, one_slot_and_budgets());
    assert!(other.admit(subject(), ASK).await.is_ok(), "the slot is free");
}

#[tokio::test]
async fn a_request_that_was_refused_for_want_of_an_answer_leaves_nothing_counted() {
    let Some(server) = Server::start() else { return };
    let road = Road::to(&server);
    let mut config = config(&road.url(), SharedFailureMode::Closed, one_slot_and_budgets());
    config.shared.timeout = HumanDuration::from_millis(300);
    let l = UsageLimiter::with_deps(
        &config,
        std::path::Path::new("/"),
        &RedisConnections,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap();
    let before = used_before(&l).await;
    road.answers.held.store(true, SeqCst);
    assert!(matches!(l.admit(subject(), ASK).await, Err(AdmissionRejection::Unavailable(_))));
    road.answers.held.store(false, SeqCst);
    let other = limits(&server.url(), SharedFailureMode::Closed, one_slot_and_budgets());
    assert!(levels(&other).await.len() > before.len(), "the server took from the counters");
    until_levels_are(&other, &before).await;
}
