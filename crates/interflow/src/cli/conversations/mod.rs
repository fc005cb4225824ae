//! `interflow conversations`: lists, shows and exports conversations with language models.

mod cache;
mod export;
mod list;
mod search;
mod show;
mod tag;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};
use interflow_admin::{OfflineDeps, RebuildFn};
use interflow_conversations::conversations::indexer::ConversationIndexer;
use interflow_conversations::conversations::{export::ExportFormat, load};
use interflow_host::data_dir::DataDir;
use interflow_store::FlowStore;

use crate::cli::flows::{AnnotationArgs, ProgressDisplay, open_for_reading};
use crate::cli::operations::{OperationId, open_to_write, operations};
use crate::cli::output::{FormatArgs, ListFormat, OutputFormat, TextFormat, ignore_broken_pipe, one_of};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result, components};

#[derive(Debug, Subcommand)]
pub enum ConversationsCommand {
    /// List the newest conversations, the newest last.
    List(ConversationListArgs),
    /// Show one conversation: turns, tool calls, results, tokens, cost.
    Show(ConversationShowArgs),
    /// Export conversations to files: Markdown, JSONL, HTML or OpenTelemetry spans.
    Export(ConversationExportArgs),
    /// Show where the provider's prompt cache broke in a conversation, why, and what that cost.
    Cache(ConversationCacheArgs),
    /// Search the texts of conversations: prompts, replies, arguments and results of tools.
    Search(ConversationSearchArgs),
    /// Change the tags and the comment of a conversation, or of one of its messages.
    Tag(ConversationTagArgs),
    /// Rebuild all conversations from the recorded flows.
    Rebuild,
}

/// How a conversation is selected on the command line.
const ID: &str = "Conversation ID or a prefix of it, `last`, or `last-2` for the second before the last";

#[derive(Debug, Args)]
pub struct ConversationListArgs {
    /// Query: `agent:claude-code model:opus tokens:>100000 time:>-1d`; bare words search the title.
    pub query: Vec<String>,
    /// Maximum number of conversations: the newest ones that match.
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    pub limit: usize,
    /// Include sub-agents and utility calls that belong to no conversation.
    #[arg(long)]
    pub all: bool,
    /// Print the newest conversation first instead of last.
    #[arg(short, long)]
    pub reverse: bool,
    #[command(flatten)]
    pub format: FormatArgs<ListFormat>,
}

#[derive(Debug, Args)]
pub struct ConversationShowArgs {
    #[arg(help = ID, default_value = "last")]
    pub id: String,
    #[command(flatten)]
    pub format: FormatArgs<ShowFormat>,
    /// Show everything in full: reasoning, context, tool arguments and results.
    #[arg(long)]
    pub full: bool,
    /// Show what changed between requests, and why the provider's prompt cache hit or missed.
    #[arg(long)]
    pub changes: bool,
}

#[derive(Debug, Args)]
pub struct ConversationCacheArgs {
    #[arg(help = ID, default_value = "last")]
    pub id: String,
    #[command(flatten)]
    pub format: FormatArgs<TextFormat>,
}

#[derive(Debug, Args)]
pub struct ConversationSearchArgs {
    /// The text, whatever its case.
    pub text: String,
    /// Query that selects the conversations to search, as for `list`.
    pub query: Vec<String>,
    /// Maximum number of conversations: the newest ones that contain the text.
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    pub limit: usize,
    /// Include sub-agents and utility calls that belong to no conversation.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub format: FormatArgs<ListFormat>,
}

#[derive(Debug, Args)]
pub struct ConversationTagArgs {
    #[arg(help = ID)]
    pub id: String,
    #[command(flatten)]
    pub change: AnnotationArgs,
    /// Key of the message to change instead of the conversation (`show --format json` has them).
    #[arg(long, value_name = "KEY")]
    pub message: Option<String>,
}

#[derive(Debug, Args)]
pub struct ConversationExportArgs {
    /// Conversation ID, or a query as for `list` [default: all].
    pub query: Vec<String>,
    /// Output format [default: by file extension, or markdown].
    #[arg(short, long, value_parser = one_of(&EXPORT_FORMATS, export_format))]
    pub format: Option<ExportFormat>,
    /// Output file, or directory for several conversations as markdown or html [default: stdout].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Send the spans to this collector instead of a file: `http://127.0.0.1:4318`. Requires `--format otel`.
    #[arg(long, value_name = "URL", conflicts_with = "output")]
    pub otlp: Option<String>,
}

/// Formats of one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShowFormat {
    Text,
    Json,
    Export(ExportFormat),
}

const EXPORT_FORMATS: [ExportFormat; 4] =
    [ExportFormat::Markdown, ExportFormat::Jsonl, ExportFormat::Html, ExportFormat::Otel];

fn export_format(format: ExportFormat) -> PossibleValue {
    match format {
        ExportFormat::Markdown => PossibleValue::new("markdown").help("Markdown"),
        ExportFormat::Jsonl => PossibleValue::new("jsonl").help("One JSON object per line"),
        ExportFormat::Html => PossibleValue::new("html").help("One HTML file"),
        ExportFormat::Otel => PossibleValue::new("otel").help("OpenTelemetry GenAI spans as an OTLP/JSON request"),
    }
}

impl ValueEnum for ShowFormat {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [ShowFormat; 6] = [
            ShowFormat::Text,
            ShowFormat::Json,
            ShowFormat::Export(ExportFormat::Markdown),
            ShowFormat::Export(ExportFormat::Jsonl),
            ShowFormat::Export(ExportFormat::Html),
            ShowFormat::Export(ExportFormat::Otel),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Text => PossibleValue::new("text").help("Text for people"),
            Self::Json => PossibleValue::new("json").help("One JSON document"),
            Self::Export(format) => export_format(*format),
        })
    }
}

impl OutputFormat for ShowFormat {
    const JSON: Self = Self::Json;
    const DEFAULT: &'static str = "text";
}

pub fn run(command: ConversationsCommand, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    match command {
        ConversationsCommand::List(args) => list::list(&*open_for_reading(config, home)?, &args),
        ConversationsCommand::Show(args) => show::show(&*open_for_reading(config, home)?, &args),
        ConversationsCommand::Export(args) => export::export(&*open_for_reading(config, home)?, &args),
        ConversationsCommand::Cache(args) => cache::cache(&*open_for_reading(config, home)?, &args, config, home),
        ConversationsCommand::Search(args) => search::search(&*open_for_reading(config, home)?, &args),
        ConversationsCommand::Tag(args) => tag::tag(&args, config, home),
        ConversationsCommand::Rebuild => rebuild(config, home),
    }
}

fn rebuild(config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let open = || {
        let pricing = components::conversations::pricing(config, home)?;
        let store = open_to_write(config, home)?.flows();
        let rebuild: RebuildFn = Box::new(move || {
            let mut progress = ProgressDisplay::new("reading exchanges");
            ConversationIndexer::new(&*store, Arc::clone(&pricing)).rebuild(&mut |n| progress.update(n, 0))
        });
        Ok(OfflineDeps { rebuild: Some(rebuild), ..OfflineDeps::default() })
    };
    let rebuilt = operations(config, home, open)?.call(&OperationId::RebuildConversations.call())?;
    let exchanges = rebuilt["exchanges"].as_u64().unwrap_or_default();
    ignore_broken_pipe(writeln!(interflow_host::terminal::stdout(), "{exchanges} exchanges read"))
}

/// Finds a conversation by ID, ID prefix, `last` or `last-N`.
fn find(store: &dyn FlowStore, word: &str) -> Result<String> {
    let none = || {
        CliError::Failed(format!(
            "there is no conversation `{word}`; `interflow conversations list` shows them, and `rebuild` puts those of \
             flows together that were recorded or imported while no instance ran"
        ))
    };
    load::find_conversation(store, word)?.ok_or_else(none)
}
