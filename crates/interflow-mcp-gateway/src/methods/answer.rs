//! The methods of the protocol, as this gateway answers them.

use std::sync::Arc;

use interflow_types::{Body, Direction, Flow, RequestHead, Response, ResponseHead, StatusCode};
use serde_json::{Value, json};

use super::call_context::AnsweredRequest;
use super::{call, capabilities, connect_account, listen, lists, log_messages, tasks, tool_search};
use crate::exchange::{ClientView, Endpoint, McpExchange, PreparedRequest, SessionRequest};
use crate::grants::link_answer::with_link;
use crate::protocol::client_message::{ClientMessage, ClientMethod, ClientRequest};
use crate::protocol::jsonrpc::{METHOD_NOT_FOUND, RpcError, response};
use crate::protocol::responses::{accepted, json_response, refusal, rpc_response};
use crate::protocol::versions::VERSIONS;
use crate::redaction::values::Redaction;
use crate::service::McpService;

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
            let result =
                if let Some(ClientMessage::Response(_, original)) = prepared.original { original } else { result };
            session.questions.answer(id, result);
            accepted()
        }
        ClientMessage::Cancel(id) => {
            session.running.cancel(&id);
            accepted()
        }
        ClientMessage::Request(ref request) => {
            let request = request.clone();
            let answered = AnsweredRequest { service, flow, head, session: &session };
            answer_request(answered, &endpoint, prepared, request).await
        }
    }
}

async fn answer_request(
    answered: AnsweredRequest<'_>,
    endpoint: &Endpoint,
    prepared: PreparedRequest,
    request: ClientRequest,
) -> Response {
    let session = answered.session;
    let (settings, key) = (&prepared.settings, prepared.key.as_deref());
    let view = ClientView { settings, session, only: endpoint.0.as_deref(), key };
    let outcome = Arc::clone(&answered.flow.extension_mut::<McpExchange>().outcome);
    let (id, is_call) = (request.id.clone(), matches!(request.method, ClientMethod::ConnectAccount(_)));
    let result = match request.method {
        ClientMethod::Initialize(version, ..) => {
            answered.service.begin_session(Arc::clone(session), &prepared.settings);
            let result = initialize_result(&version, &capabilities::declared(view).await);
            let mut response = json_response(StatusCode::OK, response(&id, &Ok(result)));
            response.head.headers.append_unchecked(b"Mcp-Session-Id", session.id.as_bytes());
            return response;
        }
        ClientMethod::Discover => Ok(capabilities::discovery(view).await),
        ClientMethod::Listen(filter) => return listen::open(answered, endpoint, prepared, id, filter).await,
        ClientMethod::Ping => Ok("{}".to_owned()),
        ClientMethod::List(kind) => lists::list(view, kind).await.map(|(list, failed)| {
            failed.iter().for_each(|name| answered.flow.tag(format!("mcp-unavailable:{name}")));
            list
        }),
        ClientMethod::ListTasks => {
            let listed = AnsweredRequest { service: answered.service, flow: &mut *answered.flow, ..answered };
            tasks::list(listed, view).await
        }
        ClientMethod::SearchTools(arguments) => tool_search::search(view, &arguments).await,
        ClientMethod::ConnectAccount(name) => connect_account::call(view, &name, &outcome).await,
        ClientMethod::SetLogLevel(level) => log_messages::set_level(view, level).await,
        ClientMethod::Unknown(method) => {
            Err(RpcError::new(METHOD_NOT_FOUND, format!("the gateway has no method `{method}`")))
        }
        ClientMethod::CallTool(..)
        | ClientMethod::GetPrompt(..)
        | ClientMethod::ReadResource(_)
        | ClientMethod::Subscribe(_)
        | ClientMethod::Unsubscribe(_)
        | ClientMethod::Complete(..)
        | ClientMethod::Task(..) => return call::answer(answered, prepared, request).await,
    };
    let result = match result {
        Err(e) if !e.has_own_link() => {
            answered.flow.tag("mcp-error");
            Err(redact_list_error(answered, view, e).await)
        }
        result => result,
    };
    rpc_response(session.is_stateless(), &id, with_link(session, is_call, result, &outcome, None))
}

/// The error of a list, which may be the text of the only server.
async fn redact_list_error(answered: AnsweredRequest<'_>, view: ClientView<'_>, error: RpcError) -> RpcError {
    let AnsweredRequest { service, flow, session, .. } = answered;
    let Some(server) = view.only.and_then(|name| view.settings.get(name)) else { return error };
    let policy = match service.flow_policy(flow, server.config.policy.as_deref()) {
        Ok(policy) => policy,
        Err(e) => return e,
    };
    let mut redaction = Redaction::of_results(&policy, server, &session.from_servers);
    let redacted = redaction.error(&error).await;
    service.count_findings(Direction::Response, &redaction.findings);
    redacted
}

fn initialize_result(version: &str, capabilities: &Value) -> String {
    let version = VERSIONS.iter().find(|v| **v == version).or(VERSIONS.last()).copied().unwrap_or_default();
    let server = json!({ "name": "interflow", "version": env!("CARGO_PKG_VERSION") });
    json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": server }).to_string()
}

/// Ends a session, and its sessions with servers.
///
/// # Errors
/// The refusal of a request that names none.
pub(crate) async fn end_session(
    service: &Arc<McpService>,
    flow: &Flow,
    head: &RequestHead,
    endpoint: &Endpoint,
) -> Result<Response, Box<Response>> {
    let settings = service.settings();
    let session = SessionRequest { service, settings: &settings, flow, endpoint }.find(head)?;
    service.sessions.remove(&session.id);
    session.end_at_servers(&settings).await;
    Ok(Response { head: ResponseHead::new(StatusCode::NO_CONTENT), body: Body::Empty })
}
