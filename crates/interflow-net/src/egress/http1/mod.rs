//! The HTTP/1 client: one request and its response over one connection (RFC 9112), in both directions at once.
//!
//! Until the final head arrives, one poll writes what the request body has ready, reads what the origin has sent, and
//! checks the deadline. Afterwards the body stream takes the connection over, together with whatever is left of the
//! upload, because an origin may answer before it has read the whole request. The connection returns to the pool when
//! both directions have ended cleanly, and is closed in every other case.

mod body;
mod conn;
mod head;
mod request_writer;

use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use interflow_codec::h1::{self, HeadLimits};
use interflow_types::{Body, Error, ErrorKind, Method, RequestHead, ResponseHead, Retryable, StatusCode};
use tokio::time::Sleep;

pub(crate) use conn::{Http1Connection, ProxyHop};
pub(crate) use head::expects_continue;

use super::pool::ConnectionLease;
use super::route::{UpstreamReport, UpstreamResponse};
use crate::tls;
use body::Http1ResponseBody;
use request_writer::{Http1RequestWriter, UploadError};

/// How long to wait for `100 Continue` before the body is sent without it (RFC 9110 10.1.1).
pub(crate) const CONTINUE_WAIT: Duration = Duration::from_secs(1);

options! {
    /// Limits of an exchange over either protocol. `head_timeout` applies to the response head after the request was sent,
    /// and restarts with progress of the upload; `body_timeout` to a pause within a body, in either direction. Both are
    /// five minutes by default. At most `max_interim` (default 256) interim responses are accepted for one request; `head`
    /// limits the size of heads and trailers.
    #[derive(Clone, Debug)]
    pub struct ExchangeOptions {
        pub head: HeadLimits,
        pub head_timeout: Duration = Duration::from_secs(300),
        pub body_timeout: Duration = Duration::from_secs(300),
        pub max_interim: u32 = 256,
    }
}

/// A failed exchange, and the request's body if it can be replayed from its beginning.
pub(crate) struct FailedExchange {
    pub(crate) error: Error,
    pub(crate) replay: Option<Body>,
}

/// Sends the request over the connection and waits for the head of the final response.
///
/// If a reused connection fails before the first byte of the response, the error is [`Retryable::Yes`] if nothing of
/// the request was written, and [`Retryable::ReusedOnly`] otherwise.
pub(crate) async fn exchange(
    mut lease: ConnectionLease,
    head: &mut Cow<'_, RequestHead>,
    body: Body,
    x: &mut UpstreamReport<'_>,
    options: &ExchangeOptions,
) -> Result<UpstreamResponse, FailedExchange> {
    let conn = &mut *lease.conn;
    let held = head::expects_continue(head, &body);
    let framing = head::prepare(head, &body, conn.forward.as_ref());
    // The buffer of the previous request's head on this connection; it is returned in `into_response`.
    let mut out = std::mem::take(&mut conn.scratch);
    out.clear();
    head::write(&mut out, head, conn.forward.is_some());
    // From now on the connection counts as used, even if writing fails.
    conn.exchanges += 1;
    conn.timer.arm_from(conn.asked_at, options.head_timeout);
    let mut run = Http1Exchange {
        lease,
        upload: Http1RequestWriter::new(out, body, framing, held),
        uploading: true,
        broken: None,
        held_until: held.then(|| Box::pin(tokio::time::sleep(CONTINUE_WAIT))),
        scanned: 0,
        interim: 0,
        seen: false,
        options,
    };
    match poll_fn(|cx| run.poll_head(cx, x)).await {
        Ok(response) => run.into_response(head, response).map_err(|error| FailedExchange { error, replay: None }),
        Err(error) => Err(run.into_failed(error)),
    }
}

/// An exchange up to the head of its final response.
struct Http1Exchange<'a> {
    lease: ConnectionLease,
    upload: Http1RequestWriter,
    /// Whether the upload must still be polled.
    uploading: bool,
    /// Why the upload ended early; a response may have been received all the same.
    broken: Option<io::Error>,
    held_until: Option<Pin<Box<Sleep>>>,
    /// Bytes of an incomplete head that were searched for its end.
    scanned: usize,
    interim: u32,
    /// Whether a byte of the response was received.
    seen: bool,
    options: &'a ExchangeOptions,
}

impl Http1Exchange<'_> {
    fn poll_head(&mut self, cx: &mut Context<'_>, x: &mut UpstreamReport<'_>) -> Poll<Result<ResponseHead, Error>> {
        loop {
            // Writing comes first, so that a response to a complete request is timed from its end.
            self.poll_upload(cx, x)?;
            // Then reading, and only then the timer: progress in either direction comes first.
            match self.poll_response(cx, x)? {
                Poll::Ready(Some(head)) => return Poll::Ready(Ok(head)),
                // 100 Continue has released the body.
                Poll::Ready(None) => {}
                Poll::Pending => break,
            }
        }
        // Origins that ignore `Expect` never send 100 (Continue), so waiting must end by itself (RFC 9110 10.1.1).
        if let Some(sleep) = &mut self.held_until
            && sleep.as_mut().poll(cx).is_ready()
        {
            self.release_body();
            // Polled again at once: the release itself wakes nobody.
            self.poll_upload(cx, x)?;
        }
        self.poll_timeout(cx)
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>, x: &mut UpstreamReport<'_>) -> Result<(), Error> {
        if !self.uploading {
            return Ok(());
        }
        let before = self.upload.written;
        match self.upload.poll(&mut self.lease.conn.io, cx) {
            Poll::Ready(Ok(())) => {
                self.uploading = false;
                x.timings.request_sent = Some(x.clock.micros());
            }
            // The client's body failed: the request cannot be completed, so the connection is given up.
            Poll::Ready(Err(UploadError::Body(error))) => return Err(error),
            Poll::Ready(Err(UploadError::Io(error))) => {
                self.uploading = false;
                // An origin that refuses a request early closes its side and has often sent the reason, so reading
                // continues.
                self.broken = Some(error);
            }
            Poll::Pending => {}
        }
        // The first write follows directly after the timer was set; only later progress moves it.
        if before != 0 && self.upload.written != before {
            self.lease.conn.timer.arm(self.options.head_timeout);
        }
        Ok(())
    }

    /// Reads until a final head was received (`Some`) or an interim one released the body (`None`).
    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut UpstreamReport<'_>,
    ) -> Result<Poll<Option<ResponseHead>>, Error> {
        loop {
            while let Some(head) = self.parse()? {
                // 101 is informational by its number but final in effect.
                if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                    x.timings.first_byte = Some(x.clock.micros());
                    return Ok(Poll::Ready(Some(head)));
                }
                self.interim += 1;
                if self.interim > self.options.max_interim {
                    let text = format!("the origin sent more than {} interim responses", self.options.max_interim);
                    return Err(Error::new(ErrorKind::BadResponse, text));
                }
                // Other interim responses, such as 103, do not release the body.
                let go = self.upload.held && head.status == StatusCode::CONTINUE;
                (x.interim)(head);
                if go {
                    self.release_body();
                    return Ok(Poll::Ready(None));
                }
            }
            // Interim heads may follow each other in one read, hence the inner loop above.
            match self.lease.conn.poll_fill(&self.lease.pool, cx) {
                Poll::Ready(Ok(0)) => return Err(self.closed_error(None)),
                Poll::Ready(Ok(_)) => self.seen = true,
                Poll::Ready(Err(error)) => return Err(self.closed_error(Some(error))),
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
    }

    /// Parses a head from the buffer. An incomplete one is parsed again only once its end is found, so that a head in
    /// many small pieces takes linear time.
    fn parse(&mut self) -> Result<Option<ResponseHead>, Error> {
        let buf = &mut self.lease.conn.buf;
        let limits = &self.options.head;
        // The end of a head is at most three bytes long, so it may begin two bytes before the fresh ones.
        let fresh = buf.get(self.scanned.saturating_sub(3)..).unwrap_or_default();
        // Beyond the limit, the parser is called to report the error.
        if buf.is_empty() || (self.scanned > 0 && buf.len() <= limits.max_bytes && !has_blank_line(fresh)) {
            self.scanned = buf.len();
            return Ok(None);
        }
        match h1::parse_response(buf, limits)? {
            Some((head, used)) => {
                bytes::Buf::advance(buf, used);
                self.scanned = 0;
                Ok(Some(head))
            }
            None => {
                self.scanned = buf.len();
                Ok(None)
            }
        }
    }

    fn release_body(&mut self) {
        self.held_until = None;
        self.upload.held = false;
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, Error>> {
        while self.lease.conn.timer.poll(cx).is_ready() {
            if !self.uploading || !self.upload.waits_for_body() {
                let text = format!("the origin did not answer within {:?}", self.options.head_timeout);
                return Poll::Ready(Err(Error::new(ErrorKind::UpstreamTimeout, text)));
            }
            // The client is slow, not the origin; its own timeout applies.
            self.lease.conn.timer.arm(self.options.head_timeout);
        }
        Poll::Pending
    }

    fn closed_error(&mut self, error: Option<io::Error>) -> Error {
        let text = if self.seen {
            "the origin closed the connection within the head of its response"
        } else {
            "the origin closed the connection without a response"
        };
        let Some(error) = error.or(self.broken.take()) else {
            return Error::new(ErrorKind::UpstreamClosed, text).with_retryable(self.retryable());
        };
        let closed = match tls::explain(&error) {
            Some(why) => tls::ended_error(why),
            None => Error::new(ErrorKind::UpstreamClosed, text),
        };
        closed.with_retryable(self.retryable()).with_source(error)
    }

    fn retryable(&self) -> Retryable {
        // A new connection that closes at once is the origin's answer. Only a reused one may have been closed before
        // the request arrived.
        // After a first byte, the origin has acted on the request.
        if self.seen || self.lease.conn.exchanges <= 1 {
            Retryable::No
        // Nothing of the request has left: even a method that is not idempotent may be repeated.
        } else if self.upload.written == 0 {
            Retryable::Yes
        } else {
            // The caller decides by the method and by whether the body can be replayed.
            Retryable::ReusedOnly
        }
    }

    fn into_failed(self, error: Error) -> FailedExchange {
        // A body is kept only for errors that allow a retry.
        let replay = if error.retryable() == Retryable::No { None } else { self.upload.body.into_replay() };
        FailedExchange { error, replay }
    }

    /// The response with the available part of its body.
    fn into_response(mut self, request: &RequestHead, response: ResponseHead) -> Result<UpstreamResponse, Error> {
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch_protocols(request, response);
        }
        let framing = h1::response_framing(&request.method, &response)?;
        let conn = &mut self.lease.conn;
        // Origins repeat the field in each response.
        if conn.exchanges == 1 {
            conn.apply_keep_alive(&response.headers);
        }
        let mut reusable = head::keeps_alive(&response, framing);
        if self.uploading && response.status.as_u16() >= 300 {
            // RFC 9112 9.5: after an early error response, the rest of the body need not be sent.
            self.uploading = false;
            reusable = false;
        }
        reusable &= self.broken.is_none();
        // A final status without 100 (Continue): the origin may still read the body.
        // It is sent while the response is read.
        self.upload.held = false;
        let upload = match self.uploading {
            true => Some(Box::new(self.upload)),
            false => {
                conn.scratch = self.upload.into_scratch();
                None
            }
        };
        let body = Http1ResponseBody::start(self.lease, framing, upload, reusable, self.options)?;
        Ok(UpstreamResponse { head: response, body, upgrade: None })
    }

    fn switch_protocols(self, request: &RequestHead, response: ResponseHead) -> Result<UpstreamResponse, Error> {
        // RFC 9110 7.8 allows 101 only if the request asked for it; bytes of another protocol must not be read as HTTP.
        // With the upload unfinished, both ends would disagree on where the new protocol begins.
        if request.protocol.is_none() || self.uploading || request.method == Method::HEAD {
            let text = "the origin switched protocols although the request did not ask for it";
            return Err(Error::new(ErrorKind::BadResponse, text));
        }
        let conn = *self.lease.conn;
        let (io, early) = conn.into_stream();
        // The origin may already have spoken the new protocol after its head.
        Ok(UpstreamResponse { head: response, body: Body::Empty, upgrade: Some(io.prefixed(early)) })
    }
}

/// Whether these bytes contain an empty line, with any line endings.
fn has_blank_line(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|w| w == b"\n\n") || bytes.windows(3).any(|w| w == b"\n\r\n")
}
