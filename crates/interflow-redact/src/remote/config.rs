//! The configuration of an external detector.

use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::{RedactError, Result};

/// An external PII detector that is called in addition to the built-in detectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackendConfig {
    /// The type of service.
    pub kind: BackendKind,
    /// Its URL: `https://host:port`, with a path if it differs from the default. Calls to it are not recorded.
    pub url: String,
    /// The bearer token: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Time limit for one text.
    pub timeout: HumanDuration,
    /// Time limit for all texts of a request together.
    pub request_timeout: HumanDuration,
    /// After this many failures in a row, the service is not asked for `breaker_pause`, and counts as failed; 0 means that
    /// it is always asked.
    pub breaker_failures: u32,
    /// How long a service that fails is not asked; then one text probes it.
    pub breaker_pause: HumanDuration,
    /// What happens when it does not reply in time, or replies with an error.
    pub failure: BackendFailure,
    /// Minimum confidence in percent.
    #[schemars(range(max = 100))]
    pub confidence: u8,
    /// Philter: the policy to apply.
    pub policy: String,
    /// Philter: the context.
    pub context: String,
    /// Presidio: the language of the texts.
    pub language: String,
    /// GLiNER and Ph-Eye: the labels to detect. Presidio: the entities, all if empty.
    pub labels: Vec<String>,
    /// GLiNER and Ph-Eye: maximum number of characters per call; longer texts are split into overlapping windows, so
    /// that names beyond the model's context are found too.
    pub window: usize,
    /// Overlap of two windows in characters.
    pub overlap: usize,
}

/// The type of an external detector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A Philter server: `POST /api/explain`.
    #[default]
    Philter,
    /// Presidio's analyzer: `POST /analyze`.
    Presidio,
    /// A GLiNER or Ph-Eye service: `POST /find`.
    Gliner,
}

/// What happens when a service fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendFailure {
    /// The request is rejected.
    #[default]
    Closed,
    /// The request is sent with the findings of the built-in detectors only; a warning is logged.
    Open,
}

impl BackendFailure {
    /// An error, or a warning that names the key which says so.
    pub(crate) fn handle(self, what: String, key: &str) -> Result<()> {
        match self {
            Self::Closed => Err(RedactError::Backend(what)),
            Self::Open => {
                tracing::warn!("{what}; the request goes on without it, as {key} = \"open\" says");
                Ok(())
            }
        }
    }
}

impl Default for BackendConfig {
    fn default() -> Self {
        Self {
            kind: BackendKind::Philter,
            url: String::new(),
            token: None,
            timeout: HumanDuration::from_secs(5),
            request_timeout: HumanDuration::from_secs(30),
            breaker_failures: 5,
            breaker_pause: HumanDuration::from_secs(10),
            failure: BackendFailure::Closed,
            confidence: 50,
            policy: "default".into(),
            context: String::new(),
            language: "en".into(),
            labels: vec!["person".into()],
            window: 1_200,
            overlap: 200,
        }
    }
}
