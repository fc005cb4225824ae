//! The page that stands in for the web UI where that was not built, and the way in for a browser: the token in the URL becomes a cookie.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

use crate::guard::Guard;
use crate::server::AdminState;

/// How the instance fares, and how to get the web UI.
pub(crate) async fn status(State(state): State<Arc<AdminState>>) -> Html<String> {
    let s = state.engine.snapshot();
    let recording = if state.store.is_some() { "on" } else { "off" };
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

/// Lets a browser in that shows the token in the URL: the cookie is set, and the token leaves the address bar.
pub(crate) fn enter(guard: &Guard, shown: &str) -> Response {
    if !guard.is_token(shown) {
        return locked();
    }
    let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", guard.cookie, guard.cookie_value);
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static("/"))]).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What a browser sees that shows no token, or a wrong one.
pub(crate) fn locked() -> Response {
    let page = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Interflow</title></head><body>\
        <h1>Interflow</h1><p>Open the address that <code>interflow run</code> printed, with its token: \
        <code>/?token=…</code>. The token stands in <code>admin.token</code> in the data folder.</p></body></html>\n";
    (StatusCode::UNAUTHORIZED, [(header::CACHE_CONTROL, "no-store")], Html(page)).into_response()
}
