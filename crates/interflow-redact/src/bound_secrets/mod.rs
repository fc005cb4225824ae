//! Secrets of the operator that stand in bodies and headers: the forms in which they occur, and their replacement.

pub(crate) mod byte_replacement;
pub(crate) mod escaped_secret;
pub(crate) mod secret_forms;
