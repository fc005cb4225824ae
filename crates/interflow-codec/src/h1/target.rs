//! The four forms of a request target (RFC 9112 3.2).

use interflow_types::{Authority, ByteStr, Method, RequestTarget, Scheme, Url, percent};

use super::Violation;

/// Parses the target of a request line. `raw` contains no space and no control byte.
pub(super) fn parse(method: &Method, raw: &str) -> Result<RequestTarget, Violation> {
    // A fragment is never sent; recipients differ in what they would do with it.
    if memchr::memchr(b'#', raw.as_bytes()).is_some() {
        return Err(Violation::Fragment);
    }
    if method == Method::CONNECT {
        // CONNECT must name its port (RFC 9110 9.3.6).
        return Authority::parse(raw, None).map(RequestTarget::Authority).map_err(Violation::Authority);
    }
    match raw {
        "*" if method == Method::OPTIONS => Ok(RequestTarget::Asterisk),
        _ if raw.starts_with('/') => Ok(RequestTarget::Origin(path(raw))),
        _ => absolute(method, raw).map(RequestTarget::Absolute),
    }
}

fn absolute(method: &Method, raw: &str) -> Result<Url, Violation> {
    let colon = raw.bytes().position(|b| b == b':').ok_or(Violation::Target)?;
    let (scheme, rest) = raw.split_at(colon);
    let rest = rest.strip_prefix("://").ok_or(Violation::Target)?;
    // Known schemes only: others are not proxied.
    let scheme = Scheme::parse(scheme).ok_or(Violation::Scheme)?;
    let (authority, rest) = rest.split_at(rest.bytes().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len()));
    let authority = Authority::parse(authority, Some(scheme.default_port())).map_err(Violation::Authority)?;
    let path = match rest {
        // RFC 9112 3.2.4: a server-wide OPTIONS through a proxy has an empty path and no query.
        "" if method == Method::OPTIONS => ByteStr::from_static("*"),
        "" => path("/"),
        // An empty path before a query becomes `/` (RFC 3986 6.2.3).
        _ if rest.starts_with('?') => path(&format!("/{rest}")),
        _ => path(rest),
    };
    Ok(Url { scheme, authority, path })
}

/// The path as received. Non-ASCII bytes are not allowed in a URI (RFC 3986 2.1), so they are percent-encoded, which
/// no other parser can interpret differently.
fn path(raw: &str) -> ByteStr {
    if raw == "/" {
        return ByteStr::from_static("/");
    }
    if raw.is_ascii() {
        return ByteStr::from(raw);
    }
    ByteStr::from(percent::encoded_as(raw, &percent::AsciiSet::EMPTY))
}
