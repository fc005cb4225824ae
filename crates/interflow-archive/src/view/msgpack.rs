//! MessagePack as an indented tree similar to JSON.

use std::fmt::Write as _;

use rmpv::Value;

use super::value_tree::{MAX_DEPTH, block, is_full, lines};
use super::{digits, quoted};

/// Writes the values of a body.
///
/// # Errors
/// The position where it stops being valid MessagePack.
pub(super) fn pretty(body: &[u8], cap: usize) -> Result<String, String> {
    let decode = |rest: &mut &[u8]| rmpv::decode::read_value_with_max_depth(rest, MAX_DEPTH).map_err(|e| e.to_string());
    lines("MessagePack", body, cap, decode, |out, value| write(out, value, 0, cap))
}

fn write(out: &mut String, value: &Value, depth: usize, cap: usize) {
    if is_full(out, cap) {
        return;
    }
    match value {
        Value::Nil => out.push_str("null"),
        Value::Boolean(b) => drop(write!(out, "{b}")),
        Value::Integer(n) => drop(write!(out, "{n}")),
        Value::F32(n) => drop(write!(out, "{n:?}")),
        Value::F64(n) => drop(write!(out, "{n:?}")),
        Value::String(s) => quoted(out, &String::from_utf8_lossy(s.as_bytes())),
        Value::Binary(b) => digits(out, b),
        Value::Ext(kind, b) => {
            let _ = write!(out, "ext({kind}) ");
            digits(out, b);
        }
        Value::Array(items) => block(out, ('[', ']'), items, depth, cap, |out, item| write(out, item, depth + 1, cap)),
        Value::Map(members) => block(out, ('{', '}'), members, depth, cap, |out, (name, value)| {
            write(out, name, depth + 1, cap);
            out.push_str(": ");
            write(out, value, depth + 1, cap);
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value_tree::MAX_BODY;
    use super::*;

    #[test]
    fn every_messagepack_type_is_formatted() {
        let value = Value::Map(vec![
            (Value::from("a"), Value::Array(vec![Value::from(1), Value::from(-2), Value::F64(0.5), Value::Nil])),
            (Value::from(7), Value::Binary(vec![1, 0xff])),
            (Value::from("e"), Value::Ext(-1, vec![0])),
            (Value::from("t"), Value::from("q\"\n\u{1b}")),
            (Value::from("m"), Value::Map(Vec::new())),
        ]);
        let mut body = Vec::new();
        rmpv::encode::write_value(&mut body, &value).unwrap();
        body.push(0xc3);
        assert_eq!(
            pretty(&body, 1000).unwrap(),
            "{\n  \"a\": [\n    1,\n    -2,\n    0.5,\n    null\n  ],\n  7: 0x01ff,\n  \"e\": ext(-1) 0x00,\n  \
             \"t\": \"q\\\"\\n\\u{1b}\",\n  \"m\": {}\n}\ntrue\n"
        );
    }

    #[test]
    fn invalid_lengths_nesting_and_truncation_are_reported() {
        assert!(pretty(&[0x92, 1], 1000).unwrap_err().starts_with("byte 2"));
        assert!(pretty(&[0xdd, 0xff, 0xff, 0xff, 0xff, 1], 1000).is_err());
        assert!(pretty(&[0x91; 200], 1000).is_err());
        assert!(pretty(&vec![1; MAX_BODY + 1], 1000).is_err());
        assert!(pretty(&vec![0xc0; 10_000], 100).unwrap().len() < 120);
    }
}
