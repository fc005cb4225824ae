//! URLs as rules and rule files write them.

use interflow_types::Url;

/// Parses an absolute `http` or `https` URL. The fragment is dropped, and characters that a request line cannot
/// contain are escaped.
///
/// # Errors
/// What is wrong with it.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let bad = |e| format!("`{text}` is not a URL ({e}): write it as https://host/path");
    let (scheme, authority, rest) = Url::split(text).map_err(bad)?;
    let path = rest.split('#').next().unwrap_or_default();
    let path = if path.is_empty() { "/".to_owned() } else { crate::text::query_params::encode_path(path) };
    Ok(Url { scheme, authority, path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        for (text, shown) in [
            ("https://a.test", "https://a.test/"),
            ("http://A.test:8080/x?y=1#z", "http://a.test:8080/x?y=1"),
            ("wss://a.test?q", "https://a.test/?q"),
            ("http://[::1]/", "http://[::1]/"),
        ] {
            assert_eq!(parse_url(text).unwrap().to_string(), shown);
        }
        for text in ["a.test", "ftp://a", "http://", "http://u:p@a/"] {
            assert!(parse_url(text).is_err(), "{text}");
        }
    }
}
