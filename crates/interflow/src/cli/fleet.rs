//! `interflow fleet`: the settings that replicas share, and their revisions.

use clap::Subcommand;
use interflow_fleet::{PostgresSettings, shared_url};
use interflow_host::data_dir::DataDir;
use interflow_net::ca::machine_name;
use interflow_store::shared_state::RollBack;
use interflow_types::units::pluralize;
use serde_json::json;

use super::flows::table::moment;
use super::output::{FormatArgs, TableFormat, print};
use crate::fleet::access::row_key;
use crate::fleet::store_tls;
use crate::instance::config::{InterflowConfig, SharedSetting};
use crate::instance::settings::diff::diff_texts;
use crate::{CliError, Result};

/// The commands on what replicas share. They need `record.store`, but no running instance.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Show the newest revision of each shared setting, and the replicas that refused it or do not have it yet.
    Settings(FormatArgs<TableFormat>),
    /// List the revisions of shared settings, the newest first.
    History {
        /// Setting; all if omitted.
        #[arg(value_enum)]
        name: Option<SharedSetting>,
        /// Maximum number of revisions.
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
        limit: u32,
        #[command(flatten)]
        format: FormatArgs<TableFormat>,
    },
    /// Print the text of a revision.
    Show {
        #[arg(value_enum)]
        /// Setting.
        name: SharedSetting,
        /// Revision [default: the newest].
        revision: Option<u32>,
    },
    /// Compare two revisions.
    Diff {
        #[arg(value_enum)]
        /// Setting.
        name: SharedSetting,
        /// Earlier revision.
        from: u32,
        /// Later revision [default: the newest].
        to: Option<u32>,
    },
    /// Go back to an earlier revision: its text becomes the newest one.
    Rollback {
        #[arg(value_enum)]
        /// Setting.
        name: SharedSetting,
        /// Revision whose text is wanted.
        revision: u32,
    },
}

/// Runs one of them.
pub fn run(command: &FleetCommand, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let url = shared_url(&config.record)?.ok_or_else(|| {
        CliError::Usage("record.store is not set: replicas share settings in the database that it names".to_owned())
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let store = PostgresSettings::open(&url, store_tls::client, row_key(home)?).await?;
        match command {
            FleetCommand::Settings(format) => settings(&store, format).await,
            FleetCommand::History { name, limit, format } => {
                let revisions = store.history(name.map(SharedSetting::as_str), i64::from(*limit)).await?;
                let lines = revisions.iter().map(|r| {
                    let restored = r.restores.map_or_else(String::new, |n| format!("  back to {n}"));
                    let (at, bytes) = (moment(r.at), pluralize(r.bytes, "byte"));
                    format!("{:<10} {:>5}  {at:.0}  {}  {bytes}{restored}\n", r.name, r.revision, r.author)
                });
                format.print(&json!({ "revisions": revisions }), || lines.collect())
            }
            FleetCommand::Show { name, revision } => {
                let (_, content) = text_of(&store, *name, *revision).await?;
                print(&content);
                Ok(())
            }
            FleetCommand::Diff { name, from, to } => {
                let (from, before) = text_of(&store, *name, Some(*from)).await?;
                let (to, after) = text_of(&store, *name, *to).await?;
                print(&format!("--- {0} revision {from}\n+++ {0} revision {to}\n", name.as_str()));
                for line in diff_texts(&before, &after) {
                    print(&format!("{}{}\n", line.kind.as_str(), line.text));
                }
                Ok(())
            }
            FleetCommand::Rollback { name, revision } => rollback(&store, *name, *revision).await,
        }
    })
}

async fn settings(store: &PostgresSettings, format: &FormatArgs<TableFormat>) -> Result<()> {
    let newest = store.newest().await?;
    let statuses = store.statuses().await?;
    let text = || {
        let mut text = String::new();
        for r in &newest {
            text += &format!("{:<10} revision {}, {:.0} by {}\n", r.name, r.revision, moment(r.at), r.author);
            for status in statuses.iter().filter(|s| s.name == r.name) {
                let what = match &status.refused {
                    Some(why) => format!("refused revision {}: {why}", status.revision),
                    None if status.revision < r.revision => format!("has revision {}", status.revision),
                    None => continue,
                };
                text += &format!("  {}: {what}\n", status.replica);
            }
        }
        text
    };
    format.print(&json!({ "settings": newest, "replicas": statuses }), text)
}

/// The text of a revision, or of the newest one, with its number.
async fn text_of(store: &PostgresSettings, name: SharedSetting, revision: Option<u32>) -> Result<(i64, String)> {
    let name = name.as_str();
    store.text(name, revision.map(i64::from)).await?.ok_or_else(|| match revision {
        Some(number) => no_revision(name, number),
        None => CliError::Failed(format!("{name} has no revision yet")),
    })
}

fn no_revision(name: &str, number: u32) -> CliError {
    CliError::Failed(format!("{name} has no revision {number}; `interflow fleet history {name}` lists them"))
}

async fn rollback(store: &PostgresSettings, name: SharedSetting, revision: u32) -> Result<()> {
    let name = name.as_str();
    let user = ["USER", "USERNAME"].iter().find_map(|variable| std::env::var(variable).ok());
    let author = user.map_or_else(machine_name, |user| format!("{user}@{}", machine_name()));
    let text = match store.roll_back(name, i64::from(revision), None, &author).await? {
        RollBack::Made(made) => {
            format!(
                "{name} has revision {made} with the text of revision {revision}; replicas follow within a second\n"
            )
        }
        RollBack::SameText(newest) => format!("{name} has this text already, in revision {newest}\n"),
        RollBack::NotFound => return Err(no_revision(name, revision)),
        RollBack::ChangedMeanwhile => {
            let what = format!("{name} was changed by another editor meanwhile: look at it again");
            return Err(CliError::Failed(what));
        }
    };
    print(&text);
    Ok(())
}
