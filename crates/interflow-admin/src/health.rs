//! `/livez` and `/readyz`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::state::AdminState;

/// Answers as long as the process runs, also while it drains.
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether clients are served; 503 once shutdown has begun. A replica that is cut off from the shared store serves them too,
/// and says so; why is in `/metrics` and in the log, as nobody logs in here.
pub(crate) async fn readyz(State(state): State<Arc<AdminState>>) -> (StatusCode, &'static str) {
    if state.engine.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    if state.store.as_ref().is_some_and(|store| store.is_cut_off()) {
        return (StatusCode::OK, "ok, but flows wait on this machine's disk for the shared store\n");
    }
    (StatusCode::OK, "ok\n")
}
