//! The continuation of an address after its street: unit, town, region, postal code.

use super::super::ScanState;
use super::{is_name_join, place_at};
use crate::lexicon::mark;
use crate::text::token::{TokenShape, WordToken};

/// Extends the address to the right over unit, town, region and postal code. Returns the last token and the number of
/// parts.
pub(super) fn extend_address(scan: &ScanState<'_>, core_last: usize) -> (usize, usize) {
    let mut last = core_last;
    let mut pieces = 0;
    while pieces < 8 {
        let gap = scan.gap(last);
        let joins = gap.len() <= 12
            && gap.matches('\n').count() <= 2
            && gap.chars().all(|c| c.is_whitespace() || matches!(c, ',' | '.' | '>' | '?' | '-' | '|'));
        if !joins || gap.contains(". ") && !gap.contains('\n') {
            break;
        }
        let Some(next) = next_part(scan, last, gap) else { break };
        last = next;
        pieces += 1;
    }
    (last, pieces)
}

/// The next part of the address after token `last`: returns its last token.
fn next_part(scan: &ScanState<'_>, last: usize, gap: &str) -> Option<usize> {
    let i = last + 1;
    let token = scan.token(i)?;
    if token.has(mark::UNIT)
        && scan.token(i + 1).is_some_and(|t| !t.is_word() && t.len() <= 5)
        && scan.gap(i).len() <= 2
    {
        return Some(i + 1);
    }
    if let Some(end) = postal_code(scan, i) {
        return Some(end);
    }
    if let Some(end) = place_at(scan, i).filter(|_| token.is_capital() || gap.contains(['\n', ','])) {
        return Some(end);
    }
    let code = matches!(token.shape, TokenShape::Upper) && (2..=3).contains(&token.len())
        || gap.contains(',') && token.len() == 2 && token.is_word();
    if code && scan.token(i + 1).is_none_or(|t| t.is_digits() && t.len() >= 4 || scan.gap(i).contains('\n')) {
        return Some(i);
    }
    // An unknown town: capitals between separators, followed by a region or a postal code.
    let separated =
        gap.contains([',', '\n']) || token.shape == TokenShape::Upper || scan.token(last).is_some_and(|t| !t.is_word());
    if !separated
        || !token.is_capital()
        || token.has(mark::STOP | mark::TECH | mark::SAY | mark::HONORIFIC | mark::UNIT)
    {
        return None;
    }
    let mut end = i;
    while end < i + 3
        && is_name_join(scan.gap(end))
        && scan.token(end + 1).is_some_and(|t| {
            (t.is_capital() || t.has(mark::PARTICLE)) && !t.has(mark::STOP) && place_at(scan, end + 1).is_none()
        })
    {
        end += 1;
    }
    let after = scan.token(end + 1);
    let goes_on = after.is_some_and(|_| {
        zip(scan, end + 1)
            || place_at(scan, end + 1).is_some()
            || scan.token(end + 1).is_some_and(|t| t.shape == TokenShape::Upper && t.len() == 2)
    });
    let ends = scan.gap(end).starts_with(['\n', '.', ',']) || after.is_none();
    (goes_on || ends && gap.contains([',', '\n'])).then_some(end)
}

fn zip(scan: &ScanState<'_>, i: usize) -> bool {
    postal_code(scan, i).is_some()
}

/// The last token of the postal code that begins at `i`: `12345-6789`, `00-950`, `114 55`, `1016 AB`, `SW1A 1AA`, `K1A 0B1`,
/// `01310-100`, `D-10115`.
fn postal_code(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let token = scan.token(i)?;
    let next = scan.token(i + 1);
    let digits = |t: Option<&WordToken>, n: usize| t.is_some_and(|t| t.is_digits() && t.len() == n);
    match (token.shape, token.len(), scan.gap(i)) {
        (TokenShape::Digits, 5, "-") if digits(next, 4) || digits(next, 3) => Some(i + 1),
        (TokenShape::Digits, 4, "-") if digits(next, 3) => Some(i + 1),
        (TokenShape::Digits, 2, "-") if digits(next, 3) => Some(i + 1),
        (TokenShape::Digits, 3, " ") if digits(next, 2) => Some(i + 1),
        (TokenShape::Digits, 4, " ") if next.is_some_and(|t| t.shape == TokenShape::Upper && t.len() == 2) => {
            Some(i + 1)
        }
        (TokenShape::Digits, 4..=6, _) => Some(i),
        (TokenShape::Upper, 1 | 2, "-") if next.is_some_and(|t| t.is_digits() && matches!(t.len(), 4 | 5)) => {
            Some(i + 1)
        }
        (TokenShape::Mixed, 2..=4, " ") => {
            let inward = scan.word(next.filter(|t| t.shape == TokenShape::Mixed && t.len() == 3)?).as_bytes();
            let outward = scan.word(token).as_bytes();
            let upper = inward.iter().chain(outward).all(|b| !b.is_ascii_lowercase());
            (upper && outward.first().is_some_and(u8::is_ascii_uppercase)).then_some(i + 1)
        }
        _ => None,
    }
}
