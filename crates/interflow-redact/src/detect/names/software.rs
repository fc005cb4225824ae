//! Detects software contexts and identifiers, where a capitalized word is rarely a person's name.

use super::super::ScanState;
use crate::lexicon::mark::*;
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordSet, words};

/// Number of tokens on either side examined by [`technical`].
const PASSAGE: usize = 40;

/// Whether the context is about software: computing terms, identifiers and their punctuation at every tenth token.
pub(super) fn technical(scan: &ScanState<'_>, i: usize) -> bool {
    let list = scan.list();
    let passage = &list[i.saturating_sub(PASSAGE)..(i + 1 + PASSAGE).min(list.len())];
    let spoken = |t: &WordToken| {
        t.has(TECH)
            || t.topics & (topic::SOFTWARE | topic::VERSION) != 0
            || t.class == 0 && matches!(t.shape, TokenShape::Camel | TokenShape::Mixed)
            || matches!(scan.byte_at(t.end()), b'_' | b'(' | b'`' | b'=' | b'[' | b'<' | b'>' | b'\\')
    };
    passage.len() >= 12 && passage.iter().filter(|t| spoken(t)).count() * 10 >= passage.len()
}

/// `the Ninja generator`: an article before it and a noun after it.
pub(super) fn described(scan: &ScanState<'_>, i: usize) -> bool {
    let article = i.checked_sub(1).and_then(|p| scan.token(p)).map_or("", |t| scan.word(t));
    let noun = scan.token(i + 1).is_some_and(|t| t.shape == TokenShape::Lower && t.len() > 2 && !t.has(STOP | PREP));
    matches!(article, "the" | "The" | "a" | "A" | "an" | "An")
        && noun
        && scan.gap_before(i) == " "
        && scan.gap(i) == " "
}

/// Suffixes of names of types, errors and functions.
static TYPE_ENDS: WordSet = WordSet::new(|| words("type_ends"));

/// `ValueError`, `PendingReview`, `OSs`: identifiers, and plural abbreviations.
pub(super) fn identifier(scan: &ScanState<'_>, token: &WordToken) -> bool {
    if token.shape != TokenShape::Camel {
        return false;
    }
    // `impl Connection for TokioIo` in backticks.
    if scan.byte_at(token.end()) == b'`' {
        return true;
    }
    let word = scan.word(token);
    let plural = word.strip_suffix('s').is_some_and(|w| w.len() >= 2 && w.bytes().all(|b| b.is_ascii_uppercase()));
    let hump = word.bytes().rposition(|b| b.is_ascii_uppercase()).unwrap_or(0);
    plural || hump > 0 && word.get(hump..).is_some_and(|end| TYPE_ENDS.contains(end))
}
