//! The HTTP/1 server driver: heads in, bodies handed out as they come, responses out, in order, on one connection
//! and in one task (RFC 9112).

mod framing;
mod head;
mod link;
mod out;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use interflow_flow::{Body, Clock, Error, Frame, Headers, Kind, Method, Response, ResponseHead, Version, name};
use interflow_wire::h1::{self, BodyDecoder, Framing, RequestLine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use self::framing::{Asked, Content};
use self::head::{Next, Wait};
use self::link::{IncomingBody, Link, State, Upload};
use self::out::Out;
use super::Drain;
use super::alarm::Alarm;
use super::service::{HttpOptions, Incoming, Interim, OnUpgrade, Outgoing, Service};
use crate::io::Io;

/// What a lingering close reads off at most, so that a client still sending gets to read its answer.
const LINGER_BYTES: usize = 8 << 20;

/// Serves HTTP/1.0 and HTTP/1.1 on a connection until it ends, is upgraded and that ends, or the drain is through.
///
/// # Errors
/// What ended the connection, when that was not the peers' orderly close: a head that could not be read (it has been
/// answered), a client that went away in the middle of something or was too slow, a body that broke off.
pub async fn serve_http1<S: Service>(
    io: Io,
    options: &HttpOptions,
    drain: Drain,
    service: Arc<S>,
) -> Result<(), Error> {
    let end = Driver::new(io, options, drain).serve(&*service).await?;
    if let End::Upgraded(io, then) = end {
        then(io).await;
    }
    Ok(())
}

enum End {
    Closed,
    Upgraded(Io, OnUpgrade),
}

struct Driver<'a> {
    link: Arc<Link>,
    writer: Writer,
    options: &'a HttpOptions,
    drain: Drain,
    alarm: Alarm,
}

/// What is to be written, and how long the client has taken none of it.
struct Writer {
    out: Out,
    limit: Duration,
    alarm: Alarm,
    /// How much was still to be written when the client last took something, and when that was.
    blocked: Option<(usize, Instant)>,
}

impl Writer {
    fn new(limit: Duration) -> Self {
        Self { out: Out::default(), limit, alarm: Alarm::default(), blocked: None }
    }

    /// Queues the interim responses that the service sent.
    fn take_interim(&mut self, state: &mut State) {
        if let Some(queue) = &mut state.interim
            && !queue.is_empty()
        {
            self.out.add(|b| b.append(queue));
        }
    }

    /// Writes all that is queued.
    fn poll(&mut self, cx: &mut Context<'_>, state: &mut State) -> Poll<Result<(), Error>> {
        if self.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        match self.out.poll_drain(cx, &mut state.io) {
            Poll::Ready(done) => {
                self.blocked = None;
                Poll::Ready(done.map_err(gone))
            }
            Poll::Pending => {
                let pending = self.out.pending();
                let (_, since) = match self.blocked {
                    Some((before, since)) if before == pending => (before, since),
                    _ => *self.blocked.insert((pending, Instant::now())),
                };
                ready!(self.alarm.poll(cx, since + self.limit));
                let message = format!("the client took nothing of its response for {:?}", self.limit);
                Poll::Ready(Err(Error::new(Kind::ClientTimeout, message)))
            }
        }
    }

    /// Queues a frame of a response body; says whether another may come.
    fn queue(&mut self, content: &mut Content, frame: Option<Result<Frame, Error>>) -> Result<bool, Error> {
        let more = match frame {
            // One poll lets a body without content tell whoever watches it that it is over.
            _ if *content == Content::None => return Ok(false),
            None => content.end(&mut self.out).map(|()| false),
            Some(frame) => content.frame(&mut self.out, frame?).map(|()| true),
        };
        more.map_err(|_| Error::new(Kind::Internal, "a response body is not as long as its head says"))
    }
}

impl<'a> Driver<'a> {
    fn new(io: Io, options: &'a HttpOptions, drain: Drain) -> Self {
        let link = Link::new(io, options);
        Self { link, writer: Writer::new(options.write_timeout), options, drain, alarm: Alarm::default() }
    }

    async fn serve<S: Service>(mut self, service: &S) -> Result<End, Error> {
        // The place of the service's future is kept for a request that is here already, and given back where the next
        // is waited for: of thousands of connections, few are busy at any moment.
        let mut place = None;
        let mut wait = Wait::default();
        loop {
            let (line, clock) = match self.next_head(&mut wait, &mut place).await {
                Next::Request(line, clock) => (line, clock),
                Next::End => {
                    self.close().await;
                    return Ok(End::Closed);
                }
                Next::Gone(error) => return Err(error),
                Next::Refuse(error) => return self.refuse(service, error).await,
            };
            let asked = Asked::new(&line);
            let incoming = match self.incoming(line, clock) {
                Ok(incoming) => incoming,
                Err(error) => return self.refuse(service, error).await,
            };
            let place = place.get_or_insert_with(|| Box::pin(None));
            place.as_mut().set(Some(service.call(incoming)));
            let call = place.as_mut().as_pin_mut().expect("the future was put there just now");
            let outgoing = self.run(call).await;
            place.as_mut().set(None);
            match outgoing? {
                Outgoing::Response(response) => {
                    if !self.respond(&asked, response).await? {
                        return Ok(End::Closed);
                    }
                }
                Outgoing::Upgrade(head, then) => {
                    let io = self.upgrade(head).await?;
                    return Ok(End::Upgraded(io, then));
                }
                Outgoing::Abort(error) => {
                    self.link.lock().io.reset_on_drop();
                    return Err(error);
                }
            }
        }
    }

    /// Waits for the next request's head, or for a reason not to; gives memory back meanwhile.
    async fn next_head<P>(&mut self, wait: &mut Wait, place: &mut Option<P>) -> Next {
        poll_fn(|cx| {
            let state = &mut *self.link.lock();
            let next = wait.poll(cx, state, &mut self.alarm, &mut self.drain, self.options);
            if next.is_pending() {
                *place = None;
                self.writer.out = Out::default();
                state.release();
            }
            next
        })
        .await
    }

    /// Opens the next exchange.
    fn incoming(&mut self, line: RequestLine, clock: Clock) -> Result<Incoming, Error> {
        let framing = h1::request_framing(line.version, &line.method, &line.headers)?;
        let state = &mut *self.link.lock();
        state.exchange += 1;
        state.flowing = false;
        let interim = match line.version {
            Version::Http11 => {
                state.interim = Some(Vec::new());
                Interim::new(self.link.clone(), state.exchange)
            }
            _ => Interim::default(),
        };
        let body = self.body(state, framing);
        let RequestLine { method, target, version, headers } = line;
        Ok(Incoming { method, target, version, headers, protocol: None, body, interim, clock, opening: None })
    }

    /// The body as a whole when all of it is here, otherwise as a stream over the connection.
    fn body(&self, state: &mut State, framing: Framing) -> Body {
        state.upload = Upload::Done;
        let whole = match framing {
            Framing::None | Framing::Length(0) => return Body::Empty,
            Framing::Length(n) => state.take_whole(n),
            Framing::Chunked | Framing::UntilClose => None,
        };
        if let Some(whole) = whole {
            return Body::Full(whole);
        }
        state.open_body(BodyDecoder::new(framing, &self.options.head));
        Body::stream(IncomingBody { link: self.link.clone(), exchange: state.exchange })
    }

    /// Runs the service, relays its interim responses, and stops it when the client goes away.
    async fn run<F: Future<Output = Outgoing>>(&mut self, mut call: Pin<&mut F>) -> Result<Outgoing, Error> {
        let Self { link, writer, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(outgoing) = call.as_mut().poll(cx) {
                return Poll::Ready(Ok(outgoing));
            }
            let state = &mut *link.lock();
            state.note_driver(cx.waker());
            writer.take_interim(state);
            if let Poll::Ready(Err(error)) = writer.poll(cx, state) {
                return Poll::Ready(Err(error));
            }
            state.poll_gone(cx).map(|e| Err(gone(e)))
        })
        .await
    }

    /// Sends a response; says whether the connection goes on.
    async fn respond(&mut self, asked: &Asked, response: Response) -> Result<bool, Error> {
        let Response { mut head, mut body } = response;
        if head.status.is_informational() {
            self.link.lock().io.reset_on_drop();
            return Err(Error::new(Kind::Internal, format!("{} cannot be a final response", head.status)));
        }
        let mut content = Content::choose(asked, head.status, body.remaining());
        let keep_alive = self.may_go_on(asked, &head.headers) && content != Content::UntilClose;
        content.announce(&mut head, asked, keep_alive);
        self.writer.out.add(|b| h1::write_response_head(b, &head));
        drop(head);
        if let Err(error) = self.send(&mut content, &mut body).await {
            self.cut(content).await;
            return Err(error);
        }
        drop(body);
        self.finish(keep_alive).await
    }

    /// Ends the time of interim responses, and decides whether the connection goes on behind the response.
    fn may_go_on(&mut self, asked: &Asked, headers: &Headers) -> bool {
        let state = &mut *self.link.lock();
        self.writer.take_interim(state);
        state.interim = None;
        let upload = match &state.upload {
            Upload::Done => true,
            Upload::Failed => false,
            // The client may or may not send the body that it announced: nothing behind it can be told apart.
            _ if asked.expects && !state.flowing && state.buf.is_empty() => false,
            Upload::Open(_) => true,
            Upload::Abandoned(d) => d.remaining().is_none_or(|n| n <= self.options.drain_bytes),
        };
        // What already came behind a CONNECT was meant for the tunnel that it did not get.
        let tunnel_bytes = asked.method == Method::CONNECT && !state.buf.is_empty();
        asked.keep_alive
            && upload
            && !tunnel_bytes
            && !self.drain.is_draining()
            && !headers.has_token(name::CONNECTION, "close")
    }

    /// Writes the head that is queued and the body behind it, as few writes as it takes; what there is goes out
    /// before more is waited for.
    async fn send(&mut self, content: &mut Content, body: &mut Body) -> Result<(), Error> {
        let Self { link, writer, .. } = self;
        let mut open = true;
        poll_fn(|cx| {
            loop {
                let mut starved = false;
                while open && !starved && writer.out.has_room() {
                    match body.poll_frame(cx) {
                        Poll::Pending => starved = true,
                        Poll::Ready(frame) => open = writer.queue(content, frame)?,
                    }
                }
                let state = &mut *link.lock();
                ready!(writer.poll(cx, state))?;
                if !open {
                    return Poll::Ready(Ok(()));
                }
                if starved {
                    state.note_driver(cx.waker());
                    return state.poll_gone(cx).map(|e| Err(gone(e)));
                }
            }
        })
        .await
    }

    /// Ends a connection in the middle of a response, in a way that the client cannot take for its end.
    async fn cut(&mut self, content: Content) {
        poll_fn(|cx| {
            let state = &mut *self.link.lock();
            // What came in good order is passed on if the client takes it at once.
            let _ = self.writer.out.poll_drain(cx, &mut state.io);
            if content == Content::UntilClose {
                state.io.reset_on_drop();
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Ends the exchange; says whether the connection goes on.
    async fn finish(&mut self, keep_alive: bool) -> Result<bool, Error> {
        let done = {
            let mut state = self.link.lock();
            // Whoever still holds the request's body finds it broken off from here on.
            state.exchange += 1;
            matches!(state.upload, Upload::Done)
        };
        if keep_alive && (done || self.discard().await) {
            return Ok(true);
        }
        if done {
            self.close().await
        } else {
            self.linger().await
        }
        Ok(false)
    }

    /// Takes the rest of a request body that nobody wants off the connection; false when it is too much.
    async fn discard(&mut self) -> bool {
        let deadline = Instant::now() + self.options.drain_timeout;
        let mut left = self.options.drain_bytes;
        poll_fn(|cx| {
            let mut state = self.link.lock();
            loop {
                match state.poll_body(cx) {
                    Poll::Ready(None) => return Poll::Ready(true),
                    Poll::Ready(Some(Ok(Frame::Data(data)))) => match left.checked_sub(data.len() as u64) {
                        Some(rest) => left = rest,
                        None => return Poll::Ready(false),
                    },
                    Poll::Ready(Some(Ok(Frame::Trailers(_)))) => {}
                    Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                    Poll::Pending => return self.alarm.poll(cx, deadline).map(|()| false),
                }
            }
        })
        .await
    }

    /// Answers a head that could not be read, and closes.
    async fn refuse<S: Service>(&mut self, service: &S, error: Error) -> Result<End, Error> {
        self.link.lock().upload = Upload::Failed;
        let asked = Asked { method: Method::GET, version: Version::Http11, keep_alive: false, expects: false };
        self.respond(&asked, service.refuse(&error)).await?;
        Err(error)
    }

    /// Writes the head of an upgrade and takes the connection out.
    async fn upgrade(&mut self, mut head: ResponseHead) -> Result<Io, Error> {
        // RFC 9110 9.3.6 and 15.2.2: neither kind of head says anything of content.
        head.headers.remove(name::CONTENT_LENGTH);
        head.headers.remove(name::TRANSFER_ENCODING);
        let Self { link, writer, .. } = self;
        writer.take_interim(&mut link.lock());
        writer.out.add(|b| h1::write_response_head(b, &head));
        poll_fn(|cx| writer.poll(cx, &mut link.lock())).await?;
        let state = &mut *link.lock();
        if !matches!(state.upload, Upload::Done) {
            return Err(Error::new(Kind::BadRequest, "a request whose body was not read cannot be upgraded"));
        }
        let leftover = std::mem::take(&mut state.buf).freeze();
        Ok(std::mem::replace(&mut state.io, Io::closed()).prefixed(leftover))
    }

    /// Closes both ways; nothing more is expected from the client.
    async fn close(&mut self) {
        let mut io = std::mem::replace(&mut self.link.lock().io, Io::closed());
        // The other side may be gone already, or never read the rest: either way it is over.
        let _ = timeout(self.options.drain_timeout, io.shutdown()).await;
    }

    /// Closes our side and reads off for a while what the client is still sending: closing at once would reset the
    /// connection and could take the response away before the client has read it (RFC 9112 9.6).
    async fn linger(&mut self) {
        let mut io = std::mem::replace(&mut self.link.lock().io, Io::closed());
        let read = async {
            if io.shutdown().await.is_err() {
                return;
            }
            let mut scratch = vec![0; 16 * 1024];
            let mut left = LINGER_BYTES;
            while let Ok(n @ 1..) = io.read(&mut scratch).await {
                left = left.saturating_sub(n);
                if left == 0 {
                    return;
                }
            }
        };
        let _ = timeout(self.options.drain_timeout, read).await;
    }
}

impl Drop for Driver<'_> {
    /// Whoever still holds the request's body keeps no connection open.
    fn drop(&mut self) {
        let mut state = self.link.lock();
        state.exchange += 1;
        state.interim = None;
        state.io = Io::closed();
    }
}

fn gone(e: std::io::Error) -> Error {
    Error::new(Kind::ClientGone, "the client went away").because(e)
}
