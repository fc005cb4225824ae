//! The answer to a call of a tool, a prompt or a resource: at once, or as a stream with what the server sends before it.

use std::sync::Arc;

use interflow_types::{Flow, RequestHead, Response, StatusCode};
use tokio::sync::mpsc;

use super::call_context::{CallContext, ReviewedRequest};
use super::server_call::ServerCall;
use super::server_events::ProgressTranslator;
use crate::access::{may_log, needs_approval};
use crate::exchange::{McpExchange, PreparedRequest};
use crate::protocol::client_message::{ClientMessage, ClientMethod, ClientRequest};
use crate::protocol::event_stream::StreamedReply;
use crate::protocol::jsonrpc::{CANCELLED, RpcError, response, shown_arguments};
use crate::protocol::responses::json_response;
use crate::service::McpService;
use crate::session::client_session::McpSession;
use crate::upstream::event_sink::EventSink;

/// Bound on messages of a call that wait for a slow client.
const MAX_MESSAGES: usize = 64;

/// Answers a call of a tool, a prompt or a resource, after a person approved it if that is needed.
pub(super) async fn answer(
    service: &Arc<McpService>,
    flow: &mut Flow,
    head: &RequestHead,
    session: &Arc<McpSession>,
    prepared: PreparedRequest,
    request: ClientRequest,
) -> Response {
    let ClientRequest { id, method, progress_token } = request;
    let refused = |flow: &mut Flow, e: RpcError| {
        flow.tag("mcp-error");
        json_response(StatusCode::OK, response(&id, &Err(e)))
    };
    let (server, name) = match prepared.target {
        Some(Ok(target)) => target,
        Some(Err(e)) => return refused(flow, e),
        None => return refused(flow, RpcError::server("not a request that a server answers")),
    };
    let running = session.running.begin(&id);
    if let ClientMethod::CallTool(_, arguments) = &method
        && needs_approval(&server, &name)
    {
        flow.tag("held");
        let review = (service.deps.review)(flow, head, approval_reason(&server.name, &name, arguments));
        let decided = tokio::select! {
            decided = review => decided.map_err(|why| {
                RpcError::not_allowed(format!("the call of {name} of the MCP server {} was not approved: {why}", server.name))
            }),
            () = running.cancelled.notified() => Err(cancelled()),
        };
        if let Err(e) = decided {
            service.count_call(&server.name, "refused");
            return refused(flow, e);
        }
    }
    let context = Arc::new(CallContext {
        service: Arc::clone(service),
        session: Arc::clone(session),
        may_log: may_log(&server, prepared.key.as_deref()),
        server,
        policy: prepared.policy,
        guard: prepared.guard,
        outcome: Arc::clone(&flow.extension_mut::<McpExchange>().outcome),
        review: ReviewedRequest::new(flow, head),
    });
    let original = match prepared.original {
        Some(ClientMessage::Request(request)) => Some(request.method),
        _ => None,
    };
    let call = ServerCall { context: Arc::clone(&context), name, method, original };
    if !accepts_events(head) {
        let result = tokio::select! {
            result = call.run(None) => result,
            () = running.cancelled.notified() => Err(cancelled()),
        };
        return json_response(StatusCode::OK, response(&id, &result));
    }
    let wants_progress = progress_token.is_some();
    let translate = progress_token.map(|token| Box::new(call.progress_translator(token)) as ProgressTranslator);
    let (sink, events) = EventSink::new(wants_progress);
    let (out, mut messages) = mpsc::channel(MAX_MESSAGES);
    let mut reply = Box::pin(async move {
        let dispatched = context.dispatch(events, out, translate);
        let call = call.run(Some(sink));
        tokio::pin!(dispatched, call);
        let mut is_dispatched = false;
        let result = loop {
            tokio::select! {
                result = &mut call => break result,
                () = running.cancelled.notified() => {
                    is_dispatched = true;
                    break Err(cancelled());
                }
                // The server sends nothing more, and its response is inspected.
                () = &mut dispatched, if !is_dispatched => is_dispatched = true,
            }
        };
        // What the server sent before its response.
        if !is_dispatched {
            dispatched.await;
        }
        response(&id, &result)
    });
    let mut first = None;
    if !wants_progress {
        // Most calls send nothing before their response, which then needs no stream.
        tokio::select! {
            text = &mut reply => return json_response(StatusCode::OK, text),
            Some(text) = messages.recv() => first = Some(text),
        }
    }
    flow.extension_mut::<McpExchange>().is_stream = true;
    StreamedReply { call: reply, messages, first }.into_response()
}

fn cancelled() -> RpcError {
    RpcError::new(CANCELLED, "the client cancelled the request")
}

fn accepts_events(head: &RequestHead) -> bool {
    head.headers.list_items("accept").any(|item| item.starts_with(b"text/event-stream"))
}

/// What a person is shown, with redacted arguments.
fn approval_reason(server: &str, tool: &str, arguments: &str) -> String {
    format!("call of the tool {tool} of the MCP server {server} with {}", shown_arguments(arguments))
}
