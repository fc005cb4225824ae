//! How single values are redacted, for an API whose requests are not read as those of a model.

use std::sync::Arc;

use crate::{AdditionalDetectors, RedactMode, Redactor};

/// How the values of one request are redacted.
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
}
