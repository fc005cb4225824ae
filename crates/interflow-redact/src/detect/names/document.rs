//! What the rest of a text says of a candidate: lists, repetitions, descriptions.

use super::super::ScanState;
use super::features::Feature;
use super::run_bounds::{has_clean_end, has_clean_start};
use super::software::{described, technical};
use super::{CONFIDENT_SCORE, MIN_REPORTED_SCORE, NameCandidate};
use crate::lexicon::hash_letters;
use crate::lexicon::mark::*;
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordList, words};

/// A person from here on is certain enough to search the text for parts of the name.
const CERTAIN_SCORE: i16 = 55;

/// Features that only the whole text gives.
pub(super) fn add_document_features(scan: &ScanState<'_>, candidates: &mut [NameCandidate]) {
    // In this order: later passes use what earlier ones added to the scores.
    mark_towns(scan, candidates);
    mark_listed(scan, candidates);
    mark_joined(scan, candidates);
    mark_repeated(scan, candidates);
    mark_described(scan, candidates);
    mark_common(scan, candidates);
}

/// `Anderstad, Ghana`: an unknown word before a country or a state is a town.
fn mark_towns(scan: &ScanState<'_>, candidates: &mut [NameCandidate]) {
    let list = scan.list();
    for at in 1..candidates.len() {
        let (a, b) = (candidates[at - 1], candidates[at]);
        let region =
            b.scores.place >= CONFIDENT_SCORE && b.scores.place > b.scores.person && list[b.first].has(REGION | PHRASE);
        // Also below each other, each alone on its line.
        let stacked = || {
            scan.gap(a.last) == "\n" && scan.gap_before(a.first).contains('\n') && !scan.gap(b.last).starts_with(' ')
        };
        let tied = b.first == a.last + 1 && (scan.gap(a.last) == ", " || stacked()) && a.last <= a.first + 2;
        let open = a.scores.organization < CERTAIN_SCORE && a.scores.person < SURE_PERSON;
        if region && tied && open && !list[a.first].has(COMMON | NRP | TECH) {
            candidates[at - 1].add(scan, Feature::BeforeRegion);
        }
    }
}

/// A person from here on stays one in lists of organisations and before countries.
const SURE_PERSON: i16 = 75;

/// Nouns that announce a list of organisations.
static GROUP_WORDS: WordList = WordList::new(|| words("group_words"));

/// `the suppliers are: Foo, Bar and Baz`: a list after a colon whose sentence names the kind.
fn mark_listed(scan: &ScanState<'_>, chunks: &mut [NameCandidate]) {
    let mut at = 0;
    while at < chunks.len() {
        let first = chunks[at].first;
        if scan.gap_before(first) != ": " || !scan.near_word(first, &GROUP_WORDS, 24, 0) {
            at += 1;
            continue;
        }
        loop {
            let chunk = &mut chunks[at];
            if chunk.scores.person < SURE_PERSON {
                chunk.add(scan, Feature::ListedOrganization);
            }
            let last = chunk.last;
            let next = chunks.get(at + 1).map_or(0, |c| c.first);
            let tied = next == last + 1 && matches!(scan.gap(last), ", " | " & ")
                || next == last + 2 && matches!(scan.token(last + 1).map(|t| scan.word(t)), Some("and" | "or"));
            at += 1;
            if !tied {
                break;
            }
        }
    }
}

/// The words of the mailboxes in the text: `priya.r@…` indicates that Priya is a name.
fn mailboxes<'t>(scan: &ScanState<'t>) -> Vec<&'t str> {
    let list = scan.list();
    let mut words = Vec::new();
    for at in scan.tokens.ats.iter().take(64) {
        let mut i = list.partition_point(|t| t.end <= *at);
        let mut end = *at as usize;
        while let Some(token) = i.checked_sub(1).and_then(|p| list.get(p)) {
            if token.end() != end {
                break;
            }
            if token.is_word() && token.len() >= 3 && !token.has(COMMON | WORD | STOP | TECH) {
                words.push(scan.word(token));
            }
            if !matches!(scan.byte_before(token.start()), b'.' | b'_' | b'-') {
                break;
            }
            (i, end) = (i - 1, token.start() - 1);
        }
    }
    words
}

/// Two uncertain family names joined: `norberg and smith were`.
fn mark_joined(scan: &ScanState<'_>, candidates: &mut [NameCandidate]) {
    let list = scan.list();
    for at in 1..candidates.len() {
        let (a, b) = (candidates[at - 1], candidates[at]);
        let single = a.first == a.last && b.first == b.last;
        let joined = single && b.first == a.last + 2 && scan.word(&list[a.last + 1]) == "and";
        let (p, q) = (a.scores.person, b.scores.person);
        if joined && p.min(q) >= 25 && p.max(q) >= 36 && p + q > a.scores.place + b.scores.place {
            candidates[at - 1].add(scan, Feature::JoinedNames);
            candidates[at].add(scan, Feature::JoinedNames);
        }
    }
}

fn is_certain_person(c: &NameCandidate) -> bool {
    c.scores.person >= CERTAIN_SCORE && c.scores.person >= c.scores.place && c.scores.person >= c.scores.organization
}

/// The parts of certain names and of mailboxes, sorted. A single unknown word is not certain enough to search for it
/// everywhere.
fn known_parts<'t>(scan: &ScanState<'t>, candidates: &[NameCandidate]) -> Vec<&'t str> {
    let list = scan.list();
    let mut parts: Vec<&str> = candidates
        .iter()
        .filter(|c| is_certain_person(c) && (c.last > c.first || list[c.first].has(FIRST | LAST)))
        .take(64)
        .flat_map(|c| list[c.first..=c.last].iter())
        .filter(|t| t.len() >= 3 && !t.has(COMMON | STOP))
        .map(|t| scan.word(t))
        .collect();
    parts.extend(mailboxes(scan));
    parts.sort_unstable();
    parts
}

/// An uncertain word beside a person in a list, or one that is part of a name elsewhere in the text.
fn mark_repeated(scan: &ScanState<'_>, candidates: &mut [NameCandidate]) {
    let list = scan.list();
    let parts = known_parts(scan, candidates);
    // A dialogue: `Ubul: …`, a line break, `Nicole: …`.
    let speaks =
        |c: &NameCandidate| c.evidence.features.has(Feature::Speaker) || c.first == 0 && scan.gap(c.last) == ": ";
    let dialogue = candidates.iter().any(|c| speaks(c) && is_certain_person(c));
    let mails = !scan.tokens.ats.is_empty();
    let tied = |a: &NameCandidate, b: &NameCandidate| {
        b.first == a.last + 1 && matches!(scan.gap(a.last), ", " | " & ")
            || b.first == a.last + 2
                && matches!(scan.word(&list[a.last + 1]), "and" | "or")
                && scan.gap(a.last).len() <= 2
    };
    for at in 0..candidates.len() {
        let c = candidates[at];
        // Words that are no name in any text stay out.
        if is_certain_person(&c) || c.scores.person < 8 {
            continue;
        }
        let repeated = c.first == c.last && {
            let word = scan.word(&list[c.first]);
            parts.binary_search(&word).is_ok() || mails && parts.iter().any(|p| p.eq_ignore_ascii_case(word))
        };
        let follows_person =
            || at.checked_sub(1).is_some_and(|p| is_certain_person(&candidates[p]) && tied(&candidates[p], &c));
        let right = || candidates.get(at + 1).is_some_and(|n| is_certain_person(n) && tied(&c, n));
        if repeated {
            candidates[at].add(scan, Feature::RepeatedName);
        } else if follows_person() || right() || dialogue && speaks(&c) {
            candidates[at].add(scan, Feature::BesidePerson);
        }
    }
}

/// `The Ninja generator`, in a text about software: a product throughout the text.
fn mark_described(scan: &ScanState<'_>, candidates: &mut [NameCandidate]) {
    let list = scan.list();
    let doubtful = |c: &NameCandidate| {
        c.first == c.last && c.scores.person < SURE_PERSON && !list[c.first].has(FIRST_TOP | LAST_TOP)
    };
    let described = |c: &&NameCandidate| {
        doubtful(c) && c.scores.person >= MIN_REPORTED_SCORE && described(scan, c.first) && technical(scan, c.first)
    };
    let mut words: Vec<&str> = candidates.iter().filter(described).map(|c| scan.word(&list[c.first])).collect();
    words.sort_unstable();
    if words.is_empty() {
        return;
    }
    for c in candidates.iter_mut().filter(|c| doubtful(c)) {
        if words.binary_search(&scan.word(&list[c.first])).is_ok() {
            c.add(scan, Feature::DescribedSoftware);
        }
    }
}

/// An uncertain word that is not a first name and occurs in lower case elsewhere in the text: a common noun.
fn mark_common(scan: &ScanState<'_>, candidates: &mut [NameCandidate]) {
    const CERTAIN: i16 = 65;
    let list = scan.list();
    let mut small = None;
    for c in candidates {
        let token = &list[c.first];
        let doubtful = c.first == c.last && !token.has(FIRST | REGION | ORG) && token.is_capital();
        if !doubtful || !(CONFIDENT_SCORE..CERTAIN).contains(&c.scores.best()) {
            continue;
        }
        let hash = hash_letters(scan.bytes, token.start(), token.end());
        if small.get_or_insert_with(|| rare_lower_case_words(scan)).binary_search(&hash).is_ok() {
            c.add(scan, Feature::CommonInText);
        }
    }
}

/// The sorted hashes of the rare words in lower case. A mailbox such as `anna.b@…` indicates a name instead.
fn rare_lower_case_words(scan: &ScanState<'_>) -> Vec<u64> {
    let rare = |t: &&WordToken| {
        t.shape == TokenShape::Lower
            && (t.class == 0 || t.has(PLACE | LAST))
            && has_clean_start(scan, t)
            && has_clean_end(scan, t)
    };
    let hash = |t: &WordToken| hash_letters(scan.bytes, t.start(), t.end());
    let mut hashes: Vec<u64> = scan.list().iter().filter(rare).map(hash).collect();
    hashes.sort_unstable();
    hashes
}
