//! Rules compiled to a program: conditions, and actions with the phases in which they run.

pub(crate) mod action_phase;
pub(crate) mod action_templates;
pub(crate) mod compiler;
pub mod phase_names;
pub(crate) mod program;
