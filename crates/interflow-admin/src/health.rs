//! `/livez` and `/readyz`.

use axum::extract::State;
use axum::http::StatusCode;
use interflow_store::RecordingState;

use crate::state::SharedState;

/// Answers as long as the process runs, also while it drains.
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether clients are served as they should be. 503 takes this replica out of a load balancer: once shutdown has begun, while
/// traffic is held back, and while it is not recorded although other replicas could record it. The bodies say no more than
/// that, as nobody logs in here: why is in `/metrics` and in the log.
pub(crate) async fn readyz(State(state): State<SharedState>) -> (StatusCode, &'static str) {
    if state.engine.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    match state.records.store.as_ref().map_or(RecordingState::Recording, |store| store.recording_state()) {
        RecordingState::Recording => (StatusCode::OK, "ok\n"),
        RecordingState::CutOff => (StatusCode::OK, "ok, but flows wait on this machine's disk for the shared store\n"),
        RecordingState::Stalled => {
            (StatusCode::SERVICE_UNAVAILABLE, "traffic waits: record.spool_max_bytes wait for the shared store\n")
        }
        RecordingState::Suspended { shared: true } => {
            (StatusCode::SERVICE_UNAVAILABLE, "recording is suspended: this machine's disk refuses writes\n")
        }
        // There is no other replica that would record.
        RecordingState::Suspended { shared: false } => {
            (StatusCode::OK, "ok, but recording is suspended: this machine's disk refuses writes\n")
        }
    }
}
