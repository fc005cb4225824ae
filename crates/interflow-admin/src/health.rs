//! `/livez` and `/readyz`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::state::AdminState;

/// Answers as long as the process runs, also while it drains.
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether clients are served; 503 once shutdown has begun.
pub(crate) async fn readyz(State(state): State<Arc<AdminState>>) -> (StatusCode, &'static str) {
    if state.engine.is_draining() { (StatusCode::SERVICE_UNAVAILABLE, "draining\n") } else { (StatusCode::OK, "ok\n") }
}
