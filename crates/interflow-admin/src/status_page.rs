//! The page served if the web UI was not built.

use axum::extract::State;
use axum::response::Html;

use crate::state::SharedState;

/// The state of the instance, and how to get the web UI.
pub(crate) async fn status(State(state): State<SharedState>) -> Html<String> {
    let s = state.engine.snapshot();
    let recording = if state.records.store.is_some() { "on" } else { "off" };
    let addresses = |list: Vec<std::net::SocketAddr>| {
        list.iter().map(|a| format!("<code>{a}</code>")).collect::<Vec<_>>().join(", ")
    };
    Html(format!(
        include_str!("../data/status_page.html"),
        version = env!("CARGO_PKG_VERSION"),
        proxy = addresses(state.engine.proxy_addresses()),
        gateway = addresses(state.engine.gateway_addresses()),
        recording = recording,
        requests = s.requests,
        active = s.active,
        open = s.connections_open,
        uptime = state.engine.uptime().as_secs(),
    ))
}
