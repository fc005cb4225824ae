//! The room's door: texts and JSON bodies in, their redacted form out, and what was found where.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use crate::detect::Finding;
use crate::detector::Detector;
use crate::external_detectors::ExternalFindings;
use crate::finding_cache::FindingCache;
use crate::json::{self, JsonEdit, JsonPart, JsonSpan};
use crate::lexicon::{self, mark};
use crate::policy::{ConditionInput, KindRule, Policy};
use crate::span_resolution::resolve_overlaps;
use crate::strategy::{RedactionStrategy, StrategyInput};
use crate::vault::PlaceholderVault;
use crate::{Kind, RedactError, own_placeholders, stop_flag};

/// Carries out one policy. Cheap to share between threads; make one per policy and keep it.
#[derive(Debug)]
pub struct Redactor {
    policy: Arc<Policy>,
    engine: Detector,
    /// The words that placeholders of this policy begin with.
    labels: HashSet<String>,
    memo: Option<Arc<FindingCache>>,
}

/// JSON in a string in a string is opened this deep: what a tool is given to pass on. Deeper JSON is looked at as text.
const MAX_NESTED_JSON: usize = 4;

/// What belongs to one request or one conversation: the vault, the context, and values drawn by chance.
#[derive(Debug, Default)]
pub struct RedactionSession {
    vault: Option<PlaceholderVault>,
    context: String,
    opinion: ExternalFindings,
    heard: Option<Vec<String>>,
    drawn: HashMap<(Kind, String), String>,
    /// Whether the text at hand is part of a client's fixed prompts.
    fixed: bool,
}

impl RedactionSession {
    /// Without a way back: placeholders become plain redactions.
    pub fn one_way() -> Self {
        Self::default()
    }

    /// With a vault, so that the answer can be restored.
    pub fn reversible(vault: PlaceholderVault) -> Self {
        Self { vault: Some(vault), ..Self::default() }
    }

    /// The same with a context that conditions may ask for.
    #[must_use]
    pub fn in_context(mut self, context: impl Into<String>) -> Self {
        self.context = context.into();
        self
    }

    /// One that keeps every text it is shown, and finds nothing: to know beforehand what is going to be looked at.
    pub fn collecting() -> Self {
        Self { heard: Some(Vec::new()), ..Self::default() }
    }

    /// The texts that a listening session was shown.
    pub fn collected_texts(self) -> Vec<String> {
        self.heard.unwrap_or_default()
    }

    /// The same with what services found in the texts that are to come.
    #[must_use]
    pub fn with_external_findings(mut self, opinion: ExternalFindings) -> Self {
        self.opinion = opinion;
        self
    }

    /// Takes what services found in the texts that are to come.
    pub fn set_external_findings(&mut self, opinion: ExternalFindings) {
        self.opinion = opinion;
    }

    /// The vault, when there is one.
    pub const fn vault(&self) -> Option<&PlaceholderVault> {
        self.vault.as_ref()
    }

    /// Gives the vault back.
    pub fn into_vault(self) -> Option<PlaceholderVault> {
        self.vault
    }
}

/// One replacement, for explanations, audit and metrics. The original is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replacement {
    /// The type's name under the policy.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Byte offset in the input (in a JSON body: of the raw bytes).
    pub start: usize,
    /// Byte offset behind the last byte.
    pub end: usize,
    /// How sure the detector was, in percent.
    pub confidence: u8,
    /// What stands there now.
    pub replacement: String,
    /// The built-in kind.
    #[serde(skip)]
    pub kind: Kind,
}

/// The outcome for one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactionResult<T> {
    /// The changed input; `None` when nothing was found and the input stands as it is.
    pub output: Option<T>,
    /// What was replaced, in order.
    pub spans: Vec<Replacement>,
}

impl Redactor {
    /// A redactor for a policy.
    pub fn new(policy: Policy) -> Self {
        let engine = Detector { wants: policy.wants.clone() };
        let labels = policy.labels().map(str::to_owned).collect();
        Self { policy: Arc::new(policy), engine, labels, memo: None }
    }

    /// The same with a memo, which may be shared by several redactors.
    #[must_use]
    pub fn with_cache(mut self, memo: Arc<FindingCache>) -> Self {
        self.memo = Some(memo);
        self
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What would be replaced in a text, in order and without overlaps.
    pub fn find(&self, text: &str, session: &RedactionSession) -> Arc<[Finding]> {
        self.find_with_lead("", text, &session.context)
    }

    /// The same with words before the text that tell what it is.
    fn find_with_lead(&self, lead: &str, text: &str, context: &str) -> Arc<[Finding]> {
        let look = || self.find_uncached(lead, text, context);
        match &self.memo {
            Some(memo) => memo.get_or(&[&self.policy.version, context.as_bytes(), lead.as_bytes()], text, look),
            None => look().into(),
        }
    }

    fn find_uncached(&self, lead: &str, text: &str, context: &str) -> Vec<Finding> {
        let led: Cow<'_, str> = if lead.is_empty() { text.into() } else { format!("{lead}: {text}").into() };
        let offset = led.len() - text.len();
        let mut found = self.engine.find(&led);
        if offset > 0 {
            found.retain_mut(|f| {
                f.start = f.start.max(offset);
                f.start < f.end
            });
        }
        for f in &mut found {
            (f.start, f.end) = (f.start - offset, f.end - offset);
        }
        if !self.policy.terms.is_empty() {
            self.policy.terms.find(text, &mut found);
        }
        found.retain(|f| {
            self.is_reportable(f, text, context)
                && !(f.kind == Kind::Date && own_placeholders::is_current_date(text, f.start))
        });
        resolve_overlaps(&mut found);
        own_placeholders::exclude_placeholders(text, &self.labels, &mut found);
        found
    }

    /// Whether a finding counts: what does not is out before overlaps are decided, so that it takes nothing with it.
    fn is_reportable(&self, f: &Finding, text: &str, context: &str) -> bool {
        let rule = self.policy.rule(f.kind, f.rule);
        let Some(value) = text.get(f.start..f.end) else { return false };
        self.policy.is_reportable(rule, value, f.confidence) && matching_strategy(rule, f, text, context).is_some()
    }

    /// Redacts a text.
    ///
    /// # Errors
    /// When a strategy cannot be carried out or the vault is full; the text must then not go on.
    pub fn redact_text(
        &self,
        text: &str,
        session: &mut RedactionSession,
    ) -> Result<RedactionResult<String>, RedactError> {
        let spans = self.replacements("", text, session)?;
        if spans.is_empty() {
            return Ok(RedactionResult { output: None, spans });
        }
        Ok(RedactionResult { output: Some(apply_replacements(text, &spans)), spans })
    }

    pub(crate) fn replacements(
        &self,
        lead: &str,
        text: &str,
        session: &mut RedactionSession,
    ) -> Result<Vec<Replacement>, RedactError> {
        if let Some(heard) = &mut session.heard {
            heard.push(text.to_owned());
            return Ok(Vec::new());
        }
        let found = self.find_with_lead(lead, text, &session.context);
        if stop_flag::is_stop_requested() {
            return Err(RedactError::Stopped);
        }
        let found = self.add_external_findings(found, text, session);
        found.iter().map(|f| self.replacement(f, text, session)).collect()
    }

    /// Adds what services found and the policy wants.
    fn add_external_findings(&self, found: Arc<[Finding]>, text: &str, session: &RedactionSession) -> Arc<[Finding]> {
        let wanted =
            |f: &&Finding| self.policy.wants.kinds.has(f.kind) && self.is_reportable(f, text, &session.context);
        let more: Vec<Finding> = session.opinion.findings_in(text).iter().filter(wanted).copied().collect();
        if more.is_empty() {
            return found;
        }
        let mut all = [&*found, &more].concat();
        resolve_overlaps(&mut all);
        own_placeholders::exclude_placeholders(text, &self.labels, &mut all);
        all.into()
    }

    /// Redacts every string value, member name and number of a JSON body, also those of JSON held in strings. Everything
    /// else stays byte for byte.
    ///
    /// # Errors
    /// When the body is no JSON or not UTF-8, is nested too deeply, or a strategy cannot be carried out.
    pub fn redact_json(
        &self,
        body: &[u8],
        session: &mut RedactionSession,
    ) -> Result<RedactionResult<Vec<u8>>, RedactError> {
        let spans = json::json_parts(body)?;
        self.redact_spans(body, spans, session)
    }

    /// Redacts the named strings of a JSON body. Only the bytes of what was found change.
    ///
    /// The spans must be in order and not overlap; each is the inside of a string, as a reader of the body gave it.
    ///
    /// # Errors
    /// When a span is no string's inside, or as [`redact_json`](Self::redact_json).
    pub fn redact_spans(
        &self,
        body: &[u8],
        spans: impl IntoIterator<Item = JsonSpan>,
        session: &mut RedactionSession,
    ) -> Result<RedactionResult<Vec<u8>>, RedactError> {
        let spans: Vec<JsonSpan> = spans.into_iter().collect();
        let mut done: Vec<(Vec<JsonEdit>, Vec<Replacement>)> = vec![Default::default(); spans.len()];
        // What the fixed prompts hold has the same placeholder elsewhere in the body: they come first.
        for fixed in [true, false] {
            session.fixed = fixed;
            for (span, done) in spans.iter().zip(&mut done).filter(|(s, _)| s.fixed == fixed) {
                *done =
                    self.span_edits(body, span, span.range.start, usize::from(span.nested) * MAX_NESTED_JSON, session)?;
            }
        }
        let (mut edits, mut redacted) = (Vec::new(), Vec::new());
        for (span, (own, told)) in spans.iter().zip(done) {
            edits.extend(own.into_iter().map(|e| e.shifted_by(span.range.start)));
            redacted.extend(told);
        }
        let output = (!edits.is_empty()).then(|| json::apply_edits(body, &edits));
        Ok(RedactionResult { output, spans: redacted })
    }

    /// The edits of one span, in offsets of its own; `base` is added to what is told of it.
    fn span_edits(
        &self,
        body: &[u8],
        span: &JsonSpan,
        base: usize,
        nested: usize,
        session: &mut RedactionSession,
    ) -> Result<(Vec<JsonEdit>, Vec<Replacement>), RedactError> {
        let raw = body
            .get(span.range.clone())
            .ok_or(RedactError::Json { at: span.range.start, reason: "a span lies outside of the body" })?;
        let name = span.name.clone().and_then(|n| std::str::from_utf8(body.get(n)?).ok()).unwrap_or_default();
        match span.part {
            JsonPart::Text => self.string_edits(raw, base, name, nested, session),
            JsonPart::Name if is_plain_name(raw) => Ok(Default::default()),
            JsonPart::Name => self.string_edits(raw, base, "", 0, session),
            JsonPart::Number => self.number_edits(raw, base, name, session),
        }
    }

    /// A number is looked at as text behind its member's name. What stands in its place is a number when the strategy
    /// makes one, else a string, so that the body stays JSON.
    fn number_edits(
        &self,
        raw: &[u8],
        base: usize,
        name: &str,
        session: &mut RedactionSession,
    ) -> Result<(Vec<JsonEdit>, Vec<Replacement>), RedactError> {
        let digits = raw.iter().filter(|b| b.is_ascii_digit()).count();
        if digits < MIN_NUMBER_DIGITS && informative_name(name).is_empty() {
            return Ok(Default::default());
        }
        let text = std::str::from_utf8(raw).map_err(|e| RedactError::Utf8 { at: base + e.valid_up_to() })?;
        let lead = if name.len() <= MAX_LEAD_BYTES { name } else { "" };
        let mut told = self.replacements(lead, text, session)?;
        if told.is_empty() {
            return Ok(Default::default());
        }
        let output = apply_replacements(text, &told);
        let with = if json::is_number(&output) {
            output
        } else {
            let mut quoted = String::from("\"");
            json::escape_into(&output, &mut quoted);
            quoted + "\""
        };
        for r in &mut told {
            (r.start, r.end) = (r.start + base, r.end + base);
        }
        Ok((vec![JsonEdit { range: 0..raw.len(), with }], told))
    }

    /// The edits of one string's raw bytes; `nested` says how many levels of JSON in strings are opened.
    fn string_edits(
        &self,
        raw: &[u8],
        base: usize,
        name: &str,
        nested: usize,
        session: &mut RedactionSession,
    ) -> Result<(Vec<JsonEdit>, Vec<Replacement>), RedactError> {
        let decoded = json::decode(raw, base)?;
        if nested > 0
            && let Ok(inner) = json::json_parts(decoded.text.as_bytes())
        {
            return self.nested_edits(&decoded, inner, base, nested - 1, session);
        }
        let told = self.replacements(informative_name(name), &decoded.text, session)?;
        let mut edits = Vec::with_capacity(told.len());
        let told = told.into_iter().map(|mut r| {
            let range = decoded.map.start(r.start)..decoded.map.end(r.end);
            (r.start, r.end) = (range.start + base, range.end + base);
            let mut with = String::new();
            json::escape_into(&r.replacement, &mut with);
            edits.push(JsonEdit { range, with });
            r
        });
        let told = told.collect();
        Ok((edits, told))
    }

    /// JSON inside a string: the inner edits are escaped once more and brought back to the outer bytes.
    fn nested_edits(
        &self,
        outer: &json::DecodedString<'_>,
        inner: Vec<JsonSpan>,
        base: usize,
        levels: usize,
        session: &mut RedactionSession,
    ) -> Result<(Vec<JsonEdit>, Vec<Replacement>), RedactError> {
        let (mut edits, mut told) = (Vec::new(), Vec::new());
        for span in inner {
            let at = span.range.start;
            let deeper = if span.nested { levels } else { 0 };
            let (own, own_told) = self.span_edits(outer.text.as_bytes(), &span, 0, deeper, session)?;
            edits.extend(own.into_iter().map(|e| {
                let mut with = String::new();
                json::escape_into(&e.with, &mut with);
                JsonEdit { range: outer.map.start(e.range.start + at)..outer.map.end(e.range.end + at), with }
            }));
            told.extend(own_told.into_iter().map(|mut r| {
                (r.start, r.end) = (outer.map.start(r.start + at) + base, outer.map.end(r.end + at) + base);
                r
            }));
        }
        Ok((edits, told))
    }

    fn replacement(&self, f: &Finding, text: &str, session: &mut RedactionSession) -> Result<Replacement, RedactError> {
        let rule = self.policy.rule(f.kind, f.rule);
        let value = &text[f.start..f.end];
        let fallback = RedactionStrategy::redact();
        // A piece left over from an overlap may fail the condition that its whole passed: it is redacted all the same.
        let strategy = matching_strategy(rule, f, text, &session.context).unwrap_or(&fallback);
        let subject = StrategyInput {
            value,
            kind: f.kind,
            type_name: &rule.name,
            label: &rule.label,
            class: rule.class.as_deref(),
        };
        let replacement = match (strategy, &mut session.vault) {
            (RedactionStrategy::Placeholder, Some(vault)) => {
                vault.placeholder_for(f.kind, &rule.label, value, session.fixed)?
            }
            (random, _) if random.is_random() => {
                let key = (f.kind, value.to_owned());
                match session.drawn.get(&key) {
                    Some(drawn) => drawn.clone(),
                    None => {
                        let drawn = random.apply(&subject, &self.policy.keys)?;
                        session.drawn.insert(key, drawn.clone());
                        drawn
                    }
                }
            }
            (other, _) => other.apply(&subject, &self.policy.keys)?,
        };
        Ok(Replacement {
            type_name: rule.name.clone(),
            start: f.start,
            end: f.end,
            confidence: f.confidence,
            replacement,
            kind: f.kind,
        })
    }

    /// Turns a value back that the policy's `encrypt` strategy made.
    ///
    /// # Errors
    /// When the policy has no key, or the value is none of its own.
    pub fn decrypt(&self, value: &str) -> Result<String, RedactError> {
        self.policy.keys.decrypt(value)
    }

    /// Turns a value back that the policy's `fpe` strategy made.
    ///
    /// # Errors
    /// When the policy has no key, or the value is too short to be one of its own.
    pub fn fpe_decrypt(&self, value: &str) -> Result<String, RedactError> {
        self.policy.keys.fpe_decrypt(value)
    }
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new(Policy::default())
    }
}

/// A text with its replacements, which are in order and do not overlap.
fn apply_replacements(text: &str, spans: &[Replacement]) -> String {
    let mut out = String::with_capacity(text.len() + spans.len() * 8);
    let mut at = 0;
    for span in spans {
        out.push_str(&text[at..span.start]);
        out.push_str(&span.replacement);
        at = span.end;
    }
    out.push_str(&text[at..]);
    out
}

/// Numbers with fewer digits are looked at only where a name tells what they are.
const MIN_NUMBER_DIGITS: usize = 7;
/// Longest name that is read before a value.
const MAX_LEAD_BYTES: usize = 64;

/// A member's name that is a word of a program: small letters and underscores.
fn is_plain_name(raw: &[u8]) -> bool {
    raw.len() <= MAX_LEAD_BYTES && raw.iter().all(|b| b.is_ascii_lowercase() || *b == b'_')
}

/// The first strategy whose condition holds.
fn matching_strategy<'r>(rule: &'r KindRule, f: &Finding, text: &str, context: &str) -> Option<&'r RedactionStrategy> {
    let before_at = text.floor_char_boundary(f.start.saturating_sub(80));
    let facts = ConditionInput {
        token: &text[f.start..f.end],
        context,
        confidence: f64::from(f.confidence) / 100.0,
        type_name: &rule.name,
        class: rule.class.as_deref().unwrap_or(&rule.name),
        before: &text[before_at..f.start],
    };
    rule.strategies.iter().find(|(c, _)| c.as_ref().is_none_or(|c| c.holds(&facts))).map(|(_, s)| s)
}

/// A member's name when it tells something about its value, else nothing.
fn informative_name(name: &str) -> &str {
    if name.is_empty() || name.len() > 64 {
        return "";
    }
    let tells = |part: &str| {
        let entry = lexicon::look_up(part);
        entry.topics != 0 || entry.marks & mark::NAME_CUE != 0
    };
    let mut parts = name.split(|c: char| !c.is_alphanumeric()).flat_map(camel_words);
    if tells(name) || parts.any(tells) { name } else { "" }
}

/// The parts of a `camelCase` word.
fn camel_words(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let bytes = rest.as_bytes();
        let cut = (1..bytes.len()).find(|i| bytes[*i].is_ascii_uppercase() && bytes[i - 1].is_ascii_lowercase());
        let (part, after) = rest.split_at(cut.unwrap_or(rest.len()));
        rest = after;
        Some(part)
    })
}
