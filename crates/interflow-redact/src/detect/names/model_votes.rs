//! What a model says of the names in a text, as features: the weights decide how much it counts beside the others.

use super::super::{Finding, ScanState};
use super::features::Feature;
use super::run_bounds::{has_clean_end, has_clean_start};
use super::weights::NameModel;
use super::{NameCandidate, is_code_line};
use crate::Kind;
use crate::lexicon::mark::*;
use crate::text::normalized_text::OffsetMap;
use crate::text::token::WordToken;

/// The spans of a model in a normalized text, in order and without overlaps.
#[derive(Debug)]
pub(crate) struct ModelVotes(Vec<Finding>);

/// From here on, in percent, a model is sure.
const SURE: u8 = 90;

/// Whether findings of a model of this kind are weighed as names; others count by themselves.
pub(crate) const fn is_weighed(kind: Kind) -> bool {
    matches!(kind, Kind::Person | Kind::Location | Kind::Organization)
}

impl ModelVotes {
    /// The findings of a model, with the map of the normalized text.
    pub fn new(findings: Vec<Finding>, map: &OffsetMap) -> Self {
        let normal = |f: Finding| Finding { start: map.derived(f.start), end: map.derived(f.end), ..f };
        let mut spans: Vec<Finding> = findings.into_iter().map(normal).filter(|f| !f.is_empty()).collect();
        spans.sort_unstable_by_key(|f| f.start);
        Self(spans)
    }

    /// The span that shares most with these bytes.
    fn of(&self, start: usize, end: usize) -> Option<&Finding> {
        let from = self.0.partition_point(|f| f.end <= start);
        let shared = |f: &&Finding| f.end.min(end) - f.start.max(start);
        self.0[from..].iter().take_while(|f| f.start < end).max_by_key(shared)
    }
}

fn vote(span: &Finding) -> Option<Feature> {
    Some(match (span.kind, span.confidence >= SURE) {
        (Kind::Person, true) => Feature::ModelPersonSure,
        (Kind::Person, false) => Feature::ModelPerson,
        (Kind::Location, true) => Feature::ModelPlaceSure,
        (Kind::Location, false) => Feature::ModelPlace,
        (Kind::Organization, true) => Feature::ModelOrganizationSure,
        (Kind::Organization, false) => Feature::ModelOrganization,
        // Part of something else, such as an address: says neither that it is a name nor that it is none.
        _ => return None,
    })
}

/// Adds what the model says to the candidates, and a candidate for each of its names that is none yet.
pub(super) fn add_model_features(scan: &ScanState<'_>, candidates: &mut Vec<NameCandidate>) {
    let Some(votes) = scan.model else { return };
    let list = scan.list();
    for candidate in &mut *candidates {
        let span = votes.of(list[candidate.first].start(), list[candidate.last].end());
        if let Some(feature) = span.map_or(Some(Feature::ModelNothing), vote) {
            candidate.add(scan, feature);
        }
    }
    let ranges: Vec<(usize, usize)> = candidates.iter().map(|c| (c.first, c.last)).collect();
    for span in &votes.0 {
        let Some(feature) = vote(span) else { continue };
        let Some((first, last)) = words_of(list, span) else { continue };
        let next = ranges.partition_point(|(_, end)| *end < first);
        let free = ranges.get(next).is_none_or(|(begin, _)| *begin > last);
        if free && has_clean_start(scan, &list[first]) && has_clean_end(scan, &list[last]) {
            candidates.push(model_only(scan, first, last, feature));
        }
    }
    candidates.sort_by_key(|c| c.first);
}

/// The words in a span, without digits at its ends.
fn words_of(list: &[WordToken], span: &Finding) -> Option<(usize, usize)> {
    let first = list.partition_point(|t| t.start() < span.start);
    let last = list.partition_point(|t| t.end() <= span.end).checked_sub(1)?;
    (first <= last && list[first].is_word() && list[last].is_word()).then_some((first, last))
}

/// Words that no other detector took for a name.
fn model_only(scan: &ScanState<'_>, first: usize, last: usize, feature: Feature) -> NameCandidate {
    let run = &scan.list()[first..=last];
    let plain = run.iter().all(|t| t.has(COMMON | WORD | STOP | TECH) && !t.has(FIRST | LAST | PLACE | REGION | ORG));
    let mut candidate = NameCandidate::new(NameModel::ModelOnly, first, last);
    candidate.extend(
        scan,
        [
            Some(feature),
            plain.then_some(Feature::CommonWords),
            (!run[0].is_capital()).then_some(Feature::ModelLowerCase),
            is_code_line(scan, first).then_some(Feature::Code),
        ],
    );
    candidate
}
