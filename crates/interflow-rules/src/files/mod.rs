//! Rule files: reading them with their includes, compiling them, and the seam for files of other programs.

pub(crate) mod compiler;
pub(crate) mod constant;
pub(crate) mod host_access;
pub(crate) mod path_checks;
pub(crate) mod private_files;
pub(crate) mod rule_file;
pub(crate) mod rule_format;
pub(crate) mod sources;
pub(crate) mod value_checks;
