//! Prepares requests for LLM upstreams: injects keys, maps model names, signs.
//!
//! There are two ways. A request to an upstream that may not be retried is prepared in place by the last pass
//! ([`Dispatcher`]) and sent by the proxy, so that its body may be streamed. One that has a choice of upstreams, or may
//! have to be repeated, is held in memory and sent by the route handler, a local handler, whose flow has the gateway itself
//! as its target.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_types::{
    Authority, Body, BodyFuture, BoxFuture, ByteStr, Direction, EarlyExit, EntryKind, ErrorKind, ErrorSource, Flow,
    InjectedMessages, LocalHandler, MaybeFuture, MessageVerdict, PlanScope, Request, RequestHead, RequestVerdict,
    Response, ResponseHead, Result, ServedBy, StatusCode, StreamMessage,
};
use memchr::memmem;

use super::access_token::{AccessToken, AccessTokenSource};
use super::circuit_breaker::circuit_open;
use super::route_handler::RouteHandler;
use super::routing::{Pin, ResponseOwner, ResponsePins, response_in_path};
use super::upstream_error::MAX_ERROR_TIME;
use super::upstream_request::{
    model_in_body, rename_model_in_event, rename_model_in_path, rewrite_model, sign, unsigned_error, upstream_model,
};
use super::{LlmGateway, LlmUpstream, aws_signature, reasoning, response_cache, stream_usage, token_count};
use crate::credentials::has_credentials;
use crate::llm_telemetry::refuse;
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::translate::{
    Losses, WireFormat, binds_thoughts, may_have_signed_thoughts, may_need_responses, refused_settings,
};
use interflow_llm::{LlmCall, LlmRefusal, Operation, Provider, usage};

/// Prepares a request for its upstream; the last pass, because a signature must cover everything that the others
/// changed.
pub(crate) struct Dispatcher(pub Arc<LlmGateway>);

/// What the dispatcher keeps with a flow from the request to its end. `answered` says that the breaker has its
/// result.
#[derive(Default)]
struct DispatchState {
    upstream: Option<Arc<LlmUpstream>>,
    token: Option<AccessToken>,
    answered: bool,
    /// What the request was sent without.
    losses: Losses,
    /// Its settings that the model refuses.
    refused: Vec<&'static str>,
    /// What to remember of its response, where, and how many.
    pin: Option<(Pin, Arc<ResponsePins>, usize)>,
}

impl Dispatcher {
    /// The upstream of a flow that is sent directly by the proxy.
    fn upstream(&self, flow: &Flow) -> Option<Arc<LlmUpstream>> {
        // A translated request is sent by the route handler.
        let name = flow.extension::<LlmCall>().filter(|call| !call.translated)?.upstream.clone()?;
        // So is every request whose authority is local.
        let straight = flow.authority != Authority::from(flow.client.local);
        self.0.table().get(&name).filter(|_| straight).cloned()
    }

    /// Why a request for a response that its provider keeps is rejected: another client's request made it.
    fn of_another(&self, flow: &Flow, id: Option<&str>) -> Option<LlmRefusal> {
        let id = id.filter(|_| flow.transport == EntryKind::Gateway)?;
        self.0.pins.get(id).filter(|pin| pin.owner != ResponseOwner::of(flow))?;
        let message =
            format!("there is no response {id} that this key may use: send the whole conversation without its id");
        let class = "invalid_request_error";
        Some(LlmRefusal::new(StatusCode::NOT_FOUND, class, "previous_response_not_found", message))
    }

    /// What to remember of a response of this flow: whose it is.
    fn pin(&self, flow: &Flow) -> Option<(Pin, Arc<ResponsePins>, usize)> {
        let is_kept = |call: &LlmCall| matches!(call.operation, Operation::Responses | Operation::Realtime);
        flow.extension::<LlmCall>().filter(|call| is_kept(call))?;
        let (owner, upstream) = (ResponseOwner::of(flow), flow.extension::<DispatchState>()?.upstream.as_ref()?);
        let name = ByteStr::from(upstream.name.as_str());
        let pin = || Pin { deployment: name.clone(), upstream: name, owner: owner.clone() };
        owner.shares(upstream).then(|| (pin(), Arc::clone(&self.0.pins), self.0.table().response_pins))
    }

    /// Why a request to an unconfigured cloud upstream is rejected: without credentials of the gateway or the client,
    /// the cloud would return a misleading error.
    fn disabled(&self, flow: &Flow, head: &RequestHead) -> Option<LlmRefusal> {
        // A route leads elsewhere.
        let direct = |call: &&LlmCall| flow.transport == EntryKind::Gateway && call.route.is_none();
        let name = flow.extension::<LlmCall>().filter(direct)?.upstream.clone()?;
        let table = self.0.table();
        let upstream = table.get(&name)?;
        (upstream.is_unconfigured() && !has_credentials(head)).then(|| upstream.disabled())
    }

    /// Whether a proxied request to Bedrock is signed with fetched credentials. Clients of the proxy port then need
    /// no AWS credentials of their own.
    fn signs_for_proxied(&self, flow: &Flow) -> bool {
        flow.transport != EntryKind::Gateway
            && flow.extension::<LlmCall>().is_some_and(|e| e.provider == Provider::Bedrock)
            && self.0.table().get("bedrock").is_some_and(|u| u.source.as_ref().is_some_and(AccessTokenSource::signs))
    }

    /// Signs a request to Bedrock once it is final. A request that the client signed, and that was changed since, is
    /// rejected: AWS would answer with a misleading error.
    fn sign_request(
        &self,
        flow: &mut Flow,
        head: &mut RequestHead,
        upstream: Option<Arc<LlmUpstream>>,
        body: Body,
    ) -> Result<Body, EarlyExit> {
        // The route handler signs what it sends, which need not go to Bedrock.
        let is_handled = flow.transport == EntryKind::Gateway && upstream.is_none();
        if is_handled || flow.extension::<LlmCall>().is_none_or(|e| e.provider != Provider::Bedrock) {
            return Ok(body);
        }
        let signer = upstream.or_else(|| self.0.table().get("bedrock").cloned());
        let redacted = flow.tags.iter().any(|t| t == "redacted");
        let token = flow.extension::<DispatchState>().and_then(|s| s.token.as_ref());
        let refused = match signer.as_deref() {
            Some(u) if u.signs() => match sign(u, token, head, &body) {
                Ok(()) => return Ok(body),
                Err(refusal) => refusal,
            },
            _ if aws_signature::is_signed(head) && (redacted || flow.transport == EntryKind::Gateway) => {
                unsigned_error()
            }
            _ => return Ok(body),
        };
        Err(refuse(flow, &refused))
    }

    /// Hands a request to the route handler, if its body shows that it may have to be translated or repeated: calls of
    /// tools that OpenAI takes in its Responses API only, and thoughts that are bound to the history before them.
    fn hand_over(&self, flow: &mut Flow, head: &RequestHead, body: &Body) -> bool {
        let Body::Full(raw) = body else { return false };
        let sent = flow.extension::<DispatchState>().and_then(|sent| sent.upstream.clone());
        let Some((upstream, call)) = sent.zip(flow.extension::<LlmCall>()) else { return false };
        let table = self.0.table();
        let Some(model) = upstream_model(&table, &upstream, call).or(call.model.as_deref()) else { return false };
        let has_tools = || memmem::find(raw, b"\"tools\"").is_some();
        let may_move = upstream.serves_responses() && may_need_responses(&upstream.name, model, has_tools);
        let may_repeat = || upstream.takes(WireFormat::Anthropic) && binds_thoughts(&upstream.name, model);
        if call.operation != Operation::Chat || !(may_move || may_repeat() && may_have_signed_thoughts(raw)) {
            return false;
        }
        let Some(rest) = upstream.path_within(&head.url) else { return false };
        let path = format!("/{}{rest}", upstream.name);
        // The handler asks it again.
        upstream.breaker.abandon_request();
        *flow.extension_mut() = DispatchState::default();
        let handler = RouteHandler { gateway: Arc::clone(&self.0), upstream };
        flow.extension_mut::<ServedBy>().0 = Some(Arc::new(HandedOver { handler, path }));
        true
    }

    /// The body as the upstream takes it: with its name of the model, and signed.
    fn prepare_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        if self.hand_over(flow, head, &body) {
            return MaybeFuture::Ready(Ok(body));
        }
        let Some(exchange) = flow.extension::<LlmCall>() else { return MaybeFuture::Ready(Ok(body)) };
        let upstream = flow.extension::<DispatchState>().and_then(|s| s.upstream.clone());
        let table = self.0.table();
        // The path first: Bedrock, Vertex and Gemini name the model there, and the body then has none.
        if let Some(path) = upstream.as_deref().and_then(|u| rename_model_in_path(&table, u, exchange, &head.url.path))
        {
            head.url.path = path.into();
        }
        let name = upstream.as_deref().and_then(|u| model_in_body(&table, u, exchange, head)).map(str::to_owned);
        match (name, body) {
            (name, Body::Full(raw)) if let Some(to) = upstream.clone() => MaybeFuture::pending(async move {
                let call = flow.extension_mut::<LlmCall>();
                let model = upstream_model(&table, &to, call).or(call.model.as_deref()).unwrap_or_default();
                let refused = refused_settings(&to.name, model, &raw);
                flow.extension_mut::<DispatchState>().refused = refused;
                let fit = reasoning::fitted(flow.extension_mut(), &to, table.max_body, head, &raw, false).await;
                let (mut body, losses) = fit.map_err(EarlyExit::Deny)?.unwrap_or_else(|| (raw, Losses::default()));
                flow.extension_mut::<DispatchState>().losses = losses;
                if let Some(name) = name {
                    let renamed = rewrite_model(flow.extension_mut(), &table, head, body, &name).await;
                    body = renamed.map_err(EarlyExit::Deny)?;
                }
                self.sign_request(flow, head, upstream, Body::from(body))
            }),
            // A client of the proxy port, for which no token was fetched yet.
            (_, body) if upstream.is_none() && self.signs_for_proxied(flow) => MaybeFuture::pending(async move {
                let signer = self.0.table().get("bedrock").cloned();
                if let Some(signer) = &signer {
                    let token = signer.token(self.0.token_egress()).await;
                    let token = token.map_err(|refusal| refuse(flow, &refusal))?;
                    flow.extension_mut::<DispatchState>().token = token;
                }
                self.sign_request(flow, head, signer, body)
            }),
            (_, body) => MaybeFuture::Ready(self.sign_request(flow, head, upstream, body)),
        }
    }

    pub fn request_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let named = response_in_path(&head.url.path);
        if let Some(refusal) = self.of_another(flow, named.as_deref()).or_else(|| self.disabled(flow, head)) {
            return MaybeFuture::Ready(refuse(flow, &refusal).into());
        }
        let Some(upstream) = self.upstream(flow) else { return MaybeFuture::Ready(RequestVerdict::Continue) };
        let now = Instant::now();
        // Fails fast: the client can use another provider now, instead of waiting for a timeout.
        if !upstream.breaker.allows(now) {
            let wait = Some(Duration::from_secs(upstream.breaker.retry_after(now)));
            let refusal = LlmRefusal { retry_after: wait, ..circuit_open(&upstream.name) };
            return MaybeFuture::Ready(refuse(flow, &refusal).into());
        }
        if upstream.source.is_none() {
            upstream.authorize(head, None);
            flow.extension_mut::<DispatchState>().upstream = Some(upstream);
            return MaybeFuture::Ready(RequestVerdict::Continue);
        }
        MaybeFuture::pending(async move {
            match upstream.token(self.0.token_egress()).await {
                Ok(token) => {
                    upstream.authorize(head, token.as_ref());
                    let sent = flow.extension_mut::<DispatchState>();
                    (sent.upstream, sent.token) = (Some(upstream), token);
                    RequestVerdict::Continue
                }
                Err(refusal) => refuse(flow, &refusal).into(),
            }
        })
    }

    pub fn request_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        let continued = flow.extension::<LlmCall>().and_then(|call| call.continues.as_deref());
        if let Some(refusal) = self.of_another(flow, continued) {
            return MaybeFuture::Ready(Err(refuse(flow, &refusal)));
        }
        let pin = self.pin(flow);
        flow.extension_mut::<DispatchState>().pin = pin;
        if !stream_usage::applies(flow, head, &body) {
            return self.prepare_body(flow, head, body);
        }
        MaybeFuture::pending(async move {
            let body = stream_usage::ask(flow, head, body).await.map_err(EarlyExit::Deny)?;
            self.prepare_body(flow, head, body).resolve().await
        })
    }

    pub fn response_head(flow: &mut Flow, head: &mut ResponseHead) {
        let sent = flow.extension_mut::<DispatchState>();
        sent.answered = true;
        if let Some(upstream) = &sent.upstream {
            // A server error counts as a failure, any other status as a success: a rejected request is the client's
            // fault.
            upstream.breaker.record_result(!head.status.is_server_error(), Instant::now());
        }
        reasoning::name_losses(&mut head.headers, &sent.losses);
        if head.status == StatusCode::BAD_REQUEST {
            std::mem::take(&mut sent.refused).into_iter().for_each(|name| flow.tag(format!("unsupported:{name}")));
        }
    }

    pub fn response_body<'a>(
        flow: &mut Flow,
        request: &RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        let pin = flow.extension_mut::<DispatchState>().pin.take().filter(|_| head.status.is_success());
        let body = match pin {
            Some((pin, pins, max)) => pins.follow(&head.headers, body, pin, max),
            None => body,
        };
        // The route handler does it for the requests that it sends.
        let is_sent = flow.extension::<DispatchState>().is_some_and(|sent| sent.upstream.is_some());
        let call = flow.extension::<LlmCall>().filter(|call| is_sent && token_count::is_asked(call, request));
        if let Some(call) = call.filter(|_| token_count::has_no_endpoint(head.status)).cloned() {
            let until = Instant::now() + MAX_ERROR_TIME;
            return MaybeFuture::pending(
                async move { Ok(token_count::estimate_instead(&call, head, body, until).await) },
            );
        }
        // After the stages that read the report.
        MaybeFuture::Ready(Ok(stream_usage::hide(flow, head, body)))
    }

    pub fn message(&self, flow: &mut Flow, message: &mut StreamMessage) -> MessageVerdict {
        let call = flow.extension::<LlmCall>().filter(|_| message.direction == Direction::Request);
        if let Some(refusal) = self.of_another(flow, call.and_then(|call| call.continues.as_deref())) {
            let provider = call.map_or(Provider::Unknown, |call| call.provider);
            let event = refusal.to_event(provider, StreamFraming::Messages, flow.id);
            flow.extension_mut::<InjectedMessages>().reply.push(event.into());
            return MessageVerdict::Drop;
        }
        // `response.created`, `response.completed`.
        if message.direction == Direction::Response
            && memmem::find(&message.payload, b"\"response.c").is_some()
            && let Some((pin, pins, max)) = self.pin(flow)
            && let Some(id) = usage::summary_from_json(&message.payload).and_then(|summary| summary.id)
        {
            pins.insert(&id, pin, max);
        }
        if message.direction == Direction::Request
            && let Some(upstream) = flow.extension::<DispatchState>().and_then(|s| s.upstream.as_deref())
            && let Some(renamed) = rename_model_in_event(&self.0.table(), upstream, &message.payload)
        {
            message.payload = renamed.into();
        }
        MessageVerdict::Continue
    }

    pub fn done(flow: &Flow) {
        response_cache::finish(flow);
        let Some(sent) = flow.extension::<DispatchState>().filter(|s| !s.answered) else { return };
        let Some(upstream) = &sent.upstream else { return };
        // A client that disconnects, or a stage that denies, says nothing about the upstream.
        match flow.error_kind.map(ErrorKind::error_source) {
            Some(ErrorSource::Upstream) => drop(upstream.breaker.record_result(false, Instant::now())),
            _ => upstream.breaker.abandon_request(),
        }
    }
}

pub(crate) fn is_bedrock(scope: &PlanScope<'_>) -> bool {
    scope.authority.host.name().is_some_and(|h| h.starts_with("bedrock-runtime."))
}

/// Serves a request at the path of its endpoint, since its head has become that of the upstream.
struct HandedOver {
    handler: RouteHandler,
    path: String,
}

impl LocalHandler for HandedOver {
    fn serve<'a>(&'a self, flow: &'a mut Flow, mut request: Request) -> BoxFuture<'a, Result<Response>> {
        request.head.url.path = self.path.as_str().into();
        self.handler.serve(flow, request)
    }
}

/// Answers every request with the same error. A local handler, so that the error is recorded and counted as a flow.
pub(super) struct RejectHandler {
    pub provider: Provider,
    pub refusal: LlmRefusal,
}

impl LocalHandler for RejectHandler {
    fn serve<'a>(&'a self, flow: &'a mut Flow, _request: Request) -> BoxFuture<'a, Result<Response>> {
        let response = self.refusal.to_response(self.provider, flow);
        Box::pin(std::future::ready(Ok(response)))
    }
}
