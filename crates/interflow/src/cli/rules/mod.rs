//! `interflow rules`: checks, lists, explains, tests and imports rule files, and decides held flows.

mod decide;
mod files;
#[cfg(feature = "compat")]
mod import;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use interflow_host::data_dir::DataDir;

use crate::CliError;
use crate::instance::config::InterflowConfig;

#[derive(Debug, Subcommand)]
pub enum RuleFilesCommand {
    /// Check rule files for errors, including Fluxzy files.
    Check(FilesArgs),
    /// List the rules in files, or those of the running instance with match counts.
    List(RuleListArgs),
    /// Explain for each rule why it did or did not match a recorded flow, and in which phase.
    Explain(ExplainArgs),
    /// Run the test cases in the rule files.
    Test(FilesArgs),
    #[cfg(feature = "compat")]
    /// Convert mitmproxy options to rules: `rules import map_remote '|http://a/|http://b/'`.
    Import(ImportArgs),
    /// Print the JSON Schema of rule files.
    Schema,
    /// List held flows.
    Held(FormatArgs),
    /// Decide a held flow: continue, modify, answer, deny or drop.
    Decide(DecideArgs),
}

#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Rule files; `-` for stdin.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
pub struct FormatArgs {
    /// Output format: `table` or `json`.
    #[arg(long, default_value = "table", value_parser = ["table", "json"])]
    pub format: String,
}

impl FormatArgs {
    fn json(&self) -> bool {
        self.format == "json"
    }
}

#[derive(Debug, Args)]
pub struct RuleListArgs {
    /// Rule files [default: the rules of the running instance].
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// List the available actions instead.
    #[arg(long)]
    pub actions: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Flow ID, end of the ID, or `last`.
    #[arg(value_name = "FLOW")]
    pub flow: String,
    /// Rule files [default: those in the configuration].
    #[arg(long = "rules", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[cfg(feature = "compat")]
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Option: map_local, map_remote, modify_headers, modify_body, block_list, ignore_hosts, allow_hosts, stickycookie,
    /// stickyauth, anticache, anticomp or server_replay; or a mitmproxy `config.yaml` file.
    #[arg(value_name = "OPTION")]
    pub option: String,
    /// Values of the option.
    #[arg(value_name = "SPEC")]
    pub specs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct DecideArgs {
    /// Number of the held flow.
    #[arg(value_name = "NUMBER")]
    pub number: u64,
    /// Action to take.
    #[arg(value_name = "ACTION", value_parser = ["continue", "change", "answer", "deny", "drop"])]
    pub action: String,
    /// Replace the method.
    #[arg(long)]
    pub method: Option<String>,
    /// Replace the URL.
    #[arg(long)]
    pub url: Option<String>,
    /// Response status.
    #[arg(long)]
    pub status: Option<u16>,
    /// Header to set, `Name: value`; without a value it is removed (repeatable).
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
    /// Replace the body, or set that of the answer.
    #[arg(long)]
    pub body: Option<String>,
    /// Reason for the denial.
    #[arg(long)]
    pub reason: Option<String>,
}

pub fn run(command: &RuleFilesCommand, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    match command {
        RuleFilesCommand::Check(args) => files::check(args, config),
        RuleFilesCommand::List(args) if args.actions => files::actions(&args.format),
        RuleFilesCommand::List(args) if args.files.is_empty() => decide::active_rules(&args.format, home),
        RuleFilesCommand::List(args) => files::list(args, config),
        RuleFilesCommand::Explain(args) => files::explain(args, config, home),
        RuleFilesCommand::Test(args) => files::test(args, config),
        #[cfg(feature = "compat")]
        RuleFilesCommand::Import(args) => import::import(args, config),
        RuleFilesCommand::Schema => super::flows::print_json(&interflow_rules::schema()),
        RuleFilesCommand::Held(args) => decide::held_flows(args, home),
        RuleFilesCommand::Decide(args) => decide::decide(args, home),
    }
}
