//! Methods, laws and units that are named after scholars: `Gauss-Seidel`, `the Laplace operator`, `Monte Carlo runs`.

use super::super::ScanState;
use super::context_cues::{context_cues, has_location_cue, is_eponym};
use crate::lexicon::mark::*;
use crate::text::token::{TokenShape, WordToken, short_lower};
use crate::word_lists::{WordSet, words};

/// Maximum number of names in a compound.
const MAX_PARTS: usize = 5;

/// Nouns named after scholars, besides those that any name can precede.
static EPONYM_NOUNS: WordSet = WordSet::new(|| words("eponym_nouns"));

/// The last token of an eponymous term that begins at token `i`.
pub(super) fn named_after(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let list = scan.list();
    let token = list.get(i).filter(|t| t.shape == TokenShape::Title)?;
    if scan.word(token) == "Monte" {
        return monte_carlo(scan, i);
    }
    let mut last = i;
    while last + 1 < i + MAX_PARTS
        && scan.gap(last) == "-"
        && scan.token(last + 1).is_some_and(|t| matches!(t.shape, TokenShape::Title | TokenShape::Camel))
    {
        last += 1;
    }
    let scholars = list[i..=last].iter().filter(|t| t.has(SCHOLAR)).count();
    if last == i && scholars == 0 {
        return None;
    }
    let noun = is_eponym(scan, last) || scholars > 0 && is_followed_by_noun(scan, last);
    // `Adams-Moore` may be a company.
    let rare = list[i..=last].iter().any(|t| t.has(SCHOLAR) && !t.has(LAST_TOP));
    if !noun && (last == i || scholars < 2 || !rare) {
        return None;
    }
    let begun = i > 0 && begins_a_name(&list[i - 1], scan.gap_before(i));
    let around = context_cues(scan, i, last);
    let cued = around.honorific || around.announces_name() || around.labelled || around.org >= 2;
    (!begun && !cued).then_some(last)
}

/// A preceding first name or initial makes it a person.
fn begins_a_name(before: &WordToken, gap: &str) -> bool {
    let named = gap == " " && before.has(FIRST | HONORIFIC) && !before.has(STOP | COMMON);
    before.is_capital() && (named || gap == ". " && before.len() == 1)
}

/// Whether one of the nouns follows, directly or after one lower-case word: `Gauss-Seidel fixed-point iteration`.
fn is_followed_by_noun(scan: &ScanState<'_>, last: usize) -> bool {
    let list = scan.list();
    let owned = matches!(scan.gap(last), "'" | "’") && list.get(last + 1).is_some_and(|t| t.len() == 1);
    let from = if owned { last + 2 } else { last + 1 };
    (from..from + 3)
        .take_while(|n| {
            matches!(scan.gap(n - 1), " " | "-") && scan.token(*n).is_some_and(|t| t.shape == TokenShape::Lower)
        })
        .filter_map(|n| scan.token(n))
        .any(|t| {
            let mut buffer = [0; 24];
            EPONYM_NOUNS.contains(short_lower(scan.word(t), &mut buffer))
        })
}

/// `Monte Carlo` as the name of a method, except as a place.
fn monte_carlo(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let second = scan.token(i + 1).filter(|t| scan.word(t) == "Carlo" && matches!(scan.gap(i), " " | "-"))?;
    let goes_on = scan.gap(i + 1) == " " && scan.token(i + 2).is_some_and(|t| t.shape == TokenShape::Lower);
    let tree = scan.token(i + 2).is_some_and(|t| t.has(COMMON | WORD) && !t.has(STOP | PREP));
    (second.shape == TokenShape::Title && (goes_on && tree || !has_location_cue(scan, i))).then_some(i + 1)
}
