//! A server of the configuration, with its connection.

use std::sync::Arc;

use interflow_limits::MCP_SEPARATOR;
use interflow_redact::{RedactMode, ValuePolicy};

use super::http::HttpServer;
use super::known_capabilities::KnownCapabilities;
use super::server_secrets::ServerSecrets;
use super::stdio::{StdioRuntime, StdioServer};
use crate::config::{ArgumentMode, McpServerConfig};
use crate::grants::{AccountServer, Grants};
use crate::policy::CallRules;

/// A server with its connection.
pub(crate) struct McpServer {
    pub name: Arc<str>,
    pub config: McpServerConfig,
    pub rules: CallRules,
    secrets: ServerSecrets,
    max_message: usize,
    pub transport: ServerTransport,
    pub known: KnownCapabilities,
}

pub(crate) enum ServerTransport {
    Http(HttpServer),
    Stdio(Arc<StdioServer>),
}

impl McpServer {
    /// # Errors
    /// Something in the configuration is invalid; the message begins with its key.
    pub fn new(
        name: Arc<str>,
        config: &McpServerConfig,
        secrets: ServerSecrets,
        max_message: usize,
        runtime: &Arc<StdioRuntime>,
        grants: &Arc<Grants>,
    ) -> Result<Self, String> {
        let transport = match (&config.url, &config.command) {
            (Some(url), None) => {
                let oauth = config.oauth.as_ref();
                ServerTransport::Http(HttpServer::new(&name, url, oauth, &secrets, max_message, grants)?)
            }
            (None, Some(command)) => {
                let runtime = Arc::clone(runtime);
                let server = StdioServer::new(&name, command, config, &secrets, max_message, runtime);
                ServerTransport::Stdio(Arc::new(server))
            }
            _ => return Err("url: a server has either `url` or `command`".into()),
        };
        let (rules, config, known) = (CallRules::new(config)?, config.clone(), KnownCapabilities::default());
        Ok(Self { name, config, rules, secrets, max_message, transport, known })
    }

    /// The server, if users have accounts there.
    pub fn accounts(&self) -> Option<&AccountServer> {
        if let ServerTransport::Http(server) = &self.transport { server.accounts() } else { None }
    }

    /// Whether it was made of the same, so that it can be kept with its connections.
    pub fn is_made_of(&self, config: &McpServerConfig, secrets: &ServerSecrets, max_message: usize) -> bool {
        self.config == *config && self.secrets == *secrets && self.max_message == max_message
    }

    /// Whether each session of a client has one of its own with the server, so that nothing it sends is about another.
    pub fn is_per_session(&self) -> bool {
        match &self.transport {
            ServerTransport::Http(_) => true,
            ServerTransport::Stdio(_) => self.config.process_per_session,
        }
    }

    /// How arguments are redacted before they are recorded.
    pub fn argument_mode(&self, policy: &ValuePolicy) -> RedactMode {
        match self.config.arguments {
            None => policy.mode,
            Some(ArgumentMode::Restore | ArgumentMode::Redact) => RedactMode::Redact,
            Some(ArgumentMode::Flag) => RedactMode::Flag,
            Some(ArgumentMode::Off) => RedactMode::Off,
        }
    }

    /// Whether the server gets the arguments as the client sent them.
    pub fn arguments_are_restored(&self, policy: &ValuePolicy) -> bool {
        match self.config.arguments {
            None => policy.mode == RedactMode::Redact,
            Some(mode) => mode == ArgumentMode::Restore,
        }
    }

    /// Whether the server gets what other servers sent, in place of placeholders in arguments. A value that the client
    /// sent may be among it, if a server returned it.
    pub fn results_are_restored(&self) -> bool {
        self.config.restore_arguments.unwrap_or(self.config.arguments != Some(ArgumentMode::Redact))
    }

    /// The name of a tool or a prompt for clients of an endpoint.
    pub fn offered_name(&self, only: Option<&str>, name: &str) -> String {
        if only.is_some() { name.to_owned() } else { format!("{}{MCP_SEPARATOR}{name}", self.name) }
    }
}
