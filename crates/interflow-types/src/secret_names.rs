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

/// A URL with its credentials masked; `None` if it has none.
pub fn without_credentials(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    // The last `@` separates the host: a password may contain one.
    let (_, host) = authority.rsplit_once('@')?;
    Some(format!("{scheme}://***@{host}{path}"))
}

/// A message with the credentials and secret parameters of the URLs in it masked.
pub fn mask_urls(message: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '`' | '\'' | '<' | '>' | '&');
    let word = |word: &str| {
        let word = without_credentials(word).unwrap_or_else(|| word.to_owned());
        let Some((name, value)) = word.split_once('=') else { return word };
        let is_secret = is_secret_parameter(name.rsplit('?').next().unwrap_or(name));
        let end = value.strip_suffix(is_end).map_or("", |start| &value[start.len()..]);
        if is_secret { format!("{name}=***{end}") } else { word }
    };
    message.split_inclusive(is_end).map(word).collect()
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
    fn credentials_of_urls_in_a_message_are_masked() {
        for (message, masked) in [
            ("via: `http://u:p@ss@h:1` is no URL", "via: `http://***@h:1` is no URL"),
            ("\"socks5://u@h/x@y\", http://h/a@b", "\"socks5://***@h/x@y\", http://h/a@b"),
            ("no list at http://h/x?b=1&token=s&c=2 (404)", "no list at http://h/x?b=1&token=***&c=2 (404)"),
            ("mail ann@a.test", "mail ann@a.test"),
        ] {
            assert_eq!(mask_urls(message), masked);
        }
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
