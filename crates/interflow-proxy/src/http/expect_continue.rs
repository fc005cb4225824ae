//! Bodies that clients send only after `100 Continue` (`Expect: 100-continue`, RFC 9110 10.1.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll};

use interflow_net::ingress::InformationalSender;
use interflow_types::{Body, BodyFrame, BodyStream, RequestHead, ResponseHead, Result, StatusCode};

/// The client is waiting for 100.
const PENDING: u8 = 0;
/// Interflow sent 100.
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

/// Wraps the body of a waiting client; also returns the state of its expectation.
pub(crate) fn defer_continue(body: Body, interim: InformationalSender) -> (Body, Arc<AtomicU8>) {
    let word = Arc::new(AtomicU8::new(PENDING));
    (Body::stream(ExpectContinueBody { body, interim, word: Arc::clone(&word) }), word)
}

/// Called before the request is sent: removes an expectation that a stage has already met, or whose body it replaced.
pub(crate) fn finish_expectation(word: &AtomicU8, head: &mut RequestHead, body: &Body) {
    let untouched = word.compare_exchange(PENDING, FORWARDED, Relaxed, Relaxed).is_ok();
    if !untouched || !matches!(body, Body::Stream(_)) {
        head.headers.remove("expect");
    }
}

impl BodyStream for ExpectContinueBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        if self.word.compare_exchange(PENDING, SENT, Relaxed, Relaxed).is_ok() {
            self.interim.send(ResponseHead::new(StatusCode::CONTINUE));
        }
        self.body.poll_frame(cx)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}
