//! The HTTP/2 client: many exchanges over one connection (RFC 9113), driven by one task per connection.
//!
//! An exchange mirrors that of HTTP/1: until the final head it sends the request body and waits for the response in one
//! future; then the body stream takes both over. Unlike there, a failure usually concerns only one stream. The
//! connection is retired, that is, excluded from new requests, after an I/O error or GOAWAY.

mod body;
mod conn;
mod counted;
mod head;
mod preface;
mod request_writer;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use interflow_types::{Body, Error, ErrorKind, RequestHead, ResponseHead, Retryable, UpstreamInfo};
use tokio::time::Sleep;

use super::http1::{CONTINUE_WAIT, ExchangeOptions, FailedExchange};
use super::route::{UpstreamReport, UpstreamResponse};
use crate::deadline_timer::DeadlineTimer;
use crate::h2_stream::H2Stream;
use crate::io::IoStream;
use body::{Http2ResponseBody, finish_upload};
use conn::StreamPermit;
use request_writer::{Http2RequestWriter, UploadEnd};

pub(crate) use conn::Http2Connection;

/// Sends the request as one stream of the connection and waits for the head of the final response.
///
/// An error is [`Retryable::Yes`] if the peer states that it did not process the request (RFC 9113 8.7), and
/// [`Retryable::ReusedOnly`] if a reused connection failed without a response.
pub(crate) async fn exchange(
    conn: &Arc<Http2Connection>,
    request: &RequestHead,
    body: Body,
    x: &mut UpstreamReport<'_>,
    options: &ExchangeOptions,
) -> Result<UpstreamResponse, FailedExchange> {
    let tunnel = request.protocol.is_some();
    if tunnel && !conn.allows_extended_connect().await {
        let text = "the origin does not take other protocols over HTTP/2 (RFC 8441); use HTTP/1.1";
        return Err(FailedExchange {
            error: Error::new(ErrorKind::Unsupported, text).with_retryable(Retryable::Yes),
            replay: Some(body),
        });
    }
    // Counted before the stream is opened, so that requests in this phase are not all sent to one connection.
    let open = StreamPermit::new(conn);
    let reused = conn.exchanges.fetch_add(1, Ordering::Relaxed) > 0;
    *x.upstream = Some(UpstreamInfo { reused, ..conn.info.clone() });
    let message = head::request(request, &body, conn.info.tls.is_some())
        .map_err(|error| FailedExchange { error, replay: None })?;
    let held = super::http1::expects_continue(request, &body);
    let (future, upload) = open_stream(conn, message, body, held, tunnel, options).await?;
    let mut timer = DeadlineTimer::default();
    timer.arm(options.head_timeout);
    let mut run = Http2Exchange {
        open,
        future,
        upload,
        uploading: true,
        reused,
        held_until: held.then(|| Box::pin(tokio::time::sleep(CONTINUE_WAIT))),
        interim: 0,
        timer,
        options,
    };
    let outcome = poll_fn(|cx| run.poll_head(cx, x)).await;
    match outcome {
        Ok((head, recv, first)) => run.into_response(request, head, recv, first, tunnel),
        Err(error) => {
            let replay = if error.retryable() == Retryable::No { None } else { run.upload.body.into_replay() };
            Err(FailedExchange { error, replay })
        }
    }
}

/// Opens the stream as soon as the peer allows one more.
async fn open_stream(
    conn: &Http2Connection,
    message: http::Request<()>,
    body: Body,
    held: bool,
    tunnel: bool,
    options: &ExchangeOptions,
) -> Result<(ResponseFuture, Http2RequestWriter), FailedExchange> {
    let mut send = conn.send.clone();
    let refused = |error: h2::Error, body| {
        // New requests get another connection; streams that are open may finish.
        conn.retire();
        if let Some(error) = conn.flooded().or_else(|| conn.tls_failed()) {
            return FailedExchange { error, replay: None };
        }
        let text = "the HTTP/2 connection takes no more requests";
        let error = Error::new(ErrorKind::UpstreamClosed, text).with_source(error).with_retryable(Retryable::Yes);
        FailedExchange { error, replay: Some(body) }
    };
    match tokio::time::timeout(options.head_timeout, poll_fn(|cx| send.poll_ready(cx))).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(refused(error, body)),
        Err(_) => {
            let text = "no stream of the HTTP/2 connection became free in time";
            return Err(FailedExchange { error: Error::new(ErrorKind::PoolTimeout, text), replay: None });
        }
    }
    // END_STREAM is sent with the head if nothing follows.
    let whole = body.is_empty() && !tunnel;
    match send.send_request(message, whole) {
        Ok((future, stream)) => Ok((future, Http2RequestWriter::new(stream, body, held, whole || tunnel))),
        Err(error) if error.is_io() || error.is_go_away() => Err(refused(error, body)),
        Err(error) => {
            let text = "the request cannot be sent over HTTP/2";
            Err(FailedExchange { error: Error::new(ErrorKind::BadRequest, text).with_source(error), replay: None })
        }
    }
}

/// An exchange up to the head of its final response.
struct Http2Exchange<'a> {
    open: StreamPermit,
    future: ResponseFuture,
    upload: Http2RequestWriter,
    uploading: bool,
    reused: bool,
    held_until: Option<Pin<Box<Sleep>>>,
    interim: u32,
    timer: DeadlineTimer,
    options: &'a ExchangeOptions,
}

impl Http2Exchange<'_> {
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut UpstreamReport<'_>,
    ) -> Poll<Result<(ResponseHead, RecvStream, Option<Bytes>), Error>> {
        // Sending first: the response may depend on it.
        self.poll_upload(cx, x)?;
        while let Poll::Ready(Some(interim)) = self.future.poll_informational(cx) {
            let interim = interim.map_err(|e| self.error(&e))?;
            self.interim += 1;
            if self.interim > self.options.max_interim {
                let text = format!("the origin sent more than {} interim responses", self.options.max_interim);
                return Poll::Ready(Err(Error::new(ErrorKind::BadResponse, text)));
            }
            let go = self.upload.held && interim.status() == http::StatusCode::CONTINUE;
            (x.interim)(head::response(interim.into_parts().0));
            if go {
                self.release_body();
                // Polled again at once: the release itself wakes nobody.
                self.poll_upload(cx, x)?;
            }
        }
        if let Some(sleep) = &mut self.held_until
            // No 100 in time, see `CONTINUE_WAIT`.
            && sleep.as_mut().poll(cx).is_ready()
        {
            self.release_body();
            self.poll_upload(cx, x)?;
        }
        match Pin::new(&mut self.future).poll(cx) {
            Poll::Ready(Ok(response)) => {
                x.timings.first_byte = Some(x.clock.micros());
                let (parts, mut recv) = response.into_parts();
                head::check_limits(&parts.headers, &self.options.head)?;
                let first = first_data(&mut recv, cx).map_err(|e| self.error(&e))?;
                Poll::Ready(Ok((head::response(parts), recv, first)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.error(&error))),
            Poll::Pending => {
                // Ready only if the origin is to blame.
                ready!(self.poll_timeout(cx));
                let text = format!("the origin did not answer within {:?}", self.options.head_timeout);
                Poll::Ready(Err(Error::new(ErrorKind::UpstreamTimeout, text)))
            }
        }
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>, x: &mut UpstreamReport<'_>) -> Result<(), Error> {
        if !self.uploading {
            return Ok(());
        }
        let before = self.upload.written;
        if let Poll::Ready(end) = self.upload.poll(cx) {
            self.uploading = false;
            match end {
                UploadEnd::Sent => x.timings.request_sent = Some(x.clock.micros()),
                // The response tells why.
                UploadEnd::Stopped => {}
                UploadEnd::Body(error) => return Err(error),
            }
        }
        // Progress of the upload postpones the deadline for the response.
        if self.upload.written != before {
            self.timer.arm(self.options.head_timeout);
        }
        Ok(())
    }

    fn release_body(&mut self) {
        self.held_until = None;
        self.upload.held = false;
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // As for HTTP/1: while the client's own body is awaited, the origin is not to blame.
        while self.timer.poll(cx).is_ready() {
            if !self.uploading || !self.upload.waits_for_body() {
                return Poll::Ready(());
            }
            self.timer.arm(self.options.head_timeout);
        }
        Poll::Pending
    }

    fn error(&self, error: &h2::Error) -> Error {
        if let Some(flooded) = self.open.0.flooded() {
            // The peer would flood the next stream too.
            self.open.0.retire();
            return flooded;
        }
        let failed = stream_error(error, self.reused, || self.open.0.retire());
        match self.open.0.tls_failed().filter(|_| error.is_io()) {
            Some(ended) => ended.with_retryable(failed.retryable()),
            None => failed,
        }
    }

    fn into_response(
        mut self,
        request: &RequestHead,
        head: ResponseHead,
        mut recv: RecvStream,
        first: Option<Bytes>,
        tunnel: bool,
    ) -> Result<UpstreamResponse, FailedExchange> {
        // RFC 8441 section 5: any 2xx accepts the extended CONNECT.
        if tunnel && head.status.is_success() {
            let io = IoStream::other(H2Stream::new(self.upload.into_stream(), recv, self.open))
                .prefixed(first.unwrap_or_default());
            return Ok(UpstreamResponse { head, body: Body::Empty, upgrade: Some(io) });
        }
        // After an early error response, the rest of the body need not be sent; dropping the upload resets its half.
        self.uploading &= head.status.as_u16() < 300;
        self.upload.held = false;
        self.upload.body.forget();
        let length = first.as_ref().map_or(0, Bytes::len);
        let idle = self.options.body_timeout;
        let upload = self.uploading.then(|| Box::new(self.upload));
        // The whole response is here: its end goes with its head, as gRPC's Trailers-Only must.
        if recv.is_end_stream() {
            // The stream is closed, so its window no longer matters.
            let _ = recv.flow_control().release_capacity(length);
            if let Some(upload) = upload {
                finish_upload(&self.open, upload, self.timer, idle);
            }
            return Ok(UpstreamResponse { head, body: Body::from(first.unwrap_or_default()), upgrade: None });
        }
        // Known lengths let the client's side use `Content-Length` rather than chunks.
        let remaining = head::length(request, &head);
        let body = Http2ResponseBody::new(self.open, recv, first, remaining, upload, self.timer, idle);
        Ok(UpstreamResponse { head, body: Body::stream(body), upgrade: None })
    }
}

/// Data that was received together with the head.
fn first_data(recv: &mut RecvStream, cx: &mut Context<'_>) -> Result<Option<Bytes>, h2::Error> {
    if recv.is_end_stream() {
        return Ok(None);
    }
    match recv.poll_data(cx) {
        Poll::Ready(Some(data)) => data.map(|d| Some(d).filter(|d| !d.is_empty())),
        _ => Ok(None),
    }
}

/// Maps a stream error to the flow's error.
fn stream_error(error: &h2::Error, reused: bool, retire: impl FnOnce()) -> Error {
    // RFC 9113 8.7: both guarantee that the request was not processed, so even a non-idempotent one may be retried.
    let refused = error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
    if error.is_io() || error.is_go_away() {
        retire();
    }
    let retry = if refused || error.reason() == Some(Reason::HTTP_1_1_REQUIRED) {
        Retryable::Yes
    } else if reused && error.is_io() {
        Retryable::ReusedOnly
    } else {
        Retryable::No
    };
    let (kind, text) = match error.reason() {
        Some(Reason::HTTP_1_1_REQUIRED) => (ErrorKind::Unsupported, "the origin wants this request over HTTP/1.1"),
        // `h2` reports a head that is far over the limit like this, too.
        Some(Reason::PROTOCOL_ERROR | Reason::ENHANCE_YOUR_CALM | Reason::COMPRESSION_ERROR) if error.is_library() => (
            ErrorKind::BadResponse,
            "the origin violates the HTTP/2 protocol, or its head is far larger than limits.max_header_bytes allows",
        ),
        _ if error.is_library() => (ErrorKind::BadResponse, "the origin violates the HTTP/2 protocol"),
        _ if error.is_io() => (ErrorKind::UpstreamClosed, "the origin closed the HTTP/2 connection without a response"),
        _ => (ErrorKind::UpstreamClosed, "the origin reset the HTTP/2 stream"),
    };
    // As text: the `h2` error does not leave this crate.
    Error::new(kind, text).with_source(error.to_string()).with_retryable(retry)
}
