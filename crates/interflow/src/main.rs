//! The Interflow binary.
#![forbid(unsafe_code)]

mod approvals;
mod audit;
mod ca;
mod cli;
mod config;
mod config_command;
mod conversations;
mod counted;
mod demo;
mod doctor;
mod exec;
mod exposure;
mod flows;
mod home;
mod import;
mod keys;
mod log;
mod mcp;
mod media;
mod open;
mod philter;
mod redact;
mod rooms;
mod rules;
mod run;
mod system_proxy;
mod trust_store;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use home::Home;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A command that did not do its work; what it says goes to standard error.
#[derive(Debug)]
pub enum Failure {
    /// The work failed: exit code 1.
    Failed(String),
    /// The command was asked for something that makes no sense: exit code 2.
    Usage(String),
    /// A child's own exit code.
    Child(u8),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<config::LoadError> for Failure {
    fn from(error: config::LoadError) -> Self {
        Self::Usage(error.to_string())
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(flows::with_opposites(std::env::args_os()));
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Child(code)) => ExitCode::from(code),
        Err(Failure::Failed(text)) => complain(&text, 1),
        Err(Failure::Usage(text)) => complain(&text, 2),
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    anstream::eprintln!("{red}interflow:{red:#} {text}");
    ExitCode::from(code)
}

/// Says something that does not end the command.
pub fn warn(text: &str) {
    let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
    anstream::eprintln!("interflow: {yellow}warning:{yellow:#} {text}");
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    if let Command::Demo(args) = &cli.command {
        return demo::run(args);
    }
    let loaded = config::load(cli.config.as_deref());
    if let Ok(loaded) = &loaded {
        loaded.warnings.iter().for_each(|text| warn(text));
    }
    // The commands on the configuration itself say more about what is wrong with it.
    if let Command::Config(command) = &cli.command {
        return config_command::run(command, loaded);
    }
    let loaded = loaded?;
    let home = cli.home.or_else(home::by_other_name);
    if let Command::Approvals(approvals::ApprovalsCommand::Presets { name, json }) = &cli.command {
        return approvals::presets(name.as_deref(), *json);
    }
    if let Command::Redact(args) = &cli.command {
        return redact::run(args);
    }
    if let Command::Media(command) = &cli.command {
        return media::run(command, &loaded.config, home.as_deref());
    }
    let home = Home::find(home.as_deref().or(loaded.config.home.as_deref()))?;
    match cli.command {
        Command::Run(args) => run::run(&args, loaded, home),
        Command::Exec(args) => exec::exec(&args, loaded, &home),
        Command::Ca(command) => ca::run(&command, &home),
        Command::Conversations(command) => conversations::run(command, &loaded.config, &home),
        Command::Flows(command) => flows::run(command, &loaded.config, &home),
        Command::Import(command) => import::run(&command, &loaded.config, &home),
        Command::Audit(command) => audit::run(&command),
        Command::Keys(command) => keys::run(command, &loaded.config, &home),
        Command::Open(args) => open::run(&args, &home),
        Command::Mcp(args) => mcp::run(&args, &loaded.config, &home),
        Command::Rules(command) => rules::run(&command, &loaded.config, &home),
        Command::Approvals(command) => approvals::run(command, &home),
        Command::SystemProxy(command) => system_proxy::run(&command, &home),
        Command::Doctor(args) => doctor::run(&args, &loaded.config, &home),
        Command::Config(_) | Command::Demo(_) | Command::Redact(_) | Command::Media(_) => Ok(()),
    }
}
