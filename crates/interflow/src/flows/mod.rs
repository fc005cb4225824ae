//! `interflow flows`: what was recorded.

pub mod api;
mod archive;
mod compressed_output;
mod diff;
mod list;
mod maintenance;
mod negated_terms;
pub mod open;
mod progress;
mod replay;
mod show;
mod store_access;
mod table;
mod tail;

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use interflow_archive::ArchiveFormat;
use interflow_archive::pcapng::PacketSides;
use interflow_archive::view::ProtoSchemas;
use interflow_types::units::HumanDuration;

pub use api::InstanceApi;
pub use negated_terms::normalize_negated_terms;
pub use open::open_for_reading;
pub use progress::ProgressDisplay;
pub use store_access::StoreAccess;
pub use table::width;

use crate::CliError;
use crate::config::InterflowConfig;
use crate::data_dir::DataDir;

/// What can be done with recorded flows.
#[derive(Debug, Subcommand)]
pub enum FlowsCommand {
    /// List flows, the latest last.
    List(FlowListArgs),
    /// Show one flow whole: heads, bodies, messages, timings.
    Show(FlowShowArgs),
    /// Follow flows as they end.
    Tail(TailArgs),
    /// Write flows to a file: HAR, JSONL, packets, other tools' archives, curl command lines, and more.
    Export(FlowExportArgs),
    /// Take up the flows of archives: HAR, JSONL, SAZ, Fluxzy's, mitmproxy's.
    Import {
        /// The files, told by what is in them; `-` for standard input. A folder is a recording of Fluxzy's.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Send a recorded request again, changed perhaps.
    Replay(ReplayArgs),
    /// Show what differs between two flows.
    Diff {
        /// The first flow.
        a: String,
        /// The second flow.
        b: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete flows and give their disk space back; asks first.
    Prune(PruneArgs),
    /// Verify the store: every row, every body.
    Check {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Figures of the store.
    Stats {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put tags on a flow, or take them off.
    Tag(TagArgs),
    /// Count the flows of a query.
    Count(QueryArgs),
}

/// How a flow is named on the command line.
const ID: &str = "The flow: its id, the end of its id, `last`, or `last-2` for the second before the last";

/// Which flows.
#[derive(Debug, Args)]
#[command(after_long_help = interflow_query::help())]
pub struct QueryArgs {
    /// The query: `host:api.example.com status:>=400`; everything when it is empty.
    pub query: Vec<String>,
}

/// Which flows, and how they are shown.
#[derive(Debug, Args)]
pub struct FlowListArgs {
    #[command(flatten)]
    pub select: QueryArgs,
    /// At most so many, the latest ones.
    #[arg(short = 'n', long, default_value_t = 50)]
    pub limit: usize,
    /// All of them.
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
    /// The form.
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    pub format: ListFormat,
}

/// The form of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Columns for people.
    Table,
    /// One JSON object per line.
    Jsonl,
}

/// One flow, and how it is shown.
#[derive(Debug, Args)]
pub struct FlowShowArgs {
    #[arg(help = ID)]
    pub id: String,
    /// The form: `text`, `json`, or one of the export formats (curl, raw, har, fetch, python, httpie, jsonl).
    #[arg(long, default_value = "text")]
    pub format: String,
    /// Only this body, its bytes as they were sent.
    #[arg(long, value_enum, value_name = "SIDE", conflicts_with = "format")]
    pub body: Option<SideArg>,
    /// With --body: content coding (gzip, br, …) undone.
    #[arg(long, requires = "body")]
    pub decoded: bool,
    /// What came in, where rules or somebody who held it edited it: the client's request, the origin's response.
    #[arg(long)]
    pub original: bool,
    /// The most that is shown of a body in text form, in bytes.
    #[arg(long, default_value_t = 16 << 10, value_name = "BYTES")]
    pub max_body: usize,
    /// Schemas for gRPC and Protocol Buffers: a .proto file, a folder of them, or a descriptor set; may be repeated.
    #[arg(long, value_name = "PATH")]
    pub proto: Vec<PathBuf>,
}

/// A side of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SideArg {
    /// What the client sent.
    Request,
    /// What the origin answered.
    Response,
}

impl From<SideArg> for interflow_types::Direction {
    fn from(side: SideArg) -> Self {
        match side {
            SideArg::Request => Self::Request,
            SideArg::Response => Self::Response,
        }
    }
}

/// What is followed.
#[derive(Debug, Args)]
pub struct TailArgs {
    #[command(flatten)]
    pub select: QueryArgs,
    /// So many flows that have ended already are shown first.
    #[arg(short = 'n', long, default_value_t = 10)]
    pub limit: usize,
    /// The form.
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    pub format: ListFormat,
}

/// What is written where.
#[derive(Debug, Args)]
pub struct FlowExportArgs {
    #[command(flatten)]
    pub select: QueryArgs,
    /// The format: har, jsonl, saz, fxzy, mitm, pcapng, curl, httpie, fetch, python, raw, raw-request, raw-response,
    /// table. Told by the file's name when it is not given.
    #[arg(long)]
    pub format: Option<ArchiveFormat>,
    /// With pcapng: the packets of this leg: client, upstream or both.
    #[arg(long, default_value = "client", value_name = "LEG")]
    pub leg: PacketSides,
    /// With pcapng: the secrets that decrypt the packets, written here too (they stand in the packets' file as well).
    #[arg(long, value_name = "FILE")]
    pub keylog: Option<PathBuf>,
    /// With jsonl: edited requests and responses as they came in too, so that an import has them again.
    #[arg(long)]
    pub originals: bool,
    /// The file; standard output when it is not given.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What is sent again.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[arg(help = ID)]
    pub id: String,
    /// Another method.
    #[arg(long)]
    pub method: Option<String>,
    /// Another URL, or another path (`/v2?x=1`) at the same origin.
    #[arg(long)]
    pub url: Option<String>,
    /// A header field: `Name: value` sets it, `Name:` takes it out, `Name;` makes it empty.
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
    /// Another body: a text, `@FILE`, or `@-` for standard input.
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
    /// Accept any certificate from the origin (only where no instance runs).
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What is deleted.
#[derive(Debug, Args)]
pub struct PruneArgs {
    #[command(flatten)]
    pub select: QueryArgs,
    /// Only flows that began longer ago than this: 7d, 12h.
    #[arg(long, value_name = "AGE")]
    pub older: Option<HumanDuration>,
    /// Every flow.
    #[arg(long)]
    pub all: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
}

/// Marks on a flow.
#[derive(Debug, Args)]
pub struct TagArgs {
    #[arg(help = ID)]
    pub id: String,
    /// The tags.
    pub tags: Vec<String>,
    /// Take them off.
    #[arg(long)]
    pub remove: bool,
    /// A comment; an empty one takes it away.
    #[arg(long)]
    pub comment: Option<String>,
}

/// Runs one of the commands.
pub fn run(command: FlowsCommand, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    match command {
        FlowsCommand::List(args) => list::list(&open::open_for_reading(config, home)?, &args),
        FlowsCommand::Show(args) => {
            let configured = config.record.schemas.iter().map(|p| home.join(p));
            let schemas = ProtoSchemas::load(&configured.chain(args.proto.iter().cloned()).collect::<Vec<_>>());
            let schemas = schemas.map_err(|e| CliError::Failed(e.to_string()))?;
            show::show(&open::open_for_reading(config, home)?, &args, &schemas)
        }
        FlowsCommand::Tail(args) => tail::tail(&args, config, home),
        FlowsCommand::Export(args) => archive::export(&open::open_for_reading(config, home)?, &args),
        FlowsCommand::Import { files } => archive::import(&files, config, home),
        FlowsCommand::Replay(args) => replay::replay(&args, config, home),
        FlowsCommand::Diff { a, b, json } => diff::diff(&open::open_for_reading(config, home)?, &a, &b, json),
        FlowsCommand::Prune(args) => maintenance::prune(&args, config, home),
        FlowsCommand::Check { json } => maintenance::check(&open::open_for_reading(config, home)?, json),
        FlowsCommand::Stats { json } => maintenance::stats(json, config, home),
        FlowsCommand::Tag(args) => maintenance::tag(&args, config, home),
        FlowsCommand::Count(args) => maintenance::count(&open::open_for_reading(config, home)?, &args),
    }
}

/// Output that could not be written is a failure, unless the reader has seen enough (`head`).
fn ignore_broken_pipe(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Failed(format!("output failed: {e}"))),
        _ => Ok(()),
    }
}

/// Prints a value as JSON for programs and people.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    use io::Write as _;
    let text = serde_json::to_string_pretty(value).map_err(|e| format!("this cannot be shown as JSON: {e}"))?;
    ignore_broken_pipe(writeln!(io::stdout().lock(), "{text}"))
}

impl From<interflow_store::StoreError> for CliError {
    fn from(error: interflow_store::StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}
