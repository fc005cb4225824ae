//! Tasks: calls that go on after their response, at servers without sessions (MCP 2026-07-28, extension tasks) and with
//! them (MCP 2025-11-25, tasks). A client knows a task by a sealed id, which names its server, and is of use to its holder
//! alone.

use std::sync::Arc;

use futures_util::future::join_all;
use interflow_types::data_file::has_word;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::call_context::{AnsweredRequest, CallContext, Delivery};
use crate::access::{self, Offer};
use crate::exchange::ClientView;
use crate::protocol::client_capabilities::TASKS_EXTENSION;
use crate::protocol::client_message::ListKind;
use crate::protocol::envelope::SUBSCRIPTION_ID_KEY;
use crate::protocol::jsonrpc::{INVALID_PARAMS, RpcError, member, merged, notification, object, text_member, without};
use crate::protocol::task_method::{TASK_STATUS, TaskMethod};
use crate::service::McpService;
use crate::session::client_session::McpSession;
use crate::session::request_state::StateBinding;
use crate::upstream::server::McpServer;

/// The member of `_meta` that names the task of a result.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The members of a task that say how it is.
const STATUS_MEMBERS: &str =
    "taskId status statusMessage createdAt lastUpdatedAt ttl ttlMs pollInterval pollIntervalMs";
/// Bound on the id of a task at its server, in bytes.
const MAX_ID: usize = 1024;
/// Tasks of a list that are looked up at once.
const MAX_AT_ONCE: usize = 8;
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
        StateBinding::new(session.key().unwrap_or(&session.id), "", "tasks", "")
    }

    /// # Errors
    /// It is of another client, or was altered.
    pub fn open(service: &McpService, session: &McpSession, sealed: &str) -> Result<Self, RpcError> {
        let handle = service.sealer.open_value(sealed, &Self::binding(session));
        handle.ok_or_else(|| RpcError::new(INVALID_PARAMS, "there is no such task, or it is of another client"))
    }

    /// The server, and the id there.
    ///
    /// # Errors
    /// The client may not use it, or not any more.
    pub fn target(self, view: ClientView<'_>) -> Result<(Arc<McpServer>, String), RpcError> {
        let server = view.settings.get(&self.server).filter(|_| view.only.is_none_or(|only| only == self.server));
        let server = server.ok_or_else(|| RpcError::new(INVALID_PARAMS, "the server of the task is not here"))?;
        access::check(server, view.key, Offer::Tool(&self.tool))?;
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

/// The tasks of a session as they are now, without those of servers that fail or are not for the client any more.
pub(super) async fn list(mut request: AnsweredRequest<'_>, view: ClientView<'_>) -> Result<String, RpcError> {
    let (service, session) = (request.service, request.session);
    let mut tasks = Vec::new();
    for sealed in session.tasks.for_client() {
        let target = TaskHandle::open(service, session, &sealed).and_then(|handle| handle.target(view));
        let Ok((server, id)) = target else { continue };
        let contexts = request.stream_contexts(vec![server], view.key, || Delivery::Session)?;
        tasks.extend(contexts.into_iter().map(|context| (context, sealed.clone(), id.clone())));
    }
    let look_up = async |(context, sealed, id): &(CallContext, String, String)| {
        let params = json!({ "taskId": id }).to_string();
        let task = context.server.request(session, TaskMethod::Get.as_str(), &params, None).await.ok()?;
        serde_json::from_str::<Value>(&context.task(sealed, &task).await.ok()?).ok()
    };
    let mut now = Vec::new();
    for some in tasks.chunks(MAX_AT_ONCE) {
        now.extend(join_all(some.iter().map(look_up)).await.into_iter().flatten());
    }
    Ok(json!({ "tasks": now }).to_string())
}

/// The tasks of a filter that are the client's, with their servers, which are going to be asked for them.
pub(super) fn followed(
    request: &AnsweredRequest<'_>,
    view: ClientView<'_>,
    tasks: &[String],
) -> Vec<(Arc<McpServer>, String)> {
    let find = |sealed: &String| {
        let handle = TaskHandle::open(request.service, request.session, sealed).ok()?;
        let (server, id) = handle.target(view).ok()?;
        request.session.tasks.add_newest(&server.name, &id, sealed);
        Some((server, sealed.clone()))
    };
    tasks.iter().filter_map(find).collect()
}

impl CallContext {
    /// The result of a call that goes on as a task, inspected.
    pub(super) async fn begun_task(&self, tool: &str, result: &str) -> Result<String, RpcError> {
        if !self.is_stateless() || !self.session.capabilities.extensions.contains_key(TASKS_EXTENSION) {
            return Err(RpcError::server("it began a task, which the client did not declare"));
        }
        let (_, sealed) = self.sealed_id(tool, result)?;
        self.task(&sealed, result).await
    }

    /// As [`begun_task`](Self::begun_task), of a version with sessions. The session remembers it.
    pub(super) async fn created_task(&self, tool: &str, result: &str) -> Result<String, RpcError> {
        let task = member(result, "task").unwrap_or_default();
        let (id, sealed) = self.sealed_id(tool, task)?;
        self.session.tasks.add_newest(&self.server.name, &id, &sealed);
        let task = self.task(&sealed, task).await?;
        let rest = self.inspect(without(result, |name| name == "task")).await?;
        Ok(merged(&rest, &object([("task", task.as_str())])))
    }

    /// The result of the call that went on as a task, inspected; `id` is that of the client.
    pub(super) async fn task_result(&self, id: &str, result: String) -> Result<String, RpcError> {
        let related = json!({ "_meta": { RELATED_TASK: { "taskId": id } } });
        Ok(merged(&self.inspect(result).await?, &related.to_string()))
    }

    /// The id of a task at its server, and for the client.
    fn sealed_id(&self, tool: &str, task: &str) -> Result<(String, String), RpcError> {
        let id = text_member(task, "taskId").filter(|id| id.len() <= MAX_ID);
        let id = id.ok_or_else(|| RpcError::server("its task has no `taskId`, or one of more than 1024 bytes"))?;
        let handle = TaskHandle { server: self.server.name.to_string(), tool: tool.to_owned(), id };
        let sealed = self.service.sealer.seal_value(&handle, &TaskHandle::binding(&self.session))?;
        Ok((handle.id, sealed))
    }

    /// Passes on how a task of the client is. What it asks and its result are for `tasks/get`.
    pub(super) async fn pass_task(&self, method: &str, params: &Value, out: &mpsc::Sender<String>) {
        let id = params["taskId"].as_str().unwrap_or_default();
        let Some(sealed) = self.session.tasks.client_uri(&self.server.name, id) else { return };
        let status = without(&params.to_string(), |name| !has_word(STATUS_MEMBERS, name));
        let Ok(status) = self.task(&sealed, &status).await else { return };
        let mut status: Value = serde_json::from_str(&status).unwrap_or_default();
        match &self.delivery {
            Delivery::Session if method == TASK_STATUS => self.session.standing.push(notification(method, &status)),
            Delivery::Listen(filter, id) if filter.admits(method, &status) => {
                status["_meta"] = json!({ SUBSCRIPTION_ID_KEY: id });
                // A client that reads slowly misses some.
                let _ = out.try_send(notification(method, &status));
            }
            _ => {}
        }
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
