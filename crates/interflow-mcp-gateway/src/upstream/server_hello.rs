//! The beginning of a session with a server: what it is told of the client, and what it declares.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::protocol::jsonrpc::RpcError;
use crate::protocol::log_level::LogLevel;
use crate::protocol::versions::VERSIONS;

/// The level that a client set, which its sessions with servers begin with; `None` if it set none.
pub(crate) type SharedLogLevel = Arc<Mutex<Option<LogLevel>>>;

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
    pub fn log_level_params(&self, hello: &ServerHello) -> Option<String> {
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
