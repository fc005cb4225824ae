//! The endpoints as a protected resource of OAuth 2.1 (MCP 2025-11-25, authorization; RFC 9728): clients show access tokens
//! of the configured issuer in place of virtual keys.

use std::sync::Arc;

use interflow_limits::{KEY_PREFIX, KeyedEndpoint};
use interflow_types::{
    BoxFuture, EntryKind, Flow, LocalHandler, MaybeFuture, Method, Phase, PhaseSet, PlanScope, Request, RequestHead,
    RequestVerdict, Response, Result, Stage, StatusCode, Url,
};
use serde_json::json;

use crate::config::McpOAuthConfig;
use crate::endpoint::{json_response, refusal};
use crate::service::McpService;
use crate::stages::McpExchange;

/// Where clients learn of the issuer.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// Whom an access token is of, and what it allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessIdentity {
    pub subject: String,
    pub scopes: Vec<String>,
}

/// Checks access tokens of one issuer for one audience. `Err` says why a token is not accepted.
pub trait AccessTokens: Send + Sync {
    fn check<'a>(&'a self, token: &'a str) -> BoxFuture<'a, std::result::Result<AccessIdentity, String>>;
}

/// Makes the check for an issuer and an audience.
pub type AccessTokenSource =
    Box<dyn Fn(&str, &str) -> std::result::Result<Arc<dyn AccessTokens>, String> + Send + Sync>;

/// The compiled `[mcp.oauth]` section.
pub(crate) struct ProtectedResource {
    pub config: McpOAuthConfig,
    tokens: Arc<dyn AccessTokens>,
    metadata_url: String,
}

impl ProtectedResource {
    /// # Errors
    /// What is wrong, with its key.
    pub fn new(config: &McpOAuthConfig, source: &AccessTokenSource) -> std::result::Result<Self, String> {
        config.check()?;
        let audience = config.audience.as_ref().unwrap_or(&config.resource);
        let tokens = source(&config.issuer, audience).map_err(|why| format!("mcp.oauth.issuer: {why}"))?;
        // RFC 9728, section 3.1: the path of the resource follows the well-known one.
        let origin = config.resource.find("://").map_or(0, |at| at + 3);
        let path = config.resource[origin..].find('/').map_or(config.resource.len(), |at| origin + at);
        let (origin, path) = config.resource.split_at(path);
        let metadata_url = format!("{origin}{METADATA_PATH}{}", path.trim_end_matches('/'));
        Ok(Self { config: config.clone(), tokens, metadata_url })
    }

    /// What clients learn of the resource (RFC 9728, section 2).
    fn metadata(&self) -> String {
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
    fn challenge(&self, status: StatusCode, error: Option<&str>, message: &str) -> Response {
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
}

impl McpOAuthConfig {
    /// # Errors
    /// What is wrong, with its key.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        for (name, text) in [("issuer", &self.issuer), ("resource", &self.resource)] {
            let example =
                if name == "issuer" { "https://login.example.com" } else { "https://gateway.example.com/mcp" };
            let is_plain = !text.contains(['#', '?', '"', ' ']);
            if Url::of_service(text).is_err() || !is_plain {
                return Err(format!("mcp.oauth.{name}: `{text}` is no URL of this kind; write {example}"));
            }
        }
        let is_scope =
            |scope: &String| !scope.is_empty() && scope.chars().all(|c| c.is_ascii_graphic() && !"\"\\".contains(c));
        match self.scopes.iter().find(|scope| !is_scope(scope)) {
            Some(scope) => Err(format!("mcp.oauth.scopes: `{scope}` is no scope (RFC 6749, section 3.3)")),
            None => Ok(()),
        }
    }
}

/// Serves the metadata of the resource, to everyone.
pub(crate) struct MetadataHandler(pub Arc<ProtectedResource>);

impl LocalHandler for MetadataHandler {
    fn serve<'a>(&'a self, _flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        let response = match request.head.method {
            Method::GET | Method::HEAD => {
                let mut response = json_response(StatusCode::OK, self.0.metadata());
                // Clients in web pages read it before they have a token.
                response.head.headers.append_unchecked(b"Access-Control-Allow-Origin", b"*");
                response
            }
            _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "use GET"),
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// Checks access tokens before virtual keys are: a request has one of the two if tokens are configured.
pub(crate) struct OAuthStage(pub Arc<McpService>);

impl Stage for OAuthStage {
    fn name(&self) -> &'static str {
        "mcp-oauth"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        let is_used =
            scope.transport == EntryKind::Gateway && self.0.has_servers() && self.0.settings().oauth.is_some();
        if is_used { PhaseSet::from_phase(Phase::RequestHead) } else { PhaseSet::NONE }
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        let is_endpoint = flow.extension::<McpExchange>().is_some_and(|exchange| exchange.endpoint.is_some());
        let resource = self.0.settings().oauth.clone().filter(|_| is_endpoint && !shows_key(head));
        let Some(resource) = resource else { return MaybeFuture::Ready(RequestVerdict::Continue) };
        let Some(token) = bearer(head) else {
            let message = "an access token or a virtual key is needed: Authorization: Bearer";
            let response = resource.challenge(StatusCode::UNAUTHORIZED, None, message);
            return MaybeFuture::Ready(RequestVerdict::Answer(Box::new(response)));
        };
        MaybeFuture::pending(async move {
            let refused = |status, error, why: &str| {
                RequestVerdict::Answer(Box::new(resource.challenge(status, Some(error), why)))
            };
            let identity = match resource.tokens.check(&token).await {
                Ok(identity) => identity,
                Err(why) => {
                    flow.tag("refused:invalid_token");
                    let why = format!("the access token is not accepted: {why}");
                    return refused(StatusCode::UNAUTHORIZED, "invalid_token", &why);
                }
            };
            if !resource.config.scopes.iter().all(|scope| identity.scopes.contains(scope)) {
                flow.tag("refused:insufficient_scope");
                let why = "the access token lacks a scope that is required";
                return refused(StatusCode::FORBIDDEN, "insufficient_scope", why);
            }
            head.headers.remove("authorization");
            // On the gateway, another name can only be that of the connection's certificate.
            flow.user = Some(identity.subject.as_str().into());
            flow.extension_mut::<McpExchange>().holder = Some(format!("token:{}", identity.subject).into());
            // No virtual key is needed any more.
            *flow.extension_mut() = KeyedEndpoint(None);
            RequestVerdict::Continue
        })
    }
}

/// Whether a request carries a virtual key, which is checked elsewhere.
fn shows_key(head: &RequestHead) -> bool {
    let is_key = |value: &[u8]| {
        let value = std::str::from_utf8(value).unwrap_or_default().trim();
        let bare = value.split_once(' ').map_or(value, |(_, credential)| credential.trim());
        bare.starts_with(KEY_PREFIX)
    };
    head.headers.iter().any(|(_, value)| is_key(value))
}

fn bearer(head: &RequestHead) -> Option<String> {
    let (scheme, token) = head.headers.get_str("authorization")?.trim().split_once(' ')?;
    Some(token.trim().to_owned()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}
