//! The stage that restores in a response what the client sent and the first stage replaced, after the recorder took its
//! copy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use interflow_redact::SharedSession;
use interflow_types::{
    Body, BodyFrame, BodyFuture, BodyStream, CollectError, EarlyExit, Error, ErrorKind, Flow, MaybeFuture, Phase,
    PhaseSet, PlanScope, RequestHead, ResponseHead, Result, Stage,
};
use parking_lot::Mutex;

use crate::exchange::McpExchange;
use crate::grants::link_answer::with_token;
use crate::redaction::restoring::restore_json;
use crate::service::McpService;
use crate::session::call_outcome::CallOutcome;

/// Restores in responses what the client sent and the first stage replaced.
pub(crate) struct RestoreStage(pub Arc<McpService>);

/// What is restored in a response.
struct Restoration {
    /// What the client sent, if its policy says so.
    vault: Option<SharedSession>,
    outcome: Arc<Mutex<CallOutcome>>,
}

impl Restoration {
    /// `None` if there is nothing to restore in the response, and will be nothing.
    fn of(flow: &Flow, has_accounts: bool) -> Option<Self> {
        let exchange = flow.extension::<McpExchange>()?;
        let session = exchange.session.as_ref().filter(|_| exchange.restores);
        let vault = session.map(|session| Arc::clone(&session.from_client));
        let has_values = || vault.as_ref().is_some_and(|vault| vault.lock().vault().is_some_and(|v| !v.is_empty()));
        // In a stream, values and links may still come.
        let may_follow = exchange.is_stream && (vault.is_some() || has_accounts);
        let is_needed = may_follow || exchange.outcome.lock().link.is_some() || has_values();
        is_needed.then(|| Self { vault, outcome: Arc::clone(&exchange.outcome) })
    }

    /// `None` if the message stays as it is.
    fn restored(&self, json: &str) -> Option<String> {
        let values = self.vault.as_ref().and_then(|vault| restore_json(vault, json));
        with_token(values.as_deref().unwrap_or(json), &self.outcome).or(values)
    }
}

impl Stage for RestoreStage {
    fn name(&self) -> &'static str {
        "mcp-restore"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        if self.0.may_serve(scope) { PhaseSet::from_phase(Phase::ResponseBody) } else { PhaseSet::NONE }
    }

    fn restores_secrets(&self, flow: &Flow) -> bool {
        Restoration::of(flow, self.0.settings().has_accounts).is_some()
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        let Some(restoration) = Restoration::of(flow, self.0.settings().has_accounts) else {
            return MaybeFuture::Ready(Ok(body));
        };
        let is_stream = head.headers.get_str("content-type").is_some_and(|t| t.starts_with("text/event-stream"));
        MaybeFuture::pending(async move {
            match is_stream {
                true => Ok(restore_events(restoration, body)),
                false => restore_message(&restoration, body).await.map_err(EarlyExit::Deny),
            }
        })
    }
}

/// Restores in a response that is one message.
async fn restore_message(restoration: &Restoration, body: Body) -> Result<Body> {
    // The handler made it of a message within the bound of messages.
    let (bytes, trailers) = body.collect(usize::MAX).await.map_err(|e| match e {
        CollectError::Broken(e) => e,
        CollectError::TooLarge(_) => Error::new(ErrorKind::Internal, "a response larger than memory"),
    })?;
    let restored = std::str::from_utf8(&bytes).ok().and_then(|text| restoration.restored(text));
    Ok(Body::with_trailers(restored.map_or(bytes, Bytes::from), trailers))
}

/// Restores in a response that is an event stream.
fn restore_events(restoration: Restoration, body: Body) -> Body {
    Body::stream(RestoredEvents { restoration, body, partial: BytesMut::new(), ready: VecDeque::new(), is_over: false })
}

struct RestoredEvents {
    restoration: Restoration,
    body: Body,
    /// The beginning of a line.
    partial: BytesMut,
    ready: VecDeque<Result<BodyFrame>>,
    is_over: bool,
}

impl RestoredEvents {
    fn restore_line(&self, line: &[u8]) -> Option<Bytes> {
        let text = std::str::from_utf8(line).ok()?;
        let json = text.strip_prefix("data:")?.trim();
        let restored = self.restoration.restored(json)?;
        Some(Bytes::from(format!("data: {restored}\n")))
    }

    fn take_lines(&mut self, data: &[u8]) {
        self.partial.extend_from_slice(data);
        while let Some(end) = self.partial.iter().position(|b| *b == b'\n') {
            let line = self.partial.split_to(end + 1).freeze();
            let line = self.restore_line(&line).unwrap_or(line);
            self.ready.push_back(Ok(BodyFrame::Data(line)));
        }
    }
}

impl BodyStream for RestoredEvents {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Poll::Ready(Some(frame));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.body.poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(BodyFrame::Data(data)))) => self.take_lines(&data),
                Poll::Ready(last) => {
                    self.is_over = !matches!(last, Some(Ok(_)));
                    let rest = self.partial.split().freeze();
                    if !rest.is_empty() {
                        self.ready.push_back(Ok(BodyFrame::Data(rest)));
                    }
                    self.ready.extend(last);
                }
            }
        }
    }
}
