//! Model prices: the built-in list with the operator's overrides. A model without a price is not free: it is reported
//! as unpriced.

use std::collections::BTreeMap;

use interflow_types::CallUsage;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keys::any_matches;

const BUILT_IN_PRICES: &str = include_str!("../data/prices.json");

/// Prices in dollars per million tokens, as providers publish them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    pub input: f64,
    pub output: f64,
    /// Price of input read from a cache; `input` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Input written to a cache for minutes; `input` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// Input written to a cache for an hour or longer; if unset, twice `input` where `cache_write` is set, as Anthropic
    /// charges it, else `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<f64>,
}

impl ModelPrice {
    /// The cost in millionths of a dollar: dollars per million tokens equal micro-dollars per token.
    fn micros(&self, t: &CallUsage) -> u64 {
        // Saturating: some providers report cached tokens apart from the input, and the difference must not wrap
        // around.
        let plain = t.input.saturating_sub(t.cache_read).saturating_sub(t.cache_write);
        let (short, long) = (t.cache_write.saturating_sub(t.cache_write_long), t.cache_write_long.min(t.cache_write));
        let long_price = self.cache_write_long.or(self.cache_write.map(|_| self.input * 2.0));
        let parts = [
            (plain, self.input),
            (t.cache_read, self.cache_read.unwrap_or(self.input)),
            (short, self.cache_write.unwrap_or(self.input)),
            (long, long_price.unwrap_or(self.input)),
            (t.output, self.output),
        ];
        // Rounded up: many tiny requests must not be free.
        parts.iter().map(|(n, price)| *n as f64 * price).sum::<f64>().ceil() as u64
    }
}

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
    prices: BTreeMap<String, ModelPrice>,
}

/// Dates of the price lists: a year and a month, or the text in the operator's list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PriceListDates {
    pub built_in: String,
    /// That of the operator's list; empty if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
}

#[derive(Debug, Clone)]
pub struct PriceList {
    list: Vec<PriceEntry>,
    as_of: PriceListDates,
}

#[derive(Debug, Clone)]
struct PriceEntry {
    pattern: String,
    /// Length of the literal prefix before the first `*`: most models are ruled out by it.
    plain: usize,
    placed: bool,
    price: ModelPrice,
}

impl PriceEntry {
    fn new(pattern: String, price: ModelPrice) -> Self {
        let plain = pattern.find('*').unwrap_or(pattern.len());
        Self { plain, placed: pattern.contains('/'), pattern, price }
    }

    /// Whether the entry applies to this model: a pattern matches the name as written, a plain name also matches it
    /// without its version.
    fn fits(&self, name: &ModelName<'_>) -> bool {
        let text = if self.placed { name.both } else { name.model };
        if self.plain == self.pattern.len() {
            return self.pattern == text || !self.placed && name.base == Some(&self.pattern);
        }
        text.as_bytes().starts_with(&self.pattern.as_bytes()[..self.plain])
            && any_matches(std::slice::from_ref(&self.pattern), text)
    }
}

/// A model's name in the forms that a list may contain.
struct ModelName<'a> {
    both: &'a str,
    model: &'a str,
    /// Without region, vendor, date and version number, if it has any of them.
    base: Option<&'a str>,
}

/// Prefixes of model names: regions and vendors as written by clouds and resellers.
const NAME_PREFIXES: [&str; 20] = [
    "models/",
    "global.",
    "us-gov.",
    "us.",
    "eu.",
    "apac.",
    "jp.",
    "au.",
    "ca.",
    "openai/",
    "anthropic/",
    "google/",
    "mistralai/",
    "deepseek/",
    "cohere/",
    "amazon/",
    "anthropic.",
    "amazon.",
    "mistral.",
    "cohere.",
];

/// A model's name without region, vendor, date and version number: `us.anthropic.claude-sonnet-4-5-20250929-v1:0`
/// becomes `claude-sonnet-4-5`. Nothing else is stripped: `gpt-4o-mini` and `gpt-4o-audio-preview` remain distinct from
/// `gpt-4o`.
fn base_model_name(model: &str) -> &str {
    let mut name = model;
    if name.starts_with("arn:") {
        name = name.rsplit('/').next().unwrap_or(name);
    }
    // A region precedes a vendor (`us.anthropic.`), so prefixes are removed until none is left.
    while let Some(rest) = NAME_PREFIXES.iter().find_map(|b| name.strip_prefix(b)) {
        name = rest;
    }
    while let Some(rest) = without_version(name) {
        name = rest;
    }
    name
}

/// The name without a trailing version number or date, in the forms that providers use: `@20250929`, `-v1:0`,
/// `-latest`, `-002`, `-20250929`, `-2024-08-06`.
fn without_version(name: &str) -> Option<&str> {
    let digits = |text: &str, n: usize| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
    if let Some((rest, date)) = name.rsplit_once('@') {
        return (date == "default" || date == "latest" || digits(date, 8)).then_some(rest);
    }
    // Bedrock's `-v1:0`, also followed by the context length.
    if let Some((rest, version)) = name.rsplit_once("-v")
        && version.starts_with(|c: char| c.is_ascii_digit())
        && version.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'k')
        && version.len() <= 8
        && (version.contains(':') || version.len() == 1)
    {
        return Some(rest);
    }
    let (rest, last) = name.rsplit_once('-')?;
    if last == "latest" || digits(last, 8) || digits(last, 3) {
        return Some(rest);
    }
    // A date with hyphens, as OpenAI writes it: `gpt-4o-2024-08-06`.
    let (rest, month) = rest.rsplit_once('-').filter(|_| digits(last, 2))?;
    let (rest, year) = rest.rsplit_once('-').filter(|_| digits(month, 2))?;
    digits(year, 4).then_some(rest)
}

impl Default for PriceList {
    fn default() -> Self {
        let mut prices = Self::with_overrides("{\"prices\": {}}").expect("the built-in price list can be read");
        prices.as_of.own = None;
        prices
    }
}

impl PriceList {
    /// The built-in list overridden by this JSON: `{"prices": {"gpt-5*": {"input": 1.25, "output": 10}}}`. An entry is
    /// a model, or a provider and a model as `ollama/*`; `*` matches any characters.
    ///
    /// # Errors
    /// What is wrong, with its line; or a price that is negative or above a million dollars.
    pub fn with_overrides(over: &str) -> Result<Self, String> {
        let read = |text: &str| serde_json::from_str::<PriceFile>(text).map_err(|e| e.to_string());
        let PriceFile { prices: mut all, as_of: built_in, .. } = read(BUILT_IN_PRICES)?;
        let over = read(over)?;
        let as_of = PriceListDates { built_in, own: Some(over.as_of) };
        for (pattern, price) in over.prices {
            let cached = [price.cache_read, price.cache_write, price.cache_write_long];
            let numbers = [Some(price.input), Some(price.output)].into_iter().chain(cached);
            if numbers.flatten().any(|n| !(0.0..=1e6).contains(&n)) {
                return Err(format!(
                    "`{pattern}`: a price is a number of dollars per million tokens, from 0 to 1000000"
                ));
            }
            all.insert(pattern, price);
        }
        let mut list: Vec<_> = all.into_iter().map(|(pattern, price)| PriceEntry::new(pattern, price)).collect();
        // The longest pattern is the most specific one, so the first that fits is the right one.
        list.sort_by_key(|entry| std::cmp::Reverse(entry.pattern.len()));
        Ok(Self { list, as_of })
    }

    pub const fn as_of(&self) -> &PriceListDates {
        &self.as_of
    }

    /// The price of a model at a provider: the longest entry that matches the name as written, otherwise the name
    /// without region, vendor, date and version number.
    pub fn for_model(&self, provider: &str, model: &str) -> Option<&ModelPrice> {
        let both = format!("{provider}/{model}");
        let base = Some(base_model_name(model)).filter(|b| *b != model);
        let name = ModelName { both: &both, model, base };
        self.list.iter().find(|entry| entry.fits(&name)).map(|entry| &entry.price)
    }

    /// The cost in millionths of a dollar; `None` if no price is known.
    pub fn cost(&self, provider: &str, model: Option<&str>, tokens: &CallUsage) -> Option<u64> {
        Some(self.for_model(provider, model?)?.micros(tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_price_list_has_date_and_sources() {
        let file: PriceFile = serde_json::from_str(BUILT_IN_PRICES).unwrap();
        let told = PriceList::default().as_of().clone();
        assert_eq!(told, PriceListDates { built_in: file.as_of.clone(), own: None });
        let page = include_str!("../../../docs/guides/virtual-keys.md");
        assert!(
            page.contains(&format!("as of {}", file.as_of)),
            "docs/guides/virtual-keys.md tells another date than prices.json"
        );
        assert!(file._sources.len() > 3 && file._sources.iter().all(|s| s.starts_with("https://")));
        assert_eq!(PriceList::default().cost("openai", Some("no-such-model"), &CallUsage::default()), None);
    }

    #[test]
    fn longest_price_pattern_wins_and_overrides_take_precedence() {
        let own = PriceList::with_overrides(
            r#"{"prices": {"gpt-5*": {"input": 7, "output": 9}, "mine/*": {"input": 0, "output": 0}}}"#,
        )
        .unwrap();
        assert_eq!(own.for_model("openai", "gpt-5").unwrap().input, 7.0);
        assert_eq!(own.for_model("openai", "gpt-5-mini-2025-08-07").unwrap().input, 0.25);
        assert_eq!(own.for_model("mine", "whatever").unwrap().output, 0.0);
        assert_eq!(own.for_model("openai", "nobody-knows"), None);
    }

    #[test]
    fn well_known_models_have_prices_under_every_provider() {
        let prices = PriceList::default();
        for (provider, model) in [
            ("openai", "gpt-4o-2024-08-06"),
            ("azure", "gpt-4.1-mini"),
            ("anthropic", "claude-sonnet-4-5-20250929"),
            ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("vertex", "gemini-2.5-flash-lite"),
            ("gemini", "gemini-2.5-pro"),
            ("mistral", "mistral-large-latest"),
            ("ollama", "llama3.2"),
        ] {
            assert!(prices.for_model(provider, model).is_some(), "{provider} {model}");
        }
        assert_eq!(prices.for_model("gemini", "gemini-2.5-flash-lite").unwrap().input, 0.1);
    }

    #[test]
    fn models_are_priced_by_exact_version_not_by_name_prefix() {
        let prices = PriceList::default();
        for (model, wanted) in [
            ("gpt-4o", Some(2.5)),
            ("gpt-4o-2024-08-06", Some(2.5)),
            ("gpt-4o-2024-05-13", Some(5.0)),
            ("gpt-4o-mini-2024-07-18", Some(0.15)),
            ("gpt-4o-audio-preview", None),
            ("gpt-4o-mini-realtime-preview", None),
            ("gpt-4o-future", None),
            ("gpt-5.9", None),
            ("o1-pro", Some(150.0)),
            ("o3-ultra", None),
            ("gpt-5-mini-2025", None),
            ("ft:gpt-4o-2024-08-06:firm::id", None),
            ("claude-opus-4-1-20250805", Some(15.0)),
            ("claude-opus-4-5@20251101", Some(5.0)),
            ("claude-opus-4-9", None),
            ("claude-3-5-haiku-latest", Some(0.8)),
            ("anthropic/claude-sonnet-4", Some(3.0)),
            ("global.anthropic.claude-haiku-4-5-20251001-v1:0", Some(1.0)),
            ("arn:aws:bedrock:us-east-1:1:inference-profile/us.amazon.nova-lite-v1:0", Some(0.06)),
            ("models/gemini-2.0-flash-001", Some(0.1)),
            ("gemini-2.5-flash-image", None),
            ("mistral-large-2411", Some(2.0)),
            ("mistral-large-2402", None),
        ] {
            assert_eq!(prices.for_model("any", model).map(|p| p.input), wanted, "{model}");
        }
    }

    #[test]
    fn cached_tokens_are_charged_at_their_own_price() {
        let (cache_read, cache_write) = (Some(0.3), Some(3.75));
        let price = ModelPrice { input: 3.0, output: 15.0, cache_read, cache_write, cache_write_long: None };
        let tokens = CallUsage { input: 1000, output: 100, cache_read: 600, cache_write: 200, ..CallUsage::default() };
        // 200 plain, 600 read, 200 written, 100 out.
        assert_eq!(price.micros(&tokens), 600 + 180 + 750 + 1500);
    }

    #[test]
    fn cache_writes_cost_more_the_longer_they_are_kept() {
        let tokens = CallUsage { input: 1000, cache_write: 300, cache_write_long: 200, ..CallUsage::default() };
        for (cache_write, cache_write_long, cost) in [
            // 700 plain, 100 for minutes at 1.25 times the input, 200 for an hour at twice the input.
            (Some(3.75), None, 2100.0 + 375.0 + 1200.0),
            (Some(3.75), Some(7.5), 2100.0 + 375.0 + 1500.0),
            (None, None, 3000.0),
        ] {
            let price = ModelPrice { input: 3.0, output: 15.0, cache_read: None, cache_write, cache_write_long };
            assert_eq!(price.micros(&tokens), cost as u64, "{price:?}");
        }
        // $5 per million: 2,000 at 1.25 times, 2,000 at twice the input.
        let tokens = CallUsage { input: 4000, cache_write: 4000, cache_write_long: 2000, ..CallUsage::default() };
        assert_eq!(PriceList::default().cost("anthropic", Some("claude-opus-4-5"), &tokens), Some(12_500 + 20_000));
    }

    #[test]
    fn invalid_price_list_is_reported_with_its_position() {
        assert!(PriceList::with_overrides("{\n\"prices\": {\"a\": {\"input\": 1}}}").unwrap_err().contains("line 2"));
        assert!(
            PriceList::with_overrides(r#"{"prices": {"a": {"input": -1, "output": 0}}}"#).unwrap_err().contains("`a`")
        );
        assert!(PriceList::with_overrides("nonsense").is_err());
        for (price, good) in [("0", true), ("1000000", true), ("1000000.1", false), ("1e999", false)] {
            let list = format!(r#"{{"as_of": "2026-01", "prices": {{"a": {{"input": {price}, "output": 0}}}}}}"#);
            let read = PriceList::with_overrides(&list);
            assert_eq!(read.is_ok(), good, "{price}: {read:?}");
            assert!(read.is_err() || read.unwrap().as_of().own.as_deref() == Some("2026-01"));
        }
    }
}
