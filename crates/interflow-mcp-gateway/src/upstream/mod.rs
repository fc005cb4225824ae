//! Connections to MCP servers: this gateway is their client.

mod http;
mod process;
mod stdio;

use serde_json::{Value, json};
use tokio::sync::mpsc;

pub(crate) use http::{HttpServer, HttpSession};
pub(crate) use stdio::{StdioRuntime, StdioServer};

use crate::jsonrpc::RpcError;
use crate::sessions::McpSession;
use crate::settings::{McpServer, ServerTransport};

/// Supported versions of the protocol, the latest last.
pub(crate) const VERSIONS: [&str; 3] = ["2024-11-05", "2025-03-26", "2025-06-18"];

/// Progress notifications of a request in progress, as their params.
pub(crate) type ProgressSink = mpsc::Sender<Value>;

/// What a server said at the beginning of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerHello {
    pub version: String,
    pub capabilities: Value,
}

/// The params of `initialize`: no capabilities, so that a server sends no requests of its own.
pub(crate) fn initialize_params() -> String {
    let version = VERSIONS.last().copied().unwrap_or_default();
    let client = json!({ "name": "interflow", "version": env!("CARGO_PKG_VERSION") });
    json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client }).to_string()
}

impl ServerHello {
    /// # Errors
    /// The server wants a version that is not supported.
    pub fn parse(result: &str) -> Result<Self, RpcError> {
        let value: Value = serde_json::from_str(result).map_err(|e| RpcError::server(e.to_string()))?;
        let version = value["protocolVersion"].as_str().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            return Err(RpcError::server(format!("it speaks MCP {version:?}, which this gateway does not")));
        }
        Ok(Self { version: version.to_owned(), capabilities: value["capabilities"].clone() })
    }

    pub fn offers(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|c| !c.is_null())
    }
}

impl McpServer {
    /// Sends a request within the time limit. The params are made from the token for progress notifications, if there
    /// is a sink for them. If the future is dropped, the server is told that the request is cancelled.
    ///
    /// # Errors
    /// The server's error, or why it did not answer.
    pub async fn request(
        &self,
        session: &McpSession,
        method: &str,
        params: &(dyn Fn(Option<u64>) -> String + Sync),
        progress: Option<ProgressSink>,
    ) -> Result<String, RpcError> {
        // The start has a time limit of its own.
        self.hello(session).await?;
        let start = self.config.start_timeout.0;
        let sent = async {
            match &self.transport {
                ServerTransport::Stdio(server) => server.request(start, method, params, progress).await,
                ServerTransport::Http(server) => {
                    server.request(&session.http(&self.name), start, method, params, progress).await
                }
            }
        };
        let limit = self.config.timeout.0;
        let answered = tokio::time::timeout(limit, sent).await;
        let answered = answered.unwrap_or_else(|_| Err(RpcError::server(timed_out(limit))));
        answered.map_err(|e| RpcError { message: format!("MCP server {}: {}", self.name, e.message), ..e })
    }

    /// What the server declared at the beginning.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn hello(&self, session: &McpSession) -> Result<ServerHello, RpcError> {
        let start = self.config.start_timeout.0;
        let hello = match &self.transport {
            ServerTransport::Stdio(server) => server.hello(start).await,
            ServerTransport::Http(server) => server.hello(&session.http(&self.name), start).await,
        };
        hello.map_err(|e| RpcError { message: format!("MCP server {}: {}", self.name, e.message), ..e })
    }
}

fn timed_out(limit: std::time::Duration) -> String {
    let limit = interflow_types::units::HumanDuration(limit);
    format!("no response within {limit} (timeout of the server in [mcp.server])")
}
