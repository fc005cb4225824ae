//! Requests of guardrails to services: JSON posted, JSON returned.

use bytes::Bytes;
use interflow_types::{Body, CollectError, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Url};
use serde_json::Value;

/// Maximum size of an answer: 32 MiB.
const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// Posts JSON. Nothing of request or answer is in the error: both may contain what a policy protects.
pub(super) async fn post_json(
    egress: &dyn HttpClient,
    url: &Url,
    token: Option<&str>,
    body: &Value,
) -> Result<Value, String> {
    let mut headers = Headers::new();
    let mut add = |name: &str, value: &str| headers.append(name, value).map_err(|e| e.to_string());
    add("Content-Type", "application/json")?;
    add("Accept", "application/json")?;
    if let Some(token) = token {
        add("Authorization", &format!("Bearer {token}"))?;
    }
    let head =
        RequestHead { method: Method::POST, url: url.clone(), version: HttpVersion::Http11, headers, protocol: None };
    send(egress, Request { head, body: Body::from(Bytes::from(body.to_string())) }).await
}

/// Sends a request and reads the JSON of its answer.
pub(super) async fn send(egress: &dyn HttpClient, request: Request) -> Result<Value, String> {
    let answer = egress.send(request).await.map_err(|e| e.to_string())?;
    let status = answer.head.status;
    if !status.is_success() {
        return Err(format!("it answered with status {}", status.as_u16()));
    }
    let bytes = match answer.body.collect(MAX_RESPONSE_BYTES).await {
        Ok((bytes, _)) => bytes,
        Err(CollectError::TooLarge(_)) => return Err(format!("its answer is larger than {MAX_RESPONSE_BYTES} bytes")),
        Err(CollectError::Broken(e)) => return Err(e.to_string()),
    };
    serde_json::from_slice(&bytes).map_err(|_| "its answer is not JSON".to_owned())
}
