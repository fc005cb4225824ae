//! Flows in progress, of all replicas: each publishes those that run for long, as its recorder has stored them so far, in
//! rows like those of finished flows, but without bodies and messages. Others read them from the database when somebody
//! looks.

use interflow_store::{BodyRecord, MissingReason, StoredFlow};
use interflow_types::Direction;
use tokio_postgres::{Client, Error};

use crate::database::pool::Database;

/// A process is silent after this many seconds without a report.
pub(crate) const SILENT_SECONDS: f64 = 20.0;
/// Begins the notification that rows of a replica have changed; its revision follows, or nothing if rows were deleted.
pub(crate) const CHANGED: char = '~';

/// The rows `running_flows f` that count, for another process than the one whose name is this parameter.
/// Each row is looked up in `flows` by itself, which reads one partition; a join might read all.
pub(crate) fn condition(own: &str) -> String {
    format!(
        "f.replica <> {own} AND {IS_UNFINISHED} AND EXISTS (SELECT 1 FROM instances i WHERE i.name = f.replica \
         AND i.seen >= clock_timestamp() - make_interval(secs => {SILENT_SECONDS}))"
    )
}

/// For the moment between the end of a flow and the next refresh of its replica.
pub(crate) const IS_UNFINISHED: &str = "(SELECT d.position FROM flows d WHERE d.id = f.id) IS NULL";

/// The row of another replica's flow as it is shown: its bodies are at that replica only.
pub(crate) fn without_bodies(mut stored: StoredFlow) -> StoredFlow {
    let hide = |body: &mut BodyRecord| {
        (body.kept, body.head_sha256) = (0, None);
        if body.size > 0 {
            body.missing = Some(MissingReason::Elsewhere);
        }
    };
    let row = &mut stored.row;
    row.request.iter_mut().for_each(|r| hide(&mut r.body));
    row.response.iter_mut().for_each(|r| hide(&mut r.body));
    if let Some(original) = row.original.as_deref_mut() {
        for side in [Direction::Request, Direction::Response] {
            original.edited_body_mut(side).into_iter().for_each(hide);
        }
    }
    stored.inline = Default::default();
    stored
}

/// Deletes the rows of processes that are silent; returns whether there were any.
pub(crate) async fn delete_silent(client: &Client, database: &Database) -> Result<bool, Error> {
    let sql = "WITH gone AS (DELETE FROM running_flows f WHERE NOT EXISTS (SELECT 1 FROM instances i \
                 WHERE i.name = f.replica AND i.seen >= clock_timestamp() - make_interval(secs => $1)) RETURNING 1), \
               found AS (SELECT count(*) AS rows FROM gone) \
               SELECT rows, CASE WHEN rows > 0 THEN pg_notify($2, $3)::text END FROM found";
    let payload = format!("{} {CHANGED}", database.replica);
    let deleted = client.query_one(sql, &[&SILENT_SECONDS, &database.channel(), &payload]).await?;
    Ok(deleted.get::<_, i64>(0) > 0)
}
