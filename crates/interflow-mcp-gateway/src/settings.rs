//! The compiled `[mcp]` section: servers with their connections, and how names of tools lead to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interflow_limits::{MCP_SEPARATOR, check_mcp_name};

use crate::access_identity::AccessTokenSource;
use crate::config::{McpClientCredentials, McpConfig, McpOAuthConfig, McpServerConfig, oauth_endpoint, wrong_if};
use crate::grants::Grants;
use crate::grants::authorization_server::origin_of;
use crate::policy::CallRules;
use crate::protected_resource::ProtectedResource;
use crate::upstream::server::McpServer;
use crate::upstream::server_secrets::ServerSecrets;
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
                    let server = McpServer::new(name.as_str().into(), own, secrets, max_message, runtime, grants);
                    Arc::new(server.map_err(wrong)?)
                }
            };
            servers.insert(Arc::clone(&server.name), server);
        }
        let oauth = match (&config.oauth, &before.oauth) {
            (None, _) => None,
            // It keeps the issuer's keys.
            (Some(own), Some(same)) if same.config == *own && own.introspection.is_none() => Some(Arc::clone(same)),
            (Some(own), _) => Some(Arc::new(ProtectedResource::new(own, tokens, &grants.http)?)),
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
        wrong_if(self.max_sessions == 0, "mcp.max_sessions: at least one is needed")?;
        self.oauth.as_ref().map_or(Ok(()), McpOAuthConfig::check)?;
        self.public_origin()?;
        for (name, server) in &self.server {
            let key = format!("mcp.server.{name}");
            check_mcp_name(name).map_err(|why| format!("{key}: {why}"))?;
            server.check(self.oauth.as_ref()).map_err(|why| format!("{key}.{why}"))?;
        }
        Ok(())
    }
}

impl McpServerConfig {
    /// # Errors
    /// What is wrong, with its key.
    fn check(&self, oauth: Option<&McpOAuthConfig>) -> Result<(), String> {
        let (has_url, has_command, own) = (self.url.is_some(), self.command.is_some(), self.oauth.as_ref());
        wrong_if(!has_url && !has_command, "url: it is missing; a server has `url` or `command`")?;
        wrong_if(has_url && has_command, "url: a server has either `url` or `command`")?;
        self.url.as_ref().map_or(Ok(()), |url| parse_url(url).map(drop)).map_err(|why| format!("url: {why}"))?;
        wrong_if(has_url && !self.env.is_empty(), "env: this is for the other transport")?;
        wrong_if(!has_url && !self.headers.is_empty(), "headers: this is for the other transport")?;
        wrong_if(!has_url && own.is_some(), "oauth: this is for the other transport")?;
        let has_field = self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        wrong_if(has_field && own.is_some(), "oauth: a server has either `oauth` or `Authorization` in `headers`")?;
        own.map_or(Ok(()), McpClientCredentials::check)?;
        let no_issuer = "oauth.grant: tokens of users come by OAuth: add [mcp.oauth]";
        wrong_if(self.exchanges() && oauth.is_none(), no_issuer)?;
        let no_login = "oauth.grant: a browser has to show whose account it connects: add [mcp.oauth.login]";
        wrong_if(self.has_accounts() && oauth.is_some_and(|oauth| oauth.login.is_none()), no_login)?;
        CallRules::new(self)?;
        wrong_if(self.process_per_session && !has_command, "process_per_session: this is for servers with `command`")
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
