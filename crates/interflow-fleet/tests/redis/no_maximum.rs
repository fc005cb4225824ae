//! Requests that state no maximum: budgets hold when they run in parallel, and are used in full one after the other.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use interflow_fleet::RedisConnections;
use interflow_limits::{AdmissionRejection, Quota, SharedFailureMode, UsageEstimate, UsageLimiter, UsageReservation};
use interflow_types::CallUsage;

use crate::{Commit as _, Server, limits, subject};

const OPEN: UsageEstimate = UsageEstimate {
    input: 10,
    max_output: None,
    choices: 1,
    needs_model: false,
    is_uncounted: false,
    images: 0,
    characters: 0,
    tier: None,
};
/// $0.08 at $10 per million output tokens.
static USED: LazyLock<CallUsage> = LazyLock::new(|| CallUsage { output: 8_000, ..CallUsage::default() });

/// The limits in the server, and the same in memory.
fn both(server: &Server, allow: Quota) -> [Arc<UsageLimiter>; 2] {
    let shared = limits(&server.url(), SharedFailureMode::Closed, allow);
    let mut config = shared.config();
    config.shared.redis = None;
    let memory =
        UsageLimiter::with_deps(&config, Path::new("/"), &RedisConnections, interflow_limits::LimiterDeps::default())
            .unwrap();
    [shared, memory]
}

/// Those of a hundred parallel requests that are admitted; all others are refused because of reservations.
async fn admitted_of_a_hundred(l: &Arc<UsageLimiter>) -> Vec<UsageReservation> {
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let l = Arc::clone(l);
        answers.spawn(async move { l.admit(subject(), OPEN).await });
    }
    let mut admitted = Vec::new();
    for answer in answers.join_all().await {
        match answer {
            Ok(grant) => admitted.push(grant),
            Err(AdmissionRejection::Limit { wait, is_reserved, .. }) => {
                assert_eq!((wait, is_reserved), (Duration::from_secs(1), true));
            }
            Err(e) => panic!("{e:?}"),
        }
    }
    admitted
}

/// Waits until the counter is at this level: commits complete in the background.
async fn until_used(l: &UsageLimiter, counter: &str, wanted: f64) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let shown = l.snapshot(&subject()).await.unwrap();
        let now = shown.iter().find(|r| r.counter == counter).unwrap().used;
        if (now - wanted).abs() < 1e-6 {
            return;
        }
        assert!(Instant::now() < until, "{counter}: {now}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn parallel_requests_do_not_exceed_a_budget_and_sequential_ones_use_it_up() {
    let Some(server) = Server::start() else { return };
    let money = Quota { money_per_day: Some(1.0), ..Quota::default() };
    let tokens = Quota { tokens_per_month: Some(100_000), ..Quota::default() };
    for (allow, counter, each) in [(money, "money_per_day", 0.08), (tokens, "tokens_per_month", 8_000.0)] {
        for l in both(&server, allow.clone()) {
            // Three of 32,000 tokens fit, and a fourth is admitted by the rest.
            let admitted = admitted_of_a_hundred(&l).await;
            assert_eq!(admitted.len(), 4, "{counter}");
            let mut spent = admitted.len() as f64 * each;
            admitted.into_iter().for_each(|grant| grant.commit(&USED));
            until_used(&l, counter, spent).await;
            loop {
                match l.admit(subject(), OPEN).await {
                    Ok(grant) => grant.commit(&USED),
                    Err(AdmissionRejection::Limit { is_reserved, .. }) => break assert!(!is_reserved),
                    Err(e) => panic!("{e:?}"),
                }
                spent += each;
                until_used(&l, counter, spent).await;
            }
            // The last one began with half a request left.
            assert_eq!((spent / each).round(), 13.0, "{counter}");
        }
    }
}

#[tokio::test]
async fn the_smallest_of_several_budgets_decides_and_others_are_given_back() {
    let Some(server) = Server::start() else { return };
    let allow = Quota {
        tokens_per_day: Some(5_000),
        money_per_day: Some(100.0),
        tokens: Some("10000/h".parse().unwrap()),
        ..Quota::default()
    };
    for l in both(&server, allow) {
        for n in 1..=3 {
            let mut admitted = admitted_of_a_hundred(&l).await;
            assert_eq!(admitted.len(), 1, "a budget smaller than the reservation admits one at a time");
            until_used(&l, "tokens_per_day", f64::from(n - 1) * 1_000.0 + 32_010.0).await;
            let shown = l.snapshot(&subject()).await.unwrap();
            let rate = shown.iter().find(|r| r.counter == "tokens").unwrap().used;
            assert!(rate < 4_000.0, "a rate reserves little: {rate}");
            admitted.remove(0).commit(&CallUsage { output: 1_000, ..CallUsage::default() });
            until_used(&l, "tokens_per_day", f64::from(n) * 1_000.0).await;
            until_used(&l, "money_per_day", f64::from(n) * 0.01).await;
        }
    }
}
