//! Detectors, policies, strategies, the vault, streaming redaction and restoration.
#![forbid(unsafe_code)]

mod check;
mod detect;
mod engine;
mod kind;
mod lexicon;
mod overlap;
mod text;
mod token;

pub use detect::Finding;
pub use engine::find_all;
pub use kind::{Kind, KindSet};
