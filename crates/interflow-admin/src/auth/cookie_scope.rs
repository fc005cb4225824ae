//! What the cookies of an instance are for: its port, or the address that replicas behind a load balancer share.

use std::fmt;

use crate::AdminConfig;

/// Part of the names of cookies, which browsers do not separate by port, and of their signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CookieScope {
    /// Instances on one machine have cookies of their own.
    Port(u16),
    /// All replicas under one public address accept each other's, whatever their ports.
    Public(String),
}

impl CookieScope {
    pub fn new(config: &AdminConfig, port: u16) -> Self {
        let public = config.oidc.as_ref().and_then(|oidc| oidc.redirect_url.as_deref());
        let public = public.and_then(|url| interflow_types::Url::of_service(url).ok());
        public.map_or(Self::Port(port), |url| Self::Public(url.authority.to_string().to_ascii_lowercase()))
    }

    /// What is signed with a cookie.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Port(port) => port.to_be_bytes().to_vec(),
            Self::Public(authority) => authority.as_bytes().to_vec(),
        }
    }
}

/// As a part of a cookie's name.
impl fmt::Display for CookieScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "{port}"),
            // Colons and brackets may not be in a name (RFC 6265 section 4.1.1).
            Self::Public(authority) => {
                f.write_str(&authority.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-"))
            }
        }
    }
}
