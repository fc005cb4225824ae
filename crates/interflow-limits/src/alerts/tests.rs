//! Tests of budget alerts.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use interflow_types::{CallUsage, Request, Response, ResponseFuture, ResponseHead, StatusCode};
use serde_json::Value;

use super::*;
use crate::admission::{LimiterDeps, UsageEstimate};
use crate::budget_file::BudgetFile;
use crate::config::{QuotaConfig, RuleConfig};
use crate::counter_store::{BudgetPeriod, CounterFuture, CounterValue, MemoryCounterStore, Spent, TakeResult};
use crate::rules::Quota;

/// Records what is posted, and answers with the statuses in turn, then with 200.
#[derive(Default)]
struct Receiver {
    posts: Mutex<Vec<Value>>,
    statuses: Mutex<Vec<u16>>,
}

impl HttpClient for Receiver {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let (body, _) = request.body.collect(1 << 20).await.unwrap();
            let status = self.statuses.lock().pop().unwrap_or(200);
            self.posts.lock().push(serde_json::from_slice(&body).unwrap());
            Ok(Response {
                head: ResponseHead::new(StatusCode::from_u16(status).unwrap()),
                body: interflow_types::Body::Empty,
            })
        })
    }
}

impl Receiver {
    fn thresholds(&self) -> Vec<u64> {
        let mut thresholds: Vec<_> = self.posts.lock().iter().map(|p| p["threshold"].as_u64().unwrap()).collect();
        thresholds.sort_unstable();
        thresholds
    }

    async fn until(&self, posts: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.posts.lock().len() < posts {
            assert!(Instant::now() < end, "{:?}", self.posts.lock());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn limits(receiver: &Arc<Receiver>) -> (Arc<UsageLimiter>, Arc<AlertSender>) {
    let allow = Quota { tokens_per_month: Some(100), ..Quota::default() };
    let alerts = AlertsConfig { webhooks: vec!["http://hook.test/a".into()], ..AlertsConfig::default() };
    let rule = RuleConfig { name: "all".into(), allow, ..RuleConfig::default() };
    let config = QuotaConfig { rule: vec![rule], alerts, ..QuotaConfig::default() };
    let sender = AlertSender::new(Arc::clone(receiver) as _);
    let deps = LimiterDeps { alerts: Some(Arc::clone(&sender)), spend: None };
    let limits = UsageLimiter::with_deps(&config, Path::new("/"), &crate::NoRedis, deps).unwrap();
    (limits, sender)
}

async fn spend(limits: &Arc<UsageLimiter>, tokens: u64) {
    let estimate = UsageEstimate { input: 0, max_output: Some(0), choices: 1, ..UsageEstimate::default() };
    let grant = limits.admit(RequestAttributes::default(), estimate).await.ok().unwrap();
    grant.commit(&CallUsage { input: tokens, ..CallUsage::default() });
}

#[tokio::test]
async fn each_threshold_is_sent_once_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Arc::new(Receiver::default());
    let (first, sender) = limits(&receiver);
    let saved = BudgetFile::restore(&first, &dir.path().join("budgets.json"));
    spend(&first, 55).await;
    receiver.until(1).await;
    spend(&first, 30).await;
    receiver.until(2).await;
    spend(&first, 5).await;
    sender.check(&first).await;
    assert_eq!(receiver.thresholds(), [50, 80]);
    let post = receiver.posts.lock()[0].clone();
    for (member, value) in [
        ("type", Value::from("budget.threshold")),
        ("level", "rule".into()),
        ("rule", "all".into()),
        ("name", "all".into()),
        ("budget", "tokens_per_month".into()),
        ("used", 55.0.into()),
        ("limit", 100.0.into()),
        ("unit", "tokens".into()),
        ("rejecting", false.into()),
    ] {
        assert_eq!(post[member], value, "{member} in {post}");
    }
    assert!(post["text"].as_str().unwrap().contains("50 %"), "{post}");
    saved.write(&first);
    let (second, sender) = limits(&receiver);
    BudgetFile::restore(&second, &dir.path().join("budgets.json"));
    spend(&second, 1).await;
    sender.check(&second).await;
    assert_eq!(receiver.thresholds(), [50, 80], "they were sent before the restart");
    // A request that does not fit: the budget rejects, although a rest is left.
    let subject = RequestAttributes::default();
    assert!(
        second
            .admit(subject, UsageEstimate { input: 50, max_output: Some(0), choices: 1, ..UsageEstimate::default() })
            .await
            .is_err()
    );
    receiver.until(3).await;
    let last = receiver.posts.lock().last().cloned().unwrap();
    assert_eq!((&last["threshold"], &last["rejecting"], &last["used"]), (&100.into(), &true.into(), &91.0.into()));
}

#[tokio::test]
async fn reservations_of_requests_in_progress_raise_no_alert() {
    let receiver = Arc::new(Receiver::default());
    let (limits, sender) = limits(&receiver);
    let admit = |max_output| {
        limits.admit(
            RequestAttributes::default(),
            UsageEstimate { input: 0, max_output: Some(max_output), choices: 1, ..UsageEstimate::default() },
        )
    };
    let (small, large) = (admit(10).await.unwrap(), admit(85).await.unwrap());
    assert!(admit(10).await.is_err(), "it is reserved");
    small.commit(&CallUsage { output: 10, ..CallUsage::default() });
    sender.check(&limits).await;
    assert!(receiver.thresholds().is_empty(), "{:?}", receiver.thresholds());
    large.commit(&CallUsage { output: 45, ..CallUsage::default() });
    receiver.until(1).await;
    assert_eq!(receiver.thresholds(), [50]);
}

#[tokio::test]
async fn posts_are_repeated_after_server_errors_and_given_up_after_refusals() {
    let receiver = Arc::new(Receiver::default());
    *receiver.statuses.lock() = vec![500];
    let (first, sender) = limits(&receiver);
    spend(&first, 55).await;
    receiver.until(2).await;
    assert_eq!(receiver.thresholds(), [50, 50], "the first attempt was answered with 500");
    *receiver.statuses.lock() = vec![404];
    spend(&first, 30).await;
    receiver.until(3).await;
    let end = Instant::now() + Duration::from_secs(20);
    while sender.stats() != (AlertStats { sent: 1, failed: 1, dropped: 0 }) {
        assert!(Instant::now() < end, "{:?}", sender.stats());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Counters that remember leases, as those in Redis do: a lease that is known takes nothing, and is admitted.
struct LeasedStore(MemoryCounterStore, Mutex<BTreeSet<String>>);

impl CounterStore for LeasedStore {
    fn take<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str) -> CounterFuture<'a, TakeResult> {
        match self.1.lock().insert(lease.to_owned()) {
            true => self.0.take(asks, lease),
            false => Box::pin(std::future::ready(Ok(Ok(())))),
        }
    }

    fn commit<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str, spent: Spent<'a>) -> CounterFuture<'a, ()> {
        self.0.commit(asks, lease, spent)
    }

    fn read<'a>(&'a self, asks: &'a [CounterRequest]) -> CounterFuture<'a, Vec<CounterValue>> {
        self.0.read(asks)
    }
}

#[tokio::test]
async fn of_replicas_that_share_counters_one_sends_an_alert() {
    let store = LeasedStore(MemoryCounterStore::new(Duration::from_secs(60)), Mutex::default());
    let budget = CounterRequest {
        rule: "all".into(),
        who: "all".into(),
        counter: CounterLimit::TokenBudget { max: 100, period: BudgetPeriod::Month },
        cost: 0,
        least: 0,
    };
    let [first, second] = [(); 2].map(|()| AlertSender::new(Arc::new(Receiver::default())));
    for threshold in [50, 80] {
        assert!(first.is_first(&store, &budget, threshold).await);
        assert!(!second.is_first(&store, &budget, threshold).await);
        assert!(!first.is_first(&store, &budget, threshold).await);
    }
}

#[test]
fn invalid_alert_settings_name_what_is_wrong() {
    let good = AlertsConfig::default;
    for (config, says) in [
        (AlertsConfig { webhooks: vec!["nonsense".into()], ..good() }, "webhooks[0]"),
        (AlertsConfig { secret: Some("env:NOT_SET_ANYWHERE_7".into()), ..good() }, "secret"),
    ] {
        let e = AlertSettings::new(&config).unwrap_err();
        assert!(e.contains(says), "{e}");
    }
}
