//! `interflow conversations`: what was said to and by language models.

mod export;
mod list;
mod show;

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use interflow_conversations::conversations::indexer::ConversationIndexer;
use interflow_conversations::conversations::{export::ExportFormat, load};
use interflow_store::{FlowStore, SqliteStore};

use crate::config::InterflowConfig;
use crate::data_dir::DataDir;
use crate::flows::{InstanceApi, ListFormat as ListForm, ProgressDisplay, open_for_reading};
use crate::{CliError, components};

/// What can be done with conversations.
#[derive(Debug, Subcommand)]
pub enum ConversationsCommand {
    /// List conversations, the latest last.
    List(ConversationListArgs),
    /// Show one conversation: turns, tool calls, results, tokens, cost.
    Show(ConversationShowArgs),
    /// Write conversations to files: Markdown, JSONL, or one HTML page each.
    Export(ConversationExportArgs),
    /// Put all conversations together anew from the recorded flows.
    Rebuild,
}

/// How a conversation is named on the command line.
const ID: &str =
    "The conversation: its id, the beginning of its id, `last`, or `last-2` for the second before the last";

/// Which conversations are listed, and how.
#[derive(Debug, Args)]
pub struct ConversationListArgs {
    /// The query: `agent:claude-code model:opus tokens:>100000 time:>-1d`; bare words search the title.
    pub query: Vec<String>,
    /// At most so many, the latest ones.
    #[arg(short = 'n', long, default_value_t = 50)]
    pub limit: usize,
    /// Also sub-agents, and utility calls that belong to no conversation.
    #[arg(long)]
    pub all: bool,
    /// The form.
    #[arg(long, value_enum, default_value_t = ListForm::Table)]
    pub format: ListForm,
}

/// One conversation, and how it is shown.
#[derive(Debug, Args)]
pub struct ConversationShowArgs {
    #[arg(help = ID, default_value = "last")]
    pub id: String,
    /// The form: text, json, markdown, jsonl, html or otel.
    #[arg(long, default_value = "text")]
    pub format: String,
    /// Everything in full: thoughts, context, whole arguments and results.
    #[arg(long)]
    pub full: bool,
    /// What changed from request to request, and why the provider's cache gave what it gave.
    #[arg(long)]
    pub changes: bool,
}

/// What is written where.
#[derive(Debug, Args)]
pub struct ConversationExportArgs {
    /// A conversation's id, or a query as for `list`; everything when it is empty.
    pub query: Vec<String>,
    /// The form: markdown, jsonl, html, or otel for OpenTelemetry's GenAI spans (OTLP in JSON). Told by the file's name when it is not given.
    #[arg(long)]
    pub format: Option<ExportFormat>,
    /// The file; a folder when there are several conversations and the form is markdown or html. Standard output when it
    /// is not given.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Send the spans to this collector in place of a file: `http://127.0.0.1:4318`. Only with the form otel.
    #[arg(long, value_name = "URL", conflicts_with = "output")]
    pub otlp: Option<String>,
}

/// Does it.
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

/// The conversation that a word names.
fn find(store: &dyn FlowStore, word: &str) -> Result<String, CliError> {
    let none = || {
        CliError::Failed(format!(
            "there is no conversation `{word}`; `interflow conversations list` shows them, and `rebuild` puts those of \
             flows together that were recorded or imported while no instance ran"
        ))
    };
    load::find_conversation(store, word)?.ok_or_else(none)
}

/// A reader that went away is no failure.
fn ignore_broken_pipe(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Failed(format!("could not write: {e}"))),
        _ => Ok(()),
    }
}
