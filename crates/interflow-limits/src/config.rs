//! The configuration of limits on LLM traffic and of virtual keys.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use interflow_models::CatalogSource;
use interflow_types::Url;
use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::rules::{CountBy, Quota, QuotaRules};

config_sections! {
    /// Virtual keys: what clients present to the gateway in place of a provider's key.
    pub struct KeysConfig {
        /// Whether LLM requests at the gateway need a virtual key; if not, clients may send the provider's own key. If
        /// unset, a virtual key is required from other machines wherever the gateway adds a key of its own
        /// (`llm.provider.NAME.key`).
        pub require_virtual_key: Option<bool>,
        /// The keys file, written by `interflow keys`; relative to the data directory. It need not exist.
        pub file: PathBuf = "keys.toml".into(),
        /// A header that may carry a virtual key beside the provider's own credentials; it is removed from calls to providers.
        /// Keys are also accepted where the provider's SDK puts its key.
        pub header: String = "x-interflow-key".into(),
        /// The providers' keys that replace virtual keys: `openai = "env:OPENAI_API_KEY"`; also `file:PATH`. Named by
        /// the gateway's upstream, by host, by `host:port`, or by provider; the last applies only to the provider's own
        /// hosts.
        pub provider: BTreeMap<String, String>,
    }
}

config_sections! {
    /// Limits on requests, tokens and money of LLM traffic.
    pub struct QuotaConfig {
        /// The rules; a request must be admitted by every rule that matches it.
        pub rule: Vec<RuleConfig>,
        /// A price list (JSON) laid over the catalog of models; relative to the data directory.
        pub prices: Option<PathBuf>,
        /// A newer catalog of models than the built-in one.
        pub catalog: CatalogConfig,
        /// What happens to requests for a model without a price where a limit counts money.
        pub unpriced: UnpricedModels = UnpricedModels::Refuse,
        /// Output tokens reserved in budgets, until its usage is known, for a request that states no maximum; it is
        /// admitted if 1,000 of them are left, and rates reserve 1,000. One that states a maximum (`max_tokens` and the
        /// like) reserves it, for each of the choices that it asks for.
        pub reserve_output: u64 = 32_000,
        /// Maximum time a concurrency slot is held, even if its request does not end. Slots of a dead process are freed
        /// sooner, by `shared.heartbeat`.
        pub slot_lease: HumanDuration = HumanDuration::from_secs(1_800),
        /// How long the daily spend of keys, teams and tags is kept: `interflow keys spend`.
        pub keep_spend: HumanDuration = HumanDuration::from_secs(800 * 86_400),
        /// Alerts when a budget is nearly used up.
        pub alerts: AlertsConfig,
        /// Counting together with other processes, through Redis.
        pub shared: SharedQuotaConfig,
    }
}

impl QuotaConfig {
    /// Checks what can be checked without the files and servers that it names.
    ///
    /// # Errors
    /// What is wrong, with its key.
    pub fn check(&self) -> Result<(), String> {
        // Without Redis, too: the renewal period would otherwise become invalid on the day someone adds the URL.
        if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&self.shared.heartbeat.0) {
            return Err("quota.shared.heartbeat: write a time from 100ms to 10m".into());
        }
        if let Some(wrong) = self.alerts.thresholds.iter().find(|percent| !(1..=100).contains(*percent)) {
            return Err(format!("quota.alerts.thresholds: {wrong} is not a percentage from 1 to 100"));
        }
        self.catalog.source()?;
        QuotaRules::new(&self.rule).map(drop)
    }
}

config_sections! {
    /// Where newer catalogs of models come from. The built-in one, and `catalog.signed` in the data directory, need no
    /// network.
    pub struct CatalogConfig {
        /// A newer catalog is fetched from this URL once a day; none is if unset.
        pub url: Option<String>,
        /// The public key by which it is signed: Ed25519, 64 hexadecimal digits.
        pub key: Option<String>,
        /// The only file that is taken, by its digest: `sha256:` and 64 hexadecimal digits.
        pub pin: Option<String>,
    }
}

impl CatalogConfig {
    /// Whose catalogs are taken; `None` if only the built-in one is.
    ///
    /// # Errors
    /// A key of the configuration that is wrong or missing.
    pub fn source(&self) -> Result<Option<CatalogSource>, String> {
        if let Some((url, Err(e))) = self.url.as_ref().map(|url| (url, Url::split_service(url))) {
            return Err(format!("quota.catalog.url: `{url}`: {e}"));
        }
        if self.key.is_none() && (self.url.is_some() || self.pin.is_some()) {
            return Err(
                "quota.catalog.key: it is missing: a catalog is used only if it is signed; write its signer's key"
                    .into(),
            );
        }
        self.key.as_ref().map(|key| CatalogSource::new(key, self.pin.as_deref())).transpose()
    }
}

/// What happens to requests whose cost a budget of money cannot count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnpricedModels {
    /// They are rejected with 403.
    #[default]
    Refuse,
    /// They are admitted, and the budget is not charged for them.
    Allow,
}

config_sections! {
    /// Alerts by webhook when a budget reaches a part of its limit: each once per budget and period.
    pub struct AlertsConfig {
        /// Where alerts are posted as JSON: `https://…`; also `env:NAME` or `file:PATH`, for URLs that contain a
        /// secret.
        pub webhooks: Vec<String>,
        /// The parts of a budget at which an alert is sent, in percent, from 1 to 100.
        pub thresholds: Vec<u8> = vec![50, 80, 100],
        /// The secret of the signature in `X-Interflow-Signature` (HMAC-SHA256 of the body): `env:NAME` or `file:PATH`.
        /// If unset, alerts are not signed.
        pub secret: Option<String>,
    }
}

/// One rule: whom it counts, which requests it matches, and how much it allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "QuotaRule")]
pub struct RuleConfig {
    /// The rule's name in responses, metrics and the API.
    pub name: String,
    /// What is counted separately: `global` (everything together), `key`, `team`, `organisation`, `user`, `tag`,
    /// `route`, `provider`, `model` or `client`.
    pub count_by: CountBy,
    /// With `count_by = "tag"`: the tag whose values are counted separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Only requests with these virtual keys (ids, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Only requests with keys of these teams (ids, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// Only requests with keys of these organisations (ids, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub organisations: Vec<String>,
    /// Only requests with one of these tags (`name=value`, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Only requests of these users (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Only requests on these routes (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// Only requests to these providers (names, with `*`); empty: all. `media` means the media endpoints,
    /// and `mcp` the MCP gateway; their requests are counted only by rules that name them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// Only requests for these models (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// How much is allowed.
    pub allow: Quota,
}

config_sections! {
    /// Limits shared through Redis, so that several processes enforce one limit together.
    pub struct SharedQuotaConfig {
        /// The server: `redis://[user:password@]host[:port][/db]`, or `rediss://` for TLS; also `env:NAME` or
        /// `file:PATH`. If unset, counters are local to this process.
        pub redis: Option<String>,
        /// Prefix of all key names on the server.
        pub prefix: String = "interflow:limits:".into(),
        /// Timeout of one command, connecting included.
        pub timeout: HumanDuration = HumanDuration::from_millis(250),
        /// How often each process renews its concurrency slots on the server, from 100 ms to 10 min. Slots of a dead
        /// process are freed after three times this.
        pub heartbeat: HumanDuration = HumanDuration::from_secs(5),
        /// What happens to requests while the server is unreachable.
        pub failure: SharedFailureMode = SharedFailureMode::Closed,
        /// The CA that signed the server's certificate (PEM), in place of the system's.
        pub ca: Option<PathBuf>,
        /// The client certificate to present to the server (PEM).
        pub certificate: Option<PathBuf>,
        /// The private key of that certificate (PEM).
        pub key: Option<PathBuf>,
    }
}

/// What happens to requests while the shared counters are unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SharedFailureMode {
    /// Requests are rejected with 503.
    #[default]
    Closed,
    /// Requests are admitted without being counted.
    Open,
    /// Requests are counted in this process only.
    Local,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_wrong_are_named_without_files_and_servers() {
        let check = |text: &str| toml::from_str::<QuotaConfig>(text).unwrap().check();
        let rule = "[[rule]]\nname = 'a'\nallow = { requests = '5/m' }\n[[rule]]\nname = 'b'\n";
        for (text, error) in [
            (&*format!("{rule}allow = {{ money_per_day = -5 }}"), "quota.rule[1].allow.money_per_day: dollars"),
            (&*format!("{rule}allow = {{ burst = 5 }}"), "quota.rule[1].allow.burst: "),
            (rule, "quota.rule[1]: it limits nothing"),
            ("alerts = { thresholds = [0] }", "quota.alerts.thresholds: 0 is not"),
            ("alerts = { thresholds = [101] }", "quota.alerts.thresholds: 101 is not"),
            ("shared = { heartbeat = '1ms' }", "quota.shared.heartbeat: "),
            ("catalog = { url = 'https://mirror.test/x' }", "quota.catalog.key: it is missing"),
            ("catalog = { pin = 'sha256:00' }", "quota.catalog.key: it is missing"),
            ("catalog = { key = 'abc' }", "quota.catalog.key: write"),
            ("catalog = { url = 'nonsense', key = 'abc' }", "quota.catalog.url: `nonsense`"),
        ] {
            let e = check(text).unwrap_err();
            assert!(e.starts_with(error), "{text}: {e}");
        }
        assert_eq!(check(""), Ok(()));
    }
}
