//! Header sections that preserve order, case, repetition and raw bytes (RFC 9110 5).

use std::fmt;
use std::ops::Range;

/// The fields of a header or trailer section, in order, over one buffer. Lookups ignore case (RFC 9110 5.1);
/// spelling, order, repetition and non-UTF-8 values are preserved, so an unedited head is forwarded byte for byte.
///
/// A parsed section needs two allocations, whatever the number of fields. Names and values added through
/// [`append`](Self::append) and [`set`](Self::set) are validated, so that no value can inject a line.
///
/// ```
/// use interflow_types::Headers;
///
/// let mut headers: Headers = [("Accept", "text/html"), ("accept", "*/*")].into_iter().collect();
/// assert_eq!(headers.get_str("ACCEPT"), Some("text/html"));
/// assert_eq!(headers.get_all("accept").count(), 2);
/// assert!(headers.set("X-Note", "a\r\nInjected: 1").is_err());
/// ```
#[derive(Clone, Default)]
pub struct Headers {
    /// The lines as on the wire, so that adjacent unedited fields are written with one copy.
    bytes: Vec<u8>,
    fields: Vec<FieldSpans>,
    /// The union of the [`name_bit`]s of all names ever added: most lookups miss, and this answers them without a
    /// scan.
    marks: u64,
}

/// Where a field's name and value are in `bytes`.
#[derive(Clone, Copy)]
struct FieldSpans {
    name: ByteSpan,
    value: ByteSpan,
}

#[derive(Clone, Copy)]
struct ByteSpan {
    at: u32,
    len: u32,
}

impl ByteSpan {
    const fn range(self) -> Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }

    const fn end(self) -> usize {
        self.at as usize + self.len as usize
    }
}

/// Why a name or value is not allowed in a header section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// RFC 9110 5.6.2: a field name is a token.
    #[error("a header name may only hold letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// RFC 9110 5.5: no CR, LF or NUL.
    #[error("a header value may not hold CR, LF or NUL")]
    Value,
}

impl Headers {
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), fields: Vec::new(), marks: 0 }
    }

    /// An empty section with capacity for `fields` fields of `bytes` bytes in total.
    pub fn with_capacity(fields: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), fields: Vec::with_capacity(fields), marks: 0 }
    }

    /// For codecs: copies the lines of a section, without fields yet. The codec adds the spans of the `fields` it
    /// finds with [`push_span`](Self::push_span). Reserves space for a few fields that stages add.
    pub fn from_raw(lines: &[u8], fields: usize) -> Self {
        // A few fields are usually added: `Via`, an id, framing.
        let mut headers = Self::with_capacity(fields + 4, lines.len() + 96);
        headers.bytes.extend_from_slice(lines);
        headers
    }

    /// Adds the field at these byte ranges of the lines passed to [`from_raw`](Self::from_raw).
    #[inline]
    pub fn push_span(&mut self, name: Range<usize>, value: Range<usize>) {
        let name = ByteSpan { at: name.start as u32, len: name.len() as u32 };
        let value = ByteSpan { at: value.start as u32, len: value.len() as u32 };
        self.push(name, value);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The first value of this field.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.candidate_fields(name).iter().find(|f| self.has_name(f, name)).map(|f| &self.bytes[f.value.range()])
    }

    /// The first value of this field; `None` if it is not valid UTF-8.
    #[inline]
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// All values of this field, in order.
    #[inline]
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.candidate_fields(name).iter().filter(move |f| self.has_name(f, name)).map(|f| &self.bytes[f.value.range()])
    }

    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.candidate_fields(name).iter().any(|f| self.has_name(f, name))
    }

    /// Whether one of these fields may be present (a Bloom filter): `false` is certain, `true` is not.
    #[inline]
    pub const fn may_contain(&self, names: HeaderNameMask) -> bool {
        self.marks & names.0 != 0
    }

    /// Whether the comma-separated list in this field contains the token, ignoring case (`Connection: close`).
    #[inline]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        // Inlined, so that a constant name costs one test where it is absent.
        !self.candidate_fields(name).is_empty() && self.lists_token(name, token)
    }

    fn lists_token(&self, name: &str, token: &str) -> bool {
        let is = |member: &[u8]| member.trim_ascii().eq_ignore_ascii_case(token.as_bytes());
        // Most lists have a single item.
        self.get_all(name).any(|v| if v.contains(&b',') { v.split(|&b| b == b',').any(is) } else { is(v) })
    }

    /// The items of the comma-separated lists in this field, trimmed, without empty items (RFC 9110 5.6.1).
    #[inline]
    pub fn list_items<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.get_all(name).flat_map(|v| v.split(|&b| b == b',')).map(|t| t.trim_ascii()).filter(|t| !t.is_empty())
    }

    #[inline]
    pub fn iter(&self) -> HeadersIter<'_> {
        HeadersIter { headers: self, fields: self.fields.iter() }
    }

    /// Adds a field at the end.
    ///
    /// # Errors
    /// The name is not a token, or the value contains CR, LF or NUL.
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidHeader> {
        let value = value.as_ref();
        validate_field(name.as_bytes(), value)?;
        self.append_raw(name.as_bytes(), value);
        Ok(())
    }

    /// Adds a field whose name is a constant or was validated. CR, LF and NUL in the value become spaces (RFC 9110 5.5), so
    /// that no value can inject a line.
    pub fn append_unchecked(&mut self, name: &[u8], value: &[u8]) {
        // Without an early end, the compiler vectorizes it.
        if value.iter().fold(false, |any, b| any | is_line_byte(*b)) {
            let clean: Vec<u8> = value.iter().map(|b| if is_line_byte(*b) { b' ' } else { *b }).collect();
            return self.append_raw(name, &clean);
        }
        self.append_raw(name, value);
    }

    /// Adds a field as it is, such as one that was read from a file. Validate it before it is sent.
    pub fn append_raw(&mut self, name: &[u8], value: &[u8]) {
        self.bytes.reserve(name.len() + value.len() + 4);
        let name = self.push_bytes(name);
        self.bytes.extend_from_slice(b": ");
        let value = self.push_bytes(value);
        self.bytes.extend_from_slice(b"\r\n");
        self.push(name, value);
    }

    /// Sets the field to this single value. The first field of that name keeps its position and spelling, and later
    /// ones are removed; a new name is added at the end.
    ///
    /// # Errors
    /// As [`append`](Self::append). The section is unchanged then.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidHeader> {
        let value = value.as_ref();
        validate_field(name.as_bytes(), value)?;
        let Some(first) = self.candidate_fields(name).iter().position(|f| self.has_name(f, name)) else {
            self.append_raw(name.as_bytes(), value);
            return Ok(());
        };
        // The old value's bytes remain unused in the buffer: a head is edited few times, and lives only as long as its
        // message.
        let value = self.push_bytes(value);
        self.fields[first].value = value;
        let mut index = 0;
        self.retain(|n, _| {
            index += 1;
            index - 1 <= first || !n.eq_ignore_ascii_case(name.as_bytes())
        });
        Ok(())
    }

    /// Removes every field of this name and returns how many there were.
    pub fn remove(&mut self, name: &str) -> usize {
        // The whole list, if the filter does not exclude the name.
        let before = self.candidate_fields(name).len();
        if before == 0 {
            return 0;
        }
        self.retain(|n, _| !n.eq_ignore_ascii_case(name.as_bytes()));
        before - self.fields.len()
    }

    /// Keeps only the fields for which `keep(name, value)` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        // The Bloom filter is not cleared: another name may have the same bit.
        let bytes = &self.bytes;
        self.fields.retain(|f| keep(&bytes[f.name.range()], &bytes[f.value.range()]));
    }

    /// The sum of all name and value lengths in bytes, which is what limits on header size count.
    pub fn size(&self) -> usize {
        self.fields.iter().map(|f| f.name.len as usize + f.value.len as usize).sum()
    }

    /// Writes `Name: value\r\n` for every field, without the empty line that ends the section.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes.len() + self.fields.len() * 4);
        let mut lines = 0..0;
        // Consecutive unedited fields are collected in `lines` and written with one copy.
        for f in &self.fields {
            let at = f.name.at as usize;
            if self.is_line(f) {
                if lines.end != at {
                    out.extend_from_slice(&self.bytes[lines]);
                    lines = at..at;
                }
                lines.end = f.value.end() + 2;
                continue;
            }
            // An edited field, or one with unusual spacing: written from its parts, after what was collected.
            out.extend_from_slice(&self.bytes[lines]);
            lines = 0..0;
            out.extend_from_slice(&self.bytes[f.name.range()]);
            out.extend_from_slice(b": ");
            out.extend_from_slice(&self.bytes[f.value.range()]);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(&self.bytes[lines]);
    }

    /// Whether `bytes` holds the field exactly as it is to be written.
    fn is_line(&self, f: &FieldSpans) -> bool {
        let (name, value) = (f.name.end(), f.value.at as usize);
        value == name + 2
            && self.bytes[name..value] == *b": "
            && self.bytes.get(f.value.end()..f.value.end() + 2) == Some(b"\r\n")
    }

    /// The fields to search for this name: none if the mask excludes it.
    #[inline]
    fn candidate_fields(&self, name: &str) -> &[FieldSpans] {
        if self.marks & name_bit(name.as_bytes()) == 0 { &[] } else { &self.fields }
    }

    #[inline]
    fn push(&mut self, name: ByteSpan, value: ByteSpan) {
        // Names are only ever added: a removed one leaves its bit, which costs a scan at most.
        self.marks |= name_bit(&self.bytes[name.range()]);
        self.fields.push(FieldSpans { name, value });
    }

    #[inline]
    fn has_name(&self, field: &FieldSpans, name: &str) -> bool {
        // The length first, because it differs for most names.
        field.name.len as usize == name.len() && self.bytes[field.name.range()].eq_ignore_ascii_case(name.as_bytes())
    }

    fn push_bytes(&mut self, text: &[u8]) -> ByteSpan {
        let at = u32::try_from(self.bytes.len()).expect("limits on head size keep a header section far below 4 GiB");
        self.bytes.extend_from_slice(text);
        ByteSpan { at, len: text.len() as u32 }
    }
}

/// Equal if names, values and order are equal, however they are stored.
impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Headers {}

/// A Bloom filter of several field names, for [`Headers::may_contain`].
#[derive(Clone, Copy, Debug)]
pub struct HeaderNameMask(u64);

impl HeaderNameMask {
    /// The mask of these names, ignoring case.
    pub const fn from_names(names: &[&str]) -> Self {
        let (mut marks, mut i) = (0, 0);
        while i < names.len() {
            marks |= name_bit(names[i].as_bytes());
            i += 1;
        }
        Self(marks)
    }
}

/// The filter bit of a name, from its length and its first and last letter, ignoring case.
#[inline]
const fn name_bit(name: &[u8]) -> u64 {
    let (first, last) = match name {
        [] => return 1,
        [only] => (*only, *only),
        [first, .., last] => (*first, *last),
    };
    // Clearing bit 5 folds the case of letters; the factors spread the names that are looked up often.
    let mixed = name.len() as u32 * 7 + (first | 0x20) as u32 * 27 + (last | 0x20) as u32 * 25;
    1 << (mixed & 63)
}

/// Iterates over the fields of a [`Headers`] as `(name, value)`.
#[derive(Clone)]
pub struct HeadersIter<'a> {
    headers: &'a Headers,
    fields: std::slice::Iter<'a, FieldSpans>,
}

impl<'a> Iterator for HeadersIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = &self.headers.bytes;
        self.fields.next().map(|f| (&bytes[f.name.range()], &bytes[f.value.range()]))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.fields.size_hint()
    }
}

impl ExactSizeIterator for HeadersIter<'_> {}

impl<'a> IntoIterator for &'a Headers {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Headers {
    /// Builds from parts as [`append_unchecked`](Headers::append_unchecked) takes them.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(parts: I) -> Self {
        let mut headers = Self::new();
        for (name, value) in parts {
            headers.append_unchecked(name.as_ref(), value.as_ref());
        }
        headers
    }
}

/// Values of secret fields are masked, so that logs do not leak them.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(n, v)| {
                let value =
                    if crate::secret_names::is_secret_header(n) { "***".into() } else { String::from_utf8_lossy(v) };
                (String::from_utf8_lossy(n), value)
            }))
            .finish()
    }
}

fn validate_field(name: &[u8], value: &[u8]) -> Result<(), InvalidHeader> {
    if name.is_empty() || !name.iter().all(|&b| is_token_byte(b)) {
        return Err(InvalidHeader::Name);
    }
    if value.iter().copied().any(is_line_byte) {
        return Err(InvalidHeader::Value);
    }
    Ok(())
}

/// Whether a byte ends a line, or the text for some parsers.
const fn is_line_byte(b: u8) -> bool {
    matches!(b, b'\r' | b'\n' | 0)
}

/// RFC 9110 5.6.2 `tchar`.
const fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

/// Field names used in several places, with the sections that define them.
pub mod name {
    /// Options for this connection, and the names of fields that end here (RFC 9110 7.6.1).
    pub const CONNECTION: &str = "Connection";
    /// The codings to undo, in the order in which they were applied (RFC 9110 8.4).
    pub const CONTENT_ENCODING: &str = "Content-Encoding";
    /// The length of the content in bytes (RFC 9110 8.6).
    pub const CONTENT_LENGTH: &str = "Content-Length";
    /// The media type of the content (RFC 9110 8.3).
    pub const CONTENT_TYPE: &str = "Content-Type";
    /// `100-continue`: the client waits before it sends its body (RFC 9110 10.1.1).
    pub const EXPECT: &str = "Expect";
    /// The authority of the request's target (RFC 9110 7.2).
    pub const HOST: &str = "Host";
    /// Credentials for the proxy, never forwarded to the origin (RFC 9110 11.7.2).
    pub const PROXY_AUTHORIZATION: &str = "Proxy-Authorization";
    /// Transfer codings, and `trailers`, that the client accepts (RFC 9110 10.1.4).
    pub const TE: &str = "TE";
    /// The names of the fields to expect after the body (RFC 9110 6.6.2).
    pub const TRAILER: &str = "Trailer";
    /// The framing of an HTTP/1.1 body of unknown length (RFC 9112 6.1).
    pub const TRANSFER_ENCODING: &str = "Transfer-Encoding";
    /// The protocols to switch to, for this hop only (RFC 9110 7.8).
    pub const UPGRADE: &str = "Upgrade";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Headers {
        [("Host", "a"), ("X-Two", "1"), ("x-two", "2"), ("Connection", "close, X-Two"), ("COOKIE", "s=1")]
            .into_iter()
            .collect()
    }

    fn text(h: &Headers) -> String {
        let mut out = Vec::new();
        h.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn order_case_and_repetition_are_kept() {
        let h = sample();
        assert_eq!(text(&h), "Host: a\r\nX-Two: 1\r\nx-two: 2\r\nConnection: close, X-Two\r\nCOOKIE: s=1\r\n");
        assert_eq!(h.get_all("x-TWO").collect::<Vec<_>>(), [b"1", b"2"]);
    }

    #[test]
    fn no_value_can_inject_a_line() {
        let mut h = Headers::new();
        h.append_unchecked(b"A", b"a\r\nX-Evil: 1\0b\n");
        h.set("B", "b").unwrap();
        assert!(h.append("C", "c\nX-Evil: 1").is_err() && h.set("B", "c\rX-Evil: 1").is_err());
        assert_eq!(text(&h), "A: a  X-Evil: 1 b \r\nB: b\r\n");
    }

    #[test]
    fn set_keeps_position_and_spelling_of_the_first_field() {
        let mut h = sample();
        h.set("X-TWO", "new").unwrap();
        assert_eq!(text(&h), "Host: a\r\nX-Two: new\r\nConnection: close, X-Two\r\nCOOKIE: s=1\r\n");
        h.set("Added", "").unwrap();
        assert_eq!(h.get("added"), Some(&b""[..]));
    }

    #[test]
    fn remove_takes_all_of_a_name() {
        let mut h = sample();
        assert_eq!(h.remove("x-two"), 2);
        assert_eq!(h.remove("x-two"), 0);
        assert_eq!(h.len(), 3);
    }

    #[test]
    fn the_name_mask_has_no_false_negatives() {
        const TWO: HeaderNameMask = HeaderNameMask::from_names(&["X-TWO", "absent"]);
        let mut h = sample();
        assert!(h.may_contain(TWO) && h.may_contain(HeaderNameMask::from_names(&["host"])));
        assert!(!Headers::new().may_contain(TWO));
        assert!(
            !h.may_contain(HeaderNameMask::from_names(&["te", "transfer-encoding"])),
            "no mask bit is shared with a present name"
        );
        h.append("A", "1").unwrap();
        assert_eq!((h.get("a"), h.contains("b")), (Some(&b"1"[..]), false));
    }

    #[test]
    fn list_items_are_found_in_any_case() {
        let h = sample();
        assert!(h.has_token("connection", "CLOSE"));
        assert!(h.has_token("connection", "x-two"));
        assert!(!h.has_token("connection", "clos"));
    }

    #[test]
    fn written_headers_are_independent_of_their_storage() {
        let lines = b"Host: a\r\nTight:b\r\nX: c  \r\nY:  d\r\nZ: \r\nEnd: e\r\n";
        let places =
            [(0..4, 6..7), (9..14, 15..16), (18..19, 21..22), (26..27, 30..31), (33..34, 36..36), (38..41, 43..44)];
        let mut h = Headers::from_raw(lines, places.len());
        places.into_iter().for_each(|(name, value)| h.push_span(name, value));
        let same: Headers =
            [("Host", "a"), ("Tight", "b"), ("X", "c"), ("Y", "d"), ("Z", ""), ("End", "e")].into_iter().collect();
        assert_eq!(h, same);
        assert_eq!(text(&h), "Host: a\r\nTight: b\r\nX: c\r\nY: d\r\nZ: \r\nEnd: e\r\n");
        h.append("More", "f").unwrap();
        h.set("z", "longer").unwrap();
        assert_eq!(h.remove("tight"), 1);
        assert_eq!(text(&h), "Host: a\r\nX: c\r\nY: d\r\nZ: longer\r\nEnd: e\r\nMore: f\r\n");
        assert_eq!((h.get("MORE"), h.get("tight"), h.get("none")), (Some(&b"f"[..]), None, None));
        assert_ne!(h, same);
    }

    #[test]
    fn bytes_that_could_inject_a_line_are_refused() {
        let mut h = Headers::new();
        assert_eq!(h.append("A", "b\r\nC: d"), Err(InvalidHeader::Value));
        assert_eq!(h.append("A", "b\0"), Err(InvalidHeader::Value));
        assert_eq!(h.append("A b", "c"), Err(InvalidHeader::Name));
        assert_eq!(h.append("", "c"), Err(InvalidHeader::Name));
        assert_eq!(h.set("A:", "c"), Err(InvalidHeader::Name));
        assert!(h.append("A", b"\xff\t ok").is_ok());
    }

    #[test]
    fn debug_hides_secrets() {
        let text = format!("{:?}", sample());
        assert!(text.contains("\"***\"") && !text.contains("s=1"), "{text}");
    }
}
