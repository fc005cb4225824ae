//! A script with its limits.

use super::budget::ScriptLimits;
use super::store::ScriptStoreBounds;

/// A script whose syntax was checked, with its limits.
#[derive(Debug)]
pub(crate) struct CompiledScript {
    pub(super) name: String,
    pub(super) code: String,
    pub(super) limits: ScriptLimits,
    pub(super) bounds: ScriptStoreBounds,
}
