//! The REST and WebSocket API under `/api/v1`. The router and the OpenAPI document are both generated from the table
//! [of operations](operations::table).

mod blocking;
mod conversations;
pub(crate) mod edited;
pub(crate) mod flows;
mod input;
pub(crate) mod mcp;
mod operation_name;
pub(crate) mod operations;
pub(crate) mod pending;
pub(crate) mod system;
mod untrusted_content;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{MethodFilter, on};

use crate::api::operations::context::OperationContext;
use crate::api::operations::table::OperationId;
use crate::error::ApiError;
use crate::state::SharedState;

pub use blocking::store_stats;

/// The API's path prefix.
pub(crate) const ROOT: &str = "/api/v1";

pub(crate) fn router() -> Router<SharedState> {
    let mut router = Router::new();
    for id in OperationId::ALL {
        let operation = Arc::new(id.operation());
        let path = format!("{ROOT}{}", operation.path);
        let filter = MethodFilter::try_from(operation.method.clone()).expect("the table holds methods that axum knows");
        let serve = move |State(state): State<SharedState>, request: Request| {
            let operation = Arc::clone(&operation);
            async move { operation.serve(OperationContext::Instance(state), request).await }
        };
        router = router.route(&path, on(filter, serve));
    }
    router.method_not_allowed_fallback(method_not_allowed)
}

/// Handles unknown API paths.
pub(crate) async fn route_not_found(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no_route", format!("there is nothing at {}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_unique() {
        assert!(router().has_routes());
        let mut all: Vec<_> = OperationId::ALL.iter().map(|id| id.route()).collect();
        let before = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), before);
    }
}
