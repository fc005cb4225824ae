//! Messages inside of bodies, seen by rules as they pass: server-sent events and gRPC messages.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use interflow_flow::Phase;
use interflow_flow::{
    Body, BodyStream, Direction, Flow, Frame, Headers, Message, MessageKind, RequestHead, ResponseHead, Result,
    Timestamp, Verdict,
};
use interflow_wire::grpc;
use interflow_wire::sse::SseParser;

use crate::act::{At, RequestAt};
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
    fn ask(&mut self, kind: MessageKind, payload: Bytes) -> Result<Option<Bytes>> {
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
        match bound.message_now(&mut at) {
            Verdict::Drop => Ok(None),
            Verdict::Deny(e) => Err(e),
            _ => Ok(Some(message.payload)),
        }
    }
}

enum Cut {
    Events(SseParser),
    Grpc(BytesMut),
}

/// The body, its messages shown to the rules, when it carries any.
pub(crate) fn watch(watched: Option<Watched>, body: Body, headers: &Headers) -> Body {
    let Some(watched) = watched else { return body };
    let media = headers.get_str("content-type").and_then(|t| t.split(';').next()).unwrap_or_default().trim();
    let cut = if media.eq_ignore_ascii_case("text/event-stream") {
        Cut::Events(SseParser::new(LARGEST))
    } else if media.get(..16).is_some_and(|m| m.eq_ignore_ascii_case("application/grpc")) && !media.contains("web-text")
    {
        Cut::Grpc(BytesMut::new())
    } else {
        return body;
    };
    if matches!(body, Body::Empty) || headers.contains("content-encoding") {
        return body;
    }
    Body::stream(Messages { body, watched, cut: Some(cut), ended: None })
}

struct Messages {
    body: Body,
    watched: Watched,
    /// `None` once nothing can be told apart any more.
    cut: Option<Cut>,
    ended: Option<Option<Result<Frame>>>,
}

impl Messages {
    fn feed(&mut self, data: &Bytes) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(data.len());
        match &mut self.cut {
            None => out.extend_from_slice(data),
            Some(Cut::Events(parser)) => {
                parser.push(data);
                loop {
                    match parser.next_event() {
                        Ok(None) => break,
                        Ok(Some(mut event)) => {
                            let text = event.data.clone().unwrap_or_default();
                            match self.watched.ask(MessageKind::Event, text.clone().into())? {
                                None => {}
                                Some(now) if now == text.as_bytes() => out.extend_from_slice(&event.raw),
                                Some(now) => {
                                    event.data = Some(String::from_utf8_lossy(&now).into_owned());
                                    event.write_to(&mut out);
                                }
                            }
                        }
                        Err(_) => {
                            out.extend_from_slice(&parser.rest());
                            self.cut = None;
                            break;
                        }
                    }
                }
            }
            Some(Cut::Grpc(buffer)) => {
                buffer.extend_from_slice(data);
                loop {
                    match grpc::next_message(buffer, LARGEST) {
                        Ok(None) => break,
                        // What is compressed, or the trailers of gRPC-Web, is no rule's business.
                        Ok(Some(m)) if m.compressed || m.trailers => out.extend_from_slice(&m.raw),
                        Ok(Some(m)) => match self.watched.ask(MessageKind::Grpc, m.data.clone())? {
                            None => {}
                            Some(now) if now == m.data => out.extend_from_slice(&m.raw),
                            Some(now) => {
                                grpc::write_prefix(&mut out, false, u32::try_from(now.len()).unwrap_or(u32::MAX));
                                out.extend_from_slice(&now);
                            }
                        },
                        Err(_) => {
                            out.extend_from_slice(&buffer.split());
                            self.cut = None;
                            break;
                        }
                    }
                }
            }
        }
        Ok(out)
    }

    fn rest(&mut self) -> Bytes {
        match self.cut.take() {
            None => Bytes::new(),
            Some(Cut::Events(mut parser)) => parser.rest(),
            Some(Cut::Grpc(mut buffer)) => buffer.split().freeze(),
        }
    }
}

impl BodyStream for Messages {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            if let Some(end) = self.ended.take() {
                return Poll::Ready(end);
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => match self.feed(&data) {
                    Ok(out) if out.is_empty() => {}
                    Ok(out) => return Poll::Ready(Some(Ok(Frame::Data(out.into())))),
                    Err(e) => return Poll::Ready(Some(Err(e))),
                },
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                end => {
                    let out = self.rest();
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
