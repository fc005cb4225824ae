//! The environment variables that the program reads beside those of the configuration keys. Variables that begin with
//! `INTERFLOW_` and are neither of the two are reported when the program starts.

/// A variable and what it is for.
pub type Variable = (&'static str, &'static str);

/// Interflow's own.
pub const OWN: &[Variable] = &[
    ("INTERFLOW_DATA_DIR", "the [data directory](data-directory.md), as `--data-dir`"),
    ("INTERFLOW_CONFIG", "the configuration file, as `-c`"),
    ("INTERFLOW_LOG", "the log level, in place of `log.level`"),
    ("INTERFLOW_TOKEN", "the admin token, of at least 32 characters, in place of the one in the data directory"),
    ("INTERFLOW_BIN", "the program that the tests and screenshots of the web UI start"),
    ("INTERFLOW_ADMIN", "the address of the admin port, for the web UI's development server"),
];

/// Whether the variable is one of [`OWN`], or of the installer `install.sh`.
pub fn is_own(name: &str) -> bool {
    OWN.iter().any(|(own, _)| *own == name) || ["INTERFLOW_PREFIX", "INTERFLOW_BASE_URL"].contains(&name)
}
