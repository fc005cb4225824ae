//! The beginning with a server: what it is told of the client, and what it declares.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::grants::user::AccountUser;
use crate::protocol::envelope::server_meta;
use crate::protocol::jsonrpc::{RpcError, merged};
use crate::protocol::listen_filter::ListenFilter;
use crate::protocol::log_level::LogLevel;
use crate::protocol::versions::{STATELESS, VERSIONS};
use crate::session::subscriptions::Subscriptions;
use crate::upstream::access_tokens::SharedUserToken;

/// The level that a client set, which its sessions with servers begin with; `None` if it set none.
pub(crate) type SharedLogLevel = Arc<Mutex<Option<LogLevel>>>;

/// What a server said at the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerHello {
    pub version: String,
    pub capabilities: Value,
    /// For the model of the client.
    pub instructions: Option<String>,
}

/// What a server is told of the client of a session. By default, of several that share a process.
#[derive(Clone)]
pub(crate) struct UpstreamClient {
    pub server: Arc<str>,
    /// The client has no session.
    pub is_stateless: bool,
    /// What it can be asked.
    pub capabilities: Value,
    /// Its extensions, for servers without sessions.
    pub extensions: Map<String, Value>,
    pub log_level: SharedLogLevel,
    pub subscriptions: Arc<Subscriptions>,
    pub tasks: Arc<Subscriptions>,
    pub user: SharedUserToken,
    pub account_user: Option<Arc<AccountUser>>,
}

impl Default for UpstreamClient {
    fn default() -> Self {
        let (extensions, log_level, subscriptions, tasks, user, account_user) = Default::default();
        let (server, capabilities, is_stateless) = ("".into(), json!({}), false);
        Self { server, is_stateless, capabilities, extensions, log_level, subscriptions, tasks, user, account_user }
    }
}

impl UpstreamClient {
    /// The params of `logging/setLevel`, if the client set a level and the server has log messages: a session with it
    /// begins with that, because it may be another than the one in which the level was set.
    pub fn log_level_params(&self, hello: &ServerHello) -> Option<String> {
        let level = *self.log_level.lock();
        Some(level.filter(|_| !hello.is_stateless() && hello.offers("logging"))?.params())
    }

    /// Adds to the params of a request what a server has to be told with each.
    pub fn params(&self, hello: &ServerHello, params: &str, progress_token: Option<u64>) -> String {
        let mut meta = Map::new();
        if hello.is_stateless() {
            let mut capabilities = self.capabilities.clone();
            if !self.extensions.is_empty() {
                capabilities["extensions"] = Value::Object(self.extensions.clone());
            }
            meta = server_meta(&capabilities, *self.log_level.lock());
        }
        if let Some(token) = progress_token {
            meta.insert("progressToken".to_owned(), token.into());
        }
        if meta.is_empty() { params.to_owned() } else { merged(params, &json!({ "_meta": meta }).to_string()) }
    }

    /// The params of `subscriptions/listen`.
    pub fn listen_params(&self, hello: &ServerHello) -> String {
        let of_server = |all: &Subscriptions| all.of_server(&self.server);
        let filter = ListenFilter::for_server(of_server(&self.subscriptions), of_server(&self.tasks));
        self.params(hello, &json!({ "notifications": filter.to_value() }).to_string(), None)
    }
}

/// The params of `initialize`, with what the client can be asked.
pub(crate) fn initialize_params(capabilities: &Value) -> String {
    let version = VERSIONS.last().copied().unwrap_or_default();
    let client = json!({ "name": "interflow", "version": env!("CARGO_PKG_VERSION") });
    json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": client }).to_string()
}

impl ServerHello {
    /// The result of `initialize`.
    ///
    /// # Errors
    /// The server wants a version that is not supported.
    pub fn parse(result: &str) -> Result<Self, RpcError> {
        let value: Value = serde_json::from_str(result).map_err(|e| RpcError::server(e.to_string()))?;
        let version = value["protocolVersion"].as_str().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            return Err(RpcError::server(format!("it speaks MCP {version:?}, which this gateway does not")));
        }
        Ok(Self::new(version, &value))
    }

    /// The result of `server/discover`; `None` if the server does not support the version without sessions.
    pub fn parse_discovery(result: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(result).ok()?;
        let is_supported = value["supportedVersions"].as_array()?.iter().any(|version| version == STATELESS);
        is_supported.then(|| Self::new(STATELESS, &value))
    }

    /// Of which nothing but the version is known, for `server/discover`.
    pub fn stateless() -> Self {
        Self::new(STATELESS, &Value::Null)
    }

    fn new(version: &str, value: &Value) -> Self {
        let instructions = value["instructions"].as_str().filter(|text| !text.trim().is_empty());
        let (version, capabilities) = (version.to_owned(), value["capabilities"].clone());
        Self { version, capabilities, instructions: instructions.map(str::to_owned) }
    }

    /// Whether the server has no sessions: each request says what it needs.
    pub fn is_stateless(&self) -> bool {
        self.version == STATELESS
    }

    /// Whether it tells of changes to resources.
    pub fn has_subscriptions(&self) -> bool {
        self.capabilities["resources"]["subscribe"] == true
    }

    /// Whether calls of its tools may go on as tasks, of a version with sessions.
    pub fn has_tasks(&self) -> bool {
        !self.is_stateless() && self.capabilities["tasks"]["requests"]["tools"]["call"].is_object()
    }

    pub fn offers(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|c| !c.is_null())
    }
}
