//! The Model Context Protocol over HTTP: one message, or one batch, per POST.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use interflow_mcp_gateway::RoutingFields;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::api::blocking::run_query;
use crate::api::input::invalid_json;
use crate::api::operations::context::OperationContext;
use crate::api::operations::handler::read_json;
use crate::error::Result;
use crate::identity::Rights;
use crate::identity::caller::Caller;
use crate::mcp::{self, RemoteToolCall, WAIT_POLL, WaitCall, WriteAccess};
use crate::state::SharedState;

/// How the audit trail names it.
const OPERATION: &str = "POST /mcp";

/// `POST /mcp`: notifications have no answer, so a message or batch of only those is accepted with status 202.
pub(crate) async fn post(State(state): State<SharedState>, headers: HeaderMap, request: Request) -> Result<Response> {
    let caller = Caller::of(request.extensions())?;
    let body = read_json(&headers, request.into_body()).await?;
    let message: Value = serde_json::from_slice(&body).map_err(|e| invalid_json(&e))?;
    // After initialization, clients send the negotiated version with every message; without sessions, more than that.
    let fields = RoutingFields::of(headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())));
    let is_stateless = match mcp::is_stateless(&message, Some(&fields)) {
        Ok(is_stateless) => is_stateless,
        Err(answer) => return Ok((StatusCode::BAD_REQUEST, Json(answer)).into_response()),
    };
    // The tools show contents, and search in them.
    if let Err(refusal) = caller.require(Rights::VIEW.and(Rights::READ_BODIES)) {
        caller.record(OPERATION, "/mcp", StatusCode::FORBIDDEN.as_u16());
        return Err(refusal);
    }
    let access =
        if state.mcp_writes && caller.has(Rights::OPERATE) { WriteAccess::Writes } else { WriteAccess::ReadOnly };
    let (messages, many) = match mcp::messages(message) {
        Ok(messages) => messages,
        Err(answer) => return Ok(Json(answer).into_response()),
    };
    let sent = is_stateless.then(|| messages.first().cloned()).flatten();
    let mut answers = Vec::new();
    // One after the other: a batch may contain calls that depend on each other.
    for message in messages {
        let line = recorded_target(&message).map(|target| caller.begin_record(OPERATION, &target));
        let answer = answer_message(&state, &caller, access, is_stateless, message).await;
        if let Some(line) = line {
            line.finish(answer.as_ref().map_or(StatusCode::SERVICE_UNAVAILABLE, |a| status_of(a.as_ref())).as_u16());
        }
        answers.extend(answer?);
    }
    if let (Some(message), Some(answer)) = (sent, answers.pop_if(|_| is_stateless)) {
        let (status, answer) = mcp::finish_stateless(&message, answer);
        return Ok((StatusCode::from_u16(status).unwrap_or_default(), Json(answer)).into_response());
    }
    Ok(match (answers.len(), many) {
        (0, _) => StatusCode::ACCEPTED.into_response(),
        (_, true) => Json(Value::from(answers)).into_response(),
        (_, false) => Json(answers.swap_remove(0)).into_response(),
    })
}

async fn answer_message(
    state: &SharedState,
    caller: &Caller,
    access: WriteAccess,
    is_stateless: bool,
    message: Value,
) -> Result<Option<Value>> {
    if let Some(call) = mcp::wait_call(&message) {
        return Ok(Some(match call {
            Ok(call) => wait_for_flow(state, call).await?,
            Err(refused) => refused,
        }));
    }
    match mcp::remote_tool_call(&message, access) {
        // Calls that need the running instance; everything else is answered from the store.
        Some(Ok(call)) => Ok(Some(call.answer(run_tool_call(state, caller, &call).await))),
        Some(Err(refused)) => Ok(Some(refused)),
        None => run_query(state, move |store, _| Ok(mcp::answer(store, &message, access, is_stateless))).await,
    }
}

/// How the audit trail names a call that shows or changes something; `None` for other messages.
fn recorded_target(message: &Value) -> Option<String> {
    let method = message["method"].as_str().unwrap_or_default();
    if !matches!(method, "tools/call" | "resources/read") {
        return None;
    }
    let params = &message["params"];
    let named = params["name"].as_str().or_else(|| params["uri"].as_str()).unwrap_or_default();
    let arguments = &params["arguments"];
    let of = arguments["id"].as_str().or_else(|| arguments["query"].as_str()).unwrap_or_default();
    Some(format!("{method} {named} {of}"))
}

/// The status for the audit trail: an error of the protocol or of the tool is not a success, although HTTP says so.
fn status_of(answer: Option<&Value>) -> StatusCode {
    let failed = answer.is_some_and(|a| a.get("error").is_some() || a["result"]["isError"] == true);
    if failed { StatusCode::BAD_REQUEST } else { StatusCode::OK }
}

/// Looks at the store now and then: a call that waits holds none of the places for queries meanwhile.
async fn wait_for_flow(state: &SharedState, call: WaitCall) -> Result<Value> {
    let deadline = Instant::now() + call.timeout;
    let call = Arc::new(call);
    loop {
        let waiting = Arc::clone(&call);
        if let Some(answer) = run_query(state, move |store, _| Ok(waiting.poll(store))).await? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            return Ok(call.timed_out());
        }
        sleep(WAIT_POLL).await;
    }
}

/// Calls the same handlers as the REST API, so that both have the same checks and limits. A tool reports its errors as text
/// to the model.
async fn run_tool_call(state: &SharedState, caller: &Caller, call: &RemoteToolCall) -> Result<Value, String> {
    call.call().run(&OperationContext::Instance(Arc::clone(state)), caller).await.map_err(|e| e.into_details().message)
}
