//! The command line: one module per subcommand. The definitions yield the parser and the help texts.

mod approvals;
mod audit;
mod ca;
mod config;
mod conversations;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "fleet")]
mod fleet;
pub mod flows;
mod import;
mod instance;
mod keys;
mod llm;
pub mod manual;
mod mcp;
#[cfg(feature = "media")]
mod media;
mod models;
mod operations;
mod output;
mod programs;
#[cfg(feature = "fleet")]
mod record;
mod redact;
mod rules;
mod service;
mod system_proxy;
mod tokens;
mod top;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use interflow_host::data_dir::DataDir;

use crate::instance::config::{ConfigFile, LoadError, LoadedConfig, key_position, load};
use crate::{CliError, Result, warn};
use approvals::{pending, secrets};
use instance::{choice, control, doctor, open, run, status};
use output::{FormatArgs, TableFormat, TextFormat};
use programs::{browser, exec};

/// Intercepting HTTP(S) proxy and LLM gateway: inspect, record, rewrite, replay and redact traffic.
#[derive(Debug, Parser)]
#[command(
    name = "interflow",
    version,
    max_term_width = 100,
    infer_subcommands = false,
    disable_help_subcommand = true,
    after_help = manual::topics()
)]
pub struct Cli {
    /// Data directory: CA, recordings and tokens.
    #[arg(long, global = true, env = "INTERFLOW_DATA_DIR", value_name = "DIR", help_heading = "Global options")]
    pub data_dir: Option<PathBuf>,
    /// Configuration file [default: interflow.toml in the data directory, if it exists].
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
    /// Run a command with the proxy and CA configured in its environment; print a summary when it exits.
    Exec(exec::ExecArgs),
    /// Start a browser that uses the proxy and trusts the CA, with a profile that is removed at its end.
    Browser(browser::BrowserArgs),
    /// Show whether an instance is running, its listeners, uptime and pending requests.
    Status(FormatArgs<TextFormat>),
    /// Watch the flows of the running instance in the terminal: filter, read, decide, replay.
    Top(top::TopArgs),
    /// Reload the configuration of the running instance.
    Reload(FormatArgs<TextFormat>),
    /// Restart the running instance with the installed binary: new connections wait meanwhile, none is refused.
    Restart(control::DrainArgs),
    /// Stop the running instance and wait for its end.
    Stop(control::DrainArgs),
    /// Open the web UI of the running instance in the browser and log in.
    Open(open::OpenArgs),
    /// Print the admin token, a secret that gives access to the web UI and the API.
    Token,
    /// Manage API tokens of services, with role and expiry: create, list, revoke.
    #[command(subcommand)]
    Tokens(tokens::TokensCommand),
    /// Work with recorded flows: list, show, tail, export, import, replay, diff, prune, check.
    #[command(subcommand)]
    Flows(flows::FlowsCommand),
    #[cfg(feature = "fleet")]
    /// Work with whole recordings: copy one to a shared store or back, archive one as Parquet files.
    #[command(subcommand)]
    Record(record::RecordCommand),
    /// Work with conversations with language models: list, show, search, tag, export, rebuild.
    #[command(subcommand)]
    Conversations(conversations::ConversationsCommand),
    /// List and decide pending requests: those that await approval and those held by rules.
    #[command(subcommand)]
    Pending(pending::PendingCommand),
    /// Manage outbound approvals: rules, mode, presets, suggestions.
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Manage secrets that replace placeholders in outgoing requests: list, add, remove.
    #[command(subcommand)]
    Secrets(secrets::SecretsCommand),
    /// List active agent sessions.
    Sessions(FormatArgs<TableFormat>),
    /// Work with rules: check, list, explain, test, schema; those that agents propose.
    #[command(subcommand)]
    Rules(rules::RuleFilesCommand),
    #[cfg(feature = "fleet")]
    /// Show what replicas with a shared store share, and go back to earlier revisions.
    #[command(subcommand)]
    Fleet(fleet::FleetCommand),
    /// Manage virtual keys for the gateway: add, list, rotate, disable, enable, revoke.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Show the LLM gateway of the running instance: routes and their deployments.
    #[command(subcommand)]
    Llm(llm::LlmCommand),
    /// Show models: prices, capabilities and end dates, as the catalog and your own price list have them.
    Models(models::ModelsArgs),
    /// Replace personal data and secrets in text or JSON.
    Redact(redact::RedactArgs),
    /// Show the audit trail (who looked at contents and changed what), or verify the hash chain of an audit log.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    #[cfg(feature = "media")]
    /// Inspect media files, decrypt them with your own keys, and create links for players.
    #[command(subcommand)]
    Media(media::MediaCommand),
    /// Serve the recorded traffic to agents over the Model Context Protocol on stdio.
    Mcp(mcp::McpArgs),
    /// Import recorded traffic, rules or configuration of another program.
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Manage the certificate authority: show, export, install, uninstall, rotate.
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// Set or restore the system's proxy settings: on, off, status.
    #[command(subcommand)]
    SystemProxy(system_proxy::SystemProxyCommand),
    /// Run Interflow as a service of this user: install, status, uninstall.
    #[command(subcommand)]
    Service(service::ServiceCommand),
    /// Create, check or print the configuration, its JSON Schema or its reference page.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Diagnose problems: CA trust, ports, clock, disk, limits.
    Doctor(FormatArgs<TextFormat>),
    /// Print a completion script for a shell.
    Completions(manual::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands to a directory.
    Man(manual::ManArgs),
    /// Print the help text of a command or topic.
    Help(manual::HelpArgs),
}

/// Runs the command. Configuration and data directory are read only by commands that need them.
pub fn dispatch(cli: Cli) -> Result<()> {
    let Cli { config: file, data_dir, command } = cli;
    let data_dir = match (data_dir, &file) {
        (None, None) => choice::data_dir_of_instance(&command)?,
        (given, _) => given,
    };
    let file = ConfigFile::find(file.as_deref(), data_dir.as_deref());
    let load = || load_and_warn(file.to_load());
    let checked = || load().map_err(CliError::from).and_then(|loaded| refuse_data_dir(&file, loaded));
    let open = |configured: Option<&Path>| -> Result<DataDir> {
        let home = DataDir::find(data_dir.as_deref().or(configured))?;
        home.check_readable(|file| std::fs::symlink_metadata(file))?;
        crate::name_data_dir(&home);
        Ok(home)
    };
    let with_home = || checked().and_then(|loaded| Ok((open(loaded.config.data_dir.as_deref())?, loaded)));
    // Of the configuration, these commands need no more than the data directory, which may be known without it.
    let home = || match checked() {
        Err(e) if data_dir.is_some() || !file.is_given() => {
            let home = open(None)?;
            warn(&format!("the configuration is invalid and ignored: {e}"));
            Ok(home)
        }
        loaded => open(loaded?.config.data_dir.as_deref()),
    };
    let opened = || with_home().map(|(home, loaded)| (loaded.config, home));
    match command {
        #[cfg(feature = "demo")]
        CliCommand::Demo(args) => demo::run(&args, data_dir.as_deref()),
        CliCommand::Help(args) => manual::help(&args),
        CliCommand::Completions(args) => manual::completions(&args),
        CliCommand::Man(args) => manual::man(&args),
        CliCommand::Config(command) => config::run(&command, &file, data_dir.as_deref(), |given| match given {
            Some(file) => load_and_warn(Some(file)),
            None => load(),
        }),
        CliCommand::Run(args) => {
            let stamps = file.stamps();
            with_home().and_then(|(home, loaded)| run::run(&args, loaded, file.clone(), stamps, home))
        }
        CliCommand::Exec(args) => with_home().and_then(|(home, loaded)| exec::run(&args, loaded, &home)),
        CliCommand::Browser(args) => with_home().and_then(|(home, loaded)| browser::run(&args, loaded, &home)),
        CliCommand::Status(format) => status::run(&format, &home()?),
        CliCommand::Top(args) => top::run(&args, &home()?),
        CliCommand::Reload(format) => control::reload(&format, &home()?),
        CliCommand::Restart(args) => control::restart(&args, &home()?),
        CliCommand::Stop(args) => control::stop(&args, &home()?),
        CliCommand::Open(args) => open::run(&args, &home()?),
        CliCommand::Token => control::token(&home()?),
        CliCommand::Tokens(command) => opened().and_then(|(config, home)| tokens::run(command, &config, &home)),
        CliCommand::Flows(command) => opened().and_then(|(config, home)| flows::run(command, &config, &home)),
        #[cfg(feature = "fleet")]
        CliCommand::Record(command) => opened().and_then(|(config, home)| record::run(&command, &config, &home)),
        CliCommand::Conversations(command) => {
            opened().and_then(|(config, home)| conversations::run(command, &config, &home))
        }
        CliCommand::Pending(command) => pending::run(command, &home()?),
        CliCommand::Approvals(command) => approvals::run(command, home),
        CliCommand::Secrets(command) => secrets::run(command, &home()?),
        CliCommand::Sessions(format) => secrets::sessions(&format, &home()?),
        CliCommand::Rules(command) => opened().and_then(|(config, home)| rules::run(&command, &config, &home)),
        CliCommand::Keys(command) => opened().and_then(|(config, home)| keys::run(command, &config, &home)),
        #[cfg(feature = "fleet")]
        CliCommand::Fleet(command) => opened().and_then(|(config, home)| fleet::run(&command, &config, &home)),
        CliCommand::Llm(command) => llm::run(command, &home()?),
        CliCommand::Models(args) => opened().and_then(|(config, home)| models::run(&args, &config, &home)),
        CliCommand::Redact(args) => redact::run(&args),
        CliCommand::Audit(command) => audit::run(&command, opened),
        #[cfg(feature = "media")]
        CliCommand::Media(command) => media::run(&command, opened),
        CliCommand::Mcp(args) => opened().and_then(|(config, home)| mcp::run(&args, &config, &home)),
        CliCommand::Import(command) => import::run(&command, opened),
        CliCommand::Ca(command) => ca::run(&command, home),
        CliCommand::SystemProxy(command) => system_proxy::run(&command, &home()?),
        CliCommand::Service(command) => service::run(&command, &file, &with_home()?.0),
        CliCommand::Doctor(format) => opened().and_then(|(config, home)| doctor::run(&format, &config, &home)),
    }
}

/// A file that was found in the data directory cannot say that the data directory is another one.
fn refuse_data_dir(given: &ConfigFile, loaded: LoadedConfig) -> Result<LoadedConfig> {
    let named = loaded.config.data_dir.is_some() && !given.is_given();
    let Some(file) = loaded.file.as_ref().filter(|_| named) else { return Ok(loaded) };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = key_position(&text, "data_dir").map_or(1, |(line, _)| line);
    Err(CliError::Usage(format!(
        "{}:{line}: `data_dir` cannot be set in the file of a data directory: use --data-dir or INTERFLOW_DATA_DIR",
        file.display()
    )))
}

/// Loads the configuration; warnings about environment variables go to stderr.
fn load_and_warn(file: Option<&Path>) -> Result<LoadedConfig, LoadError> {
    let loaded = load(file)?;
    loaded.warnings.iter().for_each(|text| warn(text));
    Ok(loaded)
}
