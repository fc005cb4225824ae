//! Requests to endpoints of OAuth: forms and JSON, which are answered with JSON.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_tasks::own_request::{self, FORM, form};
use interflow_types::percent::encoded;
use interflow_types::{HttpClient, Request, ResponseHead, Url};
use serde::Deserialize;
use serde_json::Value;

use super::client_key::ClientCredential;
use super::dpop::DpopKey;

/// Bound on a response, in bytes.
const MAX_RESPONSE: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);
/// The error codes that are repeated (RFC 6749, section 5.2; RFC 7591, section 3.2.2; RFC 8707, section 2; RFC 9449).
const CODES: &str = "access_denied invalid_client invalid_client_metadata invalid_dpop_proof invalid_grant invalid_request \
    invalid_scope invalid_target unauthorized_client unsupported_grant_type use_dpop_nonce";
pub(crate) const INVALID_GRANT: &str = "invalid_grant";
pub(crate) const INVALID_CLIENT: &str = "invalid_client";
/// The error of a proof without the nonce that is demanded.
const USE_NONCE: &str = "use_dpop_nonce";

/// Why an endpoint did not give what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct OAuthFailure {
    /// The code in its response, if it is a known one.
    pub code: Option<&'static str>,
    text: String,
}

impl From<String> for OAuthFailure {
    fn from(text: String) -> Self {
        Self { code: None, text }
    }
}

impl From<OAuthFailure> for String {
    fn from(failure: OAuthFailure) -> Self {
        failure.text
    }
}

/// The response of a token endpoint. It is a secret: nothing of it is part of an error.
#[derive(Deserialize)]
pub(crate) struct TokenResponse {
    pub access_token: String,
    token_type: Option<String>,
    /// Some servers write it as a text or with a fraction.
    #[serde(default)]
    expires_in: Value,
    pub refresh_token: Option<String>,
    pub id_token: Option<String>,
}

impl TokenResponse {
    /// How long the token is valid, in seconds.
    pub fn expires(&self) -> Option<u64> {
        let seconds = self.expires_in.as_str().map_or_else(|| self.expires_in.as_f64(), |text| text.parse().ok());
        seconds.filter(|seconds: &f64| *seconds >= 0.0).map(|seconds| seconds as u64)
    }

    /// # Errors
    /// It has no token that can be sent in a header field, or one of another type than asked for.
    pub fn parse(raw: &[u8], is_bound: bool) -> Result<Self, String> {
        let none = "its response has no token";
        let response: Self = serde_json::from_slice(raw).map_err(|_| none)?;
        if response.access_token.is_empty() || !response.access_token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(none.to_owned());
        }
        let token_type = if is_bound { "dpop" } else { "bearer" };
        let why = match is_bound {
            true => "its token is not bound to the key of the gateway: the gateway there needs DPoP turned on",
            false => "its token is no bearer token",
        };
        let has_type = response.token_type.as_deref().unwrap_or("bearer").eq_ignore_ascii_case(token_type);
        if has_type { Ok(response) } else { Err(format!("{why} (token_type)")) }
    }
}

/// The known error code in a text.
pub(crate) fn known_code(text: &str) -> Option<&'static str> {
    CODES.split(' ').find(|code| *code == text)
}

/// A request with a form, of the gateway as this client of this authorization server. A secret is in the header or in the
/// form.
///
/// # Errors
/// The private key does not sign.
pub(crate) fn form_request(
    url: &Url,
    fields: &[(&str, &str)],
    (client, audience): (&str, &str),
    credential: &ClientCredential,
    in_header: bool,
) -> Result<Request, String> {
    let (secret, assertion) = match credential {
        ClientCredential::Secret(secret) => (secret.as_str(), String::new()),
        ClientCredential::Key(key) => ("", key.assertion(client, audience)?),
    };
    let is_basic = in_header && !secret.is_empty();
    let kind = if assertion.is_empty() { "" } else { "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" };
    let own = [("client_id", client), ("client_secret", secret), ("client_assertion_type", kind)];
    let own = [&own[..], &[("client_assertion", assertion.as_str())]].concat();
    let own = own.into_iter().filter(|(_, value)| !is_basic && !value.is_empty());
    let text = form(&fields.iter().copied().chain(own).collect::<Vec<_>>());
    let mut request = own_request::post(url.clone(), FORM, text);
    if is_basic {
        // Both parts are encoded as in a form first (RFC 6749, section 2.3.1).
        let credentials = STANDARD.encode(format!("{}:{}", encoded(client), encoded(secret)));
        request.head.headers.append_unchecked(b"Authorization", format!("Basic {credentials}").as_bytes());
    }
    Ok(request)
}

/// The body of the successful response to a request. With a key for the tokens that are asked for, the request has a proof,
/// and is built and sent again, once, if the endpoint demands a nonce: an assertion in it is of use only once.
///
/// # Errors
/// Why there is none. Nothing of the response but a known code is part of it: it may have secrets.
pub(crate) async fn response_of(
    client: &dyn HttpClient,
    build: impl Fn() -> Result<Request, String>,
    key: Option<&DpopKey>,
) -> Result<Bytes, OAuthFailure> {
    let mut is_second = false;
    loop {
        let mut request = build()?;
        let sent = key.map(|key| key.prove(&mut request.head, None)).transpose().map_err(|e| e.to_string())?.flatten();
        let (head, raw) = answer_of(client, request).await?;
        let has_new_nonce = key.is_some_and(|key| key.keep_nonce(&head.headers, false, sent.as_deref()));
        if head.status.is_success() {
            return Ok(raw);
        }
        let error = serde_json::from_slice::<Value>(&raw).ok();
        let code = error.as_ref().and_then(|error| known_code(error["error"].as_str()?));
        if is_second || !has_new_nonce || code != Some(USE_NONCE) {
            let status = head.status.as_u16();
            let text = code.map_or_else(|| format!("status {status}"), |code| format!("status {status}, {code}"));
            return Err(OAuthFailure { code, text });
        }
        is_second = true;
    }
}

/// A document; `None` if there is none at this URL.
///
/// # Errors
/// Why that is not known.
pub(crate) async fn document(client: &dyn HttpClient, url: &Url) -> Result<Option<Value>, String> {
    let failed = |why: String| format!("{url}: {why}");
    let (head, raw) = answer_of(client, own_request::get(url.clone())).await.map_err(failed)?;
    match head.status.as_u16() {
        200 => serde_json::from_slice(&raw).map(Some).map_err(|_| failed("invalid JSON".to_owned())),
        400..500 => Ok(None),
        status => Err(failed(format!("status {status}"))),
    }
}

async fn answer_of(client: &dyn HttpClient, request: Request) -> Result<(ResponseHead, Bytes), String> {
    let answered = own_request::fetch(client, request, MAX_RESPONSE);
    tokio::time::timeout(TIMEOUT, answered).await.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
}
