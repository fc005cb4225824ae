//! The benchmark harness of Interflow: load generator, origins, peers, tables and report.
#![forbid(unsafe_code)]

mod charts;
mod instructions;
mod load;
mod measure;
mod peers;
mod plot;
mod process;
mod relay;
mod report;
mod rule_cases;
mod rule_set;
mod summary;
mod tables;
mod testbed;
mod upstreams;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Any failure of the harness; its message is for the person who runs it.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// Measures Interflow beside its peers on this machine.
#[derive(Parser)]
#[command(name = "interflow-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run tables, write their results, and make the report from all results there are.
    Run(RunArgs),
    /// Make the report, the plots and docs/explanation/performance.md from the results there are.
    Report(Places),
    /// Install the peers that are missing, start each, ask for one page, and show their versions.
    Peers {
        /// Only peers whose name holds this.
        only: Option<String>,
    },
    /// One load run: the spec as JSON in, the outcome as JSON out.
    Load {
        /// The spec.
        spec: String,
    },
    /// Count the instructions of the hot paths under callgrind and compare with the committed counts.
    Instructions {
        /// Write the counts in place of comparing them.
        #[arg(long)]
        update: bool,
        /// Only cases whose name holds this.
        #[arg(long, default_value = "")]
        only: String,
        /// Run one case's rounds (what callgrind watches).
        #[arg(long)]
        case: Option<String>,
        /// The committed counts.
        #[arg(long, default_value = "bench/instructions.json")]
        committed: PathBuf,
    },
    /// A bare TCP relay, the physical floor of a proxy.
    Relay {
        /// Where it listens.
        listen: SocketAddr,
        /// What it dials for each connection.
        dial: SocketAddr,
    },
}

#[derive(clap::Args)]
struct RunArgs {
    /// Tables (`--list` names them). All of them when none is named, but `endurance`, `llm-gateway`, `fleet` and `start` only
    /// with `--full`.
    tables: Vec<String>,
    /// Only name the tables, and what each is about.
    #[arg(long)]
    list: bool,
    /// Longer runs, more of them, and every case.
    #[arg(long)]
    full: bool,
    /// Only arms whose name holds one of these (the direct row always runs).
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Only cases whose name holds this; one that only the full form has runs too when this is its whole name. The results
    /// of the other cases stay.
    #[arg(long)]
    case: Option<String>,
    /// Interleaved repetitions of each row.
    #[arg(long)]
    repeats: Option<usize>,
    /// Counted seconds of each run.
    #[arg(long)]
    seconds: Option<f64>,
    /// Table `endurance`: minutes of the soak (30 with `--full`, else 1).
    #[arg(long)]
    minutes: Option<f64>,
    /// Table `endurance`: flows after which memory is looked at (1,000,000 with `--full`, else 50,000).
    #[arg(long)]
    flows: Option<u64>,
    /// Bind the proxies to the last core, generator and origins to the others.
    #[arg(long)]
    pin: bool,
    /// What a reader must know of the circumstances; the report shows it with the table.
    #[arg(long)]
    note: Option<String>,
    #[command(flatten)]
    places: Places,
}

#[derive(clap::Args, Clone)]
struct Places {
    /// Where the results are.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
    /// The page to be made from them.
    #[arg(long, default_value = "docs/explanation/performance.md")]
    page: PathBuf,
}

fn main() {
    if let Err(e) = raise_descriptor_limit().and_then(|()| run(Cli::parse().command)) {
        eprintln!("interflow-bench: {e}");
        std::process::exit(1);
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Load { spec } => load::run(serde_json::from_str(&spec)?),
        Command::Relay { listen, dial } => relay::run(listen, dial),
        Command::Instructions { case: Some(case), .. } => instructions::run_case(&case),
        Command::Instructions { update, committed, only, .. } => instructions::check(&committed, update, &only),
        Command::Peers { only } => peers::try_all(only.as_deref()),
        Command::Report(places) => report::write(&places.results, &places.page),
        Command::Run(RunArgs { list: true, .. }) => {
            tables::TABLES.iter().for_each(|(name, about, _)| println!("{name:12} {about}"));
            Ok(())
        }
        Command::Run(args) => {
            let effort = tables::Effort::new(&args);
            for table in tables::chosen(&args.tables, args.full)? {
                let result = table(&effort)?;
                report::save(&args.places.results, result, args.case.is_some())?;
            }
            report::write(&args.places.results, &args.places.page)
        }
    }
}

/// Thousands of connections need as many descriptors, here and in the peers, which inherit the limit.
fn raise_descriptor_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}
