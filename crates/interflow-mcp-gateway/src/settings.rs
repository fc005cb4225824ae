//! The compiled `[mcp]` section: servers with their connections, and how names of tools lead to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interflow_limits::{MCP_SEPARATOR, check_mcp_name};
use interflow_types::HttpClient;

use crate::access_identity::AccessTokenSource;
use crate::config::{McpConfig, McpOAuthConfig, McpServerConfig, oauth_endpoint};
use crate::grants::Grants;
use crate::grants::authorization_server::origin_of;
use crate::policy::CallRules;
use crate::protected_resource::ProtectedResource;
use crate::upstream::server::{McpServer, ServerSecrets};
use crate::upstream::server_url::parse_url;
use crate::upstream::stdio::StdioRuntime;

/// The servers of a configuration. Immutable: a reload makes another, and requests in progress keep theirs.
#[derive(Default)]
pub struct McpSettings {
    servers: BTreeMap<Arc<str>, Arc<McpServer>>,
    /// Users have accounts at a server.
    pub(crate) has_accounts: bool,
    /// Where browsers reach the gateway, if that is configured.
    pub(crate) public_url: Option<String>,
    /// A server is shown tokens of users.
    pub(crate) exchanges: bool,
    pub(crate) max_sessions: usize,
    pub(crate) session_timeout: Duration,
    pub(crate) max_message: usize,
    pub(crate) search_tools_above: Option<usize>,
    pub(crate) oauth: Option<Arc<ProtectedResource>>,
}

impl McpSettings {
    /// Compiles a configuration. A server whose configuration is the same as before keeps its process.
    ///
    /// # Errors
    /// What is wrong, with its key.
    pub(crate) fn new(
        config: &McpConfig,
        before: &Self,
        http: &Arc<dyn HttpClient>,
        runtime: &Arc<StdioRuntime>,
        tokens: &AccessTokenSource,
        grants: &Arc<Grants>,
    ) -> Result<Self, String> {
        let max_message = usize::try_from(config.max_message.0).unwrap_or(usize::MAX);
        config.check()?;
        let mut servers = BTreeMap::new();
        for (name, own) in &config.server {
            let wrong = |why: String| format!("mcp.server.{name}.{why}");
            let secrets = ServerSecrets::resolve(own).map_err(wrong)?;
            let same = before.servers.get(name.as_str());
            let server = match same.filter(|server| server.is_made_of(own, &secrets, max_message)) {
                Some(same) => Arc::clone(same),
                None => {
                    let server = McpServer::new(name.as_str().into(), own, secrets, max_message, http, runtime, grants);
                    Arc::new(server.map_err(wrong)?)
                }
            };
            servers.insert(Arc::clone(&server.name), server);
        }
        let oauth = match (&config.oauth, &before.oauth) {
            (None, _) => None,
            // It keeps the issuer's keys.
            (Some(own), Some(same)) if same.config == *own && own.introspection.is_none() => Some(Arc::clone(same)),
            (Some(own), _) => Some(Arc::new(ProtectedResource::new(own, tokens, http)?)),
        };
        Ok(Self {
            has_accounts: config.server.values().any(McpServerConfig::has_accounts),
            public_url: config.public_origin()?,
            exchanges: config.server.values().any(McpServerConfig::exchanges),
            servers,
            max_sessions: config.max_sessions,
            session_timeout: config.session_timeout.0,
            max_message,
            search_tools_above: config.search_tools_above,
            oauth,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<McpServer>> {
        self.servers.get(name)
    }

    /// The servers of an endpoint: the one that it names, or all.
    pub(crate) fn of_endpoint(&self, only: Option<&str>) -> Vec<Arc<McpServer>> {
        self.servers.values().filter(|server| only.is_none_or(|name| *server.name == *name)).cloned().collect()
    }

    /// The server of a tool or a prompt, and its name there.
    pub(crate) fn resolve<'n>(&self, only: Option<&str>, name: &'n str) -> Option<(&Arc<McpServer>, &'n str)> {
        let (server, name) = only.map(|server| (server, name)).or_else(|| name.split_once(MCP_SEPARATOR))?;
        Some((self.get(server)?, name))
    }
}

impl McpConfig {
    /// Scheme and authority at which browsers reach the gateway, if that is configured.
    ///
    /// # Errors
    /// `public_url` is not such a URL.
    fn public_origin(&self) -> Result<Option<String>, String> {
        let Some(text) = &self.public_url else {
            let resource = self.oauth.as_ref().and_then(|oauth| oauth_endpoint(&oauth.resource).ok());
            return Ok(resource.map(|url| origin_of(&url)));
        };
        let url = oauth_endpoint(text).map_err(|why| format!("mcp.public_url: {why}"))?;
        match url.path.as_str() {
            "/" => Ok(Some(origin_of(&url))),
            _ => Err("mcp.public_url: it has a path; write https://gateway.example.com".to_owned()),
        }
    }

    /// Checks what can be checked without the secrets that it refers to.
    ///
    /// # Errors
    /// What is wrong, with its key.
    pub fn check(&self) -> Result<(), String> {
        if self.max_sessions == 0 {
            return Err("mcp.max_sessions: at least one is needed".into());
        }
        self.oauth.as_ref().map_or(Ok(()), McpOAuthConfig::check)?;
        self.public_origin()?;
        for (name, server) in &self.server {
            let key = format!("mcp.server.{name}");
            check_mcp_name(name).map_err(|why| format!("{key}: {why}"))?;
            match (&server.url, &server.command) {
                (Some(url), None) => parse_url(url).map(drop).map_err(|why| format!("{key}.url: {why}"))?,
                (None, Some(_)) => {}
                (Some(_), Some(_)) => return Err(format!("{key}.url: a server has either `url` or `command`")),
                (None, None) => return Err(format!("{key}.url: it is missing; a server has `url` or `command`")),
            }
            let other = if server.url.is_some() { ("env", &server.env) } else { ("headers", &server.headers) };
            if !other.1.is_empty() {
                return Err(format!("{key}.{}: this is for the other transport", other.0));
            }
            if let Some(oauth) = &server.oauth {
                if server.url.is_none() {
                    return Err(format!("{key}.oauth: this is for the other transport"));
                }
                if server.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
                    return Err(format!("{key}.oauth: a server has either `oauth` or `Authorization` in `headers`"));
                }
                oauth.check().map_err(|why| format!("{key}.{why}"))?;
                if server.exchanges() && self.oauth.is_none() {
                    return Err(format!("{key}.oauth.grant: tokens of users come by OAuth: add [mcp.oauth]"));
                }
                if server.has_accounts() && self.oauth.as_ref().is_some_and(|oauth| oauth.login.is_none()) {
                    let why = "a browser has to show whose account it connects: add [mcp.oauth.login]";
                    return Err(format!("{key}.oauth.grant: {why}"));
                }
            }
            CallRules::new(server).map_err(|why| format!("{key}.{why}"))?;
            if server.process_per_session && server.command.is_none() {
                return Err(format!("{key}.process_per_session: this is for servers with `command`"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_transport_and_its_keys_only() {
        for (toml, says) in [
            ("[server.a]\nurl = 'https://a.test/mcp'\nheaders = { A = 'b' }", ""),
            ("[server.a]\ncommand = 'a'\nenv = { A = 'env:NOT_SET_ANYWHERE' }", ""),
            ("[server.a]", "mcp.server.a.url: it is missing"),
            ("[server.a]\nurl = 'https://a.test/'\ncommand = 'a'", "mcp.server.a.url: a server has either"),
            ("[server.a]\nurl = 'a.test'", "mcp.server.a.url: `a.test` is not the URL"),
            ("[server.a]\ncommand = 'a'\nheaders = { A = 'b' }", "mcp.server.a.headers"),
            ("[server.a]\nurl = 'https://a.test/'\nprocess_per_session = true", "mcp.server.a.process_per_session"),
            (
                "[server.a]\ncommand = 'a'\noauth = { token_url = 'https://b.test/t', client_id = 'c', client_secret = 's' }",
                "mcp.server.a.oauth: this",
            ),
            (
                "[server.a]\nurl = 'https://a.test/'\noauth = { token_url = 'http://b.test/t', client_id = 'c', client_secret = 's' }",
                "mcp.server.a.oauth.token_url: it is without TLS",
            ),
            (
                "[server.a]\nurl = 'https://a.test/'\noauth = { token_url = 'https://b.test/t' }",
                "mcp.server.a.oauth: it needs",
            ),
            ("[server.a__b]\ncommand = 'a'", "mcp.server.a__b: a name"),
            ("max_sessions = 0", "mcp.max_sessions"),
            ("[oauth]\nissuer = 'https://a.test'\nresource = 'https://b.test/mcp'\nscopes = ['mcp']", ""),
            ("[oauth]\nissuer = 'https://a.test'", "mcp.oauth.resource: `` is not a supported URL"),
            ("[oauth]\nissuer = 'a'\nresource = 'https://b.test/mcp'", "mcp.oauth.issuer: `a` is not a supported URL"),
            (
                "[oauth]\nissuer = 'https://a.test'\nresource = 'https://b.test/mcp'\nscopes = ['a b']",
                "mcp.oauth.scopes",
            ),
        ] {
            let config: McpConfig = toml::from_str(toml).unwrap();
            let error = config.check().err().unwrap_or_default();
            assert!(error.starts_with(says) && error.is_empty() == says.is_empty(), "{toml}: {error}");
        }
    }
}
