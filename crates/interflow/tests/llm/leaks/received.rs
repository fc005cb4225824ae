//! What an origin can read in a request: every string of it, in any decoded form.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD, STANDARD_NO_PAD};
use interflow_testkit::Request;
use serde_json::Value;

use super::values::letters_and_digits;

/// The letters and digits of a request, in each decoded form.
pub struct Received(Vec<String>);

impl Received {
    pub fn new(request: &Request) -> Self {
        let mut strings = vec![request.target.clone()];
        for (name, value) in request.headers.iter() {
            strings.extend([name, value].map(|part| String::from_utf8_lossy(part).into_owned()));
        }
        let body: Value = serde_json::from_slice(&request.body).expect("the body is JSON");
        let mut texts = Vec::new();
        leaves(&body, &mut strings, &mut texts);
        let forms: [fn(&str) -> String; 4] = [str::to_owned, percent_decoded, references_decoded, base64_decoded];
        let form = |strings: &[String], decode: fn(&str) -> String| {
            strings.iter().map(|s| letters_and_digits(&decode(s))).collect::<String>()
        };
        let mut all: Vec<String> = forms.into_iter().map(|decode| form(&strings, decode)).collect();
        // A value may be split over adjacent texts.
        all.push(form(&texts, str::to_owned));
        Self(all)
    }

    pub fn holds(&self, value: &str) -> bool {
        // Whether the lines of a key are there, with or without those around them.
        let value =
            value.trim_start_matches("-----BEGIN PRIVATE KEY-----").trim_end_matches("-----END PRIVATE KEY-----");
        let value = letters_and_digits(value);
        self.0.iter().any(|text| text.contains(&value))
    }
}

/// Every string, number and name of a value, and those of JSON in strings; `texts` are the strings that a model reads one
/// after the other, without names, types and roles.
fn leaves(value: &Value, out: &mut Vec<String>, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => match serde_json::from_str(text) {
            Ok(inner @ (Value::Object(_) | Value::Array(_))) => leaves(&inner, out, texts),
            _ => {
                out.push(text.clone());
                texts.push(text.clone());
            }
        },
        Value::Array(values) => values.iter().for_each(|v| leaves(v, out, texts)),
        Value::Object(members) => members.iter().for_each(|(name, v)| {
            out.push(name.clone());
            let structure = matches!(name.as_str(), "type" | "role");
            let mut unread = Vec::new();
            leaves(v, out, if structure { &mut unread } else { texts });
        }),
        other => out.push(other.to_string()),
    }
}

fn percent_decoded(text: &str) -> String {
    String::from_utf8_lossy(&percent_bytes(text.as_bytes())).into_owned()
}

fn percent_bytes(raw: &[u8]) -> Vec<u8> {
    let hex = |b: u8| char::from(b).to_digit(16);
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(b) = raw.get(at) {
        match raw.get(at..at + 3) {
            Some([b'%', a, b]) if hex(*a).is_some() && hex(*b).is_some() => {
                out.push((hex(*a).unwrap_or(0) * 16 + hex(*b).unwrap_or(0)) as u8);
                at += 3;
            }
            _ => {
                out.push(*b);
                at += 1;
            }
        }
    }
    out
}

fn references_decoded(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split("&#").enumerate() {
        let code = part.split_once(';').filter(|_| i > 0).and_then(|(digits, rest)| {
            let n = match digits.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => digits.parse(),
            };
            Some((char::from_u32(n.ok()?)?, rest))
        });
        match code {
            Some((c, rest)) => {
                out.push(c);
                out.push_str(rest);
            }
            None => out.push_str(part),
        }
    }
    out
}

/// The decoded text of every run of base64, on one line or several.
fn base64_decoded(text: &str) -> String {
    let lenient = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let engine = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        lenient.with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
    );
    let joined: String = text.chars().filter(|c| *c != '\n').collect();
    let runs = joined.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '/' | '='));
    let decoded = runs.filter_map(|run| {
        let run = run.rsplit(',').next()?;
        engine.decode(run).or_else(|_| STANDARD.decode(run)).or_else(|_| STANDARD_NO_PAD.decode(run)).ok()
    });
    decoded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}
