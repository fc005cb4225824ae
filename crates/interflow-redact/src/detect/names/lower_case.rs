//! Names in lower case: after a cue, and a known first name followed by a family name.

use super::super::ScanState;
use super::NameCandidate;
use super::context_cues::{has_location_cue, is_in_code};
use super::features::Feature;
use super::language::{is_foreign_text, is_other_language, is_other_word};
use super::lexicon_strength::{first_name_score, is_foreign_word, last_name_score};
use super::run_bounds::{has_clean_end, has_clean_start};
use super::software::technical;
use crate::lexicon::mark::*;
use crate::lexicon::{look_up, topic};
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordList, words};

/// Lower case: names after a cue, and a known first name followed by a last name.
pub(super) fn lowercase_name(
    scan: &ScanState<'_>,
    i: usize,
    token: &WordToken,
    chunks: &mut Vec<NameCandidate>,
) -> usize {
    let m = token.marks;
    if m & (FIRST | REGION) == 0 && token.class != 0 || m & STOP != 0 || token.len() < 3 {
        // Ministry of …: organisations with `of` are capitalized and handled there.
        return i + 1;
    }
    if m & TECH != 0 || token.class == 0 && (!has_cue_at(scan, i) || is_in_code(scan, i, i)) {
        return i + 1;
    }
    if scan.byte_at(token.end()) == b'_' && is_snake_name(scan, i, token) {
        chunks.push(NameCandidate::form(scan, i, i + 1, [Some(Feature::LowerPair)]));
        return i + 2;
    }
    if !has_clean_start(scan, token)
        || !has_clean_end(scan, token)
        || !scan.gap_before(i).ends_with([' ', '\n', '"', '\'', '(', ',']) && i > 0
    {
        return i + 1;
    }
    // `a variable named errno`
    if token.class == 0 && technical(scan, i) {
        return i + 1;
    }
    let cue = has_cue_at(scan, i);
    if !cue && (is_foreign_text(scan, i, i) || is_other_language(scan, i, i)) {
        return i + 1;
    }
    let next = scan.token(i + 1).filter(|t| {
        t.shape == TokenShape::Lower && t.len() >= 3 && matches!(scan.gap(i), " " | "-") && has_clean_end(scan, t)
    });
    let family = next.map_or(0, |t| if t.has(STOP) { 0 } else { last_name_score(t) });
    let Some(form) = lower_case_form(scan, i, family, cue) else { return i + 1 };
    let end = if family >= 45 && form != Feature::LowerRegion { i + 1 } else { i };
    chunks.push(NameCandidate::form(scan, i, end, [Some(form)]));
    end + 1
}

/// `dmitri_lindqvist`: a first and a family name of the lexicon, and nothing else in the identifier.
fn is_snake_name(scan: &ScanState<'_>, i: usize, token: &WordToken) -> bool {
    let apart = |b: u8| !b.is_ascii_alphanumeric() && !matches!(b, b'_' | b'.' | b'/' | b'-' | b'(' | b':' | b'$');
    let Some(next) = scan.token(i + 1).filter(|t| t.shape == TokenShape::Lower && scan.gap(i) == "_") else {
        return false;
    };
    apart(scan.byte_before(token.start()))
        && apart(scan.byte_at(next.end()))
        && first_name_score(token) >= 85
        && last_name_score(next) >= 75
        && !is_other_word(token)
}

/// `dmitriLindqvist`: the same as one word.
pub(super) fn camel_name(scan: &ScanState<'_>, i: usize, token: &WordToken) -> Option<NameCandidate> {
    const PLAIN: u32 = COMMON | WORD | STOP | TECH | ORG | JOB;
    let word = scan.word(token);
    let hump = word.bytes().skip(1).position(|b| b.is_ascii_uppercase())? + 1;
    let (given, family) = (word.get(..hump)?, word.get(hump..)?);
    if given.len() < 4 || family.len() < 4 || !family[1..].bytes().all(|b| b.is_ascii_lowercase()) {
        return None;
    }
    let (a, b) = (look_up(given), look_up(family));
    let named = a.marks & FIRST != 0 && a.marks & PLAIN == 0 && b.marks & LAST != 0 && b.marks & PLAIN == 0;
    let other = (a.topics | b.topics) & topic::OTHER_LANGUAGE != 0;
    let apart = |b: u8| !b.is_ascii_alphanumeric() && !matches!(b, b'_' | b'.' | b'/' | b'-' | b'(' | b':' | b'$');
    let alone = apart(scan.byte_before(token.start())) && apart(scan.byte_at(token.end()));
    (named && !other && alone).then(|| NameCandidate::form(scan, i, i, [Some(Feature::LowerPair)]))
}

/// What a name in lower case is made of.
fn lower_case_form(scan: &ScanState<'_>, i: usize, family: i32, cue: bool) -> Option<Feature> {
    let token = &scan.list()[i];
    let code = is_in_code(scan, i, i);
    let rare = is_foreign_word(token) || token.has(LAST) && !token.has(COMMON);
    match (first_name_score(token), family, cue) {
        (_, 45.., true) => Some(Feature::LowerPairCue),
        (85.., 60.., false) if !code => Some(Feature::LowerPair),
        (100, 45.., false) if !code => Some(Feature::LowerPairDoubtful),
        (45.., _, true) => Some(Feature::LowerGivenCue),
        (_, _, true) if rare => Some(Feature::LowerUnknownCue),
        (100, _, false) if !code && is_speaker_line(scan, i) => Some(Feature::LowerSpeaker),
        _ => (token.has(REGION) && !token.has(COMMON | WORD) && has_location_cue(scan, i) && !code)
            .then_some(Feature::LowerRegion),
    }
}

/// Words before `_name` that refer to a person.
static PEOPLE_WORDS: WordList = WordList::new(|| words("people_words"));

/// `my name is`, `call me`, `on behalf of`: a name follows, whatever its case.
fn has_cue_at(scan: &ScanState<'_>, i: usize) -> bool {
    let list = scan.list();
    let gap = scan.gap_before(i);
    if !matches!(gap, " " | ": " | ":" | "? " | ": \"" | " \"" | ". ") {
        return false;
    }
    let before = i.checked_sub(1).map(|p| &list[p]);
    let telling = before.is_some_and(|t| t.len() <= 3 || t.has(NAME_CUE | HONORIFIC));
    if !telling && !gap.contains([':', '?']) {
        return false;
    }
    let word = |n: usize| i.checked_sub(n).map_or("", |p| scan.word(&list[p]));
    let any = |n: usize, words: &[&str]| words.iter().any(|w| word(n).eq_ignore_ascii_case(w));
    // `model_name: llama`: the name of a thing.
    let glued = i > 1 && any(1, &["name", "names"]) && matches!(scan.gap_before(i - 1), "_" | "-" | ".");
    if glued && !any(2, &PEOPLE_WORDS) {
        return false;
    }
    any(1, &["named", "nicknamed", "surname", "firstname", "lastname", "mr", "mrs"])
        || any(1, &["is", "s", "was"]) && any(2, &["name", "names"])
        || any(1, &["me", "him", "her"]) && any(2, &["call", "calls", "named", "called"])
        || any(1, &["mr", "mrs", "ms", "dr"]) && any(2, &["to", "named", "mr", "mrs"])
        || gap.contains('?') && (1..=6).any(|n| any(n, &["name", "names"]))
        || gap.contains(':')
            && (1..=3).any(|n| {
                any(n, &["name", "names"]) && is_same_line(scan, i - n, i) && (n > 1 || glued || !is_key(scan, i - 1))
            })
}

/// Whether neither a line break nor another label is between two tokens.
fn is_same_line(scan: &ScanState<'_>, from: usize, to: usize) -> bool {
    (from..to.saturating_sub(1)).all(|n| !scan.gap(n).contains(['\n', ':']))
}

/// `  name: bar`: a key at the beginning of a line or in quotes, whose value may be any name.
fn is_key(scan: &ScanState<'_>, i: usize) -> bool {
    let gap = scan.gap_before(i);
    scan.list().get(i).is_some_and(|t| t.shape == TokenShape::Lower)
        && (gap.ends_with(['"', '\'', '{', ',']) || gap.trim_matches(' ').ends_with(['\n', '-']))
}

/// Whether a lower-case first name is followed by a verb of personal action.
fn is_speaker_line(scan: &ScanState<'_>, i: usize) -> bool {
    let after = scan.token(i + 1);
    let before = i.checked_sub(1).and_then(|p| scan.token(p));
    after.is_some_and(|t| t.has(SAY) && scan.gap(i) == " ")
        || after.is_some_and(|t| scan.gap(i) == " " && matches!(scan.word(t), "is" | "was" | "has" | "will" | "s"))
        || before.is_some_and(|t| {
            t.has(RELATION | SAY) || matches!(scan.word(t), "with" | "and" | "me" | "hi" | "hello" | "by")
        })
}
