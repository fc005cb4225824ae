//! Columns of the tables of conversations, and how their values are read.

use interflow_store::TokenUsage;
use interflow_types::{FlowId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::database::rows::signed;

/// As the embedded store sums them. The sums are of unlimited size, and cut to what fits.
pub(crate) const USAGE_SUMS: &str = "count(*), least(coalesce(sum(input), 0), 9223372036854775807)::bigint, \
     least(coalesce(sum(output), 0), 9223372036854775807)::bigint, \
     least(coalesce(sum(cache_read), 0), 9223372036854775807)::bigint, \
     least(coalesce(sum(cache_write), 0), 9223372036854775807)::bigint, \
     least(coalesce(sum(reasoning), 0), 9223372036854775807)::bigint, coalesce(sum(cost), 0), \
     count(*) FILTER (WHERE cost IS NULL)";
/// Selects a session by the index of the beginnings of their ids, which clients choose.
pub(crate) const SESSION: &str = "left(session, 512) = left($1, 512) AND session = $1";

pub(crate) fn usage(row: &Row, at: usize) -> TokenUsage {
    TokenUsage {
        exchanges: number(row, at),
        input: number(row, at + 1),
        output: number(row, at + 2),
        cache_read: number(row, at + 3),
        cache_write: number(row, at + 4),
        reasoning: number(row, at + 5),
        cost: row.get(at + 6),
        unpriced: number(row, at + 7),
    }
}

pub(crate) fn number(row: &Row, at: usize) -> u64 {
    row.get::<_, i64>(at).unsigned_abs()
}

pub(crate) fn time(row: &Row, at: usize) -> Timestamp {
    Timestamp::from_micros(number(row, at))
}

pub(crate) fn micros(time: Timestamp) -> i64 {
    signed(time.micros())
}

pub(crate) const fn flow_of(id: Uuid) -> FlowId {
    FlowId::from_u128(id.as_u128())
}
