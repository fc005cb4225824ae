//! Policies: what to detect, with which confidence, and how findings are replaced.

mod condition;
pub(crate) mod custom_rules;
mod file;
mod phileas;
mod source_location;

use std::collections::{HashMap, HashSet};

use interflow_codec::document::from_toml;
use regex::{Regex, RegexBuilder};

pub(crate) use condition::ConditionInput;
pub use condition::StrategyCondition;
pub use file::{
    ConditionalFile, CryptoFile, FpeFile, KindFile, PatternFile, PatternValidator, PolicyFile, SectionFile,
    StrategyFile, TermsFile,
};

pub use source_location::PolicyProblem;

use crate::detect::KindFilter;
use crate::policy::custom_rules::CustomRules;
use crate::strategy::{PolicyKeys, RedactionStrategy};
use crate::{Kind, KindSet, RedactError, Result};

/// Minimum confidence in percent where a policy states none.
pub const DEFAULT_CONFIDENCE: u8 = 50;

/// A compiled policy. Immutable, and shared by all requests that use it.
#[derive(Debug)]
pub struct Policy {
    pub(crate) parts: PolicyParts,
    kinds: Vec<KindRule>,
    /// A fingerprint of everything that influences the result; caches of findings have it in their keys.
    pub(crate) version: [u8; 32],
}

/// The handling of findings of one kind: its name in explanations and in `%t`, the label with which a placeholder
/// begins, the classification in `%l` and in conditions, and the minimum confidence in percent.
#[derive(Debug, Default)]
pub(crate) struct KindRule {
    pub name: String,
    pub label: String,
    pub class: Option<String>,
    pub confidence: u8,
    /// The first strategy whose condition holds is applied.
    pub strategies: Vec<(Option<StrategyCondition>, RedactionStrategy)>,
    pub ignore: IgnoreList,
}

/// Values that are not redacted: terms, and patterns for the whole value.
#[derive(Debug, Default, Clone)]
pub(crate) struct IgnoreList {
    exact: HashSet<String>,
    folded: HashSet<String>,
    patterns: Vec<Regex>,
}

impl IgnoreList {
    /// Adds a term; without `case_sensitive` it is compared in lower case.
    fn add(&mut self, term: &str, case_sensitive: bool) {
        if case_sensitive {
            self.exact.insert(term.to_owned());
        } else {
            self.folded.insert(term.to_lowercase());
        }
    }

    fn add_pattern(&mut self, pattern: &str) -> Result<()> {
        self.patterns.push(compile(&format!("^(?:{pattern})$"), true)?);
        Ok(())
    }

    pub fn contains(&self, value: &str) -> bool {
        self.exact.contains(value)
            || !self.folded.is_empty() && self.folded.contains(&value.to_lowercase())
            || self.patterns.iter().any(|p| p.is_match(value))
    }
}

/// Maximum size of a compiled pattern in bytes: 4 MiB.
const PATTERN_SIZE: usize = 4 << 20;

/// Compiles a pattern of a policy, with a limit on its size.
pub(crate) fn compile(pattern: &str, case_sensitive: bool) -> Result<Regex> {
    RegexBuilder::new(pattern)
        .case_insensitive(!case_sensitive)
        .size_limit(PATTERN_SIZE)
        .build()
        .map_err(|e| RedactError::Policy(format!("the pattern `{pattern}` cannot be used: {e}")))
}

impl Policy {
    /// Parses a policy: Interflow's TOML, or Phileas's JSON if the text begins with `{`.
    ///
    /// # Errors
    /// The text is malformed, has an unknown key, kind or strategy, or a pattern that does not compile.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') { phileas::compile_policy(text) } else { Self::from_toml(text) }
    }

    /// Parses the TOML format.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn from_toml(text: &str) -> Result<Self> {
        let file: PolicyFile =
            from_toml(text).map_err(|e| RedactError::Policy(interflow_query::with_suggestion(&e.to_string())))?;
        file.compile(text.as_bytes())
    }

    /// The JSON Schema of the TOML format, generated from its types.
    #[cfg(feature = "schema")]
    pub fn generate_schema() -> serde_json::Value {
        schemars::schema_for!(PolicyFile).to_value()
    }

    /// The JSON Schema of the TOML format: the committed form of what is generated.
    pub fn schema() -> serde_json::Value {
        serde_json::from_str(include_str!("../../../docs/reference/schemas/policy.json")).expect("a test parses it")
    }

    /// The name in explanations and metrics.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// A fingerprint of the policy's text and the files that it names, for audit records and caches.
    pub fn version(&self) -> &[u8; 32] {
        &self.version
    }

    /// The rule for a kind; for kinds of the policy itself, by the index in the finding.
    pub(crate) fn rule(&self, kind: Kind, custom: u16) -> &KindRule {
        match kind {
            Kind::Custom | Kind::Identifier | Kind::Section => &self.parts.custom[usize::from(custom)],
            _ => &self.kinds[kind as usize],
        }
    }

    /// The labels of all placeholders that this policy can produce.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.kinds.iter().chain(&self.parts.custom).map(|r| r.label.as_str())
    }

    /// Whether a finding counts: sufficient confidence, and not on an ignore list.
    pub(crate) fn is_reportable(&self, rule: &KindRule, value: &str, confidence: u8) -> bool {
        confidence >= rule.confidence && !self.parts.ignore.contains(value) && !rule.ignore.contains(value)
    }
}

impl Default for Policy {
    /// Redacts all personal data and every secret, but not money and bare state abbreviations.
    fn default() -> Self {
        PolicyFile::default().compile(b"default").expect("the built-in policy has no patterns")
    }
}

/// What the parser of either format makes of a policy.
#[derive(Debug, Default)]
pub(crate) struct PolicyParts {
    pub name: String,
    pub wants: KindFilter,
    /// Those of the kinds that the file mentions, until the policy is built.
    pub rules: HashMap<Kind, KindRule>,
    pub custom: Vec<KindRule>,
    pub terms: CustomRules,
    pub ignore: IgnoreList,
    pub keys: PolicyKeys,
    /// Over the files that the policy names, until it is built: what they hold is a part of it.
    pub fingerprint: blake3::Hasher,
}

impl PolicyParts {
    /// Adds a custom rule and returns its index.
    pub fn add_custom_rule(&mut self, rule: KindRule) -> Result<u16> {
        self.custom.push(rule);
        u16::try_from(self.custom.len() - 1)
            .map_err(|_| RedactError::Policy("more than 65,535 rules of its own".to_owned()))
    }

    /// The policy, with `default` for kinds that the file does not mention. `text` is what the fingerprint is of.
    pub fn build(mut self, default: impl Fn(Kind) -> KindRule, text: &[u8]) -> Result<Policy> {
        // A strategy without its key must fail when the policy is loaded, not when the first finding occurs.
        for rule in self.rules.values().chain(&self.custom) {
            rule.strategies.iter().try_for_each(|(_, s)| s.check(&self.keys))?;
        }
        let rule = |k: &Kind| self.rules.remove(k).unwrap_or_else(|| default(*k));
        let kinds: Vec<KindRule> = Kind::ALL.iter().map(rule).collect();
        if let Some(rule) = kinds.iter().find(|rule| rule.confidence > 100) {
            return Err(RedactError::Policy(format!("the confidence {} is more than 100 percent", rule.confidence)));
        }
        self.terms.finish()?;
        let version = *self.fingerprint.update(text).finalize().as_bytes();
        Ok(Policy { parts: self, kinds, version })
    }
}

/// The kinds that a policy detects by default: all but those that are rarely personal on their own.
pub(crate) fn default_kinds() -> KindSet {
    let mut kinds = KindSet::all();
    for off in [Kind::Currency, Kind::StateAbbreviation, Kind::PhoneExtension] {
        kinds.remove(off);
    }
    kinds
}
