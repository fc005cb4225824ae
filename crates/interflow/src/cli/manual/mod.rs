//! `interflow help`, `man` and `completions`: everything that is made from the definition of the command line.

#[cfg(test)]
mod reference_tests;
pub mod welcome;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Command, CommandFactory as _, ValueEnum};
use clap_complete::Shell;
use interflow_host::CliExit;

use crate::cli::output::{ignore_broken_pipe, print};
use crate::cli::{Cli, rules};
use crate::instance::config::env;
use crate::{CliError, Result};

#[derive(Debug, Args)]
pub struct HelpArgs {
    /// Command or topic: `flows list`, `query`, `exit-codes`, `environment`.
    #[arg(value_name = "COMMAND")]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write one page per command to this directory.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Topics of `interflow help` that are no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HelpTopic {
    /// The query language of flows and conversations
    Query,
    /// The exit codes
    ExitCodes,
    /// The environment variables
    Environment,
}

/// The list of topics at the end of `interflow --help`.
pub fn topics() -> String {
    let mut text = String::from("Topics:\n");
    for topic in HelpTopic::value_variants().iter().filter_map(ValueEnum::to_possible_value) {
        let help = topic.get_help().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("  {:<22} {help}\n", format!("help {}", topic.get_name())));
    }
    text
}

/// Prints the help text of a command or topic.
pub fn help(args: &HelpArgs) -> Result<()> {
    if let [word] = &args.words[..]
        && let Ok(topic) = HelpTopic::from_str(word, false)
    {
        print(&match topic {
            HelpTopic::Query => interflow_query::help(),
            HelpTopic::ExitCodes => exit_codes(),
            HelpTopic::Environment => environment_help(),
        });
        return Ok(());
    }
    let mut cli = definition();
    let mut command = &mut cli;
    for word in &args.words {
        let path = args.words.join(" ");
        command = command.find_subcommand_mut(word).ok_or_else(|| {
            CliError::Usage(format!("no command or topic `{path}`; `interflow help` lists the commands and topics"))
        })?;
    }
    let mut text = command.render_long_help().ansi().to_string();
    if args.words == ["rules"] {
        text.push_str(&rules::topic::text());
    }
    ignore_broken_pipe(write!(interflow_host::terminal::stdout(), "{text}"))
}

/// Has the error of an unknown command name those of its name inside other commands: `flows replay` for `replay`.
pub fn suggest_nested(error: &mut clap::Error, words: &[OsString]) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let cli = Cli::command();
    let before = words.iter().take_while(|given| given.as_os_str() != word.as_str());
    if before.clone().any(|given| cli.find_subcommand(given).is_some()) {
        return;
    }
    let inside = |outer: &Command| Some(format!("{} {}", outer.get_name(), outer.find_subcommand(word)?.get_name()));
    let names: Vec<String> = cli.get_subcommands().filter_map(inside).collect();
    if !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
}

/// The whole command line, with the full path of every command in its usage.
fn definition() -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli
}

fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for exit in CliExit::ALL {
        text.push_str(&format!("  {:<6} {}\n", exit.label(), exit.meaning().replace('`', "")));
    }
    text.push_str("\n`interflow exec` ends with the exit code of its command.\n");
    text
}

/// Variables that are not configuration keys.
const VARIABLES: [(&str, &str); 5] = [
    ("INTERFLOW_CONFIG", "Configuration file, as with --config."),
    ("INTERFLOW_DATA_DIR", "Data directory, as with --data-dir."),
    ("INTERFLOW_LOG", "Log level; overrides log.level."),
    ("INTERFLOW_TOKEN", "Admin token of at least 32 characters, instead of the generated one."),
    ("NO_COLOR", "Disables colours if set to any value."),
];

fn environment_help() -> String {
    let mut text = String::from("Environment variables:\n");
    for (name, meaning) in VARIABLES {
        text.push_str(&format!("  {name:<20} {meaning}\n"));
    }
    text.push_str(
        "\nEvery key of the configuration file has a variable that overrides it: INTERFLOW_ and the path in\n\
         capitals, such as INTERFLOW_INTERCEPT_MODE=none. Lists and tables are written as in TOML:\n\
         INTERFLOW_INTERCEPT_EXCLUDE='[\"*.bank.example\"]'. `interflow config env` prints them all.\n",
    );
    text
}

/// The names of all variables, as `config env` prints them.
pub fn environment_variables() -> String {
    let mut text: String = VARIABLES[..4].iter().map(|(name, _)| format!("{name}\n")).collect();
    for (name, _) in env::keys() {
        text.push_str(&name);
        text.push('\n');
    }
    text
}

/// Prints the completion script of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "interflow", &mut script);
    ignore_broken_pipe(interflow_host::terminal::data_stdout().write_all(&script))
}

/// Prints the manual page, or writes the pages of all commands to a directory.
pub fn man(args: &ManArgs) -> Result<()> {
    let Some(dir) = &args.dir else {
        if io::stdout().is_terminal() {
            interflow_host::errln!("interflow: this is a manual page in roff; read it with `interflow man | man -l -`");
        }
        let mut page = Vec::new();
        let manual = clap_mangen::Man::new(definition()).manual("Interflow");
        manual.render(&mut page).map_err(|e| e.to_string())?;
        return ignore_broken_pipe(interflow_host::terminal::data_stdout().write_all(&page));
    };
    let failed = |e: io::Error| CliError::Failed(format!("{} cannot be written: {e}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_has_a_help_text() {
        fn check(command: &Command, path: &str) {
            assert!(command.get_about().is_some(), "{path} has no description");
            for arg in command.get_arguments().filter(|a| !a.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{path}: {} has no help", arg.get_id());
            }
            for inner in command.get_subcommands() {
                check(inner, &format!("{path} {}", inner.get_name()));
            }
        }
        check(&Cli::command(), "interflow");
    }

    #[test]
    fn commands_that_print_data_share_their_format_options() {
        let mut with_format = 0;
        fn check(command: &Command, path: &str, with_format: &mut usize) {
            let find = |name: &str| command.get_arguments().find(|a| a.get_long() == Some(name));
            if let Some(format) = find("format") {
                *with_format += 1;
                assert_eq!(format.get_short(), Some('f'), "{path}: -f");
                let values = format.get_possible_values();
                assert!(!values.is_empty(), "{path}: --format names no values");
                let json = values.iter().any(|v| v.get_name() == "json");
                assert_eq!(find("json").is_some(), json, "{path}: --json is the shorthand of --format json");
            } else {
                assert!(find("json").is_none() && find("form").is_none(), "{path}: --json without --format");
            }
            for inner in command.get_subcommands() {
                check(inner, &format!("{path} {}", inner.get_name()), with_format);
            }
        }
        check(&Cli::command(), "interflow", &mut with_format);
        assert!(with_format > 20, "{with_format}");
    }
}
