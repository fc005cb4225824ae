//! The HTTP/1 server: parses heads, streams bodies, and sends responses in order, on one connection in one task (RFC
//! 9112).
//!
//! The driver alternates between four states. [`HeadReader`] waits for a head; [`Http1Driver::run`] polls the service;
//! [`Http1Driver::respond`] writes the response; [`Http1Driver::finish`] discards what is left of the request body and
//! decides whether the connection is reused. Every state also watches the socket, because a client that disconnects
//! must cancel the work done for it at once. An upgrade leaves the loop with the raw stream.
//!
//! Pipelined requests are read ahead but served one after the other, which keeps the responses in order (RFC 9112
//! 9.3.2).

mod conn_state;
mod framing;
mod head;
#[cfg(test)]
mod tests;
mod write_buf;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use interflow_codec::h1::{self, BodyDecoder, BodyFraming, RequestLine};
use interflow_types::{
    Body, BodyFrame, Error, ErrorKind, FlowClock, Headers, HttpVersion, Method, Response, ResponseHead, name,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use self::conn_state::{ConnState, Http1RequestBody, RequestBodyState, SharedConn};
use self::framing::{RequestFacts, ResponseFraming};
use self::head::{HeadReader, NextEvent};
use self::write_buf::WriteBuf;
use super::Drain;
use super::service::{HttpOptions, HttpService, IncomingRequest, InformationalSender, OnUpgrade, ServiceReply};
use crate::deadline_timer::{DeadlineTimer, while_moving};
use crate::io::IoStream;

/// The most bytes that a lingering close discards, so that a client that is still sending can read its response.
const MAX_LINGER_BYTES: usize = 8 << 20;

/// Serves HTTP/1.0 and HTTP/1.1 on a connection until it ends or has drained, or, after an upgrade, until that ends.
///
/// # Errors
/// What ended the connection, if that was not an orderly close: a malformed head (which has been answered), a client
/// that disconnected in the middle of something or was too slow, or a body that failed.
pub async fn serve_http1<S: HttpService>(
    io: IoStream,
    options: &HttpOptions,
    drain: Drain,
    service: Arc<S>,
) -> Result<(), Error> {
    // Boxed, so that a tunnel does not hold the driver's room for as long as it lasts.
    let end = Box::pin(Http1Driver::new(io, options, drain).serve(&*service)).await?;
    if let ConnectionEnd::Upgraded(io, then) = end {
        then(io).await;
    }
    Ok(())
}

enum ConnectionEnd {
    Closed,
    Upgraded(IoStream, OnUpgrade),
}

struct Http1Driver<'a> {
    link: Arc<SharedConn>,
    writer: ResponseWriter,
    options: &'a HttpOptions,
    drain: Drain,
    alarm: DeadlineTimer,
}

/// Queued output with a timeout. The time counts from the client's last read, so a slow client with steady progress is
/// never disconnected.
struct ResponseWriter {
    out: WriteBuf,
    limit: Duration,
    alarm: DeadlineTimer,
    /// How much was queued when the client last read something, and when that was.
    blocked: Option<(usize, Instant)>,
}

impl ResponseWriter {
    fn new(limit: Duration) -> Self {
        Self { out: WriteBuf::default(), limit, alarm: DeadlineTimer::default(), blocked: None }
    }

    /// Queues the interim responses that the service sent.
    fn take_interim(&mut self, state: &mut ConnState) {
        if let Some(queue) = &mut state.interim
            && !queue.is_empty()
        {
            self.out.append_with(|b| b.append(queue));
        }
    }

    /// Writes everything that is queued.
    fn poll(&mut self, cx: &mut Context<'_>, state: &mut ConnState) -> Poll<Result<(), Error>> {
        if self.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        match self.out.poll_drain(cx, &mut state.io) {
            Poll::Ready(done) => {
                // Nothing is blocked any more, whatever the outcome.
                self.blocked = None;
                Poll::Ready(done.map_err(client_gone))
            }
            Poll::Pending => {
                // The socket accepts data in portions. Each portion shrinks the queue and restarts the time.
                let pending = self.out.pending();
                // The same amount as before: the client has read nothing since.
                let (_, since) = match self.blocked {
                    Some((before, since)) if before == pending => (before, since),
                    _ => *self.blocked.insert((pending, Instant::now())),
                };
                ready!(self.alarm.poll_at(cx, since + self.limit));
                let message = format!("the client took nothing of its response for {:?}", self.limit);
                Poll::Ready(Err(Error::new(ErrorKind::ClientTimeout, message)))
            }
        }
    }

    /// Queues a frame of a response body; returns whether more may follow.
    fn queue_frame(
        &mut self,
        content: &mut ResponseFraming,
        frame: Option<Result<BodyFrame, Error>>,
    ) -> Result<bool, Error> {
        let more = match frame {
            // Polled once, so that observers of a body without content see its end.
            _ if *content == ResponseFraming::None => return Ok(false),
            // A HEAD response, for instance, ends here whatever its body would be.
            None => content.end(&mut self.out).map(|()| false),
            Some(frame) => content.frame(&mut self.out, frame?).map(|()| true),
        };
        more.map_err(|_| Error::new(ErrorKind::Internal, "a response body is not as long as its head says"))
    }
}

impl<'a> Http1Driver<'a> {
    fn new(io: IoStream, options: &'a HttpOptions, drain: Drain) -> Self {
        let link = SharedConn::new(io, options);
        Self {
            link,
            writer: ResponseWriter::new(options.write_timeout),
            options,
            drain,
            alarm: DeadlineTimer::default(),
        }
    }

    async fn serve<S: HttpService>(mut self, service: &S) -> Result<ConnectionEnd, Error> {
        let mut wait = HeadReader::default();
        loop {
            let (line, clock) = match self.next_head(&mut wait).await {
                NextEvent::Request(line, clock) => (line, clock),
                NextEvent::End => {
                    self.close().await;
                    return Ok(ConnectionEnd::Closed);
                }
                NextEvent::Gone(error) => return Err(error),
                NextEvent::Refuse(error) => return self.refuse(service, error).await,
            };
            let asked = RequestFacts::new(&line);
            let incoming = match self.incoming(line, clock) {
                Ok(incoming) => incoming,
                Err(error) => return self.refuse(service, error).await,
            };
            match self.run(service.call(incoming)).await? {
                ServiceReply::Response(response) => {
                    if !self.respond(&asked, response).await? {
                        return Ok(ConnectionEnd::Closed);
                    }
                }
                ServiceReply::Upgrade(head, then) => {
                    let io = self.upgrade(head).await?;
                    return Ok(ConnectionEnd::Upgraded(io, then));
                }
                ServiceReply::Abort(error) => {
                    // An orderly close would look like a response without content.
                    // On TCP, a reset; nothing was written that could be taken for a response.
                    self.link.lock().io.reset_on_drop();
                    return Err(error);
                }
            }
        }
    }

    /// Waits for the next request's head, or a reason to stop; frees memory meanwhile.
    async fn next_head(&mut self, wait: &mut HeadReader) -> NextEvent {
        poll_fn(|cx| {
            let state = &mut *self.link.lock();
            let next = wait.poll(cx, state, &mut self.alarm, &mut self.drain, self.options);
            if next.is_pending() {
                // Idle: the output buffer and the read buffer are released until the next byte arrives.
                self.writer.out = WriteBuf::default();
                state.release();
            }
            next
        })
        .await
    }

    /// Starts the next exchange.
    fn incoming(&mut self, line: RequestLine, clock: FlowClock) -> Result<IncomingRequest, Error> {
        // Ambiguous framing is an error here, so no body is ever guessed.
        let framing = h1::request_framing(line.version, &line.method, &line.headers)?;
        let state = &mut *self.link.lock();
        // A body or interim sender of the previous exchange that is still alive becomes invalid with this.
        state.exchange += 1;
        state.body_started = false;
        let interim = match line.version {
            // HTTP/1.0 has no interim responses (RFC 9110 15.2).
            HttpVersion::Http11 => {
                state.interim = Some(Vec::new());
                InformationalSender::new(self.link.clone(), state.exchange)
            }
            _ => InformationalSender::default(),
        };
        // After the exchange's number was set, which the body carries.
        let body = self.body(state, framing);
        let RequestLine { method, target, version, headers } = line;
        Ok(IncomingRequest { method, target, version, headers, protocol: None, body, interim, clock, opening: None })
    }

    /// The body as a whole if all of it has arrived, otherwise as a stream over the connection.
    fn body(&self, state: &mut ConnState, framing: BodyFraming) -> Body {
        state.upload = RequestBodyState::Done;
        let whole = match framing {
            BodyFraming::None | BodyFraming::Length(0) => return Body::Empty,
            BodyFraming::Length(n) => state.take_bytes(n),
            BodyFraming::Chunked | BodyFraming::UntilClose => None,
        };
        if let Some(whole) = whole {
            // In one piece: no stream and no lock while the service reads it.
            return Body::Full(whole);
        }
        state.open_body(BodyDecoder::new(framing, &self.options.head));
        Body::stream(Http1RequestBody { link: self.link.clone(), exchange: state.exchange, ended: false })
    }

    /// Runs the service, relays its interim responses, and stops it if the client disconnects.
    async fn run(&mut self, call: impl Future<Output = ServiceReply>) -> Result<ServiceReply, Error> {
        let Self { link, writer, .. } = self;
        let mut call = pin!(call);
        poll_fn(|cx| {
            // First the service: a response that is ready wins over a disconnect noticed in the same poll.
            if let Poll::Ready(outgoing) = call.as_mut().poll(cx) {
                return Poll::Ready(Ok(outgoing));
            }
            let state = &mut *link.lock();
            state.set_driver_waker(cx.waker());
            writer.take_interim(state);
            // A pending write does not hold up the service: it is polled again when the socket is writable.
            if let Poll::Ready(Err(error)) = writer.poll(cx, state) {
                return Poll::Ready(Err(error));
            }
            // The disconnect drops the call, and with it the work for it.
            state.poll_client_gone(cx).map(|e| Err(client_gone(e)))
        })
        .await
    }

    /// Sends a response; returns whether the connection can be reused.
    async fn respond(&mut self, asked: &RequestFacts, response: Response) -> Result<bool, Error> {
        let Response { mut head, mut body } = response;
        if head.status.is_informational() {
            // 1xx is never final; sending it would make the client wait for another response.
            self.link.lock().io.reset_on_drop();
            return Err(Error::new(ErrorKind::Internal, format!("{} cannot be a final response", head.status)));
        }
        let mut content = ResponseFraming::choose(asked, head.status, body.remaining());
        let keep_alive = self.can_keep_alive(asked, &head.headers) && content != ResponseFraming::UntilClose;
        content.write_headers(&mut head, asked, keep_alive);
        self.writer.out.append_with(|b| h1::write_response_head(b, &head));
        // The body may be streamed for hours, and the head is not needed for it.
        drop(head);
        if let Err(error) = self.send(&mut content, &mut body).await {
            self.abort_response(content).await;
            return Err(error);
        }
        drop(body);
        self.finish(keep_alive).await
    }

    /// Ends the interim responses, and decides whether the connection can be reused after the response.
    fn can_keep_alive(&mut self, asked: &RequestFacts, headers: &Headers) -> bool {
        let state = &mut *self.link.lock();
        // What the service sent before its response is written before it.
        self.writer.take_interim(state);
        // From now on, interim responses are ignored.
        state.interim = None;
        let upload = match &state.upload {
            RequestBodyState::Done => true,
            RequestBodyState::Failed => false,
            // The client may or may not send the announced body, so what follows would be ambiguous.
            _ if asked.expects && !state.body_started && state.buf.is_empty() => false,
            // The response's body may still be reading it. What is left of it afterwards is discarded in `finish`.
            RequestBodyState::Open(_) => true,
            // A short rest is cheaper to read than a new connection.
            RequestBodyState::Abandoned(d) => d.remaining().is_none_or(|n| n <= self.options.drain_bytes),
        };
        // Bytes after a refused CONNECT were meant for the tunnel.
        let tunnel_bytes = asked.method == Method::CONNECT && !state.buf.is_empty();
        asked.keep_alive
            && upload
            && !tunnel_bytes
            && !self.drain.is_draining()
            && !headers.has_token(name::CONNECTION, "close")
    }

    /// Writes the queued head and the body, with as few writes as possible; what is available is sent before waiting
    /// for more.
    async fn send(&mut self, content: &mut ResponseFraming, body: &mut Body) -> Result<(), Error> {
        let Self { link, writer, .. } = self;
        let mut open = true;
        poll_fn(|cx| {
            loop {
                let mut starved = false;
                // Frames that are ready are gathered first, so that a head and a short body leave in one system call.
                while open && !starved && writer.out.has_room() {
                    match body.poll_frame(cx) {
                        Poll::Pending => starved = true,
                        // Not under the lock: the body may be the request's own (an echo), which takes it.
                        Poll::Ready(frame) => open = writer.queue_frame(content, frame)?,
                    }
                }
                let state = &mut *link.lock();
                ready!(writer.poll(cx, state))?;
                // Everything is written, and flushed to the socket.
                if !open {
                    return Poll::Ready(Ok(()));
                }
                // Otherwise the queue was full: it has been written, and the loop takes more frames.
                if starved {
                    state.set_driver_waker(cx.waker());
                    return state.poll_client_gone(cx).map(|e| Err(client_gone(e)));
                }
            }
        })
        .await
    }

    /// Ends a connection in the middle of a response, such that the client cannot take it for complete.
    async fn abort_response(&mut self, content: ResponseFraming) {
        poll_fn(|cx| {
            let state = &mut *self.link.lock();
            // The output queued before the failure is still sent if the client reads it at once.
            let _ = self.writer.out.poll_drain(cx, &mut state.io);
            // The end of the connection is the end of such a body, so only a reset tells that it failed.
            if content == ResponseFraming::UntilClose {
                state.io.reset_on_drop();
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Ends the exchange; returns whether the connection can be reused.
    async fn finish(&mut self, keep_alive: bool) -> Result<bool, Error> {
        if matches!(self.link.lock().upload, RequestBodyState::Open(_)) {
            Box::pin(self.upload_ended()).await;
        }
        let done = {
            let mut state = self.link.lock();
            // From here on, reading this request's body fails.
            // Numbers are compared on each access, so a body that outlives its exchange is harmless.
            state.end_exchange();
            matches!(state.upload, RequestBodyState::Done)
        };
        if keep_alive && (done || self.discard().await) {
            return Ok(true);
        }
        if done {
            self.close().await
        } else {
            // The client is still sending, see `linger`.
            self.linger().await
        }
        Ok(false)
    }

    /// Waits for the rest of a request body that is still read after the response, as long as it makes progress.
    async fn upload_ended(&mut self) {
        while_moving(DeadlineTimer::default(), self.options.body_timeout, |cx| {
            let state = &mut *self.link.lock();
            if !matches!(state.upload, RequestBodyState::Open(_)) {
                return (Poll::Ready(true), state.body_bytes);
            }
            state.set_driver_waker(cx.waker());
            (state.poll_client_gone(cx).map(|_| false), state.body_bytes)
        })
        .await;
    }

    /// Reads and discards the rest of an unread request body; false if it is too long.
    async fn discard(&mut self) -> bool {
        let deadline = Instant::now() + self.options.drain_timeout;
        let mut left = self.options.drain_bytes;
        poll_fn(|cx| {
            let mut state = self.link.lock();
            loop {
                match state.poll_body(cx) {
                    Poll::Ready(None) => return Poll::Ready(true),
                    // More than the operator's limit: closing is cheaper.
                    Poll::Ready(Some(Ok(BodyFrame::Data(data)))) => match left.checked_sub(data.len() as u64) {
                        Some(rest) => left = rest,
                        None => return Poll::Ready(false),
                    },
                    Poll::Ready(Some(Ok(BodyFrame::Trailers(_)))) => {}
                    Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                    // One deadline for the whole rest, however steadily it arrives.
                    Poll::Pending => return self.alarm.poll_at(cx, deadline).map(|()| false),
                }
            }
        })
        .await
    }

    /// Sends the response to a malformed head, and closes.
    async fn refuse<S: HttpService>(&mut self, service: &S, error: Error) -> Result<ConnectionEnd, Error> {
        // Nothing that follows a malformed head is read as a request.
        self.link.lock().upload = RequestBodyState::Failed;
        // The request could not be parsed. With these values the response has content and is followed by a close.
        let asked =
            RequestFacts { method: Method::GET, version: HttpVersion::Http11, keep_alive: false, expects: false };
        self.respond(&asked, service.error_response(&error)).await?;
        Err(error)
    }

    /// Writes the head of an upgrade and takes the stream out.
    async fn upgrade(&mut self, mut head: ResponseHead) -> Result<IoStream, Error> {
        // Its rest would otherwise be taken for the new protocol.
        if !matches!(self.link.lock().upload, RequestBodyState::Done) {
            return Err(Error::new(ErrorKind::BadRequest, "a request whose body was not read cannot be upgraded"));
        }
        // RFC 9110 9.3.6 and 15.2.2: neither kind of head has framing fields.
        head.headers.remove(name::CONTENT_LENGTH);
        head.headers.remove(name::TRANSFER_ENCODING);
        let Self { link, writer, .. } = self;
        writer.take_interim(&mut link.lock());
        writer.out.append_with(|b| h1::write_response_head(b, &head));
        poll_fn(|cx| writer.poll(cx, &mut link.lock())).await?;
        let state = &mut *link.lock();
        let leftover = std::mem::take(&mut state.buf).freeze();
        // The client may have sent the new protocol's first bytes with its request.
        Ok(std::mem::replace(&mut state.io, IoStream::closed()).prefixed(leftover))
    }

    /// Closes both directions; nothing more is expected from the client.
    async fn close(&mut self) {
        let mut io = std::mem::replace(&mut self.link.lock().io, IoStream::closed());
        // The peer may be gone, or never read the rest: either way it is over.
        let _ = timeout(self.options.drain_timeout, io.shutdown()).await;
    }

    /// Half-closes, and for a while discards what the client is still sending: closing at once would reset the
    /// connection and could destroy the response before the client has read it (RFC 9112 9.6).
    async fn linger(&mut self) {
        let mut io = std::mem::replace(&mut self.link.lock().io, IoStream::closed());
        let read = async {
            if io.shutdown().await.is_err() {
                return;
            }
            let mut scratch = vec![0; 16 * 1024];
            let mut left = MAX_LINGER_BYTES;
            while let Ok(n @ 1..) = io.read(&mut scratch).await {
                left = left.saturating_sub(n);
                if left == 0 {
                    // The bound on bytes; the timeout below bounds the time.
                    return;
                }
            }
        };
        let _ = timeout(self.options.drain_timeout, read).await;
    }
}

impl Drop for Http1Driver<'_> {
    /// A request body that is still held must not keep the connection open.
    fn drop(&mut self) {
        let mut state = self.link.lock();
        state.end_exchange();
        state.interim = None;
        state.io = IoStream::closed();
    }
}

fn client_gone(e: std::io::Error) -> Error {
    Error::new(ErrorKind::ClientGone, "the client disconnected").with_source(e)
}
