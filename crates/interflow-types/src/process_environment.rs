//! The environment of programs that Interflow starts for a component.

/// Variables of Interflow's own environment that a program gets; the others may be secrets that are not for it.
#[cfg(unix)]
pub const INHERITED_VARIABLES: &[&str] = &["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];

/// Variables of Interflow's own environment that a program gets; the others may be secrets that are not for it.
#[cfg(not(unix))]
pub const INHERITED_VARIABLES: &[&str] = &[
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];
