//! The findings of `interflow doctor`, as the binary hands them to the API.

use std::sync::Arc;

use interflow_types::schema::JsonSchema;
use serde::Serialize;

#[derive(Debug, Serialize, JsonSchema)]
pub struct DoctorFinding {
    pub what: String,
    pub state: FindingState,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    Good,
    Notice,
    Bad,
}

/// Runs the diagnostics. May block: it is called on a blocking thread.
pub type DoctorFn = Arc<dyn Fn() -> Vec<DoctorFinding> + Send + Sync>;
