//! The findings of `interflow doctor`, as the binary hands them to the API.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

/// The result of one check.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DoctorFinding {
    /// Subject of the check.
    pub what: String,
    pub state: FindingState,
    /// Observation and remedy.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    Good,
    Notice,
    Bad,
}

/// Runs diagnostics.
pub type DoctorFn = Arc<dyn Fn() -> Vec<DoctorFinding> + Send + Sync>;
