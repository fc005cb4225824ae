//! Log messages of servers (`notifications/message`) and the level from which on a client wants them
//! (`logging/setLevel`). A session has one level for all its servers.

use std::sync::Arc;

use futures_util::future::join_all;
use interflow_limits::VirtualKey;
use interflow_types::Direction;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::access::{self, Offer};
use crate::capabilities::capabilities_of;
use crate::client_requests::EventContext;
use crate::jsonrpc::{METHOD_NOT_FOUND, RpcError, notification};
use crate::redaction::{Findings, redact_result};
use crate::sessions::McpSession;
use crate::settings::{McpServer, McpSettings};

pub(crate) const METHOD: &str = "logging/setLevel";
pub(crate) const NOTIFICATION: &str = "notifications/message";
/// Bound on the name of a server's logger, in bytes.
const MAX_LOGGER: usize = 256;

/// The levels of syslog (RFC 5424, section 6.2.1), the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The level that a client set, which its sessions with servers begin with; `None` if it set none.
pub(crate) type SharedLogLevel = Arc<Mutex<Option<LogLevel>>>;

impl LogLevel {
    const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }

    /// The params of `logging/setLevel`.
    pub fn params(self) -> String {
        json!({ "level": self.name() }).to_string()
    }
}

/// Whether a client with this key gets the log messages of a server.
pub(crate) fn may_log(server: &McpServer, key: Option<&VirtualKey>) -> bool {
    // A process that sessions share does not say for whom it worked: its messages may be about another client.
    server.is_per_session() && access::check(server, key, Offer::LogMessages).is_ok()
}

/// Sets the level of a session, and tells the servers that have log messages.
///
/// # Errors
/// No server has any for this client.
pub(crate) async fn set_level(
    settings: &McpSettings,
    session: &Arc<McpSession>,
    only: Option<&str>,
    key: Option<&VirtualKey>,
    level: LogLevel,
) -> Result<String, RpcError> {
    let servers: Vec<_> = settings.of_endpoint(only).into_iter().filter(|server| may_log(server, key)).collect();
    let known = join_all(servers.iter().map(|server| capabilities_of(server, session))).await;
    let logging: Vec<_> = servers.iter().zip(&known).filter(|(_, known)| known["logging"].is_object()).collect();
    if logging.is_empty() {
        return Err(RpcError::new(METHOD_NOT_FOUND, "no server of this gateway has log messages for this client"));
    }
    *session.log_level.lock() = Some(level);
    let params = level.params();
    let told = logging.iter().map(|(server, _)| async {
        if let Err(e) = server.request(session, METHOD, &|_| params.clone(), None).await {
            // Its messages below the level are left out in any case.
            tracing::warn!("{METHOD}: {e}");
        }
    });
    join_all(told).await;
    Ok("{}".to_owned())
}

impl EventContext {
    /// Passes a log message on to the stream of the session. One that cannot be inspected is left out.
    pub(crate) async fn pass_log_message(&self, params: &Value) {
        let level = params["level"].as_str().and_then(LogLevel::parse);
        let Some(level) = level.filter(|_| self.may_log) else { return };
        let is_wanted = self.session.log_level.lock().is_none_or(|lowest| level >= lowest);
        if !is_wanted || !self.session.standing.keeps_events() {
            return;
        }
        let name = &self.server.name;
        match self.inspect_log_message(params).await {
            Ok(message) => {
                let logger = message["logger"].as_str();
                let logger = logger.map_or_else(|| name.to_string(), |logger| format!("{name}/{logger}"));
                let shown = json!({ "level": level.name(), "logger": logger, "data": message["data"] });
                self.session.standing.push(notification(NOTIFICATION, &shown));
            }
            Err(e) => tracing::warn!("a log message of the MCP server {name} is left out: {e}"),
        }
    }

    /// Redacts what a server wrote in a log message as a result is.
    async fn inspect_log_message(&self, params: &Value) -> Result<Value, RpcError> {
        let logger = params["logger"].as_str().filter(|logger| logger.len() <= MAX_LOGGER);
        let written = json!({ "logger": logger, "data": params["data"] }).to_string();
        let (mut found, vault) = (Findings::new(), &self.session.from_servers);
        let redacted = redact_result(&self.policy, &self.server, vault, written, &mut found).await;
        self.service.count_findings(Direction::Response, &found);
        self.outcome.lock().add(found);
        let checked = match &self.guard {
            Some(guard) => guard.check_result(redacted?).await.map_err(RpcError::not_allowed)?,
            None => redacted?,
        };
        serde_json::from_str(&checked).map_err(|e| RpcError::server(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_by_severity() {
        assert!(LogLevel::ALL.is_sorted());
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.name()), Some(level));
        }
        assert_eq!(LogLevel::parse("fatal"), None);
    }
}
