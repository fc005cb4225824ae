//! Persons, organisations, places and nationalities: runs of capitalized words. Each becomes a candidate with a set of
//! features, from the lexicon and the context; the weights of the features are data, and their sum is the confidence.

mod context_cues;
mod document;
mod eponyms;
mod features;
mod language;
mod lexicon_strength;
mod lower_case;
mod model_votes;
mod nationality;
mod organisations;
mod person_cues;
mod phrase;
mod run_bounds;
mod runs;
mod software;
mod weights;
mod word;

use self::context_cues::is_in_code;
pub(super) use self::context_cues::{ORG_LABELS, PLACE_LABELS};
pub(crate) use self::features::Feature;
pub(crate) use self::language::LanguageSums;
use self::lower_case::lowercase_name;
pub(crate) use self::model_votes::{ModelVotes, is_weighed};
use self::organisations::company_form;
use self::runs::capitalized_run;
pub(crate) use self::weights::NameModel;
pub use self::weights::{FeatureContribution, NameEvidence, NameScores, NameWeights};
use super::ScanState;
use crate::Kind;
use crate::lexicon::mark::*;
use crate::text::token::TokenShape;

/// A run of words that may be a name, with its features and the scores that these add up to.
#[derive(Clone, Copy, Debug)]
struct NameCandidate {
    first: usize,
    last: usize,
    evidence: NameEvidence,
    scores: NameScores,
}

impl NameCandidate {
    fn new(model: NameModel, first: usize, last: usize) -> Self {
        Self { first, last, evidence: NameEvidence { model, ..NameEvidence::default() }, scores: NameScores::default() }
    }

    /// A candidate that is recognised by its form.
    fn form<const N: usize>(scan: &ScanState<'_>, first: usize, last: usize, features: [Option<Feature>; N]) -> Self {
        let mut candidate = Self::new(NameModel::Form, first, last);
        candidate.extend(scan, features);
        candidate
    }

    fn add(&mut self, scan: &ScanState<'_>, feature: Feature) {
        if !self.evidence.features.has(feature) {
            self.evidence.features.insert(feature);
            self.scores.add(scan.names.of(self.evidence.model, feature));
        }
    }

    fn extend<const N: usize>(&mut self, scan: &ScanState<'_>, features: [Option<Feature>; N]) {
        features.into_iter().flatten().for_each(|f| self.add(scan, f));
    }
}

/// Whether token `i` is in a line of code.
pub(super) fn is_code_line(scan: &ScanState<'_>, i: usize) -> bool {
    is_in_code(scan, i, i)
}

/// Reports names anywhere in the text.
pub(super) fn names(scan: &mut ScanState<'_>) {
    if !scan.wants.kinds.any(&[Kind::Person, Kind::Title, Kind::Organization, Kind::Location, Kind::Nationality]) {
        return;
    }
    for candidate in candidates(scan) {
        report_name(scan, &candidate);
    }
}

/// The candidates of a text, in order.
fn candidates(scan: &mut ScanState<'_>) -> Vec<NameCandidate> {
    let mut names = Vec::new();
    let mut i = 0;
    while let Some(token) = scan.token(i).filter(|_| !scan.should_stop(i)) {
        let next = match token.shape {
            _ if token.plain => i + 1,
            TokenShape::Camel if token.class == 0 => match lower_case::camel_name(scan, i, token) {
                Some(name) => {
                    names.push(name);
                    i + 1
                }
                None => capitalized_run(scan, i, &mut names),
            },
            TokenShape::Title | TokenShape::Upper | TokenShape::Camel => capitalized_run(scan, i, &mut names),
            TokenShape::Lower if token.class != 0 && !token.has(FIRST | REGION | NRP) => i + 1,
            TokenShape::Lower => {
                if token.has(NRP) || token.class == 0 && scan.byte_before(token.end()) == b's' {
                    nationality::report_stated_nationality(scan, i);
                }
                lowercase_name(scan, i, token, &mut names)
            }
            _ => i + 1,
        };
        i = next.max(i + 1);
    }
    model_votes::add_model_features(scan, &mut names);
    document::add_document_features(scan, &mut names);
    names
}

/// The threshold of default policies; only less certain candidates are examined again.
const CONFIDENT_SCORE: i16 = 45;

/// Candidates below this are not reported, whatever the policy's threshold is.
const MIN_REPORTED_SCORE: i16 = 30;

/// The maximum confidence in a name: a list of names is never complete.
const MAX_SCORE: i16 = 95;

/// A company form behind it makes an organisation even of a word with this little evidence.
const MIN_COMPANY_SCORE: i16 = 15;

/// Reports a candidate; a company form behind it makes it an organisation.
fn report_name(scan: &mut ScanState<'_>, candidate: &NameCandidate) {
    let list = scan.list();
    let (start, end) = (list[candidate.first].start(), list[candidate.last].end());
    if candidate.scores.best() >= MIN_COMPANY_SCORE
        && list[candidate.last].is_capital()
        && let Some(longer) = company_form(scan, end)
    {
        let firm = NameCandidate::form(scan, candidate.first, candidate.last, [Some(Feature::CompanySuffix)]);
        return push_name(scan, &firm, start, longer);
    }
    push_name(scan, candidate, start, end);
}

/// Reports a candidate with the kind of its highest score.
fn push_name(scan: &mut ScanState<'_>, candidate: &NameCandidate, start: usize, end: usize) {
    let kind = candidate.scores.kind();
    let score = candidate.scores.of(kind);
    if score < MIN_REPORTED_SCORE {
        return;
    }
    let confidence = score.min(MAX_SCORE) as u8;
    scan.push_with_evidence(kind, start, end, confidence, candidate.evidence);
    if kind == Kind::Person {
        title(scan, candidate, confidence);
    }
}

/// `Mrs.` before a name identifies the person too; without a name it does not.
fn title(scan: &mut ScanState<'_>, candidate: &NameCandidate, confidence: u8) {
    let first = candidate.first;
    let Some(token) = first.checked_sub(1).and_then(|p| scan.token(p)).copied() else { return };
    let gap = scan.gap_before(first);
    if token.has(HONORIFIC) && matches!(gap, " " | ". ") && matches!(token.shape, TokenShape::Title | TokenShape::Upper)
    {
        let end = token.end() + usize::from(gap == ". ");
        scan.push_with_evidence(Kind::Title, token.start(), end, confidence, candidate.evidence);
    }
}

/// The candidates of a text with their offsets and features, for fitting the weights.
pub(crate) fn name_candidates(scan: &mut ScanState<'_>) -> Vec<(usize, usize, NameEvidence)> {
    let list = scan.list();
    candidates(scan).iter().map(|c| (list[c.first].start(), list[c.last].end(), c.evidence)).collect()
}
