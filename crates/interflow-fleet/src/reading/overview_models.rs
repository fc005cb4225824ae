//! Calls of language models in the overview of a shared store.

use interflow_store::Result;
use interflow_store::stored_form::{LlmAccumulator, Span};
use interflow_types::FlowId;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::conversations::columns::{USAGE_SUMS, number, usage};
use crate::database::pool::Database;
use crate::database::rows::{signed, uuid_of};
use crate::reading::select::{Condition, borrowed};

/// Adds the calls of the spans of time: all of them, or with `flows` those of these flows.
pub(crate) fn add_calls(
    database: &Database,
    span: Span,
    flows: Option<&[FlowId]>,
    models: &mut LlmAccumulator,
) -> Result<()> {
    let ids: Option<Vec<Uuid>> = flows.map(|flows| flows.iter().map(|id| uuid_of(*id)).collect());
    let rows = |columns: String, from: u64, to: u64, rest: &str| -> Result<Vec<Row>> {
        let mut condition = Condition::default();
        let from = condition.push(signed(from));
        let to = condition.push(signed(to));
        let of = ids.clone().map(|ids| format!(" AND flow = ANY({})", condition.push(ids))).unwrap_or_default();
        let sql = format!(
            "SELECT {columns} FROM conversation_exchanges WHERE started >= {from} AND started < {to}{of} {rest}"
        );
        database.run(move |client| async move { client.query(&sql, &borrowed(&condition.params)).await })
    };
    let bucket =
        format!("{USAGE_SUMS}, (started - {}) / {} AS bucket, model", signed(span.from), signed(span.step).max(1));
    for row in rows(bucket, span.from, span.to, "GROUP BY bucket, model")? {
        models.add_used(number(&row, 8) as usize, row.get(9), &usage(&row, 0));
    }
    if span.compared_from < span.from {
        let before = rows(USAGE_SUMS.to_owned(), span.compared_from, span.from, "")?;
        models.previous = before.first().map(|row| usage(row, 0)).unwrap_or_default();
    }
    Ok(())
}
