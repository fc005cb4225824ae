//! Follows a flow to its end, on every path, and reports it to the recorder, the counters and the stages.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use interflow_net::egress::UpstreamReport;
use interflow_types::{
    AttemptHandle, Attempts, Body, BodyFrame, BodyStream, BodyTap, BoxFuture, ByteCounts, Direction, Error, ErrorKind,
    Flow, FlowOutcome, FlowRecording, FlowStored, NotRecorded, Phase, RequestHead, ResponseHead, Result, StreamMessage,
};
use tokio::sync::OwnedMutexGuard;

use crate::compiled::CompiledConfig;
use crate::http::messages::MessageTap;
use crate::observe::forked_flow::ForkedFlow;
use crate::observe::login_watch::{LoginWatch, login_ended};
use crate::observe::original_messages;
use crate::observe::shared_capture::SharedCapture;
use crate::observe::stats::WorkerCounters;
use crate::upstream::plan::RequestPlan;

/// Owns a flow until it ends, and ends it exactly once: the methods that complete or fail it consume the guard. If it
/// is dropped instead, because the client disconnected and the future was cancelled, the flow is recorded as aborted
/// by the client.
pub(crate) struct FlowGuard {
    pub flow: Box<Flow>,
    pub plan: Arc<RequestPlan>,
    /// The number of flows in progress, latencies and errors of this worker.
    pub counters: Arc<WorkerCounters>,
    /// The recording, shared with the taps in both bodies. `None` if the flow is not recorded.
    shared: Option<Arc<SharedCapture>>,
    /// The login that the flow ends with, if it can end.
    pub login: Option<LoginWatch>,
    /// The flow as the message stages see it, while messages run beside the other phases.
    forked: Option<ForkedFlow>,
    /// Status sent to the client; 0 until there is a response.
    status: u16,
    /// The flow is a tunnel, or was upgraded to one.
    pub tunnel: bool,
    /// The response was recorded before a stage restored secrets for the client.
    response_recorded: bool,
    /// The flow has ended, so the drop must not end it again.
    over: bool,
}

impl FlowGuard {
    pub fn new(flow: Box<Flow>, plan: Arc<RequestPlan>, counters: Arc<WorkerCounters>) -> Self {
        counters.active.fetch_add(1, Relaxed);
        Self {
            flow,
            plan,
            counters,
            shared: None,
            login: None,
            forked: None,
            status: 0,
            tunnel: false,
            response_recorded: false,
            over: false,
        }
    }

    pub fn with_login(mut self, login: Option<LoginWatch>) -> Self {
        self.login = login;
        self
    }

    /// Where an upstream client reports what happens on behalf of this flow.
    pub fn upstream_report<'a>(&'a mut self, interim: &'a mut (dyn FnMut(ResponseHead) + Send)) -> UpstreamReport<'a> {
        let flow = &mut *self.flow;
        UpstreamReport { clock: &flow.clock, timings: &mut flow.timings, upstream: &mut flow.upstream, interim }
    }

    /// Waits for work that stages run concurrently with the flow, so that the stages of the next phase see its
    /// results.
    pub async fn join_deferred(&mut self) {
        for work in self.flow.take_deferred() {
            work.join(&mut self.flow).await;
        }
    }

    /// The flow for the phase `StreamMessage`, which runs concurrently with the other phases.
    pub fn fork(&mut self) -> ForkedFlow {
        self.forked.get_or_insert_with(|| ForkedFlow::new(&mut self.flow)).clone()
    }

    /// Pauses message processing while response phases run, and merges its extensions into the flow.
    pub async fn hold_messages(&mut self) -> Option<OwnedMutexGuard<Flow>> {
        Some(self.forked.take()?.merge(&mut self.flow).await)
    }

    /// Resumes message processing.
    pub fn release_messages(&mut self, held: Option<OwnedMutexGuard<Flow>>) {
        if let Some(mut held) = held {
            *held = self.flow.fork();
            self.forked = Some(ForkedFlow::from_guard(&held));
        }
    }

    /// Reports the flow's beginning to the recorder; waits if the recorder has fallen behind and is configured to
    /// slow traffic down.
    pub async fn begin_capture(&mut self, settings: &CompiledConfig, head: Option<&RequestHead>) {
        self.begin_capture_at_once(settings, head);
        self.recorder_ready().await;
    }

    pub async fn recorder_ready(&self) {
        if let Some(shared) = &self.shared {
            poll_fn(|cx| shared.poll_ready(cx)).await;
        }
    }

    /// As [`begin_capture`](Self::begin_capture), without waiting.
    pub fn begin_capture_at_once(&mut self, settings: &CompiledConfig, head: Option<&RequestHead>) {
        // Tested here rather than in the recorder, so that not even the beginning of the flow reaches it.
        if self.flow.extension::<NotRecorded>().is_some() {
            return;
        }
        // Before `begin`, because taking the original tags the flow.
        let original = original_messages::take(&mut self.flow, &self.plan, |original| &mut original.request);
        let Some(capture) = settings.recorder.as_ref().and_then(|r| r.begin(&self.flow, head)) else { return };
        let shared = Arc::new(SharedCapture::new(capture));
        if let Some(original) = original {
            shared.original_request(*original);
        }
        self.shared = Some(shared);
    }

    pub fn recording(&self) -> Option<Arc<SharedCapture>> {
        self.shared.clone()
    }

    fn with_capture(&self, see: impl FnOnce(&mut dyn FlowRecording, &Flow)) {
        if let Some(shared) = &self.shared {
            shared.with(|capture| see(capture, &self.flow));
        }
    }

    /// Wraps the request body: counts and records what is sent.
    pub fn request_body(&mut self, body: Body, head: &RequestHead) -> Body {
        match &body {
            Body::Empty => return body,
            Body::Full(bytes) => {
                self.counters.bytes_sent.fetch_add(bytes.len() as u64, Relaxed);
                // A body that is complete in memory counts as sent at once.
                self.flow.timings.request_body = Some(self.flow.clock.micros());
                let tap = self.shared.as_ref().and_then(|_| MessageTap::for_body(Direction::Request, &head.headers));
                self.with_capture(|c, _| {
                    c.data(Direction::Request, bytes);
                    // The tap's messages and the body's data reach the recorder in the order in which they were sent.
                    if let Some(mut tap) = tap {
                        tap.feed(bytes, |m| c.message(m));
                    }
                });
                return body;
            }
            Body::Stream(_) => {}
        }
        if let Some(shared) = &self.shared {
            shared.request_body.store(u64::MAX, Relaxed);
        }
        let tap = self.shared.as_ref().and_then(|_| MessageTap::for_body(Direction::Request, &head.headers));
        Body::stream(RequestTap {
            body,
            shared: self.shared.clone(),
            counters: Arc::clone(&self.counters),
            clock: self.flow.clock,
            messages: tap,
        })
    }

    pub fn interim(&self, head: &ResponseHead) {
        self.with_capture(|c, _| c.interim(head));
    }

    /// Records the response head sent to the client.
    pub fn response(&mut self, head: &ResponseHead) {
        self.status = head.status.as_u16();
        self.flow.status = Some(head.status);
        // Taken even if it is not recorded: the extension must not keep the body alive.
        let original = original_messages::take(&mut self.flow, &self.plan, |original| &mut original.response);
        if let Some(attempt) = self.flow.extension::<AttemptHandle>() {
            attempt.observe(&self.flow);
        }
        if !self.response_recorded {
            self.with_capture(|c, flow| c.response(flow, head));
            if let (Some(shared), Some(original)) = (&self.shared, original) {
                shared.original_response(&self.flow, *original);
            }
        }
    }

    /// Records the response as it is now; later stages restore secrets, which only the client may see.
    pub fn record_before_restore(&mut self, body: Body, head: &ResponseHead) -> Body {
        // The first restoring stage decides: later ones see secrets already.
        let Some(shared) = self.shared.clone().filter(|_| !self.response_recorded) else { return body };
        self.response(head);
        self.response_recorded = true;
        if matches!(body, Body::Empty) {
            return body;
        }
        // A tap even for a body in memory: the stage may read it only in part.
        body.tap(PreRestoreTap { shared, messages: MessageTap::for_body(Direction::Response, &head.headers) })
    }

    /// Wraps the response body sent to the client; the flow ends with it.
    pub fn response_body(mut self, body: Body, head: &ResponseHead) -> Body {
        match body {
            Body::Empty => {
                self.complete();
                Body::Empty
            }
            Body::Full(bytes) => {
                self.counters.bytes_received.fetch_add(bytes.len() as u64, Relaxed);
                if !self.response_recorded {
                    let tap = self.response_tap(head);
                    self.with_capture(|c, _| {
                        c.data(Direction::Response, &bytes);
                        if let Some(mut tap) = tap {
                            tap.feed(&bytes, |m| c.message(m));
                        }
                    });
                }
                // One reading of the clock serves both timings, so that they agree.
                let now = self.flow.clock.micros();
                self.flow.timings.last_byte = Some(now);
                self.finish_at(now, FlowOutcome::Complete);
                Body::Full(bytes)
            }
            Body::Stream(_) => {
                let messages = self.response_tap(head);
                // The guard moves into the tap; dropping the body unread ends the flow as aborted.
                let login_end =
                    self.login.clone().map(|login| Box::pin(async move { login.ended().await }) as BoxFuture<'_, _>);
                Body::stream(ResponseTap { body, guard: Some(self), messages, withheld: None, login_end })
            }
        }
    }

    fn response_tap(&self, head: &ResponseHead) -> Option<MessageTap> {
        let tap = |_| MessageTap::for_body(Direction::Response, &head.headers);
        self.shared.as_ref().filter(|_| !self.response_recorded).and_then(tap)
    }

    /// The body of a response that Interflow generated.
    pub fn local_response(&self, bytes: &Bytes) {
        // After `record_before_restore`, an error response must not overwrite what was recorded.
        if !self.response_recorded {
            self.with_capture(|c, _| c.data(Direction::Response, bytes));
        }
    }

    /// Withholds a body in memory until the flow, which ends now, is stored, for a caller that cannot wait.
    pub fn withhold(&self, body: Body) -> Body {
        match (body, self.stored()) {
            (Body::Full(bytes), Some(stored)) => {
                let withheld = WithheldEnd { stored, frame: Some(Ok(BodyFrame::Data(bytes))) };
                Body::stream(ResponseTap {
                    body: Body::Empty,
                    guard: None,
                    messages: None,
                    withheld: Some(withheld),
                    login_end: None,
                })
            }
            (body, _) => body,
        }
    }

    /// Stores what there is of a flow that becomes a tunnel now. The client may learn that it is open when
    /// [`SharedCapture::wait_until_stored`] has returned.
    pub fn store_open(&self) {
        self.with_capture(|capture, flow| capture.store_now(flow));
    }

    /// What the end of the response waits for, once.
    fn stored(&self) -> Option<FlowStored> {
        self.shared.as_ref()?.stored.lock().take()
    }

    /// Whether a stage wants the messages of this WebSocket.
    pub fn wants_messages(&self) -> bool {
        self.plan.stages(Phase::Message).any(|s| s.wants_messages(&self.flow))
    }

    pub fn message(&self, message: &StreamMessage) {
        self.counters.messages.fetch_add(1, Relaxed);
        self.with_capture(|c, _| c.message(message));
    }

    /// Waits for the recorder's backpressure.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(shared) = &self.shared { shared.poll_ready(cx) } else { Poll::Ready(()) }
    }

    pub fn complete(mut self) {
        self.finish(FlowOutcome::Complete);
    }

    /// Drops the flow without recording it: an intercepted tunnel is represented by the flows inside it.
    pub fn discard(mut self) {
        self.over = true;
        self.counters.active.fetch_sub(1, Relaxed);
    }

    pub fn tunnelled(mut self, bytes: ByteCounts) {
        self.count_tunnel(bytes);
        self.finish(FlowOutcome::Tunnelled(bytes));
    }

    pub fn fail(mut self, error: &Error) {
        self.finish_with_error(error, ByteCounts::default());
    }

    pub fn tunnel_failed(mut self, error: &Error, bytes: ByteCounts) {
        self.count_tunnel(bytes);
        self.finish_with_error(error, bytes);
    }

    fn count_tunnel(&mut self, bytes: ByteCounts) {
        self.tunnel = true;
        self.counters.bytes_sent.fetch_add(bytes.sent, Relaxed);
        self.counters.bytes_received.fetch_add(bytes.received, Relaxed);
    }

    fn finish_with_error(&mut self, error: &Error, bytes: ByteCounts) {
        self.counters.error(error);
        self.flow.error_kind = Some(error.kind());
        if let Some(attempt) = self.flow.extension::<AttemptHandle>() {
            attempt.fail(error);
        }
        tracing::debug!(flow = %self.flow.id, kind = error.kind().as_str(), "{error}");
        self.finish(FlowOutcome::Failed(error, bytes));
    }

    fn finish(&mut self, outcome: FlowOutcome<'_>) {
        self.finish_at(self.flow.clock.micros(), outcome);
    }

    fn finish_at(&mut self, now: u64, outcome: FlowOutcome<'_>) {
        self.over = true;
        if let Some(lent) = self.forked.take() {
            // Merged here, so that `finish` and `done` see what message stages added.
            lent.merge_at_end(&mut self.flow);
        }
        // Deferred work that has finished is merged here. The rest is awaited in a task of its own, so that the end
        // of the flow does not delay the client.
        let mut running = self.flow.take_deferred();
        running.retain(|work| !Arc::clone(work).finish(&mut self.flow));
        if running.is_empty() {
            return self.end(now, outcome);
        }
        self.with_capture(|capture, flow| capture.store_now(flow));
        // Without a runtime, the process is ending.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return self.end(now, outcome) };
        // `self` cannot be moved out of a method that also runs in `drop`, so a second guard takes over what is
        // needed.
        let rest = Self {
            flow: Box::new(self.flow.fork()),
            plan: Arc::clone(&self.plan),
            counters: Arc::clone(&self.counters),
            shared: self.shared.take(),
            login: None,
            forked: None,
            status: self.status,
            tunnel: self.tunnel,
            response_recorded: self.response_recorded,
            // Ended by `DeferredEnd`.
            over: true,
        };
        rest.counters.ending.fetch_add(1, Relaxed);
        let mut end = DeferredEnd { rest, now, outcome: OwnedOutcome::from(outcome) };
        runtime.spawn(async move {
            let counters = Arc::clone(&end.rest.counters);
            let join = async {
                for work in running {
                    work.join(&mut end.rest.flow).await;
                }
            };
            tokio::select! {
                () = join => {}
                () = counters.end_now.notified() => {}
            }
        });
    }

    /// The end of a flow that waits for nothing any more. The order matters: `finish` may still add to the flow, then
    /// the recorder completes it, and `done` is told of the final state.
    fn end(&mut self, now: u64, outcome: FlowOutcome<'_>) {
        if self.plan.wants(Phase::Done) {
            for stage in self.plan.stages(Phase::Done) {
                stage.finish(&mut self.flow);
            }
        }
        self.flow.timings.done = Some(now);
        if let Some(attempt) = self.flow.extension::<AttemptHandle>() {
            attempt.observe(&self.flow);
        }
        let attempts = self.flow.extension::<Attempts>();
        if let Some(attempts) = attempts {
            attempts.close(now);
        }
        // Each attempt counted its own.
        let has_own_times = attempts.is_none();
        if let Some(shared) = &self.shared {
            match shared.request_body.load(Relaxed) {
                0 => {}
                // What the client sends now is not recorded. After a failure, the record is known to be incomplete.
                u64::MAX if matches!(outcome, FlowOutcome::Complete) => self.flow.tag("request_incomplete"),
                u64::MAX => {}
                at => self.flow.timings.request_body = Some(at),
            }
            // Taken: from here on, a body that is still polled records nothing.
            if let Some(capture) = shared.capture.lock().take() {
                capture.finish(&self.flow, outcome);
            }
        }
        self.counters.active.fetch_sub(1, Relaxed);
        if has_own_times {
            self.counters.upstream_times(&self.flow.timings);
        }
        if self.tunnel {
            self.counters.tunnel_ended(now);
        } else {
            self.counters.request_ended(self.flow.transport, self.status, now);
        }
        if self.plan.wants(Phase::Done) {
            self.plan.stages(Phase::Done).for_each(|s| s.done(&self.flow));
        }
    }
}

/// Ends a flow when its remaining work is done, or when its task is dropped before that: at the end of the runtime, or
/// by a panic of the work.
struct DeferredEnd {
    rest: FlowGuard,
    now: u64,
    outcome: OwnedOutcome,
}

impl Drop for DeferredEnd {
    fn drop(&mut self) {
        self.rest.end(self.now, self.outcome.as_outcome());
        self.rest.counters.ending.fetch_sub(1, Relaxed);
    }
}

enum OwnedOutcome {
    Complete,
    Tunnelled(ByteCounts),
    Failed(Error, ByteCounts),
}

impl From<FlowOutcome<'_>> for OwnedOutcome {
    fn from(outcome: FlowOutcome<'_>) -> Self {
        match outcome {
            FlowOutcome::Complete => Self::Complete,
            FlowOutcome::Tunnelled(bytes) => Self::Tunnelled(bytes),
            FlowOutcome::Failed(e, bytes) => Self::Failed(e.without_sources(), bytes),
        }
    }
}

impl OwnedOutcome {
    fn as_outcome(&self) -> FlowOutcome<'_> {
        match self {
            Self::Complete => FlowOutcome::Complete,
            Self::Tunnelled(bytes) => FlowOutcome::Tunnelled(*bytes),
            Self::Failed(error, bytes) => FlowOutcome::Failed(error, *bytes),
        }
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        if !self.over {
            // The future or the body was dropped, as the server does when the client disconnects, and as a tunnel does
            // with what is inside when its login ends.
            let error = match &self.login {
                Some(login) if login.is_ended() => login_ended(),
                _ => Error::new(ErrorKind::ClientGone, "the client went away"),
            };
            self.finish_with_error(&error, ByteCounts::default());
        }
    }
}

/// Counts and records a request body.
struct RequestTap {
    body: Body,
    shared: Option<Arc<SharedCapture>>,
    counters: Arc<WorkerCounters>,
    clock: interflow_types::FlowClock,
    messages: Option<MessageTap>,
}

impl BodyStream for RequestTap {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        if let Some(shared) = &self.shared {
            // The recorder's backpressure: nothing is read from the client while its queue is full.
            std::task::ready!(shared.poll_ready(cx));
        }
        let frame = std::task::ready!(self.body.poll_frame(cx));
        if let Some(Ok(BodyFrame::Data(data))) = &frame {
            self.counters.bytes_sent.fetch_add(data.len() as u64, Relaxed);
        }
        if let Some(shared) = &self.shared {
            let over = match &frame {
                Some(Ok(f)) => {
                    let recorded = shared.record_frame(Direction::Request, f, self.messages.as_mut());
                    self.counters.messages.fetch_add(recorded as u64, Relaxed);
                    self.body.remaining() == Some(0)
                }
                None => true,
                // The error ends the flow elsewhere: whoever sends the body reports it.
                Some(Err(_)) => false,
            };
            if over {
                // At least 1, because 0 stands for no such body.
                shared.request_body.store(self.clock.micros().max(1), Relaxed);
            }
        }
        Poll::Ready(frame)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}

/// Records a response body before stages restore secrets in it, which only the client may see.
struct PreRestoreTap {
    shared: Arc<SharedCapture>,
    messages: Option<MessageTap>,
}

impl BodyTap for PreRestoreTap {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.poll_ready(cx)
    }

    fn frame(&mut self, frame: Option<Result<&BodyFrame, &Error>>) {
        if let Some(Ok(frame)) = frame {
            self.shared.record_frame(Direction::Response, frame, self.messages.as_mut());
        }
    }
}

/// Counts and records a response body; the flow ends with it.
struct ResponseTap {
    body: Body,
    guard: Option<FlowGuard>,
    messages: Option<MessageTap>,
    withheld: Option<WithheldEnd>,
    /// Ready when the login that the response was allowed for has ended.
    login_end: Option<BoxFuture<'static, Error>>,
}

/// The end of a response body, until its flow is stored.
struct WithheldEnd {
    stored: FlowStored,
    frame: Option<Result<BodyFrame>>,
}

impl BodyStream for ResponseTap {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        if let Some(end) = &mut self.withheld {
            std::task::ready!(end.stored.as_mut().poll(cx));
            return Poll::Ready(self.withheld.take().and_then(|end| end.frame));
        }
        // After the end, the remaining polls pass through.
        let Some(guard) = &mut self.guard else { return self.body.poll_frame(cx) };
        std::task::ready!(guard.poll_ready(cx));
        let frame = match self.login_end.as_mut().map(|end| end.as_mut().poll(cx)) {
            Some(Poll::Ready(error)) => {
                self.login_end = None;
                // What observes it settles what it counted before the flow ends.
                self.body = Body::Empty;
                Some(Err(error))
            }
            _ => std::task::ready!(self.body.poll_frame(cx)),
        };
        let mut stored = None;
        match &frame {
            Some(Ok(f)) => {
                if let BodyFrame::Data(data) = f {
                    guard.counters.bytes_received.fetch_add(data.len() as u64, Relaxed);
                }
                // What a stage restored is counted as sent, but not recorded.
                if let Some(shared) = guard.shared.as_ref().filter(|_| !guard.response_recorded) {
                    let recorded = shared.record_frame(Direction::Response, f, self.messages.as_mut());
                    guard.counters.messages.fetch_add(recorded as u64, Relaxed);
                }
                // Nothing follows the trailers, and a body of known length ends with its last byte: the server need
                // not poll again.
                if matches!(f, BodyFrame::Trailers(_)) || self.body.remaining() == Some(0) {
                    stored = self.finish(Ok(()));
                }
            }
            Some(Err(e)) => stored = self.finish(Err(e)),
            None => stored = self.finish(Ok(())),
        }
        let Some(stored) = stored else { return Poll::Ready(frame) };
        self.withheld = Some(WithheldEnd { stored, frame });
        self.poll_frame(cx)
    }

    fn remaining(&self) -> Option<u64> {
        let withheld = match self.withheld.as_ref().and_then(|end| end.frame.as_ref()) {
            Some(Ok(BodyFrame::Data(data))) => data.len() as u64,
            _ => 0,
        };
        self.body.remaining().map(|remaining| remaining + withheld)
    }
}

impl ResponseTap {
    /// Ends the flow; returns what the end of the body waits for.
    fn finish(&mut self, end: Result<(), &Error>) -> Option<FlowStored> {
        let mut guard = self.guard.take()?;
        let stored = guard.stored();
        // Taken, so that the end is reported once even if the body is polled again.
        guard.flow.timings.last_byte = Some(guard.flow.clock.micros());
        match end {
            Ok(()) => guard.complete(),
            Err(e) => guard.fail(e),
        }
        stored
    }
}

/// The bytes of a response that Interflow generated, for the recorder.
pub(crate) fn local_body_bytes(body: &Body) -> Option<&Bytes> {
    match body {
        Body::Full(bytes) => Some(bytes),
        _ => None,
    }
}
