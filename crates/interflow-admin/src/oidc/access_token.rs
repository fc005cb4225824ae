//! Access tokens of an issuer for a service of this instance: JWTs (RFC 9068), checked with the issuer's keys.

use std::sync::Arc;
use std::time::Duration;

use interflow_mcp_gateway::{AccessIdentity, AccessRefusal, AccessTokens};
use interflow_types::{BoxFuture, HttpClient, Timestamp};
use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{DecodingKey, decode};
use serde::Deserialize;
use serde_json::Value;

use super::id_token::{checked_header, validation};
use super::provider::{KeyError, Provider, check_url};

/// Time limit for a response of the issuer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Tolerance for the clocks of both machines.
const LEEWAY: Duration = Duration::from_secs(60);
/// Bound on `sub`, in bytes.
const MAX_SUBJECT: usize = 255;
/// Media types of tokens that may be access tokens; many issuers do not use the one of RFC 9068.
const TYPES: [&str; 3] = ["at+jwt", "application/at+jwt", "jwt"];

/// Checks access tokens of one issuer for one audience.
pub struct AccessTokenChecker {
    provider: Provider,
    issuer: String,
    audience: String,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// Texts separated by spaces, or a list.
    scope: Option<Value>,
    scp: Option<Value>,
    nonce: Option<Value>,
    at_hash: Option<Value>,
    /// What the client has to prove besides (RFC 7800).
    cnf: Option<Value>,
}

impl AccessTokenChecker {
    /// # Errors
    /// The issuer is not a URL with TLS.
    pub fn new(issuer: &str, audience: &str, http: Arc<dyn HttpClient>) -> Result<Self, String> {
        check_url(issuer).map_err(|e| e.message)?;
        let provider = Provider::new(issuer, TIMEOUT, http);
        Ok(Self { provider, issuer: issuer.to_owned(), audience: audience.to_owned() })
    }

    async fn checked(&self, token: &str) -> Result<AccessIdentity, AccessRefusal> {
        // In words that tell a stranger nothing.
        let refused = |why: &str| AccessRefusal::InvalidToken(why.to_owned());
        let key = self.provider.key_for(token).await.map_err(|e| match e {
            KeyError::Token(e) => {
                tracing::warn!(error = e.message, "cannot check an access token");
                refused("no key of the issuer verifies it")
            }
            KeyError::Unavailable(e) => {
                tracing::warn!(issuer = %self.issuer, error = e.message, "cannot check access tokens");
                // No key would make it valid.
                if has_expired(token) { refused("it has expired") } else { AccessRefusal::IssuerUnavailable }
            }
        })?;
        self.check_with(token, &key).map_err(refused)
    }

    fn check_with(&self, token: &str, key: &Jwk) -> Result<AccessIdentity, &'static str> {
        let header = checked_header(token).map_err(|_| "its header is not supported")?;
        if !header.typ.as_deref().is_none_or(|typ| TYPES.iter().any(|t| typ.eq_ignore_ascii_case(t))) {
            return Err("its type is not that of an access token");
        }
        let decoding = DecodingKey::from_jwk(key).map_err(|_| "no key of the issuer verifies it")?;
        let validation = validation(header.alg, &self.issuer, &self.audience, LEEWAY);
        let claims = decode::<Claims>(token, &decoding, &validation).map_err(|e| explain(e.kind()))?.claims;
        if claims.nonce.is_some() || claims.at_hash.is_some() {
            return Err("it is an ID token");
        }
        if claims.cnf.is_some() {
            return Err("it is bound to a key or certificate of the client (cnf), and proofs are not checked here");
        }
        if claims.sub.is_empty() || claims.sub.len() > MAX_SUBJECT {
            return Err("its subject is empty or too long");
        }
        let scopes = [claims.scope, claims.scp].into_iter().flatten().flat_map(|value| match value {
            Value::String(text) => text.split(' ').filter(|s| !s.is_empty()).map(str::to_owned).collect(),
            Value::Array(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        Ok(AccessIdentity { subject: claims.sub, scopes: scopes.collect() })
    }
}

impl AccessTokens for AccessTokenChecker {
    fn check<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<AccessIdentity, AccessRefusal>> {
        Box::pin(self.checked(token))
    }
}

/// Whether a token says of itself that it has expired, or cannot be read; nothing else of it may be believed here.
fn has_expired(token: &str) -> bool {
    let expiry = insecure_decode_claims::<Value>(token).ok().and_then(|claims| claims["exp"].as_f64());
    let earliest = Timestamp::now().secs().saturating_sub(LEEWAY.as_secs());
    expiry.is_none_or(|expiry| expiry < earliest as f64)
}

const fn explain(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::InvalidAudience => "it is for another service (aud)",
        ErrorKind::InvalidIssuer => "it is of another issuer",
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidSignature => "no key of the issuer verifies it",
        ErrorKind::MissingRequiredClaim(_) => "it lacks a claim that is required",
        _ => "it cannot be read",
    }
}
