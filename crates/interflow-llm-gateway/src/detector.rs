//! The first pass over LLM traffic: detects calls to providers, records what they request, and reads the usage of responses.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use interflow_types::{
    Authority, Body, BodyFrame, ByteStr, CollectError, Direction, EarlyExit, EntryKind, Flow, FlowClock, Method,
    RequestHead, RequestId, ResponseHead, StatusCode, StreamMessage,
};

use crate::exchange::response::stream::{self, EventObserver, ReadEnd};
use crate::exchange::{self, BodyResult, RequestBody, is_form, unless_unreadable};
use crate::gateway::{LlmGateway, LlmUpstream};
use crate::limits::estimated_by_length;
use crate::llm_telemetry::refuse;
use interflow_llm::error_response::attach;
use interflow_llm::message::{ApiFormat, Outline};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_llm::usage::{self, UsageReader};
use interflow_llm::{
    CountedOutput, DetectedCall, LlmCall, LlmRefusal, Operation, Provider, ResponseProgress, TelemetryRule,
    detect_call, model_in_path, provider, realtime, spans,
};
use parking_lot::Mutex;

/// Maximum size of a body that is inspected on an unknown path; conversation assembly has the same limit.
const MAX_UNKNOWN_BODY_BYTES: usize = 16 << 20;

/// Maximum length of a word of an API that traces have.
const MAX_WORD: usize = 24;
/// Maximum length of an id of a response that traces have.
const MAX_ID: usize = 256;

/// Maximum number of unknown operations that the log names.
const MAX_REPORTED: usize = 100;

/// Finds out which requests are LLM calls, and attaches an [`LlmCall`] to their flow for the passes that follow.
/// Reads bodies, but never changes them.
pub(crate) struct ProviderDetector {
    gateway: Arc<LlmGateway>,
    /// The unknown operations that the log has named.
    reported: Mutex<BTreeSet<String>>,
}

impl ProviderDetector {
    /// The gateway determines the upstreams of its own flows, and holds the operator's overrides for the others.
    pub fn new(gateway: Arc<LlmGateway>) -> Self {
        Self { gateway, reported: Mutex::default() }
    }

    /// Names an operation that is not known yet: in the tags of each flow, and once in the log.
    fn report_unknown(&self, flow: &mut Flow, head: &RequestHead, provider: Provider) {
        let name = provider::endpoint_name(head.url.path_only());
        flow.tag(format!("unknown-operation:{name}"));
        let mut reported = self.reported.lock();
        if reported.len() < MAX_REPORTED && reported.insert(format!("{} {name}", provider.as_str())) {
            let (provider, method) = (provider.as_str(), &head.method);
            tracing::warn!(flow = %flow.id, "{method} {name} is an operation of {provider} that is not known: its texts cannot be located (redact.unknown), and it is metered by its size");
        }
    }

    fn detect_call(&self, flow: &Flow, head: &RequestHead) -> Option<LlmCall> {
        let url = &head.url;
        let named = if flow.transport == EntryKind::Gateway { self.gateway.identify(flow, head) } else { None };
        let others = |u: &LlmUpstream| self.gateway.table().fallback_order(u);
        let mut translated = None;
        let signs_in = |call: &DetectedCall, path: &str| {
            call.operation == Operation::Lookup && provider::is_sign_in(call.provider, path)
        };
        let (mut call, exempt, upstream, others) = match named {
            Some((upstream, rest)) => {
                let (path, query) = rest.split_once('?').unwrap_or((&rest, ""));
                // A request that is translated has the format of its client.
                translated = upstream.translates(&head.method, &rest);
                let provider = upstream.client_api(translated);
                let call = provider::call_for_path(provider, &head.method, path, query);
                let exempt = signs_in(&call, path);
                (call, exempt, Some(ByteStr::from(upstream.name.as_str())), others(&upstream))
            }
            None => {
                let (host, port) = (&url.authority.host, url.authority.port);
                let call = detect_call(host, port, &head.method, &url.path, &head.headers);
                // Known host or path first, then a Responses WebSocket on any host, then the operator's override.
                let call = call.or_else(|| detect_websocket(head)).or_else(|| self.named(head))?;
                let exempt = signs_in(&call, url.path_only());
                (call, exempt, None, Vec::new())
            }
        };
        if realtime::is_websocket(head) && realtime::is_supported(call.provider, &url.path) {
            call.operation = Operation::Realtime;
            call.model = realtime::query_parameter(&url.path, "model").map(ByteStr::from);
        }
        Some(LlmCall { upstream, others, translated: translated.is_some(), exempt, ..detected(call) })
    }

    /// Finds the configured route of a request whose model is known, so that the stages that follow judge the request
    /// for all its deployments, and for the provider that embeds texts of it. Only requests that the gateway itself sends
    /// have a choice.
    fn find_route(&self, flow: &mut Flow) {
        let local = flow.transport == EntryKind::Gateway && flow.authority == Authority::from(flow.client.local);
        let Some(call) = flow.extension::<LlmCall>().filter(|c| local && c.route.is_none()) else { return };
        let table = self.gateway.table();
        let model = call.model.as_deref().filter(|_| call.operation.has_model() && call.upstream.is_some());
        let route = model.and_then(|model| table.route_of_model(model));
        let embedder = call.upstream.as_ref().and_then(|u| self.gateway.cache().embedding_provider(u, call.operation));
        let call = flow.extension_mut::<LlmCall>();
        if let Some(route) = route {
            call.others = route.upstreams().into_iter().filter(|name| Some(name) != call.upstream.as_ref()).collect();
            call.route = Some(route.name.as_str().into());
        }
        // The semantic cache sends it a text of the request.
        let embedder = embedder.filter(|name| Some(name) != call.upstream.as_ref() && !call.others.contains(name));
        call.others.extend(embedder);
    }

    /// A call to an endpoint whose API format the operator configured. Methods without a body are no calls.
    fn named(&self, head: &RequestHead) -> Option<DetectedCall> {
        let websocket = realtime::is_websocket(head);
        if !websocket && matches!(head.method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS) {
            return None;
        }
        let shape = self.gateway.named_endpoint(&head.url, &head.method, websocket)?;
        Some(provider::by_shape(shape, &head.url.path, websocket))
    }

    /// What a body may tell of a request whose head does not identify it as a call. Only JSON that was posted is read, and
    /// only where the path looks like a call or redaction is mandatory.
    fn read_of_unidentified(&self, flow: &Flow, head: &RequestHead, body: &Body) -> Option<BodyRead> {
        if head.method != Method::POST || body.is_empty() {
            return None;
        }
        let is_promising = provider::may_be_call(&head.url.path);
        let is_strict = self.gateway.inspects_everywhere(flow.transport);
        let is_json = || head.headers.get_str("content-type").is_some_and(|t| t.to_ascii_lowercase().contains("json"));
        (is_promising || is_strict && is_json()).then_some(BodyRead::Unidentified { is_promising, is_strict })
    }

    /// Detects a call by its body.
    async fn detect_by_body(
        &self,
        (promising, strict): (bool, bool),
        flow: &mut Flow,
        head: &RequestHead,
        body: Body,
    ) -> BodyResult {
        let max = self.gateway.max_body();
        let most = if promising { max } else { max.min(MAX_UNKNOWN_BODY_BYTES) };
        let raw = match exchange::collect(flow, &head.headers, body, (most, strict)).await {
            Ok((raw, _)) => raw,
            Err(CollectError::TooLarge(body)) if !(promising && strict) => return Ok(body),
            Err(CollectError::TooLarge(body)) => {
                // With mandatory redaction it must not pass without inspection.
                attach(flow, detected(unknown_call()));
                return Ok(body);
            }
            Err(CollectError::Broken(e)) => return Err(EarlyExit::Deny(e)),
        };
        // Out of memory is not the same as undecodable: passing the body would evade redaction exactly under load.
        let request = unless_unreadable(RequestBody::decode(&head.headers, &raw, max).await)?.map(Arc::new);
        let call = match &request {
            Some(request) => {
                let path = head.url.path.clone();
                let look = move |body: &RequestBody| {
                    let Some(outline) = Outline::read(body.plain()) else { return Ok(None) };
                    let by_members = || strict.then(|| provider::detect_by_members(&outline)).flatten();
                    Ok(provider::detect_by_body(&path, &outline).or_else(by_members))
                };
                request.read(look).await.ok().flatten()
            }
            // In strict mode, a body that cannot be decoded is treated as a call.
            None => strict.then(unknown_call),
        };
        if let Some(call) = call {
            let model = model_in_path(call.provider, &head.url.path).and_then(|at| head.url.path.get(at));
            attach(flow, detected(DetectedCall { model: model.map(ByteStr::from), ..call }));
            if let Some(request) = &request {
                exchange::attach(flow, Arc::clone(request));
            }
            // Not even the coding need be true.
            let as_sent = || Arc::new(RequestBody::plain_text(&head.headers, raw.clone()));
            read_request(flow, &request.unwrap_or_else(as_sent), strict).await?;
        }
        Ok(Body::from(raw))
    }

    /// Detects a call by its head.
    pub fn request_head(&self, flow: &mut Flow, head: &mut RequestHead) -> Result<(), EarlyExit> {
        let Some(exchange) = self.detect_call(flow, head) else { return Ok(()) };
        let provider = exchange.provider;
        let telemetry = (exchange.operation == Operation::Telemetry).then(|| self.gateway.telemetry());
        if flow.transport == EntryKind::Gateway {
            let id = RequestId::new(&head.headers, flow.id);
            id.put(&mut head.headers);
            *flow.extension_mut() = id;
        }
        if exchange.operation == Operation::Other {
            self.report_unknown(flow, head, provider);
        }
        let exempt = exchange.exempt || telemetry == Some(TelemetryRule::Pass);
        attach(flow, LlmCall { exempt, ..exchange });
        self.find_route(flow);
        if telemetry == Some(TelemetryRule::Refuse) {
            let message = "telemetry of agents is refused here (llm.telemetry)";
            let refusal = LlmRefusal::new(StatusCode::FORBIDDEN, "forbidden", "telemetry_refused", message);
            return Err(refuse(flow, &refusal));
        }
        Ok(())
    }

    /// Whether, and how, the body of a request is read.
    pub fn body_read(&self, flow: &mut Flow, head: &RequestHead, body: &Body) -> Option<BodyRead> {
        let operation = match flow.extension::<LlmCall>() {
            Some(call) if call.provider != Provider::Unknown || call.upstream.is_some() => call.operation,
            // The head did not identify the call; its body may.
            _ => return self.read_of_unidentified(flow, head, body),
        };
        if operation == Operation::Other {
            // What is not read is metered by its size.
            let length = head.headers.get_str("content-length").and_then(|length| length.parse().ok());
            let estimated = length.map_or(0, |length| estimated_by_length(&head.headers, length));
            flow.extension_mut::<LlmCall>().estimated_input = estimated;
        }
        let is_skipped = matches!(operation, Operation::Other | Operation::Lookup) || is_form(&head.headers);
        (!is_skipped && !body.is_empty()).then_some(BodyRead::Call)
    }

    /// Reads a body; returns it unchanged.
    pub async fn request_body(&self, read: BodyRead, flow: &mut Flow, head: &RequestHead, body: Body) -> BodyResult {
        if let BodyRead::Unidentified { is_promising, is_strict } = read {
            return self.detect_by_body((is_promising, is_strict), flow, head, body).await;
        }
        let max = self.gateway.max_body();
        let raw = match exchange::collect(flow, &head.headers, body, (max, false)).await {
            Ok((raw, _)) => raw,
            Err(CollectError::TooLarge(body)) => return Ok(body),
            Err(CollectError::Broken(e)) => return Err(EarlyExit::Deny(e)),
        };
        if let Some(request) = unless_unreadable(exchange::request_body(flow, &head.headers, &raw, max).await)? {
            read_request(flow, &request, self.gateway.inspects_everywhere(flow.transport)).await?;
            self.find_route(flow);
        }
        Ok(Body::from(raw))
    }

    /// Reads the usage of a response as it passes.
    pub fn response_body(&self, flow: &mut Flow, head: &ResponseHead, body: Body) -> Body {
        // The request may have been repeated until now.
        exchange::release(flow);
        let Some(exchange) = flow.extension::<LlmCall>() else { return body };
        // Errors are not billed, and their format differs between providers.
        if !head.status.is_success() || body.is_empty() {
            return body;
        }
        exchange.merge_head(&head.headers);
        let framing = exchange.response_form().framing(&head.headers);
        let delivered = Arc::clone(&exchange.delivered);
        let observer = UsageObserver::new(exchange.clone(), flow.clock);
        let body = stream::observe(body, &head.headers, framing, observer);
        let count = move |data: &[u8]| delivered.fetch_add(data.len() as u64, Relaxed);
        if let Body::Full(bytes) = &body {
            count(bytes);
            return body;
        }
        body.inspect(move |frame| {
            if let Some(Ok(BodyFrame::Data(data))) = frame {
                count(data);
            }
        })
    }
}

/// A WebSocket on any host whose path is one of the Responses API (agents use it with self-hosted endpoints).
fn detect_websocket(head: &RequestHead) -> Option<DetectedCall> {
    let spoken = realtime::is_websocket(head) && ApiFormat::from_path(&head.url.path) == Some(ApiFormat::Responses);
    spoken.then_some(DetectedCall { operation: Operation::Realtime, ..unknown_call() })
}

/// A call as it is attached to its flow.
fn detected(DetectedCall { provider, operation, model, stream, grows }: DetectedCall) -> LlmCall {
    LlmCall { provider, operation, model, stream: stream.unwrap_or_default(), grows, ..LlmCall::default() }
}

/// A request that may be a call although nothing more is known. The redaction stage then decides whether it may pass.
const fn unknown_call() -> DetectedCall {
    DetectedCall { provider: Provider::OpenAi, operation: Operation::Chat, model: None, stream: None, grows: false }
}

/// How a request's body is read.
#[derive(Clone, Copy)]
pub(crate) enum BodyRead {
    /// For the facts of a call.
    Call,
    /// To find out whether it is a call.
    Unidentified { is_promising: bool, is_strict: bool },
}

/// Records the facts of a WebSocket event. Usage adds up over the responses of a connection.
pub(crate) fn read_message(exchange: &mut LlmCall, message: &StreamMessage) {
    if message.direction == Direction::Response {
        // The server says which settings a session has after each change.
        if let Some(model) = realtime::transcription_model(&message.payload) {
            exchange.transcription_model = Some(model);
        }
        // Deltas carry no usage; the event that ends a response does.
        if usage::may_hold_usage(&message.payload)
            && !realtime::is_interim_report(&message.payload)
            && let Some(summary) = usage::summary_from_json(&message.payload)
            && summary.usage.is_some()
        {
            if realtime::is_transcription(&message.payload) {
                // Beside the response, of which the rest is still counted.
                exchange.merge_more(exchange.transcription_model.as_ref(), &summary);
                return;
            }
            exchange.merge_more(exchange.model.as_ref(), &summary);
            // From here on, what no report covers is counted: a connection may be cut within a response.
            exchange.estimated_input = 0;
            exchange.record_count(CountedOutput::default());
            return;
        }
        let texts = spans::mark_event(&message.payload, None).map(|marked| marked.spans).unwrap_or_default();
        let generated = texts.iter().filter(|span| span.channel.is_some());
        let counted = exchange.counted();
        let tokens: u64 = generated.map(|span| usage::estimated_tokens(span.range.len())).sum();
        exchange.record_count(CountedOutput { unreported: counted.unreported.saturating_add(tokens), ..counted });
        return;
    }
    let Ok(marked) = spans::facts(&message.payload) else { return };
    exchange.estimated_input = exchange.estimated_input.saturating_add(marked.estimated_tokens());
    exchange.continues = spans::string_at(&message.payload, marked.continues).map(ByteStr::from);
    let named = match exchange.provider {
        Provider::Gemini | Provider::Vertex => marked.agent.or(marked.session_model).or(marked.model),
        _ => marked.model.or(marked.session_model),
    };
    if let Some(model) = spans::string_at(&message.payload, named) {
        // Google's Live API has its path: `models/gemini-3`.
        exchange.model = Some(model.rsplit("models/").next().unwrap_or(&model).into());
    }
}

/// Records the facts of a request body: model, whether it streams, and the estimate of input tokens. `is_inspected` tells
/// that later stages are going to look at its texts.
async fn read_request(flow: &mut Flow, request: &Arc<RequestBody>, is_inspected: bool) -> Result<(), EarlyExit> {
    let Some(facts) = unless_unreadable(request.facts(is_inspected).await)? else { return Ok(()) };
    let call = flow.extension_mut::<LlmCall>();
    call.estimated_input = facts.estimated_tokens();
    call.continues = spans::string_at(request.plain(), facts.continues.clone()).map(ByteStr::from);
    // If the path contains the model, the body's is ignored.
    if call.model.is_none() {
        let named = facts.model.clone().or(facts.session_model.clone());
        call.is_model_unclear = facts.is_model_unclear;
        call.model = spans::string_at(request.plain(), named).map(ByteStr::from);
    }
    let plain = request.plain();
    let word = |range: &Option<Range<usize>>| {
        let word = std::str::from_utf8(plain.get(range.clone()?)?).ok()?;
        (word.len() <= MAX_WORD && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).then(|| word.into())
    };
    (call.reasoning_level, call.service_tier) = (word(&facts.effort), word(&facts.service_tier));
    let previous = facts.previous_response.clone().and_then(|range| plain.get(range));
    let previous = previous.filter(|id| id.len() <= MAX_ID && id.iter().all(u8::is_ascii_graphic));
    call.previous_response = previous.and_then(|id| std::str::from_utf8(id).ok()).map(Into::into);
    // Ollama streams unless told otherwise; all others the other way round.
    call.stream = call.stream || facts.stream.unwrap_or(call.provider == Provider::Ollama);
    call.max_output = facts.max_output;
    call.is_max_output_invalid = facts.is_max_output_invalid;
    call.choices = facts.choices;
    if call.operation == Operation::Speech {
        let spoken = interflow_codec::json::parse::<serde_json::Value>(request.plain()).unwrap_or_default();
        call.characters = spoken["input"].as_str().map_or(0, |input| input.chars().count() as u64);
    }
    Ok(())
}

/// Reads the usage of a response as it is relayed. A response that cannot be decoded is relayed all the same; its usage
/// stays unknown.
pub(crate) struct UsageObserver {
    /// `None` after the end.
    usage: Option<UsageReader>,
    exchange: LlmCall,
    clock: FlowClock,
}

impl UsageObserver {
    pub fn new(exchange: LlmCall, clock: FlowClock) -> Self {
        Self { usage: Some(UsageReader::default()), exchange, clock }
    }

    fn record(&mut self, progress: ResponseProgress) {
        let Some(usage) = self.usage.take() else { return };
        self.exchange.merge_summary(usage.summary());
        let unreported = usage.unreported_output();
        self.exchange.record_count(CountedOutput { unreported, progress, is_upstream: false });
    }
}

impl EventObserver for UsageObserver {
    fn event(&mut self, event: &ParsedEvent) {
        let Some(usage) = &mut self.usage else { return };
        usage.read(event);
        if usage.has_text() {
            self.exchange.first_token.get_or_init(|| self.clock.micros());
        }
    }

    fn end(&mut self, end: ReadEnd) {
        self.record(match end {
            ReadEnd::Complete | ReadEnd::Truncated => ResponseProgress::Complete,
            ReadEnd::Broken => ResponseProgress::Partial,
            ReadEnd::Unreadable => ResponseProgress::Unreadable,
        });
    }
}

impl Drop for UsageObserver {
    /// A client abort is charged for what was counted so far.
    fn drop(&mut self) {
        self.record(ResponseProgress::Partial);
    }
}
