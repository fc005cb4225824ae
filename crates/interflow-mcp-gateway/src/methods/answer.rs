//! The methods of the protocol, as this gateway answers them.

use std::sync::Arc;

use interflow_types::{Body, Flow, RequestHead, Response, ResponseHead, StatusCode};
use serde_json::{Value, json};

use super::{call, capabilities, listen, lists, log_messages};
use crate::exchange::{Endpoint, McpExchange, PreparedRequest, find_session};
use crate::protocol::client_message::{ClientMessage, ClientMethod, ClientRequest};
use crate::protocol::jsonrpc::{METHOD_NOT_FOUND, RpcError, response};
use crate::protocol::responses::{accepted, json_response, refusal, rpc_response};
use crate::protocol::versions::VERSIONS;
use crate::service::McpService;
use crate::session::client_session::McpSession;

/// Answers a message that the stage prepared.
pub(crate) async fn answer(service: &Arc<McpService>, flow: &mut Flow, head: &RequestHead) -> Response {
    let exchange = flow.extension_mut::<McpExchange>();
    let (endpoint, session) = (exchange.endpoint.clone().unwrap_or_default(), exchange.session.clone());
    let (Some(prepared), Some(session)) = (exchange.prepared.take(), session) else {
        // Nothing may pass without the stage: it redacts.
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "the request was not inspected");
    };
    match prepared.message {
        ClientMessage::Notice | ClientMessage::Ignored => accepted(),
        ClientMessage::Response(id, result) => {
            let result = match prepared.original {
                Some(ClientMessage::Response(_, original)) => original,
                _ => result,
            };
            session.questions.answer(&id.into(), result);
            accepted()
        }
        ClientMessage::Cancel(id) => {
            session.running.cancel(&id);
            accepted()
        }
        ClientMessage::Request(ref request) => {
            let request = request.clone();
            answer_request(service, flow, head, &endpoint, &session, prepared, request).await
        }
    }
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
        ClientMethod::Discover => {
            let (only, key) = (endpoint.0.as_deref(), prepared.key.as_deref());
            Ok(capabilities::discovery(&prepared.settings, session, only, key).await)
        }
        ClientMethod::Listen(filter) => {
            return listen::open(service, flow, head, endpoint, session, prepared, id, filter).await;
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
        | ClientMethod::Complete(..)
        | ClientMethod::Task(..) => {
            return call::answer(service, flow, head, session, prepared, request).await;
        }
    };
    if result.is_err() {
        flow.tag("mcp-error");
    }
    rpc_response(session.is_stateless(), &id, result)
}

fn initialize_result(version: &str, capabilities: &Value) -> String {
    let version = VERSIONS.iter().find(|v| **v == version).or(VERSIONS.last()).copied().unwrap_or_default();
    let server = json!({ "name": "interflow", "version": env!("CARGO_PKG_VERSION") });
    json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": server }).to_string()
}

/// Ends a session, and its sessions with servers.
pub(crate) async fn end_session(
    service: &Arc<McpService>,
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
    session.end_at_servers(&settings).await;
    Response { head: ResponseHead::new(StatusCode::NO_CONTENT), body: Body::Empty }
}
