//! Other readings of a text: base64 in it, rot13, backwards, digits for letters.

use std::ops::Range;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{GeneralPurposeConfig, STANDARD_NO_PAD};
use regex::Regex;

/// Base64 of 18 bytes at least: shorter ones say nothing.
static BASE64: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/_-]{24,}={0,2}").expect("a pattern"));

/// Runs of base64 that are read in one text.
const MAX_RUNS: usize = 16;
/// Bytes of one run that are read.
const MAX_RUN: usize = 8 << 10;

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The readings that differ from the text, with the range of the text that they are of.
pub(super) fn readings(text: &str) -> Vec<(Range<usize>, String)> {
    let runs = BASE64.find_iter(text).take(MAX_RUNS);
    let mut texts: Vec<_> = runs.filter_map(|run| Some((run.range(), base64_text(run.as_str())?))).collect();
    texts.extend(spaced_words(text).map(|plain| (0..text.len(), plain)));
    let lower = text.to_lowercase();
    let all = 0..text.len();
    // Only where a key word shows up that way: each reading costs a pass.
    if ["vtaber", "qvfertneq", "sbetrg", "cebzcg", "vafgehpgvba"].iter().any(|w| lower.contains(w)) {
        texts.push((all.clone(), lower.chars().map(rot13).collect()));
    }
    if ["erongi", "snoitcurtsni", "tpmorp", "dragersid"].iter().any(|w| lower.contains(w)) {
        texts.push((all.clone(), lower.chars().rev().collect()));
    }
    texts.extend(without_digits(&lower).map(|plain| (all, plain)));
    texts
}

/// Words spelled with spaces and set apart by wider ones; `None` if there are none.
fn spaced_words(text: &str) -> Option<String> {
    let is_spelled = |part: &str| part.len() > 4 && part.split(' ').all(|l| l.chars().count() == 1);
    let parts: Vec<&str> = text.split("  ").map(str::trim).collect();
    if !parts.iter().any(|p| is_spelled(p)) {
        return None;
    }
    // A short word, such as `all` or `me`, is spelled too if its neighbours are.
    let is_short = |part: &str| part.split(' ').all(|l| l.chars().count() <= 1);
    let joined = parts.into_iter().map(|p| if is_short(p) { p.replace(' ', "") } else { p.to_owned() });
    Some(joined.collect::<Vec<_>>().join(" "))
}

fn base64_text(run: &str) -> Option<String> {
    let end = run.len().min(MAX_RUN);
    let standard = run.get(..end)?.replace('-', "+").replace('_', "/");
    let bytes = ENGINE.decode(&standard).or_else(|_| STANDARD_NO_PAD.decode(standard.trim_end_matches('='))).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let readable =
        text.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace() || c.is_ascii_punctuation()).count();
    (readable == text.chars().count() && text.contains(' ')).then_some(text)
}

const fn rot13(c: char) -> char {
    match c {
        'a'..='m' => (c as u8 + 13) as char,
        'n'..='z' => (c as u8 - 13) as char,
        _ => c,
    }
}

/// Digits and signs within words as the letters that they stand for; `None` if no word has both.
fn without_digits(lower: &str) -> Option<String> {
    let mut changed = false;
    let words = lower.split_inclusive(char::is_whitespace).map(|word| {
        let letters = word.chars().filter(char::is_ascii_alphabetic).count();
        let signs = word.chars().filter(|c| letter_of(*c).is_some()).count();
        if letters < 2 || signs == 0 || signs > letters + 1 {
            return word.to_owned();
        }
        changed = true;
        word.chars().map(|c| letter_of(c).unwrap_or(c)).collect()
    });
    let text: String = words.collect();
    changed.then_some(text)
}

const fn letter_of(c: char) -> Option<char> {
    Some(match c {
        '0' => 'o',
        '1' | '!' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        _ => return None,
    })
}
