//! The HTTP/2 server: the `h2` crate handles frames, and each stream is served in a task of its own (RFC 9113, RFC
//! 8441).
//!
//! One task per connection polls `h2` for new streams, which also drives the reading and writing of all others, and
//! watches for shutdown, idleness and abuse. The streams' tasks exchange data with it through `h2`'s buffers; flow
//! control bounds both: a stream's window for what the client sends, the send buffer for what it has not read.

mod body;
mod heads;
mod preface;
mod response;
#[cfg(test)]
mod tests;
mod write_timeout;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use interflow_codec::h1::HeadLimits;
use interflow_types::{Body, Error, ErrorKind, ErrorSource, FlowClock, Method, ResponseHead};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use self::body::StreamBody;
use self::preface::{PrefaceFingerprint, PrefaceTap};
use self::response::ResponseSender;
use self::write_timeout::WriteTimeoutIo;
use super::Drain;
use super::service::{HttpOptions, HttpService, IncomingRequest, InformationalSender, SendInformational, ServiceReply};
use crate::deadline_timer::DeadlineTimer;
use crate::http2_control::FloodFlag;
use crate::io::IoStream;

/// A client that cancels more requests than this within [`CANCEL_WINDOW`] is disconnected, because each of them costs
/// a request to an origin (CVE-2023-44487).
const MAX_CANCELLED: u32 = 1000;
const CANCEL_WINDOW: Duration = Duration::from_secs(10);
/// The most interim responses of one stream; excess ones are dropped.
const MAX_INTERIM: u32 = 64;

/// Serves HTTP/2 on a connection until it ends or has drained. Streams run in tasks of their own, which end with the
/// connection.
///
/// # Errors
/// What ended the connection, if that was not an orderly close: a protocol violation, or the client disconnected.
pub async fn serve_http2<S: HttpService>(
    io: IoStream,
    options: &HttpOptions,
    drain: Drain,
    service: Arc<S>,
) -> Result<(), Error> {
    let (io, opening, flood) = PrefaceTap::new(WriteTimeoutIo::new(io, options.write_timeout));
    let handshake = builder(options).handshake(io);
    // Bounded like a request's head: a client that stalls must not hold the connection.
    let connection = timeout(options.head_timeout, handshake)
        .await
        .map_err(|_| Error::new(ErrorKind::ClientTimeout, "the client's HTTP/2 preface was not complete in time"))?
        .map_err(|e| connection_error(&e))?;
    let shared = Arc::new(Http2Shared {
        service,
        opening,
        head: options.head,
        body_timeout: options.body_timeout,
        write_timeout: options.write_timeout,
        cancelled: AtomicU32::new(0),
    });
    let mut driver = Http2Driver {
        connection,
        shared,
        options,
        drain,
        alarm: DeadlineTimer::default(),
        idle: None,
        closing: None,
        span: Instant::now(),
        stormy: None,
        flood,
    };
    poll_fn(|cx| driver.poll(cx)).await
}

fn builder(options: &HttpOptions) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(options.stream_window)
        .initial_connection_window_size(options.connection_window)
        .max_concurrent_streams(options.max_streams)
        // `h2` answers a larger head with a 431 that says nothing, so heads over the limit are read up to this size to
        // be answered and recorded, see `heads::request`.
        .max_header_list_size(u32::try_from(options.head.max_bytes.saturating_mul(4)).unwrap_or(u32::MAX))
        .max_send_buffer_size(options.send_buffer)
        // For WebSockets over HTTP/2 (RFC 8441).
        .enable_connect_protocol();
    builder
}

/// State shared by a connection and its streams.
struct Http2Shared<S> {
    service: Arc<S>,
    opening: PrefaceFingerprint,
    head: HeadLimits,
    body_timeout: Duration,
    write_timeout: Duration,
    /// Requests that the client cancelled in the current window.
    cancelled: AtomicU32,
}

struct Http2Driver<'a, S> {
    connection: Connection<PrefaceTap, Bytes>,
    shared: Arc<Http2Shared<S>>,
    options: &'a HttpOptions,
    drain: Drain,
    alarm: DeadlineTimer,
    /// Since when there is no stream.
    idle: Option<Instant>,
    /// Since when the connection is being shut down.
    closing: Option<Instant>,
    /// The start of the current window for counting cancellations.
    span: Instant,
    /// The abuse for which the connection is being closed.
    stormy: Option<Error>,
    /// Set if the client sends too many frames that carry no request.
    flood: FloodFlag,
}

impl<S: HttpService> Http2Driver<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.closing.is_none() && self.drain.poll_drained(cx).is_ready() {
            self.shut_down();
        }
        loop {
            let accepted = self.connection.poll_accept(cx);
            // The flag is set while `poll_accept` reads, so it is checked right after.
            if self.stormy.is_none() && self.flood.load(Ordering::Relaxed) {
                self.close_with_error(frame_flood_error());
                // `h2` writes GOAWAY when it is polled again.
                continue;
            }
            match accepted {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    // A request is not an idle time, even if it is cancelled at once.
                    self.idle = None;
                    self.check_cancelled();
                    // A task per stream, so that a slow service delays no other stream.
                    tokio::spawn(serve_stream(self.shared.clone(), request, respond));
                }
                // GOAWAY with the reason has been written: the connection may end.
                Poll::Ready(_) if self.stormy.is_some() => {
                    return Poll::Ready(Err(self.stormy.take().unwrap_or_else(cancel_flood_error)));
                }
                // A client may close the connection at any time while no request is in progress.
                Poll::Ready(Some(Err(e))) if e.is_io() && (self.idle.is_some() || self.closing.is_some()) => {
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Err(connection_error(&e))),
                // `h2` has closed the connection in an orderly way.
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return self.poll_idle(cx),
            }
        }
    }

    /// Called if nothing new has arrived: shuts an idle connection down in time, and closes one in shutdown whose
    /// client no longer responds.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.connection.has_streams() {
            // The streams have timeouts of their own.
            self.idle = None;
            return Poll::Pending;
        }
        let idle = *self.idle.get_or_insert_with(Instant::now);
        if self.closing.is_none() {
            if self.alarm.poll_at(cx, idle + self.options.idle_timeout).is_pending() {
                return Poll::Pending;
            }
            self.shut_down();
            // GOAWAY is written when the connection is polled again.
            cx.waker().wake_by_ref();
        }
        // A connection whose streams have ended, but whose client does not close it, is dropped after this time.
        // The later of both: streams that were open when the shutdown began are waited for.
        let since = self.closing.map_or(idle, |closing| closing.max(idle));
        self.alarm.poll_at(cx, since + self.options.drain_timeout).map(Ok)
    }

    fn shut_down(&mut self) {
        // GOAWAY; requests that the client sent before it receives that are still served (RFC 9113 6.8).
        self.connection.graceful_shutdown();
        self.closing = Some(Instant::now());
    }

    fn close_with_error(&mut self, why: Error) {
        self.stormy = Some(why);
        self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    }

    fn check_cancelled(&mut self) {
        // The window restarts only when the count is exceeded: no clock is read for each request, and a client that
        // cancels slowly over hours is not affected.
        if self.shared.cancelled.load(Ordering::Relaxed) <= MAX_CANCELLED {
            return;
        }
        if self.span.elapsed() < CANCEL_WINDOW {
            self.close_with_error(cancel_flood_error());
        }
        self.span = Instant::now();
        self.shared.cancelled.store(0, Ordering::Relaxed);
    }
}

/// Sends the stream's responses, up to the final one.
struct StreamResponder {
    respond: Mutex<(Option<SendResponse<Bytes>>, u32)>,
}

impl SendInformational for StreamResponder {
    fn send(&self, _exchange: u64, head: ResponseHead) {
        let (respond, sent) = &mut *self.respond.lock();
        if let Some(respond) = respond
            // Interim responses have no flow control, so their number is bounded instead.
            && *sent < MAX_INTERIM
        {
            *sent += 1;
            // A closed stream needs no interim response.
            let _ = respond.send_informational(heads::response(&head));
        }
    }
}

impl StreamResponder {
    /// Ready if the client cancels its request, or the connection ends.
    fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.respond.lock().0 {
            Some(respond) => respond.poll_reset(cx).map(drop),
            // The final response took it.
            None => Poll::Ready(()),
        }
    }

    fn take(&self) -> Option<SendResponse<Bytes>> {
        self.respond.lock().0.take()
    }
}

async fn serve_stream<S: HttpService>(
    shared: Arc<Http2Shared<S>>,
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let clock = FlowClock::start();
    let (parts, recv) = request.into_parts();
    let method = parts.method.clone();
    // Shared with the interim sender; the final response takes it out, which ends interim responses.
    let answering = Arc::new(StreamResponder { respond: Mutex::new((Some(respond), 0)) });
    let (body, tunnel) = match method {
        // The stream of a CONNECT carries the tunnel, so it is kept whole and not offered as a body.
        Method::CONNECT => (Body::Empty, Some(recv)),
        _ => (StreamBody::open(recv, &parts.headers, shared.body_timeout), None),
    };
    let outgoing = match heads::request(parts, &shared.head) {
        Ok(head) => {
            let interim = InformationalSender::new(answering.clone(), 0);
            let heads::Http2RequestHead { method, target, headers, protocol } = head;
            let version = interflow_types::HttpVersion::H2;
            let opening = shared.opening.get().cloned();
            let incoming =
                IncomingRequest { method, target, version, headers, protocol, body, interim, clock, opening };
            let mut call = std::pin::pin!(shared.service.call(incoming));
            let outgoing = poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Ready(outgoing) => Poll::Ready(Some(outgoing)),
                Poll::Pending => answering.poll_reset(cx).map(|()| None),
            });
            // The call is dropped with this task, which cancels the upstream request.
            let Some(outgoing) = outgoing.await else {
                shared.cancelled.fetch_add(1, Ordering::Relaxed);
                return;
            };
            outgoing
        }
        // A malformed request is answered on its stream; others are not affected.
        Err(error) => ServiceReply::Response(shared.service.error_response(&error)),
    };
    // `None` only if the stream was answered already.
    let Some(respond) = answering.take() else { return };
    let mut reply = ResponseSender { respond, method, write_timeout: shared.write_timeout };
    match outgoing {
        ServiceReply::Response(response) => {
            // A CONNECT that was refused: what the client sends into the tunnel is discarded.
            drop(tunnel);
            // A client that resets while its response is sent counts too: the origin has done the work.
            if reply.send_response(response).await.is_err() {
                shared.cancelled.fetch_add(1, Ordering::Relaxed);
            }
        }
        ServiceReply::Upgrade(head, then) => {
            if let Some(io) = tunnel.and_then(|recv| reply.tunnel(&head, recv)) {
                then(io).await;
            }
        }
        // A reset concerns this stream only.
        ServiceReply::Abort(error) => reply.reset(&error),
    }
}

fn cancel_flood_error() -> Error {
    let message = format!("the client cancelled more than {MAX_CANCELLED} HTTP/2 requests within {CANCEL_WINDOW:?}");
    Error::new(ErrorKind::Limited, message).with_error_source(ErrorSource::Client)
}

fn frame_flood_error() -> Error {
    let message = "the client sent too many HTTP/2 frames that carry no request (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, \
                   RST_STREAM, or empty ones)";
    Error::new(ErrorKind::Limited, message).with_error_source(ErrorSource::Client)
}

fn connection_error(e: &h2::Error) -> Error {
    if e.is_library() && e.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
        let message = "the client's HTTP/2 connection was closed: a request's head is many times larger than \
                       limits.max_header_bytes allows, or the client ignores limits on its frames";
        return Error::new(ErrorKind::HeadTooLarge, format!("{message}: {e}"));
    }
    let kind = if e.is_io() { ErrorKind::ClientGone } else { ErrorKind::BadRequest };
    Error::new(kind, format!("the client's HTTP/2 connection broke: {e}"))
}
