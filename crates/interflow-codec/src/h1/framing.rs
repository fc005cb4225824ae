//! Determines where a message's body ends (RFC 9112 6.3), such that no other parser can come to a different result.

use interflow_types::{HeaderNameMask, Headers, HttpVersion, Method, ResponseHead, name};

use super::{H1Error, Violation};

/// How a body is delimited (RFC 9112 6.3): not at all, by a length, in chunks (RFC 9112 7.1), or by the end of the
/// connection, which only responses can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// The framing of a request's body.
///
/// # Errors
/// Anything that another parser could interpret differently: Transfer-Encoding other than `chunked` alone, or in
/// HTTP/1.0, or together with Content-Length; more than one Content-Length, or one that is not a plain number or has
/// leading zeros; a CONNECT with content.
pub fn request_framing(version: HttpVersion, method: &Method, headers: &Headers) -> Result<BodyFraming, H1Error> {
    let framing = declared_framing(version, headers, false).map_err(H1Error::request)?;
    match framing {
        // A length of zero is not a body: nothing has to be read.
        Some(BodyFraming::Length(0)) | None => Ok(BodyFraming::None),
        Some(_) if method == Method::CONNECT => Err(H1Error::request(Violation::ConnectBody)),
        Some(framing) => Ok(framing),
    }
}

/// The framing of the body of a response to a request with this method. After `None` for a 2xx to CONNECT, or a 101,
/// the connection is a tunnel.
///
/// # Errors
/// As for requests, except that leading zeros are accepted, because some origins pad.
pub fn response_framing(request_method: &Method, head: &ResponseHead) -> Result<BodyFraming, H1Error> {
    let status = head.status;
    // These end with their head, so their framing fields are not even read.
    if status.is_informational() || status.as_u16() == 204 || (request_method == Method::CONNECT && status.is_success())
    {
        return Ok(BodyFraming::None);
    }
    let framing = declared_framing(head.version, &head.headers, true).map_err(H1Error::response)?;
    // Checked only now, so that a malformed field is an error even if there is no content to misread.
    if request_method == Method::HEAD || status.as_u16() == 304 {
        return Ok(BodyFraming::None);
    }
    Ok(match framing {
        Some(BodyFraming::Length(0)) => BodyFraming::None,
        Some(framing) => framing,
        // Responses alone may end with the connection (RFC 9112 6.3, item 8).
        None => BodyFraming::UntilClose,
    })
}

/// Whether this message allows the connection to be reused (RFC 9112 9.3).
pub fn keeps_alive(version: HttpVersion, headers: &Headers) -> bool {
    match version {
        HttpVersion::Http10 => {
            // `close` wins over `keep-alive` if both are present.
            headers.has_token(name::CONNECTION, "keep-alive") && !headers.has_token(name::CONNECTION, "close")
        }
        HttpVersion::Http11 | HttpVersion::H2 => !headers.has_token(name::CONNECTION, "close"),
    }
}

/// The framing declared by the fields, if any.
fn declared_framing(version: HttpVersion, headers: &Headers, zeros: bool) -> Result<Option<BodyFraming>, Violation> {
    const SAYING: HeaderNameMask = HeaderNameMask::from_names(&[name::CONTENT_LENGTH, name::TRANSFER_ENCODING]);
    // A bit mask of the names present: most requests have no body, and are done here.
    if !headers.may_contain(SAYING) {
        return Ok(None);
    }
    let mut length = None;
    let mut chunked = false;
    for (field, value) in headers {
        if field.eq_ignore_ascii_case(name::CONTENT_LENGTH.as_bytes()) {
            let new = content_length(value, zeros)?;
            // Refused even if both are equal: another parser might take the last, or join them.
            if length.replace(new).is_some() {
                return Err(Violation::ManyContentLengths);
            }
        } else if field.eq_ignore_ascii_case(name::TRANSFER_ENCODING.as_bytes()) {
            // Codings other than `chunked` would be lost on the next hop, because the field is hop-by-hop.
            // Compared as a whole: `chunked, chunked` or a parameter would be read differently elsewhere.
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Violation::TransferEncoding);
            }
            chunked = true;
        }
    }
    match (chunked, length) {
        // RFC 9112 6.3 lets a server refuse this, since it is how smuggled requests are built.
        (true, Some(_)) => Err(Violation::BothFramings),
        (true, None) if version == HttpVersion::Http10 => Err(Violation::TransferEncodingIn10),
        (true, None) => Ok(Some(BodyFraming::Chunked)),
        (false, length) => Ok(length.map(BodyFraming::Length)),
    }
}

/// `1*DIGIT` that fits 64 bits. A list of equal numbers, which RFC 9110 8.6 permits to reject, is rejected.
fn content_length(value: &[u8], zeros: bool) -> Result<u64, Violation> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(if value.contains(&b',') { Violation::ManyContentLengths } else { Violation::ContentLength });
    }
    // `010` is ten to some parsers and eight to others.
    if !zeros && value.len() > 1 && value.starts_with(b"0") {
        return Err(Violation::ContentLength);
    }
    value
        .iter()
        .try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')))
        // Beyond 63 bits, parsers with signed lengths see a negative number.
        .filter(|&n| n <= i64::MAX as u64)
        .ok_or(Violation::ContentLength)
}
