//! Opening the recording, and finding flows in it.

use interflow_flow::FlowId;
use interflow_query::Query;
use interflow_record::{EmbeddedStore, FlowRow, ListOptions, Store as _};

use crate::Failure;
use crate::config::Config;
use crate::home::Home;

/// The recording, for reading; a running instance is not disturbed.
pub fn for_reading(config: &Config, home: &Home) -> Result<EmbeddedStore, Failure> {
    let dir = home.join(&config.record.dir);
    EmbeddedStore::open_read(&dir).map_err(|e| Failure::Failed(e.to_string()))
}

/// A query from the words of the command line.
pub fn query(words: &[String]) -> Result<Query, Failure> {
    let text = words.join(" ");
    Query::parse(&text).map_err(|e| Failure::Usage(e.show(&text)))
}

/// The flow of this id, or the only one whose id ends so.
pub fn find(store: &EmbeddedStore, id: &str) -> Result<FlowRow, Failure> {
    if let Ok(id) = id.parse::<FlowId>() {
        return store.get(id).map_err(|e| Failure::Failed(e.to_string()));
    }
    let failed = |e: interflow_record::StoreError| Failure::Failed(e.to_string());
    let recent = store.list(&ListOptions { limit: 10_000, ..ListOptions::default() }).map_err(failed)?;
    let end = id.to_ascii_uppercase();
    let mut found = recent.into_iter().filter(|f| f.id.to_string().ends_with(&end));
    match (found.next(), found.next()) {
        (Some(flow), None) => Ok(flow),
        (None, _) => Err(Failure::Failed(format!("no flow's id is or ends with `{id}`"))),
        (Some(_), Some(_)) => Err(Failure::Failed(format!("several flows' ids end with `{id}`: give more of it"))),
    }
}
