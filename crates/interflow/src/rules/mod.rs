//! `interflow rules`: rule files checked, listed, explained, tested and imported; held flows decided about.

mod decide;
mod files;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::CliError;
use crate::config::InterflowConfig;
use crate::data_dir::DataDir;

#[derive(Debug, Subcommand)]
pub enum RuleFilesCommand {
    /// Read rule files and say what is wrong with them, and what of a Fluxzy file was broken there.
    Check(FilesArgs),
    /// List the rules of files, or of the running instance with how often each matched.
    List(RuleListArgs),
    /// Say for each rule why it did or did not match a recorded flow, in which phase.
    Explain(ExplainArgs),
    /// Carry out the expectations written beside the rules.
    Test(FilesArgs),
    /// Turn mitmproxy's options into rules: `rules import map_remote '|http://a/|http://b/'`.
    Import(ImportArgs),
    /// Print the JSON Schema of rule files.
    Schema,
    /// List the flows that wait for a decision.
    Held(FormatArgs),
    /// Decide about a flow that waits: continue, change, answer, deny or drop.
    Decide(DecideArgs),
}

#[derive(Debug, Args)]
pub struct FilesArgs {
    /// The rule files; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
pub struct FormatArgs {
    /// `table`, or `json`.
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
    /// The rule files; without any, the running instance is asked.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// List what rules can do instead.
    #[arg(long)]
    pub actions: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The flow: its id, the end of it, or `last`.
    #[arg(value_name = "FLOW")]
    pub flow: String,
    /// The rule files; those of the configuration otherwise.
    #[arg(long = "rules", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The option: map_local, map_remote, modify_headers, modify_body, block_list, ignore_hosts, allow_hosts, stickycookie,
    /// stickyauth, anticache, anticomp or server_replay; or a file, mitmproxy's `config.yaml`.
    #[arg(value_name = "OPTION")]
    pub option: String,
    /// Its values.
    #[arg(value_name = "SPEC")]
    pub specs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct DecideArgs {
    /// The number of the held flow.
    #[arg(value_name = "NUMBER")]
    pub number: u64,
    /// What shall happen.
    #[arg(value_name = "ACTION", value_parser = ["continue", "change", "answer", "deny", "drop"])]
    pub action: String,
    /// Another method.
    #[arg(long)]
    pub method: Option<String>,
    /// Another URL.
    #[arg(long)]
    pub url: Option<String>,
    /// Another status, or the answer's.
    #[arg(long)]
    pub status: Option<u16>,
    /// A field to set, `Name: value`; without a value it is taken out (repeat for several).
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
    /// Another body, or the answer's.
    #[arg(long)]
    pub body: Option<String>,
    /// Why it is denied.
    #[arg(long)]
    pub reason: Option<String>,
}

/// Runs the command.
pub fn run(command: &RuleFilesCommand, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    match command {
        RuleFilesCommand::Check(args) => files::check(args, config),
        RuleFilesCommand::List(args) if args.actions => files::actions(&args.format),
        RuleFilesCommand::List(args) if args.files.is_empty() => decide::active_rules(&args.format, home),
        RuleFilesCommand::List(args) => files::list(args, config),
        RuleFilesCommand::Explain(args) => files::explain(args, config, home),
        RuleFilesCommand::Test(args) => files::test(args, config),
        RuleFilesCommand::Import(args) => files::import(args, config),
        RuleFilesCommand::Schema => super::flows::print_json(&interflow_rules::schema()),
        RuleFilesCommand::Held(args) => decide::held_flows(args, home),
        RuleFilesCommand::Decide(args) => decide::decide(args, home),
    }
}
