//! Bodies that clients send only after `100 Continue` (`Expect: 100-continue`, RFC 9110 10.1.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll};

use interflow_net::ingress::InformationalSender;
use interflow_types::{Body, BodyFrame, BodyStream, RequestHead, ResponseHead, Result, StatusCode};

/// The client is waiting for 100; nobody has read the body.
const PENDING: u8 = 0;
/// Interflow sent 100, because a stage read the body.
const SENT: u8 = 1;
/// The expectation is forwarded; the origin answers it.
const FORWARDED: u8 = 2;

/// A body whose first reader sends `100 Continue`: a stage may need the body before the origin is contacted. If
/// nobody reads it, the expectation is forwarded to the origin, which may refuse.
struct ExpectContinueBody {
    body: Body,
    interim: InformationalSender,
    word: Arc<AtomicU8>,
}

/// The expectation of a client whose body a stage may read before the origin is asked.
pub(crate) struct PendingExpectation(Arc<AtomicU8>);

impl PendingExpectation {
    /// Wraps the body of a client that waits for 100, if a stage reads bodies. Without such a stage the expectation
    /// is forwarded like any field.
    pub fn defer(reads: bool, head: &RequestHead, body: Body, interim: &InformationalSender) -> (Body, Option<Self>) {
        if !reads || !head.headers.has_token("expect", "100-continue") {
            return (body, None);
        }
        let word = Arc::new(AtomicU8::new(PENDING));
        let body = ExpectContinueBody { body, interim: interim.clone(), word: Arc::clone(&word) };
        (Body::stream(body), Some(Self(word)))
    }

    /// Called before the request is sent: removes an expectation that a stage has already met, or whose body it
    /// replaced.
    pub fn finish(self, head: &mut RequestHead, body: &Body) {
        // Whichever changes PENDING first decides, so that the client never gets two answers to its expectation.
        let untouched = self.0.compare_exchange(PENDING, FORWARDED, Relaxed, Relaxed).is_ok();
        if !untouched || !matches!(body, Body::Stream(_)) {
            head.headers.remove("expect");
        }
    }
}

impl BodyStream for ExpectContinueBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        // The first poll only: later ones find another state. A failed send needs no handling, for the client is gone
        // then.
        if self.word.compare_exchange(PENDING, SENT, Relaxed, Relaxed).is_ok() {
            self.interim.send(ResponseHead::new(StatusCode::CONTINUE));
        }
        self.body.poll_frame(cx)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}
