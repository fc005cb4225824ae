//! Numbers identified only by a preceding label: a plate, a membership number, a driving licence.
//!
//! These formats vary too much between countries, or are too plain, to be recognised by themselves. A label within
//! three or four words before the value is required, and the value's length must fit the label's kind.

use std::sync::LazyLock;

use serde::Deserialize;

use super::ScanState;
use crate::Kind::{self, DriversLicense, Passport, TrackingNumber};
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists;

/// The expected format of a label's value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueLabel {
    #[serde(deserialize_with = "word_lists::kind")]
    kind: Kind,
    words: Vec<String>,
    /// Least and most letters and digits, separators not counted.
    length: (usize, usize),
    /// Minimum number of digits among them, which excludes words after the label.
    digits: usize,
    /// Groups may be joined by spaces: `34 ABC 123`.
    #[serde(default)]
    spaced: bool,
}

#[derive(Deserialize)]
struct LabelFile {
    labels: Vec<ValueLabel>,
}

/// In order of decreasing specificity: the first label that fits determines the kind.
static LABELS: LazyLock<LabelFile> =
    LazyLock::new(|| word_lists::parse(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/value_labels.toml"))));

/// Topics of which one must be near before the labels are compared.
const LABEL_TOPICS: u32 = topic::PASSPORT
    | topic::LICENCE
    | topic::PLATE
    | topic::TAX
    | topic::HEALTH
    | topic::NATIONAL_ID
    | topic::TRACKING
    | topic::VEHICLE;

/// The value at token `i` if a label precedes it; returns the next token to examine.
pub(super) fn detect_labeled(scan: &mut ScanState<'_>, i: usize) -> Option<usize> {
    let token = *scan.token(i)?;
    // The topics of the words around are known already, so most numbers are refused before any label is compared.
    if scan.topics_near(i, 5, 0) & LABEL_TOPICS == 0 || !is_standalone(scan, i, &token) {
        return None;
    }
    for label in LABELS.labels.iter().filter(|l| scan.wants(l.kind)) {
        if !scan.near_word(i, &label.words, if label.spaced { 3 } else { 4 }, 0) {
            continue;
        }
        let Some(last) = value_end(scan, i, label) else { continue };
        let end = scan.list().get(last)?.end();
        scan.push(label.kind, token.start(), end, 75);
        return Some(last + 1);
    }
    None
}

/// Whether the value is separate, not part of a path, a name or a longer chain.
fn is_standalone(scan: &ScanState<'_>, i: usize, token: &WordToken) -> bool {
    let before = scan.byte_before(token.start());
    let chained = matches!(before, b'-' | b'.' | b'/') && i > 0 && scan.gap_before(i).len() == 1;
    !chained
        && !matches!(before, b'_' | b'\\' | b'$' | b'@')
        && !matches!(scan.byte_at(token.end()), b'_' | b'@' | b'(')
}

/// The last token of the value, which may consist of several groups.
fn value_end(scan: &ScanState<'_>, i: usize, label: &ValueLabel) -> Option<usize> {
    let list = scan.list();
    let (mut letters, mut digits, mut best) = (0, 0, None);
    for (at, token) in list.iter().enumerate().skip(i).take(5) {
        let fits = match token.shape {
            TokenShape::Digits => true,
            // Lower case only for a single word: `a5631933`.
            TokenShape::Mixed => {
                let digits = || scan.word(token).bytes().filter(u8::is_ascii_digit).count();
                // `package libpng16-16`: tracking numbers have capitals.
                let small = !label.spaced
                    && label.kind != TrackingNumber
                    && token.len() >= 6
                    && (label.kind != Passport || digits() >= 5);
                scan.word(token)
                    .bytes()
                    .all(|b| b.is_ascii_digit() || b.is_ascii_uppercase() || small && b.is_ascii_lowercase())
            }
            TokenShape::Upper => token.len() <= 4,
            _ => false,
        };
        let gap = if at > i { scan.gap(at - 1) } else { "" };
        let joined = matches!(gap, "" | "-" | "/" | ".") || label.spaced && gap == " ";
        if !fits || !joined {
            break;
        }
        let count = scan.word(token).bytes().filter(u8::is_ascii_digit).count();
        digits += count;
        letters += token.len() - count;
        // The longest value that fits is taken; shorter ones are its beginning.
        if (label.length.0..=label.length.1).contains(&(digits + letters)) && digits >= label.digits {
            best = Some(at);
        }
    }
    // Except in a few countries, a plate contains letters.
    best.filter(|last| {
        let chained = matches!(scan.gap(*last), "-" | "/") && list.get(last + 1).is_some_and(WordToken::is_digits);
        // `License: GPLv3+ … 2017-2020`, `12.20.0`: software licences.
        let software = label.kind == DriversLicense
            && list[i..=*last].iter().all(WordToken::is_digits)
            && ((i..*last).any(|g| scan.gap(g) == ".")
                || list[i..=*last].iter().all(|t| t.len() == 4) && *last == i + 1);
        !chained && !software && (label.kind != Kind::LicensePlate || letters > 0) && (*last > i || !list[i].is_word())
    })
}

/// A plate that begins with letters: `B-AB 1234`, `ABC-123DE`.
pub(super) fn license_plate(scan: &mut ScanState<'_>, i: usize) {
    let Some(token) = scan.token(i).filter(|t| t.shape == TokenShape::Upper && t.len() <= 3) else { return };
    let next = scan.token(i + 1).is_some_and(|t| !t.is_word() || t.shape == TokenShape::Upper && t.len() <= 3);
    if next
        && token.marks & crate::lexicon::mark::STOP == 0
        && matches!(scan.gap(i), "-" | " " | " - ")
        && scan.topics_near(i, 4, 0) & (topic::PLATE | topic::VEHICLE) != 0
    {
        detect_labeled(scan, i);
    }
}
