//! Where a message's body ends (RFC 9112 6.3), decided so that no other parser can decide otherwise.

use interflow_flow::{Headers, Method, Names, ResponseHead, Version, name};

use super::{Error, Rule};

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// This many bytes follow.
    Length(u64),
    /// Chunks follow (RFC 9112 7.1).
    Chunked,
    /// Everything until the connection closes; responses only.
    UntilClose,
}

/// The framing of a request's body.
///
/// # Errors
/// Any shape that a second parser could read otherwise: Transfer-Encoding that is not `chunked` alone or stands in
/// HTTP/1.0 or beside a Content-Length, more than one Content-Length, one that is no plain number or has leading
/// zeros, a CONNECT with content.
pub fn request_framing(version: Version, method: &Method, headers: &Headers) -> Result<Framing, Error> {
    let framing = declared(version, headers, false).map_err(Error::request)?;
    match framing {
        Some(Framing::Length(0)) | None => Ok(Framing::None),
        Some(_) if method == Method::CONNECT => Err(Error::request(Rule::ConnectBody)),
        Some(framing) => Ok(framing),
    }
}

/// The framing of the body of a response to a request with this method. After `None` for a 2xx to CONNECT or a 101
/// the connection is a tunnel.
///
/// # Errors
/// As for requests; leading zeros are let pass, since there are origins that pad.
pub fn response_framing(request_method: &Method, head: &ResponseHead) -> Result<Framing, Error> {
    let status = head.status;
    if status.is_informational() || status.as_u16() == 204 || (request_method == Method::CONNECT && status.is_success())
    {
        return Ok(Framing::None);
    }
    let framing = declared(head.version, &head.headers, true).map_err(Error::response)?;
    if request_method == Method::HEAD || status.as_u16() == 304 {
        return Ok(Framing::None);
    }
    Ok(match framing {
        Some(Framing::Length(0)) => Framing::None,
        Some(framing) => framing,
        None => Framing::UntilClose,
    })
}

/// Whether the connection may serve another exchange as far as this message says (RFC 9112 9.3).
pub fn keeps_alive(version: Version, headers: &Headers) -> bool {
    match version {
        Version::Http10 => {
            headers.has_token(name::CONNECTION, "keep-alive") && !headers.has_token(name::CONNECTION, "close")
        }
        Version::Http11 | Version::H2 => !headers.has_token(name::CONNECTION, "close"),
    }
}

/// What the fields say, when they say anything.
fn declared(version: Version, headers: &Headers, zeros: bool) -> Result<Option<Framing>, Rule> {
    const SAYING: Names = Names::of(&[name::CONTENT_LENGTH, name::TRANSFER_ENCODING]);
    if !headers.may_contain(SAYING) {
        return Ok(None);
    }
    let mut length = None;
    let mut chunked = false;
    for (field, value) in headers {
        if field.eq_ignore_ascii_case(name::CONTENT_LENGTH.as_bytes()) {
            let new = content_length(value, zeros)?;
            if length.replace(new).is_some() {
                return Err(Rule::ManyContentLengths);
            }
        } else if field.eq_ignore_ascii_case(name::TRANSFER_ENCODING.as_bytes()) {
            // Other codings than `chunked` would be lost on the next hop, since the field is hop-by-hop.
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Rule::TransferEncoding);
            }
            chunked = true;
        }
    }
    match (chunked, length) {
        (true, Some(_)) => Err(Rule::BothFramings),
        (true, None) if version == Version::Http10 => Err(Rule::TransferEncodingIn10),
        (true, None) => Ok(Some(Framing::Chunked)),
        (false, length) => Ok(length.map(Framing::Length)),
    }
}

/// `1*DIGIT` that fits 64 bits. A list of equal numbers, which RFC 9110 8.6 lets a recipient refuse, is refused.
fn content_length(value: &[u8], zeros: bool) -> Result<u64, Rule> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(if value.contains(&b',') { Rule::ManyContentLengths } else { Rule::ContentLength });
    }
    if !zeros && value.len() > 1 && value.starts_with(b"0") {
        return Err(Rule::ContentLength);
    }
    value
        .iter()
        .try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')))
        .filter(|&n| n <= i64::MAX as u64)
        .ok_or(Rule::ContentLength)
}
