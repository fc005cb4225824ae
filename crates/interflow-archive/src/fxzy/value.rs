//! MessagePack as written by .NET's serializer: members by position or name, times as timestamps, three encodings of
//! strings.

use interflow_types::Timestamp;
use rmpv::Value;

/// Maximum size of a metadata file, in bytes: decoded values take up to forty times their size on disk.
const MAX_FACTS: usize = 8 << 20;
/// Maximum nesting depth, which bounds the recursion of the parser.
const MAX_DEPTH: usize = 32;

/// Reads one value.
///
/// # Errors
/// The input is malformed; the error says why.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    if bytes.len() > MAX_FACTS {
        return Err(format!("{} bytes of facts on one exchange are too many", bytes.len()));
    }
    let mut rest = bytes;
    rmpv::decode::read_value_with_max_depth(&mut rest, MAX_DEPTH)
        .map_err(|e| format!("byte {}: no MessagePack: {e}", bytes.len() - rest.len()))
}

/// The member at this position, or of this name; `None` if null.
pub(super) fn member<'v>(object: &'v Value, place: u64, name: &str) -> Option<&'v Value> {
    let value = match object {
        Value::Array(items) => items.get(usize::try_from(place).ok()?),
        Value::Map(members) => members.iter().find(|(key, _)| is(key, place, name)).map(|(_, v)| v),
        _ => None,
    };
    value.filter(|v| !v.is_nil())
}

fn is(key: &Value, place: u64, name: &str) -> bool {
    key.as_u64() == Some(place) || key.as_str().is_some_and(|k| k.eq_ignore_ascii_case(name))
}

/// A string: a MessagePack string, bytes, or UTF-16 units.
pub(super) fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(s) => String::from_utf8_lossy(s.as_bytes()).into_owned(),
        Value::Binary(b) => String::from_utf8_lossy(b).into_owned(),
        Value::Array(units) => {
            let units: Option<Vec<u16>> =
                units.iter().map(|u| u.as_u64().and_then(|u| u16::try_from(u).ok())).collect();
            String::from_utf16_lossy(&units?)
        }
        _ => return None,
    };
    // The store rejects NUL characters in texts.
    Some(text.replace('\0', "\u{fffd}"))
}

/// A header's bytes: .NET stores each as a character.
pub(super) fn latin(value: &Value) -> Option<Vec<u8>> {
    let text = text(value)?;
    // Text with characters beyond Latin-1 was converted by someone; it is kept as UTF-8.
    let narrow = text.chars().any(|c| ('\u{80}'..='\u{ff}').contains(&c)) && text.chars().all(|c| (c as u32) < 256);
    Some(if narrow { text.chars().map(|c| c as u8).collect() } else { text.into_bytes() })
}

/// A time; year 1 stands for none (MessagePack's extension -1).
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    // MessagePack's timestamp extension has three forms, of 4, 8 and 12 bytes.
    let Value::Ext(-1, bytes) = value else { return None };
    let (seconds, nanos) = match bytes.len() {
        4 => (i64::from(u32::from_be_bytes(bytes[..].try_into().ok()?)), 0),
        8 => {
            // 34 bits of seconds, with 30 bits of nanoseconds above them.
            let packed = u64::from_be_bytes(bytes[..].try_into().ok()?);
            ((packed & 0x3_ffff_ffff) as i64, (packed >> 34) as u32)
        }
        12 => (i64::from_be_bytes(bytes[4..].try_into().ok()?), u32::from_be_bytes(bytes[..4].try_into().ok()?)),
        _ => return None,
    };
    let micros = u64::try_from(seconds).ok()?.checked_mul(1_000_000)?.checked_add(u64::from(nanos / 1000))?;
    (micros > 0).then(|| Timestamp::from_micros(micros))
}

/// A time in .NET's encoding.
pub(super) fn from_time(at: Option<Timestamp>) -> Value {
    let Some(at) = at else {
        // 0001-01-01, which stands for an unset time.
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&(-62_135_596_800_i64).to_be_bytes());
        return Value::Ext(-1, bytes);
    };
    let (seconds, nanos) = (at.micros() / 1_000_000, at.micros() % 1_000_000 * 1000);
    // The form of 8 bytes holds times until the year 2514.
    Value::Ext(-1, (nanos << 34 | seconds & 0x3_ffff_ffff).to_be_bytes().to_vec())
}

pub(super) fn units(text: &str) -> Value {
    Value::Array(text.encode_utf16().map(Value::from).collect())
}

/// A header's bytes as characters.
pub(super) fn wide(bytes: &[u8]) -> Value {
    let as_bytes = || Value::Array(bytes.iter().map(|b| Value::from(*b)).collect());
    std::str::from_utf8(bytes).map_or_else(|_| as_bytes(), units)
}

pub(super) fn text_or_null(text: Option<impl Into<String>>) -> Value {
    text.map_or(Value::Nil, |t| Value::from(t.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for micros in [1, 1_795_168_800_123_456, 17_179_869_183_000_000] {
            let at = Timestamp::from_micros(micros);
            assert_eq!(time(&from_time(Some(at))), Some(at));
        }
        assert_eq!(time(&from_time(None)), None);
        assert_eq!(time(&Value::Ext(-1, vec![1, 2])), None);
        assert_eq!(time(&Value::Ext(-1, vec![0, 0, 0, 1])), Some(Timestamp::from_micros(1_000_000)));
    }

    #[test]
    fn text_is_parsed_from_every_messagepack_form() {
        for value in [Value::from("é"), Value::Binary("é".into()), units("é")] {
            assert_eq!(text(&value).as_deref(), Some("é"));
        }
        assert_eq!(text(&Value::Array(vec![Value::from(70_000)])), None);
        assert_eq!(latin(&wide(b"\xff\xe9")), Some(b"\xff\xe9".to_vec()));
    }

    #[test]
    fn members_are_found_by_index_and_by_name() {
        let array = Value::Array(vec![Value::Nil, Value::from(7)]);
        let map = Value::Map(vec![(Value::from(1), Value::from(7))]);
        let named = Value::Map(vec![(Value::from("Id"), Value::from(7))]);
        for object in [array, map, named] {
            assert_eq!(member(&object, 1, "id"), Some(&Value::from(7)));
            assert_eq!(member(&object, 0, "other"), None);
        }
    }

    #[test]
    fn false_lengths_and_excessive_nesting_are_refused() {
        assert!(parse(&[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(parse(&[0xc6, 0xff, 0xff, 0xff, 0xff, 1]).is_err());
        assert!(parse(&[0x91; 1000]).is_err());
        assert!(parse(&vec![0; MAX_FACTS + 1]).is_err());
    }
}
