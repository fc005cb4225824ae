//! Server-sent events, seen by rules one by one as they pass.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_flow::Phase;
use interflow_flow::{
    Body, BodyStream, BoxFuture, Direction, Flow, Frame, Headers, Injected, Message, MessageKind, RequestHead,
    ResponseHead, Result, Timestamp, Verdict,
};
use interflow_wire::sse::{SseEvent, SseParser};

use crate::act::{At, RequestAt};
use crate::body::{changed, coding, is_event_stream};
use crate::bound::Bound;

/// The largest message that rules see; larger ones pass.
const LARGEST: usize = 16 << 20;

/// What is needed to ask rules about the messages of a body.
pub(crate) struct Watched {
    bound: Arc<Bound>,
    flow: Flow,
    request: Option<Arc<RequestHead>>,
    response: Option<ResponseHead>,
    direction: Direction,
}

impl Watched {
    /// For a body of this side of the flow.
    pub fn new(bound: &Bound, at: &At<'_>, direction: Direction) -> Option<Self> {
        let bound = bound.program().bind(&at.flow.authority.host)?;
        Some(Self {
            bound,
            flow: crate::view::shadow(at.flow),
            request: at.request().map(|r| Arc::new(r.clone())),
            response: at.response.as_deref().cloned(),
            direction,
        })
    }

    /// What a rule leaves of a message; `None` when it swallows it.
    async fn ask(&mut self, kind: MessageKind, payload: Bytes) -> Result<Option<Bytes>> {
        let mut message = Message { direction: self.direction, kind, payload, at: Timestamp::now() };
        let request = self.request.clone().map_or(RequestAt::None, RequestAt::Kept);
        let mut response = self.response.clone();
        let bound = Arc::clone(&self.bound);
        let mut at = At {
            request,
            response: response.as_mut(),
            message: Some(&mut message),
            ..At::new(Phase::Message, &mut self.flow)
        };
        match bound.message_now(&mut at).await {
            Verdict::Drop => Ok(None),
            Verdict::Deny(e) => Err(e),
            _ => Ok(Some(message.payload)),
        }
    }

    /// Writes the events that rules put in behind the one they saw. Nobody listens at the other end for one sent back.
    fn injected(&mut self, out: &mut Vec<u8>) {
        for payload in std::mem::take(self.flow.note_mut::<Injected>()).onward {
            let event = SseEvent { data: Some(String::from_utf8_lossy(&payload).into_owned()), ..SseEvent::default() };
            event.write_to(out);
        }
    }
}

/// The body, its events shown to the rules, when it is a stream of them.
pub(crate) fn watch(watched: Option<Watched>, body: Body, headers: &mut Headers) -> Body {
    let Some(watched) = watched else { return body };
    if matches!(body, Body::Empty) || !is_event_stream(headers) {
        return body;
    }
    let body = match coding::coded(headers) {
        // What cannot be decoded cannot be looked into.
        None => return body,
        Some(false) => body,
        Some(true) => {
            let plain = coding::decoding(headers, body);
            changed(headers, true);
            plain
        }
    };
    let events = Events { watched, parser: Some(SseParser::new(LARGEST)) };
    Body::stream(Messages { body, now: Now::Idle(Box::new(events)), ended: None })
}

struct Messages {
    body: Body,
    now: Now,
    ended: Option<Option<Result<Frame>>>,
}

/// What is done with the events at the moment.
enum Now {
    Idle(Box<Events>),
    /// A chunk's events are shown to the rules, which may wait for a script.
    Asking(BoxFuture<'static, (Box<Events>, Result<Vec<u8>>)>),
    /// A rule ended the body.
    Over,
}

struct Events {
    watched: Watched,
    /// `None` once nothing can be told apart any more.
    parser: Option<SseParser>,
}

impl Events {
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
                    match self.watched.ask(MessageKind::Event, text.clone().into()).await? {
                        None => {}
                        Some(now) if now == text.as_bytes() => out.extend_from_slice(&event.raw),
                        Some(now) => {
                            event.data = Some(String::from_utf8_lossy(&now).into_owned());
                            event.write_to(&mut out);
                        }
                    }
                    self.watched.injected(&mut out);
                }
                Err(_) => {
                    out.extend_from_slice(&parser.rest());
                    self.parser = None;
                    return Ok(out);
                }
            }
        }
    }

    fn rest(&mut self) -> Bytes {
        self.parser.take().map_or_else(Bytes::new, |mut p| p.rest())
    }
}

impl BodyStream for Messages {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            if let Some(end) = self.ended.take() {
                return Poll::Ready(end);
            }
            if let Now::Asking(asking) = &mut self.now {
                let (events, fed) = ready!(asking.as_mut().poll(cx));
                self.now = Now::Idle(events);
                match fed {
                    Ok(out) if out.is_empty() => {}
                    Ok(out) => return Poll::Ready(Some(Ok(Frame::Data(out.into())))),
                    Err(e) => return Poll::Ready(Some(Err(e))),
                }
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => {
                    let Now::Idle(mut events) = std::mem::replace(&mut self.now, Now::Over) else {
                        return Poll::Ready(None);
                    };
                    self.now = Now::Asking(Box::pin(async move {
                        let fed = events.feed(data).await;
                        (events, fed)
                    }));
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                end => {
                    let out = match &mut self.now {
                        Now::Idle(events) => events.rest(),
                        _ => Bytes::new(),
                    };
                    if out.is_empty() {
                        return Poll::Ready(end);
                    }
                    self.ended = Some(end);
                    return Poll::Ready(Some(Ok(Frame::Data(out))));
                }
            }
        }
    }
}
