//! The reference pages of the command line and of environment variables in `docs/reference`, made from their definitions.
//! `make docs` writes them.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use interflow_host::CliExit;
use interflow_host::exec::{self, TrustFiles};
use interflow_llm_gateway::environment::{cloud_variables, otel_variables};
use interflow_testkit::docs::check_reference_page;

use crate::cli::Cli;
use crate::instance::{config, environment};

#[test]
#[cfg_attr(
    not(all(feature = "media", feature = "compat", feature = "demo")),
    ignore = "the page describes all features"
)]
fn the_reference_of_the_command_line_is_current() {
    check_reference_page("cli.md", &cli_page());
}

#[test]
#[cfg_attr(not(all(feature = "media", feature = "compat")), ignore = "the page describes all features")]
fn the_page_of_environment_variables_is_current() {
    check_reference_page("environment.md", &environment_page());
}

fn environment_page() -> String {
    let mut page = String::from(
        "# Environment variables\n\n<!-- Generated from the code by `make docs`; do not edit. -->\n\n\
         Interflow reads these environment variables.\n\
         Secrets in the configuration may name others (`env:NAME`), and so may rules (`${env.NAME}`).\n\
         `HTTP_PROXY` and the like have no effect on how Interflow connects to origins; see \
         [`upstream.proxy`](configuration.md#upstream).\n\n## Interflow\n",
    );
    variables(&mut page, environment::OWN);
    page.push_str("\n## System and terminal\n");
    variables(&mut page, SYSTEM);
    page.push_str("\n## OpenTelemetry\n\nDefaults for `[telemetry]`, which takes precedence.\n");
    variables(&mut page, &otel_variables());
    page.push_str("\n## Clouds\n\nFor LLM providers with `credentials = \"ambient\"` or `profile`, as the clouds' SDKs use them.\n");
    variables(&mut page, &cloud_variables());
    page.push_str(
        "\n## Set by `exec`\n\n`interflow exec` runs its command with these. `interflow ca trust-env` prints those that concern trust.\n\n\
         | variable | value |\n|---|---|\n",
    );
    let trust = TrustFiles {
        ca: "CA".into(),
        bundle: "BUNDLE".into(),
        node_shim: "NODE_SHIM".into(),
        bun_shim: "BUN_SHIM".into(),
        java_store: "STORE".into(),
        wgetrc: "WGETRC".into(),
    };
    let proxy = exec::ProxyTarget { host: "127.0.0.1", port: 7070, login: "USER:PASSWORD@" };
    for setting in exec::settings(proxy, &trust, "HOSTS", &|_| None) {
        let value = match &*setting.value {
            "CA" => "the file of Interflow's CA".to_owned(),
            "BUNDLE" => "a file with the system's CAs and Interflow's".to_owned(),
            "WGETRC" => "a start-up file with that bundle".to_owned(),
            "HOSTS" => "the hosts of `--no-proxy`, otherwise empty".to_owned(),
            value if value.contains("NODE_SHIM") => {
                "a script for older versions and for libraries that would connect directly, after your own options"
                    .to_owned()
            }
            value if value.contains("BUN_SHIM") => {
                "a script for WebSocket and for agents of libraries, after your own options".to_owned()
            }
            value if value.contains("STORE") => "proxy and trust store, after your own options".to_owned(),
            value => format!("`{value}`"),
        };
        writeln!(page, "| `{}` | {value} |", setting.name).unwrap();
    }
    page.push_str(
        "\n## Configuration keys\n\nEach overrides its [key](configuration.md). Lists and tables are written as TOML.\n\n\
         | variable | key |\n|---|---|\n",
    );
    for (name, path) in config::env::keys() {
        writeln!(page, "| `{name}` | `{}` |", path.join(".")).unwrap();
    }
    page
}

/// Those of the system and of other programs.
const SYSTEM: &[(&str, &str)] = &[
    ("LISTEN_FDS", "the number of listening sockets that a service manager passes on (`sd_listen_fds(3)`)"),
    ("LISTEN_PID", "the process that `LISTEN_FDS` is for"),
    ("LISTEN_FDNAMES", "their names, separated by colons"),
    ("NO_COLOR", "if set, no colours in the output"),
    ("CLICOLOR", "`0`: no colours in the output"),
    ("CLICOLOR_FORCE", "colours even if the output is not a terminal"),
    ("COLUMNS", "the width of tables on a terminal"),
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

fn variables(page: &mut String, list: &[(&str, &str)]) {
    page.push_str("\n| variable | for |\n|---|---|\n");
    for (name, doc) in list {
        writeln!(page, "| `{name}` | {doc} |").unwrap();
    }
}

/// Variables that the sources read by name. Those of builds and tests are not meant for users.
#[test]
fn every_variable_that_the_program_reads_is_listed() {
    let mut unlisted = Vec::new();
    let page = environment_page();
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![crates];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            let skipped =
                ["interflow-testkit", "tests", "examples", "build.rs"].iter().any(|name| entry.ends_with(name));
            if entry.is_dir() && !skipped {
                folders.push(entry);
            } else if entry.extension().is_some_and(|e| e == "rs") && !skipped {
                let text = std::fs::read_to_string(&entry).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                for call in
                    ["env::var(\"", "env::var_os(\"", " var(\""].iter().flat_map(|call| code.split(call).skip(1))
                {
                    let name = call.split('"').next().unwrap_or_default();
                    // The settings of another media proxy are read from its own environment.
                    if name.len() > 2 && name != "CONFIG_PATH" && !page.contains(&format!("| `{name}` |")) {
                        unlisted.push(format!("{name} in {}", entry.display()));
                    }
                }
            }
        }
    }
    assert!(unlisted.is_empty(), "add them to instance/environment.rs: {unlisted:#?}");
}

#[test]
fn no_two_exit_codes_are_the_same() {
    let codes: Vec<u8> = CliExit::ALL.iter().map(|e| e.code()).collect();
    assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
}

fn cli_page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut page = String::from(
        "# Command line\n\n<!-- Generated from the code by `make docs`; do not edit. -->\n\n\
         `interflow help COMMAND` prints the same in the terminal, `interflow man` as manual pages.\n\
         `interflow completions SHELL` prints completions.\n\n\
         | command | does |\n|---|---|\n",
    );
    for command in cli.get_subcommands() {
        let name = command.get_name();
        writeln!(page, "| [`{name}`](#interflow-{name}) | {} |", about(command)).unwrap();
    }
    page.push_str("\n## Global options\n\n");
    options(&mut page, cli.get_arguments().filter(|a| a.is_global_set()));
    page.push_str(
        "\n## Exit codes\n\n`interflow exec -- CMD` ends with the exit code of CMD. All other commands use these:\n\n\
         | code | meaning |\n|---|---|\n",
    );
    for exit in CliExit::ALL {
        writeln!(page, "| {} | {} |", exit.label(), exit.meaning()).unwrap();
    }
    for command in cli.get_subcommands() {
        section(&mut page, command, &format!("interflow {}", command.get_name()), 2);
    }
    page
}

fn section(page: &mut String, command: &Command, path: &str, level: usize) {
    writeln!(page, "\n{} `{path}`\n\n{}", "#".repeat(level), about(command)).unwrap();
    let inner: Vec<_> = command.get_subcommands().collect();
    if inner.is_empty() {
        let usage = command.clone().render_usage().to_string();
        writeln!(page, "\n```text\n{}\n```", usage.trim_start_matches("Usage: ")).unwrap();
        let own = |a: &&Arg| !a.is_global_set() && !a.is_hide_set() && a.get_id() != "help";
        if command.get_arguments().any(|a| own(&a)) {
            page.push('\n');
            options(page, command.get_arguments().filter(own));
        }
    }
    for command in inner {
        section(page, command, &format!("{path} {}", command.get_name()), (level + 1).min(4));
    }
}

fn about(command: &Command) -> String {
    command.get_long_about().or(command.get_about()).map(|t| one_line(&t.to_string())).unwrap_or_default()
}

/// A table of arguments and options.
fn options<'a>(page: &mut String, args: impl Iterator<Item = &'a Arg>) {
    page.push_str("| option | meaning |\n|---|---|\n");
    for arg in args {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let mut text = one_line(&help);
        let values: Vec<_> = arg.get_possible_values().iter().filter(|v| !v.is_hide_set()).cloned().collect();
        if !values.is_empty() && arg.get_action().takes_values() {
            let names: Vec<_> = values.iter().map(|v| format!("`{}`", v.get_name())).collect();
            write!(text, " One of {}.", names.join(", ")).unwrap();
        }
        let defaults: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        if arg.get_action().takes_values() && defaults.iter().any(|d| !d.is_empty()) {
            write!(text, " Default: `{}`.", defaults.join(" ")).unwrap();
        }
        if let Some(name) = arg.get_env() {
            write!(text, " Environment variable: `{}`.", name.to_string_lossy()).unwrap();
        }
        writeln!(page, "| `{}` | {} |", spelling(arg).replace('|', "\\|"), text.replace('|', "\\|")).unwrap();
    }
}

/// `-f, --format <FORMAT>`, or the name of a positional argument.
fn spelling(arg: &Arg) -> String {
    let value = || {
        let names: Vec<_> = arg.get_value_names().unwrap_or_default().iter().map(|n| format!("<{n}>")).collect();
        names.join(" ")
    };
    let many = if matches!(arg.get_action(), ArgAction::Append) { "..." } else { "" };
    match (arg.get_short(), arg.get_long()) {
        (None, None) => format!("{}{many}", value()),
        (short, long) => {
            let names = short.map(|s| format!("-{s}")).into_iter().chain(long.map(|l| format!("--{l}")));
            let value = if arg.get_action().takes_values() { format!(" {}", value()) } else { String::new() };
            format!("{}{value}", names.collect::<Vec<_>>().join(", "))
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
