//! The content codings that a request accepts, without those that rules could not read in the response.

use interflow_types::Headers;

/// The names of codings that can be decoded (RFC 9110 8.4.1).
const READABLE: [&[u8]; 6] = [b"gzip", b"x-gzip", b"deflate", b"br", b"zstd", b"identity"];

fn is_readable(item: &[u8]) -> bool {
    let name = item.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    READABLE.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether the request accepts a coding that cannot be decoded, `*` included.
pub(crate) fn accepts_others(headers: &Headers) -> bool {
    // What browsers and tools send; the rest is divided into its items.
    let is_common = |value: &[u8]| {
        matches!(value, b"gzip, deflate, br, zstd" | b"gzip, deflate, br" | b"gzip, deflate" | b"gzip" | b"identity")
    };
    !headers.get_all("accept-encoding").all(is_common)
        && headers.list_items("accept-encoding").any(|item| !is_readable(item))
}

/// Leaves the codings that can be decoded, with their weights.
pub(crate) fn keep_readable(headers: &mut Headers) {
    let readable: Vec<_> = headers.list_items("accept-encoding").filter(|item| is_readable(item)).collect();
    let list = if readable.is_empty() { b"identity".to_vec() } else { readable.join(&b", "[..]) };
    let _ = headers.set("Accept-Encoding", list);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codings_that_can_be_decoded_are_left() {
        for (accepted, left) in [
            ("gzip, deflate, br, zstd, dcb, dcz", Some("gzip, deflate, br, zstd")),
            ("dcb;q=1, GZIP;q=0.8, *;q=0", Some("GZIP;q=0.8")),
            ("x-fb-dz", Some("identity")),
            ("*", Some("identity")),
            ("gzip, identity;q=0", None),
            ("", None),
        ] {
            let mut headers: Headers = [("Accept-Encoding", accepted)].into_iter().collect();
            assert_eq!(accepts_others(&headers), left.is_some(), "{accepted}");
            if let Some(left) = left {
                keep_readable(&mut headers);
                assert_eq!(headers.get_str("accept-encoding"), Some(left));
            }
        }
        assert!(!accepts_others(&Headers::new()));
    }
}
