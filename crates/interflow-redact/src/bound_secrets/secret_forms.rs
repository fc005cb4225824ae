//! The encodings in which a known secret may turn up in a response.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use interflow_types::percent::{self, AsciiSet, COMPONENT};

use crate::text::json::escaped;

/// Shorter secrets are not searched in base64 and hexadecimal form, where they would cause false matches.
const MIN_ENCODED_SECRET_LEN: usize = 8;

/// What paths encode, and what `encodeURIComponent` of scripts does.
const PATH: &AsciiSet = &COMPONENT.remove(b'/');
const SCRIPT: &AsciiSet = &COMPONENT.remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')');

/// The encodings of a secret: plain, JSON, HTML, base64, hexadecimal, and percent-encoded as in paths, forms and
/// scripts.
pub fn encoded_forms(value: &str) -> BTreeSet<Vec<u8>> {
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let json = json_string(value);
    // Some encoders escape the slash.
    let slashes = String::from_utf8_lossy(&json).replace('/', "\\/").into_bytes();
    let mut all = BTreeSet::from([value.as_bytes().to_vec(), json, slashes, escape_json(value)]);
    if value.len() >= MIN_ENCODED_SECRET_LEN {
        all.extend(base64_and_hex_forms(value));
        all.insert(hex::encode(value).into_bytes());
        all.insert(hex::encode_upper(value).into_bytes());
    }
    for quote in ["&quot;", "&#34;"] {
        all.insert(html.replace('"', quote).into_bytes());
    }
    for set in [COMPONENT, PATH, SCRIPT] {
        let text = percent::encoded_as(value, set);
        all.extend([lower_hex(&text), text.replace("%20", "+").into_bytes(), text.into_bytes()]);
    }
    all.retain(|form| !form.is_empty());
    all
}

/// In base64 at each of the three alignments: the characters that depend only on the secret.
fn base64_and_hex_forms(value: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // Base64 has groups of three bytes, so a secret looks different depending on what precedes it.
    for before in 0..3_usize {
        let text = [&[0; 2][..before.min(2)], value.as_bytes()].concat();
        let whole = text.len() % 3 == 0;
        for packed in [STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
            // The characters at the edges also depend on neighbouring bytes and are left out.
            let from = before + usize::from(before > 0);
            let to = packed.len() - usize::from(!whole);
            all.extend(packed.get(from..to).map(|p| p.as_bytes().to_vec()));
            if before == 0 {
                all.push(packed.into_bytes());
            }
        }
    }
    all
}

/// Percent-encoding with lower-case digits.
fn lower_hex(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        out.push_str(&format!("%{}{rest}", code.to_ascii_lowercase()));
    }
    out.into_bytes()
}

/// The value as in a JSON string, without quotes.
pub fn json_string(value: &str) -> Vec<u8> {
    escaped(value).into_bytes()
}

/// As HTML-safe JSON encoders write it, with `&`, `<` and `>` as `\\u0026` and so on.
fn escape_json(value: &str) -> Vec<u8> {
    escaped(value).replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e").into_bytes()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::Replacer;

    #[test]
    fn base64_encoded_secret_is_found_at_any_offset() {
        for value in ["the-real-secret", "the-real-secre", "the-real-secr?>"] {
            let swap = Replacer::new(encoded_forms(value).into_iter().map(|f| (f, b"X".to_vec())).collect()).unwrap();
            for before in 0..7 {
                for after in 0..4 {
                    let text = format!("{}{value}{}", "a".repeat(before), "z".repeat(after));
                    assert!(swap.replace(STANDARD.encode(&text).as_bytes()).is_some(), "{text}");
                }
            }
        }
    }
}
