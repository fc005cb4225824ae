//! The admin listener: what its handlers share, and how routes and checks are put together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
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
use interflow_media::MediaService;
use interflow_proxy::ProxyServer;
use interflow_rules::ActiveRules;
use interflow_store::FlowStore;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::api::{self, ApiError, EventClients};
use crate::auth::{self, AuthGuard};
use crate::greyproxy::{GreyproxyCompatConfig, GreyproxyServer};
use crate::serve::{PortLimits, serve};
use crate::sessions::BrowserSessions;
use crate::{AdminConfig, health, metrics, ui};

/// Questions to the store at a time; more wait.
const MAX_QUERIES: usize = 16;
/// Texts that are checked at a time; more wait.
const MAX_CHECKS: usize = 2;
/// Exports, imports, searches and raw bodies at a time; more are refused.
const MAX_TRANSFERS: usize = 32;

/// What the admin side shows and steers.
pub struct AdminDeps {
    /// The corridor.
    pub engine: Arc<ProxyServer>,
    /// The recording, when there is one.
    pub store: Option<Arc<dyn FlowStore>>,
    /// What puts conversations together, when something is recorded.
    pub conversations: Option<IndexerHandle>,
    /// The media room, when there is one.
    pub media: Option<Arc<MediaService>>,
    /// The configuration at the start, as JSON; what the corridor obeys is asked of it anew each time.
    pub config: serde_json::Value,
    /// The rules in force.
    pub rules: Option<Arc<ActiveRules>>,
    /// The token that opens it.
    pub token: String,
    /// The file that holds the token; none when the operator gave it in another way.
    pub token_file: Option<PathBuf>,
    /// The redaction on the way to LLM providers, when there is any.
    pub redaction: Option<Arc<RedactionService>>,
    /// Keys, limits and accounts of LLM traffic, when there are any.
    pub limits: Option<LimitDeps>,
    /// By what gRPC and Protocol Buffers are shown.
    pub schemas: Arc<ProtoSchemas>,
    /// Approvals, when they are part of the instance.
    pub approvals: Option<Arc<Approvals>>,
    /// Looks for what is wrong with this machine and instance, as `interflow doctor` does; may take a second.
    pub doctor: Option<DoctorFn>,
}

/// What looks for what is wrong: a list of findings, each with `what`, `state` and `text`.
pub type DoctorFn = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// What the admin side shows of LLM traffic's keys and limits.
#[derive(Clone)]
pub struct LimitDeps {
    /// The virtual keys.
    pub keys: Arc<KeyStore>,
    /// The counters.
    pub limits: Arc<UsageLimiter>,
    /// Metrics.
    pub accounts: Arc<LlmTelemetry>,
}

/// What handlers share.
pub(crate) struct AdminState {
    pub engine: Arc<ProxyServer>,
    pub store: Option<Arc<dyn FlowStore>>,
    pub conversations: Option<IndexerHandle>,
    pub media: Option<Arc<MediaService>>,
    pub redaction: Option<Arc<RedactionService>>,
    pub config: serde_json::Value,
    pub rules: Option<Arc<ActiveRules>>,
    pub schemas: Arc<ProtoSchemas>,
    pub approvals: Option<Arc<Approvals>>,
    pub doctor: Option<DoctorFn>,
    pub address: SocketAddr,
    pub questions: Arc<Semaphore>,
    pub transfers: Arc<Semaphore>,
    pub viewers: EventClients,
    pub events_patience: Duration,
    pub mcp_writes: bool,
    pub limits: Option<LimitDeps>,
    pub sessions: Arc<BrowserSessions>,
    /// Checks of texts that a client sends: rules, policies, queries.
    pub checks: Arc<Semaphore>,
    pub port_limits: PortLimits,
}

impl AdminState {
    /// The recording.
    pub(crate) fn store(&self) -> Result<Arc<dyn FlowStore>, ApiError> {
        self.store.clone().ok_or_else(|| {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_recording", "nothing is recorded by this instance")
                .remedy("set record.enabled = true and start without --no-record")
        })
    }
}

/// The admin side, ready to serve.
pub struct AdminServer {
    state: Arc<AdminState>,
    router: Router,
    listener: TcpListener,
}

impl AdminServer {
    /// Puts it together on a listener that is bound already (the engine must know its address beforehand).
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
            media: parts.media,
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

    /// Greyproxy's API over the same things; nothing when there are no approvals. `dns` is where the DNS port listens.
    ///
    /// # Errors
    /// The listener's address is none of loopback.
    pub fn greyproxy(
        &self,
        config: GreyproxyCompatConfig,
        listener: TcpListener,
        dns: Option<SocketAddr>,
    ) -> std::io::Result<Option<GreyproxyServer>> {
        GreyproxyServer::new(config, listener, Arc::clone(&self.state), dns)
    }

    /// Serves until `end` is ready, then lets requests under way finish.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(self, end: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        serve(self.listener, self.router, self.state.port_limits, end).await
    }
}

/// Tells browsers what our pages may do, where a handler has not said it more strictly.
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
