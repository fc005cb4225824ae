//! The Interflow binary.
#![forbid(unsafe_code)]

mod cli;
mod components;
mod instance;

use std::process::ExitCode;

use clap::Parser;
use interflow_host::CliError;

use cli::Cli;
use instance::{config, renamed};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

impl From<config::LoadError> for CliError {
    fn from(error: config::LoadError) -> Self {
        Self::Usage(error.to_string())
    }
}

fn main() -> ExitCode {
    let words = cli::flows::normalize_negated_terms(std::env::args_os());
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(e) if cli::welcome::replaces(&e, &words) => return ExitCode::SUCCESS,
        Err(e) => renamed::suggest(e, &words).exit(),
    };
    match cli::dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, CliError::Child(_)) {
                print_error(&error.to_string());
            }
            ExitCode::from(error.code())
        }
    }
}

fn print_error(text: &str) {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    anstream::eprintln!("{red}interflow:{red:#} {text}");
}

/// Prints a warning to stderr.
pub fn warn(text: &str) {
    let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
    anstream::eprintln!("interflow: {yellow}warning:{yellow:#} {text}");
}
