//! Phase `StreamMessage` for gRPC: passes each message in a body to the stages and forwards the result. Unchanged
//! messages keep their bytes.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use interflow_codec::grpc::{self, GrpcError, GrpcMessage};
use interflow_types::budget::MemoryReservation;
use interflow_types::{
    Body, BodyFrame, BodyStream, BoxFuture, Direction, Error, ErrorKind, Flow, Headers, InjectedMessages, MessageKind,
    MessagePolicy, MessageVerdict, Phase, Result, StreamMessage, Timestamp,
};

use crate::http::messages::{GrpcKind, MAX_MESSAGE_BYTES, pass_unread};
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
    let kind = GrpcKind::from_headers(headers);
    // Before the first byte is sent: a body that is not divided into messages is judged as one that cannot be read.
    let why = "a body in base64 or with a content coding is not divided into messages";
    let undivided = kind.is_none().then_some(why);
    if undivided.is_none() {
        headers.remove("content-length");
    }
    let (plan, lent) = (Arc::clone(&guard.plan), guard.fork());
    let mut inspected = GrpcBody {
        body,
        direction,
        kind: kind.unwrap_or_default(),
        strict,
        plan,
        lent,
        buffer: BytesMut::new(),
        held: MemoryReservation::default(),
        decision: None,
        last: None,
    };
    if let Some(why) = undivided {
        inspected.kind.lost = true;
        inspected.ask_unread(Error::new(ErrorKind::BadRequest, why), None);
    }
    Body::stream(inspected)
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
                    Err(e) => {
                        // Nothing that follows a refused message is sent.
                        (self.body, self.kind.lost) = (Body::Empty, true);
                        self.buffer.clear();
                        return Poll::Ready(Some(Err(e)));
                    }
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
                // Less than a message.
                self.last = Some(last);
                self.kind.lost = true;
                let rest = self.buffer.split().freeze();
                self.ask_unread(Error::new(ErrorKind::BadRequest, "the body ends within one"), Some(rest));
                continue;
            }
            // The next bytes may take long. Cannot fail: the buffer has not grown.
            let _ = self.held.resize(self.buffer.len());
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
            Err(e) => {
                // Not gRPC, or a message beyond the limit: from here on, bytes are forwarded without inspection, if
                // at all.
                self.kind.lost = true;
                let rest = self.buffer.split().freeze();
                let kind =
                    if matches!(e, GrpcError::TooLarge(_)) { ErrorKind::BodyTooLarge } else { ErrorKind::BadRequest };
                self.ask_unread(Error::new(kind, e.to_string()), Some(rest));
                return true;
            }
        };
        // The block of trailers that ends a response of gRPC-Web is not a message.
        if message.trailers && self.kind.web && self.direction == Direction::Response {
            self.decision = Some(Box::pin(std::future::ready(Ok(Some(message.raw)))));
            return true;
        }
        let clear = if message.trailers { None } else { self.kind.clear(&message) };
        let Some(payload) = clear else {
            let why = match message.trailers {
                true => GrpcError::Flags.to_string(),
                false => format!("it cannot be decompressed from grpc-encoding within {MAX_MESSAGE_BYTES} bytes"),
            };
            self.ask_unread(Error::new(ErrorKind::BadRequest, why), Some(message.raw));
            return true;
        };
        let stream_message =
            StreamMessage { direction: self.direction, kind: MessageKind::Grpc, payload, at: Timestamp::now() };
        self.decision = Some(Box::pin(run_stages(Arc::clone(&self.plan), self.lent.clone(), stream_message, message)));
        true
    }

    /// Sends these bytes, whose message cannot be read, only if the stages permit that.
    fn ask_unread(&mut self, why: Error, raw: Option<Bytes>) {
        if self.strict {
            let blocked = format!("message blocked: every message must be inspected, and {}", why.message());
            self.decision = Some(Box::pin(std::future::ready(Err(Error::new(ErrorKind::Denied, blocked)))));
            return;
        }
        let (plan, lent, direction) = (Arc::clone(&self.plan), self.lent.clone(), self.direction);
        self.decision = Some(Box::pin(async move {
            let mut flow = lent.lock().await;
            pass_unread(&plan, &mut flow, direction, MessageKind::Grpc, &why).await?;
            Ok(raw.filter(|raw| !raw.is_empty()))
        }));
    }
}

fn is_grpc(headers: &Headers) -> bool {
    let media_type = headers.get("content-type").unwrap_or_default().trim_ascii_start();
    media_type.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}

/// Runs the stages on a message: its original bytes, new ones, or `None` if it was dropped.
async fn run_stages(
    plan: Arc<RequestPlan>,
    lent: ForkedFlow,
    mut seen: StreamMessage,
    message: GrpcMessage,
) -> Result<Option<Bytes>> {
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
    // A message is given to stages decompressed, and is sent uncompressed, which gRPC always allows.
    let length = u32::try_from(seen.payload.len())
        .map_err(|_| Error::new(ErrorKind::BodyTooLarge, "a stage produced a gRPC message of 4 GiB or more"))?;
    let mut out = Vec::with_capacity(grpc::PREFIX_LEN + seen.payload.len());
    grpc::write_prefix(&mut out, false, length);
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use interflow_testkit::client_info;
    use interflow_types::{EntryKind, Scheme};

    use super::*;
    use crate::compiled::{CompiledConfig, ServerComponents};
    use crate::upstream::plan::{PlanCache, PlanKey};

    /// A body of one frame, whose end does not come.
    struct Once(Option<Bytes>);

    impl BodyStream for Once {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
            self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(BodyFrame::Data(bytes)))))
        }
    }

    #[test]
    fn an_idle_stream_holds_no_memory() {
        let (transport, scheme) = (EntryKind::Absolute, Scheme::Http);
        let authority: interflow_types::Authority = "a.test:80".parse().unwrap();
        let mut flow = Flow::begin(client_info(), transport, scheme, authority.clone());
        let settings = CompiledConfig::new(Default::default(), Vec::new(), ServerComponents::default()).unwrap();
        let key = PlanKey { listener: "proxy".into(), user: None, scheme, authority, dial: None, transport };
        let message = [&b"\0\0\x01\0\0"[..], &[7; 1 << 16]].concat();
        let mut inspected = GrpcBody {
            body: Body::stream(Once(Some(message.into()))),
            direction: Direction::Request,
            kind: GrpcKind::default(),
            strict: false,
            plan: PlanCache::default().get(&settings, key),
            lent: ForkedFlow::new(&mut flow),
            buffer: BytesMut::new(),
            held: MemoryReservation::default(),
            decision: None,
            last: None,
        };
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(inspected.poll_frame(&mut cx), Poll::Ready(Some(Ok(BodyFrame::Data(_))))));
        assert!(inspected.poll_frame(&mut cx).is_pending());
        assert_eq!(inspected.held.bytes(), 0);
    }
}
