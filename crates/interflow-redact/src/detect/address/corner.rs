//! An address by its crossing: `the corner of Fifth and Main`.

use super::super::ScanState;
use super::{AddressPart, is_name_join, name_word};
use crate::lexicon::mark;
use crate::text::token::{TokenShape, WordToken};

/// Maximum number of words and numbers of one of the streets.
const MAX_STREET_WORDS: usize = 6;

/// The two streets after `corner of`, if token `i` is that word.
pub(super) fn corner(scan: &ScanState<'_>, i: usize) -> Option<AddressPart> {
    let spoken = |i: usize, word: &str| {
        scan.token(i).is_some_and(|t| scan.word(t).eq_ignore_ascii_case(word) && scan.gap(i) == " ")
    };
    if !spoken(i, "corner") || !spoken(i + 1, "of") {
        return None;
    }
    let and = street_end(scan, i + 2).map(|last| last + 1).filter(|and| spoken(*and, "and"))?;
    let last = street_end(scan, and + 1)?;
    Some(AddressPart { first: i + 2, last, confidence: 65 })
}

/// The last token of the street that begins at `i`: capitals, numbers and small words, with at least one capital.
fn street_end(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let fits = |t: &WordToken| {
        let number = t.is_digits() && t.len() <= 5;
        let street = t.has(mark::STREET_PREFIX | mark::STREET_SUFFIX) || t.shape == TokenShape::Lower && t.class == 0;
        (number || street || name_word(scan, t)) && (t.is_capital() || !t.has(mark::STOP) || t.has(mark::PARTICLE))
    };
    // `ul. Cicha`, `St. Mary`: a full stop that ends no sentence.
    let fits_gap = |n: usize, gap: &str| if gap == ". " { scan.list()[n].len() <= 4 } else { is_name_join(gap) };
    let joined = |n: &usize| *n == i || fits_gap(n - 1, scan.gap(n - 1));
    let last = (i..i + MAX_STREET_WORDS).take_while(|n| joined(n) && scan.token(*n).is_some_and(fits)).last()?;
    scan.list()[i..=last].iter().any(|t| t.is_capital() && !t.has(mark::STOP | mark::TECH)).then_some(last)
}
