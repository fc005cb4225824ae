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

/// Those of the system and of other programs.
#[cfg_attr(not(test), expect(dead_code, reason = "the reference page lists them"))]
pub const SYSTEM: &[Variable] = &[
    ("LISTEN_FDS", "the number of listening sockets that a service manager passes on (`sd_listen_fds(3)`)"),
    ("LISTEN_PID", "the process that `LISTEN_FDS` is for"),
    ("LISTEN_FDNAMES", "their names, separated by colons"),
    ("NO_COLOR", "if set, no colours in the output"),
    ("CLICOLOR", "`0`: no colours in the output"),
    ("CLICOLOR_FORCE", "colours even if the output is not a terminal"),
    ("COLUMNS", "the width of tables"),
    ("SSLKEYLOGFILE", "a file for the TLS session secrets of both sides; for debugging only"),
    (
        "XDG_DATA_HOME",
        "the folder of the default data directory, and of the user's Flatpaks; else `LOCALAPPDATA`, else `~/.local/share`",
    ),
    ("LOCALAPPDATA", "the folder of the default data directory on Windows"),
    ("XDG_RUNTIME_DIR", "the folder of the user's Podman socket (`proxy.containers`)"),
    ("HOME", "the home directory: data directory, trust stores, credentials of the clouds"),
    ("USERPROFILE", "the home directory on Windows"),
    ("HOSTNAME", "the machine's name in the CA's certificate; on Windows `COMPUTERNAME`"),
    ("COMPUTERNAME", "the machine's name on Windows"),
    ("DISPLAY", "whether a browser can be opened; `WAYLAND_DISPLAY` and `WSL_DISTRO_NAME` too"),
    ("WAYLAND_DISPLAY", "see `DISPLAY`"),
    ("WSL_DISTRO_NAME", "see `DISPLAY`"),
    ("SUDO_UID", "under `sudo`, the user whose files in the data directory are accepted, too"),
    ("PATH", "where programs are looked for: browsers, tools of trust stores, runtimes that `interflow doctor` checks"),
    ("WGETRC", "Wget's start-up file, which `exec` extends"),
    ("NODE_OPTIONS", "options of Node.js, which `exec` extends"),
    ("BUN_OPTIONS", "options of Bun, which `exec` extends"),
    ("JAVA_TOOL_OPTIONS", "options of Java, which `exec` extends"),
    ("COMPOSE_FILE", "the files of Compose, to which `exec --docker` adds one"),
    ("COMPOSE_PATH_SEPARATOR", "what separates them"),
    ("EDITOR", "the editor of `interflow top`, unless `VISUAL` is set; else `vi`"),
    ("VISUAL", "see `EDITOR`"),
];

/// Whether the variable is one of [`OWN`].
pub fn is_own(name: &str) -> bool {
    OWN.iter().any(|(own, _)| *own == name)
}
