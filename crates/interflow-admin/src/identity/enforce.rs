//! The check of each operation against the rights of its caller, and its line in the audit trail. What an operation
//! needs is in the table.

use axum::extract::{Query, Request};
use axum::response::{IntoResponse, Response};
use interflow_types::Direction;
use serde::Deserialize;

use super::Rights;
use super::caller::{Caller, missing_rights};
use crate::error::ApiError;

/// What an operation needs, and how the audit trail names it.
#[derive(Clone, Debug)]
pub(crate) struct OperationAccess {
    /// Method and path of the table, such as `GET /flows/{id}`.
    pub name: String,
    pub needed: Rights,
    pub is_audited: bool,
}

/// Parameters that hold a query over flows.
#[derive(Default, Deserialize)]
#[serde(default)]
struct QueryParams {
    query: Option<String>,
}

/// Lets an operation run if the caller has the rights for it.
pub(crate) async fn enforce<F: Future<Output = Result<Response, ApiError>>>(
    access: &OperationAccess,
    request: Request,
    run: impl FnOnce(Request) -> F,
) -> Response {
    let caller = match Caller::of(request.extensions()) {
        Ok(caller) => caller,
        Err(e) => return e.into_response(),
    };
    let target = request.uri().path_and_query().map_or("", |p| p.as_str()).to_owned();
    let refusal = caller.require(access.needed).and_then(|()| check_query(&caller, &request)).err();
    let line = (access.is_audited || refusal.is_some()).then(|| caller.begin_record(&access.name, &target));
    if refusal.is_none() {
        caller.audit.editors.note(&access.name, &caller.identity);
    }
    let outcome = if let Some(refusal) = refusal { Err(refusal) } else { run(request).await };
    let response = outcome.unwrap_or_else(IntoResponse::into_response);
    if let Some(line) = line {
        line.finish(response.status().as_u16());
    }
    response
}

/// A search in bodies tells what they contain, so it needs the right to read them.
fn check_query(caller: &Caller, request: &Request) -> Result<(), ApiError> {
    let params = Query::<QueryParams>::try_from_uri(request.uri()).map(|Query(p)| p).unwrap_or_default();
    params.query.map_or(Ok(()), |query| check_query_rights(caller, &query))
}

/// # Errors
/// The query tests bodies, and the caller may not read them.
pub(crate) fn check_query_rights(caller: &Caller, query: &str) -> Result<(), ApiError> {
    if caller.has(Rights::READ_BODIES) {
        return Ok(());
    }
    // What cannot be parsed is refused by the handler.
    let Ok(query) = interflow_query::Query::parse(query) else { return Ok(()) };
    if [Direction::Request, Direction::Response].into_iter().any(|side| query.wants_body(side)) {
        let missing = caller.identity.rights.missing(Rights::READ_BODIES);
        let remedy = "search without body: and bare words, for example with host:, url: or path:";
        return Err(missing_rights(&missing).remedy(remedy));
    }
    Ok(())
}
