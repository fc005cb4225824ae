//! The command line, and the instance that it starts: all of the binary but its entry, so that the last crate to be compiled is small.
#![forbid(unsafe_code)]

mod cli;
mod components;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(not(feature = "fleet"))]
#[path = "fleet_off.rs"]
mod fleet;
mod instance;

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::builder::Resettable;
use clap::{Command, CommandFactory as _, Parser};
use interflow_host::data_dir::DataDir;
use interflow_host::{CliError, Result};

use cli::Cli;
use instance::config;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

impl From<config::LoadError> for CliError {
    fn from(error: config::LoadError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let words = cli::flows::normalize_negated_terms(std::env::args_os());
    let cli = match parse(&words) {
        Ok(cli) => cli,
        Err(e) if cli::manual::welcome::replaces(&e, &words) => return ExitCode::SUCCESS,
        Err(mut e) => {
            cli::manual::suggest_nested(&mut e, &words);
            e.exit()
        }
    };
    match cli::dispatch(cli) {
        Ok(()) => match interflow_host::terminal::output_failure() {
            Some(why) => {
                print_error(&format!("output failed: {why}"));
                end_process(1)
            }
            None => end_process(0),
        },
        Err(error) => {
            if !matches!(error, CliError::Child(_)) {
                print_error(&error.to_string());
            }
            end_process(error.code())
        }
    }
}

/// The command line. The usage in an error names no option that the environment sets already.
fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words).map_err(|error| {
        let without = |command: Command, arg: &str| command.mut_arg(arg, |arg| arg.env(Resettable::Reset));
        let command = without(without(Cli::command(), "data_dir"), "config");
        command.try_get_matches_from(words).err().filter(clap::Error::use_stderr).unwrap_or(error)
    })
}

/// A runtime of this thread alone.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|e| format!("the runtime could not be started: {e}"))
}

/// Ends the process without running the destructors of C libraries. AWS-LC frees its random number generator in one of
/// them, and aborts the process if a thread that is still running needs it after that: a worker, or the thread that
/// generates keys in advance.
fn end_process(code: u8) -> ! {
    // The reader of the output may have closed it.
    let _ = std::io::stdout().flush();
    #[cfg(unix)]
    signal_hook::low_level::exit(code.into());
    // Windows ends all other threads before it runs destructors.
    #[cfg(not(unix))]
    std::process::exit(code.into());
}

fn print_error(text: &str) {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    interflow_host::errln!("{red}interflow:{red:#} {}", in_commands(text));
}

/// Prints a warning to stderr.
pub fn warn(text: &str) {
    let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
    interflow_host::errln!("interflow: {yellow}warning:{yellow:#} {}", in_commands(text));
}

/// The data directory that commands in messages have to name, since the shell of this process does not.
static NAMED_DATA_DIR: OnceLock<DataDir> = OnceLock::new();

/// From now on, commands in messages name the data directory, unless the environment of this process does.
fn name_data_dir(home: &DataDir) {
    let variable = std::env::var_os("INTERFLOW_DATA_DIR").unwrap_or_default();
    if variable != home.path() {
        let _ = NAMED_DATA_DIR.set(home.clone());
    }
}

/// How a command for the data directory of this process begins.
pub fn command() -> Cow<'static, str> {
    NAMED_DATA_DIR.get().map_or("interflow".into(), |home| home.command().into())
}

/// The text with each command in it, as in "`interflow open`", for the data directory of this process.
pub fn in_commands(text: &str) -> Cow<'_, str> {
    NAMED_DATA_DIR.get().map_or(text.into(), |home| home.in_commands(text).into())
}
