//! A call that a server answers: of a tool, a prompt or a resource.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::call_context::CallContext;
use super::tasks::is_task;
use crate::grants::link_answer::with_link;
use crate::protocol::client_capabilities::ClientRequestKind;
use crate::protocol::client_message::{ClientMethod, CompletionRef, completion_params, named_params};
use crate::protocol::envelope::{Envelope, input_required};
use crate::protocol::header_values::name_member;
use crate::protocol::jsonrpc::{METHOD_NOT_FOUND, RpcError, member, merged, object};
use crate::protocol::task_method::TaskMethod;
use crate::redaction::restoring::restore_for_server;
use crate::session::request_state::{RequestState, StateBinding};
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
    /// Further params of a client without a session, for the server.
    pub passed: Option<String>,
    /// What the server gave the client with an earlier answer to the same request.
    pub state: Option<String>,
    /// What such a state is bound to.
    pub binding: Arc<StateBinding>,
    /// It may go on as a task with these settings.
    pub task: Option<Value>,
}

/// What comes of a call.
enum Answer {
    Result(String),
    /// What the client is asked, inspected.
    Asked(String),
}

/// Bound on how often a server may ask before the result, and the pause before a request that it wants only repeated.
const MAX_ROUNDS: usize = 16;
const ROUND_PAUSE: Duration = Duration::from_millis(200);

impl ServerCall {
    /// Sends the call and redacts what comes back.
    pub async fn run(self, sink: Option<EventSink>, out: Option<mpsc::Sender<String>>) -> Result<String, RpcError> {
        let context = &self.context;
        let result = match self.send(sink, out.as_ref()).await {
            Ok(Answer::Asked(result)) => return Ok(result),
            Ok(Answer::Result(result)) => match &self.method {
                ClientMethod::Task(TaskMethod::Result, id) => return context.task_result(id, result).await,
                ClientMethod::Task(_, id) => return context.task(id, &result).await,
                ClientMethod::CallTool(..) if self.task.is_some() && member(&result, "task").is_some() => {
                    context.created_task(&self.name, &result).await
                }
                ClientMethod::CallTool(..) if is_task(&result) => context.begun_task(&self.name, &result).await,
                _ => context.inspect(result).await.map(|result| self.with_cache_hints(result)),
            },
            Err(e) if e.has_own_link() => {
                let is_call = !matches!(self.method, ClientMethod::Task(..));
                with_link(&context.session, is_call, Err(e), &context.outcome, self.sealed(None)?)
            }
            Err(e) => {
                let mut redaction = context.redaction();
                let redacted = redaction.error(&e).await;
                context.count(redaction.findings);
                match context.required_urls(&e).await {
                    Ok(Some(urls)) if context.is_stateless() => return Ok(ask_for_urls(&urls, self.sealed(None)?)),
                    Ok(urls) => {
                        let data = urls.or(self.error_data(&e).await).map(Box::new);
                        Err(RpcError { data, ..redacted })
                    }
                    Err(e) => Err(e),
                }
            }
        };
        let is_error = result.as_deref().map_or(true, is_tool_error);
        context.service.count_call(&context.server.name, if is_error { "error" } else { "ok" });
        context.outcome.lock().is_error = is_error;
        result
    }

    /// The data of an error for a client without a session, redacted.
    async fn error_data(&self, error: &RpcError) -> Option<Value> {
        let data = error.received_data.as_ref().filter(|_| self.context.is_stateless())?;
        serde_json::from_str(&self.context.inspect(data.to_string()).await.ok()?).ok()
    }

    /// A resource is redacted for one client, so no other may have it of a cache.
    fn with_cache_hints(&self, result: String) -> String {
        match (&self.method, self.context.is_stateless()) {
            (ClientMethod::ReadResource(_), true) => {
                merged(&merged(r#"{"ttlMs":0}"#, &result), r#"{"cacheScope":"private"}"#)
            }
            _ => result,
        }
    }

    async fn send(&self, sink: Option<EventSink>, out: Option<&mpsc::Sender<String>>) -> Result<Answer, RpcError> {
        let context = &*self.context;
        // After the recorder took its copy of the request.
        let restored = |json: String| restore_for_server(&context.server, &context.policy, &context.session, json);
        let restored_uri = |uri: &str| {
            let json = restored(Value::from(uri).to_string());
            serde_json::from_str::<String>(&json).map_err(|e| RpcError::server(e.to_string()))
        };
        let (method, values) = match self.original.as_ref().unwrap_or(&self.method) {
            ClientMethod::CallTool(_, arguments) => ("tools/call", restored(arguments.clone())),
            ClientMethod::GetPrompt(_, arguments) => ("prompts/get", restored(arguments.clone())),
            ClientMethod::ReadResource(uri) => ("resources/read", Value::from(restored_uri(uri)?).to_string()),
            ClientMethod::Task(method, _) => (method.as_str(), Value::from(self.name.as_str()).to_string()),
            ClientMethod::Subscribe(uri) => return self.subscribe(&restored_uri(uri)?).await.map(Answer::Result),
            ClientMethod::Unsubscribe(uri) => return self.unsubscribe(&restored_uri(uri)?).await.map(Answer::Result),
            ClientMethod::Complete(reference, values) => {
                let reference = match reference {
                    // By its name at the server.
                    CompletionRef::Prompt(_) => CompletionRef::Prompt(self.name.clone()),
                    CompletionRef::Resource(uri) => CompletionRef::Resource(restored_uri(uri)?),
                };
                return self.complete(&reference, &restored(values.clone())).await.map(Answer::Result);
            }
            _ => return Err(RpcError::server("not a request that a server answers")),
        };
        let mut params = match name_member(method) {
            Some(name @ ("uri" | "taskId")) => object([(name, values.as_str())]),
            _ => named_params(&self.name, &values),
        };
        if let Some(task) = &self.task
            && context.server.hello(&context.session).await?.has_tasks()
        {
            params = merged(&params, &json!({ "task": task }).to_string());
        }
        if let Some(passed) = &self.passed {
            let passed = restored(passed.clone());
            let is_stateless = context.server.hello(&context.session).await?.is_stateless();
            params = merged(&params, &if is_stateless { passed } else { Envelope::without_responses(&passed) });
        }
        if let Some(state) = &self.state {
            params = merged(&params, &json!({ "requestState": state }).to_string());
        }
        self.ask_and_repeat(method, params, sink, out).await
    }

    /// Sends a request. If the server asks something before the result, a client with a session is asked here, and one
    /// without gets that as the result.
    async fn ask_and_repeat(
        &self,
        method: &str,
        params: String,
        sink: Option<EventSink>,
        out: Option<&mpsc::Sender<String>>,
    ) -> Result<Answer, RpcError> {
        let (context, mut sent, mut urls) = (&*self.context, params.clone(), Vec::new());
        for _ in 0..MAX_ROUNDS {
            let result = context.server.request(&context.session, method, &sent, sink.clone()).await?;
            // The user is done with what was opened before.
            if let Some(out) = out {
                urls.drain(..).for_each(|url| context.pass_completion(&url, out));
            }
            let Some(required) = InputRequired::parse(&result) else { return Ok(Answer::Result(result)) };
            if context.is_stateless() {
                return self.pass_questions(required).await.map(Answer::Asked);
            }
            let mut responses = Vec::new();
            for (key, question, asked) in &required.requests {
                let unasked = || RpcError::not_allowed(format!("{question}: the client accepts no event stream"));
                let (response, asked) = context.ask(question, asked, out.ok_or_else(unasked)?).await?;
                responses.push((key, response));
                urls.extend(serde_json::from_str::<Value>(&asked).ok().filter(|asked| asked["mode"] == "url"));
            }
            if responses.is_empty() {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
            let responses = object(responses.iter().map(|(key, response)| (key, response.as_str())));
            sent = merged(&params, &object([("inputResponses", responses.as_str())]));
            if let Some(state) = required.state {
                sent = merged(&sent, &json!({ "requestState": state }).to_string());
            }
        }
        let name = &context.server.name;
        Err(RpcError::server(format!("MCP server {name}: it asked {MAX_ROUNDS} times and gave no result")))
    }

    /// What a client without a session is asked.
    async fn pass_questions(&self, required: InputRequired) -> Result<String, RpcError> {
        let mut requests = Map::new();
        for (key, method, params) in required.requests {
            let params = self.context.question(&method, &params).await?;
            let params: Value = serde_json::from_str(&params).map_err(|e| RpcError::server(e.to_string()))?;
            requests.insert(key, json!({ "method": method, "params": params }));
        }
        Ok(input_required(&Value::Object(requests), self.sealed(required.state)?))
    }

    /// The state of a question to a client without a session. There is one even if the server gave none: it stands for a
    /// person's approval of the call.
    fn sealed(&self, of_server: Option<String>) -> Result<Option<String>, RpcError> {
        self.context.seal(RequestState { of_server, ..RequestState::default() }, &self.binding).map(Some)
    }

    fn unsupported(&self, why: &str) -> RpcError {
        RpcError::new(METHOD_NOT_FOUND, format!("the MCP server {} {why}", self.context.server.name))
    }

    /// Asks the server for values of an argument.
    async fn complete(&self, reference: &CompletionRef, values: &str) -> Result<String, RpcError> {
        let context = &*self.context;
        if !context.server.hello(&context.session).await?.offers("completions") {
            return Err(self.unsupported("completes no arguments"));
        }
        let params = completion_params(reference, values);
        context.server.request(&context.session, "completion/complete", &params, None).await
    }

    /// Asks the server to tell of changes to a resource.
    async fn subscribe(&self, uri: &str) -> Result<String, RpcError> {
        let context = &*self.context;
        let hello = context.server.hello(&context.session).await?;
        if !hello.has_subscriptions() {
            return Err(self.unsupported("has no subscriptions to resources"));
        }
        // The client is told of the one that is recorded, in which its own values are restored.
        let ClientMethod::Subscribe(client_uri) = &self.method else {
            return Err(RpcError::server("not a subscription"));
        };
        // Before the server may tell of the first change.
        context.session.subscriptions.add(&context.server.name, uri, client_uri)?;
        let params = json!({ "uri": uri }).to_string();
        let done = match hello.is_stateless() {
            true => context.server.renew_subscriptions(&context.session).await,
            false => context.server.request(&context.session, "resources/subscribe", &params, None).await.map(drop),
        };
        if done.is_err() {
            context.session.subscriptions.remove(&context.server.name, uri);
        }
        done.map(|_| "{}".to_owned())
    }

    async fn unsubscribe(&self, uri: &str) -> Result<String, RpcError> {
        let context = &*self.context;
        context.session.subscriptions.remove(&context.server.name, uri);
        // A process that sessions share goes on to tell of it.
        if context.service.sessions.is_subscribed_elsewhere(&context.session, &context.server.name, uri) {
            return Ok("{}".to_owned());
        }
        if context.server.hello(&context.session).await?.is_stateless() {
            return context.server.renew_subscriptions(&context.session).await.map(|()| "{}".to_owned());
        }
        let params = json!({ "uri": uri }).to_string();
        let done = context.server.request(&context.session, "resources/unsubscribe", &params, None).await;
        done.map(|_| "{}".to_owned())
    }
}

/// What a server without sessions asks before the result (MCP 2026-07-28, multi round-trip requests).
struct InputRequired {
    /// Key, method and params of each request.
    requests: Vec<(String, String, String)>,
    state: Option<String>,
}

impl InputRequired {
    /// `None` if it is another result.
    fn parse(result: &str) -> Option<Self> {
        if !result.contains("input_required") {
            return None;
        }
        let value: Value = serde_json::from_str(result).ok()?;
        if value["resultType"] != "input_required" {
            return None;
        }
        let requests = value["inputRequests"].as_object().into_iter().flatten().map(|(key, request)| {
            let params = request.get("params").map(Value::to_string).unwrap_or_default();
            (key.clone(), request["method"].as_str().unwrap_or_default().to_owned(), params)
        });
        Some(Self { requests: requests.collect(), state: value["requestState"].as_str().map(str::to_owned) })
    }
}

/// The result that has a client without a session open the URLs of an error.
fn ask_for_urls(urls: &Value, state: Option<String>) -> String {
    let urls = urls["elicitations"].as_array().into_iter().flatten().enumerate();
    let method = ClientRequestKind::Elicitation.method();
    let requests = urls.map(|(n, params)| (format!("url-{n}"), json!({ "method": method, "params": params })));
    input_required(&requests.collect(), state)
}

/// Tools report their errors in results, so that models can correct their calls.
fn is_tool_error(result: &str) -> bool {
    let is_marked = result.contains("\"isError\"");
    is_marked && serde_json::from_str::<Value>(result).is_ok_and(|value| value["isError"] == true)
}
