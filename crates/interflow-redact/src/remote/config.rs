//! The configuration of an external detector.

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::{RedactError, Result};

config_sections! {
    /// An external PII detector that is called in addition to the built-in detectors.
    pub struct BackendConfig {
        /// The type of service.
        pub kind: BackendKind = BackendKind::Philter,
        /// Its URL: `https://host:port`, with a path if it differs from the default. Calls to it are not recorded.
        pub url: String,
        /// The bearer token: `env:NAME` or `file:PATH`.
        pub token: Option<String>,
        /// Time limit for one text.
        pub timeout: HumanDuration = HumanDuration::from_secs(5),
        /// Time limit for all texts of a request together.
        pub request_timeout: HumanDuration = HumanDuration::from_secs(30),
        /// After this many failures in a row, the service is not asked for `breaker_pause`, and counts as failed; 0 means that
        /// it is always asked.
        pub breaker_failures: u32 = 5,
        /// How long a service that fails is not asked; then one text probes it.
        pub breaker_pause: HumanDuration = HumanDuration::from_secs(10),
        /// What happens when it does not reply in time, or replies with an error.
        pub failure: BackendFailure = BackendFailure::Closed,
        /// Minimum confidence in percent.
        #[schemars(range(max = 100))]
        pub confidence: u8 = 50,
        /// Philter: the policy to apply.
        pub policy: String = "default".into(),
        /// Philter: the context.
        pub context: String,
        /// Presidio: the language of the texts.
        pub language: String = "en".into(),
        /// GLiNER and Ph-Eye: the labels to detect. Presidio: the entities, all if empty.
        pub labels: Vec<String> = vec!["person".into()],
        /// GLiNER and Ph-Eye: maximum number of characters per call; longer texts are split into overlapping windows, so
        /// that names beyond the model's context are found too.
        pub window: usize = 1_200,
        /// Overlap of two windows in characters.
        pub overlap: usize = 200,
    }
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
