//! A call that a server answers: of a tool, a prompt or a resource.

use std::sync::Arc;

use interflow_redact::{RedactMode, ValuePolicy};
use interflow_types::Direction;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client_message::{ClientMethod, CompletionRef, completion_params, named_params};
use crate::client_requests::ReviewedRequest;
use crate::jsonrpc::{METHOD_NOT_FOUND, RpcError};
use crate::redaction::{Findings, redact_result, redact_text, restore_for_server};
use crate::service::{CallGuard, McpService};
use crate::sessions::McpSession;
use crate::settings::McpServer;
use crate::stages::CallOutcome;
use crate::upstream::EventSink;

/// A call with all that it needs, so that it can go on while its response is already being sent.
pub(crate) struct ServerCall {
    pub service: Arc<McpService>,
    pub session: Arc<McpSession>,
    pub server: Arc<McpServer>,
    /// The name of the tool or prompt at the server.
    pub name: String,
    /// As it is recorded.
    pub method: ClientMethod,
    /// As the client sent it, if the server gets more than the recording.
    pub original: Option<ClientMethod>,
    pub policy: ValuePolicy,
    pub guard: Option<Arc<dyn CallGuard>>,
    pub outcome: Arc<Mutex<CallOutcome>>,
    pub review: Arc<ReviewedRequest>,
}

impl ServerCall {
    /// Sends the call and redacts what comes back.
    pub async fn run(self, sink: Option<EventSink>) -> Result<String, RpcError> {
        let answered = self.send(sink).await;
        let mut found = Findings::new();
        let vault = &self.session.from_servers;
        let result = match answered {
            Ok(result) => redact_result(&self.policy, &self.server, vault, result, &mut found).await,
            Err(e) => {
                let message = redact_text(&self.policy, self.result_mode(), vault, &e.message, &mut found).await;
                let data = self.required_urls(&e, &mut found).await;
                data.and_then(|data| Err(RpcError { message, data: data.map(Box::new), received_data: None, ..e }))
            }
        };
        self.service.count_findings(Direction::Response, &found);
        let result = match (result, &self.guard) {
            (Ok(result), Some(guard)) => guard.check_result(result).await.map_err(RpcError::not_allowed),
            (result, _) => result,
        };
        let is_error = result.as_deref().map_or(true, is_tool_error);
        self.service.count_call(&self.server.name, if is_error { "error" } else { "ok" });
        let mut outcome = self.outcome.lock();
        outcome.add(found);
        outcome.is_error = is_error;
        drop(outcome);
        result
    }

    async fn send(&self, sink: Option<EventSink>) -> Result<String, RpcError> {
        // After the recorder took its copy of the request.
        let restored = |json: String| restore_for_server(&self.server, &self.policy, &self.session, json);
        let uri_json = |uri: &str| restored(Value::from(uri).to_string());
        let (method, values) = match self.original.as_ref().unwrap_or(&self.method) {
            ClientMethod::CallTool(_, arguments) => ("tools/call", restored(arguments.clone())),
            ClientMethod::GetPrompt(_, arguments) => ("prompts/get", restored(arguments.clone())),
            ClientMethod::ReadResource(uri) => ("resources/read", uri_json(uri)),
            ClientMethod::Subscribe(uri) => return self.subscribe(&uri_json(uri)).await,
            ClientMethod::Unsubscribe(uri) => return self.unsubscribe(&uri_json(uri)).await,
            ClientMethod::Complete(CompletionRef::Prompt(_), values) => {
                // By its name at the server.
                return self.complete(&CompletionRef::Prompt(self.name.clone()), &restored(values.clone())).await;
            }
            ClientMethod::Complete(CompletionRef::Resource(uri), values) => {
                let uri = serde_json::from_str(&uri_json(uri)).map_err(|e| RpcError::server(e.to_string()))?;
                return self.complete(&CompletionRef::Resource(uri), &restored(values.clone())).await;
            }
            _ => return Err(RpcError::server("this is no call")),
        };
        let is_resource = method == "resources/read";
        let params = |token: Option<u64>| match is_resource {
            true => format!(r#"{{"uri":{values}}}"#),
            false => named_params(&self.name, &values, token),
        };
        self.server.request(&self.session, method, &params, sink).await
    }

    /// Asks the server for values of an argument.
    async fn complete(&self, reference: &CompletionRef, values: &str) -> Result<String, RpcError> {
        if !self.server.hello(&self.session).await?.offers("completions") {
            let name = &self.server.name;
            return Err(RpcError::new(METHOD_NOT_FOUND, format!("the MCP server {name} completes no arguments")));
        }
        let params = completion_params(reference, values);
        self.server.request(&self.session, "completion/complete", &|_| params.clone(), None).await
    }

    /// Asks the server to tell of changes to a resource. `sent` is its URI as JSON.
    async fn subscribe(&self, sent: &str) -> Result<String, RpcError> {
        if !self.server.hello(&self.session).await?.has_subscriptions() {
            let name = &self.server.name;
            return Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("the MCP server {name} has no subscriptions to resources"),
            ));
        }
        let plain: String = serde_json::from_str(sent).map_err(|e| RpcError::server(e.to_string()))?;
        // The client is told of the one that is recorded, in which its own values are restored.
        let ClientMethod::Subscribe(shown) = &self.method else {
            return Err(RpcError::server("this is no subscription"));
        };
        // Before the server may tell of the first change.
        self.session.subscribe(&self.server.name, &plain, shown)?;
        let params = format!(r#"{{"uri":{sent}}}"#);
        let done = self.server.request(&self.session, "resources/subscribe", &|_| params.clone(), None).await;
        if done.is_err() {
            self.session.unsubscribe(&self.server.name, &plain);
        }
        done.map(|_| "{}".to_owned())
    }

    async fn unsubscribe(&self, sent: &str) -> Result<String, RpcError> {
        let plain: String = serde_json::from_str(sent).map_err(|e| RpcError::server(e.to_string()))?;
        self.session.unsubscribe(&self.server.name, &plain);
        // A process that sessions share goes on to tell of it.
        if self.service.sessions.is_subscribed_elsewhere(&self.session, &self.server.name, &plain) {
            return Ok("{}".to_owned());
        }
        let params = format!(r#"{{"uri":{sent}}}"#);
        let done = self.server.request(&self.session, "resources/unsubscribe", &|_| params.clone(), None).await;
        done.map(|_| "{}".to_owned())
    }

    fn result_mode(&self) -> RedactMode {
        self.server.config.results.unwrap_or(self.policy.mode)
    }

    /// What tells the client of a server's progress notification.
    pub fn progress_translator(&self, token: Value) -> impl Fn(&Value) -> Value + Send + use<> {
        let (policy, mode, session) = (self.policy.clone(), self.result_mode(), Arc::clone(&self.session));
        move |params| {
            let mut out = json!({ "progressToken": token });
            for name in ["progress", "total"] {
                if let Some(number) = params.get(name).filter(|n| n.is_number()) {
                    out[name] = number.clone();
                }
            }
            // A message that further detectors would have to see is left out: this must not wait.
            let message =
                params["message"].as_str().filter(|_| mode != RedactMode::Redact || policy.detectors.is_empty());
            if let Some(message) = message.filter(|message| message.len() <= MAX_PROGRESS_TEXT) {
                let redacted = match mode {
                    RedactMode::Redact => {
                        let done = policy.redactor.redact_text(message, &mut session.from_servers.lock());
                        done.ok().map(|done| done.output.unwrap_or_else(|| message.to_owned()))
                    }
                    RedactMode::Flag | RedactMode::Off => Some(message.to_owned()),
                };
                if let Some(text) = redacted {
                    out["message"] = text.into();
                }
            }
            out
        }
    }
}

/// Bound on the message of a progress notification.
const MAX_PROGRESS_TEXT: usize = 4096;

/// Tools report their errors in results, so that models can correct their calls.
fn is_tool_error(result: &str) -> bool {
    let is_marked = result.contains("\"isError\"");
    is_marked && serde_json::from_str::<Value>(result).is_ok_and(|value| value["isError"] == true)
}
