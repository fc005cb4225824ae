//! Parses the heads of requests and responses, and trailer sections.

use std::mem::MaybeUninit;

use bytes::Bytes;
use httparse::{Header, ParserConfig, Status};
use interflow_types::{Authority, Headers, HttpVersion, Method, RequestTarget, ResponseHead, Scheme, StatusCode, name};

use super::{H1Error, Violation, target};

/// Limits on a head, checked before it is parsed: `max_bytes` for the whole head with its empty line, and for a trailer
/// section (default 64 KiB); `max_fields` (default 128); `max_line` for the request or status line in bytes (default 16
/// KiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    pub max_bytes: usize,
    pub max_fields: usize,
    pub max_line: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { max_bytes: 64 << 10, max_fields: 128, max_line: 16 << 10 }
    }
}

/// The head of a request as received, before its target is resolved.
#[derive(Clone, Debug)]
pub struct RequestLine {
    /// The method, in the case in which it was sent.
    pub method: Method,
    /// The target in the form in which it was sent.
    pub target: RequestTarget,
    pub version: HttpVersion,
    pub headers: Headers,
}

impl RequestLine {
    /// The authority that the request names: the target's, else that of the `Host` field with the scheme's default
    /// port (RFC 9112 3.3). `None` if neither is present, as HTTP/1.0 permits.
    ///
    /// # Errors
    /// A Host field that is not `host[:port]`; cannot occur after [`parse_request`], which has checked it.
    pub fn authority(&self, scheme: Scheme) -> Result<Option<Authority>, H1Error> {
        match &self.target {
            RequestTarget::Absolute(url) => Ok(Some(url.authority.clone())),
            RequestTarget::Authority(authority) => Ok(Some(authority.clone())),
            RequestTarget::Origin(_) | RequestTarget::Asterisk => {
                host_field(&self.headers, scheme).map_err(H1Error::request)
            }
        }
    }
}

/// Parses a request head at the start of `buf`, and returns it with its length; `None` if it is incomplete. One CRLF
/// before the request line is skipped (RFC 9112 2.2).
///
/// # Errors
/// A head over the limits, or one that violates RFC 9112 2 to 5; an HTTP/1.1 request without exactly one valid Host.
pub fn parse_request(buf: &[u8], limits: &HeadLimits) -> Result<Option<(RequestLine, usize)>, H1Error> {
    let skipped = if buf.starts_with(b"\r\n") { 2 } else { 0 };
    let head = buf.get(skipped..).unwrap_or_default();
    let mut read = read_request(head, limits);
    if matches!(read, Err(Violation::Version)) {
        // RFC 9110 2.5: a higher minor version is processed as the highest that is known.
        let at = first_line(head).len().saturating_sub(1);
        if let Some(b"HTTP/1.") = head.get(at.saturating_sub(7)..at) {
            let mut as_http11 = head.to_vec();
            as_http11[at] = b'1';
            read = read_request(&as_http11, limits);
        }
    }
    read.map(|found| found.map(|(r, len)| (r, len + skipped))).map_err(H1Error::request)
}

/// Parses a response head at the start of `buf`, and returns it with its length; `None` if it is incomplete.
/// Whitespace before a colon is removed and folded lines are joined, as RFC 9112 5 requires of a proxy.
///
/// # Errors
/// A head over the limits, or one that violates RFC 9112 2, 4 or 5.
pub fn parse_response(buf: &[u8], limits: &HeadLimits) -> Result<Option<(ResponseHead, usize)>, H1Error> {
    read_response(buf, limits).map_err(H1Error::response)
}

fn read_request(buf: &[u8], limits: &HeadLimits) -> Result<Option<(RequestLine, usize)>, Violation> {
    match fast_parse_request(buf, limits)? {
        Some(found) => Ok(Some(found)),
        None => parse_any_request(buf, limits),
    }
}

/// The fast path: a complete request head in the usual layout. `None` means that the full parser must decide.
fn fast_parse_request(buf: &[u8], limits: &HeadLimits) -> Result<Option<(RequestLine, usize)>, Violation> {
    with_slots(0, |slots| {
        let mut request = httparse::Request::new(&mut []);
        let Ok(Status::Complete(len)) = request.parse_with_uninit_headers(buf, slots) else { return Ok(None) };
        let (Some(method), Some(raw), Some(minor)) = (request.method, request.path, request.version) else {
            return Ok(None);
        };
        // An empty line before the request line is left to the full parser.
        let begins = method.as_ptr() == buf.as_ptr();
        let Some(headers) = fast_parse_fields(request.headers, buf.get(..len).filter(|_| begins), limits) else {
            return Ok(None);
        };
        // In the usual layout, an error here is final: the full parser would find the same.
        let line = request_line((method, raw, minor), headers)?;
        Ok(Some((line, len)))
    })
}

fn request_line((method, raw, minor): (&str, &str, u8), headers: Headers) -> Result<RequestLine, Violation> {
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Violation::RequestLine)?;
    let target = target::parse(&method, raw)?;
    let version = version(minor);
    check_host(version, &headers)?;
    Ok(RequestLine { method, target, version, headers })
}

/// The fields of a complete head within the limits whose lines all end in CRLF and are contiguous, each a field of
/// its own. Such a head is unambiguous, so it needs no second pass.
fn fast_parse_fields(fields: &[Header<'_>], head: Option<&[u8]>, limits: &HeadLimits) -> Option<Headers> {
    let head = head.filter(|h| h.len() <= limits.max_bytes)?;
    // httparse gives slices of the buffer; their addresses tell which bytes lie between them.
    let base = head.as_ptr().addr();
    let begins = match fields.first() {
        Some(first) => first.name.as_ptr().addr().wrapping_sub(base),
        None => head.len().checked_sub(2)?,
    };
    let (first_line, lines) = head.split_at_checked(begins)?;
    // The limit counts the line with its CR.
    if !first_line.ends_with(b"\r\n") || first_line.len() - 1 > limits.max_line || fields.len() > limits.max_fields {
        return None;
    }
    let mut headers = Headers::from_raw(lines, fields.len());
    let mut at = 0;
    for field in fields {
        // A gap between lines: a folded line, or bytes that the parser skipped.
        if field.name.as_ptr().addr().wrapping_sub(base) != begins + at {
            return None;
        }
        let name = at..at + field.name.len();
        let Some((b':', after)) = lines.get(name.end..)?.split_first() else { return None };
        let value = name.end + 1 + spaces(after);
        let value = value..value + field.value.len();
        if !field.value.is_empty() && field.value.as_ptr().addr().wrapping_sub(base) != begins + value.start {
            return None;
        }
        let after = lines.get(value.end..)?;
        let space = spaces(after);
        let [b'\r', b'\n', ..] = after.get(space..)? else { return None };
        at = value.end + space + 2;
        headers.push_span(name, value);
    }
    // The empty line, and nothing else, ends the section.
    (lines.get(at..) == Some(b"\r\n")).then_some(headers)
}

/// The number of leading spaces and tabs; almost always one.
fn spaces(bytes: &[u8]) -> usize {
    let is_space = |b: &u8| matches!(b, b' ' | b'\t');
    match bytes {
        [b' ', next, ..] if !is_space(next) => 1,
        [next, ..] if !is_space(next) => 0,
        _ => bytes.iter().take_while(|b| is_space(b)).count(),
    }
}

fn parse_any_request(buf: &[u8], limits: &HeadLimits) -> Result<Option<(RequestLine, usize)>, Violation> {
    let Some(extent) = find_head_end(buf, limits)? else {
        // The parser's verdict on the beginning refuses garbage before its end is found.
        let start = buf.get(..EARLY_CHECK_BYTES).unwrap_or(buf);
        let parsed = with_slots(0, |slots| httparse::Request::new(&mut []).parse_with_uninit_headers(start, slots));
        return check_partial(parsed, start, Violation::RequestLine).map(|()| None);
    };
    let head = buf.get(..extent.len).unwrap_or_default();
    with_slots(extent.lines, |slots| {
        // As many slots as lines, so that the number of fields is limited by `max_fields` alone.
        let mut request = httparse::Request::new(&mut []);
        check_complete(request.parse_with_uninit_headers(head, slots), head, Violation::RequestLine)?;
        let (Some(method), Some(raw), Some(minor)) = (request.method, request.path, request.version) else {
            return Err(Violation::RequestLine);
        };
        let headers = copy_fields(request.headers, limits)?;
        Ok(Some((request_line((method, raw, minor), headers)?, extent.len)))
    })
}

fn read_response(buf: &[u8], limits: &HeadLimits) -> Result<Option<(ResponseHead, usize)>, Violation> {
    match fast_parse_response(buf, limits) {
        Some(found) => Ok(Some(found)),
        None => parse_any_response(buf, limits),
    }
}

/// The fast path: a complete response head in the usual layout. `None` means that the full parser must decide.
fn fast_parse_response(buf: &[u8], limits: &HeadLimits) -> Option<(ResponseHead, usize)> {
    with_slots(0, |slots| {
        let mut response = httparse::Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut response, buf, slots);
        let Ok(Status::Complete(len)) = parsed else { return None };
        let (minor, status) = (response.version?, StatusCode::from_u16(response.code?).ok()?);
        // httparse accepts leading empty lines, which are left to the full parser.
        let begins = buf.starts_with(b"HTTP/");
        let headers = fast_parse_fields(response.headers, buf.get(..len).filter(|_| begins), limits)?;
        let reason = reason(status, first_line(buf));
        Some((ResponseHead { status, reason, version: version(minor), headers }, len))
    })
}

fn parse_any_response(buf: &[u8], limits: &HeadLimits) -> Result<Option<(ResponseHead, usize)>, Violation> {
    let mut config = ParserConfig::default();
    // RFC 9112 5.1 and 5.2 let a proxy repair these in responses; in requests both are refused.
    config.allow_spaces_after_header_name_in_responses(true).allow_obsolete_multiline_headers_in_responses(true);
    let Some(extent) = find_head_end(buf, limits)? else {
        let start = buf.get(..EARLY_CHECK_BYTES).unwrap_or(buf);
        let parsed = with_slots(0, |slots| {
            config.parse_response_with_uninit_headers(&mut httparse::Response::new(&mut []), start, slots)
        });
        return check_partial(parsed, start, Violation::StatusLine).map(|()| None);
    };
    let head = buf.get(..extent.len).unwrap_or_default();
    with_slots(extent.lines, |slots| {
        let mut response = httparse::Response::new(&mut []);
        let parsed = config.parse_response_with_uninit_headers(&mut response, head, slots);
        check_complete(parsed, head, Violation::StatusLine)?;
        let (Some(minor), Some(code)) = (response.version, response.code) else { return Err(Violation::StatusLine) };
        let status = StatusCode::from_u16(code).map_err(|_| Violation::StatusLine)?;
        let headers = copy_fields(response.headers, limits)?;
        let reason = reason(status, first_line(head));
        Ok(Some((ResponseHead { status, reason, version: version(minor), headers }, extent.len)))
    })
}

/// How many bytes of an incomplete head are parsed on every call, so that garbage is refused at once. Parsing all of
/// it would take quadratic time if the bytes arrive slowly.
const EARLY_CHECK_BYTES: usize = 512;

/// Field slots on the stack; heads with more fields need an allocation.
const INLINE_FIELD_SLOTS: usize = 64;

/// The extent of a header or trailer section: its bytes and lines, both with the empty line.
pub(super) struct SectionEnd {
    pub(super) len: usize,
    pub(super) lines: usize,
}

/// Finds the empty line that ends a head.
fn find_head_end(buf: &[u8], limits: &HeadLimits) -> Result<Option<SectionEnd>, Violation> {
    // The search stops at the limit, whatever has arrived.
    let within = buf.get(..limits.max_bytes).unwrap_or(buf);
    let mut lines = 0;
    let mut start = 0;
    for lf in memchr::memchr_iter(b'\n', within) {
        let line = within.get(start..lf).unwrap_or_default();
        // RFC 9112 2.2 permits accepting a bare LF. Refusing it is safer: two parsers that differ in this disagree
        // about where a message ends.
        let Some(b'\r') = line.last() else { return Err(Violation::BareLf) };
        if lines == 0 && line.len() > limits.max_line {
            return Err(Violation::LineTooLong);
        }
        lines += 1;
        if line.len() == 1 {
            return Ok(Some(SectionEnd { len: lf + 1, lines }));
        }
        start = lf + 1;
    }
    // Refused before its end is found.
    if lines == 0 && within.len() > limits.max_line {
        return Err(Violation::LineTooLong);
    }
    if buf.len() >= limits.max_bytes { Err(Violation::HeadTooLarge) } else { Ok(None) }
}

/// Finds the empty line that ends a trailer section, which may consist of it alone.
pub(super) fn find_section_end(buf: &[u8], limits: &HeadLimits) -> Result<Option<SectionEnd>, Violation> {
    // Trailers have no first line of their own, so only the total counts.
    find_head_end(buf, &HeadLimits { max_line: limits.max_bytes, ..*limits })
}

/// Parses the fields of a complete section.
pub(super) fn parse_section(section: &[u8], extent: &SectionEnd, limits: &HeadLimits) -> Result<Headers, Violation> {
    let mut slots = vec![httparse::EMPTY_HEADER; extent.lines];
    match httparse::parse_headers(section, &mut slots) {
        // The section has its empty line, so `Partial` means that it is malformed.
        Ok(Status::Complete((_, fields))) => copy_fields(fields, limits),
        Ok(Status::Partial) | Err(_) => Err(Violation::Field),
    }
}

fn with_slots<'b, R>(lines: usize, f: impl FnOnce(&mut [MaybeUninit<Header<'b>>]) -> R) -> R {
    if lines <= INLINE_FIELD_SLOTS {
        // On the stack and uninitialised: clearing 64 slots for each head would cost more than parsing it.
        f(&mut [const { MaybeUninit::uninit() }; INLINE_FIELD_SLOTS])
    } else {
        f(&mut vec![const { MaybeUninit::uninit() }; lines])
    }
}

fn check_partial(seen: httparse::Result<usize>, start: &[u8], line: Violation) -> Result<(), Violation> {
    match seen {
        // Too many fields for the slots: the limit is checked when the head is complete.
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Ok(()),
        Err(e) => Err(violation_for(e, start, line)),
    }
}

fn check_complete(seen: httparse::Result<usize>, head: &[u8], line: Violation) -> Result<(), Violation> {
    match seen {
        Ok(Status::Complete(_)) => Ok(()),
        Ok(Status::Partial) => Err(line),
        Err(e) => Err(violation_for(e, head, line)),
    }
}

fn violation_for(e: httparse::Error, head: &[u8], line: Violation) -> Violation {
    match e {
        httparse::Error::HeaderName | httparse::Error::HeaderValue => Violation::Field,
        httparse::Error::TooManyHeaders => Violation::TooManyFields,
        // `HTTP/2.0` in an HTTP/1 head deserves an error of its own.
        httparse::Error::Version if names_other_version(first_line(head), line) => Violation::Version,
        _ => line,
    }
}

/// Whether the version has at least the form of one, such as `HTTP/2.0`: then it is unsupported rather than
/// malformed.
fn names_other_version(first: &[u8], line: Violation) -> bool {
    let mut words = first.split(|&b| b == b' ');
    let version = match line {
        Violation::StatusLine => words.next(),
        // A request line has three words; more of them mean a target with a space in it.
        _ => words.nth(2).filter(|_| words.next().is_none()),
    };
    matches!(version, Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit())
}

fn first_line(head: &[u8]) -> &[u8] {
    let line = memchr::memchr(b'\n', head).and_then(|lf| head.get(..lf)).unwrap_or(head);
    line.strip_suffix(b"\r").unwrap_or(line)
}

const fn version(minor: u8) -> HttpVersion {
    if minor == 0 { HttpVersion::Http10 } else { HttpVersion::Http11 }
}

/// The reason phrase as received; a standard one needs no allocation.
fn reason(status: StatusCode, line: &[u8]) -> Bytes {
    // All versions and status codes have the same number of characters.
    let raw = line.get("HTTP/1.1 200 ".len()..).unwrap_or_default();
    match status.canonical_reason() {
        Some(usual) if usual.as_bytes() == raw => Bytes::from_static(usual.as_bytes()),
        _ => Bytes::copy_from_slice(raw),
    }
}

/// Copies the fields one by one into one buffer and joins folded values. For heads that the fast path rejects.
fn copy_fields(fields: &[Header<'_>], limits: &HeadLimits) -> Result<Headers, Violation> {
    if fields.len() > limits.max_fields {
        return Err(Violation::TooManyFields);
    }
    let bytes: usize = fields.iter().map(|f| f.name.len() + f.value.len() + 4).sum();
    let mut headers = Headers::with_capacity(fields.len() + 4, bytes + 64);
    for field in fields {
        if field.value.contains(&b'\n') {
            headers.append_unchecked(field.name.as_bytes(), &unfold_value(field.value));
        } else {
            headers.append_unchecked(field.name.as_bytes(), field.value);
        }
    }
    Ok(headers)
}

/// The lines of a folded value, joined by single spaces (RFC 9112 5.2).
fn unfold_value(value: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> =
        value.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).collect();
    lines.join(&b' ')
}

fn check_host(version: HttpVersion, headers: &Headers) -> Result<(), Violation> {
    let mut hosts = headers.get_all(name::HOST);
    match (hosts.next(), hosts.next()) {
        // RFC 9112 3.2 requires the field in HTTP/1.1 and forbids a second one in any version.
        (None, _) if version == HttpVersion::Http11 => Err(Violation::NoHost),
        (_, Some(_)) => Err(Violation::ManyHosts),
        (Some(value), None) if is_plain_host(value) => Ok(()),
        _ => host_field(headers, Scheme::Http).map(drop),
    }
}

/// Whether this is certainly a name or an IPv4 address, with or without a port. Saves the common request an
/// allocation.
fn is_plain_host(value: &[u8]) -> bool {
    let end = value.iter().position(|&b| b == b':').unwrap_or(value.len());
    let (host, port) = value.split_at(end);
    let port_is_plain = match port {
        [] => true,
        // No port of four digits is too large, nor one of five digits that starts with these.
        [_, b'1'..=b'9', rest @ ..] if rest.len() < 4 => rest.iter().all(u8::is_ascii_digit),
        [_, b'1'..=b'5', rest @ ..] if rest.len() == 4 => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    port_is_plain
        && !host.is_empty()
        && host.len() < 256
        && host.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
}

/// The authority in the Host field; an empty field is allowed (RFC 9110 7.2).
fn host_field(headers: &Headers, scheme: Scheme) -> Result<Option<Authority>, Violation> {
    match headers.get(name::HOST) {
        None | Some(b"") => Ok(None),
        Some(value) => {
            let text =
                std::str::from_utf8(value).map_err(|_| Violation::Host(interflow_types::AuthorityError::Host))?;
            Authority::parse(text, Some(scheme.default_port())).map(Some).map_err(Violation::Host)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: &str =
        "POST http://a.test:8080/p?q HTTP/1.1\r\nHost: a.test\r\nX-Empty:\r\nX-Wide: \t v \t\r\n\r\nbody";
    const RESPONSE: &str =
        "HTTP/1.1 200 OK\r\nServer: x\r\nEmpty: \r\nSet-Cookie: a=b; c\r\nContent-Length: 4\r\n\r\nbody";

    fn text<T: std::fmt::Debug>(
        found: &Result<Option<(T, usize)>, Violation>,
        headers: impl Fn(&T) -> &Headers,
    ) -> String {
        let written = found.as_ref().ok().and_then(Option::as_ref).map(|(t, _)| {
            let mut out = Vec::new();
            headers(t).write_to(&mut out);
            out
        });
        format!("{found:?} {written:?}")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// However a head is corrupted, the fast path never parses it differently from the full parser.
        #[test]
        fn the_fast_path_agrees_with_the_full_parser(
            at in 0usize..90,
            cut in 0usize..3,
            put in prop::sample::select(vec!["", "\r", "\n", "\r\n", " ", "\t", ":", "\0", "\r\n ", "\n\n", "\r\n\r\n", "A: b\r\n", "\u{e9}"]),
            few in any::<bool>(),
        ) {
            let limits = if few { HeadLimits { max_bytes: 80, max_fields: 2, max_line: 36 } } else { HeadLimits::default() };
            for whole in [REQUEST, RESPONSE] {
                let at = at.min(whole.len());
                let mut bytes = whole.as_bytes().to_vec();
                let end = (at + cut).min(bytes.len());
                bytes.splice(at..end, put.bytes());
                if let found @ (Ok(Some(_)) | Err(_)) = fast_parse_request(&bytes, &limits) {
                    prop_assert_eq!(text(&found, |r| &r.headers), text(&parse_any_request(&bytes, &limits), |r| &r.headers));
                }
                if let Some(found) = fast_parse_response(&bytes, &limits) {
                    let long = parse_any_response(&bytes, &limits);
                    prop_assert_eq!(text(&Ok(Some(found)), |r| &r.headers), text(&long, |r| &r.headers));
                }
            }
        }
    }

    #[test]
    fn typical_head_takes_the_fast_path() {
        let limits = HeadLimits::default();
        let (request, len) = fast_parse_request(REQUEST.as_bytes(), &limits).unwrap().expect("the fast path");
        assert_eq!(
            (request.headers.get("x-wide"), request.headers.get("X-Empty"), len),
            (Some(&b"v"[..]), Some(&b""[..]), REQUEST.len() - 4)
        );
        assert!(fast_parse_response(RESPONSE.as_bytes(), &limits).is_some());
        assert!(fast_parse_request(b"GET / HTTP/1.1\nHost: a\r\n\r\n", &limits).unwrap().is_none());
    }
}
