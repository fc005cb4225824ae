//! API tokens: those of services, which admins make, and those that people make for programs of their own.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use interflow_limits::parse_timestamp;
use interflow_types::Timestamp;
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::input::StrictJson;
use crate::error::{ApiError, Result};
use crate::identity::caller::{Caller, missing_rights};
use crate::identity::token_lifetimes::TokenLifetimes;
use crate::identity::tokens::{ApiToken, NewToken, TokenKind};
use crate::identity::{IdentityKind, Rights, Role};
use crate::records::blocking;

#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenList {
    tokens: Vec<TokenView>,
}

#[derive(Serialize, JsonSchema)]
struct TokenView {
    #[serde(flatten)]
    token: ApiToken,
    expired: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenInput {
    name: String,
    role: Role,
    /// Whether it may read bodies and conversations, too; an admin's always may.
    #[serde(default)]
    read_bodies: bool,
    /// `personal` for programs of one's own, which is what people without the right to administer make; `service` otherwise.
    kind: Option<TokenKind>,
    /// A time from now such as `30d`, a date, or RFC 3339. Absent: it does not expire, which is for services only.
    expires: Option<String>,
}

/// A new token with its text, which is shown this once.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CreatedToken {
    token: ApiToken,
    /// The token itself.
    secret: String,
}

/// Whether a token of this caller would not outlive its rights: people and admins may create tokens, other tokens not.
pub(crate) fn may_create(caller: &Caller) -> bool {
    caller.identity.kind == IdentityKind::Person || caller.has(Rights::ADMINISTER)
}

/// Whether a token is the caller's own: made by the same person.
fn is_own(caller: &Caller, token: &ApiToken) -> bool {
    caller.identity.subject.is_some() && caller.identity.subject == token.subject
}

/// `GET /tokens`
pub async fn list(caller: Caller) -> Result<Json<TokenList>> {
    let sees_all = caller.has(Rights::ADMINISTER);
    let tokens = caller.tokens()?.list().into_iter().filter(|token| sees_all || is_own(&caller, token));
    Ok(Json(TokenList { tokens: tokens.map(|token| TokenView { expired: token.is_expired(), token }).collect() }))
}

/// `POST /tokens`: nobody's token has more rights than they have. Personal tokens end with the rights of their person.
pub async fn create(
    lifetimes: TokenLifetimes,
    caller: Caller,
    StrictJson(input): StrictJson<TokenInput>,
) -> Result<Json<CreatedToken>> {
    if !may_create(&caller) {
        let message = "a token cannot create tokens, unless it is an admin's";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "no_token_here", message));
    }
    // Nobody passes on more than they have.
    let missing = caller.identity.rights.missing(input.role.rights_with(input.read_bodies));
    if !missing.is_empty() {
        return Err(missing_rights(&missing).remedy("ask for a role that is not above your own"));
    }
    let expires = input.expires.as_deref().map(parse_expiry).transpose().map_err(ApiError::bad_request)?;
    let kind = token_kind(&caller, input.kind)?;
    lifetimes.check(kind, expires).map_err(ApiError::bad_request)?;
    let new = NewToken {
        name: input.name,
        kind,
        role: input.role,
        read_bodies: input.read_bodies || input.role == Role::Admin,
        created_by: caller.identity.name.clone(),
        subject: caller.identity.subject.clone(),
        expires,
    };
    let tokens = caller.tokens()?;
    let (token, secret) = blocking(move || tokens.create(new)).await?.map_err(ApiError::bad_request)?;
    caller.record_detail(json!({
        "token": token.id, "name": token.name, "kind": token.kind, "role": token.role,
        "read_bodies": token.read_bodies, "expires": token.expires,
    }));
    Ok(Json(CreatedToken { token, secret }))
}

/// The kind of a new token, if the caller may make it.
fn token_kind(caller: &Caller, wanted: Option<TokenKind>) -> Result<TokenKind> {
    let may_serve = caller.has(Rights::ADMINISTER);
    let is_person = caller.identity.kind == IdentityKind::Person;
    match wanted.unwrap_or(if may_serve { TokenKind::Service } else { TokenKind::Personal }) {
        TokenKind::Service if !may_serve => {
            let missing = caller.identity.rights.missing(Rights::ADMINISTER);
            Err(missing_rights(&missing).remedy("make a personal token"))
        }
        TokenKind::Personal if !is_person => {
            let message = "a personal token belongs to a person who logged in at the issuer";
            Err(ApiError::bad_request(message).remedy("make a service token"))
        }
        kind => Ok(kind),
    }
}

/// `DELETE /tokens/{id}`: one's own, or any for an admin.
pub async fn revoke(caller: Caller, Path(id): Path<String>) -> Result<StatusCode> {
    let message = format!("there is no API token {id}");
    let not_found = || {
        let message = message.as_str();
        ApiError::not_found(message).remedy("GET /api/v1/tokens lists them")
    };
    let tokens = caller.tokens()?;
    let token = tokens.list().into_iter().find(|t| t.id == id).ok_or_else(not_found)?;
    // Others' tokens are not said to exist.
    let is_theirs = is_own(&caller, &token) && caller.identity.kind == IdentityKind::Person;
    if !caller.has(Rights::ADMINISTER) && !is_theirs {
        return Err(not_found());
    }
    let revoked = blocking(move || tokens.revoke(&id)).await?;
    let revoked = revoked.map_err(|e| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "disk", e))?;
    caller.record_detail(json!({ "name": revoked.ok_or_else(not_found)?.name }));
    Ok(StatusCode::NO_CONTENT)
}

/// A time from now, a date or RFC 3339.
///
/// # Errors
/// It is none of these.
pub fn parse_expiry(text: &str) -> Result<Timestamp, String> {
    if let Ok(span) = text.parse::<HumanDuration>() {
        return Ok(Timestamp::now().after(span.0));
    }
    let at = parse_timestamp(text)?;
    u64::try_from(at.as_microsecond()).map(Timestamp::from_micros).map_err(|_| format!("`{text}` is before 1970"))
}
