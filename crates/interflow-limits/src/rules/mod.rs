//! Rules: what is allowed to whom, and which counters a request must pass.

mod quota;
mod rate;

use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use quota::Quota;
pub use rate::{Rate, RateError};

use crate::config::RuleConfig;
use crate::keys::VirtualKey;
use crate::keys::any_matches;
use crate::ledger::{Ask, Counter};

/// Who is counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// All requests together.
    #[default]
    Global,
    /// Each virtual key; requests without one are counted by their client's address.
    Key,
    /// Each user: who logged in, else the key's owner. Requests without one are not counted.
    User,
    /// Each route of the gateway.
    Route,
    /// Each provider.
    Provider,
    /// Each model.
    Model,
    /// Each client address.
    Client,
}

/// What a request is, as far as limits care.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The virtual key it came with.
    pub key: Option<Arc<VirtualKey>>,
    /// Who logged in; else the key's owner counts.
    pub user: Option<Arc<str>>,
    /// The gateway's route, when it came by one.
    pub route: Option<Arc<str>>,
    /// The provider.
    pub provider: Arc<str>,
    /// The model, when it names one.
    pub model: Option<Arc<str>>,
    /// The client's address.
    pub client: IpAddr,
}

impl Subject {
    /// Who logged in, else the key's owner.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref().or_else(|| self.key.as_ref()?.owner.as_deref())
    }
}

/// What a request will use, or has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Tokens, in and out.
    pub tokens: u64,
    /// Money in millionths of a dollar.
    pub micros: u64,
}

/// The rules, compiled.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<RuleConfig>,
}

impl Rules {
    /// Checks the rules of a config.
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
            rules[i].allow.check().map_err(|why| wrong(&why))?;
            if rules[i].allow == Quota::default() {
                return Err(wrong("it limits nothing: give it requests, tokens, concurrent or a budget"));
            }
        }
        Ok(Self { rules })
    }

    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What is configured.
    pub fn configured(&self) -> &[RuleConfig] {
        &self.rules
    }

    /// The counters that a request must pass, those of its key included.
    pub fn asks(&self, subject: &Subject, estimate: Use) -> Vec<Ask> {
        let mut asks = Vec::new();
        for rule in self.rules.iter().filter(|r| fits(r, subject)) {
            if let Some(who) = who(rule.per, subject) {
                rule.allow.asks(&rule.name, &who, estimate, &mut asks);
            }
        }
        if let Some(key) = &subject.key
            && let Some(quota) = &key.limits
        {
            quota.asks(OWN, &key.id, estimate, &mut asks);
        }
        asks
    }
}

/// The name that a key's own limits go under.
pub(crate) const OWN: &str = "key";

/// What requests to the media endpoints name as their provider.
const MEDIA: &str = "media";

fn fits(rule: &RuleConfig, subject: &Subject) -> bool {
    let one = |patterns: &[String], value: Option<&str>| {
        patterns.is_empty() || value.is_some_and(|v| any_matches(patterns, v))
    };
    one(&rule.keys, subject.key.as_ref().map(|k| &*k.id))
        && one(&rule.users, subject.user())
        && one(&rule.routes, subject.route.as_deref())
        && match &*subject.provider {
            // Segments of streams come by the hundred: no rule made for models counts them unasked.
            MEDIA => rule.providers.iter().any(|p| p == MEDIA),
            provider => one(&rule.providers, Some(provider)),
        }
        && one(&rule.models, subject.model.as_deref())
}

/// Longest name that a counter is kept under; what a client can choose must not fill the memory.
const LONGEST_WHO: usize = 128;

fn who(per: Per, s: &Subject) -> Option<String> {
    let mut who = match per {
        Per::Global => "all".to_owned(),
        Per::Key => s.key.as_ref().map_or_else(|| format!("client {}", s.client), |k| k.id.to_string()),
        Per::User => s.user()?.to_owned(),
        Per::Route => s.route.as_deref()?.to_owned(),
        Per::Provider => s.provider.to_string(),
        Per::Model => s.model.as_deref()?.to_owned(),
        Per::Client => s.client.to_string(),
    };
    if who.len() > LONGEST_WHO {
        who.truncate(who.floor_char_boundary(LONGEST_WHO));
    }
    Some(who)
}

impl Quota {
    /// Adds the counters of this quota for one counted party.
    fn asks(&self, rule: &str, who: &str, estimate: Use, asks: &mut Vec<Ask>) {
        let mut add =
            |counter: Counter, cost: u64| asks.push(Ask { rule: rule.into(), who: who.into(), counter, cost });
        if let Some(rate) = self.requests {
            let burst = self.burst.unwrap_or(rate.count);
            add(Counter::Requests { per_second: rate.per_second(), burst: burst as f64 }, 1);
        }
        if let Some(rate) = self.tokens {
            add(Counter::Tokens { per_second: rate.per_second(), burst: rate.count as f64 }, estimate.tokens);
        }
        if let Some(max) = self.concurrent {
            add(Counter::Slots { max }, 1);
        }
        for (max, period) in self.token_budgets() {
            add(Counter::TokenBudget { max, period }, estimate.tokens);
        }
        for (max, period) in self.money_budgets() {
            add(Counter::MoneyBudget { max, period }, estimate.micros);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Period;

    fn subject() -> Subject {
        Subject {
            key: None,
            user: None,
            route: Some("chat".into()),
            provider: "openai".into(),
            model: Some("gpt-5".into()),
            client: [127, 0, 0, 1].into(),
        }
    }

    fn rule(per: Per, quota: Quota) -> RuleConfig {
        RuleConfig { per, allow: quota, ..RuleConfig::default() }
    }

    fn sixty() -> Quota {
        Quota { requests: Some("60/m".parse().unwrap()), ..Quota::default() }
    }

    #[test]
    fn whom_a_rule_counts_follows_per() {
        let key: Arc<VirtualKey> = crate::keys::tests_key("k1", Some("ann")).into();
        let with_key = Subject { key: Some(key), ..subject() };
        for (per, plain, keyed) in [
            (Per::Global, Some("all"), Some("all")),
            (Per::Key, Some("client 127.0.0.1"), Some("k1")),
            (Per::User, None, Some("ann")),
            (Per::Route, Some("chat"), Some("chat")),
            (Per::Provider, Some("openai"), Some("openai")),
            (Per::Model, Some("gpt-5"), Some("gpt-5")),
            (Per::Client, Some("127.0.0.1"), Some("127.0.0.1")),
        ] {
            let rules = Rules::new(&[rule(per, sixty())]).unwrap();
            for (s, expected) in [(&subject(), plain), (&with_key, keyed)] {
                let asks = rules.asks(s, Use::default());
                assert_eq!(asks.first().map(|a| &*a.who), expected, "{per:?}");
            }
        }
    }

    #[test]
    fn a_rule_counts_only_what_it_names() {
        let only = RuleConfig {
            models: vec!["gpt-5*".into()],
            providers: vec!["openai".into()],
            ..rule(Per::Global, sixty())
        };
        let rules = Rules::new(&[only]).unwrap();
        assert_eq!(rules.asks(&subject(), Use::default()).len(), 1);
        let other = Subject { model: Some("o9".into()), ..subject() };
        assert!(rules.asks(&other, Use::default()).is_empty());
        assert!(rules.asks(&Subject { model: None, ..subject() }, Use::default()).is_empty());
    }

    #[test]
    fn each_part_of_a_quota_is_a_counter_with_its_cost() {
        let quota = Quota {
            tokens: Some("1000/m".parse().unwrap()),
            concurrent: Some(2),
            tokens_per_day: Some(5),
            money_per_month: Some(1.5),
            ..Quota::default()
        };
        let asks = Rules::new(&[rule(Per::Global, quota)]).unwrap().asks(&subject(), Use { tokens: 7, micros: 9 });
        let costs: Vec<_> = asks.iter().map(|a| (a.counter, a.cost)).collect();
        assert_eq!(
            costs,
            [
                (Counter::Tokens { per_second: 1000.0 / 60.0, burst: 1000.0 }, 7),
                (Counter::Slots { max: 2 }, 1),
                (Counter::TokenBudget { max: 5, period: Period::Day }, 7),
                (Counter::MoneyBudget { max: 1_500_000, period: Period::Month }, 9),
            ]
        );
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for (rules, says) in [
            (vec![rule(Per::Global, Quota::default())], "limits nothing"),
            (vec![RuleConfig { name: "a:b".into(), ..rule(Per::Global, sixty()) }], "may not hold"),
            (
                vec![
                    RuleConfig { name: "a".into(), ..rule(Per::Global, sixty()) },
                    RuleConfig { name: "a".into(), ..rule(Per::Key, sixty()) },
                ],
                "quota.rule[1]: there is another rule",
            ),
            (vec![rule(Per::Global, Quota { concurrent: Some(0), ..Quota::default() })], "concurrent"),
            (vec![rule(Per::Global, Quota { money_per_day: Some(-1.0), ..Quota::default() })], "money_per_day"),
        ] {
            let e = Rules::new(&rules).unwrap_err();
            assert!(e.contains(says), "{e}");
        }
    }
}
