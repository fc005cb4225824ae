//! JA4H: the fingerprint of an HTTP client from its requests (FoxIO, JA4+ suite).

use interflow_types::{Headers, HttpVersion, Method};
use sha2::{Digest, Sha256};

/// The fingerprint of one request, as `ge11cr05enus_…_…_…`: method, version, cookie, referer, number of fields,
/// language; then hashes of the field names in order, of the cookie names, and of the cookies.
pub fn ja4h(method: &Method, version: HttpVersion, headers: &Headers) -> String {
    let counted =
        // Neither counts: they vary with the site and the page.
        || headers.iter().map(|(name, _)| name).filter(|n| !name_equals(n, b"cookie") && !name_equals(n, b"referer"));
    let mut cookies: Vec<&[u8]> = headers
        .iter()
        .filter(|(name, _)| name_equals(name, b"cookie"))
        .flat_map(|(_, value)| value.split(|b| *b == b';'))
        .map(<[u8]>::trim_ascii)
        .filter(|c| !c.is_empty())
        .collect();
    let mut names: Vec<&[u8]> =
        cookies.iter().map(|c| c.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii()).collect();
    // Sorted, because browsers do not keep cookies in one order.
    cookies.sort_unstable();
    names.sort_unstable();
    let method: String = method.as_str().chars().take(2).map(|c| c.to_ascii_lowercase()).collect();
    let version = match version {
        HttpVersion::Http10 => "10",
        HttpVersion::Http11 => "11",
        HttpVersion::H2 => "20",
    };
    let cookie = if cookies.is_empty() { 'n' } else { 'c' };
    let referer = if headers.contains("referer") { 'r' } else { 'n' };
    let count = counted().count().min(99);
    format!(
        "{method}{version}{cookie}{referer}{count:02}{}_{}_{}_{}",
        language_code(headers.get("accept-language").unwrap_or_default()),
        hash(counted()),
        // No cookies: zeros rather than the hash of nothing.
        if names.is_empty() { NOTHING.into() } else { hash(names.into_iter()) },
        if cookies.is_empty() { NOTHING.into() } else { hash(cookies.into_iter()) },
    )
}

const NOTHING: &str = "000000000000";

fn name_equals(name: &[u8], wanted: &[u8]) -> bool {
    name.eq_ignore_ascii_case(wanted)
}

/// The first four letters of the first language, without hyphens.
fn language_code(value: &[u8]) -> String {
    let first = value.split(|b| matches!(b, b',' | b';')).next().unwrap_or_default();
    let letters = first.iter().filter(|b| b.is_ascii_alphanumeric()).take(4).map(|b| b.to_ascii_lowercase() as char);
    format!("{:0<4}", letters.collect::<String>())
}

fn hash<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut sha = Sha256::new();
    for (i, part) in parts.enumerate() {
        if i > 0 {
            sha.update(b",");
        }
        sha.update(part);
    }
    hex::encode(&sha.finalize()[..6])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(method: &str, version: HttpVersion, fields: &[(&str, &str)]) -> String {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.append_unchecked(name.as_bytes(), value.as_bytes());
        }
        ja4h(&Method::from_bytes(method.as_bytes()).unwrap(), version, &headers)
    }

    #[test]
    fn ja4h_readable_part_is_as_specified() {
        for (method, version, fields, wanted) in [
            ("GET", HttpVersion::Http11, &[("Host", "a"), ("Accept", "*/*")][..], "ge11nn020000_"),
            (
                "POST",
                HttpVersion::H2,
                &[("cookie", "a=1"), ("referer", "b"), ("accept-language", "en-US,en;q=0.9")],
                "po20cr01enus_",
            ),
            ("OPTIONS", HttpVersion::Http10, &[("Accept-Language", "de")], "op10nn01de00_"),
            ("X", HttpVersion::Http11, &[("Accept-Language", "*")], "x11nn010000_"),
        ] {
            assert!(
                fingerprint(method, version, fields).starts_with(wanted),
                "{}",
                fingerprint(method, version, fields)
            );
        }
    }

    #[test]
    fn ja4h_hash_depends_on_header_order_but_not_on_cookie_order() {
        let one = fingerprint("GET", HttpVersion::Http11, &[("Host", "a"), ("Accept", "b"), ("Cookie", "x=1; y=2")]);
        let other = fingerprint("GET", HttpVersion::Http11, &[("Host", "c"), ("Accept", "d"), ("Cookie", "y=2; x=1")]);
        assert_eq!(one, other, "neither values of fields nor the order of cookies count");
        let turned = fingerprint("GET", HttpVersion::Http11, &[("Accept", "b"), ("Host", "a"), ("Cookie", "x=1; y=2")]);
        assert_ne!(one, turned);
        // printf 'Host,Accept' | sha256sum; printf 'x,y'; printf 'x=1,y=2'
        assert_eq!(one, "ge11cn020000_1af9d02f0bf7_968e772cf168_62f76dca298c");
    }
}
