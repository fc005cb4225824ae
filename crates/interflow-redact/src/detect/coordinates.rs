//! Latitude and longitude: pairs of decimal fractions, with hemispheres, or under separate keys.

use super::{ScanState, number_context};
use crate::Kind;
use crate::lexicon::topic;

/// A decimal fraction: its value, its range, and the token after it.
struct DecimalFraction {
    value: f64,
    start: usize,
    end: usize,
    decimals: usize,
    next: usize,
}

/// Coordinates whose first number has token `i` as its integer part.
pub(super) fn coordinates(scan: &mut ScanState<'_>, i: usize) {
    let fine = |n: usize| scan.token(n).is_some_and(|t| t.is_digits() && t.len() >= 2);
    if !scan.wants(Kind::Gps) || !fine(i + 1) || matches!(scan.gap_before(i), "." | ".-") {
        return;
    }
    let Some(first) = parse_fraction(scan, i) else { return };
    if let Some((start, end, confidence)) =
        coordinate_pair(scan, i, &first).or_else(|| keyed_coordinate(scan, i, &first))
    {
        let start = if scan.byte_before(start) == b'-' { start - 1 } else { start };
        scan.push(Kind::Gps, start, end, confidence);
    }
}

/// A pair of fractions. Many decimals make it likely, a geographic word before it almost certain.
fn coordinate_pair(scan: &ScanState<'_>, i: usize, first: &DecimalFraction) -> Option<(usize, usize, u8)> {
    if let Some(found) = hemispheres(scan, first) {
        return Some(found);
    }
    let second = parse_fraction(scan, first.next)?;
    let gap = scan.text.get(first.end..second.start)?;
    let tied =
        gap.len() <= 4 && gap.bytes().all(|b| matches!(b, b',' | b' ' | b'-' | b';')) && gap.contains([',', ';', ' ']);
    let decimals = first.decimals.min(second.decimals);
    if !tied || first.value > 90.0 || second.value > 180.0 {
        return None;
    }
    // The corners of an area or the points of a line: `"coordinates": [[[3.92, -26.17], …`.
    let outline = scan.bytes[..first.start].trim_ascii_end().strip_suffix(b"-").unwrap_or(&scan.bytes[..first.start]);
    let named = scan.has_topic_near(i, topic::GEO, 4, 0) && !outline.trim_ascii_end().ends_with(b"[[");
    if named && decimals >= 2 {
        return Some((first.start, second.end, 90));
    }
    let labelled =
        decimals >= 4 && gap.contains(',') && number_context::has_coordinate_context(scan, i, first.start, second.end);
    (decimals >= 4 && gap.contains(',')).then_some((first.start, second.end, if labelled { 65 } else { 40 }))
}

/// Two fractions with hemisphere letters: `48.8584° N, 2.2945° E`.
fn hemispheres(scan: &ScanState<'_>, first: &DecimalFraction) -> Option<(usize, usize, u8)> {
    let north = hemisphere_letter(scan, first, &["N", "S"])?;
    let second = parse_fraction(scan, north + 1).filter(|s| s.value <= 180.0 && first.value <= 90.0)?;
    let close = scan.text.get(scan.token(north)?.end()..second.start)?;
    let east = hemisphere_letter(scan, &second, &["E", "W", "O"])?;
    (close.len() <= 3 && !close.contains('\n')).then_some((first.start, scan.token(east)?.end(), 85))
}

/// The token of a hemisphere letter right after a fraction.
fn hemisphere_letter(scan: &ScanState<'_>, number: &DecimalFraction, letters: &[&str]) -> Option<usize> {
    let token = scan.token(number.next).filter(|t| letters.contains(&scan.word(t)))?;
    matches!(scan.text.get(number.end..token.start())?, "" | " " | "°" | "° ").then_some(number.next)
}

/// A fraction under a key: `"latitude": 48.8584`, `lng=2.2945`.
fn keyed_coordinate(scan: &ScanState<'_>, i: usize, number: &DecimalFraction) -> Option<(usize, usize, u8)> {
    let key = scan.token(i.checked_sub(1)?)?;
    let word = scan.word(key);
    let named = ["lat", "latitude", "lng", "lon", "long", "longitude"].iter().any(|w| word.eq_ignore_ascii_case(w));
    let gap = scan.gap_before(i);
    let assigned = gap.len() <= 5 && gap.contains([':', '=']) && !gap.contains('\n');
    (named && assigned && number.decimals >= 3 && number.value <= 180.0).then_some((number.start, number.end, 80))
}

/// A number with one decimal point, whose integer part is token `i`.
fn parse_fraction(scan: &ScanState<'_>, i: usize) -> Option<DecimalFraction> {
    let (whole, part) = (scan.token(i)?, scan.token(i + 1)?);
    let joined = whole.is_digits()
        && part.is_digits()
        && whole.len() <= 3
        && part.len() <= 20
        && scan.gap(i) == "."
        && scan.byte_at(part.end()) != b'.';
    let value = joined.then(|| scan.text.get(whole.start()..part.end())?.parse().ok()).flatten()?;
    Some(DecimalFraction { value, start: whole.start(), end: part.end(), decimals: part.len(), next: i + 2 })
}
