//! What a server wants, by its refusal of a request (RFC 6750, section 3; RFC 9449, sections 7.1 and 9).

use interflow_types::Headers;
use serde::{Deserialize, Serialize};

/// Bound on the scopes that are asked for, in bytes.
const MAX_SCOPES: usize = 1000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Challenge {
    /// The URL of its metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// It takes tokens only that are bound to a key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_proof: bool,
}

impl Challenge {
    /// What the challenges of a response say, with their error. There may be one for tokens of each kind.
    pub fn of(headers: &Headers) -> (Self, Option<String>) {
        let fields: Vec<_> = headers.get_all("www-authenticate").filter_map(|f| std::str::from_utf8(f).ok()).collect();
        let is_of = |field: &str, scheme| {
            // Without escapes, each second part is a quoted text.
            let field = field.replace(r"\\", "").replace(r#"\""#, "");
            let mut words = field.split('"').step_by(2).flat_map(|part| part.split([' ', ',']));
            words.any(|word| word.eq_ignore_ascii_case(scheme))
        };
        let of_scheme = |scheme| fields.iter().copied().find(|field| is_of(field, scheme));
        let (bearer, dpop) = (of_scheme("bearer"), of_scheme("dpop"));
        let value = |name: &str| [bearer, dpop].into_iter().flatten().find_map(|field| parameter(field, name));
        let short = |name: &str| value(name).filter(|value| value.len() <= MAX_SCOPES);
        let (metadata, scopes) = (short("resource_metadata"), words(&short("scope").unwrap_or_default()));
        (Self { metadata, scopes, needs_proof: bearer.is_none() && dpop.is_some() }, value("error"))
    }
}

/// The words of a list that is divided by spaces.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// A parameter of a challenge (RFC 9110, section 11.2).
fn parameter(field: &str, name: &str) -> Option<String> {
    let mut rest = field;
    loop {
        let (before, after) = rest.split_once('=')?;
        let own = before.rsplit([',', ' ']).next().unwrap_or_default();
        let (value, end) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find([',', ' ']).unwrap_or(after.len())),
        };
        if own.eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[&str]) -> (Challenge, Option<String>) {
        let mut headers = Headers::new();
        fields.iter().for_each(|field| headers.append_unchecked(b"WWW-Authenticate", field.as_bytes()));
        Challenge::of(&headers)
    }

    #[test]
    fn a_challenge_is_read_whatever_the_order_of_its_parameters() {
        let field = r#"Bearer realm="a, scope=x", error="insufficient_scope", scope="a b", resource_metadata="https://s.test/m""#;
        let challenge = Challenge {
            metadata: Some("https://s.test/m".into()),
            scopes: vec!["a".into(), "b".into()],
            needs_proof: false,
        };
        assert_eq!(read(&["Basic realm=\"x\"", field]), (challenge, Some("insufficient_scope".into())));
        assert_eq!(read(&["bearer scope=a"]).0.scopes, ["a"]);
        for field in ["", "Basic scope=\"a\"", "Bearer", "Bearer scope", r#"Bearer scope="a"#, "=", "Bearer x_scope=a"]
        {
            assert_eq!(read(&[field]), (Challenge::default(), None), "{field}");
        }
    }

    #[test]
    fn a_proof_is_needed_only_where_no_other_token_is_taken() {
        let dpop = r#"DPoP error="use_dpop_nonce", algs="ES256", resource_metadata="https://bearer.test/m""#;
        let (challenge, error) = read(&[dpop]);
        assert!(challenge.needs_proof && challenge.metadata.as_deref() == Some("https://bearer.test/m"));
        assert_eq!(error.as_deref(), Some("use_dpop_nonce"));
        for both in [&[dpop, "Bearer"][..], &["Bearer", dpop], &["DPoP algs=\"ES256\", Bearer scope=\"a\""]] {
            assert!(!read(both).0.needs_proof, "{both:?}");
        }
        for quoted in
            [r#"DPoP error_description="not a Bearer token""#, r#"DPoP realm="a \", Bearer \\", algs="ES256""#]
        {
            assert!(read(&[quoted]).0.needs_proof, "{quoted}");
        }
        // What one of several challenges says is found.
        let (challenge, error) = read(&["Bearer", r#"DPoP error="insufficient_scope", scope="a""#]);
        assert_eq!((error.as_deref(), challenge.scopes), (Some("insufficient_scope"), vec!["a".to_owned()]));
    }
}
