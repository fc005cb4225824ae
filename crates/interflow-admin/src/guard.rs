//! Who may come in: the token, and checks of `Host` and `Origin` against pages that try to use a browser as a ladder.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_flow::Host;
use subtle::ConstantTimeEq as _;

use crate::api::ApiError;
use crate::{AdminConfig, page};

/// A fresh token: 32 random bytes in URL-safe base64.
pub fn new_token() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the operating system hands out random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What the checks need to know.
#[derive(Debug)]
pub(crate) struct Guard {
    token: String,
    hosts: Vec<String>,
    address: SocketAddr,
    open_metrics: bool,
    /// The name of the cookie that carries the token for a browser. Cookies do not tell ports apart, so the name does.
    pub cookie: String,
    /// The token as it stands in the cookie.
    pub cookie_value: String,
}

impl Guard {
    pub(crate) fn new(token: String, config: &AdminConfig, address: SocketAddr) -> Self {
        Self {
            cookie: format!("interflow_token_{}", address.port()),
            // A token of the owner's own may hold what no cookie can.
            cookie_value: URL_SAFE_NO_PAD.encode(&token),
            token,
            hosts: config.hosts.clone(),
            address,
            open_metrics: config.open_metrics,
        }
    }

    fn is_our_host(&self, value: &str) -> bool {
        let Ok(authority) = interflow_flow::Authority::parse(value, Some(80)) else { return false };
        match &authority.host {
            Host::Name(name) => &**name == "localhost" || self.hosts.iter().any(|h| h.eq_ignore_ascii_case(name)),
            Host::Ip(ip) => {
                // An address in the URL cannot be rebound; a listener on all addresses answers under any of them.
                *ip == self.address.ip() || ip.is_loopback() || self.address.ip().is_unspecified()
            }
        }
    }

    /// A page of ours: one from the very host and port that this request asks. Another port of this machine is a
    /// stranger.
    fn is_our_origin(&self, origin: &str, host: &str) -> bool {
        origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host))
    }

    fn shows_token(&self, headers: &HeaderMap) -> Shown {
        let bearer = headers
            .get(header::AUTHORIZATION)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        if let Some((_, token)) = bearer {
            return if self.is_token(token.trim()) { Shown::Bearer } else { Shown::No };
        }
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
        let mut ours = cookies.flat_map(|v| v.split(';')).filter_map(|c| c.trim().split_once('='));
        let is_ours = |(name, value): (&str, &str)| {
            name == self.cookie && bool::from(value.as_bytes().ct_eq(self.cookie_value.as_bytes()))
        };
        if ours.any(is_ours) { Shown::Cookie } else { Shown::No }
    }

    pub(crate) fn is_token(&self, shown: &str) -> bool {
        shown.as_bytes().ct_eq(self.token.as_bytes()).into()
    }
}

/// How the token was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// As a bearer token: no web page can do that across origins.
    Bearer,
    /// In the cookie: a browser adds it by itself, so the page's origin is checked too.
    Cookie,
    No,
}

/// Checks every request before a handler sees it.
pub(crate) async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let at_the_door = request.uri().path() == "/" && is_safe(request.method());
    match refusal(&guard, &request) {
        None => next.run(request).await,
        Some(Refusal::NoToken) if at_the_door => match token_in(request.uri()) {
            Some(shown) => page::enter(&guard, &shown),
            None => page::locked(),
        },
        Some(refusal) if request.uri().path().starts_with("/api/") => refusal.error().into_response(),
        Some(refusal) => {
            let (status, _, why) = refusal.words();
            (status, format!("{why}\n")).into_response()
        }
    }
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Host,
    Origin,
    NoOrigin,
    NoToken,
}

impl Refusal {
    const fn words(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "wrong_host",
                "this Host is not one of the admin side's: see admin.hosts",
            ),
            Self::Origin => (StatusCode::FORBIDDEN, "wrong_origin", "requests from other origins are refused"),
            Self::NoOrigin => {
                (StatusCode::FORBIDDEN, "no_origin", "a change asked for by a browser must name its Origin")
            }
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "no_token",
                "the admin token is missing or wrong: it stands in admin.token in the data folder",
            ),
        }
    }

    fn error(self) -> ApiError {
        let (status, kind, why) = self.words();
        match why.split_once(": ") {
            Some((message, remedy)) => ApiError::new(status, kind, message).remedy(remedy),
            None => ApiError::new(status, kind, why),
        }
    }
}

fn refusal(guard: &Guard, request: &Request) -> Option<Refusal> {
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !guard.is_our_host(host) {
        return Some(Refusal::Host);
    }
    let origin = headers.get(header::ORIGIN).map(|v| v.to_str().unwrap_or_default());
    if origin.is_some_and(|o| !guard.is_our_origin(o, host)) {
        return Some(Refusal::Origin);
    }
    let path = request.uri().path();
    if matches!(path, "/livez" | "/readyz") || (path == "/metrics" && guard.open_metrics) {
        return None;
    }
    match guard.shows_token(headers) {
        Shown::Bearer => None,
        Shown::Cookie if is_safe(request.method()) || origin.is_some() => None,
        Shown::Cookie => Some(Refusal::NoOrigin),
        Shown::No => Some(Refusal::NoToken),
    }
}

/// The token behind `/?token=`.
fn token_in(uri: &Uri) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Shown {
        token: String,
    }
    Query::<Shown>::try_from_uri(uri).ok().map(|Query(shown)| shown.token)
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn refused(method: &str, path: &str, fields: &[(&str, &str)]) -> Option<u16> {
        let config = AdminConfig { hosts: vec!["admin.test".into()], ..AdminConfig::default() };
        let guard = Guard::new("right".into(), &config, "127.0.0.1:7072".parse().unwrap());
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        refusal(&guard, &request.body(Body::empty()).unwrap()).map(|r| r.words().0.as_u16())
    }

    #[test]
    fn only_the_token_opens_and_only_under_our_names() {
        let host = ("host", "127.0.0.1:7072");
        let bearer = ("authorization", "Bearer right");
        let cookie = ("cookie", "a=b; interflow_token_7072=cmlnaHQ");
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
            ("GET", "/api/v1/flows", &[host, ("cookie", "interflow_token_7072=right")], Some(401)),
            ("GET", "/api/v1/flows", &[host, ("cookie", "interflow_token_7073=cmlnaHQ")], Some(401)),
            ("GET", "/?token=right", &[host], Some(401)),
            ("GET", "/livez", &[host], None),
            ("GET", "/livez", &[("host", "evil.test")], Some(421)),
            ("GET", "/metrics", &[host], Some(401)),
        ] {
            assert_eq!(refused(method, path, fields), status, "{method} {path} {fields:?}");
        }
    }

    #[test]
    fn tokens_differ() {
        assert_ne!(new_token(), new_token());
        assert!(new_token().len() >= 43);
    }
}
