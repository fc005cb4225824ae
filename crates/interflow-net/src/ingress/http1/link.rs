//! What the driver of a connection and the request body it handed out share: the socket, the bytes read from it, and
//! how far the body has come. There is no task and no channel between the two; whoever is polled reads.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use interflow_flow::{BodyStream, Error, Frame, Kind, ResponseHead};
use interflow_wire::h1::{self, BodyDecoder, Decoded};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::Instant;

use super::super::alarm::Alarm;
use super::super::service::{HttpOptions, SendInterim};
use crate::io::Io;

/// A read buffer begins with this much, which holds most heads, and doubles while reads fill it.
const READ_MIN: usize = 4 * 1024;
const READ_MAX: usize = 64 * 1024;
/// What the second read takes when the first one had not room for all that there was.
const READ_MORE: usize = 16 * 1024;
/// Less room than this is not worth a system call.
const ROOM_MIN: usize = 2 * 1024;
/// Bytes behind the request being served that are read ahead only to notice that the client is gone.
const AHEAD_MAX: usize = 64 * 1024;
/// Interim responses queued and not yet written.
const INTERIM_MAX: usize = 32 * 1024;

/// The shared state of a connection. The lock is held for the length of a poll and, as everything runs in the
/// connection's task, is hardly ever contended.
pub(super) struct Link(Mutex<State>);

pub(super) struct State {
    pub io: Io,
    /// Bytes read and not yet consumed.
    pub buf: BytesMut,
    /// How much room the next read makes.
    step: usize,
    /// The client has ended its sending side.
    pub ended: bool,
    /// The exchange waits for a person.
    pub held: bool,
    /// The number of the request being served. A body or interim sender of another one is out of date.
    pub exchange: u64,
    /// How far this request's body has come.
    pub upload: Upload,
    /// Whether the client sends this request's body: it was told to continue, or has sent some of it.
    pub flowing: bool,
    /// Interim heads to be written, while they may be.
    pub interim: Option<Vec<u8>>,
    driver: Option<Waker>,
    /// Whoever waits for the body.
    reader: Option<Waker>,
    body_timeout: Duration,
    keep_half_closed: bool,
    body_alarm: Alarm,
    waiting_since: Option<Instant>,
}

/// How far a request's body has come.
pub(super) enum Upload {
    /// All of it has been read.
    Done,
    /// Somebody holds it.
    Open(BodyDecoder),
    /// Nobody wants the rest.
    Abandoned(BodyDecoder),
    /// It broke off or broke the rules; what follows on the connection means nothing.
    Failed,
}

impl Link {
    pub(super) fn new(io: Io, options: &HttpOptions) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            io,
            buf: BytesMut::new(),
            step: READ_MIN,
            ended: false,
            held: false,
            exchange: 0,
            upload: Upload::Done,
            flowing: false,
            interim: None,
            driver: None,
            reader: None,
            body_timeout: options.body_timeout,
            keep_half_closed: options.keep_half_closed,
            body_alarm: Alarm::default(),
            waiting_since: None,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl SendInterim for Link {
    fn send(&self, exchange: u64, head: ResponseHead) {
        let mut state = self.lock();
        if state.exchange != exchange {
            return;
        }
        let Some(queue) = &mut state.interim else { return };
        if queue.len() < INTERIM_MAX {
            h1::write_response_head(queue, &head);
            state.flowing |= head.status.as_u16() == 100;
            state.wake_driver(None);
        }
    }

    fn hold(&self, exchange: u64, held: bool) {
        let mut state = self.lock();
        if state.exchange == exchange {
            state.held = held;
        }
    }
}

impl State {
    /// Remembers whom to wake when another task moves the body or sends an interim response.
    pub(super) fn note_driver(&mut self, waker: &Waker) {
        if !self.driver.as_ref().is_some_and(|w| w.will_wake(waker)) {
            self.driver = Some(waker.clone());
        }
    }

    fn wake_driver(&self, caller: Option<&Waker>) {
        if let Some(driver) = &self.driver
            && !caller.is_some_and(|c| c.will_wake(driver))
        {
            driver.wake_by_ref();
        }
    }

    /// Gives memory back on a connection that waits for its next request.
    pub(super) fn release(&mut self) {
        if self.buf.is_empty() {
            self.buf = BytesMut::new();
            self.step = READ_MIN;
        }
    }

    /// Reads once into the buffer; 0 at the end, which is remembered.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = self.buf.capacity() - self.buf.len();
        if room < ROOM_MIN {
            self.buf.reserve(self.step);
        }
        let room = self.buf.capacity() - self.buf.len();
        let n = ready!(pin!(self.io.read_buf(&mut self.buf)).poll(cx))?;
        self.ended |= n == 0;
        if n == room {
            self.step = (self.step * 2).min(READ_MAX);
        }
        Poll::Ready(Ok(n))
    }

    /// As [`poll_fill`](Self::poll_fill), without holding a buffer while there is nothing to read.
    pub(super) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buf.capacity() - self.buf.len() >= ROOM_MIN {
            return self.poll_fill(cx);
        }
        let mut bytes = [MaybeUninit::uninit(); ROOM_MIN];
        let mut read = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
        let read = read.filled();
        let n = read.len();
        self.ended |= n == 0;
        if n == ROOM_MIN {
            // There is more, so that a body that came with its head is found whole.
            self.step = self.step.max(READ_MORE);
        }
        if n > 0 {
            self.buf.reserve(self.step.max(n));
            self.buf.extend_from_slice(read);
        }
        match n {
            ROOM_MIN => match self.poll_fill(cx)? {
                Poll::Ready(more) => Poll::Ready(Ok(n + more)),
                Poll::Pending => Poll::Ready(Ok(n)),
            },
            _ => Poll::Ready(Ok(n)),
        }
    }

    /// Ready when the client is gone: it reset the connection, or ended its sending side behind a complete request, which
    /// is all that a close of both sides looks like until we write. Half-closed clients are kept where the options say
    /// so, and as long as further requests that they sent are to be answered; but a person is never asked for one.
    ///
    /// A client that ends its sending side in the middle of a request body is gone in any case.
    ///
    /// What the client sends meanwhile is kept, as the rest of the body or as what follows; when that is too much,
    /// nothing is read here.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        while !matches!(self.upload, Upload::Failed) && !self.ended && self.buf.len() < AHEAD_MAX {
            let read = ready!(self.poll_first(cx));
            // Somebody else may wait for it.
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
            if let Err(e) = read {
                return Poll::Ready(e);
            }
        }
        if !self.ended {
            return Poll::Pending;
        }
        // How much stands behind the request; `None` when the request itself is cut off.
        let behind = match &self.upload {
            Upload::Done => Some(self.buf.len()),
            Upload::Open(decoder) | Upload::Abandoned(decoder) => decoder.ends_in(&self.buf),
            // Whoever reads the body has been told.
            Upload::Failed => return Poll::Pending,
        };
        let kept = behind.is_some_and(|behind| !self.held && (self.keep_half_closed || behind > 0));
        if kept { Poll::Pending } else { Poll::Ready(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The next frame of the request's body.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Error>>> {
        let polled = loop {
            let decoder = match &mut self.upload {
                Upload::Open(decoder) | Upload::Abandoned(decoder) => decoder,
                Upload::Done => return Poll::Ready(None),
                Upload::Failed => {
                    return Poll::Ready(Some(Err(Error::new(Kind::ClientGone, "the request body had broken off"))));
                }
            };
            match decoder.decode(&mut self.buf) {
                Ok(Decoded::NeedMore) => {}
                Ok(Decoded::Data(data)) => {
                    self.flowing = true;
                    break Ok(Some(Frame::Data(data)));
                }
                Ok(Decoded::Trailers(trailers)) => break Ok(Some(Frame::Trailers(trailers))),
                Ok(Decoded::Done) => break Ok(None),
                Err(e) => break Err(e.into()),
            }
            if self.ended {
                break Err(Error::new(Kind::ClientGone, "the client closed in the middle of a request body"));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(e)) => {
                    break Err(
                        Error::new(Kind::ClientGone, "the client went away in the middle of a request body").because(e)
                    );
                }
                Poll::Pending => {
                    self.reader = Some(cx.waker().clone());
                    break Err(ready!(self.poll_body_timeout(cx)));
                }
            }
        };
        self.waiting_since = None;
        if self.reader.take().is_some() {
            // Whoever watches for the client's leaving has to ask for it anew.
            self.wake_driver(Some(cx.waker()));
        }
        self.settle(&polled, cx.waker());
        Poll::Ready(polled.transpose())
    }

    fn poll_body_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        ready!(self.body_alarm.poll(cx, since + self.body_timeout));
        Poll::Ready(Error::new(
            Kind::ClientTimeout,
            format!("the client sent nothing of its request body for {:?}", self.body_timeout),
        ))
    }

    /// Notes what the frame means for the upload, and lets the driver know when it is over.
    fn settle(&mut self, polled: &Result<Option<Frame>, Error>, caller: &Waker) {
        let done = match (polled, &self.upload) {
            (Err(_), _) => {
                self.upload = Upload::Failed;
                true
            }
            (Ok(None), _) => true,
            (Ok(Some(_)), Upload::Open(d) | Upload::Abandoned(d)) => d.is_done(),
            _ => false,
        };
        if done {
            if polled.is_ok() {
                self.upload = Upload::Done;
            }
            if self.buf.is_empty() {
                // The response may take minutes; the room for the upload is not kept that long.
                self.buf = BytesMut::new();
            }
            self.wake_driver(Some(caller));
        }
    }

    /// Begins a body over the connection; a long one is read in large steps from the start.
    pub(super) fn open_body(&mut self, decoder: BodyDecoder) {
        let expected = usize::try_from(decoder.remaining().unwrap_or_default()).unwrap_or(READ_MAX);
        self.step = self.step.max(expected.min(READ_MAX));
        self.upload = Upload::Open(decoder);
    }

    /// Takes up to `n` bytes that are already here, when they are all here.
    pub(super) fn take_whole(&mut self, n: u64) -> Option<Bytes> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.buf.len())?;
        Some(self.buf.split_to(n).freeze())
    }

    /// How many bytes of the body are still to come, as far as that is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        match &self.upload {
            Upload::Done | Upload::Failed => Some(0),
            Upload::Open(d) | Upload::Abandoned(d) => d.remaining(),
        }
    }
}

/// A request's body while it comes.
pub(super) struct IncomingBody {
    pub link: Arc<Link>,
    pub exchange: u64,
}

impl BodyStream for IncomingBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Error>>> {
        let mut state = self.link.lock();
        if state.exchange != self.exchange {
            return Poll::Ready(Some(Err(Error::new(
                Kind::ClientGone,
                "the response ended before the request body was read",
            ))));
        }
        state.poll_body(cx)
    }

    fn remaining(&self) -> Option<u64> {
        let state = self.link.lock();
        if state.exchange == self.exchange { state.remaining() } else { None }
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        let mut state = self.link.lock();
        if state.exchange == self.exchange
            && let Upload::Open(_) = state.upload
            && let Upload::Open(decoder) = std::mem::replace(&mut state.upload, Upload::Failed)
        {
            state.upload = Upload::Abandoned(decoder);
        }
    }
}
