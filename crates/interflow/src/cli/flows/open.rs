//! Opens the store and finds flows in it.

use std::time::Duration;

use interflow_host::data_dir::DataDir;
use interflow_query::{Query, QueryError};
use interflow_store::{FlowRecord, FlowStore, ListOptions};
use interflow_types::FlowId;
use interflow_types::units::pluralize;

use crate::cli::operations::{InstanceApi, OperationId};
use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result, fleet};

/// How long the instance may write what it has recorded: what was written before can be read without it.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of newest flows searched for an ID suffix.
const RECENT: usize = 10_000;

/// Opens the store read-only, without disturbing a running instance. Contains every flow whose response a client has
/// received: the instance records asynchronously, and is asked to write what it has.
pub fn open_for_reading(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore> {
    // Without an admin port, or if the instance cannot write, what is on disk is shown.
    if let Ok(Some(instance)) = InstanceApi::for_instance(home) {
        let (method, path) = OperationId::FlushRecording.route();
        let _ = instance.send_within(Some(FLUSH_TIMEOUT), method, path, None);
    }
    Ok(fleet::read_store(config, home)?)
}

/// Parses a query from command-line arguments.
pub fn query(words: &[String]) -> Result<Query> {
    // As a query it would silently select the flows that contain the word.
    if let [word] = words
        && back_from_last(word).is_some()
    {
        return Err(CliError::Usage(format!(
            "`{word}` names a flow, and a query is expected here: `interflow flows show {word} --format har` prints that \
             flow as an archive, and the query '\"{word}\"' finds the text"
        )));
    }
    parse_query(&words.join(" "))
}

/// As [`query`]; what is probably not meant is an error, because what it selects is deleted.
pub fn query_to_delete(words: &[String]) -> Result<Query> {
    let text = words.join(" ");
    Query::parse_strict(&text).map_err(|e| wrong_query(&e, &text))?;
    query(words)
}

/// On lines of its own, so that the mark is below its place.
fn wrong_query(error: &QueryError, text: &str) -> CliError {
    CliError::Usage(format!("the query cannot be read\n{}", error.render(text)))
}

/// Parses a query, and says on stderr what in it is probably not meant.
pub fn parse_query(text: &str) -> Result<Query> {
    let query = Query::parse(text).map_err(|e| wrong_query(&e, text))?;
    if let Some(hint) = query.hint() {
        interflow_host::errln!("interflow: {hint}");
    }
    Ok(query)
}

/// Finds a flow by ID, end of ID, `last` or `last-2`.
pub fn find(store: &dyn FlowStore, word: &str) -> Result<FlowRecord> {
    if let Ok(id) = word.parse::<FlowId>() {
        return Ok(store.get(id)?);
    }
    if let Some(back) = back_from_last(word) {
        let latest = store.list(&ListOptions { limit: back + 1, ..ListOptions::default() })?;
        let recorded = pluralize(latest.len() as u64, "flow");
        let missing = || CliError::Failed(format!("no flow `{word}`: the recording has {recorded}"));
        return latest.into_iter().nth(back).ok_or_else(missing);
    }
    let recent = store.list(&ListOptions { limit: RECENT, ..ListOptions::default() })?;
    let end = word.to_ascii_uppercase();
    let mut matches = recent.into_iter().filter(|f| f.id.to_string().ends_with(&end));
    match (matches.next(), matches.next()) {
        (Some(flow), None) => Ok(flow),
        (None, _) => Err(CliError::Failed(format!("no flow ID equals or ends with `{word}`; see `flows list`"))),
        (Some(_), Some(_)) => {
            Err(CliError::Failed(format!("several flow IDs end with `{word}`: give more characters")))
        }
    }
}

/// Reports on stderr how many damaged flows were skipped.
pub fn warn_of_damage(store: &dyn FlowStore) {
    match store.damaged_flows() {
        0 => {}
        n => interflow_host::errln!(
            "interflow: {} damaged on disk and skipped; `interflow flows check` lists them",
            pluralize(n, "flow")
        ),
    }
}

/// Parses `last` as 0 and `last-2` as 2.
fn back_from_last(word: &str) -> Option<usize> {
    match word.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse().ok().filter(|n| *n < RECENT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_flows_are_addressed_by_offset() {
        for (word, back) in [
            ("last", Some(0)),
            ("last-1", Some(1)),
            ("last-20", Some(20)),
            ("lastly", None),
            ("last-", None),
            ("A", None),
        ] {
            assert_eq!(back_from_last(word), back, "{word}");
        }
    }
}
