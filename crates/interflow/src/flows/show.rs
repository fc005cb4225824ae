//! `interflow flows show`.

use interflow_record::EmbeddedStore;

use super::open;
use crate::Failure;

/// Prints one flow whole, as JSON.
pub fn show(store: &EmbeddedStore, id: &str) -> Result<(), Failure> {
    let flow = open::find(store, id)?;
    let text = serde_json::to_string_pretty(&flow).map_err(|e| e.to_string())?;
    anstream::println!("{text}");
    Ok(())
}
