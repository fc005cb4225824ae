//! Parameters of actions on message heads.

use std::fmt;

use interflow_types::schema::JsonSchema;
use regex::bytes::Regex;
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

#[derive(Clone, Debug)]
pub struct MapRemoteParams {
    /// A regex on the whole URL; without it the request keeps its path below the new base.
    pub regex: Option<Regex>,
    /// The base URL, or the replacement.
    pub to: ReplacementTemplate,
    /// Whether the `Host` field stays as the client sent it.
    pub keep_host: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RemoteMap {
    /// A regex on the whole URL; only matching requests are redirected.
    #[serde(default)]
    regex: Option<RegexParam>,
    /// The base URL; with a regex, the replacement of its match.
    to: ReplacementTemplate,
    /// Whether the `Host` field stays as the client sent it.
    #[serde(default)]
    keep_host: bool,
}

impl TryFrom<RemoteMap> for MapRemoteParams {
    type Error = String;

    fn try_from(m: RemoteMap) -> Result<Self, String> {
        if let (None, Some(url)) = (&m.regex, m.to.0.as_literal()) {
            crate::text::url::parse_url(url)?;
        }
        Ok(Self { regex: m.regex.map(|r| r.0), to: m.to, keep_host: m.keep_host })
    }
}
shorthand!(MapRemoteParams from RemoteMap by to);

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
    #[serde(default)]
    pub path: Option<TextTemplate>,
    /// `Domain`.
    #[serde(default)]
    pub domain: Option<TextTemplate>,
    /// Seconds until it expires, as `Expires`.
    #[serde(default)]
    pub expires_in: Option<i64>,
    /// `Max-Age` in seconds.
    #[serde(default)]
    pub max_age: Option<i64>,
    /// `HttpOnly`.
    #[serde(default)]
    pub http_only: bool,
    /// `Secure`.
    #[serde(default)]
    pub secure: bool,
    /// `SameSite`: `Lax`, `Strict` or `None`.
    #[serde(default)]
    pub same_site: Option<String>,
}
