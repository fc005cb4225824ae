//! The page served if the web UI was not built.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Html;

use crate::state::AdminState;

/// The state of the instance, and how to get the web UI.
pub(crate) async fn status(State(state): State<Arc<AdminState>>) -> Html<String> {
    let s = state.engine.snapshot();
    let recording = if state.records.store.is_some() { "on" } else { "off" };
    let addresses = |list: Vec<std::net::SocketAddr>| {
        list.iter().map(|a| format!("<code>{a}</code>")).collect::<Vec<_>>().join(", ")
    };
    Html(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Interflow</title></head><body>\
         <h1>Interflow {version}</h1>\
         <table>\
         <tr><th scope=\"row\">Proxy</th><td>{proxy}</td></tr>\
         <tr><th scope=\"row\">Gateway</th><td>{gateway}</td></tr>\
         <tr><th scope=\"row\">Recording</th><td>{recording}</td></tr>\
         <tr><th scope=\"row\">Requests</th><td>{requests}, {active} under way</td></tr>\
         <tr><th scope=\"row\">Connections</th><td>{open} open</td></tr>\
         <tr><th scope=\"row\">Up for</th><td>{uptime} s</td></tr>\
         </table>\
         <p>This binary was built without the web UI. To have it: <code>make ui</code>, which needs Node 20, then build \
         the binary again.</p>\
         <p><a href=\"/api/v1/flows\">Flows</a>, <a href=\"/api/v1/stats\">figures</a>, \
         <a href=\"/api/v1/openapi.json\">the API</a>, <a href=\"/metrics\">metrics</a></p></body></html>\n",
        version = env!("CARGO_PKG_VERSION"),
        proxy = addresses(state.engine.proxy_addresses()),
        gateway = addresses(state.engine.gateway_addresses()),
        requests = s.requests,
        active = s.active,
        open = s.connections_open,
        uptime = state.engine.uptime().as_secs(),
    ))
}
