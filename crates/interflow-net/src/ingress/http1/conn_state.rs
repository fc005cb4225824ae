//! What the driver of a connection and the request body it handed out share: the socket, the bytes read from it, and
//! how far the body has come. There is no task and no channel between the two; whoever is polled reads.

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

use super::super::deadline_timer::DeadlineTimer;
use super::super::service::{HttpOptions, SendInformational};
use crate::io::IoStream;

/// A read buffer begins with this much, which holds most heads, and doubles while reads fill it.
const MIN_READ: usize = 4 * 1024;
const MAX_READ: usize = 64 * 1024;
/// What the second read takes when the first one had not room for all that there was.
const SECOND_READ: usize = 16 * 1024;
/// Less room than this is not worth a system call.
const MIN_SPARE: usize = 2 * 1024;
/// Bytes behind the request being served that are read ahead only to notice that the client is gone.
const MAX_READ_AHEAD: usize = 64 * 1024;
/// Interim responses queued and not yet written.
const MAX_INTERIM_BYTES: usize = 32 * 1024;

/// The shared state of a connection. The lock is held for the length of a poll and, as everything runs in the
/// connection's task, is hardly ever contended.
pub(super) struct SharedConn(Mutex<ConnState>);

pub(super) struct ConnState {
    pub io: IoStream,
    /// Bytes read and not yet consumed.
    pub buf: BytesMut,
    /// How much room the next read makes.
    read_size: usize,
    /// The client has ended its sending side.
    pub ended: bool,
    /// The exchange waits for a person.
    pub paused_for_operator: bool,
    /// The number of the request being served. A body or interim sender of another one is out of date.
    pub exchange: u64,
    /// How far this request's body has come.
    pub upload: RequestBodyState,
    /// Whether the client sends this request's body: it was told to continue, or has sent some of it.
    pub body_started: bool,
    /// Interim heads to be written, while they may be.
    pub interim: Option<Vec<u8>>,
    driver: Option<Waker>,
    /// Whoever waits for the body.
    reader: Option<Waker>,
    body_timeout: Duration,
    keep_half_closed: bool,
    body_alarm: DeadlineTimer,
    waiting_since: Option<Instant>,
}

/// How far a request's body has come.
pub(super) enum RequestBodyState {
    /// All of it has been read.
    Done,
    /// Somebody holds it.
    Open(BodyDecoder),
    /// Nobody wants the rest.
    Abandoned(BodyDecoder),
    /// It broke off or broke the rules; what follows on the connection means nothing.
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
        let mut state = self.lock();
        if state.exchange != exchange {
            return;
        }
        let Some(queue) = &mut state.interim else { return };
        if queue.len() < MAX_INTERIM_BYTES {
            h1::write_response_head(queue, &head);
            state.body_started |= head.status.as_u16() == 100;
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
    /// Remembers whom to wake when another task moves the body or sends an interim response.
    pub(super) fn set_driver_waker(&mut self, waker: &Waker) {
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
            self.read_size = MIN_READ;
        }
    }

    /// Reads once into the buffer; 0 at the end, which is remembered.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = self.buf.capacity() - self.buf.len();
        if room < MIN_SPARE {
            self.buf.reserve(self.read_size);
        }
        let room = self.buf.capacity() - self.buf.len();
        let n = ready!(pin!(self.io.read_buf(&mut self.buf)).poll(cx))?;
        self.ended |= n == 0;
        if n == room {
            self.read_size = (self.read_size * 2).min(MAX_READ);
        }
        Poll::Ready(Ok(n))
    }

    /// As [`poll_fill`](Self::poll_fill), without holding a buffer while there is nothing to read.
    pub(super) fn poll_fill_lazily(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buf.capacity() - self.buf.len() >= MIN_SPARE {
            return self.poll_fill(cx);
        }
        let mut bytes = [MaybeUninit::uninit(); MIN_SPARE];
        let mut read = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
        let read = read.filled();
        let n = read.len();
        self.ended |= n == 0;
        if n == MIN_SPARE {
            // There is more, so that a body that came with its head is found whole.
            self.read_size = self.read_size.max(SECOND_READ);
        }
        if n > 0 {
            self.buf.reserve(self.read_size.max(n));
            self.buf.extend_from_slice(read);
        }
        match n {
            MIN_SPARE => match self.poll_fill(cx)? {
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
    pub(super) fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        while !matches!(self.upload, RequestBodyState::Failed) && !self.ended && self.buf.len() < MAX_READ_AHEAD {
            let read = ready!(self.poll_fill_lazily(cx));
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
            RequestBodyState::Done => Some(self.buf.len()),
            RequestBodyState::Open(decoder) | RequestBodyState::Abandoned(decoder) => decoder.complete_len(&self.buf),
            // Whoever reads the body has been told.
            RequestBodyState::Failed => return Poll::Pending,
        };
        let kept = behind.is_some_and(|behind| !self.paused_for_operator && (self.keep_half_closed || behind > 0));
        if kept { Poll::Pending } else { Poll::Ready(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The next frame of the request's body.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        let polled = loop {
            let decoder = match &mut self.upload {
                RequestBodyState::Open(decoder) | RequestBodyState::Abandoned(decoder) => decoder,
                RequestBodyState::Done => return Poll::Ready(None),
                RequestBodyState::Failed => {
                    return Poll::Ready(Some(Err(Error::new(
                        ErrorKind::ClientGone,
                        "the request body had broken off",
                    ))));
                }
            };
            match decoder.decode(&mut self.buf) {
                Ok(DecodeStep::NeedMore) => {}
                Ok(DecodeStep::Data(data)) => {
                    self.body_started = true;
                    break Ok(Some(BodyFrame::Data(data)));
                }
                Ok(DecodeStep::Trailers(trailers)) => break Ok(Some(BodyFrame::Trailers(trailers))),
                Ok(DecodeStep::Done) => break Ok(None),
                Err(e) => break Err(e.into()),
            }
            if self.ended {
                break Err(Error::new(ErrorKind::ClientGone, "the client closed in the middle of a request body"));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(e)) => {
                    break Err(Error::new(
                        ErrorKind::ClientGone,
                        "the client went away in the middle of a request body",
                    )
                    .with_source(e));
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
        self.update_body_state(&polled, cx.waker());
        Poll::Ready(polled.transpose())
    }

    fn poll_body_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        ready!(self.body_alarm.poll(cx, since + self.body_timeout));
        Poll::Ready(Error::new(
            ErrorKind::ClientTimeout,
            format!("the client sent nothing of its request body for {:?}", self.body_timeout),
        ))
    }

    /// Notes what the frame means for the upload, and lets the driver know when it is over.
    fn update_body_state(&mut self, polled: &Result<Option<BodyFrame>, Error>, caller: &Waker) {
        let done = match (polled, &self.upload) {
            (Err(_), _) => {
                self.upload = RequestBodyState::Failed;
                true
            }
            (Ok(None), _) => true,
            (Ok(Some(_)), RequestBodyState::Open(d) | RequestBodyState::Abandoned(d)) => d.is_done(),
            _ => false,
        };
        if done {
            if polled.is_ok() {
                self.upload = RequestBodyState::Done;
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
        let expected = usize::try_from(decoder.remaining().unwrap_or_default()).unwrap_or(MAX_READ);
        self.read_size = self.read_size.max(expected.min(MAX_READ));
        self.upload = RequestBodyState::Open(decoder);
    }

    /// Takes up to `n` bytes that are already here, when they are all here.
    pub(super) fn take_bytes(&mut self, n: u64) -> Option<Bytes> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.buf.len())?;
        Some(self.buf.split_to(n).freeze())
    }

    /// How many bytes of the body are still to come, as far as that is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        match &self.upload {
            RequestBodyState::Done | RequestBodyState::Failed => Some(0),
            RequestBodyState::Open(d) | RequestBodyState::Abandoned(d) => d.remaining(),
        }
    }
}

/// A request's body while it comes.
pub(super) struct Http1RequestBody {
    pub link: Arc<SharedConn>,
    pub exchange: u64,
}

impl BodyStream for Http1RequestBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        let mut state = self.link.lock();
        if state.exchange != self.exchange {
            return Poll::Ready(Some(Err(Error::new(
                ErrorKind::ClientGone,
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

impl Drop for Http1RequestBody {
    fn drop(&mut self) {
        let mut state = self.link.lock();
        if state.exchange == self.exchange
            && let RequestBodyState::Open(_) = state.upload
            && let RequestBodyState::Open(decoder) = std::mem::replace(&mut state.upload, RequestBodyState::Failed)
        {
            state.upload = RequestBodyState::Abandoned(decoder);
        }
    }
}
