//! The two requests of a login at the issuer: the one that leaves for it, and the one that comes back.

use std::sync::Arc;

use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use interflow_codec::html::escape;
use serde::Deserialize;
use serde_json::json;

use crate::auth::login::{page, page_response, record_login, safe_next, see_other, set_cookie};
use crate::auth::person_sessions::PersonSessions;
use crate::auth::request_origin::RequestOrigin;
use crate::auth::{AuthGuard, cookies, identity_of};
use crate::identity::{Identity, Rights, Role};
use crate::oidc::error::{LoginError, Result};
use crate::oidc::{CallbackParams, OidcLogin, START_PATH};

#[derive(Default, Deserialize)]
#[serde(default)]
struct StartParams {
    next: Option<String>,
}

/// Handles [`START_PATH`] and the callback.
pub(crate) async fn handle(guard: &AuthGuard, client: RequestOrigin, uri: &Uri, headers: &HeaderMap) -> Response {
    let Some((oidc, people)) = &guard.access.oidc else { return see_other("/") };
    // It was checked to be one of this instance's names.
    let host = headers.get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let outcome = match uri.path() {
        START_PATH => begin(oidc, host, uri).await,
        _ => {
            let name = oidc.attempt_cookie_name();
            let cookie = cookies(headers, &name).first().copied();
            finish(guard, (oidc, people), client, host, uri, cookie).await
        }
    };
    outcome.unwrap_or_else(|e| failed(guard, oidc, client, e))
}

async fn begin(oidc: &OidcLogin, host: &str, uri: &Uri) -> Result<Response> {
    let params = Query::<StartParams>::try_from_uri(uri).map(|Query(p)| p).unwrap_or_default();
    let next = safe_next(params.next.as_deref().unwrap_or("/"));
    let (location, cookie) = oidc.begin(host, next).await?;
    let mut response = see_other(&location);
    set_cookie(&mut response, &cookie);
    Ok(response)
}

async fn finish(
    guard: &AuthGuard,
    (oidc, people): (&OidcLogin, &PersonSessions),
    client: RequestOrigin,
    host: &str,
    uri: &Uri,
    cookie: Option<&str>,
) -> Result<Response> {
    let params = Query::<CallbackParams>::try_from_uri(uri).map(|Query(p)| p);
    let params = params.map_err(|_| LoginError::request("the issuer's response cannot be read", "log in again"))?;
    let (person, next) = oidc.finish(host, params, cookie).await?;
    let identity = identity_of(&person, &oidc.config.roles);
    let revoked = revoke_tokens_beyond(guard, &person.subject, identity.as_ref().map(|i| i.rights)).await?;
    let Some(identity) = identity else {
        if !revoked.is_empty() {
            // For the audit trail: the configuration gives this person no role.
            let who = Identity::of_person(&person, Role::Viewer, Rights::NONE);
            record_login(guard, client, Some(&who), "login", 403, Some(json!({ "revoked_tokens": revoked })));
        }
        return Err(oidc.no_role(&person));
    };
    let cookie = people.issue_cookie(&guard.sessions.cookie_name(), &person).ok_or_else(|| {
        let remedy = "put the person into fewer groups that admin.oidc.roles names";
        LoginError::forbidden("your groups do not fit into a cookie", remedy)
    })?;
    let detail = (!revoked.is_empty()).then(|| json!({ "revoked_tokens": revoked }));
    record_login(guard, client, Some(&identity), "login", 200, detail);
    // A redirect would still belong to the navigation that began at the issuer, with which browsers do not send the
    // strict cookie; a page of this instance begins a new one.
    let next = escape(safe_next(&next));
    let head = format!("<meta http-equiv=\"refresh\" content=\"0;url={next}\">");
    let body = format!("<p>You are logged in as {}.</p><p><a href=\"{next}\">Continue</a></p>", escape(&person.name));
    let mut response = page_response(StatusCode::OK, page("Logged in", &head, &body));
    set_cookie(&mut response, &cookie);
    set_cookie(&mut response, &oidc.expired_attempt());
    Ok(response)
}

/// Personal tokens have at most the rights of their person, as of their last login. Returns the ids of those that end.
async fn revoke_tokens_beyond(guard: &AuthGuard, subject: &str, rights: Option<Rights>) -> Result<Vec<String>> {
    let (tokens, subject) = (Arc::clone(&guard.access.tokens), subject.to_owned());
    let revoked = tokio::task::spawn_blocking(move || tokens.revoke_beyond(&subject, rights)).await;
    let failed = |why: String| {
        LoginError::config(format!("tokens that go beyond your rights could not be revoked: {why}"), "log in again")
    };
    let revoked = revoked.map_err(|e| failed(e.to_string()))?.map_err(failed)?;
    Ok(revoked.into_iter().map(|token| token.id).collect())
}

/// The page of a failed login. Its cause is in the log, too, for the operator.
fn failed(guard: &AuthGuard, oidc: &OidcLogin, client: RequestOrigin, error: LoginError) -> Response {
    if client.address.is_some_and(|c| guard.sessions.count_wrong_token(c)) {
        let body = "<p class=\"error\" role=\"alert\">Too many failed logins. Wait a minute and try again.</p>";
        return page_response(StatusCode::TOO_MANY_REQUESTS, page("Log in", "", body));
    }
    tracing::warn!("admin: a login at {} failed: {error}", oidc.config.issuer);
    record_login(guard, client, None, "login", error.status.as_u16(), None);
    let body = format!(
        "<p class=\"error\" role=\"alert\">You are not logged in: {}.</p><p>To do: {}.</p>\
         <p><a class=\"button\" href=\"{START_PATH}\">Log in with {}</a></p><p><a href=\"/login\">Log in with the admin token</a></p>",
        escape(&error.message),
        escape(&error.remedy),
        escape(&oidc.display_name()),
    );
    let mut response = page_response(error.status, page("Login failed", "", &body));
    set_cookie(&mut response, &oidc.expired_attempt());
    response
}
