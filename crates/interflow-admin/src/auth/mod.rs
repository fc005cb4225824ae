//! Authentication for the admin port: a token or a browser session, and checks of `Host` and `Origin` against
//! malicious web pages.

pub(crate) mod cookie_scope;
pub(crate) mod ended_sessions;
pub(crate) mod issuer_login;
pub(crate) mod login;
pub(crate) mod person_sessions;
pub(crate) mod request_origin;
pub(crate) mod sessions;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use interflow_types::Host;
use ipnet::IpNet;
use subtle::ConstantTimeEq as _;

use crate::AdminConfig;
use crate::audit::AdminAudit;
use crate::auth::ended_sessions::EndedSessions;
use crate::auth::person_sessions::{CheckedPerson, PersonSession, PersonSessions};
use crate::auth::request_origin::RequestOrigin;
use crate::auth::sessions::{BrowserSessions, SessionBytes};
use crate::error::ApiError;
use crate::identity::Identity;
use crate::identity::caller::Caller;
use crate::identity::tokens::{ApiTokens, TokenCheck};
use crate::oidc::OidcLogin;
use crate::oidc::config::OidcRoles;

/// Credentials and addresses that requests are checked against.
pub(crate) struct AuthGuard {
    token: String,
    hosts: Vec<String>,
    address: SocketAddr,
    open_metrics: bool,
    trusted_proxies: Vec<IpNet>,
    pub hints: LoginHints,
    pub sessions: Arc<BrowserSessions>,
    pub access: AdminAccess,
}

/// What the login page says about ways to log in.
#[derive(Default)]
pub(crate) struct LoginHints {
    /// The file that contains the token; `None` if it was given in another way.
    pub token_file: Option<PathBuf>,
    /// How commands for this instance begin.
    pub command: String,
}

/// Who may enter besides the holder of the admin token, and where it is written down.
pub(crate) struct AdminAccess {
    pub tokens: Arc<ApiTokens>,
    pub audit: Arc<AdminAudit>,
    pub ended_sessions: Arc<EndedSessions>,
    /// The login of people, with their sessions.
    pub oidc: Option<(OidcLogin, PersonSessions)>,
}

impl AuthGuard {
    pub(crate) fn new(
        token: String,
        hints: LoginHints,
        sessions: Arc<BrowserSessions>,
        config: &AdminConfig,
        address: SocketAddr,
        access: AdminAccess,
    ) -> Self {
        let public = access.oidc.as_ref().and_then(|(oidc, _)| oidc.public_host());
        let hosts = config.hosts.iter().cloned().chain(public).collect();
        Self {
            token,
            hosts,
            address,
            open_metrics: config.public_metrics,
            trusted_proxies: config.trusted_proxies.clone(),
            hints,
            sessions,
            access,
        }
    }

    fn is_own_host(&self, value: &str) -> bool {
        // `Host` may be without a port, whose default does not matter here.
        let Ok(authority) = interflow_types::Authority::parse(value, Some(80)) else { return false };
        match &authority.host {
            Host::Name(name) => &**name == "localhost" || self.hosts.iter().any(|h| h.eq_ignore_ascii_case(name)),
            Host::Ip(ip) => {
                // An IP address in the URL is not subject to DNS rebinding; a listener on all addresses accepts any of
                // them.
                *ip == self.address.ip() || ip.is_loopback() || self.address.ip().is_unspecified()
            }
        }
    }

    /// Whether a page is Interflow's own: its origin has the host and port that this request is sent to. Another port
    /// of this machine is foreign.
    fn is_own_origin(&self, origin: &str, host: &str) -> bool {
        // The scheme is not compared, because a proxy with TLS may stand in front.
        origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host))
    }

    fn credential(&self, headers: &HeaderMap) -> Credential {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.split_once(' '));
        let bearer = authorization.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        // A wrong bearer token is not made up for by a valid cookie.
        if let Some((_, token)) = bearer {
            return self.bearer_credential(token.trim());
        }
        let values = cookies(headers, &self.sessions.cookie_name());
        values.into_iter().find_map(|value| self.session_credential(value)).unwrap_or(Credential::None)
    }

    fn bearer_credential(&self, token: &str) -> Credential {
        if self.is_token(token) {
            return Credential::Bearer(Identity::admin_token());
        }
        match self.access.tokens.check(token) {
            TokenCheck::Valid(identity) => Credential::Bearer(identity),
            TokenCheck::Expired => Credential::Expired,
            TokenCheck::Unknown => Credential::None,
        }
    }

    fn session_credential(&self, value: &str) -> Option<Credential> {
        let is_ended = |id: &str| self.access.ended_sessions.is_ended(id);
        if let Some(session) = self.sessions.check(value) {
            let renew = self.sessions.is_to_be_renewed(session.left).then_some(session.bytes);
            let id = Some(session.id()).filter(|id| !is_ended(id))?;
            return Some(Credential::Session {
                identity: Identity { session: Some(id), ..Identity::admin_token() },
                renew,
            });
        }
        let (oidc, people) = self.access.oidc.as_ref()?;
        let CheckedPerson { person, id, until } = people.check(value).filter(|session| !is_ended(&session.id))?;
        let who = identity_of(&person, &oidc.config.roles)?;
        // Not renewed: groups are asked for again at the next login.
        let identity = Identity { until: Some(until), session: Some(id), ..who };
        Some(Credential::Session { identity, renew: None })
    }

    /// Ends every session that a request presents, here and at other replicas.
    pub(crate) async fn end_sessions(&self, headers: &HeaderMap) {
        let values = cookies(headers, &self.sessions.cookie_name());
        let credentials = values.into_iter().filter_map(|value| self.session_credential(value));
        let sessions: Vec<_> = credentials
            .filter_map(|credential| {
                let identity = credential.identity()?;
                let expiry = identity.until.map_or_else(|| self.sessions.latest_expiry(), |until| until.secs() + 1);
                Some((identity.session.clone()?, expiry))
            })
            .collect();
        if sessions.is_empty() {
            return;
        }
        let ended = Arc::clone(&self.access.ended_sessions);
        let end_all = move || sessions.iter().map(|(id, at)| ended.end(id, *at)).fold(Ok(()), std::io::Result::and);
        if let Ok(Err(e)) = tokio::task::spawn_blocking(end_all).await {
            tracing::warn!("admin: a logout cannot be saved, and holds at this instance until it restarts: {e}");
        }
    }

    pub(crate) fn is_token(&self, shown: &str) -> bool {
        // In constant time, so that the time of the answer says nothing about the token.
        shown.as_bytes().ct_eq(self.token.as_bytes()).into()
    }
}

/// The values of a cookie. Cookies of the same name may be set for other paths; any valid one counts.
pub(crate) fn cookies<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
    let pairs = cookies.flat_map(|v| v.split(';')).filter_map(|c| c.trim().split_once('='));
    pairs.filter(|(n, _)| *n == name).map(|(_, value)| value).collect()
}

/// Who somebody is who logged in; `None` if the configuration gives none of their groups a role any more.
pub(crate) fn identity_of(person: &PersonSession, roles: &OidcRoles) -> Option<Identity> {
    let (role, rights) = roles.for_groups(&person.groups)?;
    Some(Identity::of_person(person, role, rights))
}

/// What a request presents.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Credential {
    /// A bearer token: no web page can send that across origins.
    Bearer(Identity),
    /// A session cookie: browsers attach it automatically, so the page's origin is checked too.
    Session {
        identity: Identity,
        /// The session is to be prolonged.
        renew: Option<SessionBytes>,
    },
    /// A token that was valid once.
    Expired,
    None,
}

impl Credential {
    fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Bearer(identity) | Self::Session { identity, .. } => Some(identity),
            Self::Expired | Self::None => None,
        }
    }
}

/// Checks every request before it reaches a handler.
pub(crate) async fn check(State(guard): State<Arc<AuthGuard>>, request: Request, next: Next) -> Response {
    let from = RequestOrigin::of(&request, &guard.trusted_proxies);
    let verdict = authorize(&guard, &request);
    // Missing tokens and origins are left to the login, which a browser without a session must be able to reach.
    if let Err(refusal) = verdict
        && !matches!(refusal, AuthRefusal::NoToken | AuthRefusal::NoOrigin)
    {
        return refusal_response(refusal, &request);
    }
    let identity = verdict.as_ref().ok().and_then(Credential::identity).cloned().map(Arc::new);
    let mut request = match login::handle_login(&guard, request, from, identity.as_deref()).await {
        Ok(response) => return response,
        Err(request) => request,
    };
    let credential = match verdict {
        Err(refusal) => return refusal_response(refusal, &request),
        Ok(credential) => credential,
    };
    if let Some(identity) = identity {
        let address = from.address;
        let (audit, tokens) = (Arc::clone(&guard.access.audit), Arc::clone(&guard.access.tokens));
        let ended_sessions = Arc::clone(&guard.access.ended_sessions);
        let (tokens, ended_sessions) = (Some(tokens), Some(ended_sessions));
        let caller = Caller { identity, address, audit, tokens, ended_sessions, detail: Arc::default() };
        request.extensions_mut().insert(caller);
    }
    if guard.access.tokens.has_unsaved_uses() {
        let tokens = Arc::clone(&guard.access.tokens);
        // Nobody waits for the disk.
        tokio::task::spawn_blocking(move || tokens.save_uses());
    }
    let mut response = next.run(request).await;
    // Renewed while it is used, so that the session ends only after a pause.
    if let Credential::Session { renew: Some(session), .. } = credential {
        login::set_cookie(&mut response, &guard.sessions.cookie(&session, from.is_https));
    }
    response
}

fn refusal_response(refusal: AuthRefusal, request: &Request) -> Response {
    // Clients of the API get JSON, browsers plain text.
    if request.uri().path().starts_with("/api/") {
        return refusal.error().into_response();
    }
    (refusal.status_and_kind().0, format!("{}\n", refusal.message())).into_response()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuthRefusal {
    TwoHosts,
    Host,
    Origin,
    OtherSite,
    NoOrigin,
    NoToken,
    ExpiredToken,
}

impl AuthRefusal {
    const fn status_and_kind(self) -> (StatusCode, &'static str) {
        match self {
            Self::TwoHosts => (StatusCode::BAD_REQUEST, "two_hosts"),
            Self::Host => (StatusCode::MISDIRECTED_REQUEST, "wrong_host"),
            Self::Origin | Self::OtherSite => (StatusCode::FORBIDDEN, "wrong_origin"),
            Self::NoOrigin => (StatusCode::FORBIDDEN, "no_origin"),
            Self::NoToken => (StatusCode::UNAUTHORIZED, "no_token"),
            Self::ExpiredToken => (StatusCode::UNAUTHORIZED, "token_expired"),
        }
    }

    /// With what to do, behind a colon.
    const fn message(self) -> &'static str {
        match self {
            Self::TwoHosts => "a request has one Host field",
            Self::Host => "this Host is not one of the admin side's: see admin.hosts",
            Self::Origin => "requests from other origins are refused",
            Self::OtherSite => "requests that pages of other origins cause are refused",
            Self::NoOrigin => "a change asked for by a browser must name its Origin",
            Self::NoToken => "the admin token is missing or wrong: it is in admin.token in the data directory",
            Self::ExpiredToken => "this API token has expired: create another one with interflow tokens create",
        }
    }

    fn error(self) -> ApiError {
        let (status, kind) = self.status_and_kind();
        match self.message().split_once(": ") {
            Some((message, remedy)) => ApiError::new(status, kind, message).remedy(remedy),
            None => ApiError::new(status, kind, self.message()),
        }
    }
}

/// Decides whether a request is authorised, and by which credential. `Host` is checked first: it protects even paths
/// without a token against DNS rebinding.
fn authorize(guard: &AuthGuard, request: &Request) -> Result<Credential, AuthRefusal> {
    let headers = request.headers();
    // Two fields could be read differently by a proxy in front and by us (RFC 9112 section 3.2).
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(AuthRefusal::TwoHosts);
    }
    let host = headers.get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    // A request in absolute form names the host in its target, too.
    let in_target = request.uri().authority();
    if !guard.is_own_host(host) || in_target.is_some_and(|a| !guard.is_own_host(a.as_str())) {
        return Err(AuthRefusal::Host);
    }
    let origin = headers.get(header::ORIGIN).map(|v| v.to_str().unwrap_or_default());
    if origin.is_some_and(|o| !guard.is_own_origin(o, host)) {
        return Err(AuthRefusal::Origin);
    }
    let path = request.uri().path();
    let credential = guard.credential(headers);
    // Health checks come without a token.
    if matches!(path, "/livez" | "/readyz") || (path == "/metrics" && guard.open_metrics) {
        return Ok(credential);
    }
    match credential {
        // Pages may be linked to from anywhere; the API answers the UI alone. Browsers that do not say where a request
        // comes from do not send the strict cookie with those of other sites either.
        Credential::Session { .. } if login::is_api_path(path) && is_from_elsewhere(headers) => {
            Err(AuthRefusal::OtherSite)
        }
        // A browser sends `Origin` with every request that is neither GET nor HEAD, so one without it is not trusted
        // with the cookie.
        Credential::Session { .. } if !is_safe(request.method()) && origin.is_none() => Err(AuthRefusal::NoOrigin),
        Credential::Expired => Err(AuthRefusal::ExpiredToken),
        Credential::None => Err(AuthRefusal::NoToken),
        credential => Ok(credential),
    }
}

/// Whether a browser says that a page of another origin caused the request (W3C Fetch Metadata). `none` is the user.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    headers.get_all("sec-fetch-site").iter().any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::cookie_scope::CookieScope;
    use axum::body::Body;

    fn refused(method: &str, path: &str, fields: &[(&str, &str)]) -> Option<u16> {
        let config = AdminConfig { hosts: vec!["admin.test".into()], ..AdminConfig::default() };
        let sessions =
            Arc::new(BrowserSessions::new("right", CookieScope::Port(7072), std::time::Duration::from_secs(60), None));
        let cookie = sessions.issue_cookie(false);
        let session = cookie.split(';').next().unwrap().to_owned();
        let dir = tempfile::tempdir().unwrap();
        let access = AdminAccess {
            tokens: Arc::new(ApiTokens::open(dir.path()).unwrap()),
            audit: Arc::new(AdminAudit::new(&config.audit, dir.path(), None).unwrap()),
            ended_sessions: Arc::new(EndedSessions::open(dir.path()).unwrap()),
            oidc: None,
        };
        let address = "127.0.0.1:7072".parse().unwrap();
        let guard = AuthGuard::new("right".into(), LoginHints::default(), sessions, &config, address, access);
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(*name, value.replace("{session}", &session));
        }
        authorize(&guard, &request.body(Body::empty()).unwrap()).err().map(|r| r.status_and_kind().0.as_u16())
    }

    #[test]
    fn requests_need_the_token_and_an_allowed_host() {
        let host = ("host", "127.0.0.1:7072");
        let bearer = ("authorization", "Bearer right");
        let cookie = ("cookie", "a=b; {session}");
        for (method, path, fields, status) in [
            ("GET", "/api/v1/flows", &[host, bearer][..], None),
            ("GET", "/api/v1/flows", &[host, ("authorization", "Bearer wrong")], Some(401)),
            ("GET", "/api/v1/flows", &[host], Some(401)),
            ("GET", "/api/v1/flows", &[("host", "evil.test"), bearer], Some(421)),
            ("GET", "/api/v1/flows", &[("host", "admin.test"), bearer], None),
            ("GET", "/api/v1/flows", &[("host", "localhost:9"), cookie], None),
            ("POST", "/api/v1/flows", &[host, cookie], Some(403)),
            ("POST", "/api/v1/flows", &[host, cookie, ("origin", "http://127.0.0.1:7072")], None),
            ("POST", "/api/v1/flows", &[host, cookie, ("origin", "http://evil.test")], Some(403)),
            ("GET", "/api/v1/flows", &[host, bearer, ("origin", "null")], Some(403)),
            ("POST", "/api/v1/flows", &[host, cookie, ("origin", "http://127.0.0.1:3000")], Some(403)),
            ("POST", "/api/v1/flows", &[host, cookie, ("origin", "http://localhost:7072")], Some(403)),
            ("GET", "/api/v1/flows", &[host, ("cookie", "interflow_session_7072=right")], Some(401)),
            ("GET", "/api/v1/flows", &[host, ("cookie", "interflow_token_7072=cmlnaHQ")], Some(401)),
            ("GET", "/api/v1/flows", &[host, ("cookie", "x{session}")], Some(401)),
            ("GET", "/api/v1/flows", &[host, cookie, ("sec-fetch-site", "cross-site")], Some(403)),
            ("GET", "/api/v1/flows", &[host, cookie, ("sec-fetch-site", "same-site")], Some(403)),
            ("GET", "/metrics", &[host, cookie, ("sec-fetch-site", "cross-site")], Some(403)),
            ("GET", "/api/v1/flows", &[host, cookie, ("sec-fetch-site", "same-origin")], None),
            ("GET", "/api/v1/flows", &[host, cookie, ("sec-fetch-site", "none")], None),
            ("GET", "/flows", &[host, cookie, ("sec-fetch-site", "cross-site")], None),
            ("GET", "/api/v1/flows", &[host, bearer, ("sec-fetch-site", "cross-site")], None),
            ("GET", "/livez", &[host, ("host", "localhost")], Some(400)),
            ("GET", "http://evil.test/livez", &[host], Some(421)),
            ("GET", "/?token=right", &[host], Some(401)),
            ("GET", "/livez", &[host], None),
            ("GET", "/livez", &[("host", "evil.test")], Some(421)),
            ("GET", "/metrics", &[host], Some(401)),
        ] {
            assert_eq!(refused(method, path, fields), status, "{method} {path} {fields:?}");
        }
    }
}
