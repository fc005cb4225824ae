//! Protocol Buffers without a schema: field numbers and the most likely interpretation of their bytes.

use std::fmt::Write as _;

use super::{digits, indent, quoted};

/// Messages nested deeper than this are displayed as bytes.
const MAX_DEPTH: usize = 32;

/// One field's value on the wire.
enum WireField<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// A group's fields up to its end.
    Group(&'a [u8]),
    Fixed32(u32),
}

/// Writes the fields of a message, one per line.
///
/// # Errors
/// The position where the bytes stop being a valid message.
pub(super) fn write(out: &mut String, bytes: &[u8], cap: usize) -> Result<(), String> {
    if !is_message(bytes, 0) {
        let at = first_bad_offset(bytes);
        return Err(format!("byte {at}: this is not a Protocol Buffers message"));
    }
    fields(out, bytes, 0, cap);
    Ok(())
}

fn fields(out: &mut String, mut rest: &[u8], depth: usize, cap: usize) {
    while let Some((number, field, behind)) = next_field(rest) {
        if out.len() > cap {
            out.push_str("…\n");
            return;
        }
        rest = behind;
        indent(out, depth);
        let _ = write!(out, "{number}");
        value(out, &field, depth, cap);
    }
}

fn value(out: &mut String, field: &WireField<'_>, depth: usize, cap: usize) {
    match field {
        WireField::Varint(n) => {
            let _ = write!(out, ": {n}");
            // A negative int32 or int64 takes ten bytes.
            if *n > i64::MAX as u64 {
                let _ = write!(out, " ({})", *n as i64);
            }
        }
        // The type is unknown, so both readings are shown.
        WireField::Fixed32(n) => drop(write!(out, ": {n:#010x} ({:?})", f32::from_bits(*n))),
        WireField::Fixed64(n) => drop(write!(out, ": {n:#018x} ({:?})", f64::from_bits(*n))),
        WireField::Group(inner) => return nested(out, inner, depth, cap),
        WireField::Bytes(b) => match guess(b, depth) {
            FieldGuess::Text(text) => {
                out.push_str(": ");
                quoted(out, text);
            }
            FieldGuess::Message => return nested(out, b, depth, cap),
            FieldGuess::Bytes => {
                out.push_str(": ");
                digits(out, b);
            }
        },
    }
    out.push('\n');
}

fn nested(out: &mut String, inner: &[u8], depth: usize, cap: usize) {
    out.push_str(" {\n");
    fields(out, inner, depth + 1, cap);
    indent(out, depth);
    out.push_str("}\n");
}

enum FieldGuess<'a> {
    Text(&'a str),
    Message,
    Bytes,
}

/// Text, unless it begins like a message: a first field's tag is a control character, which rarely starts a text.
fn guess(bytes: &[u8], depth: usize) -> FieldGuess<'_> {
    let text = std::str::from_utf8(bytes).ok();
    let text = text.filter(|t| t.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t')));
    let plain = text.filter(|t| !t.starts_with(|c: char| c.is_control()));
    match (plain, text) {
        (Some(text), _) => FieldGuess::Text(text),
        _ if !bytes.is_empty() && depth < MAX_DEPTH && is_message(bytes, depth + 1) => FieldGuess::Message,
        (_, Some(text)) => FieldGuess::Text(text),
        _ => FieldGuess::Bytes,
    }
}

/// Whether the bytes are a sequence of complete fields.
fn is_message(mut rest: &[u8], depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    while !rest.is_empty() {
        match next_field(rest) {
            // Groups are checked as well; length-delimited fields may contain anything.
            Some((_, WireField::Group(inner), behind)) if is_message(inner, depth + 1) => rest = behind,
            Some((_, WireField::Group(_), _)) | None => return false,
            Some((_, _, behind)) => rest = behind,
        }
    }
    true
}

fn first_bad_offset(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((_, _, behind)) = next_field(rest).filter(|_| !rest.is_empty()) {
        rest = behind;
    }
    bytes.len() - rest.len()
}

/// The next field: its number, its value, and the rest.
fn next_field(bytes: &[u8]) -> Option<(u64, WireField<'_>, &[u8])> {
    let (tag, rest) = varint(bytes)?;
    let number = tag >> 3;
    // Field numbers have 29 bits; 0 is not allowed.
    if !(1..=0x1fff_ffff).contains(&number) {
        return None;
    }
    let (field, rest) = match tag & 7 {
        // Wire types: varint, 64 bits, length-delimited, start of a group, 32 bits. Type 4 ends a group.
        0 => varint(rest).map(|(n, rest)| (WireField::Varint(n), rest))?,
        1 => rest.split_first_chunk::<8>().map(|(n, rest)| (WireField::Fixed64(u64::from_le_bytes(*n)), rest))?,
        2 => {
            let (len, rest) = varint(rest)?;
            let (inner, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            (WireField::Bytes(inner), rest)
        }
        3 => {
            let (inner, rest) = group(rest, number)?;
            (WireField::Group(inner), rest)
        }
        5 => rest.split_first_chunk::<4>().map(|(n, rest)| (WireField::Fixed32(u32::from_le_bytes(*n)), rest))?,
        _ => return None,
    };
    Some((number, field, rest))
}

/// A group's fields, and what follows its end. Nested groups are skipped by counting, so that depth costs nothing.
fn group(bytes: &[u8], number: u64) -> Option<(&[u8], &[u8])> {
    let mut open = vec![number];
    let mut rest = bytes;
    while let Some(current) = open.last() {
        let (tag, behind) = varint(rest)?;
        match tag & 7 {
            3 => {
                open.push(tag >> 3);
                rest = behind;
            }
            4 if tag >> 3 == *current => {
                open.pop();
                if open.is_empty() {
                    let inner = bytes.len() - rest.len();
                    return Some((&bytes[..inner], behind));
                }
                rest = behind;
            }
            4 => return None,
            _ => rest = next_field(rest)?.2,
        }
    }
    None
}

/// Seven bits per byte, at most ten bytes.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut n = 0_u64;
    for (i, b) in bytes.iter().take(10).enumerate() {
        n |= u64::from(b & 0x7f) << (7 * i);
        if b & 0x80 == 0 {
            return Some((n, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(bytes: &[u8]) -> Result<String, String> {
        let mut out = String::new();
        write(&mut out, bytes, 1 << 16).map(|()| out)
    }

    #[test]
    fn fields_are_shown_by_their_numbers() {
        // 1: 150, 2: "testing", 3 { 1: 7 }, 4: float 1.5, 5: double -2, 6: bytes, 7: -1, 8 (a group) { 1: 1 }
        let mut bytes = vec![0x08, 0x96, 0x01, 0x12, 7];
        bytes.extend_from_slice(b"testing");
        bytes.extend_from_slice(&[0x1a, 2, 8, 7, 0x25, 0, 0, 0xc0, 0x3f, 0x29, 0, 0, 0, 0, 0, 0, 0, 0xc0]);
        bytes.extend_from_slice(&[0x32, 2, 0xff, 0xfe, 0x38]);
        bytes.extend_from_slice(&[0xff; 9]);
        bytes.extend_from_slice(&[1, 0x43, 8, 1, 0x44]);
        assert_eq!(
            shown(&bytes).unwrap(),
            "1: 150\n2: \"testing\"\n3 {\n  1: 7\n}\n4: 0x3fc00000 (1.5)\n5: 0xc000000000000000 (-2.0)\n6: 0xfffe\n\
             7: 18446744073709551615 (-1)\n8 {\n  1: 1\n}\n"
        );
    }

    #[test]
    fn texts_and_messages_are_distinguished() {
        let field = |inner: &[u8]| shown(&[&[0x0a, inner.len() as u8], inner].concat()).unwrap();
        assert_eq!(field(b"\x0a\x05hello"), "1 {\n  1: \"hello\"\n}\n");
        assert_eq!(field(b"line\nline"), "1: \"line\\nline\"\n");
        assert_eq!(field(b""), "1: \"\"\n");
        assert_eq!(field(b"\x00\x01"), "1: 0x0001\n");
        assert_eq!(field(b"\n\n"), "1: \"\\n\\n\"\n", "a field that is cut off is not a message");
    }

    #[test]
    fn invalid_protobuf_is_refused_with_its_offset() {
        for (bytes, at) in [
            (&[8][..], 0),
            (&[8, 1, 0x12, 5, 1], 2),
            (&[0, 1], 0),
            (&[0x0b, 8, 1], 0),
            (&[8, 1, 0x0f], 2),
            (&[0xff; 11], 0),
        ] {
            assert!(shown(bytes).unwrap_err().starts_with(&format!("byte {at}:")), "{bytes:?}: {:?}", shown(bytes));
        }
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = (0..200).fold(vec![8, 1], |inner, _| {
            let mut out = vec![0x0a];
            let mut len = inner.len();
            while len >= 128 {
                out.push(len as u8 | 0x80);
                len >>= 7;
            }
            out.push(len as u8);
            [out, inner].concat()
        });
        assert!(shown(&deep).is_ok());
        assert!(shown(&[0x0b].repeat(100_000)).is_err());
        let long = [8, 1].repeat(100_000);
        let mut out = String::new();
        write(&mut out, &long, 1000).unwrap();
        assert!(out.len() < 1100 && out.ends_with("…\n"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = shown(&bytes);
        }
    }
}
