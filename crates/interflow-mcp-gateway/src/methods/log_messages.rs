//! Log messages of servers (`notifications/message`) and the level from which on a client wants them
//! (`logging/setLevel`). A session has one level for all its servers.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::call_context::{CallContext, Delivery};
use super::capabilities::known_hello;
use crate::access::may_log;
use crate::exchange::ClientView;
use crate::protocol::jsonrpc::{METHOD_NOT_FOUND, RpcError, notification};
use crate::protocol::log_level::{LOG_MESSAGE, LogLevel, SET_LEVEL};

/// Bound on the name of a server's logger, in bytes.
const MAX_LOGGER: usize = 256;

/// Sets the level of a session, and tells the servers that have log messages.
///
/// # Errors
/// No server has any for this client.
pub(crate) async fn set_level(view: ClientView<'_>, level: LogLevel) -> Result<String, RpcError> {
    let session = view.session;
    let servers: Vec<_> = view.servers().into_iter().filter(|server| may_log(server, view.key)).collect();
    let hellos = join_all(servers.iter().map(|server| known_hello(server, session))).await;
    let logging: Vec<_> = servers.iter().zip(&hellos).filter(|(_, hello)| hello.offers("logging")).collect();
    if logging.is_empty() {
        return Err(RpcError::new(METHOD_NOT_FOUND, "no server of this gateway has log messages for this client"));
    }
    *session.log_level.lock() = Some(level);
    let params = level.params();
    // One without sessions is told with each request.
    let requests = logging.iter().filter(|(_, hello)| !hello.is_stateless()).map(|(server, _)| async {
        if let Err(e) = server.request(session, SET_LEVEL, &params, None).await {
            // Its messages below the level are left out in any case.
            tracing::warn!("{SET_LEVEL} failed with the code {} at the MCP server {}", e.code, server.name);
        }
    });
    join_all(requests).await;
    Ok("{}".to_owned())
}

impl CallContext {
    /// Passes a log message on to the client. One that cannot be inspected is left out.
    pub(crate) async fn pass_log_message(&self, params: &Value, out: &mpsc::Sender<String>) {
        let level = params["level"].as_str().and_then(LogLevel::parse);
        let Some(level) = level.filter(|_| self.may_log) else { return };
        let lowest = *self.session.log_level.lock();
        let is_wanted = match self.delivery {
            Delivery::Session => lowest.is_none_or(|lowest| level >= lowest) && self.session.standing.keeps_events(),
            Delivery::Request => lowest.is_some_and(|lowest| level >= lowest),
            Delivery::Listen(..) => false,
        };
        if !is_wanted {
            return;
        }
        let name = &self.server.name;
        match self.inspect_log_message(params).await {
            Ok(message) => {
                let logger = message["logger"].as_str();
                let logger = logger.map_or_else(|| name.to_string(), |logger| format!("{name}/{logger}"));
                let message = json!({ "level": level.as_str(), "logger": logger, "data": message["data"] });
                let text = notification(LOG_MESSAGE, &message);
                match self.delivery {
                    Delivery::Session => self.session.standing.push(text),
                    // A client that reads slowly misses some.
                    Delivery::Request | Delivery::Listen(..) => drop(out.try_send(text)),
                }
            }
            Err(e) => tracing::warn!("cannot pass on a log message of the MCP server {name}: {e}"),
        }
    }

    /// Redacts what a server wrote in a log message as a result is.
    async fn inspect_log_message(&self, params: &Value) -> Result<Value, RpcError> {
        let logger = params["logger"].as_str().filter(|logger| logger.len() <= MAX_LOGGER);
        let written = json!({ "logger": logger, "data": params["data"] }).to_string();
        let checked = self.inspect(written).await?;
        serde_json::from_str(&checked).map_err(|e| RpcError::server(e.to_string()))
    }
}
