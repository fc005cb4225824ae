//! `interflow flows`: what was recorded.

mod list;
mod open;
mod show;

use clap::{Args, Subcommand, ValueEnum};

use crate::Failure;
use crate::config::Config;
use crate::home::Home;

/// What can be done with recorded flows.
#[derive(Debug, Subcommand)]
pub enum FlowsCommand {
    /// List flows, the latest last.
    List(ListArgs),
    /// Show one flow whole.
    Show {
        /// The flow's id, or the end of it.
        id: String,
    },
}

/// Which flows, and how they are shown.
#[derive(Debug, Args)]
#[command(after_long_help = interflow_query::help())]
pub struct ListArgs {
    /// The query: `host:api.example.com status:>=400`; everything when it is empty.
    pub query: Vec<String>,
    /// At most so many, the latest ones.
    #[arg(short = 'n', long, default_value_t = 50)]
    pub limit: usize,
    /// The form.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    pub format: Form,
}

/// The form of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Columns for people.
    Table,
    /// One JSON object per line.
    Jsonl,
}

/// Runs one of the commands.
pub fn run(command: FlowsCommand, config: &Config, home: &Home) -> Result<(), Failure> {
    let store = open::for_reading(config, home)?;
    match command {
        FlowsCommand::List(args) => list::list(&store, &args),
        FlowsCommand::Show { id } => show::show(&store, &id),
    }
}
