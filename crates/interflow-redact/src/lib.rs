//! Detectors, policies, strategies, the vault, streaming redaction and restoration.
#![forbid(unsafe_code)]

mod backend;
mod check;
mod config;
mod custom;
mod detect;
mod document;
mod engine;
mod error;
mod json;
mod kind;
mod layers;
mod lexicon;
mod memo;
mod overlap;
mod own;
mod policy;
mod redactor;
mod restore;
mod stop;
mod strategy;
mod stream;
mod text;
mod token;
mod vault;

pub use backend::{BackendConfig, BackendFailure, BackendKind, Backends, SecondOpinion};
pub use config::{
    AddressRule, MAIN_POLICY, MediaRule, OutboundMode, RedactConfig, RedactMode, RedactRoute, UnknownRule,
};
pub use detect::Finding;
pub use document::{Explanation, Format};
pub use error::RedactError;
pub use json::{JsonPart, JsonSpan, decode_lossy, escape_into, may_hold_json, string_values};
pub use kind::{Kind, KindSet};
pub use memo::Memo;
pub use policy::{
    Condition, ConditionalFile, CryptoFile, DEFAULT_CONFIDENCE, FpeFile, KindFile, PatternFile, Policy, PolicyFile,
    PolicyProblem, SectionFile, StrategyFile, TermsFile, Validator,
};
pub use redactor::{Redacted, Redaction, Redactor, Session};
pub use restore::Restorer;
pub use stop::{Stop, StopOnDrop};
pub use stream::{Form, StreamRedactor};
pub use vault::{Vault, VaultKey};
