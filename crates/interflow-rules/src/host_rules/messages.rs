//! Evaluates message rules on server-sent events as they stream.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_codec::sse::{SseEvent, SseParser};
use interflow_types::{
    Body, BodyFrame, BodyStream, BoxFuture, ByteStr, Direction, Error, ErrorKind, Flow, Headers, InjectedMessages,
    MessageKind, MessageVerdict, Phase, RequestHead, ResponseHead, Result, StreamMessage, Timestamp,
};
use parking_lot::Mutex;

use super::HostRules;
use crate::actions::{ActionContext, RequestAccess};
use crate::body::content_coding::BodyOwner;
use crate::body::{content_coding, is_event_stream, strip_body_headers};
use crate::config::OnFailure;

/// Maximum size of an event in bytes that rules see; with a larger one, the stream ends or passes unchanged from there
/// on, depending on `on_failure`.
pub(crate) const MAX_MESSAGE_SIZE: usize = 16 << 20;

/// What is needed to evaluate message rules on a body. It outlives the phase, so it owns copies.
pub(crate) struct MessageRuleContext {
    bound: Arc<HostRules>,
    flow: Flow,
    /// The tags of this copy, for the flow itself.
    tags: Arc<Mutex<Vec<ByteStr>>>,
    request: Option<Arc<RequestHead>>,
    response: Option<ResponseHead>,
    direction: Direction,
}

impl MessageRuleContext {
    pub fn new(bound: &HostRules, at: &mut ActionContext<'_>, direction: Direction) -> Option<Self> {
        let bound = bound.by_host.rules_for(&at.flow.authority.host)?;
        let tags = Arc::default();
        at.state().event_tags.push(Arc::clone(&tags));
        Some(Self {
            bound,
            flow: crate::flow::view::copy_facts(at.flow),
            tags,
            request: at.request().map(|r| Arc::new(r.clone())),
            response: at.response.as_deref().cloned(),
            direction,
        })
    }

    /// The message after the rules; `None` if it was dropped. The response's head is a copy: changes to it have no
    /// effect, since it has been sent.
    async fn apply_rules(&mut self, kind: MessageKind, payload: Bytes) -> Result<Option<Bytes>> {
        let mut message = StreamMessage { direction: self.direction, kind, payload, at: Timestamp::now() };
        let request = self.request.clone().map_or(RequestAccess::None, RequestAccess::Kept);
        let mut response = self.response.clone();
        let bound = Arc::clone(&self.bound);
        let mut at = ActionContext {
            request,
            response: response.as_mut(),
            message: Some(&mut message),
            ..ActionContext::new(&bound.program, Phase::Message, &mut self.flow)
        };
        let verdict = bound.run_to_end(&mut at).await.into();
        if self.tags.lock().len() < self.flow.tags.len() {
            self.tags.lock().clone_from(&self.flow.tags);
        }
        match verdict {
            MessageVerdict::Continue => Ok(Some(message.payload)),
            MessageVerdict::Drop => Ok(None),
            MessageVerdict::Deny(e) => Err(e),
        }
    }

    /// Writes the events that rules injected after the current one. Events injected towards the sender are discarded:
    /// SSE is one-way.
    fn write_injected(&mut self, out: &mut Vec<u8>) {
        for payload in std::mem::take(self.flow.extension_mut::<InjectedMessages>()).forward {
            let event = SseEvent { data: Some(String::from_utf8_lossy(&payload).into_owned()), ..SseEvent::default() };
            event.write_to(out);
        }
    }
}

/// Applies message rules to the body if it is an event stream (WHATWG HTML, server-sent events). Its content coding
/// is removed.
pub(crate) fn apply_message_rules(watched: Option<MessageRuleContext>, body: Body, headers: &mut Headers) -> Body {
    let Some(watched) = watched else { return body };
    if matches!(body, Body::Empty) || !is_event_stream(headers) {
        return body;
    }
    let body = match content_coding::is_encoded(headers) {
        // Content that cannot be decoded cannot be inspected.
        Err(_) => return body,
        Ok(false) => body,
        Ok(true) => {
            let owner = BodyOwner { flow: watched.flow.id, side: watched.direction };
            let plain = content_coding::decode_stream(headers, body, owner);
            strip_body_headers(headers, true);
            plain
        }
    };
    let events = EventRuleRunner { watched, parser: Some(SseParser::new(MAX_MESSAGE_SIZE)) };
    Body::stream(MessageRuleBody { body, now: MessageRuleState::Idle(Box::new(events)), ended: None })
}

struct MessageRuleBody {
    body: Body,
    now: MessageRuleState,
    /// The end of the source, held back until the unfinished event has been sent.
    ended: Option<Option<Result<BodyFrame>>>,
}

enum MessageRuleState {
    Idle(Box<EventRuleRunner>),
    /// Rules run on the events of a chunk; they may wait for a script.
    Asking(BoxFuture<'static, (Box<EventRuleRunner>, Result<Vec<u8>>)>),
    /// A rule ended the body.
    Over,
}

/// Separates the events of a body and runs the rules on each.
struct EventRuleRunner {
    watched: MessageRuleContext,
    /// `None` once events can no longer be separated.
    parser: Option<SseParser>,
}

impl EventRuleRunner {
    /// The bytes to send for a chunk: none while an event is incomplete.
    async fn feed(&mut self, data: Bytes) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(data.len());
        let Some(parser) = &mut self.parser else {
            out.extend_from_slice(&data);
            return Ok(out);
        };
        parser.push(&data);
        loop {
            match parser.next_event() {
                Ok(None) => return Ok(out),
                Ok(Some(mut event)) => {
                    let text = event.data.clone().unwrap_or_default();
                    match self.watched.apply_rules(MessageKind::Event, text.clone().into()).await? {
                        None => {}
                        // An unchanged event keeps its own bytes, comments included.
                        Some(now) if now == text.as_bytes() => out.extend_from_slice(&event.raw),
                        Some(now) => {
                            event.data = Some(String::from_utf8_lossy(&now).into_owned());
                            event.write_to(&mut out);
                        }
                    }
                    self.watched.write_injected(&mut out);
                }
                Err(_) if self.watched.bound.program.config.on_failure == OnFailure::Deny => {
                    let why = format!("a rule cannot judge an event of more than {MAX_MESSAGE_SIZE} bytes");
                    return Err(Error::new(ErrorKind::StageFailed, why));
                }
                // From here on, bytes pass as they are.
                Err(_) => {
                    tracing::warn!(flow = %self.watched.flow.id, "an event is larger than {MAX_MESSAGE_SIZE} bytes: rules on messages are passed over");
                    out.extend_from_slice(&parser.rest());
                    self.parser = None;
                    return Ok(out);
                }
            }
        }
    }

    /// What is left of an unfinished event at the end of the body.
    fn rest(&mut self) -> Bytes {
        self.parser.take().map_or_else(Bytes::new, |mut p| p.rest())
    }
}

impl BodyStream for MessageRuleBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some(end) = self.ended.take() {
                return Poll::Ready(end);
            }
            if let MessageRuleState::Asking(asking) = &mut self.now {
                let (events, fed) = ready!(asking.as_mut().poll(cx));
                self.now = MessageRuleState::Idle(events);
                match fed {
                    Ok(out) if out.is_empty() => {}
                    Ok(out) => return Poll::Ready(Some(Ok(BodyFrame::Data(out.into())))),
                    Err(e) => return Poll::Ready(Some(Err(e))),
                }
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(data))) => {
                    let MessageRuleState::Idle(mut events) = std::mem::replace(&mut self.now, MessageRuleState::Over)
                    else {
                        return Poll::Ready(None);
                    };
                    self.now = MessageRuleState::Asking(Box::pin(async move {
                        let fed = events.feed(data).await;
                        (events, fed)
                    }));
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                end => {
                    let out = match &mut self.now {
                        // An unfinished event is not dispatched by clients; it is passed on as it is.
                        MessageRuleState::Idle(events) => events.rest(),
                        _ => Bytes::new(),
                    };
                    if out.is_empty() {
                        return Poll::Ready(end);
                    }
                    self.ended = Some(end);
                    return Poll::Ready(Some(Ok(BodyFrame::Data(out))));
                }
            }
        }
    }
}
