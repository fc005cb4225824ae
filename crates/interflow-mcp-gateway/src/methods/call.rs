//! The answer to a call of a tool, a prompt or a resource: at once, or as a stream with what the server sends before it.

use std::sync::Arc;

use interflow_types::{BoxFuture, Response};
use tokio::sync::mpsc;

use super::call_context::{AnsweredRequest, CallContext, Delivery};
use super::server_call::ServerCall;
use crate::exchange::{McpExchange, PreparedRequest};
use crate::grants::link_answer::with_link;
use crate::policy::any_looks_like;
use crate::protocol::client_message::{ClientMessage, ClientMethod, ClientRequest};
use crate::protocol::envelope::input_required;
use crate::protocol::event_stream::{KEEP_ALIVE, StreamedReply, accepts_events};
use crate::protocol::jsonrpc::{CANCELLED, INVALID_PARAMS, RpcError, response, shown_arguments};
use crate::protocol::responses::{result_of_version, rpc_response};
use crate::session::request_state::{RequestState, StateBinding};
use crate::session::running_requests::RunningRequest;
use crate::session::waiting_calls::{CallStep, RunningCall};
use crate::upstream::event_sink::EventSink;
use crate::upstream::server::McpServer;

/// Bound on messages of a call that wait for a slow client.
const MAX_MESSAGES: usize = 64;

/// Answers a call of a tool, a prompt or a resource, after a person approved it if that is needed.
pub(super) async fn answer(
    mut answered: AnsweredRequest<'_>,
    prepared: PreparedRequest,
    request: ClientRequest,
) -> Response {
    let id = request.id.clone();
    let wants_progress = request.progress_token.is_some();
    let CallStart { running, context, binding } = match begin(&mut answered, prepared, request).await {
        Ok(start) => start,
        Err(e) => {
            answered.flow.tag("mcp-error");
            let outcome = &answered.flow.extension_mut::<McpExchange>().outcome;
            let result = with_link(answered.session, true, Err(e), outcome, None);
            return rpc_response(answered.session.is_stateless(), &id, result);
        }
    };
    let (has_events, is_stateless) = (accepts_events(answered.head), answered.session.is_stateless());
    let (mut reply, mut messages): (BoxFuture<'static, _>, _) = match is_stateless {
        true => {
            let (out, messages) = mpsc::channel(MAX_MESSAGES);
            (Box::pin(reply_without_session(running, has_events.then_some(out), context, binding)), messages)
        }
        false => (running.call, running.messages),
    };
    let mut first = None;
    if !has_events || !wants_progress || is_stateless {
        // Most calls send nothing before their response, which then needs no stream.
        tokio::select! {
            result = &mut reply => match messages.try_recv() {
                Ok(text) => (first, reply) = (Some(text), Box::pin(std::future::ready(result))),
                Err(_) => return rpc_response(is_stateless, &id, result),
            },
            Some(text) = messages.recv() => first = Some(text),
            // What is between takes a connection for dead on which nothing comes.
            () = tokio::time::sleep(KEEP_ALIVE), if has_events && is_stateless => {}
        }
    }
    answered.flow.extension_mut::<McpExchange>().is_stream = true;
    let call = Box::pin(async move { response(&id, &result_of_version(is_stateless, reply.await)) });
    StreamedReply { call, messages, first }.into_response()
}

struct CallStart {
    running: RunningCall,
    context: Arc<CallContext>,
    binding: Arc<StateBinding>,
}

/// Begins a call, or goes on with one that waited for the client.
async fn begin(
    answered: &mut AnsweredRequest<'_>,
    prepared: PreparedRequest,
    request: ClientRequest,
) -> Result<CallStart, RpcError> {
    let ClientRequest { id, method, progress_token, envelope, task } = request;
    let session = answered.session;
    let not_a_call = || RpcError::server("not a request that a server answers");
    let (server, name) = prepared.target.ok_or_else(not_a_call)??;
    let binding = prepared.binding.ok_or_else(not_a_call)?;
    let (original, original_envelope) = match prepared.original {
        Some(ClientMessage::Request(request)) => (Some(request.method), request.envelope),
        _ => (None, None),
    };
    let envelope = original_envelope.or(envelope);
    let cancellation = session.running.begin(&id);
    let in_list = matches!(method, ClientMethod::CallTool(..)) && any_looks_like(&server.config.approve, &name);
    let needs_person = in_list || prepared.asks.is_some();
    // A state stands for the approval once: sent again, it would begin the approved call again.
    let is_approved = needs_person && prepared.state != RequestState::default() && {
        let sealed = envelope.as_ref().and_then(|own| own.request_state.as_deref()).unwrap_or_default();
        answered.service.grants.use_once(sealed, session.key().unwrap_or_default(), prepared.state.expires)
    };
    if needs_person
        && !is_approved
        && let Err(e) = approve(answered, &cancellation, &server, &name, &method, prepared.asks).await
    {
        answered.service.count_call(&server.name, "refused");
        return Err(e);
    }
    let delivery = if session.is_stateless() { Delivery::Request } else { Delivery::Session };
    let key = prepared.key.as_deref();
    let context = Arc::new(CallContext::new(answered, server, key, prepared.policy, delivery));
    if let Some(name) = &prepared.state.waiting {
        let gone = || RpcError::new(INVALID_PARAMS, "the call no longer waits; make it again");
        let mut running = session.waiting.take(name).ok_or_else(gone)?;
        running.answer(&session.questions, envelope.as_ref().ok_or_else(not_a_call)?);
        answered.flow.extension_mut::<McpExchange>().outcome = Arc::clone(&running.outcome);
        return Ok(CallStart { running, context, binding });
    }
    let passed = envelope.map(|envelope| envelope.passed);
    let (state, bound) = (prepared.state.of_server, Arc::clone(&binding));
    let call =
        ServerCall { context: Arc::clone(&context), name, method, original, passed, state, binding: bound, task };
    let (out, messages) = mpsc::channel(MAX_MESSAGES);
    let outcome = Arc::clone(&context.outcome);
    if !accepts_events(answered.head) && !session.is_stateless() {
        let call = Box::pin(async move { unless_cancelled(&cancellation, call.run(None, None)).await });
        let running = RunningCall { call, messages, outcome, questions: Vec::new() };
        return Ok(CallStart { running, context, binding });
    }
    let (sink, events) = EventSink::new(progress_token.is_some());
    let dispatcher = Arc::clone(&context);
    let work = async move {
        let dispatched = dispatcher.dispatch(events, out.clone(), progress_token);
        let call = call.run(Some(sink), Some(out));
        tokio::pin!(dispatched, call);
        tokio::select! {
            result = &mut call => {
                // What the server sent before its response.
                dispatched.await;
                result
            }
            // The server sends nothing more, and its response is inspected.
            () = &mut dispatched => call.await,
        }
    };
    let call = Box::pin(async move { unless_cancelled(&cancellation, work).await });
    let running = RunningCall { call, messages, outcome, questions: Vec::new() };
    Ok(CallStart { running, context, binding })
}

async fn approve(
    answered: &mut AnsweredRequest<'_>,
    cancellation: &RunningRequest,
    server: &McpServer,
    name: &str,
    method: &ClientMethod,
    rule: Option<String>,
) -> Result<(), RpcError> {
    answered.flow.tag("held");
    let server = &server.name;
    let (what, values) = match method {
        ClientMethod::CallTool(_, arguments) => (format!("call of the tool {name}"), arguments.clone()),
        ClientMethod::GetPrompt(_, arguments) => (format!("use of the prompt {name}"), arguments.clone()),
        ClientMethod::ReadResource(uri) | ClientMethod::Subscribe(uri) => ("use of a resource".to_owned(), uri.clone()),
        _ => ("call".to_owned(), "{}".to_owned()),
    };
    let rule = rule.map_or_else(String::new, |rule| format!(", by the rule {rule}"));
    let reason = format!("{what} of the MCP server {server} with {}{rule}", shown_arguments(&values));
    let review = (answered.service.deps.review)(answered.flow, answered.head, reason);
    let refused = |why| RpcError::not_allowed(format!("the {what} of the MCP server {server} was not approved: {why}"));
    unless_cancelled(cancellation, async { review.await.map_err(refused) }).await
}

async fn unless_cancelled<T>(
    request: &RunningRequest,
    work: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    tokio::select! {
        result = work => result,
        () = request.cancelled.notified() => Err(RpcError::new(CANCELLED, "the client cancelled the request")),
    }
}

/// The result of a call, after what the server sends before it. A client without a session gets what the server asks as
/// the result, and the call waits for the answers.
async fn reply_without_session(
    mut running: RunningCall,
    out: Option<mpsc::Sender<String>>,
    context: Arc<CallContext>,
    binding: Arc<StateBinding>,
) -> Result<String, RpcError> {
    loop {
        match running.step().await {
            CallStep::Message(text) => {
                if let Some(out) = &out {
                    let _ = out.send(text).await;
                }
            }
            CallStep::Done(result) => {
                for text in running.rest() {
                    // A client that reads slowly misses some.
                    let _ = out.as_ref().map(|out| out.try_send(text));
                }
                return result;
            }
            CallStep::Asked => {
                let (requests, ttl) = (running.input_requests(), context.server.config.client_timeout.0);
                let waiting = context.session.waiting.add(running, ttl)?;
                let state = context.seal(RequestState::waiting(waiting), &binding)?;
                return Ok(input_required(&requests, Some(state)));
            }
        }
    }
}
