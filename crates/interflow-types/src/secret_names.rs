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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_header_and_parameter_names_match_case_insensitively() {
        for name in ["Authorization", "X-GitHub-Token", "x-gitlab-token", "Private-Token", "x-goog-api-key"] {
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
