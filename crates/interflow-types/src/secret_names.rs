//! The names whose values are secrets: header fields, and parameters of queries and forms. Recordings, logs, `Debug`,
//! the admin API's `/config` and output for agents are all masked by this list.

use crate::data_file;
use std::sync::LazyLock;

/// Header fields whose values are secrets, in lower case.
pub static SECRET_HEADERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../data/secret_headers.txt")).collect());

/// Query and form parameters whose values are secrets, in lower case.
pub static SECRET_PARAMETERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../data/secret_parameters.txt")).collect());

/// Whether the value of this header field is a secret; ignores case.
pub fn is_secret_header(name: &[u8]) -> bool {
    // Compared without case, because fields come in any spelling.
    SECRET_HEADERS.iter().any(|s| name.eq_ignore_ascii_case(s.as_bytes()))
}

/// Whether the value of this query or form parameter is a secret; ignores case.
pub fn is_secret_parameter(name: &str) -> bool {
    SECRET_PARAMETERS.iter().any(|s| name.eq_ignore_ascii_case(s))
}

/// Whether a header field, parameter or key of this name looks like one that holds a secret, such as `tavilyApiKey`.
pub fn is_secret_name(name: &str) -> bool {
    if is_secret_header(name.as_bytes()) {
        return true;
    }
    // Compared without punctuation and case: `api_key`, `api-key` and `apiKey` are equal.
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    // Token counts are not secrets, and are commonly needed.
    if name.ends_with("tokens") || name.ends_with("tokencount") || name.contains("tokensdetails") {
        return false;
    }
    const WHOLE: &str = "authorization proxyauthorization cookie setcookie auth key sig pwd";
    const PARTS: &str =
        "accesskey apikey token secret passphrase password passwd credential privatekey signature sessionkey";
    data_file::has_word(WHOLE, &name) || PARTS.split(' ').any(|part| name.contains(part))
}

/// A URL with its credentials masked; `None` if it has none.
pub fn without_credentials(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    // The last `@` separates the host: a password may contain one. It may also contain `/`, `?` and `#`, which drivers of
    // databases accept; on the web those end the authority, and what follows may contain an `@`.
    let is_web = ["http", "https", "ws", "wss"].iter().any(|web| scheme.ends_with(web));
    let end = rest.find(['/', '?', '#']).filter(|_| is_web).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (before, host) = authority.rsplit_once('@')?;
    // It cannot be told whether this `@` is in a parameter, whose value may be a secret.
    if before.split_once('?').is_some_and(|(_, query)| query.contains('=')) {
        return Some(format!("{scheme}://***{}", &rest[rest.trim_end_matches(ends_url).len()..]));
    }
    Some(format!("{scheme}://***@{host}{path}"))
}

/// The name of a parameter, given as `name=value`, if its value is a secret.
pub fn secret_parameter(pair: &str) -> Option<&str> {
    let (name, _) = pair.split_once('=')?;
    (is_secret_parameter(name) || is_secret_name(name)).then_some(name)
}

fn ends_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '`' | '<' | '>')
}

/// A URL with its credentials, its secret parameters and what looks like a token in its path masked.
pub fn mask_url(url: &str) -> String {
    let url = without_credentials(url).unwrap_or_else(|| url.to_owned());
    let path_end = if url.contains("://") { url.len() } else { 0 };
    let (path, query) = url.split_at(url.find(['?', '#']).map_or(path_end, |at| at + 1));
    let masked = |part: &str, is_segment: bool| {
        let text = part.trim_end_matches(|c| ends_url(c) || matches!(c, '/' | '?' | '#' | '&'));
        let end = &part[text.len()..];
        match secret_parameter(text) {
            Some(name) => format!("{name}=***{end}"),
            None if is_segment && has_token(text) => format!("***{end}"),
            None => part.to_owned(),
        }
    };
    // The first three segments are the scheme and the host.
    let segments = path.split_inclusive('/').enumerate().map(|(at, part)| masked(part, at > 2));
    segments.chain(query.split_inclusive('&').map(|part| masked(part, false))).collect()
}

/// Whether a segment of a path, or an argument, looks like a token: a word that is long for a name and has a digit.
pub fn has_token(segment: &str) -> bool {
    let mut words = segment.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| word.len() >= 12 && word.bytes().any(|b| b.is_ascii_digit()))
}

/// A message with the URLs in it masked.
pub fn mask_urls(message: &str) -> String {
    message.split_inclusive(ends_url).map(mask_url).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_header_and_parameter_names_match_case_insensitively() {
        for name in
            ["Authorization", "api_password", "X-GitHub-Token", "x-gitlab-token", "Private-Token", "x-goog-api-key"]
        {
            assert!(is_secret_header(name.as_bytes()), "{name}");
        }
        for name in ["sig", "Signature", "code", "id_token", "refresh_token", "access_token", "X-Amz-Security-Token"] {
            assert!(is_secret_parameter(name), "{name}");
        }
        for name in ["content-type", "x-request-id", "author", "codec", "keyboard", "max_tokens"] {
            assert!(!is_secret_header(name.as_bytes()) && !is_secret_parameter(name), "{name}");
        }
    }

    #[test]
    fn names_that_look_secret_are_recognised() {
        for name in
            ["Authorization", "x-api-key", "X-Goog-Api-Key", "access_token", "clientSecret", "password", "key", "sig"]
        {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "max_tokens",
            "input_tokens",
            "Content-Type",
            "author",
            "keyboard",
            "prompt_tokens_details",
            "totalTokenCount",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn secrets_of_urls_in_a_message_are_masked() {
        for (message, masked) in [
            ("via: `http://u:p@ss@h:1` is no URL", "via: `http://***@h:1` is no URL"),
            ("via: `http://u:p&w'd@h:1` is no URL", "via: `http://***@h:1` is no URL"),
            ("\"wss://u@h/x@y\", http://h/a@b", "\"wss://***@h/x@y\", http://h/a@b"),
            ("store: postgres://u:p/w@h/d?sslkey=a.pem", "store: postgres://***@h/d?sslkey=a.pem"),
            ("postgres://u:p#w@h/d?sslkey=a.pem", "postgres://***@h/d?sslkey=a.pem"),
            ("redis://u:p?w@h/0 is away", "redis://***@h/0 is away"),
            ("redis://u:p?/#@w@h/0?password=s", "redis://***@h/0?password=***"),
            ("postgres://u:p?a=w@h/d postgres://h/d?password=a@b", "postgres://*** postgres://***"),
            ("https://h/x?mail=a@b https://u:p@h?mail=a@b", "https://h/x?mail=a@b https://***@h?mail=a@b"),
            ("no list at http://h/x?b=1&token=s&c=2 (404)", "no list at http://h/x?b=1&token=***&c=2 (404)"),
            ("http://h/v=1/x?tavilyApiKey=s/a'b#token=c&d", "http://h/v=1/x?tavilyApiKey=***&d"),
            ("http://h/v1/s/c0ffee12c0ffee/mcp?x", "http://h/v1/s/***/mcp?x"),
            ("\"http://h/2c4a3f86-0000-4000-8000-0123456789ab\"", "\"http://h/***\""),
            (
                "https://us-central1.a.test/v1/projects/my-project-123456/northamerica-northeast1?x=0123456789ab",
                "https://us-central1.a.test/v1/projects/my-project-123456/northamerica-northeast1?x=0123456789ab",
            ),
            (
                "http://0123456789ab.a.test/mcp /var/lib/0123456789ab/x",
                "http://0123456789ab.a.test/mcp /var/lib/0123456789ab/x",
            ),
            ("mail ann@a.test", "mail ann@a.test"),
        ] {
            assert_eq!(mask_urls(message), masked);
            assert_eq!(mask_urls(masked), masked);
        }
        assert_eq!(mask_url("redis://u:p w@h/0?password=a b"), "redis://***@h/0?password=***");
    }

    #[test]
    fn secret_name_lists_are_lowercase_and_without_duplicates() {
        for list in [&*SECRET_HEADERS, &*SECRET_PARAMETERS] {
            let mut all = list.to_vec();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), list.len());
            assert!(list.iter().all(|n| *n == n.to_ascii_lowercase()));
        }
    }
}
