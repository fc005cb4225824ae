//! The login page, and the three ways for a browser to obtain a session: the token in the form, the token in the URL
//! that `interflow run` prints, and the one-time code of `interflow open`. The page needs no script.

use interflow_codec::html::escape;
use interflow_types::percent::encoded;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, Request};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::audit::AuditEntry;
use crate::auth::request_origin::RequestOrigin;
use crate::auth::sessions::LOGIN_PATH;
use crate::auth::{AuthGuard, issuer_login};
use crate::identity::Identity;
use crate::oidc::{CALLBACK_PATH, START_PATH};
use crate::ui;

const LOGOUT: &str = "/logout";
/// Maximum size of the form, in bytes.
const MAX_FORM: usize = 8 << 10;
const FORM_TIMEOUT: Duration = Duration::from_secs(10);

const STYLE: &str = include_str!("login.css");

/// Allows only the page's own style, and form submission to its own origin.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    // The style is allowed by its hash, so no nonce is needed.
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).expect("base64 is plain text")
});

#[derive(Deserialize)]
struct LoginForm {
    token: String,
    #[serde(default)]
    next: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LoginParams {
    token: Option<String>,
    code: Option<String>,
    next: Option<String>,
}

/// Handles requests that concern sessions; returns all others. `identity` is who presents a session or a token already.
/// `Host` and `Origin` have been checked.
pub(crate) async fn handle_login(
    guard: &Arc<AuthGuard>,
    request: Request,
    client: RequestOrigin,
    identity: Option<&Identity>,
) -> Result<Response, Request> {
    let in_session = identity.is_some();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    match path {
        LOGIN_PATH if *request.method() == Method::POST => {
            return Ok(submit_form(guard, client, request.into_body()).await);
        }
        LOGOUT if *request.method() == Method::POST => {
            // Without a session nothing ends, and anybody could fill the trail.
            if identity.is_some() {
                record_login(guard, client, identity, "logout", 303, None);
                guard.end_sessions(request.headers()).await;
            }
            return Ok(logout(guard));
        }
        START_PATH | CALLBACK_PATH if *request.method() == Method::GET && guard.access.oidc.is_some() => {
            return Ok(issuer_login::handle(guard, client, request.uri(), request.headers()).await);
        }
        LOGIN_PATH if reads => {
            let LoginParams { code, next, .. } = login_params(request.uri());
            let next = safe_next(next.as_deref().unwrap_or("/")).to_owned();
            return Ok(match code {
                // What only looks at a link, such as the preview of a chat, neither uses it up nor logs in.
                Some(_) if *request.method() == Method::HEAD => login_page(guard, client, &next, None),
                // A code leads to the first page only, so that it cannot be combined with a redirect.
                Some(code) if guard.sessions.redeem_code(&code, client.address).await => {
                    begin_session(guard, client, "/")
                }
                Some(_) if !in_session => {
                    let why = "This link was used already, or is older than a minute. Run interflow open again.";
                    login_page(guard, client, &next, Some(why))
                }
                _ if in_session => see_other(&next),
                _ => login_page(guard, client, &next, None),
            });
        }
        _ => {}
    }
    // Files of the UI and the API answer for themselves; the login page is only for pages.
    if !reads || !ui::is_page(path.trim_start_matches('/')) || is_api_path(path) {
        return Err(request);
    }
    if let Some(token) = login_params(request.uri()).token.filter(|_| *request.method() == Method::GET) {
        // The redirect removes the token from the address bar.
        return Ok(match guard.is_token(&token) {
            true => begin_session(guard, client, safe_next(path)),
            false => wrong_token(guard, client, safe_next(path)),
        });
    }
    if in_session {
        return Err(request);
    }
    let next = request.uri().path_and_query().map_or("/", |p| p.as_str());
    Ok(login_page(guard, client, safe_next(next), None))
}

pub(crate) fn is_api_path(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/") || matches!(path, "/metrics" | "/mcp" | "/livez" | "/readyz")
}

fn login_params(uri: &Uri) -> LoginParams {
    Query::<LoginParams>::try_from_uri(uri).map(|Query(shown)| shown).unwrap_or_default()
}

/// A local path to redirect to; the first page for anything that might lead to another site.
pub(crate) fn safe_next(next: &str) -> &str {
    // A backslash counts as a slash in browsers.
    let plain = next.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if next.starts_with('/') && !next.starts_with("//") && plain && !next.starts_with(LOGIN_PATH) { next } else { "/" }
}

async fn submit_form(guard: &Arc<AuthGuard>, client: RequestOrigin, body: Body) -> Response {
    let body = tokio::time::timeout(FORM_TIMEOUT, axum::body::to_bytes(body, MAX_FORM)).await;
    let form = match body {
        // Parsed as the query of a URL, which has the same encoding as the form.
        Ok(Ok(body)) => std::str::from_utf8(&body)
            .ok()
            .and_then(|text| Uri::try_from(format!("/?{text}")).ok())
            .and_then(|uri| Query::<LoginForm>::try_from_uri(&uri).ok()),
        _ => None,
    };
    let Some(Query(LoginForm { token, next })) = form else {
        return (StatusCode::BAD_REQUEST, "the form cannot be read\n").into_response();
    };
    let next = safe_next(&next);
    if guard.is_token(token.trim()) { begin_session(guard, client, next) } else { wrong_token(guard, client, next) }
}

fn wrong_token(guard: &AuthGuard, client: RequestOrigin, next: &str) -> Response {
    if client.address.is_some_and(|c| guard.sessions.count_wrong_token(c)) {
        let mut response = login_page(guard, client, next, Some("Too many wrong tokens. Wait a minute and try again."));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        return response;
    }
    // Only attempts that count are written down, so that nobody can fill the trail.
    record_login(guard, client, None, "login", 401, None);
    login_page(guard, client, next, Some("This is not the token of this instance."))
}

/// Writes a login or its end to the audit trail.
pub(crate) fn record_login(
    guard: &AuthGuard,
    client: RequestOrigin,
    identity: Option<&Identity>,
    operation: &str,
    status: u16,
    detail: Option<Value>,
) {
    let address = client.address;
    guard.access.audit.record(&AuditEntry { identity, address, operation, target: LOGIN_PATH, status, detail });
}

fn begin_session(guard: &AuthGuard, client: RequestOrigin, next: &str) -> Response {
    record_login(guard, client, Some(&Identity::admin_token()), "login", 303, None);
    let mut response = see_other(next);
    set_cookie(&mut response, &guard.sessions.issue_cookie(client.is_https));
    response
}

fn logout(guard: &AuthGuard) -> Response {
    let mut response = see_other("/");
    set_cookie(&mut response, &guard.sessions.expired_cookie());
    response
}

pub(crate) fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        // Appended: other cookies of the response are kept.
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

pub(crate) fn see_other(next: &str) -> Response {
    let next = HeaderValue::from_str(next).unwrap_or(HeaderValue::from_static("/"));
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, next)]).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The page; the location of the token file is disclosed only to clients on this machine.
fn login_page(guard: &AuthGuard, client: RequestOrigin, next: &str, error: Option<&str>) -> Response {
    let local = client.address.is_some_and(|c| c.to_canonical().is_loopback());
    let file = guard.hints.token_file.as_ref().filter(|_| local).map(|f| f.display().to_string());
    let location = match (&file, guard.hints.token_file.is_some()) {
        (Some(file), _) => format!(
            "<p>The token is in this file. To print it:</p><pre>{} {}</pre>",
            if cfg!(windows) { "type" } else { "cat" },
            escape(&quoted(file))
        ),
        (None, true) => {
            "<p>The token is in the file <code>admin.token</code> in the instance's data directory.</p>".into()
        }
        (None, false) => "<p>The token is the value of <code>INTERFLOW_TOKEN</code> that the instance was started \
                          with.</p>"
            .into(),
    };
    let error = error.map_or_else(String::new, |e| format!("<p class=\"error\" role=\"alert\">{}</p>", escape(e)));
    // People log in at the issuer; the token is for the operator of the instance.
    let issuer = guard.access.oidc.as_ref().map_or_else(String::new, |(oidc, _)| {
        let (next, name) = (encoded(next), escape(&oidc.display_name()));
        format!(
            "<p><a class=\"button\" href=\"{START_PATH}?next={next}\">Log in with {name}</a></p><h2>With the admin token</h2>"
        )
    });
    let body = format!(
        "{error}{issuer}<p>Log in with the admin token of this instance.</p>\
         <form method=\"post\" action=\"{LOGIN_PATH}\"><input type=\"hidden\" name=\"next\" value=\"{next}\">\
         <label for=\"token\">Admin token</label>\
         <input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"current-password\"{focus} required>\
         <button type=\"submit\">Log in</button></form>\
         <h2>Where is the token?</h2>{location}\
         <h2>Without the token</h2><p>On the machine where Interflow runs, this command opens the page, logged in:</p>\
         <pre>{command} open</pre>",
        next = escape(next),
        // A path of the machine is for those on it.
        command = if local { escape(&guard.hints.command) } else { "interflow".into() },
        // People go to the issuer, not to this field.
        focus = if guard.access.oidc.is_some() { "" } else { " autofocus" },
    );
    // Not a redirect: the address stays, and a script that lacks a token gets an error status.
    page_response(StatusCode::UNAUTHORIZED, page("Log in", "", &body))
}

/// A page of the login. The title and what is in the head and the body are HTML.
pub(crate) fn page(title: &str, head: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title} · Interflow</title>{head}\
         <style>{STYLE}</style></head><body><main><h1>Interflow</h1>{body}</main></body></html>\n"
    )
}

/// A page without scripts, in the style of the login page.
pub(crate) fn page_response(status: StatusCode, html: String) -> Response {
    let mut response = (status, Html(html)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // With `no-referrer`, browsers would send the form with `Origin: null`.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// A path quoted for a shell.
fn quoted(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+:\\~".contains(&b);
    if path.bytes().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_redirects_only_to_local_pages() {
        for (next, goes) in [
            ("/", "/"),
            ("/settings?x=1", "/settings?x=1"),
            ("//evil.test", "/"),
            ("/\\evil.test", "/"),
            ("https://evil.test", "/"),
            ("", "/"),
            ("/a\r\nSet-Cookie: x", "/"),
            ("/login?next=/login", "/"),
        ] {
            assert_eq!(safe_next(next), goes, "{next:?}");
        }
    }

    #[test]
    fn a_path_is_quoted_for_the_shell() {
        assert_eq!(quoted("/home/a/.local/share/interflow/admin.token"), "/home/a/.local/share/interflow/admin.token");
        assert_eq!(quoted("/home/a b/it's"), "'/home/a b/it'\\''s'");
    }
}
