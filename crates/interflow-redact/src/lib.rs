//! Redaction: detectors, policies, strategies, the placeholder vault, and streaming redaction and restoration.
#![forbid(unsafe_code)]

mod additional_detectors;
mod byte_replacement;
mod check_digits;
mod config;
mod custom_rules;
mod decoded_body;
mod detect;
mod detector;
mod document;
mod encoded_text;
mod error;
mod escape_layers;
mod escaped_secret;
mod external_detectors;
mod finding_cache;
mod json;
mod kind;
mod lexicon;
mod model;
pub mod name_training;
mod normalized_text;
mod own_placeholders;
mod policy;
mod redactor;
mod restore;
pub mod scan_capacity;
mod secret_forms;
mod span_resolution;
mod stop_flag;
mod strategy;
mod stream;
mod token;
mod value_policy;
mod vault;

pub use additional_detectors::{AdditionalDetectors, AdditionalFindings};
pub use byte_replacement::{Replacer, ReplacingBody, replace_in_headers};
pub use config::{
    AddressRule, MAIN_POLICY, MediaRule, OutboundMode, RedactConfig, RedactMode, RedactRoute, UnknownRule,
};
pub use decoded_body::DecodedBody;
pub use detect::{FeatureContribution, Finding, NameEvidence};
pub use document::{DocumentExplanation, DocumentFormat, ExplainedReplacement};
pub use error::RedactError;
pub use external_detectors::{BackendConfig, BackendFailure, BackendKind, ExternalDetectors, ExternalFindings};
pub use finding_cache::FindingCache;
pub use json::{
    JsonEscape, JsonPart, JsonSpan, decode_lossy, escape_into, json_escape, json_parts, may_hold_json, string_values,
};
pub use kind::{Kind, KindSet};
pub use model::{EntityModel, ModelConfig, ModelFindings};
pub use own_placeholders::holds_placeholder;
pub use policy::{
    ConditionalFile, CryptoFile, DEFAULT_CONFIDENCE, FpeFile, KindFile, PatternFile, PatternValidator, Policy,
    PolicyFile, PolicyProblem, SectionFile, StrategyCondition, StrategyFile, TermsFile,
};
pub use redactor::{RedactionResult, RedactionSession, Redactor, Replacement};
pub use restore::PlaceholderRestorer;
pub use secret_forms::{encoded_forms, json_string};
pub use stop_flag::{StopFlag, StopOnDrop, is_stop_requested};
pub use stream::{EscapeLevel, StreamRedactor};
pub use value_policy::ValuePolicy;
pub use vault::{PlaceholderVault, VaultKey};
