//! What a server and its authorization server say of themselves: protected resource metadata (RFC 9728), and metadata of
//! authorization servers (RFC 8414, OpenID Connect Discovery 1.0).

use interflow_types::secret_names::mask_url;
use interflow_types::{Scheme, Url};
use serde_json::{Value, json};

use super::AccountServer;
use crate::config::oauth_endpoint;
use crate::protected_resource::METADATA_PATH;
use crate::protocol::challenge::Challenge;
use crate::protocol::client_key::{ClientKey, SIGNED};
use crate::protocol::oauth_form::document;
use crate::upstream::server_url::parse_url;

pub(crate) struct AuthorizationServer {
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub registration_endpoint: Option<String>,
    pub auth_methods: Vec<String>,
    /// The algorithms of assertions; empty if it does not say.
    assertion_algorithms: Vec<String>,
    pub scopes: Vec<String>,
    /// A client may be known by the URL of its metadata.
    pub takes_documents: bool,
    /// Its responses name it (RFC 9207).
    pub names_itself: bool,
}

/// Where access to a server is granted.
pub(crate) struct Discovered {
    pub server: AuthorizationServer,
    /// The server, as it names itself.
    pub resource: String,
    pub scopes: Vec<String>,
    /// Tokens have to be bound to a key of the gateway.
    pub needs_proof: bool,
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl AuthorizationServer {
    /// The first of these ways to authenticate a client that it supports.
    pub fn auth_method(&self, ways: &[&'static str]) -> Option<&'static str> {
        ways.iter().copied().find(|method| self.auth_methods.iter().any(|own| own == method))
    }

    /// The key, if it takes assertions of it.
    pub fn with_key<'k>(&self, key: Option<&'k ClientKey>) -> Option<&'k ClientKey> {
        let takes_algorithm = |own: &str| {
            self.assertion_algorithms.is_empty() || self.assertion_algorithms.iter().any(|other| other == own)
        };
        self.auth_method(&[SIGNED])?;
        key.filter(|key| takes_algorithm(key.algorithm))
    }

    /// # Errors
    /// It is of another issuer, or cannot be used safely.
    fn parse(issuer: &str, metadata: &Value) -> Result<Self, String> {
        // Otherwise another server could speak for this one (RFC 8414, section 3.3).
        if metadata["issuer"] != issuer {
            return Err(format!("the metadata of the authorization server {issuer} are of another issuer"));
        }
        if !strings(&metadata["code_challenge_methods_supported"]).iter().any(|method| method == "S256") {
            return Err(format!("the authorization server {issuer} does not support PKCE with S256, which is needed"));
        }
        let endpoint = |name: &str| {
            let text = metadata[name].as_str().unwrap_or_default();
            oauth_endpoint(text).map(|_| text.to_owned()).map_err(|why| format!("{name} of {issuer}: {why}"))
        };
        let methods = strings(&metadata["token_endpoint_auth_methods_supported"]);
        Ok(Self {
            authorization_endpoint: endpoint("authorization_endpoint")?,
            token_endpoint: endpoint("token_endpoint")?,
            registration_endpoint: metadata["registration_endpoint"].as_str().map(str::to_owned),
            // The default of RFC 8414, section 2.
            auth_methods: if methods.is_empty() { vec!["client_secret_basic".to_owned()] } else { methods },
            assertion_algorithms: strings(&metadata["token_endpoint_auth_signing_alg_values_supported"]),
            scopes: strings(&metadata["scopes_supported"]),
            takes_documents: metadata["client_id_metadata_document_supported"] == true,
            names_itself: metadata["authorization_response_iss_parameter_supported"] == true,
            issuer: issuer.to_owned(),
        })
    }

    /// Of a server without metadata (MCP 2025-03-26, authorization).
    fn by_default(origin: &str) -> Result<Self, String> {
        let metadata = json!({ "issuer": origin, "code_challenge_methods_supported": ["S256"],
            "authorization_endpoint": format!("{origin}/authorize"), "token_endpoint": format!("{origin}/token"),
            "registration_endpoint": format!("{origin}/register"),
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"] });
        Self::parse(origin, &metadata)
    }

    /// The metadata of an issuer, in the order of MCP 2026-07-28; `None` if it has none.
    ///
    /// # Errors
    /// It cannot be reached, or not be used safely.
    pub async fn discover(issuer: &str, server: &AccountServer) -> Result<Option<Self>, String> {
        let url = oauth_endpoint(issuer).map_err(|why| format!("the authorization server {issuer}: {why}"))?;
        let (origin, path) = (origin_of(&url), url.path_only().trim_end_matches('/'));
        let [oauth, openid] = ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"];
        let mut urls = vec![format!("{origin}{oauth}{path}"), format!("{origin}{openid}{path}")];
        if !path.is_empty() {
            urls.push(format!("{origin}{path}{openid}"));
        }
        for url in urls {
            if let Some(metadata) = fetched(server, &url).await? {
                return Self::parse(issuer, &metadata).map(Some);
            }
        }
        Ok(None)
    }
}

/// Scheme and authority.
pub(crate) fn origin_of(url: &Url) -> String {
    format!("{}://{}", url.scheme, url.authority.to_host_header(url.scheme))
}

async fn fetched(server: &AccountServer, text: &str) -> Result<Option<Value>, String> {
    let url = parse_url(text)?;
    oauth_endpoint(&origin_of(&url)).map_err(|why| format!("{text}: {why}"))?;
    document(server.http(&url), &url).await
}

/// Where access to a server is granted.
///
/// # Errors
/// That is not known, or not safe.
pub(crate) async fn discover(server: &AccountServer, challenge: &Challenge) -> Result<Discovered, String> {
    let (origin, named) = (origin_of(&server.url), server.config.issuer.as_ref());
    let metadata = resource_metadata(server, challenge, &origin).await?;
    let (resource, issuers) = match &metadata {
        // Servers of MCP 2025-03-26 are their own authorization servers.
        None => (server.url.to_string(), vec![origin.clone()]),
        Some(document) => {
            (document["resource"].as_str().unwrap_or_default().to_owned(), strings(&document["authorization_servers"]))
        }
    };
    if !is_resource_of(&server.url, &resource) {
        let own = mask_url(&server.url.to_string());
        return Err(format!("the metadata of the server are of another resource than {own}"));
    }
    let issuer = issuers.iter().find(|own| named.is_none_or(|named| named == *own));
    let issuer = issuer.ok_or("the server names no authorization server, or another one than oauth.issuer")?;
    let issuer_metadata = match (AuthorizationServer::discover(issuer, server).await?, &metadata) {
        (Some(issuer_metadata), _) => issuer_metadata,
        (None, None) => AuthorizationServer::by_default(&origin)?,
        (None, Some(_)) => return Err(format!("the authorization server {issuer} has no metadata")),
    };
    let metadata = metadata.unwrap_or_default();
    let is_demanded = challenge.needs_proof || metadata["dpop_bound_access_tokens_required"] == true;
    let needs_proof = server.config.dpop || is_demanded;
    Ok(Discovered { server: issuer_metadata, resource, scopes: strings(&metadata["scopes_supported"]), needs_proof })
}

async fn resource_metadata(
    server: &AccountServer,
    challenge: &Challenge,
    origin: &str,
) -> Result<Option<Value>, String> {
    if let Some(url) = &challenge.metadata {
        let document = fetched(server, url).await?;
        return document.map(Some).ok_or_else(|| format!("the metadata of the server are not at {url}"));
    }
    let path = server.url.path_only().trim_end_matches('/');
    if let Some(document) = fetched(server, &format!("{origin}{METADATA_PATH}{path}")).await? {
        return Ok(Some(document));
    }
    if path.is_empty() { Ok(None) } else { fetched(server, &format!("{origin}{METADATA_PATH}")).await }
}

/// Whether a resource is a server or a part of its origin that has it.
fn is_resource_of(url: &Url, resource: &str) -> bool {
    let Ok((scheme, authority, path)) = Url::split(resource) else { return false };
    let path = path.trim_end_matches('/');
    let rest = url.path.as_str().strip_prefix(path);
    let is_part = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    (scheme, &authority) == (url.scheme, &url.authority) && is_part && !resource.contains('#')
}

/// Whether an origin has TLS.
pub(crate) fn is_secure(base: &str) -> bool {
    base.starts_with(Scheme::Https.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_the_server_or_what_contains_it() {
        let url = Url::of_service("https://s.test/a/mcp?x=1").unwrap();
        for (resource, is_own) in [
            ("https://s.test/a/mcp", true),
            ("https://s.test/a", true),
            ("https://s.test/", true),
            ("https://s.test", true),
            ("https://s.test/a/m", false),
            ("https://s.test/b", false),
            ("https://evil.test/a/mcp", false),
            ("http://s.test/a/mcp", false),
            ("https://s.test:444/a/mcp", false),
            ("https://s.test/a/mcp#x", false),
            ("", false),
        ] {
            assert_eq!(is_resource_of(&url, resource), is_own, "{resource}");
        }
    }
}
