//! The daily sums of spending of all replicas. Calls block, and may come from any thread.

use jiff::civil::Date;
use tokio_postgres::Row;

use crate::error::{Result, StoreError};
use crate::shared::database::calls::DatabaseCalls;
use crate::shared::database::connect::TlsClientFactory;
use crate::shared::database::dsn::PostgresUrl;

/// Rows that are removed by one statement, which somebody may wait for.
const REMOVED_AT_ONCE: i64 = 20_000;

/// The columns of the sums of an account.
const SUMS: [&str; 7] =
    ["requests", "estimated", "input_tokens", "output_tokens", "cached_tokens", "micro_dollars", "unpriced"];

/// The sums of an account, in the order of the table's columns: requests, estimated, input tokens, output tokens, cached
/// tokens, millionths of a dollar, unpriced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSpend {
    /// JSON.
    pub account: String,
    pub sums: [u64; SUMS.len()],
}

/// Sums in the database of the shared store.
#[derive(Clone)]
pub struct SpendStore {
    calls: DatabaseCalls,
}

impl SpendStore {
    pub(crate) const fn new(calls: DatabaseCalls) -> Self {
        Self { calls }
    }

    /// # Errors
    /// A certificate cannot be read; the server does not answer; the schema cannot be made or is newer than this build.
    pub fn open(url: &PostgresUrl, tls: TlsClientFactory) -> Result<Self> {
        DatabaseCalls::open(url, tls, None).map(Self::new)
    }

    /// Stores the sums of a writer for a day. Those that are there grow, and never shrink: a call that comes late or
    /// twice changes nothing. No account may be there twice.
    ///
    /// # Errors
    /// A database error, here and below.
    pub fn put(&self, day: Date, writer: &str, rows: &[SharedSpend]) -> Result<()> {
        let (day, writer) = (day.to_string(), writer.to_owned());
        let digests: Vec<Vec<u8>> =
            rows.iter().map(|r| blake3::hash(r.account.as_bytes()).as_bytes().to_vec()).collect();
        let accounts: Vec<String> = rows.iter().map(|r| r.account.clone()).collect();
        let sums: Vec<Vec<i64>> = (0..SUMS.len()).map(|i| rows.iter().map(|r| signed(r.sums[i])).collect()).collect();
        self.calls.run(async move |client| {
            let columns = SUMS.join(", ");
            let larger = SUMS.map(|sum| format!("{sum} = greatest(s.{sum}, excluded.{sum})")).join(", ");
            let sql = format!(
                "INSERT INTO spend AS s(day, writer, digest, account, {columns}) \
                 SELECT $1::text::date, $2::text, * FROM unnest($3::bytea[], $4::text[], $5::bigint[], $6::bigint[], \
                   $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]) \
                 ON CONFLICT (day, writer, digest) DO UPDATE SET {larger}"
            );
            client
                .execute(
                    &sql,
                    &[
                        &day, &writer, &digests, &accounts, &sums[0], &sums[1], &sums[2], &sums[3], &sums[4], &sums[5],
                        &sums[6],
                    ],
                )
                .await
                .map(drop)
        })
    }

    /// The sums of all writers by account for these days, both included; with `by_day` for each day, else all under the
    /// first.
    pub fn sums(&self, since: Date, until: Date, by_day: bool) -> Result<Vec<(Date, SharedSpend)>> {
        let days = (since.to_string(), until.to_string());
        let rows = self.calls.run(async move |client| {
            // Of one digest, all accounts are equal. Sums of bigint are numeric: none overflows.
            let sum = |column: &str| format!("least(sum({column}), 9223372036854775807)::bigint");
            let columns = SUMS.map(sum).join(", ");
            let day = if by_day { "to_char(day, 'YYYY-MM-DD')" } else { "$1::text" };
            let sql = format!(
                "SELECT {day}, min(account), {columns} FROM spend \
                 WHERE day BETWEEN $1::text::date AND $2::text::date GROUP BY 1, digest"
            );
            client.query(&sql, &[&days.0, &days.1]).await
        })?;
        rows.iter().map(row).collect()
    }

    /// Removes the sums of days before this one, some at a time; returns whether all are removed.
    pub fn remove_before(&self, day: Date) -> Result<bool> {
        let day = day.to_string();
        let removed = self.calls.run(async move |client| {
            let sql = "DELETE FROM spend WHERE ctid = ANY(ARRAY(\
                         SELECT ctid FROM spend WHERE day < $1::text::date LIMIT $2))";
            client.execute(sql, &[&day, &REMOVED_AT_ONCE]).await
        })?;
        Ok(removed < REMOVED_AT_ONCE.unsigned_abs())
    }
}

fn row(row: &Row) -> Result<(Date, SharedSpend)> {
    let day: &str = row.get(0);
    let day = day.parse().map_err(|e| StoreError::Shared(format!("a day of the table spend, {day:?}: {e}")))?;
    let sums = std::array::from_fn(|i| row.get::<_, i64>(i + 2).unsigned_abs());
    Ok((day, SharedSpend { account: row.get(1), sums }))
}

fn signed(sum: u64) -> i64 {
    i64::try_from(sum).unwrap_or(i64::MAX)
}
