//! Parameters of actions on the way to the origin.

use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::Names;
use crate::template::Template;
use crate::when::Texts;

/// Upstream proxies.
#[derive(Clone, Debug)]
pub struct Bypass {
    /// Proxies in the order they are passed.
    pub via: Vec<Template>,
    /// Hosts that are reached without.
    pub bypass: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BypassMap {
    /// `http://user:password@host:port` or `socks5://host:port`; several are passed in order.
    via: Names,
    /// Hosts that are reached without: a name stands for itself and what is below it, `*.name` for what is below it, `*` for all.
    #[serde(default)]
    bypass: Texts,
}

impl TryFrom<BypassMap> for Bypass {
    type Error = String;

    fn try_from(m: BypassMap) -> Result<Self, String> {
        Ok(Self { via: m.via.0, bypass: m.bypass.0 })
    }
}
shorthand!(Bypass from BypassMap by via);

impl Bypass {
    /// Whether this host is reached without.
    pub fn passes_by(&self, host: &str) -> bool {
        self.bypass.iter().any(|b| {
            let below = |name: &str| {
                host.len() > name.len() && host.ends_with(name) && host[..host.len() - name.len()].ends_with('.')
            };
            match b.strip_prefix("*.").or_else(|| b.strip_prefix('.')) {
                Some(name) => below(&name.to_ascii_lowercase()),
                None => b == "*" || host.eq_ignore_ascii_case(b) || below(&b.to_ascii_lowercase()),
            }
        })
    }
}

/// Where to connect.
#[derive(Clone, Debug)]
pub struct Spoof {
    /// Host, and port if another: `127.0.0.1`, `localhost:8080`, `:8443`.
    pub to: Template,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SpoofMap {
    /// Host, and port if another: `127.0.0.1`, `localhost:8080`, `:8443`.
    to: Template,
}

impl TryFrom<SpoofMap> for Spoof {
    type Error = String;

    fn try_from(m: SpoofMap) -> Result<Self, String> {
        Ok(Self { to: m.to })
    }
}
shorthand!(Spoof from SpoofMap by to);

/// A client certificate.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The certificate chain in PEM.
    pub certificate: PathBuf,
    /// Its key in PEM.
    pub key: PathBuf,
}
