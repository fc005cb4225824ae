//! The URL of a server.

use interflow_types::{ByteStr, Url};

/// # Errors
/// It is not the URL of a server.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let wrong = |why: &str| format!("`{text}` is not the URL of a server: {why}; write https://mcp.example.com/mcp");
    let (scheme, authority, path) = Url::split(text).map_err(|e| wrong(&e.to_string()))?;
    if text.contains(['#', ' ']) {
        return Err(wrong("it has a space or a fragment"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Url { scheme, authority, path: ByteStr::from(path) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_servers_are_parsed_and_others_refused() {
        for (text, url) in [
            ("https://mcp.example.com/mcp", Some("https://mcp.example.com/mcp")),
            ("http://127.0.0.1:8000", Some("http://127.0.0.1:8000/")),
            ("https://a.test?x=1", Some("https://a.test/?x=1")),
            ("ftp://a.test/", None),
            ("a.test", None),
            ("https://u@a.test/", None),
            ("https://a.test/#x", None),
        ] {
            assert_eq!(parse_url(text).ok().map(|u| u.to_string()).as_deref(), url, "{text}");
        }
    }
}
