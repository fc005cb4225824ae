//! Reports of spending by key, team, tag and other columns, from the ledger.

use axum::Json;
use axum::response::Response;
use interflow_limits::{SpendError, SpendQuery, SpendReport};
use interflow_types::schema::JsonSchema;
use serde::Deserialize;

use crate::api::edited::limits::limit_deps;
use crate::api::input::StrictQuery;
use crate::api::operations::context::OperationContext;
use crate::api::untrusted_content::file_response;
use crate::error::{ApiError, Result};
use crate::records::blocking;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SpendParams {
    /// Columns, separated by commas: `key` (the default), `user`, `team`, `organisation`, `provider`, `model`, `day`,
    /// `month`, `tag` or `tag:NAME`.
    by: Option<String>,
    /// The first day (UTC): `2026-11-01` or `2026-11`. The default is the first of the last day's month.
    since: Option<String>,
    /// The last day (UTC), included: `2026-11-30` or `2026-11`. The default is today.
    until: Option<String>,
}

async fn report(context: OperationContext, params: SpendParams) -> Result<SpendReport> {
    let query = SpendQuery::parse(params.by.as_deref(), params.since.as_deref(), params.until.as_deref())
        .map_err(ApiError::bad_request)?;
    let read = match context {
        OperationContext::Instance(state) => {
            let none = || ApiError::unavailable("no_limits", "this instance keeps no ledger of spending");
            let ledger = limit_deps(&state)?.limits.spend_ledger().cloned().ok_or_else(none)?;
            // Reads files or a database, and writes what is new.
            blocking(move || ledger.report(&query)).await
        }
        OperationContext::Offline(opened) => blocking(move || opened.spend(&query)).await,
    };
    read?.map_err(|e| match e {
        SpendError::File(e) => ApiError::internal(e),
        SpendError::Database(e) => ApiError::unavailable("shared_store", e),
    })
}

/// `GET /spend`
pub async fn spend(
    context: OperationContext,
    StrictQuery(params): StrictQuery<SpendParams>,
) -> Result<Json<SpendReport>> {
    report(context, params).await.map(Json)
}

/// `GET /spend.csv`
pub async fn spend_csv(context: OperationContext, StrictQuery(params): StrictQuery<SpendParams>) -> Result<Response> {
    let report = report(context, params).await?;
    let file = format!("spend-{}-{}.csv", report.since, report.until);
    Ok(file_response("text/csv; charset=utf-8", &file, report.to_csv().into()))
}
