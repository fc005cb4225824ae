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
use interflow_engine::Engine;
use interflow_engine::accounts::Accounts;
use interflow_engine::approvals::Approvals;
use interflow_engine::conversations::live::Live;
use interflow_engine::redaction::Redaction;
use interflow_limits::{KeyStore, Limits};
use interflow_media::Media;
use interflow_record::Store;
use interflow_record::view::Schemas;
use interflow_rules::Rules;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::api::{self, ApiError, Viewers};
use crate::greyproxy::{CompatConfig, Greyproxy};
use crate::guard::{self, Guard};
use crate::serve::{PortLimits, serve};
use crate::sessions::Sessions;
use crate::{AdminConfig, health, metrics, ui};

/// Questions to the store at a time; more wait.
const QUESTIONS: usize = 16;
/// Texts that are checked at a time; more wait.
const CHECKS: usize = 2;
/// Exports, imports, searches and raw bodies at a time; more are refused.
const TRANSFERS: usize = 32;

/// What the admin side shows and steers.
pub struct AdminParts {
    /// The corridor.
    pub engine: Arc<Engine>,
    /// The recording, when there is one.
    pub store: Option<Arc<dyn Store>>,
    /// What puts conversations together, when something is recorded.
    pub conversations: Option<Live>,
    /// The media room, when there is one.
    pub media: Option<Arc<Media>>,
    /// The configuration at the start, as JSON; what the corridor obeys is asked of it anew each time.
    pub config: serde_json::Value,
    /// The rules in force.
    pub rules: Option<Arc<Rules>>,
    /// The token that opens it.
    pub token: String,
    /// The file that holds the token; none when the operator gave it in another way.
    pub token_file: Option<PathBuf>,
    /// The redaction on the way to LLM providers, when there is any.
    pub redaction: Option<Arc<Redaction>>,
    /// Keys, limits and accounts of LLM traffic, when there are any.
    pub limits: Option<LimitParts>,
    /// By what gRPC and Protocol Buffers are shown.
    pub schemas: Arc<Schemas>,
    /// Approvals, when they are part of the instance.
    pub approvals: Option<Arc<Approvals>>,
    /// Looks for what is wrong with this machine and instance, as `interflow doctor` does; may take a second.
    pub doctor: Option<Doctor>,
}

/// What looks for what is wrong: a list of findings, each with `what`, `state` and `text`.
pub type Doctor = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// What the admin side shows of LLM traffic's keys and limits.
#[derive(Clone)]
pub struct LimitParts {
    /// The virtual keys.
    pub keys: Arc<KeyStore>,
    /// The counters.
    pub limits: Arc<Limits>,
    /// Metrics.
    pub accounts: Arc<Accounts>,
}

/// What handlers share.
pub(crate) struct AdminState {
    pub engine: Arc<Engine>,
    pub store: Option<Arc<dyn Store>>,
    pub conversations: Option<Live>,
    pub media: Option<Arc<Media>>,
    pub redaction: Option<Arc<Redaction>>,
    pub config: serde_json::Value,
    pub rules: Option<Arc<Rules>>,
    pub schemas: Arc<Schemas>,
    pub approvals: Option<Arc<Approvals>>,
    pub doctor: Option<Doctor>,
    pub address: SocketAddr,
    pub questions: Arc<Semaphore>,
    pub transfers: Arc<Semaphore>,
    pub viewers: Viewers,
    pub events_patience: Duration,
    pub mcp_writes: bool,
    pub limits: Option<LimitParts>,
    pub sessions: Arc<Sessions>,
    /// Checks of texts that a client sends: rules, policies, queries.
    pub checks: Arc<Semaphore>,
    pub port_limits: PortLimits,
}

impl AdminState {
    /// The recording.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>, ApiError> {
        self.store.clone().ok_or_else(|| {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_recording", "nothing is recorded by this instance")
                .remedy("set record.enabled = true and start without --no-record")
        })
    }
}

/// The admin side, ready to serve.
pub struct Admin {
    state: Arc<AdminState>,
    router: Router,
    listener: TcpListener,
}

impl Admin {
    /// Puts it together on a listener that is bound already (the engine must know its address beforehand).
    ///
    /// # Errors
    /// The listener has no address.
    pub fn new(config: &AdminConfig, listener: TcpListener, parts: AdminParts) -> std::io::Result<Self> {
        let address: SocketAddr = listener.local_addr()?;
        let sessions = Arc::new(Sessions::new(&parts.token, address.port(), config.session_duration.0));
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
            questions: Arc::new(Semaphore::new(QUESTIONS)),
            transfers: Arc::new(Semaphore::new(TRANSFERS)),
            viewers: Viewers::default(),
            events_patience: config.events_patience.0,
            mcp_writes: config.mcp_writes,
            limits: parts.limits,
            sessions: Arc::clone(&sessions),
            checks: Arc::new(Semaphore::new(CHECKS)),
            port_limits: PortLimits::new(config),
        });
        let guard = Arc::new(Guard::new(parts.token, parts.token_file, sessions, config, address));
        let router = api::router()
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .route("/mcp", post(api::mcp::post))
            .route("/metrics", get(metrics::metrics))
            .fallback(ui::serve)
            .with_state(Arc::clone(&state))
            .layer(middleware::from_fn_with_state(guard, guard::check))
            .layer(middleware::from_fn(protect));
        Ok(Self { state, router, listener })
    }

    /// Greyproxy's API over the same things; nothing when there are no approvals. `dns` is where the DNS port listens.
    ///
    /// # Errors
    /// The listener's address is none of loopback.
    pub fn greyproxy(
        &self,
        config: CompatConfig,
        listener: TcpListener,
        dns: Option<SocketAddr>,
    ) -> std::io::Result<Option<Greyproxy>> {
        Greyproxy::new(config, listener, Arc::clone(&self.state), dns)
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
async fn protect(request: Request, next: Next) -> Response {
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
