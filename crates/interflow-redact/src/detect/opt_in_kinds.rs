//! Kinds that a policy must enable explicitly, since they reveal little about a person: amounts of money, bare state
//! abbreviations, bare telephone extensions.

use super::ScanState;
use crate::Kind;
use crate::text::token::TokenShape;
use crate::word_lists::{WordSet, words};

/// ISO 4217 codes that stand beside amounts.
const CURRENCY_CODES: &[&str] =
    &["USD", "EUR", "GBP", "JPY", "CHF", "CAD", "AUD", "INR", "CNY", "SEK", "NOK", "DKK", "PLN", "BRL", "MXN"];

/// US states and territories, by their postal abbreviations (ISO 3166-2:US).
static US_STATES: WordSet = WordSet::new(|| words("us_states"));

/// Detects the kinds of this file that the policy enables.
pub(super) fn detect_opt_in(scan: &mut ScanState<'_>) {
    let kinds = [Kind::Currency, Kind::StateAbbreviation, Kind::PhoneExtension];
    if !scan.wants.kinds.any(&kinds) {
        return;
    }
    for i in 0..scan.list().len() {
        match scan.list()[i].shape {
            TokenShape::Digits => money(scan, i),
            TokenShape::Upper => state(scan, i),
            _ => {}
        }
        extension(scan, i);
    }
}

/// `$1,234.50`, `99 EUR`: the number with thousands and fraction, and the currency.
fn money(scan: &mut ScanState<'_>, i: usize) {
    let first = scan.list()[i];
    let behind_number = matches!(scan.gap_before(i), "." | ",") && i > 0 && scan.list()[i - 1].is_digits();
    if behind_number {
        return;
    }
    let mut last = i;
    while matches!(scan.gap(last), "." | ",") && scan.token(last + 1).is_some_and(|t| t.is_digits() && t.len() <= 3) {
        last += 1;
    }
    let (mut start, mut end) = (first.start(), scan.list()[last].end());
    let before = scan.text[..start].trim_end_matches(' ');
    let sign = before.chars().next_back().filter(|c| matches!(c, '$' | '€' | '£' | '¥' | '₹'));
    let code = |i: usize| scan.token(i).filter(|t| CURRENCY_CODES.contains(&scan.word(t)));
    if let Some(sign) = sign.filter(|_| start - before.len() <= 1) {
        start = before.len() - sign.len_utf8();
    } else if let Some(code) = i.checked_sub(1).and_then(code).filter(|_| scan.gap_before(i) == " ") {
        start = code.start();
    } else if let Some(code) = code(last + 1).filter(|_| matches!(scan.gap(last), "" | " ")) {
        end = code.end();
    } else if let Some(sign) =
        scan.text[end..].trim_start_matches(' ').chars().next().filter(|c| matches!(c, '€' | '£' | '₹'))
    {
        end = scan.text[end..].find(sign).map_or(end, |at| end + at + sign.len_utf8());
    } else {
        return;
    }
    scan.push(Kind::Currency, start, end, 80);
}

/// A state's abbreviation; a following postal code raises the confidence.
fn state(scan: &mut ScanState<'_>, i: usize) {
    let token = scan.list()[i];
    if token.len() == 2 && US_STATES.contains(scan.word(&token)) {
        let coded = scan.gap(i) == " " && scan.token(i + 1).is_some_and(|t| t.is_digits() && t.len() == 5);
        scan.push(Kind::StateAbbreviation, token.start(), token.end(), if coded { 80 } else { 25 });
    }
}

/// An extension without a number before it: `x123`, `ext. 123`.
fn extension(scan: &mut ScanState<'_>, i: usize) {
    let token = scan.list()[i];
    let word = scan.word(&token);
    if token.shape == TokenShape::Mixed {
        let digits = word
            .strip_prefix(['x', 'X'])
            .filter(|d| (2..=6).contains(&d.len()) && d.bytes().all(|b| b.is_ascii_digit()));
        if digits.is_some() {
            scan.push(Kind::PhoneExtension, token.start(), token.end(), 75);
        }
    } else if ["ext", "extension"].iter().any(|w| word.eq_ignore_ascii_case(w))
        && let Some(number) = scan.token(i + 1).filter(|t| t.is_digits() && t.len() <= 6).copied()
        && matches!(scan.gap(i), " " | ". " | "." | ": ")
    {
        scan.push(Kind::PhoneExtension, token.start(), number.end(), 75);
    }
}
