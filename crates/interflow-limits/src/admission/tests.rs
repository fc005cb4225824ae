//! Limits of requests, with counters in memory.

use super::*;
use crate::config::RuleConfig;
use crate::rules::{CountBy, Quota, ServedModel};

fn limits(allow: Quota) -> Arc<UsageLimiter> {
    let rule = RuleConfig { name: "all".into(), count_by: CountBy::Global, allow, ..RuleConfig::default() };
    UsageLimiter::with_deps(
        &QuotaConfig { rule: vec![rule], ..QuotaConfig::default() },
        Path::new("/"),
        &crate::NoRedis,
        crate::LimiterDeps::default(),
    )
    .unwrap()
}

fn subject() -> RequestAttributes {
    RequestAttributes { provider: "openai".into(), model: Some("gpt-4o".into()), ..RequestAttributes::default() }
}

const ASK: UsageEstimate = UsageEstimate {
    input: 100,
    max_output: Some(50),
    choices: 1,
    needs_model: false,
    is_uncounted: false,
    characters: 0,
    images: 0,
    tier: None,
};

impl UsageReservation {
    /// As `commit_all`, for one deployment that is not known.
    pub fn commit(self, tokens: &CallUsage) {
        self.commit_all(&[DeploymentUsage { tokens: *tokens, ..DeploymentUsage::default() }]);
    }
}

#[tokio::test]
async fn dropped_reservation_releases_its_slot_and_keeps_its_estimate() {
    let l = limits(Quota { concurrent: Some(1), tokens_per_day: Some(1000), ..Quota::default() });
    let first = l.admit(subject(), ASK).await.unwrap();
    let Err(AdmissionRejection::Limit { counter, .. }) = l.admit(subject(), ASK).await else { panic!("let in") };
    assert_eq!(counter, CounterLimit::Slots { max: 1 });
    drop(first);
    let second = l.admit(subject(), ASK).await.unwrap();
    second.commit(&CallUsage { input: 7, output: 3, ..CallUsage::default() });
    let used: Vec<_> = l.snapshot(&subject()).await.unwrap().iter().map(|r| (r.counter, r.used)).collect();
    assert_eq!(used, [("concurrent", 0.0), ("tokens_per_day", 160.0)]);
    assert_eq!(l.rejected_count(), 1);
    assert_eq!(l.rejections().into_iter().collect::<Vec<_>>(), [(("all".into(), "concurrent"), 1)]);
}

#[tokio::test]
async fn cost_is_computed_from_the_price_list() {
    let l = limits(Quota { money_per_day: Some(0.01), ..Quota::default() });
    // 1,000 tokens in at 2.50 and 500 out at 10 dollars per million: 0.0075 dollars.
    l.admit(subject(), ASK).await.unwrap().commit(&CallUsage { input: 1000, output: 500, ..CallUsage::default() });
    assert_eq!(l.snapshot(&subject()).await.unwrap()[0].used, 0.0075);
    let big = UsageEstimate { input: 2000, max_output: Some(0), choices: 1, ..UsageEstimate::default() };
    let Err(AdmissionRejection::Limit { wait, .. }) = l.admit(subject(), big).await else { panic!("let in") };
    assert!(wait <= Duration::from_secs(86_400) && wait > Duration::ZERO);
    assert_eq!(l.usage().rows()[0].dollars, 0.0075);
}

#[tokio::test]
async fn the_level_of_service_that_is_asked_for_is_reserved_unless_the_standard_price_is_higher() {
    let asked =
        |tier, max_output| UsageEstimate { max_output: Some(max_output), tier: Some(tier), ..UsageEstimate::default() };
    let subject = || RequestAttributes { model: Some("gpt-6.1-sol".into()), ..subject() };
    for (tier, used) in [
        (ServiceTier::Ultrafast, 6.0),
        (ServiceTier::Priority, 2.0),
        (ServiceTier::Flex, 1.0),
        (ServiceTier::Standard, 1.0),
        (ServiceTier::Other, 1.0),
    ] {
        let l = limits(Quota { money_per_day: Some(10.0), ..Quota::default() });
        // 100,000 tokens at 10 dollars per million.
        let first = l.admit(subject(), asked(tier, 100_000)).await.unwrap();
        assert_eq!(l.snapshot(&subject()).await.unwrap()[0].used, used, "{tier:?}");
        assert_eq!(l.admit(subject(), asked(tier, 100_000)).await.is_ok(), used < 6.0, "{tier:?}");
        first.commit(&CallUsage::default());
    }
}

#[tokio::test]
async fn counters_survive_a_configuration_reload() {
    let l = limits(Quota { tokens_per_day: Some(200), ..Quota::default() });
    l.admit(subject(), ASK).await.unwrap().commit(&CallUsage { input: 150, ..CallUsage::default() });
    let mut config = l.config();
    config.rule[0].allow.tokens_per_day = Some(100);
    l.activate(l.prepare(&config, Path::new("/")).unwrap());
    assert!(l.admit(subject(), ASK).await.is_err());
    config.prices = Some("does/not/exist.json".into());
    let e = l.prepare(&config, Path::new("/")).err().unwrap().to_string();
    assert!(e.contains("quota.prices") && e.contains("exist.json"), "{e}");
    assert_eq!(l.config().prices, None);
}

#[tokio::test]
async fn a_route_is_priced_by_its_deployments_and_not_by_its_name() {
    let at = |model: &str| ServedModel { provider: "azure".into(), model: model.into() };
    // The name of the route is that of an expensive model; its deployments are cheaper.
    let named = |deployments| RequestAttributes { model: Some("gpt-4o".into()), deployments, ..subject() };
    let both = vec![at("gpt-4.1-nano"), at("gpt-4.1-mini")];
    let l = limits(Quota { money_per_day: Some(1.0), ..Quota::default() });
    // 1,000 tokens at 0.40 and 1,000 at 1.60 dollars per million.
    let ask = UsageEstimate { input: 1000, max_output: Some(1000), choices: 1, ..UsageEstimate::default() };
    let reservation = l.admit(named(both.clone()), ask).await.unwrap();
    assert_eq!(l.snapshot(&subject()).await.unwrap()[0].used, 0.002, "the more expensive one is reserved");
    let used = CallUsage { input: 1000, output: 1000, ..CallUsage::default() };
    let usage = |served, answered: &str| DeploymentUsage {
        tokens: used,
        served,
        answered: Some(answered.into()),
        is_estimated: false,
    };
    reservation.commit_all(&[usage(Some(at("gpt-4.1-nano")), "alias")]);
    assert_eq!(l.snapshot(&subject()).await.unwrap()[0].used, 0.0005, "the one that served it is charged");
    l.admit(named(both.clone()), ask).await.unwrap().commit_all(&[usage(None, "gpt-4.1-nano")]);
    assert_eq!(l.snapshot(&subject()).await.unwrap()[0].used, 0.001, "or else the model that answered");
    let besides = usage(Some(at("gpt-4.1-mini")), "");
    l.admit(named(both), ask).await.unwrap().commit_all(&[usage(Some(at("gpt-4.1-nano")), ""), besides]);
    assert_eq!(l.snapshot(&subject()).await.unwrap()[0].used, 0.0035, "and what others used besides");
    assert_eq!(l.usage().rows().iter().map(|row| row.requests).sum::<u64>(), 3);
}

#[tokio::test]
async fn model_without_a_price_is_refused_where_money_is_counted_unless_the_operator_allows_it() {
    let named = |model: &str| RequestAttributes { model: Some(model.into()), ..subject() };
    let l = limits(Quota { money_per_day: Some(1.0), ..Quota::default() });
    let refused = l.admit(named("no-price"), ASK).await.err();
    assert_eq!(
        refused,
        Some(AdmissionRejection::Unpriced { rule: "all".into(), model: Some("openai/no-price".into()) })
    );
    assert_eq!(l.rejections().into_iter().collect::<Vec<_>>(), [(("all".into(), "unpriced"), 1)]);
    // What uses no tokens costs nothing, and one deployment without a price is enough.
    let free = UsageEstimate { max_output: Some(0), ..UsageEstimate::default() };
    assert!(l.admit(named("no-price"), free).await.is_ok());
    let at = |model: &str| ServedModel { provider: "mine".into(), model: model.into() };
    let route = RequestAttributes { deployments: vec![at("gpt-4o"), at("no-price")], ..subject() };
    assert!(
        matches!(l.admit(route, ASK).await, Err(AdmissionRejection::Unpriced { model: Some(model), .. }) if model == "mine/no-price")
    );
    assert_eq!(l.snapshot(&subject()).await.unwrap()[0].used, 0.0);

    let config = QuotaConfig { unpriced: UnpricedModels::Allow, ..l.config() };
    l.activate(l.prepare(&config, Path::new("/")).unwrap());
    assert!(l.admit(named("no-price"), ASK).await.is_ok());
    let tokens = limits(Quota { tokens_per_day: Some(1000), ..Quota::default() });
    assert!(tokens.admit(named("no-price"), ASK).await.is_ok(), "tokens are counted without a price");
}

#[tokio::test]
async fn without_rules_requests_are_admitted_and_counted() {
    let l = UsageLimiter::with_deps(
        &QuotaConfig::default(),
        Path::new("/"),
        &crate::NoRedis,
        crate::LimiterDeps::default(),
    )
    .unwrap();
    l.admit(subject(), ASK).await.unwrap().commit(&CallUsage { input: 1, ..CallUsage::default() });
    assert_eq!(l.usage().rows()[0].requests, 1);
}
