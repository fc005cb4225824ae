//! `interflow flows diff`.

use interflow_archive::diff::FlowDiff;
use interflow_archive::text::TextStyle;
use interflow_archive::{StoreBodySource, read_flow};
use interflow_store::FlowStore;

use super::open;
use crate::cli::output::{ignore_broken_pipe, print_json};
use crate::{CliError, Result};

pub fn diff(store: &dyn FlowStore, a: &str, b: &str, json: bool) -> Result<()> {
    let read = |word: &str| {
        let row = open::find(store, word)?;
        read_flow(&row, &StoreBodySource(store)).map_err(|e| CliError::Failed(format!("flow {}: {e}", row.id)))
    };
    let diff = FlowDiff::new(&read(a)?, &read(b)?);
    if json {
        return print_json(&diff);
    }
    if diff.is_empty() {
        interflow_host::errln!("no difference");
        return Ok(());
    }
    ignore_broken_pipe(diff.write(&mut interflow_host::terminal::stdout(), TextStyle { colour: true }))
}
