//! Detection: one pass over the tokens of a text; each detector starts from tokens it can recognize cheaply.

mod address;
mod alphanumeric_ids;
mod byte_runs;
pub(crate) mod check_digits;
mod coordinates;
mod dates;
pub(crate) mod detector;
mod digit_run;
mod fields;
mod id_formats;
mod labeled_values;
mod names;
mod national_ids;
mod net;
mod number_context;
mod numbers;
mod opt_in_kinds;
mod phone;
mod secrets;
mod tables;

pub(crate) use self::byte_runs::ByteRunCache;
pub(crate) use self::names::{Feature, LanguageSums, ModelVotes, NameModel, is_weighed, name_candidates};
pub use self::names::{FeatureContribution, NameEvidence, NameScores, NameWeights};
#[cfg(test)]
pub(crate) use self::secrets::known_prefixes;
use std::ops::Range;

use crate::lexicon::topic;
use crate::scan::stop_flag;
use crate::text::token::{TokenList, TokenShape, WordToken};
use crate::{Kind, KindSet};

/// A detected span of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Start offset in bytes, in the original text.
    pub start: usize,
    /// End offset in bytes, exclusive.
    pub end: usize,
    pub kind: Kind,
    /// The detector's confidence in percent.
    pub confidence: u8,
    /// For custom kinds, the index of the term, pattern or section rule; otherwise 0.
    pub rule: u16,
    /// For names: the features that count for it.
    pub evidence: Option<NameEvidence>,
}

impl Finding {
    pub(crate) const fn new(kind: Kind, range: Range<usize>, confidence: u8) -> Self {
        Self { start: range.start, end: range.end, kind, confidence, rule: 0, evidence: None }
    }

    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    pub const fn is_empty(&self) -> bool {
        self.end == self.start
    }
}

/// What the detectors search for: the requested kinds, and whether card numbers and IBANs count only with valid check
/// digits.
#[derive(Clone, Debug)]
pub(crate) struct KindFilter {
    pub kinds: KindSet,
    pub valid_cards_only: bool,
    pub valid_ibans_only: bool,
    /// Two-letter codes of the regions whose national phone formats are accepted without context.
    pub phone_regions: Vec<[u8; 2]>,
}

impl Default for KindFilter {
    fn default() -> Self {
        Self { kinds: KindSet::all(), valid_cards_only: true, valid_ibans_only: true, phone_regions: vec![*b"US"] }
    }
}

/// Tokens between two checks of the stop flag: less than a millisecond.
const STOP_CHECK_INTERVAL: usize = 256;

/// The state of one scan: the normalized text with its tokens, and the findings so far.
pub(crate) struct ScanState<'t> {
    pub text: &'t str,
    pub bytes: &'t [u8],
    pub tokens: &'t TokenList,
    pub wants: &'t KindFilter,
    /// The weights of the features of names.
    pub names: &'t NameWeights,
    /// What a model says of the text, if there is one.
    pub model: Option<&'t ModelVotes>,
    /// Where the value of a JSON member begins, whose name is before it; `usize::MAX` elsewhere.
    pub member_value: usize,
    pub found: &'t mut Vec<Finding>,
    pub runs: ByteRunCache,
    /// The words of the text by language, counted when a name depends on it.
    pub languages: std::cell::OnceCell<LanguageSums>,
}

impl<'t> ScanState<'t> {
    pub fn list(&self) -> &'t [WordToken] {
        &self.tokens.list
    }

    pub fn token(&self, i: usize) -> Option<&'t WordToken> {
        #[cfg(test)]
        steps::count(1);
        self.tokens.list.get(i)
    }

    pub fn word(&self, token: &WordToken) -> &'t str {
        #[cfg(test)]
        steps::count(1);
        self.text.get(token.start()..token.end()).unwrap_or_default()
    }

    /// Whether to stop, since nobody waits for the result; the flag is read once per [`STOP_CHECK_INTERVAL`] tokens.
    pub fn should_stop(&self, i: usize) -> bool {
        i.is_multiple_of(STOP_CHECK_INTERVAL) && stop_flag::is_stop_requested()
    }

    /// The text between a token and the next one, or up to the end of the text.
    pub fn gap(&self, i: usize) -> &'t str {
        #[cfg(test)]
        steps::count(1);
        let from = self.token(i).map_or(0, WordToken::end);
        let to = self.token(i + 1).map_or(self.text.len(), WordToken::start);
        self.text.get(from..to).unwrap_or_default()
    }

    /// The text between the token and the one before it, or the start of the text.
    pub fn gap_before(&self, i: usize) -> &'t str {
        #[cfg(test)]
        steps::count(1);
        let from = i.checked_sub(1).and_then(|p| self.token(p)).map_or(0, WordToken::end);
        let to = self.token(i).map_or(self.text.len(), WordToken::start);
        self.text.get(from..to).unwrap_or_default()
    }

    /// The byte before a position; a space at the start of the text.
    pub fn byte_before(&self, at: usize) -> u8 {
        #[cfg(test)]
        steps::count(1);
        at.checked_sub(1).and_then(|p| self.bytes.get(p)).copied().unwrap_or(b' ')
    }

    /// The byte at a position; a space at the end of the text.
    pub fn byte_at(&self, at: usize) -> u8 {
        #[cfg(test)]
        steps::count(1);
        self.bytes.get(at).copied().unwrap_or(b' ')
    }

    pub fn wants(&self, kind: Kind) -> bool {
        self.wants.kinds.has(kind)
    }

    /// Adds a finding, if its kind is wanted and it is not empty.
    pub fn push(&mut self, kind: Kind, start: usize, end: usize, confidence: u8) {
        if self.wants(kind) && start < end {
            self.found.push(Finding::new(kind, start..end, confidence));
        }
    }

    /// Adds a name, with the features that count for it.
    pub fn push_with_evidence(&mut self, kind: Kind, start: usize, end: usize, confidence: u8, evidence: NameEvidence) {
        if self.wants(kind) && start < end {
            self.found.push(Finding { evidence: Some(evidence), ..Finding::new(kind, start..end, confidence) });
        }
    }

    /// The topics of the `back` tokens before token `i` and the `ahead` tokens after it.
    pub fn topics_near(&self, i: usize, back: usize, ahead: usize) -> u32 {
        let list = self.list();
        let from = i.saturating_sub(back);
        let before = list.get(from..i.min(list.len())).unwrap_or_default();
        let after = list.get(i + 1..(i + 1 + ahead).min(list.len())).unwrap_or_default();
        before.iter().chain(after).fold(0, |all, t| all | self.token_topics(t))
    }

    /// Whether one of the topics occurs near token `i`.
    pub fn has_topic_near(&self, i: usize, topics: u32, back: usize, ahead: usize) -> bool {
        self.topics_near(i, back, ahead) & topics != 0
    }

    /// The topics of the nearest of the `back` tokens before token `i` that refers to a personal number.
    pub fn nearest_personal(&self, i: usize, back: usize) -> u32 {
        let before = self.list().get(i.saturating_sub(back)..i).unwrap_or_default();
        // `number` and `contact` refer to telephones, but also to anything else.
        before
            .iter()
            .rev()
            .map(|t| self.token_topics(t) & PERSONAL_TOPICS & !topic::PHONE)
            .find(|t| *t != 0)
            .unwrap_or(0)
    }

    /// The topics of a token; for `camelCase`, of its parts.
    fn token_topics(&self, token: &WordToken) -> u32 {
        match token.shape {
            TokenShape::Camel if token.class == 0 => camel_topics(self.word(token)),
            _ if token.class == 0 => 0,
            _ => token.topics,
        }
    }

    /// Whether this word occurs at most 64 bytes before `at` on its line.
    pub fn near_word_before(&self, at: usize, word: &str) -> bool {
        let line = &self.bytes[at.saturating_sub(64)..at];
        let line = &line[memchr::memrchr(b'\n', line).map_or(0, |n| n + 1)..];
        memchr::memmem::find(line, word.as_bytes()).is_some()
    }

    /// Whether one of these words (lower case) occurs near token `i`.
    pub fn near_word(&self, i: usize, words: &[impl AsRef<str>], back: usize, ahead: usize) -> bool {
        let list = self.list();
        let before = list.get(i.saturating_sub(back)..i).unwrap_or_default();
        let after = list.get((i + 1).min(list.len())..(i + 1 + ahead).min(list.len())).unwrap_or_default();
        before.iter().chain(after).any(|t| {
            let word = self.word(t);
            words.iter().any(|w| word.eq_ignore_ascii_case(w.as_ref()))
        })
    }
}

/// The topics of the parts of a `camelCase` word: an identifier may name the value that follows.
fn camel_topics(word: &str) -> u32 {
    camel_words(word).fold(0, |topics, part| topics | crate::lexicon::look_up(part).topics)
}

/// The parts of a `camelCase` word.
pub(crate) fn camel_words(word: &str) -> impl Iterator<Item = &str> {
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

/// Runs all detectors, in the order in which their findings are reported. What overlaps is resolved later.
pub(crate) fn detect(scan: &mut ScanState<'_>) {
    let steps = [
        detect_structured,
        opt_in_kinds::detect_opt_in,
        address::addresses,
        names::names,
        tables::detect_rows,
        fields::fields,
    ];
    for step in steps {
        // The result will be discarded.
        if stop_flag::is_stop_requested() {
            return;
        }
        step(scan);
    }
}

fn detect_structured(scan: &mut ScanState<'_>) {
    // These start from characters, the rest from tokens.
    net::emails(scan);
    net::urls(scan);
    net::colon_addresses(scan);
    secrets::private_keys(scan);
    secrets::connection_strings(scan);
    if scan.wants(Kind::Password) {
        secrets::pgpass(scan);
    }
    let mut i = 0;
    let secrets = scan.wants.kinds.iter().any(|k| k.is_secret() || k == Kind::Username);
    let hosts = scan.wants.kinds.any(&[Kind::Url, Kind::Domain]);
    while let Some(token) = scan.token(i).filter(|_| !scan.should_stop(i)) {
        if token.plain {
            i += 1;
            continue;
        }
        let after = scan.byte_at(token.end());
        if secrets && secrets::may_be_secret(token, after) {
            secrets::detect_token(scan, i);
        }
        if hosts && after == b'.' && token.is_word() {
            net::dotted(scan, i);
        }
        i = match token.shape {
            TokenShape::Digits => {
                if let Some(next) = alphanumeric_ids::hyphened_mac(scan, i) {
                    i = next;
                    continue;
                }
                if scan.byte_at(token.end()) == b'.' {
                    coordinates::coordinates(scan, i);
                }
                numbers::detect_run(scan, i)
            }
            TokenShape::Mixed => {
                net::quoted_printable_email(scan, i);
                alphanumeric_ids::detect_token(scan, i)
            }
            _ => {
                if token.len() == 2 && matches!(scan.byte_before(token.start()), b'(' | b'[' | b'{') {
                    net::spelled_email(scan, i);
                }
                if dates::may_be_date_word(scan, token) {
                    dates::date_or_age_word(scan, i);
                }
                if token.shape == TokenShape::Upper
                    // Words are cheap to skip, and only these can begin an id without digits.
                    || token.len() == 1
                    || token.len() >= 26
                    || after == b'-'
                {
                    alphanumeric_ids::detect_word(scan, i);
                }
                i + 1
            }
        };
    }
}

/// Topics that make a bare number personal.
pub(crate) const PERSONAL_TOPICS: u32 = {
    use topic::{BANK, CARD, HEALTH, LICENCE, NATIONAL_ID, PASSPORT, PHONE, SSN, TAX};
    SSN | PHONE | CARD | BANK | PASSPORT | LICENCE | TAX | HEALTH | NATIONAL_ID
};

/// Counts examined positions, so that tests can tell linear from quadratic time without a clock.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count(n: u64) {
        STEPS.with(|s| s.set(s.get() + n));
    }

    /// The steps of this thread since the last call.
    pub(crate) fn take() -> u64 {
        STEPS.with(|s| s.replace(0))
    }
}
