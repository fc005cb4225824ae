//! `interflow flows`: commands on recorded flows.

mod archive;
mod compressed_output;
mod diff;
mod formats;
mod list;
mod maintenance;
mod negated_terms;
pub mod open;
mod progress;
mod replay;
pub mod show;
pub mod table;
mod tail;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use interflow_archive::ArchiveFormat;
use interflow_archive::pcapng::PacketSides;
use interflow_archive::view::ProtoSchemas;
use interflow_host::data_dir::DataDir;
use interflow_types::Direction;
use interflow_types::units::HumanDuration;
use serde_json::{Value, json};

pub use archive::import as import_archives;
pub use formats::{ShowFormat, TailFormat};
pub use negated_terms::normalize_negated_terms;
pub use open::open_for_reading;
pub use progress::ProgressDisplay;
pub use replay::read_body_argument;

use super::output::{FormatArgs, ListFormat, TextFormat, one_of};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

#[derive(Debug, Subcommand)]
pub enum FlowsCommand {
    /// List the newest flows, the newest last.
    List(FlowListArgs),
    /// Show a flow: headers, bodies, messages, timings.
    Show(FlowShowArgs),
    /// Print flows as they complete.
    Tail(TailArgs),
    /// Export flows: HAR, JSONL, pcapng, Parquet, archives of other tools, curl commands and more.
    Export(FlowExportArgs),
    /// Import flows from archive files: HAR, JSONL, SAZ, Fluxzy, mitmproxy.
    Import {
        /// Archive files, detected by content; `-` for stdin. A directory is a Fluxzy recording.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Replay a recorded request, optionally modified.
    Replay(ReplayArgs),
    /// Show the differences between two flows.
    Diff {
        /// First flow.
        a: String,
        /// Second flow.
        b: String,
        #[command(flatten)]
        format: FormatArgs<TextFormat>,
    },
    /// Delete flows and reclaim disk space; asks for confirmation.
    Prune(PruneArgs),
    /// Verify the integrity of the recording.
    Check(FormatArgs<TextFormat>),
    /// Show the number of recorded flows and their size on disk.
    Stats(FormatArgs<TextFormat>),
    /// Add or remove tags of a flow, or set its comment.
    Tag(TagArgs),
    /// Count the flows that match a query.
    Count(CountArgs),
}

const QUERY_HELP: &str = "`interflow help query` describes the query language.";

/// How a flow is selected on the command line.
const ID: &str = "Flow ID or the end of it, `last`, or `last-2` for the second before the last";

#[derive(Debug, Args)]
#[command(after_long_help = QUERY_HELP)]
pub struct QueryArgs {
    /// Query: `host:api.example.com status:>=400` [default: all flows].
    pub query: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CountArgs {
    #[command(flatten)]
    pub select: QueryArgs,
    #[command(flatten)]
    pub format: FormatArgs<TextFormat>,
}

#[derive(Debug, Args)]
pub struct FlowListArgs {
    #[command(flatten)]
    pub select: QueryArgs,
    /// Maximum number of flows: the newest ones that match.
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    pub limit: usize,
    /// Show all flows.
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
    /// Print the newest flow first instead of last.
    #[arg(short, long)]
    pub reverse: bool,
    #[command(flatten)]
    pub format: FormatArgs<ListFormat>,
}

#[derive(Debug, Args)]
pub struct FlowShowArgs {
    #[arg(help = ID)]
    pub id: String,
    #[command(flatten)]
    pub format: FormatArgs<ShowFormat>,
    /// Print only this body, as sent on the wire.
    #[arg(long, value_name = "SIDE", conflicts_with_all = ["format", "json"])]
    #[arg(value_parser = one_of(&formats::BODIES, formats::body))]
    pub body: Option<Direction>,
    /// With --body: decompress the content coding (gzip, br, …).
    #[arg(long, requires = "body")]
    pub decoded: bool,
    /// Show request and response as received, before edits by rules or breakpoints.
    #[arg(long)]
    pub original: bool,
    /// Maximum bytes of a body to show in text format.
    #[arg(long, default_value_t = 16 << 10, value_name = "BYTES")]
    pub max_body: usize,
    /// Schema for gRPC and Protocol Buffers: a .proto file, a directory of them, or a descriptor set (repeatable).
    #[arg(long, value_name = "PATH")]
    pub proto: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TailArgs {
    #[command(flatten)]
    pub select: QueryArgs,
    /// Print this number of completed flows first.
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    pub limit: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = TailFormat::Table)]
    pub format: TailFormat,
}

#[derive(Debug, Args)]
pub struct FlowExportArgs {
    #[command(flatten)]
    pub select: QueryArgs,
    /// Output format [default: by file extension, or har].
    #[arg(short, long, value_parser = one_of(ArchiveFormat::ALL, formats::archive_format))]
    pub format: Option<ArchiveFormat>,
    /// With pcapng: side to export.
    #[arg(long, default_value = "client", value_name = "SIDE", value_parser = one_of(&formats::SIDES, formats::side))]
    pub leg: PacketSides,
    /// With pcapng: also write the TLS secrets to this file (the pcapng file contains them, too).
    #[arg(long, value_name = "FILE")]
    pub keylog: Option<PathBuf>,
    /// With jsonl: include requests and responses as received, before edits, so that an import restores them.
    #[arg(long)]
    pub originals: bool,
    /// With parquet: include the recorded bodies.
    #[arg(long)]
    pub bodies: bool,
    /// Output file [default: stdout].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[arg(help = ID)]
    pub id: String,
    /// Replace the method.
    #[arg(long)]
    pub method: Option<String>,
    /// Replace the URL, or the path (`/v2?x=1`) on the same origin.
    #[arg(long)]
    pub url: Option<String>,
    /// Header: `Name: value` sets it, `Name:` removes it, `Name;` sends it empty (repeatable).
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
    /// Replace the body: text, `@FILE`, or `@-` for stdin.
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
    /// Do not verify the upstream certificate (only if no instance is running).
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    #[command(flatten)]
    pub format: FormatArgs<TextFormat>,
}

#[derive(Debug, Args)]
#[command(after_long_help = QUERY_HELP)]
pub struct PruneArgs {
    /// Query that selects the flows to delete: `host:api.example.com status:>=400`.
    pub query: Vec<String>,
    /// Delete only flows older than this: 7d, 12h.
    #[arg(long, value_name = "AGE")]
    pub older: Option<HumanDuration>,
    /// Delete all flows.
    #[arg(long)]
    pub all: bool,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct TagArgs {
    #[arg(help = ID)]
    pub id: String,
    #[command(flatten)]
    pub change: AnnotationArgs,
}

/// Tags and a comment, of a flow or a conversation.
#[derive(Debug, Args)]
pub struct AnnotationArgs {
    /// Tags to add.
    pub tags: Vec<String>,
    /// Remove the tags instead of adding them.
    #[arg(long)]
    pub remove: bool,
    /// Set the comment; an empty text removes it.
    #[arg(long)]
    pub comment: Option<String>,
}

impl AnnotationArgs {
    /// The change to make. `example` is a command that adds a tag, for the error message.
    ///
    /// # Errors
    /// Nothing to change, or a tag that is empty or has control characters.
    pub fn annotation(&self, example: &str) -> Result<Value> {
        if self.tags.is_empty() && self.comment.is_none() {
            return Err(CliError::Usage(format!(
                "nothing to change: `{example}` adds a tag, --remove removes it, --comment sets the comment"
            )));
        }
        if let Some(bad) = self.tags.iter().find(|t| t.is_empty() || t.contains(char::is_control)) {
            return Err(CliError::Usage(format!("`{}` is not a valid tag", bad.escape_default())));
        }
        let tags = self.tags.clone();
        let (add_tags, remove_tags) = if self.remove { (Vec::new(), tags) } else { (tags, Vec::new()) };
        Ok(json!({"add_tags": add_tags, "remove_tags": remove_tags, "comment": self.comment}))
    }
}

pub fn run(command: FlowsCommand, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    match command {
        FlowsCommand::List(args) => list::list(&*open::open_for_reading(config, home)?, &args),
        FlowsCommand::Show(args) => {
            let configured = config.record.schemas.iter().map(|p| home.join(p));
            let schemas = ProtoSchemas::load(&configured.chain(args.proto.iter().cloned()).collect::<Vec<_>>());
            let schemas = schemas.map_err(|e| CliError::Failed(e.to_string()))?;
            show::show(&*open::open_for_reading(config, home)?, &args, &schemas)
        }
        FlowsCommand::Tail(args) => tail::tail(&args, config, home),
        FlowsCommand::Export(args) => archive::export(&*open::open_for_reading(config, home)?, &args),
        FlowsCommand::Import { files } => archive::import(&files, None, config, home),
        FlowsCommand::Replay(args) => replay::replay(&args, config, home),
        FlowsCommand::Diff { a, b, format } => {
            diff::diff(&*open::open_for_reading(config, home)?, &a, &b, format.is_json())
        }
        FlowsCommand::Prune(args) => maintenance::prune(&args, config, home),
        FlowsCommand::Check(format) => maintenance::check(&*open::open_for_reading(config, home)?, &format),
        FlowsCommand::Stats(format) => maintenance::stats(format.is_json(), config, home),
        FlowsCommand::Tag(args) => maintenance::tag(&args, config, home),
        FlowsCommand::Count(args) => maintenance::count(&*open::open_for_reading(config, home)?, &args),
    }
}
