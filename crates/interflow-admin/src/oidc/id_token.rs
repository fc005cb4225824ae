//! The checks of an ID token (OpenID Connect Core 1.0, section 3.1.3.7): signature, issuer, audience, times and nonce.

use std::time::Duration;

use interflow_types::Timestamp;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{LoginError, Result};

/// Signatures with a key pair. With `none` or a shared secret, others than the issuer could make tokens.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// Bound on a token, in bytes.
const MAX_TOKEN: usize = 64 << 10;
/// Bound on the groups that are read.
const MAX_GROUPS: usize = 2000;

/// What a token is checked against.
pub(super) struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
    pub leeway: Duration,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Claims {
    pub sub: String,
    pub iat: u64,
    pub nonce: Option<String>,
    azp: Option<String>,
    aud: Audience,
    #[serde(flatten)]
    pub all: Map<String, Value>,
}

/// One client, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// The id of the key that a token is signed with.
pub(super) fn key_id(token: &str) -> Result<Option<String>> {
    if token.len() > MAX_TOKEN {
        return Err(refused("it is too long", "ask the issuer for fewer claims: admin.oidc.scopes"));
    }
    checked_header(token).map(|header| header.kid)
}

/// The header of a token that can be checked: it is signed with a key pair, and needs no extension to be understood.
pub(super) fn checked_header(token: &str) -> Result<Header> {
    let header = decode_header(token).ok().filter(|header| ALGORITHMS.contains(&header.alg)).ok_or_else(unsupported)?;
    // No extension is known here, so there is none that may be critical (RFC 7515 section 4.1.11).
    if header.crit.is_some() {
        let why = "its header has critical extensions, which are not supported (crit)";
        return Err(refused(why, "have the issuer leave `crit` out of tokens for this client"));
    }
    Ok(header)
}

/// Whether a key verifies the signature of a token, whatever its claims.
pub(super) fn is_signed_by(token: &str, key: &Jwk) -> bool {
    let Ok(header) = checked_header(token) else { return false };
    let Ok(decoding) = DecodingKey::from_jwk(key) else { return false };
    let mut validation = Validation::new(header.alg);
    (validation.validate_exp, validation.validate_aud) = (false, false);
    validation.set_required_spec_claims::<&str>(&[]);
    decode::<Map<String, Value>>(token, &decoding, &validation).is_ok()
}

/// What the claims of a token of this issuer for this audience are checked for, whatever it is used for.
pub(super) fn validation(algorithm: Algorithm, issuer: &str, audience: &str, leeway: Duration) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.leeway = leeway.as_secs();
    validation.validate_nbf = true;
    validation.set_issuer(&[issuer]);
    validation.set_audience(&[audience]);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    validation
}

fn unsupported() -> LoginError {
    refused("it is not signed with a key pair", "set the client's ID token signature to RS256 or ES256 at the issuer")
}

fn refused(why: &str, remedy: &str) -> LoginError {
    LoginError::issuer(format!("the token is refused: {why}"), remedy)
}

pub(super) fn check(token: &str, key: &Jwk, expected: &Expected<'_>) -> Result<Claims> {
    let header = checked_header(token)?;
    let bad_key = |_| refused("its key cannot be used", "check the keys at the issuer's jwks_uri");
    let decoding = DecodingKey::from_jwk(key).map_err(bad_key)?;
    let validation = validation(header.alg, expected.issuer, expected.client_id, expected.leeway);
    let claims = decode::<Claims>(token, &decoding, &validation).map_err(|e| explain(&e, expected))?.claims;
    check_claims(&claims, expected)?;
    Ok(claims)
}

fn check_claims(claims: &Claims, expected: &Expected<'_>) -> Result<()> {
    // A token for several clients names the one that asked for it.
    let is_shared = claims.aud.names().len() > 1;
    if claims.azp.as_deref().map_or(is_shared, |azp| azp != expected.client_id) {
        return Err(wrong_audience(expected));
    }
    if claims.nonce.as_deref() != Some(expected.nonce) {
        return Err(refused("it belongs to another login (nonce)", "log in again"));
    }
    if claims.iat > Timestamp::now().secs().saturating_add(expected.leeway.as_secs()) {
        return Err(wrong_clock("it was issued in the future", expected));
    }
    Ok(())
}

fn wrong_audience(expected: &Expected<'_>) -> LoginError {
    let why = format!("it is for another client than `{}` (aud, azp)", expected.client_id);
    refused(&why, "set admin.oidc.client_id to the id under which Interflow is registered at the issuer")
}

fn wrong_clock(why: &str, expected: &Expected<'_>) -> LoginError {
    let seconds = expected.leeway.as_secs();
    let why = format!("{why}, by the clock of this machine with {seconds} s of leeway");
    refused(&why, "set the clocks of this machine and of the issuer (NTP), or raise admin.oidc.clock_leeway")
}

fn explain(error: &jsonwebtoken::errors::Error, expected: &Expected<'_>) -> LoginError {
    match error.kind() {
        ErrorKind::InvalidAudience => wrong_audience(expected),
        ErrorKind::InvalidIssuer => {
            let why = format!("its issuer is not {}", expected.issuer);
            refused(&why, "set admin.oidc.issuer as the issuer names itself")
        }
        ErrorKind::ExpiredSignature => wrong_clock("it has expired", expected),
        ErrorKind::ImmatureSignature => wrong_clock("it is not valid yet", expected),
        ErrorKind::InvalidSignature => refused("its signature is wrong", "log in again; check the keys of the issuer"),
        ErrorKind::MissingRequiredClaim(claim) => {
            refused(&format!("it has no claim `{claim}`"), "check the client's configuration at the issuer")
        }
        _ => refused("it cannot be read", "check the client's configuration at the issuer"),
    }
}

/// The groups in a claim: a list of texts, or one text. A name that is not a claim leads into objects with its dots.
pub(super) fn groups(claims: &Map<String, Value>, name: &str) -> Option<Vec<String>> {
    let claim = claims.get(name).or_else(|| {
        let mut parts = name.split('.');
        let first = claims.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    })?;
    match claim {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(list) => Some(list.iter().filter_map(Value::as_str).take(MAX_GROUPS).map(str::to_owned).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_are_a_list_or_a_text_also_inside_objects() {
        let claims = json!({
            "groups": ["a", 3, "b"], "role": "ops", "realm_access": {"roles": ["x"]}, "https://x.test/groups": ["ns"], "n": 1
        });
        let claims = claims.as_object().unwrap();
        for (name, found) in [
            ("groups", Some(vec!["a", "b"])),
            ("role", Some(vec!["ops"])),
            ("realm_access.roles", Some(vec!["x"])),
            ("https://x.test/groups", Some(vec!["ns"])),
            ("n", None),
            ("none", None),
            ("realm_access.none", None),
        ] {
            let found = found.map(|f| f.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(groups(claims, name), found, "{name}");
        }
    }
}
