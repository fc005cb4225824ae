//! Redaction: detectors, policies, strategies, the placeholder vault, and streaming redaction and restoration.
#![forbid(unsafe_code)]

mod additional_detectors;
mod bound_secrets;
mod config;
mod detect;
mod error;
mod kind;
mod lexicon;
mod model;
pub mod name_training;
mod policy;
mod remote;
mod scan;
mod strategy;
mod text;
mod value_policy;
mod vault;
mod word_lists;

pub use additional_detectors::{AdditionalDetectors, SharedSession};
pub use bound_secrets::byte_replacement::{Replacer, ReplacingBody, replace_in_headers};
pub use bound_secrets::secret_forms::{encoded_forms, json_string};
pub use config::{
    AddressRule, MAIN_POLICY, MediaRule, OutboundMode, RedactConfig, RedactMode, RedactRoute, UnknownRule,
};
pub use detect::{FeatureContribution, Finding, NameEvidence};
pub use error::{RedactError, Result};
pub use kind::{Kind, KindSet};
pub use model::{EntityModel, ModelConfig, ModelFindings};
pub use policy::{
    ConditionalFile, CryptoFile, DEFAULT_CONFIDENCE, FpeFile, KindFile, PatternFile, PatternValidator, Policy,
    PolicyFile, PolicyProblem, SectionFile, StrategyCondition, StrategyFile, TermsFile,
};
pub use remote::{BackendConfig, BackendFailure, BackendKind, ExternalDetectors, ExternalFindings};
pub use scan::document::{DocumentExplanation, DocumentFormat, ExplainedReplacement};
pub use scan::finding_cache::FindingCache;
pub use scan::redactor::{RedactionResult, RedactionSession, Redactor, Replacement};
pub use scan::scan_capacity;
pub use scan::stop_flag::{StopFlag, StopOnDrop, is_stop_requested};
pub use scan::stream::{EscapeLevel, StreamRedactor};
pub use text::appearance::{NormalizedText, looks_of};
pub use text::decoded_body::DecodedBody;
pub use text::json::{
    JsonEscape, JsonPart, JsonSpan, decode_lossy, escape_into, escaped, json_escape, json_parts, may_hold_json,
    string_values,
};
pub use value_policy::{ValueGuard, ValuePolicy, media_members};
pub use vault::own_placeholders::holds_placeholder;
pub use vault::restore::PlaceholderRestorer;
pub use vault::{PlaceholderVault, VaultKey};
