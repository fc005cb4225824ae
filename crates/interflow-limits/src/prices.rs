//! What calls cost: by the operator's own price list first, then by the catalog of models. A model that is in neither is
//! not free: it is reported as unpriced.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use std::time::Duration;

use interflow_codec::document::{Document, DocumentError, PathSegment};
use interflow_models::Price;
use interflow_query::with_suggestion;
use interflow_types::schema::JsonSchema;
use interflow_types::wildcard::matches_case;
use interflow_types::{CallUsage, Timestamp};
use serde::{Deserialize, Serialize};

use crate::keys::scope::model_matches;
use crate::rules::{RequestAttributes, ServedModel};
use crate::usage::DeploymentUsage;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    #[serde(rename = "about", default)]
    _about: String,
    #[serde(default)]
    as_of: String,
    /// Where the prices were found, for the people who maintain the list; not used.
    #[serde(rename = "sources", default)]
    _sources: Vec<String>,
    prices: BTreeMap<String, Price>,
}

/// Dates of the price lists: a day, or the text in the operator's list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PriceListDates {
    pub built_in: String,
    /// That of the operator's list; empty if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
}

/// The operator's own prices, over those of the catalog of models.
#[derive(Clone, Debug, Default)]
pub struct PriceList {
    own: Vec<PriceEntry>,
    as_of: Option<String>,
}

#[derive(Debug, Clone)]
pub struct PriceEntry {
    pub pattern: String,
    pub price: Arc<Price>,
}

impl PriceEntry {
    /// Whether it applies to a model at a provider: a pattern with a provider matches both, a name without a star also
    /// matches the model's name without region, vendor and date.
    fn fits(&self, provider: &str, model: &str) -> bool {
        // The collection is no provider.
        let pattern = self.pattern.strip_prefix("models/").unwrap_or(&self.pattern);
        if let Some((at, name)) = pattern.split_once('/') {
            return matches_case(at, provider) && model_matches(name, model)
                || matches_case(pattern, &format!("{provider}/{model}"));
        }
        model_matches(pattern, model) || pattern == interflow_models::base_name(model)
    }
}

/// What a call costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCharge {
    /// What a budget is charged, in millionths of a dollar: the cost, or an estimate if the price of a part is not known.
    pub micros: u64,
    /// The cost; `None` if it is not known.
    pub cost: Option<u64>,
}

impl PriceList {
    /// The catalog overlaid by a file of JSON: `{"prices": {"gpt-5*": {"input": 1.25, "output": 10}}}`. An entry is a
    /// model, or a provider and a model as `ollama/*`; `*` matches any characters.
    ///
    /// # Errors
    /// The file cannot be read; or what is wrong with it, with its line.
    pub fn from_file(path: &Path) -> Result<Self, String> {
        let at = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| format!("quota.prices: {at}: {e}"))?;
        let guide = "docs/guides/prices.md lists what a price may have";
        Self::with_overrides(&text).map_err(|e| format!("quota.prices: {at}:{e}; {guide}"))
    }

    /// As [`from_file`](Self::from_file), of the file's text.
    ///
    /// # Errors
    /// Where and what is wrong: `3:5: …`.
    pub fn with_overrides(text: &str) -> Result<Self, String> {
        let at = |(line, column): (usize, usize), what: &str| format!("{line}:{column}: {}", with_suggestion(what));
        // JSON is YAML, whose parser knows the places of all values and refuses a key that is there twice.
        let document = Document::parse_yaml(text);
        let wrong = |e: &DocumentError| at(e.position().unwrap_or((1, 1)), e.message());
        let document = document.map_err(|e| wrong(&e))?;
        let file = PriceFile::deserialize(document.deserializer()).map_err(|e| wrong(&e))?;
        let today = interflow_models::day(Timestamp::now().after(Duration::from_secs(86_400)));
        let is_day = interflow_models::is_day(&format!("{}-01", file.as_of)) || interflow_models::is_day(&file.as_of);
        if !file.as_of.is_empty() && (!is_day || file.as_of > today) {
            let what = format!(
                "`as_of` is a day or a month that is not in the future, such as 2026-11-28 or 2026-11, not `{}`",
                file.as_of
            );
            return Err(at(document.locate(&[PathSegment::Key("as_of")]), &what));
        }
        for (pattern, price) in &file.prices {
            let place = document.locate(&[PathSegment::Key("prices"), PathSegment::Key(pattern)]);
            if pattern.split('/').any(|part| part.trim().is_empty()) {
                return Err(at(place, &format!("`{pattern}` does not name a model: write `gpt-5`, or `ollama/*`")));
            }
            price.check().map_err(|e| at(place, &format!("`{pattern}`: {e}")))?;
        }
        let entry = |(pattern, price)| PriceEntry { pattern, price: Arc::new(price) };
        let mut own: Vec<_> = file.prices.into_iter().map(entry).collect();
        // The longest pattern is the most specific one, so the first that fits is the right one.
        own.sort_by_key(|entry| std::cmp::Reverse(entry.pattern.len()));
        Ok(Self { own, as_of: Some(file.as_of) })
    }

    pub fn as_of(&self) -> PriceListDates {
        PriceListDates { built_in: interflow_models::current().header().as_of.clone(), own: self.as_of.clone() }
    }

    /// The entry of the operator's own list that applies to a model at a time.
    pub(crate) fn own_entry(&self, provider: &str, model: &str, at: Timestamp) -> Option<&PriceEntry> {
        self.own.iter().find(|entry| entry.fits(provider, model) && entry.price.holds_at(at))
    }

    /// The names and patterns of the operator's own list.
    pub(crate) fn own_names(&self) -> impl Iterator<Item = &str> {
        self.own.iter().map(|entry| &*entry.pattern)
    }

    /// The price of a call at this time: the operator's own of the model that was asked for, then of the one that
    /// answered; then the catalog's, of the one that answered first. A provider may answer with another model than was
    /// asked for, and bills that.
    pub fn for_call(
        &self,
        provider: &str,
        asked: Option<&str>,
        answered: Option<&str>,
        at: Timestamp,
    ) -> Option<Arc<Price>> {
        let own = |model: &str| self.own_entry(provider, model, at).map(|entry| Arc::clone(&entry.price));
        let catalog = interflow_models::current();
        let listed = |model: &str| catalog.model(provider, model)?.price_at(at);
        asked
            .and_then(own)
            .or_else(|| answered.and_then(own))
            .or_else(|| answered.and_then(listed))
            .or_else(|| asked.and_then(listed))
    }

    /// The cost of a call in millionths of a dollar; `None` if a price is not known.
    pub fn cost(
        &self,
        provider: &str,
        asked: Option<&str>,
        answered: Option<&str>,
        usage: &CallUsage,
        at: Timestamp,
    ) -> Option<u64> {
        self.for_call(provider, asked, answered, at)?.cost(usage).map(micros)
    }

    /// As [`cost`](Self::cost), in dollars, of a call that was made at this time.
    pub fn dollars(&self, provider: &str, model: &str, usage: &CallUsage, at: Timestamp) -> Option<f64> {
        Some(self.cost(provider, Some(model), None, usage, at)? as f64 / 1e6)
    }

    /// What a request is charged for what a deployment used. The price is that of the deployment which served the request;
    /// while that is not known, the most expensive one counts, so that a budget is not overrun.
    pub(crate) fn charge(&self, subject: &RequestAttributes, usage: &DeploymentUsage) -> CallCharge {
        let at = |served: &ServedModel| self.charge_at(&served.provider, Some(&served.model), usage);
        let served = usage.served.as_ref().or_else(|| subject.sole_deployment()).and_then(at);
        let most =
            || subject.deployments.iter().filter(|_| usage.served.is_none()).filter_map(at).max_by_key(|c| c.micros);
        let named = || self.charge_at(&subject.provider, subject.model.as_deref(), usage);
        served.or_else(most).or_else(named).unwrap_or_default()
    }

    fn charge_at(&self, provider: &str, asked: Option<&str>, usage: &DeploymentUsage) -> Option<CallCharge> {
        let (answered, tokens) = (usage.answered.as_deref(), &usage.tokens);
        let price = self.for_call(provider, asked, answered, Timestamp::now()).filter(|_| !tokens.is_zero())?;
        let cost = price.cost(tokens).map(micros);
        Some(CallCharge { micros: cost.unwrap_or_else(|| micros(price.estimate(tokens))), cost })
    }

    /// What a request may cost at most, in millionths of a dollar, at the most expensive of its deployments.
    pub(crate) fn estimate(&self, subject: &RequestAttributes, usage: &CallUsage) -> u64 {
        let most = candidates(subject).filter_map(|(provider, model)| self.estimate_at(provider, model, usage)).max();
        most.unwrap_or_default()
    }

    /// As [`estimate`](Self::estimate), for one model at a provider; `None` if it has no price.
    pub fn estimate_at(&self, provider: &str, model: &str, usage: &CallUsage) -> Option<u64> {
        Some(micros(self.for_call(provider, Some(model), None, Timestamp::now())?.estimate(usage)))
    }

    /// The first model that may serve a request and has no price, as `provider/model`; `Some(None)` if the request names
    /// none and `needs` one. A price that does not cover such a usage is none: a part would be free.
    pub(crate) fn unpriced(&self, of: &RequestAttributes, usage: &CallUsage, needs: bool) -> Option<Option<String>> {
        let now = Timestamp::now();
        let has_gap = |price: Arc<Price>| !price.covers(usage);
        let mut models = candidates(of).peekable();
        if models.peek().is_none() {
            return needs.then_some(None);
        }
        let first =
            models.find(|(provider, model)| self.for_call(provider, Some(model), None, now).is_none_or(has_gap));
        first.map(|(provider, model)| Some(format!("{provider}/{model}")))
    }
}

/// The models that may serve a request, each with its provider: its deployments, or what it names.
fn candidates(subject: &RequestAttributes) -> impl Iterator<Item = (&str, &str)> {
    let named =
        subject.model.iter().filter(|_| subject.deployments.is_empty()).map(|model| (&*subject.provider, &**model));
    subject.deployments.iter().map(|served| (&*served.provider, &*served.model)).chain(named)
}

/// Millionths of a dollar, rounded up: many tiny requests must not be free. What floating point adds is left out.
fn micros(dollars: f64) -> u64 {
    (dollars * 1e6 - 1e-6).ceil() as u64
}

#[cfg(test)]
mod tests {
    use interflow_models::Unit;

    use super::*;

    fn at(day: &str) -> Timestamp {
        let day: jiff::civil::Date = day.parse().unwrap();
        Timestamp::from_secs(day.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second() as u64)
    }

    /// The dollars per million tokens of input on a day on which no model of these tests changes its price.
    fn input(prices: &PriceList, provider: &str, model: &str) -> Option<f64> {
        prices.for_call(provider, Some(model), None, at("2026-11-28"))?.rates[&Unit::Input]
    }

    fn own(prices: &str) -> Result<PriceList, String> {
        PriceList::with_overrides(&format!(r#"{{"as_of": "2026-01", "prices": {prices}}}"#))
    }

    #[test]
    fn built_in_price_list_has_the_date_that_the_guide_names() {
        let date = PriceList::default().as_of().built_in;
        let page = include_str!("../../../docs/guides/prices.md");
        assert!(page.contains(&format!("as of {date}")), "docs/guides/prices.md tells another date than {date}");
    }

    #[test]
    fn own_prices_come_first_and_the_longest_pattern_of_them_wins() {
        let own = own(r#"{"gpt-5*": {"input": 7, "output": 9}, "gpt-5-mini": {"input": 1, "output": 2},
            "models/gpt-7": {"input": 3, "output": 4}, "gemini/models/gpt-8": {"input": 4, "output": 4},
            "mine/*": {"input": 0, "output": 0}}"#)
        .unwrap();
        assert_eq!(own.as_of().own.as_deref(), Some("2026-01"));
        for (provider, model, expected) in [
            ("openai", "gpt-5", Some(7.0)),
            ("openai", "gpt-5-nano", Some(7.0)),
            ("openai", "gpt-5-mini-2025-08-07", Some(1.0)),
            ("openai", "models/gpt-5-future", Some(7.0)),
            ("openai", "google/gpt-5-future", Some(7.0)),
            ("openai", "gpt-7", Some(3.0)),
            ("gemini", "gpt-8", Some(4.0)),
            ("openai", "gpt-8", None),
            ("mine", "whatever", Some(0.0)),
            ("mine", "models/whatever", Some(0.0)),
            ("openai", "gpt-4o", Some(2.5)),
            ("openai", "nobody-knows", None),
        ] {
            assert_eq!(input(&own, provider, model), expected, "{provider} {model}");
        }
    }

    #[test]
    fn models_are_priced_by_exact_version_not_by_name_prefix() {
        for (model, expected) in [
            ("gpt-4o", Some(2.5)),
            ("gpt-4o-2024-08-06", Some(2.5)),
            ("gpt-4o-2024-05-13", Some(5.0)),
            ("gpt-4o-mini-2024-07-18", Some(0.15)),
            ("gpt-4o-future", None),
            ("gpt-5.9", None),
            ("gpt-6.1-sol", Some(2.0)),
            ("o1-pro", Some(150.0)),
            ("o3-ultra", None),
            ("gpt-5-mini-2025", None),
            ("claude-opus-4-5@20251101", Some(5.0)),
            ("claude-opus-4-9", None),
            ("claude-fable-5-2", Some(8.0)),
            ("global.anthropic.claude-haiku-4-5-20251001-v1:0", Some(1.0)),
            ("arn:aws:bedrock:us-east-1:1:inference-profile/us.amazon.nova-lite-v1:0", Some(0.06)),
            ("models/gemini-3.6-flash", Some(0.75)),
            ("llama3.2", None),
        ] {
            assert_eq!(input(&PriceList::default(), "any", model), expected, "{model}");
        }
        assert_eq!(input(&PriceList::default(), "ollama", "llama3.2"), Some(0.0));
    }

    #[test]
    fn each_mistake_of_the_own_list_is_one_error_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.json");
        let error = |text: &str| {
            std::fs::write(&path, text).unwrap();
            PriceList::from_file(&path).unwrap_err()
        };
        let entry = |members: &str| {
            format!("{{\n  \"prices\": {{\n\t\"m\": {{\"input\": 1, \"output\": 2}},\n    \"x\": {members}\n  }}\n}}")
        };
        for (text, place, why) in [
            (entry(r#"{"input": -1, "output": 2}"#), "4:10", "`x`: the price -1 is out of range"),
            (entry(r#"{"input": 1, "output": 2, "tiers": {"batch": {"factor": -1}}}"#), "4:10", "the factor -1 is out"),
            (entry(r#"{"input": 1}"#), "4:10", "both `input` and `output`"),
            (entry(r#"{"inptu": 1, "output": 2}"#), "4:", "unknown value `inptu`: did you mean `input`?"),
            (entry(r#"{"input": "1", "output": 2}"#), "4:", "text"),
            (entry(r#"{"input": 1, "output": 2, "tiers": {"bach": {"factor": 1}}}"#), "4:", "did you mean `batch`?"),
            (entry(r#"{"input": 1, "output": 2, "from": "2026-13-01"}"#), "4:10", "`from` is a day"),
            (
                entry(r#"{"input": 1, "output": 2, "hours": [{"weekdays": [9], "begin": 0, "end": 60}]}"#),
                "4:10",
                "not [9], 0 to 60",
            ),
            (
                entry(r#"{"input": 1, "output": 2, "hours": [{"weekdays": [1], "begin": 60, "end": 60}]}"#),
                "4:10",
                "[1], 60 to 60",
            ),
            (
                entry("{\"input\": 1, \"output\": 2},\n    \"m\": {\"input\": 3, \"output\": 4}"),
                "5:5",
                "duplicate key `m`",
            ),
            ("{\"as_of\": \"soon\", \"prices\": {}}".into(), "1:11", "not `soon`"),
            ("{\"as_of\": \"20261128\", \"prices\": {}}".into(), "1:11", "not `20261128`"),
            ("{\"as_of\": \"2999-01\", \"prices\": {}}".into(), "1:11", "not in the future"),
            ("{\"as_of\": \"2026-11\"}".into(), "1:1", "the key `prices` is missing"),
            ("{\"price\": {}}".into(), "1:2", "unknown key `price`: did you mean `prices`?"),
            ("{".into(), "2:", "expected"),
        ] {
            let e = error(&text);
            let start = format!("quota.prices: {}:{place}", path.display());
            assert!(e.starts_with(&start) && e.contains(why) && e.contains("docs/guides/prices.md"), "{text}\n{e}");
        }
        let tabs = "{\n\t\"as_of\": \"2026-11-28\",\n\t\"prices\": {\n\t\t\"m\": {\"input\": 1e0, \"output\": 2.5, \"cache_read\": null}\n\t}\n}\n";
        assert!(PriceList::with_overrides(tabs).is_ok());
        std::fs::remove_file(&path).unwrap();
        let missing = PriceList::from_file(&path).unwrap_err();
        assert!(missing.contains(&format!("quota.prices: {}: No such file", path.display())), "{missing}");
    }

    #[test]
    fn a_call_has_the_price_of_its_day_and_of_the_model_that_answered() {
        let prices = PriceList::default();
        let usage = CallUsage { input: 1_000_000, output: 100_000, ..CallUsage::default() };
        let cost = |asked, answered, day| prices.cost("gemini", Some(asked), answered, &usage, at(day));
        assert_eq!(cost("gemini-4-argon", None, "2026-11-30"), Some(3_000_000));
        assert_eq!(cost("gemini-4-argon", None, "2026-12-01"), Some(6_000_000));
        assert_eq!(cost("gemini-4-argon", None, "2026-10-01"), None, "it had no price yet");
        let (asked, answered) = ("gemini-3.5-flash", Some("gemini-3.6-flash"));
        assert_eq!(cost(asked, answered, "2026-11-28"), Some(750_000 + 375_000));
        assert_eq!(cost("alias", answered, "2026-11-28"), Some(750_000 + 375_000));
        assert_eq!(cost(asked, Some("alias"), "2026-11-28"), Some(1_500_000 + 900_000));
        let own = own(r#"{"gemini-3.5-flash": {"input": 1, "output": 0, "from": "2026-11-01"}}"#).unwrap();
        let cost = |day| own.cost("gemini", Some(asked), answered, &usage, at(day));
        assert_eq!((cost("2026-11-01"), cost("2026-10-31")), (Some(1_000_000), Some(1_125_000)));
    }

    #[test]
    fn a_budget_is_charged_an_estimate_where_a_part_has_no_known_price() {
        let subject = RequestAttributes {
            provider: "openai".into(),
            model: Some("gpt-6.2-sol".into()),
            ..RequestAttributes::default()
        };
        let charge =
            |tokens| PriceList::default().charge(&subject, &DeploymentUsage { tokens, ..DeploymentUsage::default() });
        let plain = CallUsage { input: 1000, output: 100, ..CallUsage::default() };
        assert_eq!(charge(plain), CallCharge { micros: 3000, cost: Some(3000) });
        let cached = CallUsage { cache_write: 1000, ..plain };
        assert_eq!(charge(cached), CallCharge { micros: 3000, cost: None }, "its cache has no published price");
        let long = CallUsage { input: 300_000, ..plain };
        assert_eq!(charge(long), CallCharge { micros: 601_000, cost: None }, "nor have its long prompts");
    }

    #[test]
    fn a_model_whose_input_or_output_has_an_unknown_price_is_unpriced() {
        let own = own(
            r#"{"a": {"input": 1, "output": null}, "b": {"input": null, "output": 1}, "c": {"input": 0, "output": 1},
            "d": {"second_input": 1}, "request": {"request": 0.1}, "cache": {"cache_read": 1}, "search": {"search": 1},
            "images": {"image": 1, "input": 0, "output": 0}}"#,
        );
        let usage = CallUsage { input: 9, output: 9, ..CallUsage::default() };
        let unpriced = |model: &str| {
            let subject =
                RequestAttributes { provider: "p".into(), model: Some(model.into()), ..RequestAttributes::default() };
            own.as_ref().unwrap().unpriced(&subject, &usage, true).flatten()
        };
        let names = ["a", "b", "c", "d"].map(|model| unpriced(model).unwrap_or_default());
        assert_eq!(names, ["p/a", "p/b", "", ""]);
        // In pictures and characters, what is asked for is counted.
        let unpriced_for = |model: &str, usage: CallUsage| {
            let model = Some(model.into());
            let subject = RequestAttributes { provider: "p".into(), model, ..RequestAttributes::default() };
            PriceList::default().unpriced(&subject, &usage, true)
        };
        let tier = Some(interflow_types::ServiceTier::Other);
        let spoken = CallUsage { input: 9, output: 9, characters: 40, tier, ..CallUsage::default() };
        let pictures = CallUsage { input: 9, output: 9, images: 2, ..CallUsage::default() };
        for (name, usage, is_priced) in [
            ("tts-1", spoken, true),
            ("gpt-4o-mini-tts", spoken, false),
            ("amazon.nova-canvas-v1:0", pictures, true),
            ("imagen-3.0-generate-001", pictures, true),
        ] {
            assert_eq!(unpriced_for(name, usage).is_none(), is_priced, "{name}");
        }
        for name in ["request", "cache", "search", "images", "tts-1", "amazon.nova-canvas-v1:0"] {
            assert_eq!(unpriced(name), Some(format!("p/{name}")));
        }
        let unnamed = |needs_model| PriceList::default().unpriced(&RequestAttributes::default(), &usage, needs_model);
        assert_eq!((unnamed(true), unnamed(false)), (Some(None), None));
    }

    #[test]
    fn what_is_billed_without_tokens_has_a_cost_and_what_is_not_counted_has_none() {
        let own = own(r#"{"request": {"request": 0.1}, "cache": {"cache_read": 1}, "search": {"search": 0.5},
            "image": {"image": 1}, "free": {"image": 1, "input": 0, "output": 0},
            "both": {"request": 0.1, "input": 0, "output": 0}, "text": {"input": 1, "output": 10}}"#)
        .unwrap();
        let tokens = CallUsage { input: 9, output: 9, ..CallUsage::default() };
        let searches = CallUsage { searches: 2, ..CallUsage::default() };
        let seconds = CallUsage { seconds: 60, output: 9, ..CallUsage::default() };
        let other = CallUsage { tier: Some(interflow_types::ServiceTier::Other), ..CallUsage::default() };
        for (model, tokens, micros, cost) in [
            ("request", tokens, 100_000, None),
            ("request", CallUsage::default(), 0, None),
            ("both", tokens, 100_000, Some(100_000)),
            ("cache", tokens, 0, None),
            ("search", searches, 1_000_000, Some(1_000_000)),
            ("image", tokens, 0, None),
            ("free", tokens, 0, None),
            ("tts-1", tokens, 0, None),
            ("whisper-1", seconds, 6000, Some(6000)),
            ("tts-1", CallUsage { input: 9, characters: 1000, ..other }, 15_000, Some(15_000)),
            ("image", CallUsage { input: 9, images: 3, ..other }, 3_000_000, Some(3_000_000)),
            ("image", CallUsage { input: 9, ..other }, 0, None),
            ("text", CallUsage { images: 1, ..other }, 0, None),
            ("text", CallUsage { characters: 9, ..other }, 0, None),
            ("text", CallUsage { images: 1, output: 1000, ..CallUsage::default() }, 10_000, Some(10_000)),
        ] {
            let subject =
                RequestAttributes { provider: "p".into(), model: Some(model.into()), ..RequestAttributes::default() };
            let charge = own.charge(&subject, &DeploymentUsage { tokens, ..DeploymentUsage::default() });
            assert_eq!(charge, CallCharge { micros, cost }, "{model}");
        }
    }

    #[test]
    fn many_tiny_requests_are_not_free_and_fractions_add_nothing() {
        assert_eq!((micros(0.0), micros(0.000_000_1), micros(0.000_003), micros(0.1 + 0.2)), (0, 1, 3, 300_000));
    }

    #[test]
    fn invalid_price_list_is_reported_with_its_position_and_a_remedy() {
        for (prices, parts) in [
            (r#"{"a": {}}"#, &["`a`", "or other units"][..]),
            (r#"{"a": {"input": 1000000.1, "output": 0}}"#, &["`a`", "0 to 1000000"]),
            (r#"{"a": {"input": 1, "output": 0, "over": [{"tokens": 9, "input": -1}]}}"#, &["`a`", "0 to 1000000"]),
            (r#"{"a": {"input": 1, "output": 0, "regions": {"mars": 2}}}"#, &["`mars`", "us"]),
            (r#"{"a": {"input": 1, "output": 0, "from": "20261201"}}"#, &["`20261201`", "2026-12-01"]),
            (
                r#"{"a": {"input": 1, "output": 0, "over": [{"tokens": 9, "input": 2}, {"tokens": 9, "input": 3}]}}"#,
                &["`a`", "two rows for more than 9 tokens"],
            ),
            (
                r#"{"a": {"input": 1, "output": 0, "tiers": {"flex": {"over": [{"tokens": 9}, {"tokens": 9}]}}}}"#,
                &["two rows for more than 9 tokens"],
            ),
            (r#"{"a": {"input": 1, "output": 0, "hours": []}}"#, &["it is empty: write what belongs in it"]),
            (r#"{"a": {"input": 1, "output": 0, "over": []}}"#, &["it is empty: write what belongs in it"]),
            (r#"{"": {"input": 1, "output": 0}}"#, &["`` does not name a model"]),
            (r#"{"openai/": {"input": 1, "output": 0}}"#, &["`openai/` does not name a model"]),
            ("nonsense", &["1:"]),
        ] {
            let error = own(prices).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{prices}: {error}");
        }
        assert!(own(r#"{"a": {"input": 1000000, "output": 0}, "b": {"second_input": 0.01}}"#).is_ok());
    }
}
