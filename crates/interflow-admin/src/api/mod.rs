//! The REST and WebSocket API under `/api/v1`. The router and the OpenAPI document are both generated from the table
//! [`routes::all_routes`].

mod blocking;
mod conversations;
pub(crate) mod edited;
pub(crate) mod flows;
mod input;
pub(crate) mod mcp;
#[cfg(feature = "schema")]
pub(crate) mod openapi;
mod openapi_document;
#[cfg(all(test, feature = "schema"))]
mod openapi_page;
#[cfg(feature = "schema")]
pub(crate) mod operation;
mod operation_name;
pub(crate) mod pending;
mod routes;
pub(crate) mod system;
mod untrusted_content;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};

use crate::error::ApiError;
use crate::identity::enforce::enforce;
use crate::state::AdminState;

pub use blocking::store_stats;

/// The API's path prefix.
pub(crate) const ROOT: &str = "/api/v1";

pub(crate) fn router() -> Router<Arc<AdminState>> {
    let mut router = Router::new();
    for route in routes::all_routes() {
        let access = Arc::new(route.access());
        let check = move |request: Request, next: Next| {
            let access = Arc::clone(&access);
            async move { enforce(&access, request, next).await }
        };
        let handler = route.handler.route_layer(middleware::from_fn(check));
        router = router.route(&format!("{ROOT}{}", route.path), handler);
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
        let mut all: Vec<_> = routes::all_routes().iter().map(|r| (r.path, r.method.clone())).collect();
        let before = all.len();
        all.sort_by_key(|(path, method)| (*path, method.to_string()));
        all.dedup();
        assert_eq!(all.len(), before);
    }
}
