//! The stages of requests to the endpoints. The first parses and redacts a request before the recorder sees it; the
//! second restores what the client sent in its response, after the recorder took its copy.

use std::sync::Arc;

use interflow_limits::{KeyContext, VirtualKey};
use interflow_redact::{RedactMode, ValuePolicy};
use interflow_types::{
    Body, CollectError, Direction, EarlyExit, EntryKind, Flow, MaybeFuture, Method, Phase, PhaseSet, PlanScope,
    RequestHead, Response, ResponseHead, Result, Stage, StatusCode,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::access::{self, Offer};
use crate::client_message::{ClientMessage, ClientMethod, ClientRequest, CompletionRef, ListKind};
use crate::endpoint::Endpoint;
use crate::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, RpcError, response};
use crate::listed_names::SchemaValues;
use crate::lists;
use crate::redaction::{Findings, redact_arguments, redact_json, redact_text};
use crate::responses::{json_response, refusal};
use crate::restore;
use crate::service::{CallGuard, McpService};
use crate::sessions::McpSession;
use crate::settings::{McpServer, McpSettings};
use crate::upstream::VERSIONS;

const SESSION_HEADER: &str = "mcp-session-id";
pub(crate) const VERSION_HEADER: &str = "mcp-protocol-version";

/// The state of a request to an endpoint, kept with its flow.
#[derive(Default)]
pub(crate) struct McpExchange {
    /// Set before any stage; only flows to the endpoints have it.
    pub endpoint: Option<Endpoint>,
    pub prepared: Option<PreparedRequest>,
    pub session: Option<Arc<McpSession>>,
    /// Whom the access token of the request is of.
    pub holder: Option<Arc<str>>,
    restores: bool,
    /// The response is a stream: what has to be restored in it may be known only later.
    pub is_stream: bool,
    pub outcome: Arc<Mutex<CallOutcome>>,
}

impl McpExchange {
    /// The response is the stream of a session.
    pub fn begin_stream(&mut self, session: &Arc<McpSession>, restores: bool) {
        self.session = Some(Arc::clone(session));
        (self.restores, self.is_stream) = (restores, true);
    }
}

impl CallOutcome {
    pub fn add(&mut self, found: Findings) {
        for (kind, count) in found {
            *self.found.entry(kind).or_default() += count;
        }
    }
}

/// What became of a call, possibly after its response began.
#[derive(Default)]
pub(crate) struct CallOutcome {
    /// Findings in the result.
    pub found: Findings,
    pub is_error: bool,
}

/// A request that was parsed and redacted.
pub(crate) struct PreparedRequest {
    pub settings: Arc<McpSettings>,
    /// As it is recorded.
    pub message: ClientMessage,
    /// As the client sent it, if the server gets more than the recording.
    pub original: Option<ClientMessage>,
    /// The server of a call, and the name of the tool or prompt there; or why the call is refused.
    pub target: Option<Result<(Arc<McpServer>, String), RpcError>>,
    pub policy: ValuePolicy,
    pub key: Option<Arc<VirtualKey>>,
    pub guard: Option<Arc<dyn CallGuard>>,
}

pub(crate) struct PrepareStage(pub Arc<McpService>);

impl Stage for PrepareStage {
    fn name(&self) -> &'static str {
        "mcp"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        if scope.transport == EntryKind::Gateway && self.0.has_servers() {
            PhaseSet::from_phase(Phase::RequestBody).with(Phase::Done)
        } else {
            PhaseSet::NONE
        }
    }

    /// Requests are recorded as they were parsed and redacted, never as they came.
    fn withholds_originals(&self, flow: &Flow) -> bool {
        flow.extension::<McpExchange>().is_some_and(|e| e.endpoint.is_some())
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
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
        outcome.found.keys().for_each(|kind| flow.tag(format!("answer:{kind}")));
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
    let text = read_body(head, body, settings.max_message).await.map_err(answer)?;
    let invalid = |(id, e): (Value, RpcError)| answer(json_response(StatusCode::BAD_REQUEST, response(&id, &Err(e))));
    let mut message = ClientMessage::parse(&text).map_err(invalid)?;
    check_version(head).map_err(EarlyExit::Answer)?;
    let key = flow.extension::<KeyContext>().and_then(|context| context.key.clone());
    let id = match &message {
        ClientMessage::Request(request) => request.id.clone(),
        _ => Value::Null,
    };
    let failed = |e: RpcError| answer(json_response(StatusCode::OK, response(&id, &Err(e))));
    let no_policy = |why: String| failed(RpcError::new(INTERNAL_ERROR, why));
    let session = match &message {
        ClientMessage::Request(ClientRequest { method: ClientMethod::Initialize(_, _, capabilities), .. }) => {
            let policy = (service.deps.policy)(flow, None).map_err(no_policy)?;
            let session =
                McpSession::new(session_holder(flow), endpoint.0.clone(), &policy.context, capabilities.clone());
            Arc::new(session.map_err(|e| failed(RpcError::new(INTERNAL_ERROR, e.to_string())))?)
        }
        _ => find_session(service, &settings, flow, head, endpoint).map_err(EarlyExit::Answer)?,
    };
    let mut target = None;
    if let ClientMessage::Request(request) = &message {
        target = find_target(&settings, &session, endpoint, key.as_deref(), &request.method);
    }
    let server = target.as_ref().and_then(|target| target.as_ref().ok()).map(|(server, _)| Arc::clone(server));
    if server.is_some() {
        // Before the arguments are scanned, so that a call over a limit costs nothing more.
        (service.deps.admit)(flow).await?;
    }
    let own_policy = server.as_ref().and_then(|server| server.config.policy.as_deref());
    let policy = (service.deps.policy)(flow, own_policy).map_err(no_policy)?;
    let mut listed = Arc::default();
    if let (Some(Ok((server, name))), ClientMessage::Request(request)) = (&target, &mut message)
        && let Some((kind, _)) = request.method.listed_name()
    {
        match schema_values(service, &session, server, &policy, kind, name).await {
            Ok(values) => listed = values,
            Err(e) => {
                flow.tag(format!("mcp:{}", server.name));
                target = Some(Err(e));
            }
        }
    }
    let mut original = None;
    let mut guard = None;
    match (&mut target, &mut message) {
        (Some(Ok((server, name))), ClientMessage::Request(request)) => {
            tag_target(flow, server, &request.method, name);
            let sent = request.clone();
            let method = &mut request.method;
            redact_values(service, flow, server, &policy, &session, &listed, method).await.map_err(&failed)?;
            guard = (service.deps.guard)(flow, &server.name);
            let mut is_masked = false;
            if let (
                Some(guard),
                ClientMethod::CallTool(_, arguments)
                | ClientMethod::GetPrompt(_, arguments)
                | ClientMethod::Complete(_, arguments),
            ) = (&guard, method)
            {
                let checked = guard.check_arguments(flow, head, arguments.clone()).await;
                let checked = checked.map_err(|why| failed(RpcError::not_allowed(why)))?;
                is_masked = checked != *arguments;
                *arguments = checked;
            }
            // What a guard masked reaches no server.
            let is_restored = server.arguments_are_restored(&policy) && !is_masked && sent != *request;
            original = is_restored.then_some(ClientMessage::Request(sent));
        }
        (Some(Err(e)), ClientMessage::Request(request)) => redact_refusal(&policy, &session, request, e).await,
        _ => {}
    }
    if let ClientMessage::Response(id, result) = message {
        message = match session.asking_server(&id.into()) {
            Some(server) => {
                let sent = result.clone();
                let (answer, is_masked) =
                    redact_answer(service, flow, head, &server, &session, result).await.map_err(no_policy)?;
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
    let recorded = message.to_json();
    // It described the body that came.
    head.headers.remove("content-length");
    let exchange = flow.extension_mut::<McpExchange>();
    exchange.restores = policy.restore;
    exchange.session = Some(session);
    exchange.prepared = Some(PreparedRequest { settings, message, original, target, policy, key, guard });
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

/// Clients before 2025-06-18 do not send the header.
fn check_version(head: &RequestHead) -> Result<(), Box<Response>> {
    match head.headers.get_str(VERSION_HEADER).filter(|version| !VERSIONS.contains(version)) {
        None => Ok(()),
        Some(_) => {
            let message = format!("MCP-Protocol-Version: supported are {}", VERSIONS.join(", "));
            Err(refusal(StatusCode::BAD_REQUEST, message).into())
        }
    }
}

/// To whom a session of this request belongs: the holder of its virtual key or of its access token.
fn session_holder(flow: &Flow) -> Option<Arc<str>> {
    let key = flow.extension::<KeyContext>().and_then(|context| context.key.as_ref());
    key.map(|key| Arc::clone(&key.id)).or_else(|| flow.extension::<McpExchange>()?.holder.clone())
}

/// The session that a request names.
pub(crate) fn find_session(
    service: &McpService,
    settings: &McpSettings,
    flow: &Flow,
    head: &RequestHead,
    endpoint: &Endpoint,
) -> Result<Arc<McpSession>, Box<Response>> {
    let Some(id) = head.headers.get_str(SESSION_HEADER) else {
        let message = "the header Mcp-Session-Id is missing: begin a session with `initialize`";
        return Err(refusal(StatusCode::BAD_REQUEST, message).into());
    };
    let found =
        service.sessions.find(id, session_holder(flow).as_ref(), endpoint.0.as_deref(), settings.session_timeout);
    found.ok_or_else(|| {
        refusal(StatusCode::NOT_FOUND, "there is no such session, or it ended: begin one with `initialize`").into()
    })
}

/// The server of a call, if it is one, and the name there.
fn find_target(
    settings: &McpSettings,
    session: &McpSession,
    endpoint: &Endpoint,
    key: Option<&VirtualKey>,
    method: &ClientMethod,
) -> Option<Result<(Arc<McpServer>, String), RpcError>> {
    let only = endpoint.0.as_deref();
    let unknown = |what: &str, name: &str| RpcError::new(INVALID_PARAMS, format!("there is no {what} `{name}`"));
    let named = |what: &str, name: &str| {
        let found = settings.resolve(only, name).map(|(server, name)| (Arc::clone(server), name.to_owned()));
        found.ok_or_else(|| unknown(what, name))
    };
    let found = match method {
        ClientMethod::CallTool(name, _) => named("tool", name),
        ClientMethod::GetPrompt(name, _) | ClientMethod::Complete(CompletionRef::Prompt(name), _) => {
            named("prompt", name)
        }
        ClientMethod::ReadResource(uri)
        | ClientMethod::Subscribe(uri)
        | ClientMethod::Unsubscribe(uri)
        | ClientMethod::Complete(CompletionRef::Resource(uri), _) => {
            let listed = match method {
                ClientMethod::Complete(..) => session.server_of_reference(uri),
                _ => session.server_of_resource(uri).or_else(|| session.server_of_template(uri)),
            };
            let listed = listed.and_then(|server| settings.get(&server).cloned());
            let servers = settings.of_endpoint(only);
            let single = || servers.first().filter(|_| servers.len() == 1).cloned();
            let found = listed.or_else(single).map(|server| (server, uri.clone()));
            found.ok_or_else(|| {
                let message =
                    "no server of this gateway listed this resource or a template of it; list resources first, or use /mcp/SERVER";
                RpcError::new(INVALID_PARAMS, message)
            })
        }
        _ => return None,
    };
    Some(found.and_then(|(server, name)| {
        let offer = match method {
            ClientMethod::CallTool(..) => Offer::Tool(&name),
            ClientMethod::GetPrompt(..) | ClientMethod::Complete(CompletionRef::Prompt(_), _) => Offer::Prompts,
            _ => Offer::Resources,
        };
        access::check(&server, key, offer)?;
        Ok((server, name))
    }))
}

fn tag_target(flow: &mut Flow, server: &McpServer, method: &ClientMethod, name: &str) {
    flow.tag(format!("mcp:{}", server.name));
    if let ClientMethod::CallTool(..) = method {
        flow.tag(format!("mcp-tool:{name}"));
    }
}

/// What the schema of a tool names; of a prompt, nothing. Asks the server for its list if it is not known yet that it has
/// this name: another one could be read by the server as that of a tool which the client may not use.
///
/// # Errors
/// The server did not list just this name, or failed.
async fn schema_values(
    service: &McpService,
    session: &McpSession,
    server: &McpServer,
    policy: &ValuePolicy,
    kind: ListKind,
    name: &str,
) -> Result<Arc<SchemaValues>, RpcError> {
    let known = || session.listed.find(&server.name, kind, name);
    if let Some(values) = known() {
        return Ok(values);
    }
    if let Err(e) = lists::list_of_server(server, session, kind).await {
        service.count_call(&server.name, "error");
        let (mode, mut found) = (server.config.results.unwrap_or(policy.mode), Findings::new());
        let message = redact_text(policy, mode, &session.from_servers, &e.message, &mut found).await;
        return Err(RpcError::new(e.code, message));
    }
    known().ok_or_else(|| {
        let what = if kind == ListKind::Tools { "tool" } else { "prompt" };
        RpcError::new(INVALID_PARAMS, format!("the MCP server {} lists no {what} `{name}`", server.name))
    })
}

/// Removes from a call that is refused what was not redacted; a name may be no more than text that the client sent.
async fn redact_refusal(policy: &ValuePolicy, session: &McpSession, request: &mut ClientRequest, error: &mut RpcError) {
    request.method.clear_values();
    let Some((_, name)) = request.method.listed_name() else { return };
    let (vault, mut found) = (&session.from_client, Findings::new());
    let redacted = redact_text(policy, policy.mode, vault, name, &mut found).await;
    if redacted != *name {
        error.message = redact_text(policy, policy.mode, vault, &error.message, &mut found).await;
        *name = redacted;
    }
}

/// Redacts what the client sends to the server.
async fn redact_values(
    service: &McpService,
    flow: &mut Flow,
    server: &McpServer,
    policy: &ValuePolicy,
    session: &McpSession,
    listed: &Arc<SchemaValues>,
    method: &mut ClientMethod,
) -> Result<(), RpcError> {
    let mode = server.argument_mode(policy);
    let mut found = Findings::new();
    let vault = &session.from_client;
    match method {
        ClientMethod::CallTool(_, arguments) | ClientMethod::GetPrompt(_, arguments) => {
            *arguments = redact_arguments(policy, mode, vault, std::mem::take(arguments), listed, &mut found).await?;
        }
        // A URI that the server listed tells it nothing new.
        ClientMethod::ReadResource(uri) | ClientMethod::Subscribe(uri) | ClientMethod::Unsubscribe(uri)
            if session.server_of_resource(uri).is_none() =>
        {
            redact_uri(policy, mode, session, uri, &mut found).await?;
        }
        ClientMethod::Complete(reference, values) => {
            *values = redact_json(policy, mode, vault, std::mem::take(values), &mut found).await?;
            if let CompletionRef::Resource(uri) = reference
                && !session.is_listed(uri)
            {
                redact_uri(policy, mode, session, uri, &mut found).await?;
            }
        }
        _ => {}
    }
    service.count_findings(Direction::Request, &found);
    tag_findings(flow, mode, &found);
    Ok(())
}

async fn redact_uri(
    policy: &ValuePolicy,
    mode: RedactMode,
    session: &McpSession,
    uri: &mut String,
    found: &mut Findings,
) -> Result<(), RpcError> {
    let json = redact_json(policy, mode, &session.from_client, Value::from(uri.as_str()).to_string(), found).await?;
    *uri = serde_json::from_str(&json).map_err(|e| RpcError::new(INTERNAL_ERROR, e.to_string()))?;
    Ok(())
}

/// Redacts what the client answers to a request of a server, and says whether a guard masked or refused something. What
/// cannot be inspected becomes an error for the server.
///
/// # Errors
/// There is no policy.
async fn redact_answer(
    service: &Arc<McpService>,
    flow: &mut Flow,
    head: &RequestHead,
    server: &Arc<McpServer>,
    session: &McpSession,
    answer: Result<String, RpcError>,
) -> Result<(Result<String, RpcError>, bool), String> {
    let policy = (service.deps.policy)(flow, server.config.policy.as_deref())?;
    let mode = server.argument_mode(&policy);
    let (mut found, vault) = (Findings::new(), &session.from_client);
    flow.tag(format!("mcp:{}", server.name));
    let redacted = match answer {
        Ok(json) => redact_json(&policy, mode, vault, json, &mut found).await,
        Err(e) => {
            let message = redact_text(&policy, mode, vault, &e.message, &mut found).await;
            Err(RpcError { message, ..e })
        }
    };
    service.count_findings(Direction::Request, &found);
    tag_findings(flow, mode, &found);
    Ok(match ((service.deps.guard)(flow, &server.name), redacted) {
        (Some(guard), Ok(json)) => {
            let checked = guard.check_arguments(flow, head, json.clone()).await.map_err(RpcError::not_allowed);
            let is_masked = checked.as_ref() != Ok(&json);
            (checked, is_masked)
        }
        (_, redacted) => (redacted, false),
    })
}

fn tag_findings(flow: &mut Flow, mode: RedactMode, found: &Findings) {
    if !found.is_empty() {
        flow.tag(if mode == RedactMode::Redact { "redacted" } else { "redact:flagged" });
        found.keys().for_each(|kind| flow.tag(format!("found:{kind}")));
    }
}

/// Restores in responses what the client sent and the first stage replaced.
pub(crate) struct RestoreStage(pub Arc<McpService>);

impl RestoreStage {
    fn session(flow: &Flow) -> Option<Arc<McpSession>> {
        let exchange = flow.extension::<McpExchange>().filter(|e| e.restores)?;
        let session = exchange.session.as_ref()?;
        let has_values =
            exchange.is_stream || session.from_client.lock().vault().is_some_and(|vault| !vault.is_empty());
        has_values.then(|| Arc::clone(session))
    }
}

impl Stage for RestoreStage {
    fn name(&self) -> &'static str {
        "mcp-restore"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        if scope.transport == EntryKind::Gateway && self.0.has_servers() {
            PhaseSet::from_phase(Phase::ResponseBody)
        } else {
            PhaseSet::NONE
        }
    }

    fn restores_secrets(&self, flow: &Flow) -> bool {
        Self::session(flow).is_some()
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        let Some(session) = Self::session(flow) else { return MaybeFuture::Ready(Ok(body)) };
        let is_stream = head.headers.get_str("content-type").is_some_and(|t| t.starts_with("text/event-stream"));
        MaybeFuture::pending(async move {
            match is_stream {
                true => Ok(restore::restore_events(session, body)),
                false => restore::restore_message(&session, body).await.map_err(EarlyExit::Deny),
            }
        })
    }
}
