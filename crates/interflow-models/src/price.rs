//! What a call costs: the sum of its parts, each by the length of the prompt, the level of service and the region.

use std::collections::BTreeMap;

use interflow_types::schema::JsonSchema;
use interflow_types::{CallUsage, ServiceRegion, ServiceTier, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{day, is_day};

/// What is counted. Tokens are priced in dollars per million, everything else in dollars each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Input,
    Output,
    /// As `output` if unset.
    Reasoning,
    /// As `input` if unset; so are the other kinds of input.
    CacheRead,
    /// Input written to a cache for minutes.
    CacheWrite,
    /// Input written to a cache for an hour or longer; if unset, twice `input` where `cache_write` is set, as Anthropic
    /// charges it, else `input`.
    CacheWriteLong,
    AudioInput,
    /// As `cache_read` if unset.
    AudioCacheRead,
    /// As `output` if unset.
    AudioOutput,
    ImageInput,
    /// As `cache_read` if unset.
    ImageCacheRead,
    /// As `output` if unset.
    ImageOutput,
    VideoInput,
    /// A search of the web, or of documents.
    Search,
    /// A query of maps.
    Maps,
    /// A second of audio or video taken in.
    SecondInput,
    /// A second of audio or video made.
    SecondOutput,
    /// A picture made.
    Image,
    /// A character of text to speech.
    Character,
    Page,
    /// A request, beside its tokens.
    Request,
    /// A session of a code interpreter.
    Session,
}

impl Unit {
    /// What is charged for tokens whose own price is not in the list.
    const fn in_place(self) -> Option<Self> {
        Some(match self {
            Self::Reasoning | Self::AudioOutput | Self::ImageOutput => Self::Output,
            Self::AudioCacheRead | Self::ImageCacheRead => Self::CacheRead,
            Self::CacheRead | Self::CacheWrite | Self::CacheWriteLong => Self::Input,
            Self::AudioInput | Self::ImageInput | Self::VideoInput => Self::Input,
            _ => return None,
        })
    }

    const fn is_token(self) -> bool {
        matches!(self, Self::Input | Self::Output) || self.in_place().is_some()
    }
}

/// Units that are billed in place of the tokens taken in.
const COUNTED: [Unit; 5] = [Unit::Search, Unit::Page, Unit::SecondInput, Unit::Image, Unit::Character];

/// Prices by unit; `null` is a price that the provider has not published.
pub type Rates = BTreeMap<Unit, Option<f64>>;

/// The prices of a model from a day on.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ModelPrice")]
pub struct Price {
    #[serde(flatten)]
    pub rates: Rates,
    /// The first day on which it holds, as `2026-12-01`; always if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The hours in which it holds, before the price without hours; always if empty.
    #[serde(default, deserialize_with = "interflow_types::not_empty", skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<PriceHours>,
    /// What all tokens of a request cost whose prompt is longer.
    #[serde(default, deserialize_with = "interflow_types::not_empty", skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<LongPrompt>,
    /// By level of service: `batch`, `flex`, `priority`, `ultrafast`, `fast`, `balanced`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tiers: BTreeMap<ServiceTier, TierPrice>,
    /// Factors of all tokens by region: `us`, `eu`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub regions: BTreeMap<ServiceRegion, f64>,
}

/// Hours of some days of the week, in UTC.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceHours {
    /// From 1, Monday, to 7.
    pub weekdays: Vec<u8>,
    /// Minutes after midnight.
    pub begin: u16,
    pub end: u16,
}

/// Prices that apply to prompts of more `tokens`; what is not in them costs the same as in shorter ones.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct LongPrompt {
    pub tokens: u64,
    #[serde(flatten)]
    pub rates: Rates,
}

/// A level of service: prices of its own, and a factor for all tokens that have none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct TierPrice {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    #[serde(default, deserialize_with = "interflow_types::not_empty", skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<LongPrompt>,
    #[serde(flatten)]
    pub rates: Rates,
}

impl Price {
    /// Whether it holds at a time.
    pub fn holds_at(&self, at: Timestamp) -> bool {
        let minutes = at.secs() / 60;
        // The first of January 1970 was a Thursday.
        let (weekday, minute) = ((minutes / 1440 + 3) % 7 + 1, minutes % 1440);
        let holds = |hours: &PriceHours| {
            hours.weekdays.iter().any(|day| u64::from(*day) == weekday)
                && (u64::from(hours.begin)..u64::from(hours.end)).contains(&minute)
        };
        self.from.as_deref().is_none_or(|from| from <= day(at).as_str())
            && (self.hours.is_empty() || self.hours.iter().any(holds))
    }

    /// Checks what an operator wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        if let Some(from) = self.from.as_ref().filter(|from| !is_day(from)) {
            return Err(format!("`from` is a day such as 2026-12-01, not `{from}`"));
        }
        let lists = self.tiers.values().map(|tier| &tier.over).chain([&self.over]);
        for rows in lists {
            let twice = |row: &&LongPrompt| rows.iter().filter(|other| other.tokens == row.tokens).count() > 1;
            if let Some(row) = rows.iter().find(twice) {
                return Err(format!("`over` has two rows for more than {} tokens: merge them", row.tokens));
            }
        }
        let long = |rows: &[LongPrompt]| rows.iter().flat_map(|row| row.rates.values().copied()).collect::<Vec<_>>();
        let tiers =
            self.tiers.values().flat_map(|tier| [tier.rates.values().copied().collect(), long(&tier.over)].concat());
        let mut prices = self.rates.values().copied().chain(long(&self.over)).chain(tiers).flatten();
        if let Some(wrong) = prices.find(|price| !(0.0..=1e6).contains(price)) {
            return Err(format!(
                "the price {wrong} is out of range: dollars per million tokens, or each, from 0 to 1000000"
            ));
        }
        let is_wrong = |hours: &&PriceHours| {
            let are_days = !hours.weekdays.is_empty() && hours.weekdays.iter().all(|day| (1..=7).contains(day));
            !are_days || hours.begin >= hours.end || hours.end > 1440
        };
        if let Some(PriceHours { weekdays, begin, end }) = self.hours.iter().find(is_wrong) {
            return Err(format!(
                "`hours` are days from 1, Monday, to 7, and minutes from 0 to 1440, not {weekdays:?}, {begin} to {end}"
            ));
        }
        let mut factors = self.tiers.values().filter_map(|tier| tier.factor).chain(self.regions.values().copied());
        if let Some(wrong) = factors.find(|factor| !(0.0..=1e3).contains(factor)) {
            return Err(format!("the factor {wrong} is out of range: from 0 to 1000"));
        }
        if self.rates.is_empty() || self.rates.contains_key(&Unit::Input) != self.rates.contains_key(&Unit::Output) {
            return Err("a price has both `input` and `output`, or other units alone".to_owned());
        }
        Ok(())
    }

    /// The cost in dollars; `None` if the price of any part is not known.
    pub fn cost(&self, usage: &CallUsage) -> Option<f64> {
        self.bill(usage).into_iter().try_fold(0.0, |sum, (unit, count, price)| Some(sum + dollars(unit, count, price?)))
    }

    /// An upper bound of the cost before the call, in dollars: all input may be written to a cache, which costs more, and
    /// the level of service may not be granted. Prices that are not known are left out, and what a prompt of this length
    /// costs is replaced by the plain price if it is not known.
    pub fn estimate(&self, usage: &CallUsage) -> f64 {
        let tiers = [None, usage.tier.and_then(|tier| self.tiers.get(&tier))];
        let rate = |tier, unit| self.rate_at(tier, unit, usage.input).or_else(|| self.rate_at(tier, unit, 0));
        let most = |units: [Unit; 2], count| {
            let rates =
                units.into_iter().flat_map(|unit| tiers.map(|tier| Some(dollars(unit, count, rate(tier, unit)?))));
            rates.flatten().fold(0.0, f64::max)
        };
        let others = self.bill(usage).into_iter().filter(|(unit, ..)| !unit.is_token());
        others.filter_map(|(unit, count, price)| Some(dollars(unit, count, price?))).sum::<f64>()
            + most([Unit::Input, Unit::CacheWrite], usage.input)
            + most([Unit::Output, Unit::Reasoning], usage.output)
    }

    /// Whether a call that uses such tokens can have a known cost. What is taken in may be billed by searches, pages or
    /// seconds in place of tokens, and what is made by pictures or characters.
    pub fn covers(&self, usage: &CallUsage) -> bool {
        let has = |unit| self.plain_rate(unit, 0).is_some();
        let is_unpublished = |unit| self.rates.get(unit) == Some(&None);
        let reads = has(Unit::AudioInput) || COUNTED.into_iter().any(has);
        let texts = [Unit::Output, Unit::AudioOutput, Unit::ImageOutput];
        let writes = texts.into_iter().chain([Unit::Page, Unit::SecondInput, Unit::Image, Unit::Character]).any(has);
        let is_spoken = usage.characters > 0 && has(Unit::Character) && !has(Unit::Input);
        ![Unit::Input, Unit::Output].iter().any(is_unpublished)
            && (self.is_free() || is_spoken || usage.tier != Some(ServiceTier::Other))
            && self.uncounted(usage).is_none()
            && (usage.input == 0 || reads)
            && (usage.output == 0 || writes)
    }

    /// Whether tokens cost nothing.
    fn is_free(&self) -> bool {
        [Unit::Input, Unit::Output].into_iter().all(|unit| self.plain_rate(unit, 0) == Some(0.0))
    }

    /// The unit that is billed in place of tokens, which are free, and that is not counted.
    fn uncounted(&self, usage: &CallUsage) -> Option<Unit> {
        let costs = |unit| self.rates.get(&unit).is_some_and(|price| *price != Some(0.0));
        let is_counted =
            [Unit::Input, Unit::Output, Unit::Search, Unit::Page, Unit::SecondInput].into_iter().any(costs);
        let units = [(Unit::Image, usage.images), (Unit::Character, usage.characters), (Unit::SecondOutput, 0)];
        units.into_iter().find(|(unit, count)| !is_counted && *count == 0 && costs(*unit)).map(|(unit, _)| unit)
    }

    /// The parts of a call that are charged: how many of a unit at which price, `None` if that is not known.
    fn bill(&self, usage: &CallUsage) -> Vec<(Unit, u64, Option<f64>)> {
        let (u, has) = (usage, |unit| self.rates.contains_key(&unit));
        let is_of_tokens = u.output > 0 && (has(Unit::Output) || has(Unit::ImageOutput));
        // Saturating: some providers report a part that the whole does not include.
        let less = |whole: u64, parts: &[u64]| parts.iter().fold(whole, |rest, part| rest.saturating_sub(*part));
        let parts = [
            (Unit::Input, less(u.input, &[u.cache_read, u.cache_write, u.audio_input, u.image_input, u.video_input])),
            (Unit::CacheRead, less(u.cache_read, &[u.audio_cache_read, u.image_cache_read])),
            (Unit::CacheWrite, less(u.cache_write, &[u.cache_write_long])),
            (Unit::CacheWriteLong, u.cache_write_long.min(u.cache_write)),
            (Unit::AudioInput, u.audio_input),
            (Unit::AudioCacheRead, u.audio_cache_read),
            (Unit::ImageInput, u.image_input),
            (Unit::ImageCacheRead, u.image_cache_read),
            (Unit::VideoInput, u.video_input),
            (Unit::Output, less(u.output, &[u.reasoning, u.audio_output, u.image_output])),
            (Unit::Reasoning, u.reasoning.min(u.output)),
            (Unit::AudioOutput, u.audio_output),
            (Unit::ImageOutput, u.image_output),
            (Unit::Search, u.searches),
            (Unit::Maps, u.maps),
            (Unit::SecondInput, u.seconds),
            (Unit::Page, u.pages),
            // Of a picture that is made of tokens, those are billed.
            (Unit::Image, if has(Unit::Image) && !is_of_tokens { u.images } else { 0 }),
            (Unit::Character, if has(Unit::Character) { u.characters } else { 0 }),
            (Unit::Request, u64::from(has(Unit::Request))),
        ];
        // A price of other units alone: the tokens beside them are not billed.
        let is_other = !has(Unit::Input) && parts.iter().any(|(u, count)| *count > 0 && COUNTED.contains(u) && has(*u));
        let used = parts.into_iter().filter(|(unit, count)| *count > 0 && !(is_other && unit.is_token()));
        let priced = used.map(|(unit, count)| (unit, count, self.rate(unit, usage)));
        // What was made, but neither its tokens were counted nor has it a price by piece.
        let made = [(Unit::Image, u.images), (Unit::Character, u.characters)];
        let unpriced =
            made.into_iter().filter(|(unit, count)| *count > 0 && !has(*unit) && !is_of_tokens && !self.is_free());
        let unknown = unpriced.chain(self.uncounted(usage).map(|unit| (unit, 1)));
        priced.chain(unknown.map(|(unit, count)| (unit, count, None))).collect()
    }

    /// The price of a unit in a call; `None` if it is not known.
    fn rate(&self, unit: Unit, usage: &CallUsage) -> Option<f64> {
        let unlisted = TierPrice::default();
        let tier = usage.tier.filter(|tier| *tier != ServiceTier::Standard);
        let price = self.rate_at(tier.map(|tier| self.tiers.get(&tier).unwrap_or(&unlisted)), unit, usage.input)?;
        // Nothing is nothing in each region.
        match usage.region.filter(|_| unit.is_token() && price != 0.0) {
            None => Some(price),
            Some(region) => Some(price * self.regions.get(&region)?),
        }
    }

    /// The standard price of a unit behind a prompt of this length.
    fn plain_rate(&self, unit: Unit, prompt: u64) -> Option<f64> {
        self.rate_at(None, unit, prompt)
    }

    /// The price of a unit behind a prompt of this length at a level of service; the standard one without.
    fn rate_at(&self, tier: Option<&TierPrice>, unit: Unit, prompt: u64) -> Option<f64> {
        let long = longest(&self.over, prompt);
        if let Some(tier) = tier {
            let own = longest(&tier.over, prompt).and_then(|row| row.rates.get(&unit));
            // Its prices of short prompts say nothing about those for which there are others.
            if let Some(own) = own.or_else(|| tier.rates.get(&unit).filter(|_| long.is_none())) {
                return *own;
            }
        }
        if let Some(plain) = long.and_then(|row| row.rates.get(&unit)).or_else(|| self.rates.get(&unit)) {
            let plain = (*plain)?;
            return match tier.filter(|_| unit.is_token()) {
                // Searches cost the same at each level.
                None => Some(plain),
                // Nothing is nothing at each level.
                Some(tier) => tier.factor.or((plain == 0.0).then_some(0.0)).map(|factor| factor * plain),
            };
        }
        if unit == Unit::CacheWriteLong && self.rates.contains_key(&Unit::CacheWrite) {
            return Some(2.0 * self.rate_at(tier, Unit::Input, prompt)?);
        }
        self.rate_at(tier, unit.in_place()?, prompt)
    }
}

/// The prices of the longest prompt that this one exceeds.
fn longest(rows: &[LongPrompt], prompt: u64) -> Option<&LongPrompt> {
    rows.iter().filter(|row| prompt > row.tokens).max_by_key(|row| row.tokens)
}

/// Dollars of so many of a unit.
fn dollars(unit: Unit, count: u64, price: f64) -> f64 {
    count as f64 * price / if unit.is_token() { 1e6 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(json: &str) -> Price {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_has_no_price_at_a_level_of_service_costs_what_is_charged_in_its_place() {
        use ServiceTier::{Batch, Flex, Priority};
        let listed = price(
            r#"{"input": 1, "output": 2, "cache_write": 3, "tiers": {"batch": {"factor": 0.5}, "flex": {"factor": 0.1, "output": 1},
            "priority": {"input": 2, "output": 4, "over": [{"tokens": 200000, "input": 4, "output": 8}]}}}"#,
        );
        let output = CallUsage { output: 1_000_000, ..CallUsage::default() };
        let input = CallUsage { input: 100_000, ..CallUsage::default() };
        let long = CallUsage { input: 1_000_000, ..CallUsage::default() };
        let micros = |price: &Price, usage: &CallUsage| price.cost(usage).map(|cost| (cost * 1e6).round() as u64);
        for (tier, usage, cost) in [
            (Batch, output, Some(1_000_000)),
            (Batch, CallUsage { reasoning: 400_000, ..output }, Some(1_000_000)),
            (Flex, output, Some(1_000_000)),
            (Flex, CallUsage { reasoning: 400_000, ..output }, Some(1_000_000)),
            (Flex, CallUsage { audio_output: 400_000, ..output }, Some(1_000_000)),
            (Flex, CallUsage { image_output: 400_000, ..output }, Some(1_000_000)),
            (Flex, input, Some(10_000)),
            (Priority, CallUsage { reasoning: 400_000, ..output }, Some(4_000_000)),
            (Priority, input, Some(200_000)),
            (Priority, CallUsage { image_input: 50_000, audio_input: 9, video_input: 9, ..input }, Some(200_000)),
            (Priority, CallUsage { cache_read: 50_000, ..input }, Some(200_000)),
            (Priority, CallUsage { cache_write: 100_000, cache_write_long: 100_000, ..input }, Some(400_000)),
            (Priority, CallUsage { cache_write: 100_000, ..input }, None),
            (Priority, long, Some(4_000_000)),
            (Priority, CallUsage { output: 1_000_000, reasoning: 400_000, ..long }, Some(12_000_000)),
            (Batch, long, Some(500_000)),
            (ServiceTier::Fast, input, None),
        ] {
            assert_eq!(micros(&listed, &CallUsage { tier: Some(tier), ..usage }), cost, "{tier:?} {usage:?}");
        }
        // Where long prompts have prices of their own, a level has those by its factor, unless it lists others.
        let over = price(
            r#"{"input": 1, "output": 2, "over": [{"tokens": 200000, "input": 2}],
            "tiers": {"flex": {"factor": 0.5, "input": 0.25, "over": [{"tokens": 200000, "output": 3}]}}}"#,
        );
        let usage = CallUsage { output: 1_000_000, tier: Some(Flex), ..long };
        assert_eq!(micros(&over, &usage), Some(4_000_000));
        assert_eq!(micros(&over, &CallUsage { input: 100_000, ..usage }), Some(1_025_000));
        let catalog = crate::current().model("sail", "google/gemma-4-31B-it").unwrap();
        let usage = CallUsage { reasoning: 400_000, tier: Some(Flex), ..output };
        assert_eq!(micros(&catalog.prices[0], &usage), Some(300_000));
    }

    #[test]
    fn what_is_free_is_free_at_each_level_and_in_each_region() {
        let (tier, region) = (Some(ServiceTier::Flex), Some(ServiceRegion::Eu));
        let usage = CallUsage { input: 9, output: 9, reasoning: 4, tier, region, ..CallUsage::default() };
        assert_eq!(price(r#"{"input": 0, "output": 0}"#).cost(&usage), Some(0.0));
        assert_eq!(price(r#"{"input": 0, "output": 1}"#).cost(&usage), None);
    }

    #[test]
    fn an_estimate_is_at_the_higher_of_the_standard_price_and_that_of_the_level() {
        let price = price(
            r#"{"input": 1, "output": 2, "tiers": {"flex": {"factor": 0.5}, "fast": {"factor": 6, "output": 20}}}"#,
        );
        let usage = CallUsage { input: 1_000_000, output: 1_000_000, ..CallUsage::default() };
        for (tier, dollars) in [
            (None, 3.0),
            (Some(ServiceTier::Flex), 3.0),
            (Some(ServiceTier::Fast), 26.0),
            (Some(ServiceTier::Priority), 3.0),
            (Some(ServiceTier::Other), 3.0),
        ] {
            assert_eq!(price.estimate(&CallUsage { tier, ..usage }), dollars, "{tier:?}");
        }
    }

    #[test]
    fn a_first_day_is_written_so_that_days_compare_as_text() {
        for (from, is_day) in
            [("2026-12-01", true), ("20261201", false), ("2026-12-01T10:00", false), ("2026-13-01", false)]
        {
            let price = Price { from: Some(from.to_owned()), ..price(r#"{"input": 1, "output": 1}"#) };
            assert_eq!(price.check().is_ok(), is_day, "{from}");
        }
    }
}
