//! How long overviews of a store take: `overview_cost FOLDER`. `record_many` makes such a store.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use interflow_query::Query;
use interflow_store::{FlowStore, Overview, OverviewOptions, RecordConfig, SqliteStore};
use interflow_types::Timestamp;

const MINUTE: u64 = 60_000_000;
const DAY: u64 = 1440 * MINUTE;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("the folder of the store")?;
    let store = SqliteStore::open(Path::new(&dir), &RecordConfig::default())?;
    let to = Timestamp::now().micros();
    let all = OverviewOptions { query: Query::all(), from: None, to, buckets: 96, step: None, compare: false };
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    loop {
        let (took, found) = timed(&store, &all)?;
        longest = longest.max(took);
        if found.indexing.is_none() {
            break;
        }
    }
    println!("first overview: {:?} in all, {longest:?} at most per call", begun.elapsed());
    for (name, length) in
        [("15 min", 15 * MINUTE), ("1 h", 60 * MINUTE), ("24 h", DAY), ("7 d", 7 * DAY), ("30 d", 30 * DAY)]
    {
        show(&store, name, &OverviewOptions { from: Some(to - length), compare: true, ..all.clone() })?;
    }
    show(&store, "all", &all)?;
    show(
        &store,
        "all, host:host-7.test",
        &OverviewOptions { query: Query::parse("host:host-7.test")?, ..all.clone() },
    )?;
    show(&store, "all, status:5xx", &OverviewOptions { query: Query::parse("status:5xx")?, ..all })?;
    store.close();
    Ok(())
}

fn timed(store: &SqliteStore, options: &OverviewOptions) -> Result<(Duration, Overview), interflow_store::StoreError> {
    let begun = Instant::now();
    let found = store.overview(options, &mut || ControlFlow::Continue(()))?;
    Ok((begun.elapsed(), found))
}

/// The median of five.
fn show(store: &SqliteStore, name: &str, options: &OverviewOptions) -> Result<(), interflow_store::StoreError> {
    let mut times = Vec::new();
    let mut requests = 0;
    for _ in 0..5 {
        let (took, found) = timed(store, options)?;
        times.push(took);
        requests = found.totals.requests;
    }
    times.sort_unstable();
    println!("{name}: {:?} for {requests} flows", times[2]);
    Ok(())
}
