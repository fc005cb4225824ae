//! The names whose values are secrets: header fields, and parameters of queries and forms. Recordings, logs, `Debug`,
//! the admin API's `/config` and output for agents are all masked by this list.

/// Header fields whose values are secrets, in lower case.
pub const SECRET_HEADERS: [&str; 39] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "api-key",
    "apikey",
    "private-token",
    "job-token",
    "deploy-token",
    "dpop",
    "ocp-apim-subscription-key",
    "x-access-token",
    "x-amz-security-token",
    "x-api-key",
    "x-api-token",
    "x-apikey",
    "x-auth-key",
    "x-auth-token",
    "x-aws-ec2-metadata-token",
    "x-client-secret",
    "x-csrf-token",
    "x-forwarded-access-token",
    "x-functions-key",
    "x-github-token",
    "x-gitlab-token",
    "x-goog-api-key",
    "x-goog-iam-authorization-token",
    "x-goog-iap-jwt-assertion",
    "x-amzn-oidc-data",
    "x-amzn-oidc-accesstoken",
    "x-id-token",
    "x-interflow-key",
    "x-ms-token-aad-access-token",
    "x-ms-token-aad-id-token",
    "x-refresh-token",
    "x-secret-key",
    "x-session-token",
    "x-vault-token",
    "x-xsrf-token",
];

/// Query and form parameters whose values are secrets, in lower case.
pub const SECRET_PARAMETERS: [&str; 36] = [
    "access_key",
    "access_token",
    "api_key",
    "api_password",
    "api_token",
    "apikey",
    "assertion",
    "auth",
    "auth_token",
    "authorization",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "id_token",
    "jwt",
    "key",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "pwd",
    "refresh_token",
    "samlresponse",
    "secret",
    "secret_key",
    "security_token",
    "session_token",
    "sig",
    "signature",
    "subject_token",
    "subscription-key",
    "token",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
];

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
        for list in [&SECRET_HEADERS[..], &SECRET_PARAMETERS[..]] {
            let mut all = list.to_vec();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), list.len());
            assert!(list.iter().all(|n| *n == n.to_ascii_lowercase()));
        }
    }
}
