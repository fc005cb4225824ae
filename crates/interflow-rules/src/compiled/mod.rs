//! Compiled rules: a program of conditions, and of actions with the phases in which they run.

pub(crate) mod action_phase;
pub(crate) mod action_templates;
pub(crate) mod expect;
pub mod phase_names;
pub(crate) mod program;
