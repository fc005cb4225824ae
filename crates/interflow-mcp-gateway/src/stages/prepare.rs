//! The stage that parses and redacts a request to an endpoint before the recorder sees it.

use std::sync::Arc;

use interflow_limits::KeyContext;
use interflow_types::{
    Body, BodyFuture, CollectError, EarlyExit, Flow, MaybeFuture, Method, Phase, PhaseSet, PlanScope, RequestHead,
    Response, Result, Stage, StatusCode,
};
use serde_json::Value;

use super::request_redaction::RequestInspection;
use super::subscribed::{list_resources, subscribed};
use super::target::{find_target, locate, tag_target};
use crate::exchange::{ClientView, Endpoint, McpExchange, PreparedRequest, SessionRequest};
use crate::grants::connect_tool;
use crate::methods::tasks::TaskHandle;
use crate::protocol::client_message::{ClientMessage, ClientMethod, ClientRequest, SEARCH_TOOL};
use crate::protocol::header_values::RoutingFields;
use crate::protocol::jsonrpc::{NOT_ALLOWED, RpcError, response};
use crate::protocol::responses::{accepted, json_response, refusal, rpc_response};
use crate::service::McpService;
use crate::session::listed_names::ListedSchema;
use crate::session::request_state::{RequestState, StateBinding};

pub(crate) struct PrepareStage(pub Arc<McpService>);

impl Stage for PrepareStage {
    fn name(&self) -> &'static str {
        "mcp"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        let phases = PhaseSet::from_phase(Phase::RequestBody).with(Phase::Done);
        if self.0.may_serve(scope) { phases } else { PhaseSet::NONE }
    }

    /// Requests are recorded as they were parsed and redacted, never as they came.
    fn withholds_originals(&self, flow: &Flow) -> bool {
        flow.extension::<McpExchange>().is_some_and(|e| e.endpoint.is_some())
    }

    fn request_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        let endpoint = flow.extension::<McpExchange>().and_then(|e| e.endpoint.clone());
        let Some(endpoint) = endpoint else { return MaybeFuture::Ready(Ok(body)) };
        if head.method != Method::POST {
            return MaybeFuture::Ready(Ok(Body::Empty));
        }
        MaybeFuture::pending(async move { prepare(&self.0, flow, head, &endpoint, body).await })
    }

    fn finish(&self, flow: &mut Flow) {
        let Some(outcome) = flow.extension::<McpExchange>().map(|e| Arc::clone(&e.outcome)) else { return };
        let outcome = std::mem::take(&mut *outcome.lock());
        outcome.findings.keys().for_each(|kind| flow.tag(format!("answer:{kind}")));
        if outcome.is_error {
            flow.tag("mcp-error");
        }
    }
}

/// Parses and redacts a request. `Err` is the response to one that is invalid, or to a call over a limit.
async fn prepare(
    service: &Arc<McpService>,
    flow: &mut Flow,
    head: &mut RequestHead,
    endpoint: &Endpoint,
    body: Body,
) -> Result<Body, EarlyExit> {
    let answer = |response: Response| EarlyExit::Answer(Box::new(response));
    let settings = service.settings();
    if let Some(name) = endpoint.0.as_deref().filter(|name| settings.get(name).is_none()) {
        return Err(answer(refusal(StatusCode::NOT_FOUND, format!("there is no MCP server {name}"))));
    }
    let fields = RoutingFields::take(head);
    let text = read_body(head, body, settings.max_message).await.map_err(answer)?;
    let invalid = |(id, e): (Value, RpcError)| answer(json_response(StatusCode::BAD_REQUEST, response(&id, &Err(e))));
    let mut message = ClientMessage::parse(&text, &fields).map_err(invalid)?;
    let key = flow.extension::<KeyContext>().and_then(|context| context.key.clone());
    let id = match &message {
        ClientMessage::Request(request) => request.id.clone(),
        _ => Value::Null,
    };
    let is_stateless = matches!(&message, ClientMessage::Request(request) if request.envelope.is_some());
    let failed = |e: RpcError| answer(rpc_response(is_stateless, &id, Err(e)));
    let own = service.flow_policy(flow, None).map_err(&failed)?;
    let request = SessionRequest { service, settings: &settings, flow, endpoint };
    let session = match &message {
        ClientMessage::Notice => return Err(answer(accepted())),
        ClientMessage::Request(ClientRequest { envelope: Some(envelope), .. }) => {
            request.stateless_session(envelope, &own.context)
        }
        ClientMessage::Request(ClientRequest { method: ClientMethod::Initialize(_, _, capabilities), .. }) => {
            request.new_session((**capabilities).clone(), &own.context).map_err(&failed)?
        }
        _ => request.find(head).map_err(EarlyExit::Answer)?,
    };
    RequestInspection { service, session: &session, policy: &own }.redact_names(flow, &mut message).await;
    let view = ClientView { settings: &settings, session: &session, only: endpoint.0.as_deref(), key: key.as_deref() };
    let (mut target, mut is_metered) = (None, true);
    if let ClientMessage::Request(request) = &mut message {
        if let ClientMethod::CallTool(name, _) = &request.method
            && connect_tool::server(view, name).is_some()
        {
            flow.tag(format!("mcp-tool:{name}"));
            request.method = ClientMethod::ConnectAccount(name.clone());
        }
        let find = || find_target(view, &request.method);
        target = match &request.method {
            ClientMethod::Task(_, id) => {
                // It was counted when it began.
                is_metered = false;
                let handle = TaskHandle::open(service, &session, id).map_err(&failed)?;
                flow.tag(format!("mcp-tool:{}", handle.tool));
                Some(handle.target(view))
            }
            _ => find(),
        };
        // Another replica may have listed the resource for the client.
        let is_of_resource = matches!(&request.method, ClientMethod::ReadResource(_) | ClientMethod::Subscribe(_));
        if (is_stateless || session.is_resumed) && is_of_resource && matches!(&target, Some(Err(_))) {
            list_resources(view).await;
            target = find();
        }
    }
    let server = target.as_ref().and_then(|target| target.as_ref().ok()).map(|(server, _)| Arc::clone(server));
    let policy = server.as_ref().map_or(Ok(own), |server| service.policy(flow, server)).map_err(&failed)?;
    let inspection = RequestInspection { service, session: &session, policy: &policy };
    let mut listed = Arc::<ListedSchema>::default();
    if let (Some(Ok((server, name))), ClientMessage::Request(request)) = (&target, &mut message)
        && let Some((kind, _)) = request.method.listed_name()
    {
        match inspection.listed_schema(server, kind, name).await {
            Ok(schema) => listed = schema,
            Err(e) => {
                flow.tag(format!("mcp:{}", server.name));
                target = Some(Err(e));
            }
        }
    }
    let (mut state, mut binding) = (RequestState::default(), None);
    if let (Some(Ok((server, _))), ClientMessage::Request(request)) = (&target, &message) {
        if let (true, ClientMethod::CallTool(_, arguments)) = (is_stateless, &request.method) {
            fields.check_params(&listed.mirrored, arguments).map_err(&failed)?;
        }
        let bound = StateBinding::of_request(session.key().unwrap_or_default(), &server.name, &request.method);
        if let Some(sealed) = request.envelope.as_ref().and_then(|envelope| envelope.request_state.as_deref()) {
            state = service.sealer.open(sealed, &bound).map_err(&failed)?;
        }
        binding = Some(Arc::new(bound));
    }
    let (mut original, mut asks) = (None, None);
    match (&mut target, &mut message) {
        (Some(Ok((server, name))), ClientMessage::Request(request)) => {
            tag_target(flow, server, &request.method, name);
            let sent = request.clone();
            let checked = inspection.check_rules(flow, server, name, &request.method);
            // Before the arguments are scanned, so that a call over a limit costs nothing more. One that is refused counts
            // nothing.
            if is_metered && checked.is_ok() {
                (service.deps.admit)(flow).await?;
            }
            let method = &mut request.method;
            inspection.redact_values(flow, server, &listed.values, method).await.map_err(&failed)?;
            if let Some(envelope) = &mut request.envelope {
                let mode = server.argument_mode(&policy);
                inspection.redact_further(flow, mode, &mut envelope.passed).await.map_err(&failed)?;
            }
            let mut is_masked = false;
            let mut values = match method {
                ClientMethod::CallTool(_, arguments)
                | ClientMethod::GetPrompt(_, arguments)
                | ClientMethod::Complete(_, arguments) => vec![arguments],
                _ => Vec::new(),
            };
            values.extend(
                request.envelope.as_mut().map(|envelope| &mut envelope.passed).filter(|passed| *passed != "{}"),
            );
            let guard = policy.guard.as_ref().filter(|_| checked.is_ok());
            for value in values {
                let Some(guard) = guard else { break };
                let checked = guard.check_arguments(flow, head, value.clone()).await;
                let checked = checked.map_err(|why| failed(RpcError::not_allowed(why)))?;
                is_masked |= checked != *value;
                *value = checked;
            }
            let checked = match checked {
                // The server gets other values.
                Ok(rule) if is_masked => {
                    inspection.check_rules(flow, server, name, &request.method).map(|other| rule.or(other))
                }
                checked => checked,
            };
            // What a guard masked reaches no server.
            let is_restored = server.arguments_are_restored(&policy) && !is_masked && sent != *request;
            original = is_restored.then_some(ClientMessage::Request(sent));
            match checked {
                Ok(rule) => asks = rule,
                Err(e) => target = Some(Err(e)),
            }
        }
        (Some(Err(e)), ClientMessage::Request(request)) => {
            if let (NOT_ALLOWED, Some(Ok((server, _)))) = (e.code, locate(view, &request.method)) {
                service.count_call(&server.name, "refused");
            }
            inspection.redact_refusal(request, e).await;
        }
        _ => {}
    }
    if let ClientMessage::Response(id, result) = message {
        message = match session.questions.server(id) {
            Some(server) => {
                let sent = result.clone();
                let own = service.policy(flow, &server).map_err(&failed)?;
                let inspection = RequestInspection { policy: &own, ..inspection };
                let (answer, is_masked) = inspection.redact_answer(flow, head, &server, result).await;
                // An error says that it cannot be inspected, which the client's own does not.
                let is_restored = server.arguments_are_restored(&policy)
                    && !is_masked
                    && sent != answer
                    && sent.is_ok() == answer.is_ok();
                original = is_restored.then_some(ClientMessage::Response(id, sent));
                ClientMessage::Response(id, answer)
            }
            None => ClientMessage::Ignored,
        };
    }
    let mut subscriptions = Vec::new();
    if let ClientMessage::Request(request) = &mut message
        && target.is_none()
    {
        // What goes to no server is of no use, and was not inspected.
        if let Some(envelope) = &mut request.envelope {
            envelope.passed = "{}".to_owned();
        }
        if matches!(request.method, ClientMethod::SearchTools(_) | ClientMethod::ConnectAccount(_)) {
            (service.deps.admit)(flow).await?;
        }
        if let ClientMethod::SearchTools(arguments) = &mut request.method {
            flow.tag(format!("mcp-tool:{SEARCH_TOOL}"));
            inspection.redact_further(flow, policy.mode, arguments).await.map_err(&failed)?;
        }
        if let ClientMethod::Listen(filter) = &mut request.method {
            subscriptions = subscribed(service, flow, view, filter).await.map_err(&failed)?;
        }
    }
    let recorded = message.to_json();
    // It described the body that came.
    head.headers.remove("content-length");
    let exchange = flow.extension_mut::<McpExchange>();
    exchange.restores = policy.restore;
    exchange.session = Some(session);
    exchange.prepared =
        Some(PreparedRequest { settings, message, original, target, asks, policy, key, state, binding, subscriptions });
    Ok(Body::from(bytes::Bytes::from(recorded)))
}

async fn read_body(head: &RequestHead, body: Body, max: usize) -> Result<String, Response> {
    let media_type = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    if media_type.split(';').next().unwrap_or_default().trim() != "application/json" {
        return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a message has the media type application/json"));
    }
    if head.headers.contains("content-encoding") {
        return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "messages with a content coding are not supported"));
    }
    let bytes = match body.collect(max).await {
        Ok((bytes, _)) => bytes,
        Err(CollectError::TooLarge(_)) => {
            let message = format!("the message is larger than {max} bytes (mcp.max_message)");
            return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Err(CollectError::Broken(e)) => return Err(refusal(StatusCode::BAD_REQUEST, e.to_string())),
    };
    String::from_utf8(bytes.into()).map_err(|_| refusal(StatusCode::BAD_REQUEST, "the message is not UTF-8"))
}
