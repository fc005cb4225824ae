//! Fields whose key determines the kind of the value: `"last_name": "Berg"`, `zip: 2450`, `nationality = "Danish"`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::ScanState;
use super::tables::is_name;
use crate::Kind::{self, *};
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{self, WordList, words};

/// Maximum length of a key and of a value in bytes.
const MAX_FIELD_LEN: usize = 80;

/// The kinds of keys without `_`, `-` and capitals.
static FIELD_KINDS: LazyLock<HashMap<String, Kind>> = LazyLock::new(|| {
    let file: HashMap<String, Vec<String>> =
        word_lists::parse(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/fields.toml")));
    let by_key = file.into_iter().flat_map(|(kind, keys)| {
        let kind = Kind::from_name(&kind).expect("data/fields.toml names kinds");
        keys.into_iter().map(move |key| (key, kind))
    });
    by_key.collect()
});

/// Type names in place of a value, in a schema or an example.
static TYPE_NAMES: WordList = WordList::new(|| words("type_names"));

/// The values of known keys anywhere in the text.
pub(super) fn fields(scan: &mut ScanState<'_>) {
    if scan.tokens.colons.is_empty() && !scan.tokens.signs.iter().any(|s| scan.byte_at(*s as usize) == b'=') {
        return;
    }
    for (i, token) in scan.list().iter().enumerate() {
        // Most words are followed by a space and another one.
        let spaced = scan.byte_at(token.end()) == b' ' && scan.byte_at(token.end() + 1).is_ascii_alphanumeric();
        if !spaced && (token.is_word() || token.shape == TokenShape::Mixed) {
            detect_field(scan, i, token);
        }
    }
}

/// Reports the value of the key that ends with token `i`, if it is one of [`FIELD_KINDS`] and the value fits.
fn detect_field(scan: &mut ScanState<'_>, i: usize, token: &WordToken) {
    let after = scan.byte_at(token.end());
    if !matches!(after, b'"' | b'\'' | b':' | b'=' | b' ' | b'\\') || scan.token(i + 1).is_none() {
        return;
    }
    // The punctuation between a key and its value, in JSON, YAML, query strings and source code.
    let gap = scan.gap(i);
    let assigned = gap.len() <= 8
        && gap.contains([':', '='])
        && gap.bytes().all(|b| matches!(b, b'"' | b'\'' | b':' | b'=' | b' ' | b'>' | b'\\' | b'\t'));
    // `a::b` is a path, and `a == b` a comparison.
    if !assigned || gap.contains("::") || gap.contains("==") {
        return;
    }
    let mut buffer = [0; 24];
    let Some(kind) = kind_for_key(scan, i, token.end(), &mut buffer) else { return };
    let from = token.end() + gap.len();
    let rest = scan.text.get(from..).unwrap_or_default();
    let rest = &rest[..rest.floor_char_boundary(MAX_FIELD_LEN)];
    // A quoted value ends at its quote, that of a JSON member with it; another at whatever may follow a value in a line, a
    // query or a list.
    let quote = gap.bytes().next_back().filter(|b| matches!(b, b'"' | b'\''));
    let quote = quote.or((from == scan.member_value && scan.text.len() - from <= MAX_FIELD_LEN).then_some(b'\n'));
    let stop = match quote {
        Some(q) => rest.find([char::from(q), '\n', '\\']),
        None => rest.find(['\n', '\r', ',', ';', '}', '&', '"', '<']),
    };
    let whole =
        quote.is_none() && stop.is_none_or(|at| matches!(rest.as_bytes()[at], b'\n' | b'\r' | b'&' | b',' | b'}'));
    let value = rest[..stop.unwrap_or(rest.len())].trim_end();
    // A schema or a template instead of a value.
    let plain = TYPE_NAMES.iter().any(|t| value.eq_ignore_ascii_case(t)) || value.contains(['(', '{', '$', '%', '_']);
    if value.is_empty() || plain || quote.is_none() && (!whole || !is_plain_value(value)) {
        return;
    }
    if fits_kind(kind, value) {
        scan.push(kind, from, from + value.len(), 80);
    }
}

/// The kind indicated by the key that ends at `end`.
fn kind_for_key(scan: &ScanState<'_>, i: usize, end: usize, buffer: &mut [u8; 24]) -> Option<Kind> {
    let key = scan.bytes[..end].iter().rev().take(buffer.len() + 4);
    let key = key.take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let mut at = buffer.len();
    for b in key.filter(|b| b.is_ascii_alphanumeric()) {
        // The key is read backwards into the buffer; one that is too long for it is in no list.
        at = at.checked_sub(1)?;
        buffer[at] = b.to_ascii_lowercase();
    }
    let word = std::str::from_utf8(buffer.get(at..)?).ok()?;
    // `{"last": "Bishop", "first": "Grace"}`: each key clarifies the other.
    let beside = match word {
        "last" => "first",
        "first" => "last",
        _ => "",
    };
    if !beside.is_empty() {
        let quoted = matches!(scan.byte_at(end), b'"' | b'\'');
        return (quoted && scan.near_word(i, &[beside], 4, 4)).then_some(Person);
    }
    FIELD_KINDS.get(word).copied()
}

/// Unquoted values: capitalized words or digits, unlike types and variables.
fn is_plain_value(value: &str) -> bool {
    let word = |w: &str| w.chars().skip(1).all(|c| c.is_lowercase() || matches!(c, '\'' | '’' | '.'));
    value.split([' ', '-']).all(|w| word(w) || w.bytes().any(|b| b.is_ascii_digit())) && value.len() <= 60
}

/// Whether a value has the form of the kind that its key names; keys are used for other things too.
fn fits_kind(kind: Kind, value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let code = |least: usize, most: usize| {
        (least..=most).contains(&value.len())
            && value.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase() || matches!(b, b' ' | b'-'))
    };
    let upper = value.chars().next().is_some_and(char::is_uppercase);
    match kind {
        Person | Location | Organization => upper && is_name(value) && !value.to_ascii_lowercase().contains("name"),
        Nationality => upper && is_name(value) && value.split(' ').count() <= 2,
        ZipCode => code(3, 10) && digits >= 2,
        Passport => code(6, 10) && digits >= 5,
        Date => {
            (4..=8).contains(&digits)
                && value.len() <= 24
                && !value.contains(':')
                && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'-' | b'/' | b'.' | b','))
        }
        StreetAddress => digits >= 1 && value.contains(' ') && value.chars().filter(|c| c.is_alphabetic()).count() >= 4,
        _ => false,
    }
}
