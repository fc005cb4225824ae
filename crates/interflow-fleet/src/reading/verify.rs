//! `flows check` of a shared store: every row, body and message is read.

use std::collections::HashMap;

use bytes::Bytes;
use interflow_store::stored_form::chunk_refs::body_index;
use interflow_store::stored_form::is_of_row;
use interflow_store::{CheckReport, Result, StoreError, StoredFlow};
use interflow_types::{Direction, FlowId};
use uuid::Uuid;

use crate::database::pool::Database;
use crate::database::rows::{self, READ};
use crate::reading::{bodies, select};

/// Rows read at a time.
const PAGE: usize = 500;
/// Messages read at a time.
const MESSAGE_STEP: u64 = 500;

/// Adds what is found in the database to a report. `progress` is called with the number of flows done and in total.
pub(crate) fn check(database: &Database, report: &mut CheckReport, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let row = database.run(|client| async move { client.query_one("SELECT count(*) FROM flows", &[]).await })?;
    let total = row.get::<_, i64>(0).unsigned_abs();
    let (mut after, mut done) = (Uuid::nil(), 0);
    loop {
        let sql = format!("SELECT {READ} FROM flows f WHERE f.id > $1 ORDER BY f.id LIMIT {PAGE}");
        let page = database.run(move |client| async move { client.query(&sql, &[&after]).await })?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.get(0);
        let ids: Vec<Uuid> = page.iter().map(|row| row.get(0)).collect();
        let mut stored = stored_sides(database, ids)?;
        for row in &page {
            let id: Uuid = row.get(0);
            report.flows += 1;
            match rows::read(row) {
                Ok(flow) => check_flow(database, &flow, &stored.remove(&id).unwrap_or_default(), report)?,
                Err(error) if is_of_row(&error) => report.problem(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        done += page.len() as u64;
        progress(done, total.max(done));
    }
}

/// Which bodies of these flows are stored outside of their rows.
fn stored_sides(database: &Database, ids: Vec<Uuid>) -> Result<HashMap<Uuid, Vec<usize>>> {
    let rows = database.run(move |client| async move {
        client.query("SELECT flow, side FROM bodies WHERE flow = ANY($1) GROUP BY flow, side", &[&ids]).await
    })?;
    let mut sides: HashMap<Uuid, Vec<usize>> = HashMap::new();
    for row in &rows {
        sides.entry(row.get(0)).or_default().extend(usize::try_from(row.get::<_, i16>(1)));
    }
    Ok(sides)
}

fn check_flow(database: &Database, flow: &StoredFlow, sides: &[usize], report: &mut CheckReport) -> Result<()> {
    let id = flow.row.id;
    let mut problems = Vec::new();
    for side in sides {
        let stored_side = [Direction::Request, Direction::Response].into_iter().find(|d| body_index(*d) == *side);
        let stored_bytes = stored_side.and_then(|direction| flow.row.body(direction)).map(|body| body.kept);
        match read_body(database, id, *side, report) {
            Ok(read) if stored_bytes.is_some_and(|stored_bytes| stored_bytes != read) => {
                problems.push(format!(
                    "flow {id}: {read} of {} bytes of a body are there",
                    stored_bytes.unwrap_or_default()
                ));
            }
            Ok(_) => {}
            Err(error) => problems.push(flow_problem(id, error)?),
        }
    }
    for direction in [Direction::Request, Direction::Response] {
        let side = body_index(direction);
        let stored_bytes = flow.row.body(direction).map_or(0, |body| body.kept);
        let inline = flow.inline[side].len() as u64;
        if !sides.contains(&side) && stored_bytes != inline {
            problems.push(format!("flow {id}: {inline} of {stored_bytes} bytes of a body are there"));
        }
    }
    let mut first = 0;
    while first < flow.row.messages {
        match bodies::messages(database, id, first..first + MESSAGE_STEP) {
            Ok(_) => {}
            Err(error) => problems.push(flow_problem(id, error)?),
        }
        first += MESSAGE_STEP;
    }
    // Deleted meanwhile, it has no bodies any more.
    if !problems.is_empty() && select::get(database, id)?.is_some() {
        problems.into_iter().for_each(|problem| report.problem(problem));
    }
    Ok(())
}

/// Reads a body to its end; returns its length.
fn read_body(database: &Database, id: FlowId, side: usize, report: &mut CheckReport) -> Result<u64> {
    let mut body = bodies::reader(database, id, side, Bytes::new(), 0..u64::MAX);
    let mut length = 0;
    while let Some(piece) = body.next_piece()? {
        report.chunks += 1;
        report.bytes += piece.len() as u64;
        length += piece.len() as u64;
    }
    Ok(length)
}

/// The text of a problem with a flow; other errors end the check.
fn flow_problem(id: FlowId, error: StoreError) -> Result<String> {
    match error {
        StoreError::Damaged { place, what } => Ok(format!("{place}: {what}")),
        StoreError::Shared(_) => Err(error),
        other => Ok(format!("flow {id}: {other}")),
    }
}
