//! Figures of recorded flows over a span of time: what [`FlowStore::overview`](crate::FlowStore::overview) is asked and
//! what it answers.

use interflow_query::Query;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

use crate::conversations::TokenUsage;
use crate::model::FlowSummary;

/// The most buckets of an overview.
pub const MAX_BUCKETS: usize = 500;

/// The span of time and the flows that an overview is made of.
#[derive(Clone, Debug)]
pub struct OverviewOptions {
    /// Only flows of this query. With one, the answer may be of a sample.
    pub query: Query,
    /// The first microsecond; the start of the oldest flow if absent.
    pub from: Option<u64>,
    /// The microsecond after the last one.
    pub to: u64,
    /// Into how many buckets of equal length the span is divided, 1 to [`MAX_BUCKETS`].
    pub buckets: usize,
    /// Length of a bucket in microseconds, instead of their number; longer if there would be more than
    /// [`MAX_BUCKETS`].
    pub step: Option<u64>,
    /// Whether the figures of the span before, of the same length, are wanted too.
    pub compare: bool,
}

/// Figures of the flows that began in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Overview {
    /// The first microsecond of the first bucket, since the Unix epoch.
    pub from: u64,
    /// The microsecond after the last one.
    pub to: u64,
    /// Length of a bucket, in microseconds; the last one may be shorter.
    pub step: u64,
    pub totals: FlowFigures,
    pub llm: TokenUsage,
    /// The same for the span of the same length before `from`; absent if it was not asked for, or if the figures are of a
    /// sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousFigures>,
    pub series: OverviewSeries,
    /// The hosts with the most flows, the busiest first.
    pub hosts: Vec<NamedFigures>,
    /// Flows of the busiest hosts by bucket; an entry without a name sums up all others.
    pub host_series: Vec<NamedSeries>,
    pub users: Vec<NamedFigures>,
    pub processes: Vec<NamedFigures>,
    /// Kinds of errors, the most frequent first.
    pub errors: Vec<NamedFigures>,
    /// Status codes of responses, the most frequent first.
    pub statuses: Vec<StatusFigures>,
    /// Models by tokens, the most used first.
    pub models: Vec<ModelFigures>,
    /// Tokens and cost of the most used models by bucket; an entry without a name sums up all others.
    pub model_series: Vec<ModelSeries>,
    /// HTTP exchanges that took the longest.
    pub slowest: Vec<FlowSummary>,
    /// Flows with the most bytes.
    pub largest: Vec<FlowSummary>,
    /// Present while older flows have not been summarised yet: the figures are of the newest flows only, and the next
    /// request continues where this one stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub indexing: Option<OverviewIndexing>,
    /// Present if the query selects more flows than are examined: the figures are of the newest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<OverviewSample>,
}

/// Totals of flows. A flow counts in one of the three classes of errors at most; flows that are still open count as
/// requests only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FlowFigures {
    /// Flows of every kind: HTTP exchanges, WebSockets and tunnels.
    pub requests: u64,
    /// Responses with a status of 400 to 499.
    pub client_errors: u64,
    /// Responses with a status of 500 or more.
    pub server_errors: u64,
    /// Flows that failed, whatever their status.
    pub failed: u64,
    /// Bytes of bodies and tunnels to origins.
    pub sent: u64,
    /// Bytes of bodies and tunnels from origins.
    pub received: u64,
    /// Median duration of HTTP exchanges in microseconds, within 2 %; null if there were none.
    pub p50: Option<u64>,
    /// The duration that 95 % of them did not exceed, within 2 %.
    pub p95: Option<u64>,
    /// The duration that 99 % of them did not exceed, within 2 %.
    pub p99: Option<u64>,
}

/// The figures of the span before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PreviousFigures {
    pub totals: FlowFigures,
    pub llm: TokenUsage,
}

/// One value per bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct OverviewSeries {
    pub requests: Vec<u64>,
    pub client_errors: Vec<u64>,
    pub server_errors: Vec<u64>,
    pub failed: Vec<u64>,
    pub sent: Vec<u64>,
    pub received: Vec<u64>,
    /// Null where no HTTP exchange ended.
    pub p50: Vec<Option<u64>>,
    pub p95: Vec<Option<u64>>,
    pub p99: Vec<Option<u64>>,
    /// Calls of language models.
    pub calls: Vec<u64>,
    pub input: Vec<u64>,
    pub output: Vec<u64>,
    /// US dollars.
    pub cost: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NamedFigures {
    /// Absent for the sum of all that were too many to be told apart.
    pub name: Option<String>,
    pub requests: u64,
    /// Those of them that failed or have a status of 400 or more.
    pub errors: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NamedSeries {
    pub name: Option<String>,
    pub values: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StatusFigures {
    pub status: u16,
    pub requests: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ModelFigures {
    pub name: Option<String>,
    pub used: TokenUsage,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ModelSeries {
    pub name: Option<String>,
    pub tokens: Vec<u64>,
    pub cost: Vec<f64>,
}

/// How many of the recorded flows have been summarised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OverviewIndexing {
    pub done: u64,
    pub total: u64,
}

/// The part of a query's flows that was examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OverviewSample {
    pub flows: u64,
    /// When the oldest of them began, in microseconds since the Unix epoch; nothing older is in the figures.
    pub since: u64,
}
