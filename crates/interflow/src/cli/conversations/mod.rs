//! `interflow conversations`: lists, shows and exports conversations with language models.

mod export;
mod list;
mod show;

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use interflow_conversations::conversations::indexer::ConversationIndexer;
use interflow_conversations::conversations::{export::ExportFormat, load};
use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use interflow_store::{FlowStore, SqliteStore};

use crate::cli::flows::{ListFormat as ListForm, ProgressDisplay, open_for_reading};
use crate::instance::config::InterflowConfig;
use crate::{CliError, components};

#[derive(Debug, Subcommand)]
pub enum ConversationsCommand {
    /// List conversations, newest last.
    List(ConversationListArgs),
    /// Show one conversation: turns, tool calls, results, tokens, cost.
    Show(ConversationShowArgs),
    /// Export conversations to files: Markdown, JSONL, HTML or OpenTelemetry spans.
    Export(ConversationExportArgs),
    /// Rebuild all conversations from the recorded flows.
    Rebuild,
}

/// How a conversation is selected on the command line.
const ID: &str = "Conversation ID or a prefix of it, `last`, or `last-2` for the second before the last";

#[derive(Debug, Args)]
pub struct ConversationListArgs {
    /// Query: `agent:claude-code model:opus tokens:>100000 time:>-1d`; bare words search the title.
    pub query: Vec<String>,
    /// Maximum number of conversations, newest first.
    #[arg(short = 'n', long, default_value_t = 50)]
    pub limit: usize,
    /// Include sub-agents and utility calls that belong to no conversation.
    #[arg(long)]
    pub all: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = ListForm::Table)]
    pub format: ListForm,
}

#[derive(Debug, Args)]
pub struct ConversationShowArgs {
    #[arg(help = ID, default_value = "last")]
    pub id: String,
    /// Output format: text, json, markdown, jsonl, html or otel.
    #[arg(long, default_value = "text")]
    pub format: String,
    /// Show everything in full: reasoning, context, tool arguments and results.
    #[arg(long)]
    pub full: bool,
    /// Show what changed between requests, and why the provider's prompt cache hit or missed.
    #[arg(long)]
    pub changes: bool,
}

#[derive(Debug, Args)]
pub struct ConversationExportArgs {
    /// Conversation ID, or a query as for `list` [default: all].
    pub query: Vec<String>,
    /// Output format: markdown, jsonl, html, or otel (OpenTelemetry GenAI spans as OTLP JSON) [default: by file
    /// extension].
    #[arg(long)]
    pub format: Option<ExportFormat>,
    /// Output file, or directory for several conversations as markdown or html [default: stdout].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Send the spans to this collector instead of a file: `http://127.0.0.1:4318`. Requires `--format otel`.
    #[arg(long, value_name = "URL", conflicts_with = "output")]
    pub otlp: Option<String>,
}

pub fn run(command: ConversationsCommand, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    match command {
        ConversationsCommand::List(args) => list::list(&open_for_reading(config, home)?, &args),
        ConversationsCommand::Show(args) => show::show(&open_for_reading(config, home)?, &args),
        ConversationsCommand::Export(args) => export::export(&open_for_reading(config, home)?, &args),
        ConversationsCommand::Rebuild => rebuild(config, home),
    }
}

fn rebuild(config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    let exchanges = match InstanceApi::for_instance(home)? {
        Some(api) => {
            api.post("/conversations/rebuild", &serde_json::json!({}))?["exchanges"].as_u64().unwrap_or_default()
        }
        None => {
            let pricing = components::conversations::pricing(config, home)?;
            let store = SqliteStore::open(&home.join(&config.record.dir), &config.record)?;
            let mut progress = ProgressDisplay::new("reading exchanges");
            ConversationIndexer::new(&store, pricing).rebuild(&mut |n| progress.update(n, 0))?
        }
    };
    ignore_broken_pipe(writeln!(anstream::stdout(), "{exchanges} exchanges read"))
}

/// Finds a conversation by ID, ID prefix, `last` or `last-N`.
fn find(store: &dyn FlowStore, word: &str) -> Result<String, CliError> {
    let none = || {
        CliError::Failed(format!(
            "there is no conversation `{word}`; `interflow conversations list` shows them, and `rebuild` puts those of \
             flows together that were recorded or imported while no instance ran"
        ))
    };
    load::find_conversation(store, word)?.ok_or_else(none)
}

/// A closed pipe is not an error.
fn ignore_broken_pipe(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Failed(format!("could not write: {e}"))),
        _ => Ok(()),
    }
}
