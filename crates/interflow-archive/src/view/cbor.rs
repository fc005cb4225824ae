//! CBOR (RFC 8949) as an indented tree similar to JSON.

use std::fmt::Write as _;

use ciborium::Value;

use super::value_tree::{MAX_DEPTH, block, is_full, lines};
use super::{digits, quoted};

/// Writes the items of a body.
///
/// # Errors
/// The position where it stops being valid CBOR.
pub(super) fn pretty(body: &[u8], cap: usize) -> Result<String, String> {
    let decode = |rest: &mut &[u8]| {
        ciborium::de::from_reader_with_recursion_limit::<Value, _>(rest, MAX_DEPTH).map_err(|e| e.to_string())
    };
    lines("CBOR", body, cap, decode, |out, value| write(out, value, 0, cap))
}

fn write(out: &mut String, value: &Value, depth: usize, cap: usize) {
    if is_full(out, cap) {
        return;
    }
    match value {
        Value::Bool(b) => drop(write!(out, "{b}")),
        Value::Integer(n) => drop(write!(out, "{}", i128::from(*n))),
        Value::Float(n) => drop(write!(out, "{n:?}")),
        Value::Text(text) => quoted(out, text),
        Value::Bytes(bytes) => digits(out, bytes),
        Value::Tag(tag, inner) => {
            let _ = write!(out, "{tag}(");
            write(out, inner, depth, cap);
            out.push(')');
        }
        Value::Array(items) => block(out, ('[', ']'), items, depth, cap, |out, item| write(out, item, depth + 1, cap)),
        Value::Map(members) => block(out, ('{', '}'), members, depth, cap, |out, (name, value)| {
            write(out, name, depth + 1, cap);
            out.push_str(": ");
            write(out, value, depth + 1, cap);
        }),
        _ => out.push_str("null"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value_tree::MAX_BODY;
    use super::*;

    #[test]
    fn every_cbor_type_is_formatted() {
        // {"a": [1, -2, 0.5, null], 7: h'01ff', "t": 1("q\n"), "m": {}} and, after it, true.
        let body = b"\xa4\x61a\x84\x01\x21\xf9\x38\x00\xf6\x07\x42\x01\xff\x61t\xc1\x62q\n\x61m\xa0\xf5";
        assert_eq!(
            pretty(body, 1000).unwrap(),
            "{\n  \"a\": [\n    1,\n    -2,\n    0.5,\n    null\n  ],\n  7: 0x01ff,\n  \"t\": 1(\"q\\n\"),\n  \"m\": {}\n}\ntrue\n"
        );
    }

    #[test]
    fn invalid_lengths_nesting_and_truncation_are_reported() {
        assert!(pretty(&[0x82, 1], 1000).unwrap_err().starts_with("byte 2"));
        assert!(pretty(&[0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], 1000).is_err());
        assert!(pretty(&[0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], 1000).is_err());
        assert!(pretty(&[0x81; 200], 1000).is_err());
        assert!(pretty(&[0xd8; 2000], 1000).is_err());
        assert!(pretty(&vec![1; MAX_BODY + 1], 1000).is_err());
        assert!(pretty(&vec![0xf6; 10_000], 100).unwrap().len() < 120);
    }
}
