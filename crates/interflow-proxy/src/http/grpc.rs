//! Phase `StreamMessage` for gRPC: passes each message in a body to the stages and forwards the result. Unchanged
//! messages keep their bytes.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use interflow_codec::grpc::{self, GrpcMessage};
use interflow_types::budget::MemoryReservation;
use interflow_types::{
    Body, BodyFrame, BodyStream, BoxFuture, Direction, Error, ErrorKind, Flow, Headers, InjectedMessages, MessageKind,
    MessagePolicy, MessageVerdict, Phase, Result, StreamMessage, Timestamp,
};

use crate::http::messages::{GrpcKind, MAX_MESSAGE_BYTES};
use crate::observe::flow_guard::FlowGuard;
use crate::observe::forked_flow::ForkedFlow;
use crate::upstream::plan::RequestPlan;

/// Wraps a gRPC body so that stages see its messages, if one wants to. `Content-Length` is removed, because it may no
/// longer be correct. If the flow's policy is strict, what stages cannot inspect as a whole ends the body: it fails
/// closed.
pub(crate) fn inspect_body(guard: &mut FlowGuard, direction: Direction, headers: &mut Headers, body: Body) -> Body {
    if matches!(body, Body::Empty) || !is_grpc(headers) || !guard.wants_messages() {
        return body;
    }
    let strict = MessagePolicy::is_strict(&guard.flow);
    let Some(kind) = GrpcKind::from_headers(headers) else {
        let why = "a body in base64 or with a content coding is not divided into messages";
        return if strict { Body::stream(BlockedBody(Some(unread(why)))) } else { body };
    };
    headers.remove("content-length");
    let (plan, lent) = (Arc::clone(&guard.plan), guard.fork());
    Body::stream(GrpcBody {
        body,
        direction,
        kind,
        strict,
        plan,
        lent,
        buffer: BytesMut::new(),
        held: MemoryReservation::default(),
        decision: None,
        last: None,
    })
}

/// A gRPC body that is split into messages. `buffer` holds bytes that are not yet a whole message, charged to the
/// memory budget through `held`; `decision` is the stages' pending decision on the current message; `last` is how the
/// inner body ended, while the buffer may still hold messages.
struct GrpcBody {
    body: Body,
    direction: Direction,
    kind: GrpcKind,
    strict: bool,
    plan: Arc<RequestPlan>,
    lent: ForkedFlow,
    buffer: BytesMut,
    held: MemoryReservation,
    decision: Option<BoxFuture<'static, Result<Option<Bytes>>>>,
    last: Option<Option<Result<BodyFrame>>>,
}

impl BodyStream for GrpcBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some(decision) = &mut self.decision {
                // Kept across polls, since a stage may take long to decide.
                let verdict = ready!(decision.as_mut().poll(cx));
                self.decision = None;
                match verdict {
                    Ok(Some(bytes)) => return Poll::Ready(Some(Ok(BodyFrame::Data(bytes)))),
                    // The message was dropped: nothing is sent for it.
                    Ok(None) => {}
                    Err(e) => return Poll::Ready(Some(Err(e))),
                }
            }
            // Messages that are already buffered come before the next read.
            if self.start_next_message() {
                continue;
            }
            if let Some(last) = self.last.take() {
                if self.buffer.is_empty() {
                    return Poll::Ready(last);
                }
                if self.strict {
                    self.buffer.clear();
                    return Poll::Ready(Some(Err(unread("the body ends within one"))));
                }
                // Less than a message: forwarded unchanged.
                self.last = Some(last);
                return Poll::Ready(Some(Ok(BodyFrame::Data(self.buffer.split().freeze()))));
            }
            match ready!(self.body.poll_frame(cx)) {
                // After lost framing, the body is forwarded as it comes and nothing is held.
                Some(Ok(BodyFrame::Data(data))) if self.kind.lost => {
                    return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
                }
                Some(Ok(BodyFrame::Data(data))) => {
                    // Fails, and with it the body, when the memory budget is exhausted: an unbounded message must not
                    // be held.
                    self.held.resize(self.buffer.len() + data.len())?;
                    self.buffer.extend_from_slice(&data);
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                last => self.last = Some(last),
            }
        }
    }
}

impl GrpcBody {
    /// Passes the next whole message to the stages; false if there is none.
    fn start_next_message(&mut self) -> bool {
        if self.kind.lost {
            return false;
        }
        let message = match grpc::next_message(&mut self.buffer, MAX_MESSAGE_BYTES) {
            Ok(Some(message)) => message,
            Ok(None) => return false,
            Err(e) if self.strict => {
                // Nothing of it is sent.
                self.kind.lost = true;
                self.buffer.clear();
                self.decision = Some(Box::pin(std::future::ready(Err(unread(&e.to_string())))));
                return true;
            }
            Err(_) => {
                // Not gRPC, or a message beyond the limit: from here on, bytes are forwarded without inspection.
                self.kind.lost = true;
                if !self.buffer.is_empty() {
                    let rest = self.buffer.split().freeze();
                    self.decision = Some(Box::pin(std::future::ready(Ok(Some(rest)))));
                }
                return true;
            }
        };
        let payload = match self.kind.clear(&message) {
            None if self.strict => {
                self.decision = Some(Box::pin(std::future::ready(Err(unread("this one cannot be decompressed")))));
                return true;
            }
            clear => clear.unwrap_or_else(|| message.data.clone()),
        };
        let seen = StreamMessage { direction: self.direction, kind: MessageKind::Grpc, payload, at: Timestamp::now() };
        self.decision = Some(Box::pin(run_stages(Arc::clone(&self.plan), self.lent.clone(), seen, message)));
        true
    }
}

fn is_grpc(headers: &Headers) -> bool {
    let media_type = headers.get("content-type").unwrap_or_default().trim_ascii_start();
    media_type.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}

fn unread(why: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("message blocked: every message must be inspected, and {why}"))
}

/// A body that is not sent.
struct BlockedBody(Option<Error>);

impl BodyStream for BlockedBody {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        Poll::Ready(self.0.take().map(Err))
    }
}

/// Runs the stages on a message: its original bytes, new ones, or `None` if it was dropped.
async fn run_stages(
    plan: Arc<RequestPlan>,
    lent: ForkedFlow,
    mut seen: StreamMessage,
    message: GrpcMessage,
) -> Result<Option<Bytes>> {
    // The trailers frame of gRPC-Web is not a message.
    if message.trailers {
        return Ok(Some(message.raw));
    }
    let before = seen.payload.clone();
    let mut flow = lent.lock().await;
    for stage in plan.stages(Phase::Message) {
        match stage.message(&mut flow, &mut seen).resolve().await {
            // Messages injected beside a dropped one are still sent.
            MessageVerdict::Drop => return Ok(append_injected(&mut flow, Vec::new()).filter(|b| !b.is_empty())),
            MessageVerdict::Deny(e) => return Err(e),
            MessageVerdict::Continue => {}
        }
    }
    // Unchanged: the original bytes are forwarded, compressed or not.
    if seen.payload == before {
        let raw = message.raw;
        return Ok(Some(match flow.extension::<InjectedMessages>() {
            None => raw,
            Some(_) => append_injected(&mut flow, raw.to_vec()).unwrap_or_default(),
        }));
    }
    // A message given to stages compressed keeps its compressed flag; one given decompressed is sent uncompressed,
    // which gRPC always allows.
    let compressed = message.compressed && before == message.data;
    let length = u32::try_from(seen.payload.len())
        .map_err(|_| Error::new(ErrorKind::BodyTooLarge, "a stage produced a gRPC message of 4 GiB or more"))?;
    let mut out = Vec::with_capacity(grpc::PREFIX_LEN + seen.payload.len());
    grpc::write_prefix(&mut out, compressed, length);
    out.extend_from_slice(&seen.payload);
    Ok(append_injected(&mut flow, out))
}

/// Appends messages that stages injected.
fn append_injected(flow: &mut Flow, mut out: Vec<u8>) -> Option<Bytes> {
    if flow.extension::<InjectedMessages>().is_some() {
        for payload in std::mem::take(flow.extension_mut::<InjectedMessages>()).forward {
            // A message of 4 GiB cannot arise here.
            let Ok(length) = u32::try_from(payload.len()) else { continue };
            grpc::write_prefix(&mut out, false, length);
            out.extend_from_slice(&payload);
        }
    }
    Some(out.into())
}
