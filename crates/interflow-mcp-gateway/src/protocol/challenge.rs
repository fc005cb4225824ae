//! What a server wants, by its refusal of a request (RFC 6750, section 3; RFC 9449, sections 7.1 and 9).

use interflow_types::Headers;
use serde::{Deserialize, Serialize};

/// Bound on the scopes that are asked for, in bytes.
const MAX_SCOPES: usize = 1000;
/// The error of a proof without the nonce that is demanded.
pub(crate) const USE_NONCE: &str = "use_dpop_nonce";

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
    /// The challenge of a response, with its error.
    pub fn of(headers: &Headers) -> (Self, Option<String>) {
        let fields: Vec<_> = headers.get_all("www-authenticate").filter_map(|f| std::str::from_utf8(f).ok()).collect();
        let is_of = |field: &str, scheme| field.split([' ', ',']).any(|word| word.eq_ignore_ascii_case(scheme));
        let of_scheme = |scheme| fields.iter().copied().find(|field| is_of(field, scheme));
        let bearer = of_scheme("bearer");
        let field = bearer.or_else(|| of_scheme("dpop")).unwrap_or_default();
        let short = |name: &str| parameter(field, name).filter(|value| value.len() <= MAX_SCOPES);
        let challenge = Self {
            metadata: short("resource_metadata"),
            scopes: words(&short("scope").unwrap_or_default()),
            needs_proof: bearer.is_none() && !field.is_empty(),
        };
        (challenge, parameter(field, "error"))
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
    }
}
