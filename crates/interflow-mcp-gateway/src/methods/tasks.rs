//! Tasks: calls at servers without sessions that go on after their response (MCP 2026-07-28, extension tasks). A client
//! knows a task by a sealed id, which names its server, and is of use to its holder alone.

use std::sync::Arc;

use interflow_limits::VirtualKey;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::call_context::CallContext;
use crate::access::{self, Offer};
use crate::exchange::Endpoint;
use crate::protocol::client_capabilities::TASKS_EXTENSION;
use crate::protocol::client_message::ListKind;
use crate::protocol::jsonrpc::{INVALID_PARAMS, RpcError, merged, text_member, without};
use crate::service::McpService;
use crate::session::client_session::McpSession;
use crate::session::request_state::StateBinding;
use crate::settings::McpSettings;
use crate::upstream::server::McpServer;

/// Bound on the id of a task at its server, in bytes.
const MAX_ID: usize = 1024;
/// Bound on the questions of tasks that a client was asked.
const MAX_QUESTIONS: usize = 1_000;

/// A task, as its sealed id names it.
#[derive(Serialize, Deserialize)]
pub(crate) struct TaskHandle {
    server: String,
    pub tool: String,
    id: String,
}

impl TaskHandle {
    fn binding(session: &McpSession) -> StateBinding {
        StateBinding::new(session.key().unwrap_or_default(), "", "tasks", "")
    }

    /// # Errors
    /// It is of another client, or was altered.
    pub fn open(service: &McpService, session: &McpSession, sealed: &str) -> Result<Self, RpcError> {
        let opened = service.sealer.open_bytes(sealed, &Self::binding(session));
        let handle = opened.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        handle.ok_or_else(|| RpcError::new(INVALID_PARAMS, "there is no such task, or it is of another client"))
    }

    /// The server, and the id there.
    ///
    /// # Errors
    /// The client may not use it, or not any more.
    pub fn target(
        self,
        settings: &McpSettings,
        endpoint: &Endpoint,
        key: Option<&VirtualKey>,
    ) -> Result<(Arc<McpServer>, String), RpcError> {
        let server =
            settings.get(&self.server).filter(|_| endpoint.0.as_deref().is_none_or(|only| only == self.server));
        let server = server.ok_or_else(|| RpcError::new(INVALID_PARAMS, "the server of the task is not here"))?;
        access::check(server, key, Offer::Tool(&self.tool))?;
        if !server.rules.may_call(ListKind::Tools, &self.tool) {
            return Err(RpcError::not_allowed(format!("MCP server {}: the rules deny the task's tool", self.server)));
        }
        Ok((Arc::clone(server), self.id))
    }
}

/// Whether the result of a call is a task.
pub(super) fn is_task(result: &str) -> bool {
    result.contains("\"task\"") && text_member(result, "resultType").as_deref() == Some("task")
}

impl CallContext {
    /// The result of a call that goes on as a task, inspected.
    pub(super) async fn begun_task(&self, tool: &str, result: &str) -> Result<String, RpcError> {
        if !self.is_stateless() || !self.session.capabilities.extensions.contains_key(TASKS_EXTENSION) {
            return Err(RpcError::server("it began a task, which the client did not declare"));
        }
        let id = text_member(result, "taskId").filter(|id| id.len() <= MAX_ID);
        let id = id.ok_or_else(|| RpcError::server("its task has no `taskId`, or one of more than 1024 bytes"))?;
        let handle = TaskHandle { server: self.server.name.to_string(), tool: tool.to_owned(), id };
        let text = serde_json::to_vec(&handle).map_err(|e| RpcError::server(e.to_string()))?;
        let sealed = self.service.sealer.seal_bytes(&text, &TaskHandle::binding(&self.session))?;
        self.task(&sealed, result).await
    }

    /// What the server says of a task, inspected; `id` is that of the client.
    pub(super) async fn task(&self, id: &str, result: &str) -> Result<String, RpcError> {
        let value: Value = serde_json::from_str(result).map_err(|e| RpcError::server(e.to_string()))?;
        let rest = self.inspect(without(result, |name| ["taskId", "inputRequests"].contains(&name))).await?;
        let mut own = Map::new();
        if value.get("taskId").is_some() {
            own.insert("taskId".to_owned(), id.into());
        }
        if let Some(requests) = value["inputRequests"].as_object() {
            let mut asked = Map::new();
            for (key, request) in requests {
                asked.insert(key.clone(), self.task_question(id, key, request).await?);
            }
            own.insert("inputRequests".to_owned(), asked.into());
        }
        Ok(merged(&rest, &Value::Object(own).to_string()))
    }

    /// What a task asks of the client. It is the same each time that the client looks, and approved once.
    async fn task_question(&self, id: &str, key: &str, request: &Value) -> Result<Value, RpcError> {
        let name = blake3::hash(json!([id, key, request]).to_string().as_bytes());
        if let Some(asked) = self.session.task_questions.lock().get(&name) {
            return Ok(asked.clone());
        }
        let method = request["method"].as_str().unwrap_or_default();
        let params = request.get("params").map(Value::to_string).unwrap_or_default();
        let params = self.question(method, &params).await?;
        let params: Value = serde_json::from_str(&params).map_err(|e| RpcError::server(e.to_string()))?;
        let asked = json!({ "method": method, "params": params });
        let mut all = self.session.task_questions.lock();
        if all.len() >= MAX_QUESTIONS {
            all.clear();
        }
        all.insert(name, asked.clone());
        Ok(asked)
    }
}
