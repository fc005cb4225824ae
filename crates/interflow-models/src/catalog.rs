//! The catalog file, and the search for a model in it.
//!
//! The file is text, compressed with Zstandard: a line of JSON about the file, then a line for each name, in the order
//! of their bytes: the name, a tab, and the model as JSON, or the name of another line. A name is `provider/model`, or
//! `model` alone, which means its maker's. The text stays as it is in memory; a line is parsed when it is asked for.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use interflow_types::schema::JsonSchema;
use interflow_types::{Timestamp, wildcard};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::capabilities::Capabilities;
use crate::names;
use crate::price::Price;

const BUILT_IN: &[u8] = include_bytes!("../data/catalog.zst");
/// The form of the file that this version reads.
const FORMAT: u32 = 1;
/// The largest text of a catalog, in bytes: ten times what it has.
const MAX_TEXT: usize = 10 << 20;
/// The most names whose models are kept. Clients choose the names.
const MAX_RESOLVED: usize = 2_048;
/// The longest name that is kept, in bytes: twice what the catalog has.
const MAX_NAME: usize = 256;

static CURRENT: LazyLock<ArcSwap<Catalog>> =
    LazyLock::new(|| ArcSwap::from_pointee(Catalog::read(BUILT_IN).expect("a test reads the built-in catalog")));

/// The catalog that applies now.
pub fn current() -> Arc<Catalog> {
    CURRENT.load_full()
}

/// Makes a catalog the one that applies, to all calls that end from now on.
pub fn install(catalog: Catalog) {
    CURRENT.store(Arc::new(catalog));
}

/// A model at a provider, or its maker's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CatalogModel")]
pub struct Model {
    /// The name in the catalog, with the provider.
    #[serde(skip)]
    pub name: String,
    /// What it is for: `chat`, `responses`, `embedding`, `image_generation` and others.
    pub mode: Option<String>,
    /// The last one that holds applies.
    pub prices: Vec<Arc<Price>>,
    pub limits: Limits,
    pub capabilities: Option<Arc<Capabilities>>,
    /// The last day on which its provider serves it.
    pub ends: Option<String>,
    /// What its provider names in its place.
    pub successor: Option<String>,
}

impl Model {
    /// The price at a time; `None` if it has none, or none yet.
    pub fn price_at(&self, at: Timestamp) -> Option<Arc<Price>> {
        self.prices.iter().rev().find(|price| price.holds_at(at)).cloned()
    }
}

/// The most tokens of a request and of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ModelLimits")]
pub struct Limits {
    pub input: Option<u64>,
    pub output: Option<u64>,
    /// The fewest tokens that a cache keeps.
    pub cache_min: Option<u64>,
}

/// What the first line of the file says.
#[derive(Clone, Debug, Deserialize)]
pub struct CatalogHeader {
    format: u32,
    /// The day of the data.
    pub as_of: String,
    pub sources: Vec<String>,
    /// Patterns of names, each with the name whose capabilities a model without an entry has. Prices are never taken
    /// from a family.
    families: Vec<(String, String)>,
}

/// All models of one catalog file.
#[derive(Debug)]
pub struct Catalog {
    header: CatalogHeader,
    text: Box<str>,
    /// Where the lines of names begin.
    body: usize,
    /// What it has of the models of calls, by `provider/model`: each is looked up several times in every call.
    resolved: Mutex<HashMap<Box<str>, ResolvedModel>>,
}

/// What the catalog has of a provider's model.
#[derive(Clone, Debug, Default)]
struct ResolvedModel {
    model: Option<Arc<Model>>,
    capabilities: Option<Arc<Capabilities>>,
}

impl Catalog {
    /// Reads a catalog file.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(file: &[u8]) -> Result<Self, String> {
        let text = zstd::bulk::decompress(file, MAX_TEXT).map_err(|e| format!("it cannot be decompressed: {e}"))?;
        let text = String::from_utf8(text).map_err(|e| e.to_string())?;
        let header = text.lines().next().unwrap_or_default();
        let body = text.len().min(header.len() + 1);
        let header: CatalogHeader = serde_json::from_str(header).map_err(|e| format!("line 1: {e}"))?;
        if header.format != FORMAT {
            return Err(format!("it has the form {}, but this version reads {FORMAT}", header.format));
        }
        if !crate::is_day(&header.as_of) {
            return Err(format!("line 1: `as_of` is a day such as 2026-12-01, not `{}`", header.as_of));
        }
        Ok(Self { header, text: text.into(), body, resolved: Mutex::default() })
    }

    /// Checks every line.
    ///
    /// # Errors
    /// The first line that is out of order, cannot be read, or leads to no model.
    pub fn check(&self) -> Result<(), String> {
        let mut last = "";
        for (number, line) in (2..).zip(self.text[self.body..].lines()) {
            let name = line.split('\t').next().unwrap_or_default();
            if name <= last || self.entry(name).is_none() {
                return Err(format!("line {number} is out of order or cannot be read"));
            }
            last = name;
        }
        Ok(())
    }

    pub const fn header(&self) -> &CatalogHeader {
        &self.header
    }

    /// The entry of a model: by its name as written, then without region, vendor and date; at the provider first, then
    /// the maker's.
    pub fn model(&self, provider: &str, model: &str) -> Option<Arc<Model>> {
        self.resolved(provider, model).model
    }

    /// What a model can do, by its own entry, its maker's, or its family's.
    pub fn capabilities(&self, provider: &str, model: &str) -> Option<Arc<Capabilities>> {
        self.resolved(provider, model).capabilities
    }

    fn resolved(&self, provider: &str, model: &str) -> ResolvedModel {
        let name = [provider, "/", model].concat();
        if let Some(resolved) = self.resolved.lock().get(&*name) {
            return resolved.clone();
        }
        let resolved = self.resolve(provider, model);
        if name.len() <= MAX_NAME {
            let mut all = self.resolved.lock();
            if all.len() >= MAX_RESOLVED {
                all.clear();
            }
            all.insert(name.into(), resolved.clone());
        }
        resolved
    }

    fn resolve(&self, provider: &str, model: &str) -> ResolvedModel {
        let base = names::base(model);
        let at_provider = |name: &str| self.entry(&format!("{provider}/{name}"));
        let entry = at_provider(model)
            .or_else(|| at_provider(base))
            .or_else(|| at_provider("*"))
            // A client must not name the line for all models of a provider.
            .or_else(|| self.entry(model).filter(|_| !model.contains('*')))
            .or_else(|| self.entry(base).filter(|_| !base.contains('*')));
        let of = |model: &Arc<Model>| model.capabilities.clone();
        let family = || self.header.families.iter().find(|(pattern, _)| wildcard::matches(pattern, base));
        let capabilities = (entry.as_ref().and_then(of))
            .or_else(|| self.entry(base).as_ref().and_then(of))
            .or_else(|| self.entry(&family()?.1).as_ref().and_then(of));
        ResolvedModel { model: entry, capabilities }
    }

    /// All names that contain `part`, with the provider, in their order.
    pub fn names<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.text[self.body..].lines().filter_map(|line| line.split_once('\t'));
        lines.map(|(name, _)| name).filter(move |name| name.contains('/') && name.contains(part))
    }

    /// The model of this name of the catalog.
    pub fn entry(&self, name: &str) -> Option<Arc<Model>> {
        let (name, value) = self.target(name)?;
        let model: Model = serde_json::from_str(value).ok()?;
        Some(Arc::new(Model { name: name.to_owned(), ..model }))
    }

    /// The model of this name as the catalog has it: a [`Model`] without what it lacks.
    pub fn record(&self, name: &str) -> Option<Map<String, Value>> {
        serde_json::from_str(self.target(name)?.1).ok()
    }

    /// The line of a model; a name may be that of another line, but never in two steps.
    fn target(&self, name: &str) -> Option<(&str, &str)> {
        let (name, value) = self.line(name)?;
        if value.starts_with('{') { Some((name, value)) } else { self.line(value) }
    }

    /// The line of a name, by bisection.
    fn line(&self, name: &str) -> Option<(&str, &str)> {
        let mut rest = &self.text[self.body..];
        while !rest.is_empty() {
            let middle = rest.as_bytes()[..rest.len() / 2].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
            let line = rest[middle..].lines().next()?;
            let (key, value) = line.split_once('\t')?;
            match key.cmp(name) {
                std::cmp::Ordering::Equal => return Some((key, value)),
                std::cmp::Ordering::Less => rest = rest[middle + line.len()..].trim_start_matches('\n'),
                std::cmp::Ordering::Greater => rest = &rest[..middle],
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capabilities::{ThinkingBinding, ThinkingMode};

    #[test]
    fn every_line_of_the_built_in_catalog_can_be_read_and_leads_to_a_model() {
        let catalog = current();
        assert_eq!(catalog.check(), Ok(()));
        assert!(catalog.names("").count() > 4_000);
        for (pattern, model) in &catalog.header.families {
            assert!(catalog.entry(model).is_some_and(|m| m.capabilities.is_some()), "{pattern}: {model}");
        }
        assert!(BUILT_IN.len() < 150_000, "{} bytes", BUILT_IN.len());
    }

    #[test]
    fn model_is_found_under_the_names_of_clouds_and_by_date_but_never_as_another_version() {
        let catalog = current();
        for (provider, model, expected) in [
            ("openai", "gpt-6.1-sol", Some("openai/gpt-6.1-sol")),
            ("mine", "gpt-6.1-sol", Some("openai/gpt-6.1-sol")),
            ("openai", "gpt-5.9", None),
            ("openai", "gpt-4o-future", None),
            ("anthropic", "claude-opus-5-5", Some("anthropic/claude-opus-5-5")),
            ("anthropic", "claude-opus-5-5-20260901", Some("anthropic/claude-opus-5-5")),
            ("anthropic", "claude-opus-5-6", None),
            ("bedrock", "us.anthropic.claude-opus-5-5", Some("bedrock/us.anthropic.claude-opus-5-5")),
            ("bedrock", "jp.anthropic.claude-fable-5-2", Some("anthropic/claude-fable-5-2")),
            ("vertex", "claude-fable-5-2@default", Some("anthropic/claude-fable-5-2")),
            ("gemini", "models/gemini-4-argon", Some("gemini/gemini-4-argon")),
            ("any", "nova-pro", Some("bedrock/amazon.nova-pro-v1:0")),
            ("ollama", "whatever", Some("ollama/*")),
            ("mine", "whatever", None),
            ("mine", "ollama/*", None),
        ] {
            // The second time from what was found before.
            for _ in 0..2 {
                assert_eq!(
                    catalog.model(provider, model).map(|m| m.name.clone()).as_deref(),
                    expected,
                    "{provider} {model}"
                );
            }
        }
    }

    #[test]
    fn model_without_an_entry_has_the_capabilities_of_its_family() {
        let capabilities = |model| current().capabilities("any", model);
        for (model, thinking) in [
            ("claude-fable-6", Some(ThinkingMode::Always)),
            ("us.anthropic.claude-opus-4-9-v1:0", Some(ThinkingMode::Optional)),
            ("claude-haiku-6", Some(ThinkingMode::Default)),
            ("claude-3-opus-20240229", Some(ThinkingMode::Never)),
            ("gpt-7-sol", Some(ThinkingMode::Always)),
            ("gemini-4-carbon", Some(ThinkingMode::Always)),
            ("nobody-knows", None),
        ] {
            assert_eq!(capabilities(model).map(|c| c.thinking), thinking, "{model}");
        }
        assert_eq!(capabilities("claude-opus-5-5").unwrap().bound_thinking, Some(ThinkingBinding::Model));
        assert_eq!(capabilities("claude-opus-5").unwrap().bound_thinking, None);
    }
}
