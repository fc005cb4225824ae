//! The admin listener: state shared by handlers, and the assembly of routes and checks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "media")]
use std::sync::OnceLock;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use interflow_approvals::approvals::Approvals;
use interflow_archive::view::ProtoSchemas;
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_limits::{KeyStore, UsageLimiter};
use interflow_llm_gateway::llm_telemetry::LlmTelemetry;
use interflow_llm_gateway::redaction::RedactionService;
#[cfg(feature = "media")]
use interflow_media::MediaService;
use interflow_proxy::ProxyServer;
use interflow_rules::ActiveRules;
use interflow_store::FlowStore;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::api::instance::DoctorFinding;
use crate::api::{self, ApiError, EventClients};
use crate::auth::{self, AuthGuard};
use crate::serve::{PortLimits, serve};
use crate::sessions::BrowserSessions;
use crate::{AdminConfig, health, metrics, ui};

/// Concurrent store queries; more wait.
const MAX_QUERIES: usize = 16;
/// Concurrent text checks; more wait.
const MAX_CHECKS: usize = 2;
/// Concurrent exports, imports, searches and raw bodies; more are rejected.
const MAX_TRANSFERS: usize = 32;

/// The dependencies of the admin side.
pub struct AdminDeps {
    /// The proxy.
    pub engine: Arc<ProxyServer>,
    /// The flow store, if recording is enabled.
    pub store: Option<Arc<dyn FlowStore>>,
    /// The conversation indexer, if recording is enabled.
    pub conversations: Option<IndexerHandle>,
    /// The configuration at startup, as JSON; reloadable settings are read from the proxy each time.
    pub config: serde_json::Value,
    /// The active rules.
    pub rules: Option<Arc<ActiveRules>>,
    /// The access token.
    pub token: String,
    /// The file that contains the token; `None` if the operator gave it in another way.
    pub token_file: Option<PathBuf>,
    /// Redaction of requests to LLM providers, if enabled.
    pub redaction: Option<Arc<RedactionService>>,
    /// Keys, limits and telemetry of LLM traffic, if enabled.
    pub limits: Option<LimitDeps>,
    /// Schemas for displaying gRPC and Protocol Buffers.
    pub schemas: Arc<ProtoSchemas>,
    /// Approvals, if enabled.
    pub approvals: Option<Arc<Approvals>>,
    /// Runs the checks of `interflow doctor`; may take a second.
    pub doctor: Option<DoctorFn>,
}

/// Runs diagnostics.
pub type DoctorFn = Arc<dyn Fn() -> Vec<DoctorFinding> + Send + Sync>;

/// Keys and limits of LLM traffic.
#[derive(Clone)]
pub struct LimitDeps {
    pub keys: Arc<KeyStore>,
    pub limits: Arc<UsageLimiter>,
    pub accounts: Arc<LlmTelemetry>,
}

/// State shared by handlers.
pub struct AdminState {
    pub engine: Arc<ProxyServer>,
    pub store: Option<Arc<dyn FlowStore>>,
    pub conversations: Option<IndexerHandle>,
    /// The media component, once it was given.
    #[cfg(feature = "media")]
    pub media: OnceLock<Arc<MediaService>>,
    pub redaction: Option<Arc<RedactionService>>,
    pub config: serde_json::Value,
    pub rules: Option<Arc<ActiveRules>>,
    pub schemas: Arc<ProtoSchemas>,
    pub approvals: Option<Arc<Approvals>>,
    pub doctor: Option<DoctorFn>,
    pub(crate) address: SocketAddr,
    pub(crate) questions: Arc<Semaphore>,
    pub(crate) transfers: Arc<Semaphore>,
    pub(crate) viewers: EventClients,
    pub(crate) events_patience: Duration,
    pub(crate) mcp_writes: bool,
    pub limits: Option<LimitDeps>,
    pub(crate) sessions: Arc<BrowserSessions>,
    /// Limits concurrent checks of texts that a client sends: rules, policies, queries.
    pub(crate) checks: Arc<Semaphore>,
    pub port_limits: PortLimits,
}

impl AdminState {
    /// The store, or an error if nothing is recorded.
    pub fn store(&self) -> Result<Arc<dyn FlowStore>, ApiError> {
        self.store.clone().ok_or_else(|| {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_recording", "nothing is recorded by this instance")
                .remedy("set record.enabled = true and start without --no-record")
        })
    }
}

/// The admin server, ready to serve.
pub struct AdminServer {
    state: Arc<AdminState>,
    router: Router,
    listener: TcpListener,
}

impl AdminServer {
    /// Creates the server on a listener that is bound already, because the proxy must know its address beforehand.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn new(config: &AdminConfig, listener: TcpListener, parts: AdminDeps) -> std::io::Result<Self> {
        let address: SocketAddr = listener.local_addr()?;
        let sessions = Arc::new(BrowserSessions::new(&parts.token, address.port(), config.session_duration.0));
        let state = Arc::new(AdminState {
            engine: parts.engine,
            store: parts.store,
            conversations: parts.conversations,
            #[cfg(feature = "media")]
            media: OnceLock::new(),
            redaction: parts.redaction,
            config: parts.config,
            rules: parts.rules,
            schemas: parts.schemas,
            approvals: parts.approvals,
            doctor: parts.doctor,
            address,
            questions: Arc::new(Semaphore::new(MAX_QUERIES)),
            transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)),
            viewers: EventClients::default(),
            events_patience: config.events_write_timeout.0,
            mcp_writes: config.mcp_writes,
            limits: parts.limits,
            sessions: Arc::clone(&sessions),
            checks: Arc::new(Semaphore::new(MAX_CHECKS)),
            port_limits: PortLimits::new(config),
        });
        let guard = Arc::new(AuthGuard::new(parts.token, parts.token_file, sessions, config, address));
        let router = api::router()
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .route("/mcp", post(api::mcp::post))
            .route("/metrics", get(metrics::metrics))
            .fallback(ui::serve)
            .with_state(Arc::clone(&state))
            .layer(middleware::from_fn_with_state(guard, auth::check))
            .layer(middleware::from_fn(set_security_headers));
        Ok(Self { state, router, listener })
    }

    /// Gives the media component to the API.
    #[cfg(feature = "media")]
    pub fn set_media(&self, media: Arc<MediaService>) {
        // A second one would be a mistake of the caller; the first stays.
        let _ = self.state.media.set(media);
    }

    /// The state that other APIs over the same components share.
    pub fn state(&self) -> Arc<AdminState> {
        Arc::clone(&self.state)
    }

    /// Serves until `end` resolves, then lets requests in progress finish.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(self, end: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        serve(self.listener, self.router, self.state.port_limits, end).await
    }
}

/// Sets default security headers, where a handler has not set stricter ones.
async fn set_security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";
    set_if_absent(headers, header::CONTENT_SECURITY_POLICY, policy);
    set_if_absent(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set_if_absent(headers, header::X_FRAME_OPTIONS, "DENY");
    set_if_absent(headers, header::REFERRER_POLICY, "no-referrer");
    set_if_absent(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set_if_absent(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set_if_absent(headers, header::CACHE_CONTROL, "no-store");
    response
}

fn set_if_absent(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.entry(name).or_insert(HeaderValue::from_static(value));
}
