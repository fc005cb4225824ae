//! Requests of guardrails to services: JSON posted, JSON returned.

use interflow_tasks::own_request;
use interflow_types::{HttpClient, Url};
use serde_json::Value;

use crate::gateway::send_json;

/// Maximum size of an answer: 32 MiB.
pub(super) const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// Posts JSON. Nothing of request or answer is in the error: both may contain what a policy protects.
pub async fn post_json(egress: &dyn HttpClient, url: &Url, token: Option<&str>, body: &Value) -> Result<Value, String> {
    let mut request = own_request::post(url.clone(), "application/json", body.to_string());
    own_request::authorize(&mut request.head.headers, token)?;
    send_json(egress, request, MAX_RESPONSE_BYTES).await
}
