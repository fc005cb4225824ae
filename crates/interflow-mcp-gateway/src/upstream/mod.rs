//! Connections to MCP servers: this gateway is their client.

mod client_credentials;
mod http;
mod process;
mod server_event;
mod stdio;

use std::sync::Arc;
use std::time::Duration;

use interflow_types::BoxFuture;
use serde_json::{Value, json};

pub(crate) use http::{HttpServer, HttpSession};
pub(crate) use server_event::{EventSink, ServerEvent, ServerRequest};
pub(crate) use stdio::{StdioRuntime, StdioServer};

use crate::jsonrpc::RpcError;
use crate::log_messages::SharedLogLevel;
use crate::sessions::McpSession;
use crate::settings::{McpServer, ServerTransport};

/// Supported versions of the protocol, the latest last.
pub(crate) const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What a server said at the beginning of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerHello {
    pub version: String,
    pub capabilities: Value,
}

/// What a server is told of the client of a session.
#[derive(Clone)]
pub(crate) struct UpstreamClient {
    /// What it can be asked.
    pub capabilities: Value,
    pub log_level: SharedLogLevel,
}

impl UpstreamClient {
    /// The params of `logging/setLevel`, if the client set a level and the server has log messages: a session with it
    /// begins with that, because it may be another than the one in which the level was set.
    fn log_level_params(&self, hello: &ServerHello) -> Option<String> {
        let level = *self.log_level.lock();
        Some(level.filter(|_| hello.offers("logging"))?.params())
    }
}

/// The params of `initialize`, with what the client can be asked.
pub(crate) fn initialize_params(capabilities: &Value) -> String {
    let version = VERSIONS.last().copied().unwrap_or_default();
    let client = json!({ "name": "interflow", "version": env!("CARGO_PKG_VERSION") });
    json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": client }).to_string()
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

    /// Whether it tells of changes to resources.
    pub fn has_subscriptions(&self) -> bool {
        self.capabilities["resources"]["subscribe"] == true
    }

    pub fn offers(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|c| !c.is_null())
    }
}

impl McpServer {
    /// Sends a request within the time limit. The params are made from the token for progress notifications, if the sink
    /// wants them. If the future is dropped, the server is told that the request is cancelled.
    ///
    /// # Errors
    /// The server's error, or why it did not answer.
    pub async fn request(
        &self,
        session: &McpSession,
        method: &str,
        params: &(dyn Fn(Option<u64>) -> String + Sync),
        sink: Option<EventSink>,
    ) -> Result<String, RpcError> {
        // The start has a time limit of its own.
        self.hello(session).await?;
        let start = self.config.start_timeout.0;
        let sent = async {
            match &self.transport {
                ServerTransport::Stdio(server) => {
                    self.process(session, server).request(start, method, params, sink).await
                }
                ServerTransport::Http(server) => server.request(&session.http(self), start, method, params, sink).await,
            }
        };
        let limit = self.config.timeout.0;
        let answered = within(limit, session, sent).await;
        let answered = answered.unwrap_or_else(|| Err(RpcError::server(timed_out(limit))));
        answered.map_err(|e| RpcError { message: format!("MCP server {}: {}", self.name, e.message), ..e })
    }

    /// What the server declared at the beginning.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn hello(&self, session: &McpSession) -> Result<ServerHello, RpcError> {
        let start = self.config.start_timeout.0;
        let hello = match &self.transport {
            ServerTransport::Stdio(server) => self.process(session, server).hello(start).await,
            ServerTransport::Http(server) => server.hello(&session.http(self), start).await,
        };
        self.known.record(hello.as_ref().ok().map(|hello| hello.capabilities.clone()));
        hello.map_err(|e| RpcError { message: format!("MCP server {}: {}", self.name, e.message), ..e })
    }
}

impl McpServer {
    /// The process of a session: the one that all share, or its own.
    fn process(&self, session: &McpSession, shared: &Arc<StdioServer>) -> Arc<StdioServer> {
        if self.config.process_per_session { session.stdio(self, shared) } else { Arc::clone(shared) }
    }

    /// Passes on what the server sends outside of requests of the client, for as long as the future is polled or the
    /// sink is open. The listener counts from this call on, not from the first poll: requests that follow it are sent when
    /// it can hear the server.
    pub fn listen(&self, session: &McpSession, sink: EventSink) -> BoxFuture<'static, ()> {
        match &self.transport {
            ServerTransport::Stdio(server) => {
                self.process(session, server).listen(sink);
                Box::pin(std::future::ready(()))
            }
            ServerTransport::Http(server) => {
                let (server, session) = (server.clone(), session.http(self));
                let wanted = session.announce_listener();
                Box::pin(async move { server.listen(&session, wanted, &sink).await })
            }
        }
    }
}

/// The result within a time limit, which does not run while the client is asked something.
async fn within<T>(limit: Duration, session: &McpSession, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    let (mut left, mut waited) = (limit, session.clock.total());
    loop {
        match tokio::time::timeout(left, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) => {
                let now = session.clock.total();
                left = now.saturating_sub(waited);
                waited = now;
                if left.is_zero() {
                    return None;
                }
            }
        }
    }
}

fn timed_out(limit: std::time::Duration) -> String {
    let limit = interflow_types::units::HumanDuration(limit);
    format!("no response within {limit} (timeout of the server in [mcp.server])")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_capabilities::ClientCapabilities;

    #[tokio::test]
    async fn a_time_limit_does_not_run_while_the_client_is_asked() {
        let session = McpSession::new(None, None, "", ClientCapabilities::default()).unwrap();
        let limit = Duration::from_millis(1);
        assert_eq!(within(limit, &session, std::future::pending::<()>()).await, None);
        let waiting = session.clock.begin();
        let work = tokio::time::sleep(Duration::from_millis(50));
        assert_eq!(within(limit, &session, work).await, Some(()));
        drop(waiting);
        assert_eq!(within(limit, &session, std::future::pending::<()>()).await, None);
    }
}
