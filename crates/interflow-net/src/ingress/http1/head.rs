//! Waits for the next request's head.
//!
//! Three limits apply in turn: the idle timeout until the first byte, then the head timeout, which counts from the
//! first pause within the head and is not extended by further bytes, and the size limit. A shutdown ends only the idle
//! wait: a request of which a byte has arrived is still answered.

use std::task::{Context, Poll};

use bytes::Buf;
use interflow_codec::h1::{self, HeadLimits, RequestLine};
use interflow_types::{Error, ErrorKind, FlowClock};
use tokio::time::Instant;

use super::conn_state::ConnState;
use crate::deadline_timer::DeadlineTimer;
use crate::ingress::{Drain, HttpOptions};

pub(super) enum NextEvent {
    /// A head, and the clock started at its first byte.
    Request(RequestLine, FlowClock),
    /// No further request follows, or is wanted.
    End,
    /// The client disconnected in the middle of a head.
    Gone(Error),
    /// The head is malformed or too slow.
    Refuse(Error),
}

/// The state of the wait between two requests.
#[derive(Default)]
pub(super) struct HeadReader {
    /// Since when there is nothing to read.
    idle: Option<Instant>,
    clock: Option<FlowClock>,
    /// Since when the rest of the head is awaited.
    slow: Option<Instant>,
    /// How many bytes the last attempt to parse saw.
    tried: usize,
}

impl HeadReader {
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        state: &mut ConnState,
        alarm: &mut DeadlineTimer,
        drain: &mut Drain,
        options: &HttpOptions,
    ) -> Poll<NextEvent> {
        loop {
            if let Some(next) = self.parse(state, &options.head) {
                // Fresh limits for the next head.
                *self = Self::default();
                return Poll::Ready(next);
            }
            let begun = !state.buf.is_empty();
            let read = match (state.ended, begun) {
                // In the middle of a head, the end of the stream is a disconnect; before it, an orderly close.
                (true, false) => return Poll::Ready(NextEvent::End),
                (true, true) => return Poll::Ready(NextEvent::Gone(head_cut_off())),
                // Without a buffer while there is nothing to read.
                (false, false) => state.poll_fill_lazily(cx),
                (false, true) => state.poll_fill(cx),
            };
            match read {
                Poll::Ready(Ok(_)) => {}
                // A reset between requests is as good as a close.
                Poll::Ready(Err(_)) if !begun => return Poll::Ready(NextEvent::End),
                Poll::Ready(Err(e)) => return Poll::Ready(NextEvent::Gone(head_cut_off().with_source(e))),
                Poll::Pending if begun => return self.poll_slow(cx, alarm, options),
                Poll::Pending if drain.poll_drained(cx).is_ready() => return Poll::Ready(NextEvent::End),
                Poll::Pending => return self.poll_idle(cx, alarm, options),
            }
        }
    }

    fn parse(&mut self, state: &mut ConnState, limits: &HeadLimits) -> Option<NextEvent> {
        // RFC 9112 2.2: an empty line that an old client sends after a body is not a request.
        // Repeatedly, because the parser would reject the empty line as a request line.
        while state.buf.starts_with(b"\r\n") {
            state.buf.advance(2);
        }
        if state.buf.is_empty() {
            return None;
        }
        // The flow's clock starts with its first byte.
        let clock = *self.clock.get_or_insert_with(FlowClock::start);
        if !should_parse(&state.buf, self.tried, limits.max_bytes) {
            return None;
        }
        // The next attempt waits for more, see `should_parse`.
        self.tried = state.buf.len();
        match h1::parse_request(&state.buf, limits) {
            Ok(Some((line, used))) => {
                state.buf.advance(used);
                Some(NextEvent::Request(line, clock))
            }
            // The parser may not find the limit exceeded as long as the head is incomplete.
            Ok(None) if state.buf.len() >= limits.max_bytes => Some(NextEvent::Refuse(Error::new(
                ErrorKind::HeadTooLarge,
                format!("the request's head is larger than the {} bytes of limits.max_header_bytes", limits.max_bytes),
            ))),
            Ok(None) => None,
            Err(e) => Some(NextEvent::Refuse(e.into())),
        }
    }

    fn poll_slow(&mut self, cx: &mut Context<'_>, alarm: &mut DeadlineTimer, options: &HttpOptions) -> Poll<NextEvent> {
        // Not restarted by further bytes: a client that sends one byte at a time must not hold the connection
        // (Slowloris).
        // Counted from the first pause, so a head that arrives in one piece never reads the clock.
        let since = *self.slow.get_or_insert_with(Instant::now);
        alarm.poll_at(cx, since + options.head_timeout).map(|()| {
            NextEvent::Refuse(Error::new(
                ErrorKind::ClientTimeout,
                format!("the request's head was not complete within {:?}", options.head_timeout),
            ))
        })
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>, alarm: &mut DeadlineTimer, options: &HttpOptions) -> Poll<NextEvent> {
        let since = *self.idle.get_or_insert_with(Instant::now);
        alarm.poll_at(cx, since + options.idle_timeout).map(|()| NextEvent::End)
    }
}

/// Whether parsing again may give a new result: at the first bytes, when an end of a head has arrived, and whenever
/// there is a quarter more. So a head in tiny pieces needs a bounded number of attempts, and a malformed one is still
/// detected before its end.
fn should_parse(buf: &[u8], tried: usize, max: usize) -> bool {
    // An end of a head may have begun in the bytes that were tried.
    let fresh = &buf[tried.saturating_sub(3).min(buf.len())..];
    tried == 0
        || buf.len() >= max
        || buf.len() > tried + tried / 4
        || fresh.windows(2).any(|w| w == b"\n\n")
        || fresh.windows(3).any(|w| w == b"\n\r\n")
}

fn head_cut_off() -> Error {
    Error::new(ErrorKind::ClientGone, "the client disconnected in the middle of a request's head")
}
