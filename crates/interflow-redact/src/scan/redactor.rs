//! The redactor: applies a policy to texts and JSON bodies, and reports the replacements.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use interflow_codec::json::replace_ranges;
use interflow_types::schema::JsonSchema;
use parking_lot::Mutex;
use serde::Serialize;

use crate::detect::detector::Detector;
use crate::detect::{Finding, NameEvidence, camel_words, is_weighed};
use crate::lexicon::{self, mark};
use crate::model::ModelFindings;
use crate::policy::{ConditionInput, KindRule, Policy};
use crate::remote::ExternalFindings;
use crate::scan::finding_cache::FindingCache;
use crate::scan::span_resolution::resolve_overlaps;
use crate::scan::stop_flag;
use crate::strategy::{RedactionStrategy, StrategyInput};
use crate::text::encoded_text::{self, DecodedPart};
use crate::text::json::{self, JsonEdit, JsonPart, JsonSpan};
use crate::text::normalized_text::normalize;
use crate::vault::PlaceholderVault;
use crate::vault::own_placeholders;
use crate::{Kind, RedactError, Result};

/// Applies one policy. Cheap to share between threads; create one per policy.
///
/// ```
/// use interflow_redact::{PlaceholderVault, RedactionSession, Redactor, VaultKey};
///
/// let text = "My number is 4111 1111 1111 1111.";
/// let vault = PlaceholderVault::new(&VaultKey::random()?);
/// let mut session = RedactionSession::reversible(vault);
/// let redacted = Redactor::default().redact_text(text, &mut session)?.output.expect("a card number was found");
/// assert!(!redacted.contains("4111"));
///
/// let vault = session.vault().expect("a reversible session has a vault");
/// assert_eq!(vault.restore(&redacted), text);
/// # Ok::<(), interflow_redact::RedactError>(())
/// ```
#[derive(Debug)]
pub struct Redactor {
    policy: Arc<Policy>,
    engine: Detector,
    labels: HashSet<String>,
    memo: Option<Arc<FindingCache>>,
}

/// Maximum depth of JSON in strings that is edited as JSON, as in nested tool arguments. Deeper JSON is scanned as
/// text.
const MAX_NESTED_JSON: usize = 4;

/// The state of one request or one conversation: the vault, the context, external findings, and random replacements.
#[derive(Debug, Default)]
pub struct RedactionSession {
    vault: Option<PlaceholderVault>,
    context: String,
    /// What external detectors find in the following texts.
    pub external: ExternalFindings,
    /// What a model finds in the following texts.
    pub model: ModelFindings,
    /// Texts collected instead of redacted, if the session only collects.
    heard: Option<Vec<String>>,
    /// Random replacements so far, by kind and value.
    drawn: HashMap<(Kind, String), String>,
    /// Whether the current text belongs to a client's fixed prompts.
    fixed: bool,
    /// The originals of this session and of the own vault are replaced also where no detector finds them.
    repeated: Option<Arc<Mutex<Self>>>,
}

impl RedactionSession {
    /// A session without restoration: a placeholder strategy is applied as `redact`.
    pub fn one_way() -> Self {
        Self::default()
    }

    /// A session with a vault, so that the response can be restored.
    pub fn reversible(vault: PlaceholderVault) -> Self {
        Self { vault: Some(vault), ..Self::default() }
    }

    /// Sets the context that conditions of the policy may test.
    pub fn in_context(mut self, context: impl Into<String>) -> Self {
        self.context = context.into();
        self
    }

    /// A session of texts that may repeat what another session, or this one before, replaced: it is replaced again, also where
    /// no detector finds it.
    pub fn repeating(mut self, other: Arc<Mutex<Self>>) -> Self {
        self.repeated = Some(other);
        self
    }

    /// Adds the originals in a text to what is replaced in it. A finding stays that an original is a part of.
    fn add_repeated(&self, text: &str, replacements: &mut Vec<Replacement>) {
        let Some(other) = self.repeated.as_ref().map(|other| other.lock()) else { return };
        for (range, placeholder) in [&other.vault, &self.vault].into_iter().flatten().flat_map(|v| v.originals_in(text))
        {
            let from = replacements.partition_point(|r| r.end <= range.start);
            let to = replacements.partition_point(|r| r.start < range.end).max(from);
            let overlapping = &replacements[from..to];
            if overlapping.iter().any(|r| r.start <= range.start && range.end <= r.end) {
                continue;
            }
            let label = placeholder.rsplit_once('_').map_or(placeholder, |(label, _)| label);
            let known = Replacement {
                type_name: label.to_ascii_lowercase(),
                start: overlapping.first().map_or(range.start, |r| r.start.min(range.start)),
                end: overlapping.last().map_or(range.end, |r| r.end.max(range.end)),
                confidence: 100,
                replacement: placeholder.to_owned(),
                kind: Kind::Custom,
                evidence: None,
            };
            replacements.splice(from..to, [known]);
        }
    }

    /// A session that collects every text and finds nothing, to determine in advance what will be scanned.
    pub fn collecting() -> Self {
        Self { heard: Some(Vec::new()), ..Self::default() }
    }

    /// The texts in the order in which they would be scanned.
    pub fn collected_texts(self) -> Vec<String> {
        self.heard.unwrap_or_default()
    }

    pub const fn vault(&self) -> Option<&PlaceholderVault> {
        self.vault.as_ref()
    }
}

/// One replacement, for explanations, audit and metrics. Does not contain the original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Replacement {
    /// The type's name under the policy.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Byte offset in the input (in a JSON body: of the raw bytes).
    pub start: usize,
    /// End offset in bytes, exclusive.
    pub end: usize,
    /// The detector's confidence in percent.
    pub confidence: u8,
    /// The replacement text.
    pub replacement: String,
    #[serde(skip)]
    pub kind: Kind,
    /// For names: the features that count for it.
    #[serde(skip)]
    pub evidence: Option<NameEvidence>,
}

/// The result of a redaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactionResult<T> {
    /// The changed input; `None` if nothing was found.
    pub output: Option<T>,
    /// The replacements in order, also if the strategy left the text as it was.
    pub spans: Vec<Replacement>,
}

/// The edits of a span, and what they replace.
type SpanEdits = (Vec<JsonEdit>, Vec<Replacement>);

impl Redactor {
    /// Compiles the detector for a policy.
    pub fn new(policy: Policy) -> Self {
        let engine = Detector::new(policy.parts.wants.clone());
        let labels = policy.labels().map(str::to_owned).collect();
        Self { policy: Arc::new(policy), engine, labels, memo: None }
    }

    /// Sets a cache, which several redactors may share: its keys contain the policy's fingerprint.
    pub fn with_cache(mut self, memo: Arc<FindingCache>) -> Self {
        self.memo = Some(memo);
        self
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What would be replaced in a text, in order and without overlaps; without external findings.
    pub fn find(&self, text: &str, session: &RedactionSession) -> Arc<[Finding]> {
        let model = session.model.findings_in(text);
        let findings = self.find_with_lead("", text, &session.context, model.as_deref());
        self.add_findings(findings, beside_names(model.as_deref()), text, &session.context)
    }

    /// The same with a lead: words before the text that indicate its kind. What a model found of names is weighed here,
    /// its other findings are not added.
    fn find_with_lead(&self, lead: &str, text: &str, context: &str, model: Option<&[Finding]>) -> Arc<[Finding]> {
        let look = || self.find_uncached(lead, text, context, model);
        let opinion = model.map(model_key).unwrap_or_default();
        match &self.memo {
            Some(memo) => {
                memo.get_or(&[&self.policy.version, context.as_bytes(), lead.as_bytes(), &opinion], text, look)
            }
            None => look().into(),
        }
    }

    /// The findings in the text and in what it holds in another encoding.
    fn find_uncached(&self, lead: &str, text: &str, context: &str, model: Option<&[Finding]>) -> Vec<Finding> {
        let mut findings = self.find_literal(lead, text, context, model);
        encoded_text::each_part(text, |part| self.find_decoded(lead, part, context, 1, &mut findings));
        resolve_overlaps(&mut findings);
        own_placeholders::exclude_placeholders(text, &self.labels, &mut findings);
        findings
    }

    /// Adds the findings in a decoded part, with the offsets of what stands for them.
    fn find_decoded(&self, lead: &str, part: &DecodedPart, context: &str, depth: usize, found: &mut Vec<Finding>) {
        let mut own = self.find_literal(lead, &part.text, context, None);
        if depth < encoded_text::MAX_DEPTH {
            encoded_text::each_part(&part.text, |inner| self.find_decoded("", inner, context, depth + 1, &mut own));
        }
        own_placeholders::exclude_placeholders(&part.text, &self.labels, &mut own);
        let literal = found.len();
        for f in own {
            let Some(source) = part.source(f.start..f.end) else { continue };
            if part.accepts(&f, &source, &found[..literal]) {
                found.push(Finding { start: source.start, end: source.end, ..f });
            }
        }
    }

    fn find_literal(&self, lead: &str, text: &str, context: &str, model: Option<&[Finding]>) -> Vec<Finding> {
        // The lead makes a bare value recognisable, as `password` does for the value of a member with that name.
        let led: Cow<'_, str> = if lead.is_empty() { text.into() } else { format!("{lead}: {text}").into() };
        let offset = led.len() - text.len();
        let model = model.map(|m| m.iter().map(|f| Finding { start: f.start + offset, end: f.end + offset, ..*f }));
        let mut findings = self.engine.find_with_model(&led, offset, model.map(Iterator::collect));
        if offset > 0 {
            findings.retain_mut(|f| {
                // A finding may extend over the lead; only its part in the text counts.
                f.start = f.start.max(offset);
                f.start < f.end
            });
        }
        for f in &mut findings {
            (f.start, f.end) = (f.start - offset, f.end - offset);
        }
        // Custom rules see the text without the lead.
        if !self.policy.parts.terms.is_empty() {
            let (plain, map) = normalize(text);
            let from = findings.len();
            self.policy.parts.terms.find(&plain, &mut findings);
            if let Some((flat, lines)) = encoded_text::unwrap_lines(&plain) {
                let from = findings.len();
                self.policy.parts.terms.find_terms(&flat, &mut findings);
                for f in findings.iter_mut().skip(from) {
                    (f.start, f.end) = (lines.start(f.start), lines.end(f.end));
                }
            }
            for f in findings.iter_mut().skip(from) {
                (f.start, f.end) = (map.start(f.start), map.end(f.end));
            }
        }
        findings.retain(|f| {
            self.is_reportable(f, text, context)
                && !(f.kind == Kind::Date && own_placeholders::is_current_date(text, f.start))
        });
        findings
    }

    /// Whether a finding counts. Applied before overlaps are resolved, so that a discarded finding does not remove
    /// others.
    fn is_reportable(&self, f: &Finding, text: &str, context: &str) -> bool {
        let rule = self.policy.rule(f.kind, f.rule);
        let Some(value) = text.get(f.start..f.end) else { return false };
        self.policy.is_reportable(rule, value, f.confidence) && matching_strategy(rule, f, text, context).is_some()
    }

    /// Redacts a text.
    ///
    /// # Errors
    /// A strategy cannot be applied or the vault is full; the text must then not be forwarded.
    pub fn redact_text(&self, text: &str, session: &mut RedactionSession) -> Result<RedactionResult<String>> {
        let spans = self.replacements("", text, session)?;
        if spans.is_empty() {
            return Ok(RedactionResult { output: None, spans });
        }
        Ok(RedactionResult { output: Some(apply_replacements(text, &spans)), spans })
    }

    /// The replacements for a text, without applying them. `lead` are words before it that indicate its kind.
    pub(crate) fn replacements(
        &self,
        lead: &str,
        text: &str,
        session: &mut RedactionSession,
    ) -> Result<Vec<Replacement>> {
        if let Some(heard) = &mut session.heard {
            heard.push(text.to_owned());
            return Ok(Vec::new());
        }
        let model = session.model.findings_in(text);
        let findings = self.find_with_lead(lead, text, &session.context, model.as_deref());
        // After the scan: its findings may be incomplete, and must not be used.
        if stop_flag::is_stop_requested() {
            return Err(RedactError::Stopped);
        }
        let more = session.external.findings_in(text).iter().chain(beside_names(model.as_deref()));
        let findings = self.add_findings(findings, more, text, &session.context);
        let mut found = findings.iter().map(|f| self.replacement(f, text, session)).collect::<Result<_>>()?;
        session.add_repeated(text, &mut found);
        Ok(found)
    }

    /// Adds the findings of external detectors and of a model that the policy enables. A model's names are in `found`
    /// already, as far as the weights say so.
    fn add_findings<'f>(
        &self,
        found: Arc<[Finding]>,
        more: impl Iterator<Item = &'f Finding>,
        text: &str,
        context: &str,
    ) -> Arc<[Finding]> {
        let is_enabled =
            |f: &&Finding| self.policy.parts.wants.kinds.has(f.kind) && self.is_reportable(f, text, context);
        let more: Vec<Finding> = more.filter(is_enabled).copied().collect();
        if more.is_empty() {
            return found;
        }
        let mut all = [&*found, &more].concat();
        resolve_overlaps(&mut all);
        own_placeholders::exclude_placeholders(text, &self.labels, &mut all);
        all.into()
    }

    /// Redacts every string value, member name and number of a JSON body, including JSON in strings. All other bytes
    /// are unchanged.
    ///
    /// # Errors
    /// The body is not JSON or not UTF-8, is nested too deeply, or a strategy cannot be applied.
    pub fn redact_json(&self, body: &[u8], session: &mut RedactionSession) -> Result<RedactionResult<Vec<u8>>> {
        let spans = json::json_parts(body)?;
        self.redact_spans(body, spans, session)
    }

    /// Redacts the given strings of a JSON body. Only the bytes of findings change.
    ///
    /// The spans must be in order and not overlap; each is the content of a string, as located by a parser of the body.
    ///
    /// # Errors
    /// A span is not the content of a string, or as [`redact_json`](Self::redact_json).
    pub fn redact_spans(
        &self,
        body: &[u8],
        spans: impl IntoIterator<Item = JsonSpan>,
        session: &mut RedactionSession,
    ) -> Result<RedactionResult<Vec<u8>>> {
        let spans: Vec<JsonSpan> = spans.into_iter().collect();
        let mut done: Vec<SpanEdits> = vec![Default::default(); spans.len()];
        // Values in the fixed prompts have the same placeholder elsewhere in the body, so these are processed first.
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
        let replacements = edits.iter().map(|edit| (edit.range.clone(), edit.with.as_bytes()));
        let output = (!edits.is_empty()).then(|| replace_ranges(body, replacements));
        Ok(RedactionResult { output, spans: redacted })
    }

    /// The edits of one span, with offsets relative to it; `base` is added to the reported offsets only.
    fn span_edits(
        &self,
        body: &[u8],
        span: &JsonSpan,
        base: usize,
        nested: usize,
        session: &mut RedactionSession,
    ) -> Result<SpanEdits> {
        let raw = body
            .get(span.range.clone())
            .ok_or(RedactError::Json { at: span.range.start, reason: "a span lies outside of the body" })?;
        let name = span.name.clone().and_then(|n| std::str::from_utf8(body.get(n)?).ok()).unwrap_or_default();
        match span.part {
            JsonPart::Text => self.string_edits(raw, base, name, nested, session),
            JsonPart::Name if plain_name(raw).is_some_and(|n| !self.is_named_by_policy(n)) => Ok(Default::default()),
            JsonPart::Name => self.string_edits(raw, base, "", 0, session),
            JsonPart::Number => self.number_edits(raw, base, name, session),
        }
    }

    /// Whether the policy's own terms, patterns or sections occur in a text that is not scanned otherwise.
    fn is_named_by_policy(&self, text: &str) -> bool {
        let mut named = Vec::new();
        self.policy.parts.terms.find(text, &mut named);
        !named.is_empty()
    }

    /// Scans a number as text after its member's name. The replacement is written as a number if it is one, else as a
    /// string, so that the body remains JSON.
    fn number_edits(&self, raw: &[u8], base: usize, name: &str, session: &mut RedactionSession) -> Result<SpanEdits> {
        // Most numbers are counts or prices; scanning all of them would find dates and phone numbers.
        let digits = raw.iter().filter(|b| b.is_ascii_digit()).count();
        let is_plain = digits < MIN_NUMBER_DIGITS && informative_name(name).is_empty();
        if is_plain && self.policy.parts.terms.is_empty() {
            return Ok(Default::default());
        }
        let text = std::str::from_utf8(raw).map_err(|e| RedactError::Utf8 { at: base + e.valid_up_to() })?;
        let integer = json::integer_digits(text);
        let text = integer.as_deref().unwrap_or(text);
        if is_plain && !self.is_named_by_policy(text) {
            return Ok(Default::default());
        }
        let lead = if name.len() <= MAX_LEAD_BYTES { name } else { "" };
        let mut replacements = self.replacements(lead, text, session)?;
        if replacements.is_empty() {
            return Ok(Default::default());
        }
        let output = apply_replacements(text, &replacements);
        let with = if json::is_number(&output) { output } else { format!("\"{}\"", json::escaped(&output)) };
        for r in &mut replacements {
            // Of another spelling, the whole number is what was found.
            let range = if integer.is_some() { 0..raw.len() } else { r.start..r.end };
            (r.start, r.end) = (range.start + base, range.end + base);
        }
        Ok((vec![JsonEdit { range: 0..raw.len(), with }], replacements))
    }

    /// The edits of one string's raw bytes; `nested` is the remaining depth of JSON in strings.
    fn string_edits(
        &self,
        raw: &[u8],
        base: usize,
        name: &str,
        nested: usize,
        session: &mut RedactionSession,
    ) -> Result<SpanEdits> {
        let decoded = json::decode(raw, base)?;
        if nested > 0
            // A string that only looks like JSON is scanned as text, which is why the error is not returned.
            && let Ok(inner) = json::json_parts(decoded.text.as_bytes())
        {
            return self.nested_edits(&decoded, inner, base, nested - 1, session);
        }
        let replacements = self.replacements(informative_name(name), &decoded.text, session)?;
        let mut edits = Vec::with_capacity(replacements.len());
        let replacements = replacements.into_iter().map(|mut r| {
            let range = decoded.map.start(r.start)..decoded.map.end(r.end);
            (r.start, r.end) = (range.start + base, range.end + base);
            edits.push(JsonEdit { range, with: json::escaped(&r.replacement) });
            r
        });
        let replacements = replacements.collect();
        Ok((edits, replacements))
    }

    /// JSON in a string: the inner edits are escaped once more and mapped to the outer bytes. Reported offsets are
    /// those of the outer body.
    fn nested_edits(
        &self,
        outer: &json::DecodedString<'_>,
        inner: Vec<JsonSpan>,
        base: usize,
        levels: usize,
        session: &mut RedactionSession,
    ) -> Result<SpanEdits> {
        let (mut edits, mut told) = (Vec::new(), Vec::new());
        for span in inner {
            let at = span.range.start;
            let deeper = if span.nested { levels } else { 0 };
            let (own, own_told) = self.span_edits(outer.text.as_bytes(), &span, 0, deeper, session)?;
            edits.extend(own.into_iter().map(|e| JsonEdit {
                range: outer.map.start(e.range.start + at)..outer.map.end(e.range.end + at),
                with: json::escaped(&e.with),
            }));
            told.extend(own_told.into_iter().map(|mut r| {
                (r.start, r.end) = (outer.map.start(r.start + at) + base, outer.map.end(r.end + at) + base);
                r
            }));
        }
        Ok((edits, told))
    }

    /// The replacement of one finding by its strategy.
    fn replacement(&self, f: &Finding, text: &str, session: &mut RedactionSession) -> Result<Replacement> {
        let rule = self.policy.rule(f.kind, f.rule);
        let value = &text[f.start..f.end];
        let fallback = RedactionStrategy::redact();
        // The rest of a finding after overlap resolution may not meet the condition that the whole met: it is redacted
        // regardless.
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
            // Equal values get the same replacement within a session; otherwise relations between them would be lost.
            (random, _) if random.is_random() => {
                let key = (f.kind, value.to_owned());
                match session.drawn.get(&key) {
                    Some(drawn) => drawn.clone(),
                    None => {
                        let drawn = random.apply(&subject, &self.policy.parts.keys)?;
                        session.drawn.insert(key, drawn.clone());
                        drawn
                    }
                }
            }
            (other, _) => other.apply(&subject, &self.policy.parts.keys)?,
        };
        Ok(Replacement {
            type_name: rule.name.clone(),
            start: f.start,
            end: f.end,
            confidence: f.confidence,
            replacement,
            kind: f.kind,
            evidence: f.evidence,
        })
    }
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new(Policy::default())
    }
}

/// Applies the replacements, which are in order and do not overlap.
fn apply_replacements(text: &str, spans: &[Replacement]) -> String {
    let edits = spans.iter().map(|span| (span.start..span.end, span.replacement.as_bytes()));
    String::from_utf8(replace_ranges(text.as_bytes(), edits)).expect("findings begin and end between characters")
}

/// Numbers with fewer digits are scanned only if a name indicates their kind.
const MIN_NUMBER_DIGITS: usize = 7;
/// Maximum length in bytes of a name that is used as a lead; a longer one is not a label but data.
const MAX_LEAD_BYTES: usize = 64;

/// What a model found besides names, which are weighed with the features of the built-in detectors.
fn beside_names(model: Option<&[Finding]>) -> impl Iterator<Item = &Finding> {
    model.unwrap_or_default().iter().filter(|f| !is_weighed(f.kind))
}

/// A model's findings as a part of a cache key. Without a model it is empty.
fn model_key(findings: &[Finding]) -> Vec<u8> {
    let part = |f: &Finding| {
        [&(f.start as u64).to_le_bytes()[..], &(f.end as u64).to_le_bytes(), &[f.kind as u8, f.confidence]].concat()
    };
    [1].into_iter().chain(findings.iter().flat_map(part)).collect()
}

/// A member name that is a program identifier (lower case and underscores), which is not scanned.
fn plain_name(raw: &[u8]) -> Option<&str> {
    let is_plain = raw.len() <= MAX_LEAD_BYTES && raw.iter().all(|b| b.is_ascii_lowercase() || *b == b'_');
    std::str::from_utf8(raw).ok().filter(|_| is_plain)
}

/// The first strategy whose condition holds; `None` means that the finding does not count.
fn matching_strategy<'r>(rule: &'r KindRule, f: &Finding, text: &str, context: &str) -> Option<&'r RedactionStrategy> {
    // Conditions see 80 bytes of text before the value.
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

/// A member's name if it indicates the kind of its value, else empty.
fn informative_name(name: &str) -> &str {
    if name.is_empty() || name.len() > MAX_LEAD_BYTES {
        return "";
    }
    let tells = |part: &str| {
        let entry = lexicon::look_up(part);
        entry.topics != 0 || entry.marks & mark::NAME_CUE != 0
    };
    let mut parts = name.split(|c: char| !c.is_alphanumeric()).flat_map(camel_words);
    if tells(name) || parts.any(tells) { name } else { "" }
}
