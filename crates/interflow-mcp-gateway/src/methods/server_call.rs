//! A call that a server answers: of a tool, a prompt or a resource.

use std::sync::Arc;

use interflow_redact::RedactMode;
use serde_json::{Value, json};

use super::call_context::CallContext;
use crate::protocol::client_message::{ClientMethod, CompletionRef, completion_params, named_params};
use crate::protocol::jsonrpc::{METHOD_NOT_FOUND, RpcError};
use crate::redaction::restoring::restore_for_server;
use crate::redaction::values::{Findings, redact_text};
use crate::upstream::event_sink::EventSink;

/// A call with all that it needs, so that it can go on while its response is already being sent.
pub(crate) struct ServerCall {
    pub context: Arc<CallContext>,
    /// The name of the tool or prompt at the server.
    pub name: String,
    /// As it is recorded.
    pub method: ClientMethod,
    /// As the client sent it, if the server gets more than the recording.
    pub original: Option<ClientMethod>,
}

impl ServerCall {
    /// Sends the call and redacts what comes back.
    pub async fn run(self, sink: Option<EventSink>) -> Result<String, RpcError> {
        let context = &self.context;
        let result = match self.send(sink).await {
            Ok(result) => context.inspect(result).await,
            Err(e) => {
                let (vault, mut findings) = (&context.session.from_servers, Findings::new());
                let message =
                    redact_text(&context.policy, context.result_mode(), vault, &e.message, &mut findings).await;
                context.count(findings);
                let data = context.required_urls(&e).await;
                data.and_then(|data| Err(RpcError { message, data: data.map(Box::new), received_data: None, ..e }))
            }
        };
        let is_error = result.as_deref().map_or(true, is_tool_error);
        context.service.count_call(&context.server.name, if is_error { "error" } else { "ok" });
        context.outcome.lock().is_error = is_error;
        result
    }

    async fn send(&self, sink: Option<EventSink>) -> Result<String, RpcError> {
        let context = &*self.context;
        // After the recorder took its copy of the request.
        let restored = |json: String| restore_for_server(&context.server, &context.policy, &context.session, json);
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
            _ => return Err(RpcError::server("not a request that a server answers")),
        };
        let is_resource = method == "resources/read";
        let params = |token: Option<u64>| match is_resource {
            true => format!(r#"{{"uri":{values}}}"#),
            false => named_params(&self.name, &values, token),
        };
        context.server.request(&context.session, method, &params, sink).await
    }

    /// Asks the server for values of an argument.
    async fn complete(&self, reference: &CompletionRef, values: &str) -> Result<String, RpcError> {
        let context = &*self.context;
        if !context.server.hello(&context.session).await?.offers("completions") {
            let name = &context.server.name;
            return Err(RpcError::new(METHOD_NOT_FOUND, format!("the MCP server {name} completes no arguments")));
        }
        let params = completion_params(reference, values);
        context.server.request(&context.session, "completion/complete", &|_| params.clone(), None).await
    }

    /// Asks the server to tell of changes to a resource. `sent` is its URI as JSON.
    async fn subscribe(&self, sent: &str) -> Result<String, RpcError> {
        let context = &*self.context;
        if !context.server.hello(&context.session).await?.has_subscriptions() {
            let name = &context.server.name;
            return Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("the MCP server {name} has no subscriptions to resources"),
            ));
        }
        let plain: String = serde_json::from_str(sent).map_err(|e| RpcError::server(e.to_string()))?;
        // The client is told of the one that is recorded, in which its own values are restored.
        let ClientMethod::Subscribe(client_uri) = &self.method else {
            return Err(RpcError::server("not a subscription"));
        };
        // Before the server may tell of the first change.
        context.session.subscriptions.add(&context.server.name, &plain, client_uri)?;
        let params = format!(r#"{{"uri":{sent}}}"#);
        let done = context.server.request(&context.session, "resources/subscribe", &|_| params.clone(), None).await;
        if done.is_err() {
            context.session.subscriptions.remove(&context.server.name, &plain);
        }
        done.map(|_| "{}".to_owned())
    }

    async fn unsubscribe(&self, sent: &str) -> Result<String, RpcError> {
        let plain: String = serde_json::from_str(sent).map_err(|e| RpcError::server(e.to_string()))?;
        let context = &*self.context;
        context.session.subscriptions.remove(&context.server.name, &plain);
        // A process that sessions share goes on to tell of it.
        if context.service.sessions.is_subscribed_elsewhere(&context.session, &context.server.name, &plain) {
            return Ok("{}".to_owned());
        }
        let params = format!(r#"{{"uri":{sent}}}"#);
        let done = context.server.request(&context.session, "resources/unsubscribe", &|_| params.clone(), None).await;
        done.map(|_| "{}".to_owned())
    }

    /// What tells the client of a server's progress notification.
    pub fn progress_translator(&self, token: Value) -> impl Fn(&Value) -> Value + Send + use<> {
        let context = Arc::clone(&self.context);
        move |params| {
            let (policy, mode) = (&context.policy, context.result_mode());
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
                        let done = policy.redactor.redact_text(message, &mut context.session.from_servers.lock());
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
