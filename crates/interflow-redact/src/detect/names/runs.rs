//! Runs of capitalized words: where one begins and ends, and what it is examined as.

use super::super::{ScanState, address};
use super::context_cues::has_location_cue;
use super::features::Feature;
use super::nationality::report_nationality;
use super::phrase::classify;
use super::{NameCandidate, eponyms, organisations};
use crate::lexicon::mark::*;
use crate::token::{TokenShape, WordToken};

/// A run of capitalized words from token `i`; returns the next token to examine.
pub(super) fn capitalized_run(scan: &mut ScanState<'_>, i: usize, chunks: &mut Vec<NameCandidate>) -> usize {
    let token = scan.list()[i];
    let marks = token.flags();
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
    let found = classify(scan, i, last);
    match found {
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
    let place = NameCandidate::form(scan, i, end, [Some(form), cue]);
    let last = run_end(scan, i);
    if last > end
        && let Some(longer) = classify(scan, i, last)
        && longer.scores.organization.max(longer.scores.person) > place.scores.place
        && longer.last > end
    {
        chunks.push(longer);
        return longer.last + 1;
    }
    if has_clean_end(scan, &list[end]) {
        chunks.push(place);
    }
    end + 1
}

/// Whether the surrounding bytes allow a word of prose here, rather than code, a path or a longer name.
pub(super) fn has_clean_start(scan: &ScanState<'_>, token: &WordToken) -> bool {
    match scan.byte_before(token.start()) {
        b'_' | b'/' | b'\\' | b'=' | b'$' | b'#' | b'&' | b'~' | b'^' | b'%' => false,
        // `<Anna Lindholm>`; `<Anna>` and `<Box width=…>` are elements.
        b'<' => {
            let next = |at: usize| scan.byte_at(token.end() + at);
            token.has(FIRST) && !token.has(COMMON | WORD | TECH) && next(0) == b' ' && next(1).is_ascii_uppercase()
        }
        // `@Tomasz, can you …` addresses a person; `@Test` and `a@b` do not.
        b'@' => {
            let spoken_to = token.has(FIRST) && !token.has(COMMON | WORD | TECH);
            spoken_to && matches!(scan.byte_before(token.start() - 1), b' ' | b'\n' | b'"')
        }
        b'.' => !scan.byte_before(token.start() - 1).is_ascii_alphanumeric() || initials_before(scan, token.start()),
        b':' => scan.byte_before(token.start() - 1) != b':',
        b'-' => scan.byte_before(token.start() - 1) != b'-' || token.start() < 2,
        _ => true,
    }
}

/// `J.Smith`: a full stop after a single capital.
fn initials_before(scan: &ScanState<'_>, at: usize) -> bool {
    at >= 2 && scan.bytes[at - 2].is_ascii_uppercase() && !scan.byte_before(at - 2).is_ascii_alphanumeric()
}

/// Whether the bytes behind allow a word of prose to end here.
pub(super) fn has_clean_end(scan: &ScanState<'_>, token: &WordToken) -> bool {
    let (a, b) = (scan.byte_at(token.end()), scan.byte_at(token.end() + 1));
    match a {
        // The end of an element: `<name>Anna</name>`.
        b'<' => b == b'/',
        b'_' | b'/' | b'(' | b'=' | b'[' | b'{' | b'$' | b'#' | b'@' | b'&' | b'|' | b'~' | b'^' | b'+' => false,
        b'.' => !b.is_ascii_alphanumeric(),
        b':' => b != b':',
        // `Aren't`
        b'\'' => b != b't' || scan.byte_at(token.end() + 2).is_ascii_alphanumeric(),
        b'\\' => matches!(b, b'n' | b'"' | b'\'' | b't' | b'r' | b','),
        _ => true,
    }
}

/// The end of the run of words written as a name.
pub(super) fn run_end(scan: &ScanState<'_>, i: usize) -> usize {
    let mut last = i;
    while last < i + 7 {
        let Some(next) = scan.token(last + 1) else { break };
        let gap = scan.gap(last);
        let current = scan.list()[last];
        let initial = current.shape == TokenShape::Upper && current.len() == 1;
        let joined = match gap {
            " " | "-" | "'" | "’" => true,
            ". " | "." => initial || current.has(ABBR) || matches!(scan.word(&current), "St" | "Jr" | "Mt" | "Ft"),
            " & " => next.is_capital(),
            ", " => next.has(CREDENTIAL | ORG_SUFFIX) && next.is_capital() && next.flags() & (COMMON | FIRST) == 0,
            _ => false,
        };
        if !joined {
            break;
        }
        if next.is_capital() {
            if next.has(STOP) && !next.has(PARTICLE | CREDENTIAL) {
                break;
            }
            last += 1;
            continue;
        }
        // van der, de la: lower-case particles inside a name, followed by a capital.
        let mut ahead = last + 1;
        while ahead <= last + 3
            && scan.token(ahead).is_some_and(|t| t.has(PARTICLE) && t.shape == TokenShape::Lower)
            && matches!(scan.gap(ahead), " " | "'" | "’")
        {
            ahead += 1;
        }
        let particle = ahead > last + 1 && scan.token(ahead).is_some_and(|t| t.is_capital() && !t.has(STOP));
        if !particle || gap == " & " {
            break;
        }
        last = ahead;
    }
    last
}
