//! Figures of recorded flows over time, for the overview page.

use axum::Json;
use interflow_store::{MAX_BUCKETS, Overview, OverviewOptions};
use interflow_types::{Timestamp, config_sections};

use crate::api::blocking::run_query;
use crate::api::input::{StrictQuery, query};
use crate::error::{ApiError, Result};
use crate::state::SharedState;

config_sections! {
    pub struct OverviewParams {
        /// The first microsecond, since the Unix epoch; the start of the oldest flow if absent.
        pub from: Option<u64>,
        /// The microsecond after the last one; now if absent.
        pub to: Option<u64>,
        /// Into how many buckets of equal length the span is divided, 1 to 500.
        pub buckets: usize = 60,
        /// Length of a bucket in microseconds, instead of `buckets`; longer if there would be more than 500.
        pub step: Option<u64>,
        /// Only flows of this query. They are selected for 2 s at most, and 50,000 at most if the query concerns more than
        /// what lists filter by, such as bodies.
        pub query: String,
        /// Whether the figures of the span of the same length before `from` are wanted too.
        pub compare: bool,
    }
}

/// `GET /overview`.
pub async fn overview(state: SharedState, StrictQuery(params): StrictQuery<OverviewParams>) -> Result<Json<Overview>> {
    if !(1..=MAX_BUCKETS).contains(&params.buckets) {
        return Err(ApiError::bad_request(format!("`buckets` is a number from 1 to {MAX_BUCKETS}")));
    }
    let to = params.to.unwrap_or_else(|| Timestamp::now().micros());
    // Times are kept as signed numbers.
    if to > i64::MAX as u64 || params.from.is_some_and(|from| from >= to) {
        return Err(ApiError::bad_request("`from` must be before `to`, both in microseconds since the Unix epoch"));
    }
    let options = OverviewOptions {
        query: query(&params.query)?,
        from: params.from,
        to,
        buckets: params.buckets,
        step: params.step,
        compare: params.compare,
    };
    run_query(&state, move |store, wanted| Ok(Json(store.overview(&options, &mut || wanted.check())?))).await
}
