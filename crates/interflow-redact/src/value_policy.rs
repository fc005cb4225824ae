//! The passes over single values, for an API whose requests are not read as those of a model: redaction, then guardrails.

use std::sync::Arc;

use interflow_types::{BoxFuture, Flow, RequestHead};
use serde_json::{Map, Value};

use crate::{AdditionalDetectors, RedactMode, Redactor};

/// How the values of one request are inspected.
#[derive(Clone)]
pub struct ValuePolicy {
    pub mode: RedactMode,
    pub redactor: Arc<Redactor>,
    pub detectors: AdditionalDetectors,
    /// Whether originals are restored in responses.
    pub restore: bool,
    /// The context that conditions of the policy may test.
    pub context: String,
    /// The largest value that is inspected, in bytes (`redact.max_body`).
    pub max_size: usize,
    /// What checks them once they are redacted: it sees what services and the recorder get.
    pub guard: Option<Arc<dyn ValueGuard>>,
}

/// Checks the redacted values of one call.
pub trait ValueGuard: Send + Sync {
    /// Checks arguments, and returns them with what is masked. May wait for a person. `Err` says why the call is refused.
    fn check_arguments<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a RequestHead,
        json: String,
    ) -> BoxFuture<'a, Result<String, String>>;

    /// Checks a result, and returns it with what is masked. `Err` says why the client does not get it.
    fn check_result(&self, json: String) -> BoxFuture<'_, Result<String, String>>;
}

/// The members of a part of an MCP result that hold a medium in Base64: the `data` of image and audio content, the `blob` of
/// a resource.
pub fn media_members(part: &Map<String, Value>) -> impl Iterator<Item = &'static str> + use<> {
    let is_medium = matches!(part.get("type").and_then(Value::as_str), Some("image" | "audio"));
    let is_resource = part.contains_key("uri");
    is_medium.then_some("data").into_iter().chain(is_resource.then_some("blob"))
}
