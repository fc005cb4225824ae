//! Bodies that clients hold back until they are told to go on (`Expect: 100-continue`, RFC 9110 10.1.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll};

use interflow_net::ingress::InformationalSender;
use interflow_types::{Body, BodyFrame, BodyStream, RequestHead, ResponseHead, Result, StatusCode};

/// The client waits for a word.
const PENDING: u8 = 0;
/// It was told to go on.
const SENT: u8 = 1;
/// What it is told is the origin's affair.
const FORWARDED: u8 = 2;

/// Such a body, which a stage may want before the origin is asked: whoever reads it first says so. Where nobody does, the
/// origin is asked, which may refuse.
struct ExpectContinueBody {
    body: Body,
    interim: InformationalSender,
    word: Arc<AtomicU8>,
}

/// The body of a client that waits, with what became of its waiting.
pub(crate) fn defer_continue(body: Body, interim: InformationalSender) -> (Body, Arc<AtomicU8>) {
    let word = Arc::new(AtomicU8::new(PENDING));
    (Body::stream(ExpectContinueBody { body, interim, word: Arc::clone(&word) }), word)
}

/// The request leaves: an expectation that a stage has met, or whose body it replaced, is none for the origin.
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
