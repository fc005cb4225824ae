//! Runs of capitalized words: where one begins and ends, and what it is examined as.

use super::super::{ScanState, address};
use super::context_cues::has_location_cue;
use super::features::Feature;
use super::nationality::report_nationality;
use super::phrase::classify;
use super::run_bounds::{has_clean_end, has_clean_start, run_end};
use super::{NameCandidate, eponyms, organisations};
use crate::lexicon::mark::*;

/// A run of capitalized words from token `i`; returns the next token to examine.
pub(super) fn capitalized_run(scan: &mut ScanState<'_>, i: usize, chunks: &mut Vec<NameCandidate>) -> usize {
    let token = scan.list()[i];
    let marks = token.marks;
    report_nationality(scan, i);
    if !has_clean_start(scan, &token) {
        return i + 1;
    }
    if marks & (STOP | HONORIFIC) != 0 && marks & (PARTICLE | PHRASE) == 0 {
        return i + 1;
    }
    // `The` only begins known phrases; what follows is examined separately.
    if marks & STOP != 0 && marks & PARTICLE == 0 {
        return match address::phrase_at(scan, i) {
            Some((end, found)) if found & (PLACE | REGION) != 0 => place_phrase(scan, i, end, found, chunks),
            _ => i + 1,
        };
    }
    if let Some(last) = eponyms::named_after(scan, i) {
        return last + 1;
    }
    if let Some(firm) = organisations::partnership(scan, i) {
        chunks.push(firm);
        return firm.last + 1;
    }
    let phrase = if marks & PHRASE != 0 { address::phrase_at(scan, i) } else { None };
    let last = run_end(scan, i);
    if let Some(body) = organisations::organisation_of(scan, i, last) {
        chunks.push(body);
        return body.last + 1;
    }
    match phrase {
        Some((end, found)) if found & (PLACE | REGION) != 0 => return place_phrase(scan, i, end, found, chunks),
        Some((end, _)) if has_clean_end(scan, &scan.list()[end]) && end >= last => {
            chunks.push(NameCandidate::form(scan, i, end, [Some(Feature::KnownPhrase)]));
            return end + 1;
        }
        _ => {}
    }
    if marks & STOP != 0 && last == i {
        return i + 1;
    }
    let candidate = classify(scan, i, last);
    match candidate {
        Some(chunk) => {
            chunks.push(chunk);
            chunk.last + 1
        }
        None => i + 1,
    }
}

/// A town, country or region of several words from token `i`; returns the next token to examine.
fn place_phrase(scan: &ScanState<'_>, i: usize, end: usize, marks: u32, chunks: &mut Vec<NameCandidate>) -> usize {
    // `Jordan Smith` is not a phrase although Jordan is a country; `San Marino Cruz` continues as a name.
    let list = scan.list();
    let wordy = list[i..=end].iter().all(|t| t.has(COMMON | WORD | STOP));
    let named = list[i].has(FIRST) && list[end].has(LAST) && !list[end].has(COMMON);
    let form = match (named, wordy) {
        (true, _) => Feature::PlacePhraseName,
        // `United Kingdom` is one whatever its words are.
        (_, true) if marks & REGION == 0 => Feature::PlacePhraseWords,
        _ => Feature::PlacePhrase,
    };
    let cue = has_location_cue(scan, i).then_some(Feature::PlaceCueForm);
    let town = NameCandidate::form(scan, i, end, [Some(form), cue]);
    let last = run_end(scan, i);
    if last > end
        && let Some(longer) = classify(scan, i, last)
        && longer.scores.organization.max(longer.scores.person) > town.scores.place
        && longer.last > end
    {
        chunks.push(longer);
        return longer.last + 1;
    }
    if has_clean_end(scan, &list[end]) {
        chunks.push(town);
    }
    end + 1
}
