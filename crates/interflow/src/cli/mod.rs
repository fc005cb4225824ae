//! The command line: one module per subcommand. The definitions yield the parser and the help texts.

mod approvals;
mod audit;
mod ca;
mod config;
mod conversations;
#[cfg(feature = "demo")]
mod demo;
mod doctor;
mod exec;
pub mod flows;
#[cfg(feature = "compat")]
mod import;
mod keys;
mod listen_address;
mod mcp;
#[cfg(feature = "media")]
mod media;
mod open;
mod redact;
mod rules;
mod run;
mod secrets;
mod system_proxy;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use interflow_host::data_dir::DataDir;

use crate::instance::config::load;
use crate::{CliError, warn};

/// Intercepting HTTP(S) proxy and LLM gateway: inspect, record, rewrite, replay and redact traffic.
#[derive(Debug, Parser)]
#[command(name = "interflow", version, max_term_width = 110, infer_subcommands = false)]
pub struct Cli {
    /// Data directory: CA, recordings and tokens.
    #[arg(long, global = true, env = "INTERFLOW_DATA_DIR", value_name = "DIR", help_heading = "Global options")]
    pub data_dir: Option<PathBuf>,
    /// Configuration file.
    #[arg(short, long, global = true, env = "INTERFLOW_CONFIG", value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Start the proxy, the gateway and the admin server.
    Run(run::RunArgs),
    #[cfg(feature = "demo")]
    /// Start an instance with sample traffic: a local shop, a fake LLM provider, agents. Needs no network.
    Demo(demo::DemoArgs),
    /// Open the web UI of the running instance in the browser and log in.
    Open(open::OpenArgs),
    /// Run a command with the proxy and CA configured in its environment; print a summary when it exits.
    Exec(exec::ExecArgs),
    /// Manage the certificate authority: show, export, install, uninstall, rotate.
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// Work with recorded flows: list, show, follow, export, import, replay, compare, prune, check.
    #[command(subcommand)]
    Flows(flows::FlowsCommand),
    /// List, show and export conversations with language models.
    #[command(subcommand)]
    Conversations(conversations::ConversationsCommand),
    /// Manage virtual keys for the gateway: add, list, revoke.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Work with rules: check, list, explain, test, import, schema; list and decide held flows.
    #[command(subcommand)]
    Rules(rules::RuleFilesCommand),
    /// Verify the hash chain of the audit log.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Manage outbound approvals: list and decide pending requests, edit rules, set the mode.
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Manage secrets that replace placeholders in outgoing requests: list, add, remove.
    #[command(subcommand)]
    Secrets(secrets::SecretsCommand),
    /// List active agent sessions.
    Sessions,
    #[cfg(feature = "compat")]
    /// Import data or configuration from another program.
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Replace personal data and secrets in text or JSON.
    Redact(redact::RedactArgs),
    #[cfg(feature = "media")]
    /// Inspect media files and decrypt them with your own keys.
    #[command(subcommand)]
    Media(media::MediaCommand),
    /// Serve the recorded traffic to agents over the Model Context Protocol (stdio, read-only).
    Mcp(mcp::McpArgs),
    /// Check or print the configuration, its JSON Schema or its reference page.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Set or restore the system's proxy settings: on, off, status.
    #[command(subcommand)]
    SystemProxy(system_proxy::SystemProxyCommand),
    /// Diagnose problems: CA trust, ports, clock, disk, limits.
    Doctor(doctor::DoctorArgs),
}

/// Runs the command.
pub fn dispatch(cli: Cli) -> Result<(), CliError> {
    #[cfg(feature = "demo")]
    if let CliCommand::Demo(args) = &cli.command {
        return demo::run(args);
    }
    let loaded = load(cli.config.as_deref());
    if let Ok(loaded) = &loaded {
        loaded.warnings.iter().for_each(|text| warn(text));
    }
    // The `config` commands report errors of the configuration in more detail.
    if let CliCommand::Config(command) = &cli.command {
        return config::run(command, loaded);
    }
    let loaded = loaded?;
    let home = cli.data_dir;
    if let CliCommand::Approvals(approvals::ApprovalsCommand::Presets { name, json }) = &cli.command {
        return approvals::presets(name.as_deref(), *json);
    }
    #[cfg(feature = "compat")]
    if let CliCommand::Import(import::ImportCommand::Philter(args)) = &cli.command {
        return import::run_philter(args);
    }
    if let CliCommand::Redact(args) = &cli.command {
        return redact::run(args);
    }
    #[cfg(feature = "media")]
    if let CliCommand::Media(command) = &cli.command {
        return media::run(command, &loaded.config, home.as_deref());
    }
    let home = DataDir::find(home.as_deref().or(loaded.config.data_dir.as_deref()))?;
    match cli.command {
        CliCommand::Run(args) => run::run(&args, loaded, home),
        CliCommand::Exec(args) => exec::run(&args, loaded, &home),
        CliCommand::Ca(command) => ca::run(&command, &home),
        CliCommand::Conversations(command) => conversations::run(command, &loaded.config, &home),
        CliCommand::Flows(command) => flows::run(command, &loaded.config, &home),
        #[cfg(feature = "compat")]
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
        CliCommand::Config(_) | CliCommand::Redact(_) => Ok(()),
        #[cfg(feature = "demo")]
        CliCommand::Demo(_) => Ok(()),
        #[cfg(feature = "media")]
        CliCommand::Media(_) => Ok(()),
    }
}
