//! Reading and editing of `Cookie` and `Set-Cookie` (RFC 6265).

use interflow_types::Headers;

/// The cookies of a request, in order; parts without `=` are skipped.
pub(crate) fn request_cookies(headers: &Headers) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.get_all("cookie").flat_map(|v| v.split(|b| *b == b';')).filter_map(parse_pair)
}

/// The value of one cookie; names are case-sensitive (RFC 6265 5.3).
pub(crate) fn request_cookie<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    request_cookies(headers).find(|(n, _)| *n == name.as_bytes()).map(|(_, v)| v)
}

/// Name and value of each `Set-Cookie`, without its attributes.
pub(crate) fn response_cookies(headers: &Headers) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.get_all("set-cookie").filter_map(|v| parse_pair(v.split(|b| *b == b';').next().unwrap_or_default()))
}

/// # Errors
/// The value would be more than one cookie, or more than a field.
pub(crate) fn check_cookie_value(value: &str) -> Result<(), String> {
    match value.bytes().any(|b| matches!(b, b';' | b'\r' | b'\n' | 0)) {
        true => Err(format!("a cookie holds no semicolon and no line break: {value:?}")),
        false => Ok(()),
    }
}

fn parse_pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii();
    let at = text.iter().position(|b| *b == b'=')?;
    Some((text[..at].trim_ascii(), text[at + 1..].trim_ascii()))
}

/// Sets or removes one cookie of the request; the others keep their position and spelling.
pub(crate) fn set_request_cookie(headers: &mut Headers, name: &str, value: Option<&str>) {
    let mut pairs: Vec<Vec<u8>> = Vec::new();
    let mut done = false;
    let new = |v: &str| [name.as_bytes(), b"=", v.as_bytes()].concat();
    for (n, v) in request_cookies(headers) {
        if n != name.as_bytes() {
            pairs.push([n, b"=", v].concat());
        } else if let Some(value) = value
            && !std::mem::replace(&mut done, true)
        {
            pairs.push(new(value));
        }
    }
    if let Some(value) = value
        && !done
    {
        pairs.push(new(value));
    }
    if pairs.is_empty() {
        headers.remove("cookie");
    } else {
        // Every byte comes from a header value or was checked by the caller.
        let _ = headers.set("Cookie", pairs.join(&b"; "[..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookies(lines: &[&str]) -> Headers {
        lines.iter().map(|l| ("Cookie", *l)).collect()
    }

    fn put_in(lines: &[&str], name: &str, value: Option<&str>) -> Option<String> {
        let mut h = cookies(lines);
        set_request_cookie(&mut h, name, value);
        assert!(h.get_all("cookie").count() <= 1);
        h.get_str("cookie").map(ToOwned::to_owned)
    }

    #[test]
    fn setting_one_cookie_keeps_the_others() {
        for (lines, name, value, after) in [
            (&["a=1; b=2"][..], "b", Some("x"), Some("a=1; b=x")),
            (&["a=1; b=2"], "c", Some("3"), Some("a=1; b=2; c=3")),
            (&["a=1", "b=2"], "a", None, Some("b=2")),
            (&["a=1; a=2"], "a", Some("9"), Some("a=9")),
            (&["a=1"], "a", None, None),
            (&[], "a", Some("1"), Some("a=1")),
        ] {
            assert_eq!(put_in(lines, name, value).as_deref(), after, "{lines:?} {name}");
        }
    }

    #[test]
    fn cookies_are_read_by_name() {
        let h = cookies(&["a=1;  sid = x=y ;junk"]);
        assert_eq!(
            (request_cookie(&h, "sid"), request_cookie(&h, "SID"), request_cookie(&h, "junk")),
            (Some(&b"x=y"[..]), None, None)
        );
        let h: Headers = [("Set-Cookie", "sid=1; Path=/"), ("set-cookie", "t=2")].into_iter().collect();
        assert_eq!(response_cookies(&h).map(|(n, _)| n).collect::<Vec<_>>(), [b"sid", &b"t"[..]]);
    }
}
