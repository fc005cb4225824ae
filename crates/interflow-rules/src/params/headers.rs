//! Parameters of actions on message heads.

use std::fmt;

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::value_types::RegexParam;
use crate::text::template::{ReplacementTemplate, TextTemplate};

/// Text to replace in a field.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceField {
    /// The field.
    pub name: TextTemplate,
    /// The pattern to replace.
    pub regex: RegexParam,
    /// The replacement.
    pub with: ReplacementTemplate,
}

/// Name and password.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicAuthParams {
    /// The name.
    pub user: TextTemplate,
    /// The password.
    pub password: TextTemplate,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "MapRemoteParams", transform = super::short_form("to"))]
pub struct MapRemoteParams {
    /// A regex on the whole URL; only matching requests are redirected.
    pub regex: Option<RegexParam>,
    /// The base URL; with a regex, the replacement of each of its matches.
    pub to: ReplacementTemplate,
    /// Whether the `Host` field stays as the client sent it.
    #[serde(default)]
    pub keep_host: bool,
}

impl MapRemoteParams {
    fn checked(self) -> Result<Self, String> {
        if let (None, Some(url)) = (&self.regex, self.to.0.as_literal()) {
            crate::text::url::parse_url(url)?;
        }
        Ok(self)
    }
}
shorthand!(MapRemoteParams by to, MapRemoteParams::checked);

/// What of a response is stored for its domain.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SaveSessionParams {
    /// The cookies that it sets.
    pub cookies: bool,
    /// The cookies of its request.
    pub request_cookies: bool,
    /// These fields of the response.
    pub headers: Vec<String>,
}

impl Default for SaveSessionParams {
    fn default() -> Self {
        Self { cookies: true, request_cookies: false, headers: Vec::new() }
    }
}

/// Selects a part of a session, and the domain.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionPartParams {
    /// Its cookies.
    pub cookies: bool,
    /// Its fields.
    pub headers: bool,
    /// Whether cookies of the request are kept beside them.
    pub merge: bool,
    /// The domain; when absent the request's host, or all domains for `clear_session`.
    pub domain: Option<TextTemplate>,
}

impl Default for SessionPartParams {
    fn default() -> Self {
        Self { cookies: true, headers: true, merge: true, domain: None }
    }
}

/// A `Set-Cookie` line.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CookieLine {
    /// The name.
    pub name: TextTemplate,
    /// The value.
    pub value: TextTemplate,
    /// `Path`.
    pub path: Option<TextTemplate>,
    /// `Domain`.
    pub domain: Option<TextTemplate>,
    /// Seconds until it expires, as `Expires`.
    pub expires_in: Option<i64>,
    /// `Max-Age` in seconds.
    pub max_age: Option<i64>,
    /// `HttpOnly`.
    #[serde(default)]
    pub http_only: bool,
    /// `Secure`.
    #[serde(default)]
    pub secure: bool,
    /// `SameSite`: `Lax`, `Strict` or `None`.
    pub same_site: Option<String>,
}
