//! MessagePack as an indented tree similar to JSON.

use std::fmt::Write as _;

use rmpv::Value;

use super::{digits, quoted};

/// Maximum size of a body that is rendered, in bytes: decoded values are up to forty times as large.
const MAX_BODY: usize = 8 << 20;
/// Maximum nesting depth, which bounds the recursion.
const MAX_DEPTH: usize = 64;

/// Writes the values of a body.
///
/// # Errors
/// The position where it stops being valid MessagePack.
pub(super) fn pretty(body: &[u8], cap: usize) -> Result<String, String> {
    if body.len() > MAX_BODY {
        return Err(format!("{} bytes of MessagePack are too many to be shown", body.len()));
    }
    let (mut out, mut rest) = (String::new(), body);
    while !rest.is_empty() && out.len() <= cap {
        let at = body.len() - rest.len();
        let value = rmpv::decode::read_value_with_max_depth(&mut rest, MAX_DEPTH);
        // The parser may stop before or after the value that is wrong.
        let value = value.map_err(|e| format!("byte {}: no MessagePack: {e}", at.max(body.len() - rest.len())))?;
        write(&mut out, &value, 0, cap);
        out.push('\n');
    }
    Ok(out)
}

fn write(out: &mut String, value: &Value, depth: usize, cap: usize) {
    // Checked at every value, so that a small body cannot fill the memory by nesting.
    if out.len() > cap {
        out.push('…');
        return;
    }
    match value {
        Value::Nil => out.push_str("null"),
        Value::Boolean(b) => drop(write!(out, "{b}")),
        Value::Integer(n) => drop(write!(out, "{n}")),
        Value::F32(n) => drop(write!(out, "{n:?}")),
        Value::F64(n) => drop(write!(out, "{n:?}")),
        Value::String(s) => quoted(out, &String::from_utf8_lossy(s.as_bytes())),
        Value::Binary(b) => {
            out.push_str("0x");
            digits(out, b);
        }
        Value::Ext(kind, b) => {
            let _ = write!(out, "ext({kind}) 0x");
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

pub(super) fn block<T>(
    out: &mut String,
    (open, close): (char, char),
    items: &[T],
    depth: usize,
    cap: usize,
    each: impl Fn(&mut String, &T),
) {
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str("  "));
    };
    out.push(open);
    for (i, item) in items.iter().enumerate() {
        if out.len() > cap {
            out.push('…');
            break;
        }
        if i > 0 {
            out.push(',');
        }
        indent(out, depth + 1);
        each(out, item);
    }
    if !items.is_empty() {
        indent(out, depth);
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
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
