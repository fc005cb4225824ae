//! The daily sums of spending of all replicas. Calls block, and may come from any thread.

use interflow_limits::{SpendDatabase, UsageSums};
use interflow_store::Result;
use interflow_store::stored_form::signed;
use jiff::civil::Date;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::database::calls::DatabaseCalls;
use crate::database::connect::TlsClientFactory;
use crate::database::dsn::PostgresUrl;

/// Rows that are removed by one statement, which somebody may wait for.
const REMOVED_AT_ONCE: i64 = 20_000;

/// The columns of the sums of an account.
const SUMS: [&str; 7] =
    ["requests", "estimated", "input_tokens", "output_tokens", "cached_tokens", "micro_dollars", "unpriced"];

/// Sums in the database of the shared store.
#[derive(Clone)]
pub struct SpendStore {
    pub(crate) calls: DatabaseCalls,
}

impl SpendStore {
    /// # Errors
    /// A certificate cannot be read; the server does not answer; the schema cannot be made or is newer than this build.
    pub fn open(url: &PostgresUrl, tls: TlsClientFactory) -> Result<Self> {
        DatabaseCalls::open(url, tls, None).map(|calls| Self { calls })
    }
}

impl SpendDatabase for SpendStore {
    fn put(&self, day: Date, writer: &str, rows: &[(String, UsageSums)]) -> Result<(), String> {
        let (day, writer) = (day.to_string(), writer.to_owned());
        let digests: Vec<Vec<u8>> =
            rows.iter().map(|(account, _)| blake3::hash(account.as_bytes()).as_bytes().to_vec()).collect();
        let accounts: Vec<String> = rows.iter().map(|(account, _)| account.clone()).collect();
        let column = |i: usize| rows.iter().map(|(_, sums)| signed(sums.to_array()[i])).collect();
        let sums: Vec<Vec<i64>> = (0..SUMS.len()).map(column).collect();
        let stored = self.calls.run(async move |client| {
            let columns = SUMS.join(", ");
            let larger = SUMS.map(|sum| format!("{sum} = greatest(s.{sum}, excluded.{sum})")).join(", ");
            let sql = format!(
                "INSERT INTO spend AS s(day, writer, digest, account, {columns}) \
                 SELECT $1::text::date, $2::text, * FROM unnest($3::bytea[], $4::text[], $5::bigint[], $6::bigint[], \
                   $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]) \
                 ON CONFLICT (day, writer, digest) DO UPDATE SET {larger}"
            );
            let mut params: Vec<&(dyn ToSql + Sync)> = vec![&day, &writer, &digests, &accounts];
            params.extend(sums.iter().map(|column| column as &(dyn ToSql + Sync)));
            client.execute(&sql, &params).await.map(drop)
        });
        stored.map_err(|e| e.to_string())
    }

    fn sums(&self, since: Date, until: Date, by_day: bool) -> Result<Vec<(Date, String, UsageSums)>, String> {
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
        });
        rows.map_err(|e| e.to_string())?.iter().map(row).collect()
    }

    fn remove_before(&self, day: Date) -> Result<bool, String> {
        let day = day.to_string();
        let removed = self.calls.run(async move |client| {
            let sql = "DELETE FROM spend WHERE ctid = ANY(ARRAY(\
                         SELECT ctid FROM spend WHERE day < $1::text::date LIMIT $2))";
            client.execute(sql, &[&day, &REMOVED_AT_ONCE]).await
        });
        Ok(removed.map_err(|e| e.to_string())? < REMOVED_AT_ONCE.unsigned_abs())
    }
}

fn row(row: &Row) -> Result<(Date, String, UsageSums), String> {
    let day: &str = row.get(0);
    let day = day.parse().map_err(|e| format!("a day of the table spend, {day:?}: {e}"))?;
    let sums = std::array::from_fn(|i| row.get::<_, i64>(i + 2).unsigned_abs());
    Ok((day, row.get(1), UsageSums::from_array(sums)))
}
