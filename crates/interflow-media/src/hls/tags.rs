//! Lines, tags and attribute lists of playlists (RFC 8216bis 4).

use std::ops::Range;

/// Iterates over lines without their terminators, as ranges.
pub struct PlaylistLines<'a> {
    text: &'a [u8],
    at: usize,
}

/// The lines of a text.
pub fn lines(text: &[u8]) -> PlaylistLines<'_> {
    // A byte order mark is not part of the first line.
    let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    PlaylistLines { text, at }
}

impl Iterator for PlaylistLines<'_> {
    type Item = PlaylistLine;

    fn next(&mut self) -> Option<PlaylistLine> {
        let rest = self.text.get(self.at..).filter(|r| !r.is_empty())?;
        let start = self.at;
        let end = memchr::memchr(b'\n', rest).map_or(self.text.len(), |n| start + n);
        self.at = end + 1;
        let stop = if end > start && self.text[end - 1] == b'\r' { end - 1 } else { end };
        Some(PlaylistLine { start, stop, next: self.at.min(self.text.len()) })
    }
}

/// The position of a line: from `start` to `stop`, and the `next` one after its terminator. All are byte offsets in the
/// text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaylistLine {
    pub start: usize,
    pub stop: usize,
    pub next: usize,
}

impl PlaylistLine {
    /// The bytes of the line without its terminator.
    pub fn content<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.start..self.stop).unwrap_or_default()
    }

    /// The bytes of the line with its terminator; the last line may have none.
    pub fn with_line_end<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.start..self.next).unwrap_or_default()
    }
}

/// A tag's name and the text after the colon; `None` for comments and URIs.
pub fn tag(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"#")?;
    if !rest.starts_with(b"EXT") {
        return None;
    }
    let end = memchr::memchr2(b':', b' ', rest).unwrap_or(rest.len());
    let (name, value) = rest.split_at(end);
    Some((name, value.get(1..).unwrap_or_default()))
}

/// The raw value of an attribute without quotes, as a range. Commas inside quotes do not separate attributes (RFC
/// 8216bis 4.2).
pub fn attribute(list: &[u8], name: &[u8]) -> Option<Range<usize>> {
    attributes(list).find(|(n, _)| n == &name).map(|(_, value)| value)
}

/// The value of an attribute as text; `None` if it is not UTF-8.
pub fn attribute_text<'a>(list: &'a [u8], name: &[u8]) -> Option<&'a str> {
    attribute(list, name).and_then(|r| std::str::from_utf8(list.get(r)?).ok())
}

/// All attributes of a list: names, and positions of their unquoted values.
pub fn attributes(list: &[u8]) -> impl Iterator<Item = (&[u8], Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = list.get(at..).filter(|r| !r.is_empty())?;
        let equals = memchr::memchr(b'=', rest)?;
        let name = rest[..equals].trim_ascii();
        let value = at + equals + 1;
        let range = if list.get(value) == Some(&b'"') {
            let inside = value + 1;
            // A quote that is not closed extends to the end of the line.
            let length = memchr::memchr(b'"', list.get(inside..)?).unwrap_or(list.len() - inside);
            inside..inside + length
        } else {
            let length = memchr::memchr(b',', list.get(value..)?).unwrap_or(list.len() - value);
            value..value + length
        };
        let behind = list.get(range.end..).unwrap_or_default();
        at = memchr::memchr(b',', behind).map_or(list.len(), |n| range.end + n + 1);
        Some((name, range))
    })
}

/// The value of an attribute in IPTV style, where attributes are separated by spaces: `url-tvg="…"`, in single quotes, or
/// without quotes.
pub fn loose_attribute(line: &[u8], name: &str) -> Option<Range<usize>> {
    let pattern = format!("{name}=");
    let position = memchr::memmem::find_iter(line, pattern.as_bytes())
        .find(|&at| at == 0 || line.get(at - 1).is_some_and(|b| matches!(b, b' ' | b'\t' | b',' | b':')))?;
    let start = position + pattern.len();
    let value = line.get(start..)?;
    if let [quote @ (b'"' | b'\''), value @ ..] = value {
        let length = memchr::memchr(*quote, value)?;
        return Some(start + 1..start + 1 + length);
    }
    let length = value.iter().position(|b| matches!(b, b' ' | b'\t' | b',')).unwrap_or(value.len());
    Some(start..start + length)
}

/// Whether a text is a playlist, by its first line.
pub fn is_playlist(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.trim_ascii_start().starts_with(b"#EXTM3U")
}

/// `LENGTH` or `LENGTH@OFFSET`, the value of `BYTERANGE`.
pub fn length_and_offset(text: &str) -> Option<(u64, Option<u64>)> {
    let (length, offset) = text.split_once('@').map_or((text, None), |(length, offset)| (length, Some(offset)));
    let offset = offset.map(|o| o.trim().parse()).transpose().ok()?;
    Some((length.trim().parse().ok().filter(|n| *n > 0)?, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_line_endings() {
        let text = b"\xef\xbb\xbf#A\r\n\nb\n\r\nc";
        let all: Vec<_> = lines(text).map(|l| (l.content(text), l.with_line_end(text))).collect();
        let expected: Vec<(&[u8], &[u8])> =
            vec![(b"#A", b"#A\r\n"), (b"", b"\n"), (b"b", b"b\n"), (b"", b"\r\n"), (b"c", b"c")];
        assert_eq!(all, expected);
    }

    #[test]
    fn attributes_are_separated() {
        let list = br#"METHOD=AES-128,NAME="a,URI=b",URI="c=d,e", IV=0x1"#;
        for (name, value) in [("METHOD", "AES-128"), ("NAME", "a,URI=b"), ("URI", "c=d,e"), ("IV", "0x1")] {
            assert_eq!(attribute_text(list, name.as_bytes()), Some(value), "{name}");
        }
        assert_eq!(attribute(list, b"X"), None);
        for odd in [&b""[..], b"=", b"a", b"a=\"", b",,=,", b"a=\"b\"c\"d=e"] {
            let _ = attributes(odd).count();
        }
    }

    #[test]
    fn unseparated_attributes_are_found() {
        let line = br#"#EXTM3U x-url-tvg="no" url-tvg="http://a/,b" foo"#;
        assert_eq!(loose_attribute(line, "url-tvg").map(|r| &line[r]), Some(&b"http://a/,b"[..]));
        assert_eq!(loose_attribute(line, "foo"), None);
        let line = b"#EXTINF:-1 catchup='a \"b' catchup-days=3,a";
        assert_eq!(loose_attribute(line, "catchup").map(|r| &line[r]), Some(&b"a \"b"[..]));
        assert_eq!(loose_attribute(line, "catchup-days").map(|r| &line[r]), Some(&b"3"[..]));
    }
}
