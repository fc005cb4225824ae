//! `interflow flows diff`.

use interflow_record::Store;
use interflow_record::formats::diff::FlowDiff;
use interflow_record::formats::text::Style;
use interflow_record::formats::{Stored, WholeFlow};

use super::{open, print_json, written};
use crate::Failure;

/// Prints what differs between two flows.
pub fn diff(store: &dyn Store, a: &str, b: &str, json: bool) -> Result<(), Failure> {
    let read = |word: &str| {
        let row = open::find(store, word)?;
        WholeFlow::read(&row, &Stored(store)).map_err(|e| Failure::Failed(format!("flow {}: {e}", row.id)))
    };
    let diff = FlowDiff::new(&read(a)?, &read(b)?);
    if json {
        return print_json(&diff);
    }
    if diff.is_empty() {
        anstream::eprintln!("no difference");
        return Ok(());
    }
    written(diff.write(&mut anstream::stdout().lock(), Style { colour: true }))
}
