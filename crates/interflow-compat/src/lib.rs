//! Importers of other programs' settings and rules.
#![forbid(unsafe_code)]

mod draft;
pub mod fluxzy;
pub mod litellm;
#[cfg(feature = "media")]
mod mediaflow;
pub mod mitmproxy;
pub mod philter;

use std::sync::Arc;

pub use draft::ImportedConfig;
use interflow_rules::format::RuleFormat;
#[cfg(feature = "media")]
pub use mediaflow::{MediaSections, SettingError, apply_environment};

/// The formats of rule files besides Interflow's own.
pub fn rule_formats() -> Vec<Arc<dyn RuleFormat>> {
    vec![Arc::new(fluxzy::FluxzyFormat)]
}
