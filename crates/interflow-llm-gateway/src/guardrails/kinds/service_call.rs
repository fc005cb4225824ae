//! Requests of guardrails to services: JSON posted, JSON returned.

use bytes::Bytes;
use interflow_types::{Body, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Url};
use serde_json::Value;

use crate::gateway::send_json;

/// Maximum size of an answer: 32 MiB.
pub(super) const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// Posts JSON. Nothing of request or answer is in the error: both may contain what a policy protects.
pub async fn post_json(egress: &dyn HttpClient, url: &Url, token: Option<&str>, body: &Value) -> Result<Value, String> {
    let mut headers = Headers::new();
    let mut add = |name: &str, value: &str| headers.append(name, value).map_err(|e| e.to_string());
    add("Content-Type", "application/json")?;
    add("Accept", "application/json")?;
    if let Some(token) = token {
        add("Authorization", &format!("Bearer {token}"))?;
    }
    let head =
        RequestHead { method: Method::POST, url: url.clone(), version: HttpVersion::Http11, headers, protocol: None };
    send_json(egress, Request { head, body: Body::from(Bytes::from(body.to_string())) }, MAX_RESPONSE_BYTES).await
}
