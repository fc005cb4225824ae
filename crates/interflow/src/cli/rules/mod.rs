//! `interflow rules`: checks, lists, explains and tests rule files.

pub mod files;
mod proposals;
pub mod topic;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use interflow_host::data_dir::DataDir;

use super::output::{FormatArgs, TableFormat, TextFormat};
use crate::Result;
use crate::instance::config::InterflowConfig;

#[derive(Debug, Subcommand)]
pub enum RuleFilesCommand {
    /// Check rule files for errors, including those of other programs.
    Check(FilesArgs),
    /// List the rules in files, or those of the running instance with match counts.
    List(RuleListArgs),
    /// Explain for each rule why it did or did not match a recorded flow, and in which phase.
    Explain(ExplainArgs),
    /// Run the test cases in the rule files.
    Test(FilesArgs),
    /// Print the JSON Schema of rule files.
    Schema,
    /// List the rules that agents propose over MCP, and what they would match.
    Proposals(FormatArgs<TextFormat>),
    /// Add proposed rules to a rule file of the running instance, and activate it.
    Apply {
        /// Number of the proposal.
        id: u64,
        /// The rule file, as `rules list` names it [default: the only one].
        #[arg(long, value_name = "FILE")]
        file: Option<String>,
    },
    /// Dismiss proposed rules.
    Dismiss {
        /// Number of the proposal.
        id: u64,
    },
}

#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Rule files; `-` for stdin.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs<TextFormat>,
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
    pub format: FormatArgs<TableFormat>,
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
    pub format: FormatArgs<TextFormat>,
}

pub fn run(command: &RuleFilesCommand, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    match command {
        RuleFilesCommand::Check(args) => files::check(args, config),
        RuleFilesCommand::List(args) if args.actions => files::actions(&args.format),
        RuleFilesCommand::List(args) if args.files.is_empty() => files::active_rules(&args.format, home),
        RuleFilesCommand::List(args) => files::list(args, config),
        RuleFilesCommand::Explain(args) => files::explain(args, config, home),
        RuleFilesCommand::Test(args) => files::test(args, config),
        RuleFilesCommand::Proposals(format) => proposals::list(format, home),
        RuleFilesCommand::Apply { id, file } => proposals::apply(*id, file.as_deref(), home),
        RuleFilesCommand::Dismiss { id } => proposals::dismiss(*id, home),
        RuleFilesCommand::Schema => super::output::print_json(&interflow_rules::schema()),
    }
}
