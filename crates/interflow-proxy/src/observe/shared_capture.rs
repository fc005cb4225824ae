//! The recording of one flow, written by both directions of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};

use interflow_types::{
    BodyFrame, Direction, Flow, FlowRecording, FlowStored, OriginalBody, OriginalMessage, RequestHead, ResponseHead,
};
use parking_lot::Mutex;

use crate::http::messages::MessageTap;

/// `capture` is `None` once the flow has ended, so that a body that is still being read records nothing more.
pub(crate) struct SharedCapture {
    pub capture: Mutex<Option<Box<dyn FlowRecording>>>,
    /// Time at which a streamed request body ended, in microseconds; `u64::MAX`: not yet; 0: there is none.
    pub request_body: AtomicU64,
    /// What the end of the response waits for.
    pub stored: Mutex<Option<FlowStored>>,
}

impl SharedCapture {
    pub fn new(mut capture: Box<dyn FlowRecording>) -> Self {
        let stored = Mutex::new(capture.until_stored());
        Self { capture: Mutex::new(Some(capture)), request_body: AtomicU64::new(0), stored }
    }

    /// Shows the recording, until the flow has ended.
    pub fn with(&self, see: impl FnOnce(&mut dyn FlowRecording)) {
        if let Some(capture) = self.capture.lock().as_mut() {
            see(&mut **capture);
        }
    }

    /// Waits until the flow, which has ended or become a tunnel, is stored; at once if the client need not wait for that.
    pub async fn wait_until_stored(&self) {
        let stored = self.stored.lock().take();
        if let Some(stored) = stored {
            stored.await;
        }
    }

    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Without a capture, at the end of the flow, bodies must not be held back.
        self.capture.lock().as_mut().map_or(Poll::Ready(()), |c| c.poll_ready(cx))
    }

    /// Records a frame; returns how many messages were complete with it.
    pub fn record_frame(&self, direction: Direction, frame: &BodyFrame, messages: Option<&mut MessageTap>) -> usize {
        let mut count = 0;
        if let Some(capture) = self.capture.lock().as_mut() {
            match frame {
                BodyFrame::Data(data) => {
                    capture.data(direction, data);
                    if let Some(tap) = messages {
                        tap.feed(data, |m| {
                            count += 1;
                            capture.message(m);
                        });
                    }
                }
                BodyFrame::Trailers(trailers) => capture.trailers(direction, trailers),
            }
        }
        count
    }

    pub fn original_request(self: &Arc<Self>, original: OriginalMessage<RequestHead>) {
        let OriginalMessage { head, body } = original;
        self.with(|capture| capture.original_request(&head, body.is_some()));
        self.original_body(Direction::Request, body);
    }

    pub fn original_response(self: &Arc<Self>, flow: &Flow, original: OriginalMessage<ResponseHead>) {
        let OriginalMessage { head, body } = original;
        self.with(|capture| capture.original_response(flow, &head, body.is_some()));
        self.original_body(Direction::Response, body);
    }

    fn original_body(self: &Arc<Self>, direction: Direction, body: Option<OriginalBody>) {
        match body {
            None => {}
            Some(OriginalBody::Full(bytes)) => self.with(|capture| capture.original_data(direction, &bytes)),
            Some(OriginalBody::Passing(passing)) => {
                let shared = Arc::clone(self);
                // The body is still being read by the stage that edited it: it is recorded as it passes.
                let record = move |bytes: &_| shared.with(|capture| capture.original_data(direction, bytes));
                let subscription = passing.subscribe(record);
                // Too late: part of the body has gone by, and half an original would mislead.
                if !subscription {
                    self.with(|capture| capture.original_lost(direction));
                }
            }
        }
    }
}
