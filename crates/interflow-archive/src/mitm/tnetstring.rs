//! Tagged netstrings: `LENGTH:BYTES` and a type letter, in mitmproxy's dialect (`;` for text in addition to `,` for
//! bytes).

use std::io::{self, BufRead, Read};

/// Maximum nesting depth, which bounds the recursion.
const MAX_DEPTH: u32 = 64;
/// Maximum number of values per flow. A value in memory is larger than its shortest form in the file.
const MAX_VALUES: u32 = 4_000_000;
/// Maximum size of a flow, in bytes.
const MAX_LEN: u64 = 1 << 30;

/// A value that borrows from its input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TnetValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Bytes, or text: older versions do not distinguish them.
    Bytes(&'a [u8]),
    List(Vec<Self>),
    Dict(Vec<(&'a [u8], Self)>),
}

impl<'a> TnetValue<'a> {
    /// The member of a dictionary; `None` if missing or null.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Dict(members) = self else { return None };
        let value = members.iter().find(|(n, _)| *n == name.as_bytes()).map(|(_, v)| v);
        value.filter(|v| **v != Self::Null)
    }

    /// The first of these members that exists.
    pub fn any(&self, names: &[&str]) -> Option<&Self> {
        names.iter().find_map(|n| self.get(n))
    }

    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(b) => Some(b),
            _ => None,
        }
    }

    /// Text; invalid UTF-8 becomes U+FFFD.
    pub fn text(&self) -> Option<String> {
        self.bytes().map(|b| String::from_utf8_lossy(b).replace('\0', "\u{fffd}"))
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            Self::Float(f) => Some(*f as i64),
            _ => None,
        }
    }

    /// A number of 16 bits.
    pub fn short(&self) -> Option<u16> {
        u16::try_from(self.int()?).ok()
    }

    /// A number of seconds as microseconds.
    pub fn micros(&self) -> Option<u64> {
        let seconds = match self {
            Self::Int(n) => *n as f64,
            Self::Float(f) => *f,
            _ => return None,
        };
        // Times before the epoch and beyond the year 33658 are not plausible.
        (seconds > 0.0 && seconds < 1e12).then(|| (seconds * 1e6).round() as u64)
    }

    pub fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true) | Self::Int(1..))
    }

    pub fn list(&self) -> &[Self] {
        match self {
            Self::List(list) => list,
            _ => &[],
        }
    }

    /// The items of a member that is a list.
    pub fn items(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.get(name).into_iter().flat_map(Self::list)
    }
}

/// Reads the next complete tnetstring of a file, ending with its type; `None` at the end.
///
/// # Errors
/// `InvalidData` for an invalid tnetstring, `UnexpectedEof` for a truncated one.
pub(super) fn read_value(file: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut len: u64 = 0;
    let mut digits = 0;
    loop {
        let mut byte = [0];
        if file.read(&mut byte)? == 0 {
            return if digits == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        match byte[0] {
            b'0'..=b'9' if digits < 12 => len = len * 10 + u64::from(byte[0] - b'0'),
            b':' if digits > 0 => break,
            // Line ends between flows are tolerated.
            b'\n' | b'\r' if digits == 0 => continue,
            _ => return Err(invalid("a flow begins with its length and a colon")),
        }
        digits += 1;
    }
    if len > MAX_LEN {
        return Err(invalid("a flow of more than 1 GiB"));
    }
    // Memory grows with the data read, not with the declared length.
    let mut body = Vec::new();
    file.take(len + 1).read_to_end(&mut body)?;
    // One byte more than the length: the type.
    if body.len() as u64 <= len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Some(body)) }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Parses a tnetstring without its length: bytes, followed by the type.
///
/// # Errors
/// The input is malformed; the error gives the offset.
pub(super) fn parse(whole: &[u8]) -> Result<TnetValue<'_>, String> {
    let (kind, body) = whole.split_last().ok_or("an empty tnetstring")?;
    TnetParser { begin: whole.as_ptr() as usize, values: 0 }.value(*kind, body, 0)
}

struct TnetParser {
    /// The address of the first byte, to compute offsets.
    begin: usize,
    values: u32,
}

impl TnetParser {
    fn value<'a>(&mut self, kind: u8, body: &'a [u8], depth: u32) -> Result<TnetValue<'a>, String> {
        let at = body.as_ptr() as usize - self.begin;
        self.values += 1;
        if depth > MAX_DEPTH || self.values > MAX_VALUES {
            return Err(format!("byte {at}: too many values, or nested too deeply"));
        }
        let text = || std::str::from_utf8(body).map_err(|_| format!("byte {at}: a number that is not text"));
        let number = |what: &str| {
            format!("byte {at}: '{}' is not a valid {what}", String::from_utf8_lossy(&body[..body.len().min(40)]))
        };
        Ok(match kind {
            b',' | b';' => TnetValue::Bytes(body),
            b'~' => TnetValue::Null,
            b'!' => TnetValue::Bool(body == b"true"),
            b'#' => TnetValue::Int(text()?.parse().map_err(|_| number("integer"))?),
            b'^' => TnetValue::Float(text()?.parse().map_err(|_| number("number"))?),
            b']' => TnetValue::List(self.items(body, depth)?),
            b'}' => {
                let items = self.items(body, depth)?;
                let mut members = Vec::with_capacity(items.len() / 2);
                let mut items = items.into_iter();
                // An odd number of items: a key without a value.
                while let (Some(name), value) = (items.next(), items.next()) {
                    let name = name.bytes().ok_or_else(|| format!("byte {at}: a key that is not text"))?;
                    members.push((name, value.ok_or_else(|| format!("byte {at}: a key without a value"))?));
                }
                TnetValue::Dict(members)
            }
            other => return Err(format!("byte {at}: no type '{}' is known", char::from(other).escape_default())),
        })
    }

    fn items<'a>(&mut self, mut rest: &'a [u8], depth: u32) -> Result<Vec<TnetValue<'a>>, String> {
        let mut items = Vec::new();
        while !rest.is_empty() {
            let at = rest.as_ptr() as usize - self.begin;
            let wrong = || format!("byte {at}: a length that is none, or leads beyond the end");
            let colon = rest.iter().take(13).position(|b| *b == b':').ok_or_else(wrong)?;
            let digits = std::str::from_utf8(&rest[..colon]).map_err(|_| wrong())?;
            let len: usize = digits.parse().map_err(|_| wrong())?;
            let end = colon.checked_add(1).and_then(|b| b.checked_add(len)).ok_or_else(wrong)?;
            let (body, kind) = (rest.get(colon + 1..end).ok_or_else(wrong)?, rest.get(end).ok_or_else(wrong)?);
            items.push(self.value(*kind, body, depth + 1)?);
            rest = &rest[end + 1..];
        }
        Ok(items)
    }
}

/// Encoders, each of which returns a complete tnetstring.
pub(super) mod write {
    /// `LENGTH:BYTES` and the type. The length does not count the type.
    fn encode_tagged(body: &[u8], kind: u8) -> Vec<u8> {
        let mut out = Vec::with_capacity(body.len() + 14);
        out.extend_from_slice(body.len().to_string().as_bytes());
        out.push(b':');
        out.extend_from_slice(body);
        out.push(kind);
        out
    }

    pub fn null() -> Vec<u8> {
        encode_tagged(b"", b'~')
    }

    pub fn bool(b: bool) -> Vec<u8> {
        encode_tagged(if b { b"true" } else { b"false" }, b'!')
    }

    pub fn int(n: i64) -> Vec<u8> {
        encode_tagged(n.to_string().as_bytes(), b'#')
    }

    pub fn float(f: f64) -> Vec<u8> {
        encode_tagged(format!("{f:?}").as_bytes(), b'^')
    }

    /// Microseconds as a number of seconds.
    pub fn seconds(micros: u64) -> Vec<u8> {
        encode_tagged(format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000).as_bytes(), b'^')
    }

    pub fn bytes(b: &[u8]) -> Vec<u8> {
        encode_tagged(b, b',')
    }

    pub fn text(t: &str) -> Vec<u8> {
        encode_tagged(t.as_bytes(), b';')
    }

    pub fn list<I: IntoIterator<Item = Vec<u8>>>(items: I) -> Vec<u8> {
        let body: Vec<u8> = items.into_iter().flatten().collect();
        encode_tagged(&body, b']')
    }

    pub fn dict(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let size = members.iter().map(|(n, v)| n.len() + v.len() + 8).sum();
        let mut body = Vec::with_capacity(size);
        for (name, value) in members {
            body.extend_from_slice(&text(name));
            body.extend_from_slice(value);
        }
        encode_tagged(&body, b'}')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Result<TnetValue<'_>, String> {
        let colon = text.iter().position(|b| *b == b':').unwrap();
        parse(&text[colon + 1..])
    }

    #[test]
    fn every_tnetstring_type_round_trips() {
        let made = write::dict(&[
            ("n", write::null()),
            ("b", write::bool(true)),
            ("i", write::int(-7)),
            ("f", write::seconds(1_500_000)),
            ("l", write::list([write::bytes(b"\0x"), write::text("é"), write::list([])])),
        ]);
        let value = parsed(&made).unwrap();
        assert_eq!(value.get("n"), None);
        assert!(value.get("b").unwrap().is_true());
        assert_eq!(value.get("i").unwrap().int(), Some(-7));
        assert_eq!(value.get("f").unwrap().micros(), Some(1_500_000));
        assert_eq!(value.get("l").unwrap().list()[0].bytes(), Some(&b"\0x"[..]));
        let mut file = &made[..];
        assert_eq!(
            read_value(&mut file).unwrap().unwrap().len(),
            made.len() - made.iter().position(|b| *b == b':').unwrap() - 1
        );
        assert_eq!(read_value(&mut file).unwrap(), None);
    }

    #[test]
    fn malformed_input_is_reported_with_its_offset() {
        for (text, why) in [
            (&b"5:3:ab,]"[..], "byte 0"),
            (b"9:99999999]", "byte 0"),
            (b"8:1:a,2:b,}", "length"),
            (b"4:1:a,}", "key without"),
            (b"4:1:1#}", "not text"),
            (b"3:abc#", "integer"),
            (b"1:a?", "no type"),
            (b"0:", "empty"),
        ] {
            assert!(parsed(text).unwrap_err().contains(why), "{:?}", parsed(text));
        }
        let deep = (0..100).fold(write::null(), |inner, _| write::list([inner]));
        assert!(parsed(&deep).unwrap_err().contains("deeply"));
    }

    #[test]
    fn truncated_or_false_input_allocates_no_memory() {
        for (file, kind) in [
            (&b"999999999:abc"[..], io::ErrorKind::UnexpectedEof),
            (b"12", io::ErrorKind::UnexpectedEof),
            (b"9999999999:x", io::ErrorKind::InvalidData),
            (b"hello", io::ErrorKind::InvalidData),
            (b"1234567890123:", io::ErrorKind::InvalidData),
        ] {
            assert_eq!(read_value(&mut &file[..]).unwrap_err().kind(), kind, "{file:?}");
        }
    }
}
