//! The state shared by a connection's driver and the request body it handed out: the socket, its read buffer, and the
//! body's progress. There is no task or channel between the two; whichever is polled reads.
//!
//! A request body is `Open` while the service holds it. It becomes `Done` when the decoder has seen its end,
//! `Abandoned` when the service dropped it early, and `Failed` when it was malformed, stalled or cut off. After `Done`
//! or a discarded rest of `Abandoned` the next request can be parsed; after `Failed` the position in the byte stream is
//! unknown, and the connection must be closed.
//!
//! The two tasks register different wakers: the driver is woken for interim responses, the end of the body and a
//! disconnect, the reader for bytes of its body. A read by either may deliver what the other waits for, hence the
//! wake-ups after each of them.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use interflow_codec::h1::{self, BodyDecoder, DecodeStep};
use interflow_types::{BodyFrame, BodyStream, Error, ErrorKind, ResponseHead};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::Instant;

use super::super::peek::MAX_READ_AHEAD;
use super::super::service::{HttpOptions, SendInformational};
use crate::deadline_timer::DeadlineTimer;
use crate::io::IoStream;

/// The initial size of a read buffer, which holds most heads; it doubles while reads fill it.
const MIN_READ: usize = 4 * 1024;
const MAX_READ: usize = 64 * 1024;
/// The size of the second read if the first one filled its buffer.
const SECOND_READ: usize = 16 * 1024;
/// Less free space than this is not worth a system call.
const MIN_SPARE: usize = 2 * 1024;
/// The most bytes of queued interim responses.
const MAX_INTERIM_BYTES: usize = 32 * 1024;

/// The shared state of a connection. The lock is held for one poll and, because everything runs in the connection's
/// task, is hardly ever contended.
pub(super) struct SharedConn(Mutex<ConnState>);

pub(super) struct ConnState {
    pub io: IoStream,
    pub buf: BytesMut,
    read_size: usize,
    /// The client closed its sending side: no more bytes will arrive.
    pub ended: bool,
    /// Set while an approval or breakpoint waits for a person's decision. A client that leaves meanwhile is always
    /// treated as gone, so that nobody decides about a request that has no recipient any more.
    pub paused_for_operator: bool,
    /// The number of the current exchange. A body or interim sender with another number is stale.
    pub exchange: u64,
    /// How far this request's body has been read; `Done` from the start if it has none.
    pub upload: RequestBodyState,
    /// Whether the client sends this request's body: 100 (Continue) was sent, or some of it has arrived.
    pub body_started: bool,
    /// How much of the bodies on this connection has been read.
    pub body_bytes: u64,
    /// Queued interim heads; `None` once they are no longer allowed.
    pub interim: Option<Vec<u8>>,
    driver: Option<Waker>,
    /// The task that waits for the body.
    reader: Option<Waker>,
    body_timeout: Duration,
    keep_half_closed: bool,
    body_alarm: DeadlineTimer,
    /// Since when the reader of the body has been waiting for bytes.
    waiting_since: Option<Instant>,
}

pub(super) enum RequestBodyState {
    Done,
    /// The body is held by the service.
    Open(BodyDecoder),
    /// The body was dropped; its rest is unread.
    Abandoned(BodyDecoder),
    /// It failed or was malformed; what follows on the connection has no meaning.
    Failed,
}

impl SharedConn {
    pub(super) fn new(io: IoStream, options: &HttpOptions) -> Arc<Self> {
        Arc::new(Self(Mutex::new(ConnState {
            io,
            buf: BytesMut::new(),
            read_size: MIN_READ,
            ended: false,
            paused_for_operator: false,
            exchange: 0,
            upload: RequestBodyState::Done,
            body_started: false,
            body_bytes: 0,
            interim: None,
            driver: None,
            reader: None,
            body_timeout: options.body_timeout,
            keep_half_closed: options.keep_half_closed,
            body_alarm: DeadlineTimer::default(),
            waiting_since: None,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ConnState> {
        self.0.lock()
    }
}

impl SendInformational for SharedConn {
    fn send(&self, exchange: u64, head: ResponseHead) {
        // The exchange has ended: the response must not be preceded by anything now.
        let mut state = self.lock();
        if state.exchange != exchange {
            return;
        }
        let Some(queue) = &mut state.interim else { return };
        // A service that sends interim responses faster than the client reads them loses the excess.
        if queue.len() < MAX_INTERIM_BYTES {
            h1::write_response_head(queue, &head);
            // The client may send its body from now on, so the connection cannot be reused without reading it.
            state.body_started |= head.status.as_u16() == 100;
            // The driver writes the queue; this may run in another task.
            state.wake_driver(None);
        }
    }

    fn pause_timeouts(&self, exchange: u64, held: bool) {
        let mut state = self.lock();
        if state.exchange == exchange {
            state.paused_for_operator = held;
        }
    }
}

impl ConnState {
    /// Registers the driver, to be woken when another task reads the body or sends an interim response.
    pub(super) fn set_driver_waker(&mut self, waker: &Waker) {
        // Cloning a waker costs an atomic operation, so it is compared first.
        if !self.driver.as_ref().is_some_and(|w| w.will_wake(waker)) {
            self.driver = Some(waker.clone());
        }
    }

    fn wake_driver(&self, caller: Option<&Waker>) {
        if let Some(driver) = &self.driver
            // The caller is being polled right now and needs no wake-up.
            && !caller.is_some_and(|c| c.will_wake(driver))
        {
            driver.wake_by_ref();
        }
    }

    fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Lets reading a body that is still held fail, and wakes the task that waits for more of it.
    pub(super) fn end_exchange(&mut self) {
        self.exchange += 1;
        self.wake_reader();
    }

    /// Frees memory on a connection that waits for its next request.
    pub(super) fn release(&mut self) {
        // Unread bytes belong to a pipelined request and are kept.
        if self.buf.is_empty() {
            self.buf = BytesMut::new();
            self.read_size = MIN_READ;
        }
    }

    /// Reads once into the buffer; 0 at the end, which is remembered.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let spare = self.buf.capacity() - self.buf.len();
        // `BytesMut::reserve` moves the unread bytes to the front or to a new allocation, so it is not called for each
        // read.
        if spare < MIN_SPARE {
            self.buf.reserve(self.read_size);
        }
        let spare = self.buf.capacity() - self.buf.len();
        let n = ready!(pin!(self.io.read_buf(&mut self.buf)).poll(cx))?;
        // A read that fills the buffer is a sign of a backlog; larger reads then cost fewer system calls.
        // 0 bytes with free space mean the end of the stream.
        self.ended |= n == 0;
        if n == spare {
            self.read_size = (self.read_size * 2).min(MAX_READ);
        }
        Poll::Ready(Ok(n))
    }

    /// As [`poll_fill`](Self::poll_fill), without holding a buffer while there is nothing to read.
    pub(super) fn poll_fill_lazily(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buf.capacity() - self.buf.len() >= MIN_SPARE {
            return self.poll_fill(cx);
        }
        // The first read goes to the stack: most of the time it would find nothing, and thousands of idle connections
        // would hold a buffer each.
        let mut bytes = [MaybeUninit::uninit(); MIN_SPARE];
        let mut read = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
        let read = read.filled();
        let n = read.len();
        self.ended |= n == 0;
        if n == MIN_SPARE {
            // There is more, so that a body that arrived with its head is found whole.
            self.read_size = self.read_size.max(SECOND_READ);
        }
        if n > 0 {
            self.buf.reserve(self.read_size.max(n));
            self.buf.extend_from_slice(read);
        }
        match n {
            // The second read goes into the buffer, which is large enough for most bodies.
            MIN_SPARE => match self.poll_fill(cx)? {
                Poll::Ready(more) => Poll::Ready(Ok(n + more)),
                Poll::Pending => Poll::Ready(Ok(n)),
            },
            _ => Poll::Ready(Ok(n)),
        }
    }

    /// Ready once the client has disconnected: it reset the connection, or half-closed after a complete request,
    /// which is how a full close appears until something is written. Half-closed clients are kept if the options say
    /// so, and while pipelined requests are to be answered, but never while a person is asked.
    ///
    /// A half-close in the middle of a request body always counts as a disconnect.
    ///
    /// What the client sends meanwhile is buffered, as the rest of the body or as pipelined requests; over the limit,
    /// nothing is read here.
    pub(super) fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // Reading is the only way to notice a disconnect. The limit bounds the memory that a client can occupy by
        // pipelining; once it is reached, a disconnect is noticed only when the buffer is consumed or a write fails.
        while !matches!(self.upload, RequestBodyState::Failed) && !self.ended && self.buf.len() < MAX_READ_AHEAD {
            let read = ready!(self.poll_fill_lazily(cx));
            // Another task may wait for it.
            self.wake_reader();
            if let Err(e) = read {
                // A reset: the client is gone whatever the options say.
                return Poll::Ready(e);
            }
        }
        if !self.ended {
            return Poll::Pending;
        }
        // How many bytes follow the request; `None` if the request itself is incomplete.
        let behind = match &self.upload {
            RequestBodyState::Done => Some(self.buf.len()),
            // A decoder tells whether the buffer already holds the rest of the body.
            RequestBodyState::Open(decoder) | RequestBodyState::Abandoned(decoder) => decoder.complete_len(&self.buf),
            // The reader of the body has received the error.
            RequestBodyState::Failed => return Poll::Pending,
        };
        // A client that half-closed behind a complete pipelined request still expects the responses to both.
        let stays_open =
            behind.is_some_and(|behind| !self.paused_for_operator && (self.keep_half_closed || behind > 0));
        if stays_open { Poll::Pending } else { Poll::Ready(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The next frame of the request's body.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        let polled = loop {
            let decoder = match &mut self.upload {
                RequestBodyState::Open(decoder) | RequestBodyState::Abandoned(decoder) => decoder,
                RequestBodyState::Done => return Poll::Ready(None),
                RequestBodyState::Failed => {
                    return Poll::Ready(Some(Err(Error::new(ErrorKind::ClientGone, "the request body has failed"))));
                }
            };
            match decoder.decode(&mut self.buf) {
                Ok(DecodeStep::NeedMore) => {}
                Ok(DecodeStep::Data(data)) => {
                    self.body_started = true;
                    self.body_bytes += data.len() as u64;
                    break Ok(Some(BodyFrame::Data(data)));
                }
                Ok(DecodeStep::Trailers(trailers)) => break Ok(Some(BodyFrame::Trailers(trailers))),
                Ok(DecodeStep::Done) => break Ok(None),
                Err(e) => break Err(e.into()),
            }
            // Everything received has been decoded, and no more can arrive.
            if self.ended {
                break Err(Error::new(ErrorKind::ClientGone, "the client closed in the middle of a request body"));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(e)) => {
                    break Err(Error::new(
                        ErrorKind::ClientGone,
                        "the client disconnected in the middle of a request body",
                    )
                    .with_source(e));
                }
                Poll::Pending => {
                    // The waker of whoever polls the body, which may be another task than the driver.
                    self.reader = Some(cx.waker().clone());
                    // The timeout measures the gap between reads of this body, not its whole duration.
                    break Err(ready!(self.poll_body_timeout(cx)));
                }
            }
        };
        self.waiting_since = None;
        if self.reader.take().is_some() {
            // A task that waits for a disconnect has to register again.
            self.wake_driver(Some(cx.waker()));
        }
        self.update_body_state(&polled, cx.waker());
        Poll::Ready(polled.transpose())
    }

    fn poll_body_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        ready!(self.body_alarm.poll_at(cx, since + self.body_timeout));
        Poll::Ready(Error::new(
            ErrorKind::ClientTimeout,
            format!("the client sent nothing of its request body for {:?}", self.body_timeout),
        ))
    }

    /// Updates the upload's state after a frame, and wakes the driver at its end.
    fn update_body_state(&mut self, polled: &Result<Option<BodyFrame>, Error>, caller: &Waker) {
        let done = match (polled, &self.upload) {
            (Err(_), _) => {
                // After an error, nothing that follows can be interpreted.
                self.upload = RequestBodyState::Failed;
                true
            }
            (Ok(None), _) => true,
            // A body of known length is complete with its last byte, without another poll.
            (Ok(Some(_)), RequestBodyState::Open(d) | RequestBodyState::Abandoned(d)) => d.is_done(),
            _ => false,
        };
        if done {
            if polled.is_ok() {
                self.upload = RequestBodyState::Done;
            }
            if self.buf.is_empty() {
                // The response may take minutes; the upload's buffer is not kept that long.
                self.buf = BytesMut::new();
            }
            self.wake_driver(Some(caller));
        }
    }

    /// Starts a body over the connection; a long one is read in large steps from the start.
    pub(super) fn open_body(&mut self, decoder: BodyDecoder) {
        let expected = usize::try_from(decoder.remaining().unwrap_or_default()).unwrap_or(MAX_READ);
        self.read_size = self.read_size.max(expected.min(MAX_READ));
        self.upload = RequestBodyState::Open(decoder);
    }

    /// Takes `n` bytes if all of them have arrived.
    pub(super) fn take_bytes(&mut self, n: u64) -> Option<Bytes> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.buf.len())?;
        Some(self.buf.split_to(n).freeze())
    }

    /// How many bytes of the body are still to come, if known.
    pub(super) fn remaining(&self) -> Option<u64> {
        match &self.upload {
            RequestBodyState::Done | RequestBodyState::Failed => Some(0),
            RequestBodyState::Open(d) | RequestBodyState::Abandoned(d) => d.remaining(),
        }
    }
}

pub(super) struct Http1RequestBody {
    pub link: Arc<SharedConn>,
    pub exchange: u64,
    /// Whether all of it has been read. The exchange may end before this is noticed.
    pub ended: bool,
}

impl BodyStream for Http1RequestBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut state = self.link.lock();
        // The lock is held for this poll only, never across an await.
        if state.exchange != self.exchange {
            return Poll::Ready(Some(Err(Error::new(
                ErrorKind::ClientGone,
                "the response ended before the request body was read",
            ))));
        }
        let polled = state.poll_body(cx);
        self.ended = matches!(state.upload, RequestBodyState::Done);
        polled
    }

    fn remaining(&self) -> Option<u64> {
        let state = self.link.lock();
        if state.exchange == self.exchange { state.remaining() } else { self.ended.then_some(0) }
    }
}

impl Drop for Http1RequestBody {
    fn drop(&mut self) {
        let mut state = self.link.lock();
        if state.exchange == self.exchange
            // The rest is discarded by the driver, if the connection is to be reused.
            && let RequestBodyState::Open(_) = state.upload
            // `Failed` only stands in while the decoder is moved out.
            && let RequestBodyState::Open(decoder) = std::mem::replace(&mut state.upload, RequestBodyState::Failed)
        {
            state.upload = RequestBodyState::Abandoned(decoder);
            state.wake_driver(None);
        }
    }
}
