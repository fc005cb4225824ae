//! What clients and the configuration say of the endpoints as a protected resource of OAuth 2.1 (RFC 9728).

use std::sync::Arc;

use interflow_types::{HttpClient, Response, StatusCode, Url};
use serde_json::json;

use crate::access_identity::{AccessTokenSource, AccessTokens};
use crate::config::McpOAuthConfig;
use crate::introspection::IntrospectedTokens;
use crate::protocol::responses::refusal;

/// Where clients learn of the issuer.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// In seconds, while the issuer cannot be reached.
const RETRY_AFTER: &[u8] = b"10";

/// The compiled `[mcp.oauth]` section.
pub(crate) struct ProtectedResource {
    pub config: McpOAuthConfig,
    pub tokens: Arc<dyn AccessTokens>,
    metadata_url: String,
}

impl ProtectedResource {
    /// # Errors
    /// What is wrong, with its key.
    pub fn new(
        config: &McpOAuthConfig,
        source: &AccessTokenSource,
        http: &Arc<dyn HttpClient>,
    ) -> Result<Self, String> {
        config.check()?;
        let audience = config.audience.as_ref().unwrap_or(&config.resource);
        let mut tokens = source(&config.issuer, audience).map_err(|why| format!("mcp.oauth.issuer: {why}"))?;
        if let Some(introspection) = &config.introspection {
            tokens = Arc::new(IntrospectedTokens::new(config, introspection, tokens, Arc::clone(http))?);
        }
        // It is resolved again for each login; what is wrong is better known now.
        config.login.as_ref().map(|login| login.auth().read()).transpose()?;
        // RFC 9728, section 3.1: the path of the resource follows the well-known one.
        let origin = config.resource.find("://").map_or(0, |at| at + 3);
        let path = config.resource[origin..].find('/').map_or(config.resource.len(), |at| origin + at);
        let (origin, path) = config.resource.split_at(path);
        let metadata_url = format!("{origin}{METADATA_PATH}{}", path.trim_end_matches('/'));
        Ok(Self { config: config.clone(), tokens, metadata_url })
    }

    /// What clients learn of the resource (RFC 9728, section 2).
    pub fn metadata(&self) -> String {
        let mut metadata = json!({
            "resource": self.config.resource,
            "authorization_servers": [self.config.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Interflow",
        });
        if !self.config.scopes.is_empty() {
            metadata["scopes_supported"] = json!(self.config.scopes);
        }
        metadata.to_string()
    }

    /// The refusal that tells a client where to get a token (RFC 6750, section 3; RFC 9728, section 5.1).
    pub fn challenge(&self, status: StatusCode, error: Option<&str>, message: &str) -> Response {
        let mut challenge = format!("Bearer resource_metadata=\"{}\"", self.metadata_url);
        if let Some(error) = error {
            challenge += &format!(", error=\"{error}\", error_description=\"{message}\"");
        }
        if !self.config.scopes.is_empty() {
            challenge += &format!(", scope=\"{}\"", self.config.scopes.join(" "));
        }
        let mut response = refusal(status, message);
        response.head.headers.append_unchecked(b"WWW-Authenticate", challenge.as_bytes());
        response
    }

    /// The refusal of a token that cannot be checked. It has no challenge, upon which clients would discard their token
    /// and ask the issuer for another.
    pub fn unavailable(&self) -> Response {
        let message = format!(
            "access tokens cannot be checked, because the issuer {} cannot be reached; repeat the request later, and if \
             that does not help, ask the operator to check that the issuer is up, that the gateway reaches it, and that \
             the URLs in [mcp.oauth] are right",
            self.config.issuer
        );
        let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, message);
        response.head.headers.append_unchecked(b"Retry-After", RETRY_AFTER);
        response
    }
}

impl McpOAuthConfig {
    /// # Errors
    /// What is wrong, with its key.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, text, example) in [
            ("issuer", &self.issuer, "https://login.example.com"),
            ("resource", &self.resource, "https://gateway.example.com/mcp"),
        ] {
            let is_plain = !text.contains(['#', '?', '"', ' ']);
            if Url::of_service(text).is_err() || !is_plain {
                return Err(format!("mcp.oauth.{name}: `{text}` is not a supported URL; write {example}"));
            }
        }
        self.introspection.as_ref().map_or(Ok(()), |introspection| introspection.check().map(drop))?;
        self.login.as_ref().map_or(Ok(false), |login| login.auth().check())?;
        let is_scope =
            |scope: &String| !scope.is_empty() && scope.chars().all(|c| c.is_ascii_graphic() && !"\"\\".contains(c));
        match self.scopes.iter().find(|scope| !is_scope(scope)) {
            Some(scope) => Err(format!("mcp.oauth.scopes: `{scope}` is not a scope (RFC 6749, section 3.3)")),
            None => Ok(()),
        }
    }
}
