//! Requests to endpoints of OAuth: forms and JSON, which are answered with JSON.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_types::percent::encoded;
use interflow_types::{Body, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Url};
use serde::Deserialize;
use serde_json::Value;

/// Bound on a response, in bytes.
const MAX_RESPONSE: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);
/// The error codes that are repeated (RFC 6749, section 5.2; RFC 7591, section 3.2.2; RFC 8707, section 2).
const CODES: &str = "access_denied invalid_client invalid_client_metadata invalid_grant invalid_request invalid_scope \
    invalid_target unauthorized_client unsupported_grant_type";
pub(crate) const INVALID_GRANT: &str = "invalid_grant";
pub(crate) const INVALID_CLIENT: &str = "invalid_client";

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
    /// It has no token that can be sent in a header field.
    pub fn parse(raw: &[u8]) -> Result<Self, String> {
        let none = "its response has no token";
        let response: Self = serde_json::from_slice(raw).map_err(|_| none)?;
        if response.access_token.is_empty() || !response.access_token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(none.to_owned());
        }
        match &response.token_type {
            Some(kind) if !kind.eq_ignore_ascii_case("bearer") => {
                Err("its token is no bearer token (token_type)".into())
            }
            _ => Ok(response),
        }
    }
}

/// The words of a list that is divided by spaces.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The known error code in a text.
pub(crate) fn known_code(text: &str) -> Option<&'static str> {
    CODES.split(' ').find(|code| *code == text)
}

/// Names and values as in a query or a form.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    fields.join("&")
}

/// How the gateway proves which client it is.
pub(crate) enum ClientProof<'a> {
    /// It does not: a public client.
    Name,
    BasicSecret(&'a str),
    PostedSecret(&'a str),
    Assertion(String),
}

/// A request with a form, of this client.
pub(crate) fn form_request(url: &Url, fields: &[(&str, &str)], client: &str, proof: &ClientProof<'_>) -> Request {
    let mut fields = fields.to_vec();
    if !matches!(proof, ClientProof::BasicSecret(_)) {
        fields.push(("client_id", client));
    }
    match proof {
        ClientProof::PostedSecret(secret) => fields.push(("client_secret", secret)),
        ClientProof::Assertion(assertion) => {
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            fields.extend([("client_assertion_type", kind), ("client_assertion", assertion)]);
        }
        ClientProof::Name | ClientProof::BasicSecret(_) => {}
    }
    let mut request = request(Method::POST, url, Some(("application/x-www-form-urlencoded", form(&fields))));
    if let ClientProof::BasicSecret(secret) = proof {
        // Both parts are encoded as in a form first (RFC 6749, section 2.3.1).
        let credentials = STANDARD.encode(format!("{}:{}", encoded(client), encoded(secret)));
        request.head.headers.append_unchecked(b"Authorization", format!("Basic {credentials}").as_bytes());
    }
    request
}

pub(crate) fn json_request(url: &Url, body: &Value) -> Request {
    request(Method::POST, url, Some(("application/json", body.to_string())))
}

fn request(method: Method, url: &Url, body: Option<(&str, String)>) -> Request {
    let mut headers = Headers::new();
    headers.append_unchecked(b"Accept", b"application/json");
    let body = body.map_or(Body::Empty, |(media_type, text)| {
        headers.append_unchecked(b"Content-Type", media_type.as_bytes());
        Body::from(Bytes::from(text))
    });
    let head = RequestHead { method, url: url.clone(), version: HttpVersion::Http11, headers, protocol: None };
    Request { head, body }
}

/// The body of a successful response.
///
/// # Errors
/// Why there is none. Nothing of the response but a known code is part of it: it may have secrets.
pub(crate) async fn response_of(client: &dyn HttpClient, request: Request) -> Result<Bytes, OAuthFailure> {
    let (status, raw) = answer_of(client, request).await?;
    if (200..300).contains(&status) {
        return Ok(raw);
    }
    let error = serde_json::from_slice::<Value>(&raw).ok();
    let code = error.as_ref().and_then(|error| known_code(error["error"].as_str()?));
    let text = code.map_or_else(|| format!("status {status}"), |code| format!("status {status}, {code}"));
    Err(OAuthFailure { code, text })
}

/// A document; `None` if there is none at this URL.
///
/// # Errors
/// Why that is not known.
pub(crate) async fn document(client: &dyn HttpClient, url: &Url) -> Result<Option<Value>, String> {
    let failed = |why: String| format!("{url}: {why}");
    match answer_of(client, request(Method::GET, url, None)).await.map_err(failed)? {
        (200, raw) => serde_json::from_slice(&raw).map(Some).map_err(|_| failed("invalid JSON".to_owned())),
        (400..500, _) => Ok(None),
        (status, _) => Err(failed(format!("status {status}"))),
    }
}

async fn answer_of(client: &dyn HttpClient, request: Request) -> Result<(u16, Bytes), String> {
    let answered = async {
        let response = client.send(request).await.map_err(|e| e.to_string())?;
        let status = response.head.status;
        match response.body.collect(MAX_RESPONSE).await {
            Ok((raw, _)) => Ok((status.as_u16(), raw)),
            // A refusal says enough by its status.
            Err(_) if !status.is_success() => Ok((status.as_u16(), Bytes::new())),
            Err(_) => Err("its response broke off, or is too long".to_owned()),
        }
    };
    tokio::time::timeout(TIMEOUT, answered).await.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
}
