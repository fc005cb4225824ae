//! The Interflow binary.
#![forbid(unsafe_code)]

mod approvals;
mod audit;
mod ca;
mod cli;
mod components;
mod config;
mod config_command;
mod conversations;
mod data_dir;
mod demo;
mod doctor;
mod exec;
mod exposure;
mod flows;
mod import;
mod keys;
mod listen_address;
mod log;
mod mcp;
mod media;
mod open;
mod philter;
mod pluralize;
mod redact;
mod reload;
mod renamed;
mod rules;
mod run;
mod secrets;
mod system_proxy;
mod trust_store;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, CliCommand};
use data_dir::DataDir;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A failed command. The message goes to stderr.
#[derive(Debug)]
pub enum CliError {
    /// The work failed: exit code 1.
    Failed(String),
    /// Invalid usage or configuration: exit code 2.
    Usage(String),
    /// Exit code of the child process of `exec`.
    Child(u8),
}

impl From<String> for CliError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<config::LoadError> for CliError {
    fn from(error: config::LoadError) -> Self {
        Self::Usage(error.to_string())
    }
}

fn main() -> ExitCode {
    let words = flows::normalize_negated_terms(std::env::args_os());
    let cli = Cli::try_parse_from(&words).unwrap_or_else(|e| renamed::suggest(e, &words).exit());
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliError::Child(code)) => ExitCode::from(code),
        Err(CliError::Failed(text)) => print_error(&text, 1),
        Err(CliError::Usage(text)) => print_error(&text, 2),
    }
}

fn print_error(text: &str, code: u8) -> ExitCode {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    anstream::eprintln!("{red}interflow:{red:#} {text}");
    ExitCode::from(code)
}

/// Prints a warning to stderr.
pub fn warn(text: &str) {
    let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
    anstream::eprintln!("interflow: {yellow}warning:{yellow:#} {text}");
}

fn dispatch(cli: Cli) -> Result<(), CliError> {
    if let CliCommand::Demo(args) = &cli.command {
        return demo::run(args);
    }
    let loaded = config::load(cli.config.as_deref());
    if let Ok(loaded) = &loaded {
        loaded.warnings.iter().for_each(|text| warn(text));
    }
    // The `config` commands report errors of the configuration in more detail.
    if let CliCommand::Config(command) = &cli.command {
        return config_command::run(command, loaded);
    }
    let loaded = loaded?;
    let home = cli.data_dir;
    if let CliCommand::Approvals(approvals::ApprovalsCommand::Presets { name, json }) = &cli.command {
        return approvals::presets(name.as_deref(), *json);
    }
    if let CliCommand::Import(import::ImportCommand::Philter(args)) = &cli.command {
        return philter::run(args);
    }
    if let CliCommand::Redact(args) = &cli.command {
        return redact::run(args);
    }
    if let CliCommand::Media(command) = &cli.command {
        return media::run(command, &loaded.config, home.as_deref());
    }
    let home = DataDir::find(home.as_deref().or(loaded.config.data_dir.as_deref()))?;
    match cli.command {
        CliCommand::Run(args) => run::run(&args, loaded, home),
        CliCommand::Exec(args) => exec::exec(&args, loaded, &home),
        CliCommand::Ca(command) => ca::run(&command, &home),
        CliCommand::Conversations(command) => conversations::run(command, &loaded.config, &home),
        CliCommand::Flows(command) => flows::run(command, &loaded.config, &home),
        CliCommand::Import(command) => import::run(&command, &loaded.config, &home),
        CliCommand::Audit(command) => audit::run(&command),
        CliCommand::Keys(command) => keys::run(command, &loaded.config, &home),
        CliCommand::Open(args) => open::run(&args, &home),
        CliCommand::Mcp(args) => mcp::run(&args, &loaded.config, &home),
        CliCommand::Rules(command) => rules::run(&command, &loaded.config, &home),
        CliCommand::Approvals(command) => approvals::run(command, &home),
        CliCommand::Secrets(command) => secrets::run(command, &home),
        CliCommand::Sessions => secrets::sessions(&home),
        CliCommand::SystemProxy(command) => system_proxy::run(&command, &home),
        CliCommand::Doctor(args) => doctor::run(&args, &loaded.config, &home),
        CliCommand::Config(_) | CliCommand::Demo(_) | CliCommand::Redact(_) | CliCommand::Media(_) => Ok(()),
    }
}
