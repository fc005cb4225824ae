//! The reference pages of the command line in `docs/reference`, made from its definition. `make docs` writes them.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use interflow_host::CliExit;

use super::Cli;

/// Writes or checks a page.
fn check(file: &str, page: &str) {
    let path = format!("{}/../../docs/reference/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = there.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(there == page, "docs/reference/{file} is stale, first at {differing:?}: run `make docs`");
}

#[test]
#[cfg_attr(
    not(all(feature = "media", feature = "compat", feature = "demo")),
    ignore = "the page describes all features"
)]
fn the_reference_of_the_command_line_is_current() {
    check("cli.md", &cli_page());
}

#[test]
fn the_page_of_exit_codes_is_current() {
    check("exit-codes.md", &exit_code_page());
}

#[test]
fn no_two_exit_codes_are_the_same() {
    let codes: Vec<u8> = CliExit::ALL.iter().map(|e| e.code()).collect();
    assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
}

fn exit_code_page() -> String {
    let mut page = String::from(
        "# Exit codes\n\nMade from the code by `make docs`; do not edit.\n\n\
         `interflow exec -- CMD` ends with the exit code of CMD. All other commands use these:\n\n\
         | code | meaning |\n|---|---|\n",
    );
    for exit in CliExit::ALL {
        writeln!(page, "| {} | {} |", exit.label(), exit.meaning()).unwrap();
    }
    page
}

fn cli_page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut page = String::from(
        "# Command line\n\nMade from the code by `make docs`; do not edit. `interflow help COMMAND` prints the same in the terminal,\n\
         `interflow man` as manual pages, and `interflow completions SHELL` prints completions.\n\n\
         | command | does |\n|---|---|\n",
    );
    for command in cli.get_subcommands() {
        let name = command.get_name();
        writeln!(page, "| [`{name}`](#interflow-{name}) | {} |", about(command)).unwrap();
    }
    page.push_str("\n## Global options\n\n");
    options(&mut page, cli.get_arguments().filter(|a| a.is_global_set()));
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
