//! Greyproxy's API and events on a separate port, for programs written for it (such as `greywall`): its rules, pending
//! requests, sessions and credentials map to Interflow's approvals, its transactions to flows.

mod convert;
mod database;
mod endpoints;
mod events;
mod flows;
mod instance;
mod json_format;
mod pending;
mod rules;
mod sessions;
mod traffic;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, delete, get, post, put};
use interflow_approvals::{Approvals, ApprovalsError};
use interflow_types::{Authority, Host};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;

pub use convert::{DecryptedCredential, convert_rule, decrypt_credentials};
pub use database::{GreyproxyDb, GreyproxyEndpoint};
use interflow_admin::{AdminState, ApiError, PortLimits, serve};

use crate::CompatConfig;

/// Maximum size of a request body, in bytes.
const MAX_BODY: usize = 8 << 20;
/// Events buffered for a slow client.
const EVENT_QUEUE: usize = 512;

/// State shared by its handlers.
pub(crate) struct GreyproxyState {
    admin: Arc<AdminState>,
    approvals: Arc<Approvals>,
    config: CompatConfig,
    ports: Value,
    /// Where the admin port listens, as programs on this machine reach it.
    web_ui: SocketAddr,
    /// Events caused through this API: messages to send.
    news: broadcast::Sender<Arc<Value>>,
    /// Session metadata without a counterpart in Interflow, by session id.
    said: Mutex<HashMap<String, sessions::SessionMetadata>>,
    theme: Mutex<String>,
    /// Held while the operator's endpoint overrides are changed.
    endpoints: tokio::sync::Mutex<()>,
}

type GreyproxyApiState = State<Arc<GreyproxyState>>;
type GreyproxyResult = Result<axum::Json<Value>, GreyproxyError>;

pub(crate) struct GreyproxyError(StatusCode, String);

impl GreyproxyError {
    fn bad_request(why: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, why.into())
    }

    fn not_found(what: &str) -> Self {
        Self(StatusCode::NOT_FOUND, format!("{what} not found"))
    }
}

impl IntoResponse for GreyproxyError {
    fn into_response(self) -> Response {
        (self.0, axum::Json(json!({"error": self.1}))).into_response()
    }
}

impl From<ApprovalsError> for GreyproxyError {
    fn from(error: ApprovalsError) -> Self {
        let status = match &error {
            ApprovalsError::NotFound(_) => StatusCode::NOT_FOUND,
            ApprovalsError::Invalid(_) => StatusCode::BAD_REQUEST,
            ApprovalsError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<ApiError> for GreyproxyError {
    fn from(error: ApiError) -> Self {
        let told = error.to_json();
        let message = told["error"]["message"].as_str().unwrap_or_default().to_owned();
        Self(error.into_response().status(), message)
    }
}

/// A request's JSON; an empty body counts as an empty object.
struct LenientJson<T>(T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> FromRequest<S> for LenientJson<T> {
    type Rejection = GreyproxyError;

    async fn from_request(request: Request, _: &S) -> Result<Self, GreyproxyError> {
        let body = axum::body::to_bytes(request.into_body(), MAX_BODY).await;
        let body =
            body.map_err(|_| GreyproxyError(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large".to_owned()))?;
        let text = if body.trim_ascii().is_empty() { &b"{}"[..] } else { &body };
        serde_json::from_slice(text).map(LenientJson).map_err(|e| GreyproxyError::bad_request(e.to_string()))
    }
}

impl GreyproxyState {
    fn broadcast_event(&self, kind: &str, data: Value) {
        let _ = self.news.send(Arc::new(json!({"type": kind, "data": data})));
    }
}

/// The Greyproxy server, ready to serve.
pub struct GreyproxyServer {
    limits: PortLimits,
    router: Router,
    listener: TcpListener,
}

impl GreyproxyServer {
    /// Creates the server; `None` if there are no approvals. `web_ui` is the address of the admin port.
    ///
    /// # Errors
    /// The listener's address is not a loopback address.
    pub fn new(
        config: CompatConfig,
        listener: TcpListener,
        admin: Arc<AdminState>,
        web_ui: SocketAddr,
        dns: Option<SocketAddr>,
    ) -> std::io::Result<Option<Self>> {
        let Some(approvals) = admin.approvals.clone() else { return Ok(None) };
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            let why =
                format!("{address} is no loopback address: Greyproxy's API asks for no token (compat.greyproxy_api)");
            return Err(std::io::Error::other(why));
        }
        let proxies = admin.engine.proxy_addresses();
        let proxy = |i: usize| {
            let own = config.greyproxy_proxies.get(i).map(SocketAddr::port).filter(|p| *p != 0);
            own.or_else(|| proxies.first().map(SocketAddr::port))
        };
        let ports = json!({
            "dashboard": address.port(), "http": proxy(0), "socks5": proxy(1),
            "dns": dns.map(|a| a.port()),
        });
        let limits = admin.port_limits;
        let grey = Arc::new(GreyproxyState {
            admin,
            approvals,
            config,
            ports,
            web_ui,
            news: broadcast::Sender::new(EVENT_QUEUE),
            said: Mutex::default(),
            theme: Mutex::new("system".to_owned()),
            endpoints: tokio::sync::Mutex::default(),
        });
        Ok(Some(Self { limits, router: router(grey, address), listener }))
    }

    /// Serves until `end` resolves.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(self, end: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        serve(self.listener, self.router, self.limits, end).await
    }
}

fn router(grey: Arc<GreyproxyState>, address: SocketAddr) -> Router {
    Router::new()
        .route("/api/health", get(instance::health))
        .route("/api/dashboard", get(traffic::dashboard))
        .route("/api/pending", get(pending::list))
        .route("/api/pending/count", get(pending::count))
        .route("/api/pending/bulk-allow", post(pending::bulk_allow))
        .route("/api/pending/bulk-dismiss", post(pending::bulk_dismiss))
        .route("/api/pending/{id}", delete(pending::dismiss))
        .route("/api/pending/{id}/allow", post(pending::allow))
        .route("/api/pending/{id}/deny", post(pending::deny))
        .route("/api/rules", get(rules::list).post(rules::create))
        .route("/api/rules/ingest", post(rules::ingest))
        .route("/api/rules/{id}", put(rules::update).delete(rules::remove))
        .route("/api/logs", get(traffic::logs))
        .route("/api/logs/stats", get(traffic::log_stats))
        .route("/api/transactions", get(traffic::transactions))
        .route("/api/transactions/{id}", get(traffic::transaction))
        .route("/api/conversations", get(traffic::conversations))
        .route("/api/conversations/{id}", get(traffic::conversation))
        .route("/api/conversations/{id}/subagents", get(traffic::subagents))
        .route("/api/dissectors", get(instance::dissectors))
        .route("/api/endpoint-rules", get(endpoints::list).post(endpoints::create))
        .route("/api/endpoint-rules/{id}", put(endpoints::update).delete(endpoints::remove))
        .route("/api/sessions", get(sessions::list).post(sessions::create))
        .route("/api/sessions/{id}", delete(sessions::remove))
        .route("/api/sessions/{id}/heartbeat", post(sessions::heartbeat))
        .route("/api/sessions/{id}/fsevents", get(sessions::fs_events))
        .route("/api/credentials", get(sessions::credentials).post(sessions::add_credential))
        .route("/api/credentials/{id}", delete(sessions::remove_credential))
        .route("/api/settings", get(instance::settings).put(instance::change_settings))
        .route("/api/notifications", get(instance::notifications).put(instance::notifications))
        .route("/api/allowall", get(instance::silent).post(instance::set_silent).delete(instance::end_silent))
        .route("/api/cert/status", get(instance::cert_status))
        .route("/api/cert/download", get(instance::cert_download))
        .route("/api/cert/generate", post(instance::cert_unchanged))
        .route("/api/cert/reload", post(instance::cert_unchanged))
        .route("/api/maintenance/rebuild-conversations", post(instance::rebuild))
        .route("/api/maintenance/redact-headers", post(instance::redact_headers))
        .route("/api/maintenance/status", get(instance::maintenance))
        .route("/ws", get(events::socket))
        .fallback(any(route_not_found))
        .with_state(grey)
        .layer(middleware::from_fn_with_state(address, check))
}

/// Greyproxy's web UI is on this port: a browser is sent to Interflow's.
async fn route_not_found(State(grey): GreyproxyApiState, request: Request) -> Response {
    let accepts = request.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let path = request.uri().path();
    if request.method() == Method::GET && accepts.contains("text/html") && !path.starts_with("/api/") {
        return Redirect::temporary(&format!("http://{}/", grey.web_ui)).into_response();
    }
    let why = format!("Interflow serves Greyproxy's /api and /ws here; its web UI is at http://{}/", grey.web_ui);
    GreyproxyError(StatusCode::NOT_FOUND, why).into_response()
}

/// There is no token, so requests of foreign web pages are rejected: by a `Host` other than this machine's (DNS
/// rebinding), and by the `Origin` that browsers send.
async fn check(State(address): State<SocketAddr>, request: Request, next: Next) -> Response {
    if let Err(why) = check_host_and_origin(request.headers(), address) {
        return GreyproxyError(StatusCode::FORBIDDEN, why.to_owned()).into_response();
    }
    let mut response = next.run(request).await;
    let fields = response.headers_mut();
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, axum::http::HeaderValue::from_static("nosniff"));
    fields.insert(header::CACHE_CONTROL, axum::http::HeaderValue::from_static("no-store"));
    response
}

fn check_host_and_origin(headers: &HeaderMap, address: SocketAddr) -> Result<(), &'static str> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or_default());
    let ours = |authority: &str| match Authority::parse(authority, Some(80)) {
        Ok(a) => {
            matches!(&a.host, Host::Name(n) if &**n == "localhost")
                || matches!(&a.host, Host::Ip(ip) if ip.to_canonical().is_loopback())
        }
        Err(_) => false,
    };
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err("a request has one Host field");
    }
    let host = text(header::HOST).unwrap_or_default();
    if !ours(host) {
        return Err("this Host is not this machine's");
    }
    let same = |origin: &str| {
        origin.split_once("://").is_some_and(|(_, from)| {
            ours(from) && Authority::parse(from, Some(80)).is_ok_and(|a| a.port == address.port())
        })
    };
    match text(header::ORIGIN) {
        Some(origin) if !same(origin) => Err("requests that pages of other origins make are refused"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        let address = "127.0.0.1:43080".parse().unwrap();
        for (host, origin, fine) in [
            ("127.0.0.1:43080", None, true),
            ("localhost:43080", Some("http://localhost:43080"), true),
            ("localhost:43080", Some("http://127.0.0.1:43080"), true),
            ("evil.test:43080", None, false),
            ("127.0.0.1:43080", Some("http://evil.test"), false),
            ("127.0.0.1:43080", Some("http://localhost:3000"), false),
            ("127.0.0.1:43080", Some("null"), false),
            ("", None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(check_host_and_origin(&headers, address).is_ok(), fine, "{host} {origin:?}");
        }
    }
}
