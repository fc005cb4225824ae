//! The admin listener: the assembly of routes and checks.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::net::TcpListener;

use crate::audit::AdminAudit;
use crate::audit::trail::AuditFiles;
use crate::auth::cookie_scope::CookieScope;
use crate::auth::ended_sessions::EndedSessions;
use crate::auth::person_sessions::PersonSessions;
use crate::auth::sessions::BrowserSessions;
use crate::auth::{self, AdminAccess, AuthGuard, LoginHints};
use crate::identity::tokens::ApiTokens;
use crate::oidc::OidcLogin;
use crate::oidc::config::OidcConfig;
use crate::serve::serve;
use crate::state::{AdminDeps, AdminState};
use crate::{AdminConfig, api, health, metrics, ui};

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
    /// The listener has no address, a section of the config is incomplete, or a file of the data directory cannot be
    /// opened.
    pub fn new(config: &AdminConfig, listener: TcpListener, deps: AdminDeps) -> std::io::Result<Self> {
        let address: SocketAddr = listener.local_addr()?;
        let scope = CookieScope::new(config, address.port());
        let codes = deps.shared.as_ref().map(|shared| Arc::clone(&shared.store));
        let sessions = Arc::new(BrowserSessions::new(&deps.token, scope.clone(), config.session_duration.0, codes));
        let token = deps.token.clone();
        let hints = LoginHints { token_file: deps.token_file.clone(), command: deps.command.clone() };
        let access = open_access(config, &deps, &scope).map_err(std::io::Error::other)?;
        let audit = Arc::clone(&access.audit);
        let issuer = access.oidc.as_ref().map(|(oidc, _)| oidc.display_name());
        let guard = Arc::new(AuthGuard::new(token, hints, Arc::clone(&sessions), config, address, access));
        let state = Arc::new(AdminState::new(config, address, sessions, issuer, audit, deps));
        let router = api::router()
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .route("/mcp", post(api::mcp::post))
            .route("/metrics", get(metrics::metrics))
            .fallback(ui::serve)
            .with_state(Arc::clone(&state))
            // Around every route, including the fallback: nothing is reachable without the check.
            .layer(middleware::from_fn_with_state(guard, auth::check))
            // Outermost, so that rejected requests have the headers as well.
            .layer(middleware::from_fn(set_security_headers));
        Ok(Self { state, router, listener })
    }

    /// The state of the API, which other tasks read and update.
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

/// Opens the tokens and the audit trail, and prepares the login of people.
fn open_access(config: &AdminConfig, deps: &AdminDeps, scope: &CookieScope) -> Result<AdminAccess, String> {
    let people = |oidc: &OidcConfig| {
        // Codes, tokens and claims are nobody's to look up later.
        let http = Arc::new(deps.engine.local_client().unrecorded());
        let login = OidcLogin::new(oidc, &deps.token, scope.clone(), http)?;
        let sessions = PersonSessions::new(oidc, &deps.token, scope.clone(), login.is_https());
        Ok::<_, String>((login, sessions))
    };
    // The config is checked before files are opened.
    let oidc = config.oidc.as_ref().map(people).transpose()?;
    let tokens = Arc::new(match &deps.shared {
        Some(shared) => ApiTokens::open_shared(Arc::clone(&shared.store), &deps.data_dir)?,
        None => ApiTokens::open(&deps.data_dir)?,
    });
    let ended_sessions = Arc::new(match &deps.shared {
        Some(shared) => EndedSessions::open_shared(Arc::clone(&shared.store))?,
        None => EndedSessions::open(&deps.data_dir)?,
    });
    if deps.shared.is_some() {
        tokens.follow(&ended_sessions).map_err(|e| format!("the API tokens: cannot start their thread: {e}"))?;
    }
    let audit = Arc::new(AdminAudit::new(&config.audit, &deps.data_dir, deps.shared.as_ref())?);
    Ok(AdminAccess { tokens, audit, ended_sessions, oidc })
}

/// Whether an admin server could start: its login, its tokens unless replicas share them, and its audit trail.
///
/// # Errors
/// What is wrong, with its key or file.
pub fn check_access(config: &AdminConfig, data_dir: &Path, is_shared: bool) -> Result<(), String> {
    if let Some(oidc) = &config.oidc {
        oidc.check()?;
        let secret = oidc.client_secret.as_deref().map(interflow_files::resolve_secret_ref).transpose();
        secret.map_err(|e| format!("admin.oidc.client_secret: {e}"))?;
    }
    if !is_shared {
        ApiTokens::open(data_dir)?;
    }
    AuditFiles::check(&config.audit, data_dir)
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
