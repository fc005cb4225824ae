//! The methods of the protocol, as this gateway answers them.

use std::sync::Arc;

use interflow_types::{Body, Flow, RequestHead, Response, ResponseHead, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::access;
use crate::capabilities;
use crate::client_message::{ClientMessage, ClientMethod, ClientRequest};
use crate::client_requests::{EventContext, ProgressTranslator, ReviewedRequest};
use crate::endpoint::Endpoint;
use crate::jsonrpc::{CANCELLED, METHOD_NOT_FOUND, RpcError, response, shown_arguments};
use crate::lists;
use crate::log_messages::{self, may_log};
use crate::responses::{json_response, refusal};
use crate::service::McpService;
use crate::sessions::McpSession;
use crate::settings::{McpSettings, ServerTransport};
use crate::stages::{McpExchange, PreparedRequest, find_session};
use crate::streamed_reply::StreamedReply;
use crate::tool_call::ServerCall;
use crate::upstream::{EventSink, VERSIONS};

/// Bound on messages of a call that wait for a slow client.
const MAX_MESSAGES: usize = 64;

/// Answers a message that the stage prepared.
pub(crate) async fn answer(service: &Arc<McpService>, flow: &mut Flow, head: &RequestHead) -> Response {
    let exchange = flow.extension_mut::<McpExchange>();
    let (endpoint, session) = (exchange.endpoint.clone().unwrap_or_default(), exchange.session.clone());
    let (Some(prepared), Some(session)) = (exchange.prepared.take(), session) else {
        // Nothing may pass without the stage: it redacts.
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "the request was not inspected");
    };
    match prepared.message {
        ClientMessage::Ignored => accepted(),
        ClientMessage::Response(id, result) => {
            let result = match prepared.original {
                Some(ClientMessage::Response(_, original)) => original,
                _ => result,
            };
            session.answer(&id.into(), result);
            accepted()
        }
        ClientMessage::Cancel(id) => {
            session.cancel_request(&id);
            accepted()
        }
        ClientMessage::Request(ref request) => {
            let request = request.clone();
            answer_request(service, flow, head, &endpoint, &session, prepared, request).await
        }
    }
}

fn accepted() -> Response {
    Response { head: ResponseHead::new(StatusCode::ACCEPTED), body: Body::Empty }
}

async fn answer_request(
    service: &Arc<McpService>,
    flow: &mut Flow,
    head: &RequestHead,
    endpoint: &Endpoint,
    session: &Arc<McpSession>,
    prepared: PreparedRequest,
    request: ClientRequest,
) -> Response {
    let id = request.id.clone();
    let result = match request.method {
        ClientMethod::Initialize(version, ..) => {
            service.begin_session(Arc::clone(session), &prepared.settings);
            let (only, key) = (endpoint.0.as_deref(), prepared.key.as_deref());
            let capabilities = capabilities::declared(&prepared.settings, session, only, key).await;
            let result = initialize_result(&version, &capabilities);
            let mut response = json_response(StatusCode::OK, response(&id, &Ok(result)));
            response.head.headers.append_unchecked(b"Mcp-Session-Id", session.id.as_bytes());
            return response;
        }
        ClientMethod::Ping => Ok("{}".to_owned()),
        ClientMethod::List(kind) => {
            let only = endpoint.0.as_deref();
            let listed = lists::list(&prepared.settings, session, only, prepared.key.as_deref(), kind).await;
            listed.map(|list| {
                list.failed.iter().for_each(|name| flow.tag(format!("mcp-unavailable:{name}")));
                list.result
            })
        }
        ClientMethod::SetLogLevel(level) => {
            let (only, key) = (endpoint.0.as_deref(), prepared.key.as_deref());
            log_messages::set_level(&prepared.settings, session, only, key, level).await
        }
        ClientMethod::Unknown(method) => {
            Err(RpcError::new(METHOD_NOT_FOUND, format!("the gateway has no method `{method}`")))
        }
        ClientMethod::CallTool(..)
        | ClientMethod::GetPrompt(..)
        | ClientMethod::ReadResource(_)
        | ClientMethod::Subscribe(_)
        | ClientMethod::Unsubscribe(_)
        | ClientMethod::Complete(..) => {
            return call(service, flow, head, session, prepared, request).await;
        }
    };
    if result.is_err() {
        flow.tag("mcp-error");
    }
    json_response(StatusCode::OK, response(&id, &result))
}

/// Answers a call of a tool, a prompt or a resource, after a person approved it if that is needed.
async fn call(
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
        None => return refused(flow, RpcError::server("this is no call")),
    };
    let in_progress = session.begin_request(&id);
    if let ClientMethod::CallTool(_, arguments) = &method
        && access::needs_approval(&server, &name)
    {
        flow.tag("held");
        let review = (service.deps.review)(flow, head, approval_reason(&server.name, &name, arguments));
        let decided = tokio::select! {
            decided = review => decided.map_err(|why| {
                RpcError::not_allowed(format!("the call of {name} of the MCP server {} was not approved: {why}", server.name))
            }),
            () = in_progress.cancelled.notified() => Err(cancelled()),
        };
        if let Err(e) = decided {
            service.count_call(&server.name, "refused");
            return refused(flow, e);
        }
    }
    let outcome = Arc::clone(&flow.extension_mut::<McpExchange>().outcome);
    let (service, session) = (Arc::clone(service), Arc::clone(session));
    let review = ReviewedRequest::new(flow, head);
    let context = EventContext {
        service: Arc::clone(&service),
        session: Arc::clone(&session),
        server: Arc::clone(&server),
        policy: prepared.policy.clone(),
        guard: prepared.guard.clone(),
        outcome: Arc::clone(&outcome),
        review: Arc::clone(&review),
        may_log: may_log(&server, prepared.key.as_deref()),
    };
    let call = ServerCall {
        service,
        session,
        server,
        name,
        original: match prepared.original {
            Some(ClientMessage::Request(request)) => Some(request.method),
            _ => None,
        },
        method,
        policy: prepared.policy,
        guard: prepared.guard,
        outcome,
        review,
    };
    if !accepts_events(head) {
        let result = tokio::select! {
            result = call.run(None) => result,
            () = in_progress.cancelled.notified() => Err(cancelled()),
        };
        return json_response(StatusCode::OK, response(&id, &result));
    }
    let wants_progress = progress_token.is_some();
    let translate = progress_token.map(|token| Box::new(call.progress_translator(token)) as ProgressTranslator);
    let (sink, events) = EventSink::new(wants_progress);
    let (out, mut messages) = mpsc::channel(MAX_MESSAGES);
    let mut running = Box::pin(async move {
        let dispatched = context.dispatch(events, out, translate);
        let call = call.run(Some(sink));
        tokio::pin!(dispatched, call);
        let mut is_dispatched = false;
        let result = loop {
            tokio::select! {
                result = &mut call => break result,
                () = in_progress.cancelled.notified() => {
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
            text = &mut running => return json_response(StatusCode::OK, text),
            Some(text) = messages.recv() => first = Some(text),
        }
    }
    flow.extension_mut::<McpExchange>().is_stream = true;
    StreamedReply { call: running, messages, first }.into_response()
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

fn initialize_result(version: &str, capabilities: &Value) -> String {
    let version = VERSIONS.iter().find(|v| **v == version).or(VERSIONS.last()).copied().unwrap_or_default();
    let server = json!({ "name": "interflow", "version": env!("CARGO_PKG_VERSION") });
    json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": server }).to_string()
}

/// Ends a session, and its sessions with servers.
pub(crate) async fn end_session(
    service: &McpService,
    flow: &Flow,
    head: &RequestHead,
    endpoint: &Endpoint,
) -> Response {
    let settings = service.settings();
    let session = match find_session(service, &settings, flow, head, endpoint) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    service.sessions.remove(&session.id);
    end_at_servers(&settings, &session).await;
    Response { head: ResponseHead::new(StatusCode::NO_CONTENT), body: Body::Empty }
}

/// Ends a session's stream, and its sessions with servers over HTTP.
pub(crate) async fn end_at_servers(settings: &McpSettings, session: &McpSession) {
    session.standing.close();
    let ends = session.take_http().into_iter().filter_map(|(name, http)| {
        let server = Arc::clone(settings.get(&name)?);
        Some(async move {
            if let ServerTransport::Http(target) = &server.transport {
                target.end(&http).await;
            }
        })
    });
    futures_util::future::join_all(ends).await;
}
