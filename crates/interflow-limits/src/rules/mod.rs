//! Quota rules, and the counters that apply to a request.

mod quota;
mod rate;

use std::net::IpAddr;
use std::sync::Arc;

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

pub use quota::Quota;
pub use rate::{RateError, RateLimit};

use crate::config::RuleConfig;
use crate::counter_store::{CounterLimit, CounterRequest};
use crate::keys::{VirtualKey, any_matches, covers_model};
use crate::tags::TagSet;

/// What is counted separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CountBy {
    /// All requests together.
    #[default]
    Global,
    /// Each virtual key; requests without one are counted by their client's address.
    Key,
    /// Each user: the authenticated one, else the key's owner. Requests without one are not counted.
    User,
    /// Each route of the gateway.
    Route,
    /// Each provider.
    Provider,
    /// Each model.
    Model,
    /// Each client address.
    Client,
    /// Each team. Requests without a key of a team are not counted.
    Team,
    /// Each organisation.
    Organisation,
    /// Each value of the tag that the rule names. Requests without the tag are not counted.
    Tag,
}

/// The attributes of a request that rules match and count by. `route` and `model` are absent if the request is not on a
/// route of the gateway or names no model.
#[derive(Clone, Debug)]
pub struct RequestAttributes {
    pub key: Option<Arc<VirtualKey>>,
    /// The authenticated user; if none, the key's owner counts.
    pub user: Option<Arc<str>>,
    pub route: Option<Arc<str>>,
    pub provider: Arc<str>,
    pub model: Option<Arc<str>>,
    pub client: IpAddr,
    /// Tags of the request, those of its key included.
    pub tags: Arc<TagSet>,
    /// The provider and the model of each deployment that may serve the request, if known: it is priced by them rather
    /// than by the name that the client uses.
    pub deployments: Vec<ServedModel>,
}

/// A provider, and the model's name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    pub provider: Arc<str>,
    pub model: Arc<str>,
}

impl Default for RequestAttributes {
    fn default() -> Self {
        Self {
            key: None,
            user: None,
            route: None,
            provider: "".into(),
            model: None,
            client: [0, 0, 0, 0].into(),
            tags: Arc::default(),
            deployments: Vec::new(),
        }
    }
}

impl RequestAttributes {
    /// The authenticated user, else the key's owner.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref().or_else(|| self.key.as_ref()?.owner.as_deref())
    }

    /// The deployment that serves the request, if there is only one.
    pub(crate) fn sole_deployment(&self) -> Option<&ServedModel> {
        match &self.deployments[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    pub fn team(&self) -> Option<&Arc<str>> {
        Some(&self.key.as_ref()?.team.as_ref()?.id)
    }

    pub fn organisation(&self) -> Option<&Arc<str>> {
        Some(&self.key.as_ref()?.organisation()?.id)
    }
}

/// Estimated or actual usage of a request: input and output tokens together, and millionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageAmount {
    pub tokens: u64,
    pub micros: u64,
}

/// What a request will use, as far as is known before it is sent. They are equal if it states a maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageBounds {
    /// What a budget must have left, and what a rate is charged.
    pub least: UsageAmount,
    /// What is reserved in budgets.
    pub most: UsageAmount,
}

impl From<UsageAmount> for UsageBounds {
    fn from(amount: UsageAmount) -> Self {
        Self { least: amount, most: amount }
    }
}

#[derive(Debug, Default)]
pub struct QuotaRules {
    rules: Vec<RuleConfig>,
}

impl QuotaRules {
    /// Compiles the rules of a configuration.
    ///
    /// # Errors
    /// The rule and what is wrong with it.
    pub fn new(rules: &[RuleConfig]) -> Result<Self, String> {
        let mut rules = rules.to_vec();
        for i in 0..rules.len() {
            let wrong = |why: &str| format!("quota.rule[{i}]: {why}");
            if rules[i].name.is_empty() {
                rules[i].name = format!("rule-{}", i + 1);
            }
            if rules[i].name.contains([':', '{', '}']) || rules[i].name.chars().any(char::is_control) {
                return Err(wrong(&format!("the name `{}` may not hold : {{ }} or control characters", rules[i].name)));
            }
            if rules[..i].iter().any(|r| r.name == rules[i].name) {
                return Err(wrong(&format!("there is another rule of the name `{}`", rules[i].name)));
            }
            rules[i].allow.check().map_err(|why| format!("quota.rule[{i}].allow.{why}"))?;
            if rules[i].allow == Quota::default() {
                return Err(wrong("it limits nothing: give it requests, tokens, concurrent or a budget"));
            }
            if (rules[i].count_by == CountBy::Tag) != rules[i].tag.is_some() {
                return Err(wrong("count_by = \"tag\" and tag = \"NAME\" belong together"));
            }
            if [KEY_RULE_NAME, "team", "organisation"].contains(&&*rules[i].name) {
                let name = &rules[i].name;
                return Err(wrong(&format!("`{name}` is the name of the limits in the keys file: choose another one")));
            }
        }
        Ok(Self { rules })
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn configured(&self) -> &[RuleConfig] {
        &self.rules
    }

    /// The counters that apply to a request, including those of its key, team and organisation.
    pub fn counter_requests(&self, subject: &RequestAttributes, bounds: impl Into<UsageBounds>) -> Vec<CounterRequest> {
        let bounds = bounds.into();
        let mut asks = Vec::new();
        for rule in self.rules.iter().filter(|r| rule_applies(r, subject)) {
            if let Some(who) = counted_party(rule, subject) {
                rule.allow.push_requests(&rule.name, &who, bounds, &mut asks);
            }
        }
        if let Some(key) = &subject.key
            && let Some(quota) = &key.limits
        {
            quota.push_requests(KEY_RULE_NAME, &key.id, bounds, &mut asks);
        }
        for group in subject.key.iter().flat_map(|key| key.groups()) {
            if let Some(quota) = &group.limits {
                quota.push_requests(group.level.as_str(), &group.id, bounds, &mut asks);
            }
        }
        asks
    }
}

/// The rule name of a key's own limits.
pub(crate) const KEY_RULE_NAME: &str = "key";

/// The provider names of requests to the media endpoints and to the MCP gateway. Segments and messages arrive by the
/// hundred: only rules that name them count them.
pub const NAMED_PROVIDERS: [&str; 2] = ["media", MCP_PROVIDER];

/// The provider of a call of the MCP gateway.
pub const MCP_PROVIDER: &str = "mcp";

/// Whether one of these patterns is that of a provider.
pub fn names_provider(patterns: &[String], name: &str) -> bool {
    if NAMED_PROVIDERS.contains(&name) { patterns.iter().any(|p| p == name) } else { any_matches(patterns, name) }
}

fn rule_applies(rule: &RuleConfig, subject: &RequestAttributes) -> bool {
    let one = |patterns: &[String], value: Option<&str>| {
        patterns.is_empty() || value.is_some_and(|v| any_matches(patterns, v))
    };
    let mut models = subject.model.iter().chain(subject.deployments.iter().map(|served| &served.model));
    let tagged = |(name, value): (&String, &String)| any_matches(&rule.tags, &format!("{name}={value}"));
    one(&rule.keys, subject.key.as_ref().map(|k| &*k.id))
        && one(&rule.teams, subject.team().map(|id| &**id))
        && one(&rule.organisations, subject.organisation().map(|id| &**id))
        && (rule.tags.is_empty() || subject.tags.iter().any(tagged))
        && one(&rule.users, subject.user())
        && one(&rule.routes, subject.route.as_deref())
        && (names_provider(&rule.providers, &subject.provider)
            || rule.providers.is_empty() && !NAMED_PROVIDERS.contains(&&*subject.provider))
        && (rule.models.is_empty() || models.any(|model| covers_model(&rule.models, model)))
}

/// Maximum length of the party in a counter's name: client-chosen text must not fill the memory.
const MAX_PARTY_NAME: usize = 128;

fn counted_party(rule: &RuleConfig, s: &RequestAttributes) -> Option<String> {
    let mut who = match rule.count_by {
        CountBy::Global => "all".to_owned(),
        CountBy::Key => s.key.as_ref().map_or_else(|| format!("client {}", s.client), |k| k.id.to_string()),
        CountBy::User => s.user()?.to_owned(),
        CountBy::Route => s.route.as_deref()?.to_owned(),
        CountBy::Provider => s.provider.to_string(),
        CountBy::Model => interflow_models::plain_name(&s.model.as_deref()?.to_ascii_lowercase()).to_owned(),
        CountBy::Client => s.client.to_string(),
        CountBy::Team => s.team()?.to_string(),
        CountBy::Organisation => s.organisation()?.to_string(),
        CountBy::Tag => s.tags.get(rule.tag.as_ref()?)?.clone(),
    };
    if who.len() > MAX_PARTY_NAME {
        who.truncate(who.floor_char_boundary(MAX_PARTY_NAME));
    }
    Some(who)
}

impl Quota {
    /// Adds the counters of this quota for one party.
    fn push_requests(&self, rule: &str, who: &str, estimate: UsageBounds, asks: &mut Vec<CounterRequest>) {
        let UsageBounds { least, most } = estimate;
        let mut add = |counter: CounterLimit, cost: u64, least: u64| {
            asks.push(CounterRequest { rule: rule.into(), who: who.into(), counter, cost, least })
        };
        if let Some(rate) = self.requests {
            let burst = self.burst.unwrap_or(rate.count);
            add(CounterLimit::Requests { per_second: rate.per_second(), burst: burst as f64 }, 1, 1);
        }
        if let Some(rate) = self.tokens {
            // A rate pays off what a request uses beyond the estimate. If it reserved the most, requests would wait for each
            // other, since that is more than many rates allow in a minute.
            let limit = CounterLimit::Tokens { per_second: rate.per_second(), burst: rate.count as f64 };
            add(limit, least.tokens, least.tokens);
        }
        if let Some(max) = self.concurrent {
            add(CounterLimit::Slots { max }, 1, 1);
        }
        for (max, period) in self.token_budgets() {
            add(CounterLimit::TokenBudget { max, period }, most.tokens, least.tokens);
        }
        for (max, period) in self.money_budgets() {
            add(CounterLimit::MoneyBudget { max, period }, most.micros, least.micros);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter_store::BudgetPeriod;

    fn subject() -> RequestAttributes {
        RequestAttributes {
            route: Some("chat".into()),
            provider: "openai".into(),
            model: Some("gpt-5".into()),
            client: [127, 0, 0, 1].into(),
            ..RequestAttributes::default()
        }
    }

    fn rule(per: CountBy, quota: Quota) -> RuleConfig {
        RuleConfig { count_by: per, allow: quota, ..RuleConfig::default() }
    }

    fn sixty() -> Quota {
        Quota { requests: Some("60/m".parse().unwrap()), ..Quota::default() }
    }

    #[test]
    fn counter_subject_follows_count_by() {
        let key: Arc<VirtualKey> = crate::keys::tests_key("k1", Some("ann")).into();
        let with_key = RequestAttributes { key: Some(key), ..subject() };
        for (per, plain, keyed) in [
            (CountBy::Global, Some("all"), Some("all")),
            (CountBy::Key, Some("client 127.0.0.1"), Some("k1")),
            (CountBy::User, None, Some("ann")),
            (CountBy::Route, Some("chat"), Some("chat")),
            (CountBy::Provider, Some("openai"), Some("openai")),
            (CountBy::Model, Some("gpt-5"), Some("gpt-5")),
            (CountBy::Client, Some("127.0.0.1"), Some("127.0.0.1")),
        ] {
            let rules = QuotaRules::new(&[rule(per, sixty())]).unwrap();
            for (s, expected) in [(&subject(), plain), (&with_key, keyed)] {
                let asks = rules.counter_requests(s, UsageAmount::default());
                assert_eq!(asks.first().map(|a| &*a.who), expected, "{per:?}");
            }
        }
    }

    #[test]
    fn a_model_has_one_name_with_or_without_its_collection_and_vendor() {
        let named = RuleConfig { models: vec!["gpt-5".into()], ..rule(CountBy::Model, sixty()) };
        let rules = QuotaRules::new(&[named]).unwrap();
        let scope = crate::keys::KeyScope { models: vec!["gpt-5".into()], ..Default::default() };
        for (model, is_same) in [
            ("gpt-5", true),
            ("models/gpt-5", true),
            ("google/gpt-5", true),
            ("models/google/gpt-5", true),
            ("gpt-5-mini", false),
            ("models/gpt-5-mini", false),
        ] {
            let asks = rules.counter_requests(
                &RequestAttributes { model: Some(model.into()), ..subject() },
                UsageAmount::default(),
            );
            assert_eq!(asks.first().map(|ask| &*ask.who), is_same.then_some("gpt-5"), "{model}");
            assert_eq!(scope.allows_model(model), is_same, "{model}");
            for pattern in ["models/gpt-5", "openai/gpt-5", "models/*-5"] {
                assert_eq!(crate::keys::matches_model(&[pattern.to_owned()], model), is_same, "{pattern} {model}");
            }
            let vendor = crate::keys::matches_model(&["google/*".to_owned()], model);
            assert_eq!(vendor, model.starts_with("google/"), "{model}");
        }
    }

    #[test]
    fn a_rule_of_a_model_covers_it_however_it_is_named() {
        let named = RuleConfig { models: vec!["gpt-6-sol".into()], ..rule(CountBy::Model, sixty()) };
        let rules = QuotaRules::new(&[named]).unwrap();
        let served = |model: &str| vec![ServedModel { provider: "openai".into(), model: model.into() }];
        for (asked, deployments, counted) in [
            ("gpt-6-sol", vec![], Some("gpt-6-sol")),
            ("GPT-6-SOL", vec![], Some("gpt-6-sol")),
            ("gpt%2D6-sol", vec![], Some("gpt%2d6-sol")),
            ("smart", served("gpt-6-sol"), Some("smart")),
            ("smart", [served("gpt-4o"), served("openai/GPT-6-sol")].concat(), Some("smart")),
            ("smart", served("gpt-4o"), None),
            ("gpt-6-solo", vec![], None),
        ] {
            let asks = rules.counter_requests(
                &RequestAttributes { model: Some(asked.into()), deployments, ..subject() },
                UsageAmount::default(),
            );
            assert_eq!(asks.first().map(|ask| &*ask.who), counted, "{asked}");
        }
    }

    /// A request of the key `ann` of the team `search` of `acme`, for `project=x`.
    fn of_team(quota: Option<Quota>) -> RequestAttributes {
        let text = "[[organisation]]\nid = 'acme'\n[[team]]\nid = 'search'\norganisation = 'acme'\n\
                    [[key]]\nid = 'ann'\nteam = 'search'\n\
                    hash = 'sha256:0000000000000000000000000000000000000000000000000000000000000000'\n";
        let ring = crate::keys::VirtualKeyRing::parse(text).unwrap();
        let mut key = VirtualKey::clone(&ring.keys()[0]);
        if let Some(team) = &mut key.team {
            let team = Arc::make_mut(team);
            (team.limits, team.parent.as_mut().map(Arc::make_mut).unwrap().limits) = (quota.clone(), quota.clone());
        }
        key.limits = quota;
        let tags = Arc::new(TagSet::from([("project".to_owned(), "x".to_owned())]));
        RequestAttributes { key: Some(key.into()), tags, ..subject() }
    }

    #[test]
    fn every_level_of_a_key_has_counters_of_its_own() {
        let asks = QuotaRules::default().counter_requests(&of_team(Some(sixty())), UsageAmount::default());
        let names: Vec<_> = asks.iter().map(CounterRequest::name).collect();
        assert_eq!(names, ["key:requests:ann", "team:requests:search", "organisation:requests:acme"]);
        assert!(QuotaRules::default().counter_requests(&of_team(None), UsageAmount::default()).is_empty());
    }

    #[test]
    fn rules_count_and_select_by_team_organisation_and_tag() {
        let tag = |name: &str| RuleConfig { tag: Some(name.into()), ..rule(CountBy::Tag, sixty()) };
        for (rule, who) in [
            (rule(CountBy::Team, sixty()), Some("search")),
            (rule(CountBy::Organisation, sixty()), Some("acme")),
            (tag("project"), Some("x")),
            (tag("env"), None),
            (RuleConfig { teams: vec!["sea*".into()], ..rule(CountBy::Global, sixty()) }, Some("all")),
            (RuleConfig { teams: vec!["ops".into()], ..rule(CountBy::Global, sixty()) }, None),
            (RuleConfig { organisations: vec!["acme".into()], ..rule(CountBy::Key, sixty()) }, Some("ann")),
            (RuleConfig { tags: vec!["project=*".into()], ..rule(CountBy::Global, sixty()) }, Some("all")),
            (RuleConfig { tags: vec!["project=y".into()], ..rule(CountBy::Global, sixty()) }, None),
        ] {
            let rules = QuotaRules::new(std::slice::from_ref(&rule)).unwrap();
            let asks = rules.counter_requests(&of_team(None), UsageAmount::default());
            assert_eq!(asks.first().map(|a| &*a.who), who, "{rule:?}");
            let selects = !(rule.teams.is_empty() && rule.organisations.is_empty() && rule.tags.is_empty());
            let is_by_group = !matches!(rule.count_by, CountBy::Global | CountBy::Key);
            assert!(rules.counter_requests(&subject(), UsageAmount::default()).is_empty() == (selects || is_by_group));
        }
    }

    #[test]
    fn rule_counts_only_its_models_and_providers() {
        let only = RuleConfig {
            models: vec!["gpt-5*".into()],
            providers: vec!["openai".into()],
            ..rule(CountBy::Global, sixty())
        };
        let rules = QuotaRules::new(&[only]).unwrap();
        assert_eq!(rules.counter_requests(&subject(), UsageAmount::default()).len(), 1);
        let other = RequestAttributes { model: Some("o9".into()), ..subject() };
        assert!(rules.counter_requests(&other, UsageAmount::default()).is_empty());
        assert!(
            rules.counter_requests(&RequestAttributes { model: None, ..subject() }, UsageAmount::default()).is_empty()
        );
    }

    #[test]
    fn each_quota_limit_becomes_a_counter_with_its_cost() {
        let quota = Quota {
            tokens: Some("1000/m".parse().unwrap()),
            concurrent: Some(2),
            tokens_per_day: Some(5),
            money_per_month: Some(1.5),
            ..Quota::default()
        };
        let asks = QuotaRules::new(&[rule(CountBy::Global, quota)])
            .unwrap()
            .counter_requests(&subject(), UsageAmount { tokens: 7, micros: 9 });
        let costs: Vec<_> = asks.iter().map(|a| (a.counter, a.cost)).collect();
        assert_eq!(
            costs,
            [
                (CounterLimit::Tokens { per_second: 1000.0 / 60.0, burst: 1000.0 }, 7),
                (CounterLimit::Slots { max: 2 }, 1),
                (CounterLimit::TokenBudget { max: 5, period: BudgetPeriod::Day }, 7),
                (CounterLimit::MoneyBudget { max: 1_500_000, period: BudgetPeriod::Month }, 9),
            ]
        );
    }

    #[test]
    fn invalid_rules_are_refused() {
        for (rules, says) in [
            (vec![rule(CountBy::Global, Quota::default())], "limits nothing"),
            (vec![rule(CountBy::Tag, sixty())], "belong together"),
            (vec![RuleConfig { name: "team".into(), ..rule(CountBy::Team, sixty()) }], "choose another one"),
            (vec![RuleConfig { name: "a:b".into(), ..rule(CountBy::Global, sixty()) }], "may not hold"),
            (
                vec![
                    RuleConfig { name: "a".into(), ..rule(CountBy::Global, sixty()) },
                    RuleConfig { name: "a".into(), ..rule(CountBy::Key, sixty()) },
                ],
                "quota.rule[1]: there is another rule",
            ),
            (vec![rule(CountBy::Global, Quota { concurrent: Some(0), ..Quota::default() })], "concurrent"),
            (vec![rule(CountBy::Global, Quota { money_per_day: Some(-1.0), ..Quota::default() })], "money_per_day"),
        ] {
            let e = QuotaRules::new(&rules).unwrap_err();
            assert!(e.contains(says), "{e}");
        }
    }
}
