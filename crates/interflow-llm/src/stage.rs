//! The first LLM stage: recognises requests to providers, notes what they ask for, and reads what answers used up.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use interflow_flow::{
    Body, BodyStream, ByteStr, CollectError, Direction, Flow, Frame, Interest, Message, MessageKind, Method, Phase,
    RequestHead, RequestId, ResponseHead, Result, Scope, Stage, StatusCode, Step, Transport, Verdict,
};

use bytes::Bytes;
use interflow_wire::content_coding::{self as coding, Decoder};

use crate::config::TelemetryRule;
use crate::error_response::attach;
use crate::events::Framing;
use crate::gateway::{Gateway, Upstream};
use crate::message::{Outline, Shape};
use crate::usage::{self, Scanner};
use crate::{Call, Exchange, Operation, Provider, Refusal, live, model_in_path, provider, recognise, spans};

/// The largest that a stream may grow to while its counts are read; beyond it they stay unknown.
const LONGEST: u64 = 4 << 30;
/// The longest body that is looked into on a path that says nothing: what is longer is not told to be a conversation either.
const LONGEST_UNKNOWN: usize = 16 << 20;

/// Recognises exchanges with providers.
pub struct Recogniser {
    gateway: Arc<Gateway>,
}

impl Recogniser {
    /// The stage; the gateway knows which of its flows go to which upstream.
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway }
    }

    fn exchange(&self, flow: &Flow, head: &RequestHead) -> Option<Exchange> {
        let url = &head.url;
        let named = if flow.transport == Transport::Gateway { self.gateway.identify(flow, url) } else { None };
        let others = |u: &Upstream| self.gateway.table().behind(u);
        let (call, upstream, others) = match named {
            Some((upstream, rest)) => {
                let (path, query) = rest.split_once('?').unwrap_or((&rest, ""));
                let call = provider::call(upstream.provider, &head.method, path, query);
                (call, Some(ByteStr::from(upstream.name.as_str())), others(&upstream))
            }
            None => {
                let (host, port) = (&url.authority.host, url.authority.port);
                let call = recognise(host, port, &head.method, &url.path, &head.headers);
                (call.or_else(|| socket(head)).or_else(|| self.named(head))?, None, Vec::new())
            }
        };
        let live = live::is_websocket(head) && live::is_spoken(call.provider, &url.path);
        let named = || live::query(&url.path, "model").map(ByteStr::from);
        Some(Exchange {
            provider: call.provider,
            operation: if live { Operation::Realtime } else { call.operation },
            upstream,
            others,
            model: if live { named() } else { call.model },
            stream: call.stream.unwrap_or_default(),
            grows: call.grows,
            ..Exchange::default()
        })
    }
}

impl Recogniser {
    /// A request to an endpoint of which the operator says what is spoken there.
    fn named(&self, head: &RequestHead) -> Option<Call> {
        let websocket = live::is_websocket(head);
        if !websocket && matches!(head.method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS) {
            return None;
        }
        let shape = self.gateway.named_endpoint(&head.url, &head.method, websocket)?;
        Some(provider::by_shape(shape, &head.url.path, websocket))
    }

    /// A request that its head says nothing of: where it may be a question to a model all the same, its body tells.
    fn unrecognised<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let promising = provider::is_promising(&head.url.path);
        let strict = self.gateway.looks_everywhere(flow.transport);
        let json = head.headers.get_str("content-type").is_some_and(|t| t.contains("json"));
        if head.method != Method::POST || body.is_empty() || !(promising || strict && json) {
            return Step::Now(Ok(body));
        }
        let max = self.gateway.max_body();
        let most = if promising { max } else { max.min(LONGEST_UNKNOWN) };
        Step::later(async move {
            let raw = match body.collect(most).await {
                Ok((raw, _)) => raw,
                Err(CollectError::TooLarge(body)) if !(promising && strict) => return Ok(body),
                Err(CollectError::TooLarge(body)) => {
                    // Whoever redacts must not let it go unseen.
                    let (provider, operation) = (Provider::OpenAi, Operation::Chat);
                    attach(flow, Exchange { provider, operation, ..Exchange::default() });
                    return Ok(body);
                }
                Err(CollectError::Broken(e)) => return Err(Verdict::Deny(e)),
            };
            let plain = coding::decode_held(&head.headers, &raw, max as u64).await;
            if let Some(e) = plain.as_ref().err().and_then(coding::overloaded) {
                return Err(Verdict::Deny(e));
            }
            let (call, text) = match plain {
                Ok(plain) => {
                    let text = plain.unwrap_or_else(|| raw.clone());
                    let (path, body) = (head.url.path.clone(), text.clone());
                    let look = move || provider::by_body(&path, &Outline::read(&body)?);
                    let call = spans::beside(text.len(), look).await.flatten();
                    (call, text)
                }
                // What cannot be decoded is taken for a question where that matters.
                Err(_) => (strict.then(unread), raw.clone()),
            };
            if let Some(call) = call {
                let exchange = Exchange {
                    provider: call.provider,
                    operation: call.operation,
                    model: model_in_path(call.provider, &head.url.path)
                        .and_then(|at| head.url.path.get(at))
                        .map(ByteStr::from),
                    stream: call.stream.unwrap_or_default(),
                    grows: call.grows,
                    ..Exchange::default()
                };
                attach(flow, exchange);
                match read_request(flow.note_mut::<Exchange>(), &text).await {
                    Err(spans::MarkError::Overloaded(e)) => return Err(Verdict::Deny(e)),
                    Ok(()) | Err(spans::MarkError::Json(_)) => {}
                }
            }
            Ok(Body::from(raw))
        })
    }
}

/// A WebSocket whose path promises events of the Responses API, on whatever host.
fn socket(head: &RequestHead) -> Option<Call> {
    let spoken = live::is_websocket(head) && Shape::of_path(&head.url.path) == Some(Shape::Responses);
    let (provider, operation) = (Provider::OpenAi, Operation::Realtime);
    spoken.then_some(Call { provider, operation, model: None, stream: None, grows: false })
}

/// A request that may be a question to a model, for all that is known of it.
const fn unread() -> Call {
    Call { provider: Provider::OpenAi, operation: Operation::Chat, model: None, stream: None, grows: false }
}

impl Stage for Recogniser {
    fn name(&self) -> &'static str {
        "llm"
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        let seen = scope.intercepted || matches!(scope.transport, Transport::Absolute | Transport::Gateway);
        if seen {
            Interest::of(Phase::RequestHead).and(Phase::RequestBody).and(Phase::ResponseBody).and(Phase::Message)
        } else {
            Interest::NONE
        }
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        let Some(exchange) = self.exchange(flow, head) else { return Step::Now(Verdict::Continue) };
        let provider = exchange.provider;
        let telemetry = (exchange.operation == Operation::Telemetry).then(|| self.gateway.telemetry());
        if flow.transport == Transport::Gateway {
            let id = RequestId::new(&head.headers, flow.id);
            id.put(&mut head.headers);
            *flow.note_mut() = id;
        }
        attach(flow, Exchange { exempt: telemetry == Some(TelemetryRule::Pass), ..exchange });
        if telemetry == Some(TelemetryRule::Refuse) {
            flow.tag("refused:telemetry_refused");
            let message = "telemetry of agents is refused here (llm.telemetry)";
            let refusal = Refusal::new(StatusCode::FORBIDDEN, "forbidden", "telemetry_refused", message);
            return Step::Now(Verdict::Answer(Box::new(refusal.answer(provider, flow))));
        }
        Step::Now(Verdict::Continue)
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        if flow.note::<Exchange>().is_none_or(|e| e.provider == Provider::Unknown && e.upstream.is_none()) {
            return self.unrecognised(flow, head, body);
        }
        let wanted =
            flow.note::<Exchange>().is_some_and(|e| e.operation.is_known() && e.operation != Operation::Lookup);
        let form = head.headers.get_str("content-type").is_some_and(|t| t.trim_start().starts_with("multipart/"));
        if !wanted || form || body.is_empty() {
            return Step::Now(Ok(body));
        }
        let max = self.gateway.max_body();
        Step::later(async move {
            let raw = match body.collect(max).await {
                Ok((raw, _)) => raw,
                Err(CollectError::TooLarge(body)) => return Ok(body),
                Err(CollectError::Broken(e)) => return Err(Verdict::Deny(e)),
            };
            let plain = coding::decode_held(&head.headers, &raw, max as u64).await;
            if let Some(e) = plain.as_ref().err().and_then(coding::overloaded) {
                return Err(Verdict::Deny(e));
            }
            if let Ok(plain) = plain {
                let body = plain.as_ref().unwrap_or(&raw);
                match read_request(flow.note_mut::<Exchange>(), body).await {
                    Err(spans::MarkError::Overloaded(e)) => return Err(Verdict::Deny(e)),
                    // What cannot be read tells nothing; whoever must understand it says so.
                    Ok(()) | Err(spans::MarkError::Json(_)) => {}
                }
            }
            Ok(Body::from(raw))
        })
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let Some(exchange) = flow.note::<Exchange>() else { return Step::Now(Ok(body)) };
        if !head.status.is_success() || body.is_empty() {
            return Step::Now(Ok(body));
        }
        let Ok(decoder) = Decoder::new(&head.headers, LONGEST) else { return Step::Now(Ok(body)) };
        let scanner = Scanner::new(Framing::of(&head.headers, exchange.grows));
        let tap = Tap { decoder, scanner: Some(scanner), exchange: exchange.clone() };
        Step::Now(Ok(match body {
            Body::Full(bytes) => {
                let mut tap = tap;
                tap.see(&bytes);
                tap.settle();
                Body::Full(bytes)
            }
            body => Body::stream(Tapped { body, tap }),
        }))
    }

    fn follows(&self, flow: &Flow) -> bool {
        flow.note::<Exchange>().is_some_and(|e| e.operation == Operation::Realtime)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut Message) -> Step<'a, Verdict> {
        let said = matches!(message.kind, MessageKind::Text | MessageKind::Binary);
        if said && self.follows(flow) {
            read_message(flow.note_mut::<Exchange>(), message);
        }
        Step::Now(Verdict::Continue)
    }
}

/// Notes what one message of a WebSocket tells.
fn read_message(exchange: &mut Exchange, message: &Message) {
    if message.direction == Direction::Response {
        // Deltas tell no counts; what ends an answer does.
        if usage::may_tell(&message.payload)
            && let Some(said) = usage::of_json(&message.payload)
            && said.usage.is_some()
        {
            exchange.settle_more(&said);
        }
        return;
    }
    let Ok(marked) = spans::facts(&message.payload) else { return };
    exchange.estimated_input += (marked.text_bytes as u64).div_ceil(4);
    if let Some(model) = marked.model.and_then(|r| message.payload.get(r)).and_then(|m| std::str::from_utf8(m).ok()) {
        exchange.model = Some(model.into());
    }
}

/// Notes what a request's body tells.
async fn read_request(exchange: &mut Exchange, body: &Bytes) -> Result<(), spans::MarkError> {
    let marked = spans::facts_held(body).await?;
    // Where the path names the model, a body's word for it decides nothing.
    if exchange.model.is_none() {
        let named = marked.model.and_then(|r| body.get(r)).and_then(|m| std::str::from_utf8(m).ok());
        exchange.model = named.map(Into::into);
    }
    exchange.stream = exchange.stream || marked.stream.unwrap_or(exchange.provider == crate::Provider::Ollama);
    exchange.max_output = marked.max_output;
    exchange.estimated_input = (marked.text_bytes as u64).div_ceil(4);
    Ok(())
}

/// Reads an answer as it passes.
struct Tap {
    decoder: Option<Decoder>,
    scanner: Option<Scanner>,
    exchange: Exchange,
}

impl Tap {
    fn see(&mut self, bytes: &[u8]) {
        let Some(scanner) = &mut self.scanner else { return };
        match &mut self.decoder {
            None => scanner.push(bytes),
            Some(decoder) => match decoder.push(bytes) {
                Ok(plain) => scanner.push(&plain),
                Err(_) => self.scanner = None,
            },
        }
    }

    fn settle(&mut self) {
        if let Some(mut scanner) = self.scanner.take() {
            if let Some(rest) = self.decoder.as_mut().and_then(|d| d.finish().ok()) {
                scanner.push(&rest);
            }
            self.exchange.settle(scanner.finish());
        }
    }
}

struct Tapped {
    body: Body,
    tap: Tap,
}

impl BodyStream for Tapped {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        let frame = ready!(self.body.poll_frame(cx));
        match &frame {
            Some(Ok(Frame::Data(data))) => {
                self.tap.see(data);
                // Nobody asks for more when it is known that nothing comes.
                if self.body.remaining() == Some(0) {
                    self.tap.settle();
                }
            }
            Some(Ok(Frame::Trailers(_))) => {}
            None | Some(Err(_)) => self.tap.settle(),
        }
        Poll::Ready(frame)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}

impl Drop for Tapped {
    /// A client that goes away has used up what was counted until then.
    fn drop(&mut self) {
        self.tap.settle();
    }
}
