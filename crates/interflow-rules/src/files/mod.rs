//! Rule files: reading them with their includes, compiling them, and the import of Fluxzy's and mitmproxy's rules.

pub(crate) mod compiler;
pub(crate) mod fluxzy;
pub mod mitmproxy;
pub(crate) mod path_checks;
pub(crate) mod rule_file;
pub(crate) mod sources;
