//! The configuration of a service that is asked for a second opinion.

use interflow_types::units::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A service that is asked what it finds, beside the built-in detectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackendConfig {
    /// What it is.
    pub kind: BackendKind,
    /// Where it is: `https://host:port`, with a path when it is not the usual one. Calls to it are not recorded.
    pub url: String,
    /// What is sent as bearer: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How long it may take for one text.
    pub timeout: HumanDuration,
    /// What happens when it does not answer in time, or not as it should.
    pub failure: BackendFailure,
    /// How sure it must be, in percent.
    #[schemars(range(max = 100))]
    pub confidence: u8,
    /// Philter: the policy that it applies.
    pub policy: String,
    /// Philter: the context.
    pub context: String,
    /// Presidio: the language of the texts.
    pub language: String,
    /// GLiNER and Ph-Eye: what is looked for. Presidio: the entities, all when empty.
    pub labels: Vec<String>,
    /// GLiNER and Ph-Eye: the longest piece, in characters, that is asked about at once; longer texts go in overlapping
    /// windows, so that names behind the model's reach are found too.
    pub window: usize,
    /// How many characters two windows share.
    pub overlap: usize,
}

/// What a service is.
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
    /// The request is refused.
    #[default]
    Closed,
    /// The request goes on with what the built-in detectors found; a warning is logged.
    Open,
}

impl Default for BackendConfig {
    fn default() -> Self {
        Self {
            kind: BackendKind::Philter,
            url: String::new(),
            token: None,
            timeout: HumanDuration::from_secs(5),
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
