//! One direction of a tunnel, as a state machine that is polled with both connections.
//!
//! A direction either has bytes in transit and writes, or has none and reads; it never reads ahead of its sink, so a
//! slow sink stops its source through TCP's own flow control. The direction does not own the connections: both
//! directions of a tunnel borrow them for one poll each.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::buffer;
#[cfg(target_os = "linux")]
use super::splice::SplicePipe;
use crate::io::IoStream;

/// A direction must have carried this many bytes before it gets a pipe of its own.
#[cfg(target_os = "linux")]
const SPLICE_THRESHOLD: u64 = 64 * 1024;
/// This many consecutive reads that nearly fill the buffer indicate a backlog; then moving pages is cheaper than
/// copying bytes.
#[cfg(target_os = "linux")]
const SPLICE_AFTER_FULL_READS: u8 = 4;
#[cfg(target_os = "linux")]
const FULL_READ_BYTES: usize = buffer::BUFFER_SIZE / 4 * 3;
/// Filling a pipe with less than this costs more than copying through a buffer that is in the CPU cache. After
/// several such fills the direction returns to buffers.
#[cfg(target_os = "linux")]
const MIN_SPLICE_FILL: usize = 2 * buffer::BUFFER_SIZE;
#[cfg(target_os = "linux")]
const UNSPLICE_AFTER_SHORT_FILLS: u8 = 4;
/// Reads or writes of one direction before it yields to other tasks of the worker. Without it, a fast tunnel would
/// starve the connections on the same thread.
const MAX_STEPS_PER_POLL: usize = 64;

/// Where a direction failed: reading from its source, or writing to its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferStep {
    Read,
    Write,
}

#[derive(Debug)]
pub(super) struct DirectionError {
    pub(super) step: TransferStep,
    pub(super) error: io::Error,
}

impl TransferStep {
    fn into_error(self, error: io::Error) -> DirectionError {
        DirectionError { step: self, error }
    }
}

enum TransferBuffer {
    /// None, and no memory held for them.
    None,
    /// Bytes that were read ahead of the tunnel.
    First(Bytes),
    /// Bytes from `at` to `end` of a pooled buffer.
    Buffer { bytes: Box<[u8]>, at: usize, end: usize },
    /// Bytes in a kernel pipe that belongs to this direction.
    #[cfg(target_os = "linux")]
    Pipe(SplicePipe),
}

/// What to do next: write if bytes are in transit and read otherwise; or, after the source's end, flush and half-close
/// the sink.
enum DirectionState {
    /// Write if bytes are in transit, else read.
    Carry,
    ShutDown,
    Done,
}

pub(super) type TransferPoll<T = ()> = Poll<Result<T, DirectionError>>;

pub(super) struct DirectionCopy {
    load: TransferBuffer,
    stage: DirectionState,
    /// A TLS layer may still buffer written bytes.
    unflushed: bool,
    /// Whether a pipe may be used at all: both ends are plain TCP, since a TLS layer has to see the bytes.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "splice(2) is Linux's"))]
    splice: bool,
    /// With a buffer, how many consecutive reads nearly filled it; with a pipe, how many consecutive fills were
    /// short.
    #[cfg(target_os = "linux")]
    streak: u8,
    /// How many such reads are required: increases each time a pipe did not pay off.
    #[cfg(target_os = "linux")]
    demand: u8,
    /// The pipe, while data arrives in short pieces.
    #[cfg(target_os = "linux")]
    spare: Option<SplicePipe>,
}

impl DirectionCopy {
    pub(super) fn new(first: Bytes, splice: bool) -> Self {
        let load = if first.is_empty() { TransferBuffer::None } else { TransferBuffer::First(first) };
        Self {
            load,
            stage: DirectionState::Carry,
            unflushed: false,
            splice,
            #[cfg(target_os = "linux")]
            streak: 0,
            #[cfg(target_os = "linux")]
            demand: SPLICE_AFTER_FULL_READS,
            #[cfg(target_os = "linux")]
            spare: None,
        }
    }

    /// Whether the direction currently uses a pipe.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn is_spliced(&self) -> bool {
        matches!(self.load, TransferBuffer::Pipe(_))
    }

    /// Copies what can be copied now, and counts it in `carried`. Ready once the source's end was propagated or something
    /// failed, and on every later call.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut IoStream,
        sink: &mut IoStream,
        carried: &AtomicU64,
    ) -> TransferPoll {
        let polled = self.carry(cx, source, sink, carried);
        if polled.is_ready() {
            // Whatever the outcome, the buffer returns to the pool.
            self.release();
            self.stage = DirectionState::Done;
        }
        polled
    }

    fn carry(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut IoStream,
        sink: &mut IoStream,
        carried: &AtomicU64,
    ) -> TransferPoll {
        for _ in 0..MAX_STEPS_PER_POLL {
            match self.stage {
                DirectionState::Carry => {
                    if self.load.is_some() {
                        // Bytes in transit first: nothing is read before they are written.
                        ready!(self.poll_write(cx, sink, carried))?;
                    } else {
                        // Only while nothing is in transit, so that bytes never change places between a buffer and a pipe.
                        #[cfg(target_os = "linux")]
                        self.choose_buffer(carried);
                        match self.poll_read(cx, source) {
                            Poll::Ready(more) => {
                                if !more? {
                                    // The source has ended: forward the end, after everything before it was written.
                                    self.release();
                                    self.stage = DirectionState::ShutDown;
                                }
                            }
                            Poll::Pending => return self.poll_idle(cx, sink),
                        }
                    }
                }
                DirectionState::ShutDown => {
                    match ready!(Pin::new(&mut *sink).poll_shutdown(cx)) {
                        // A closed sink needs no half-close.
                        Ok(()) => {}
                        Err(e) if e.kind() == io::ErrorKind::NotConnected => {}
                        Err(e) => return Poll::Ready(Err(TransferStep::Write.into_error(e))),
                    }
                    self.stage = DirectionState::Done;
                }
                DirectionState::Done => return Poll::Ready(Ok(())),
            }
        }
        // The budget is used up while both sides are still ready, so nothing else would wake this task.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Called if there is nothing to read: flushes, and releases the buffer.
    fn poll_idle(&mut self, cx: &mut Context<'_>, sink: &mut IoStream) -> TransferPoll {
        // Flushing only when there is nothing to read lets a TLS layer fill its records.
        if self.unflushed {
            ready!(Pin::new(sink).poll_flush(cx)).map_err(|e| TransferStep::Write.into_error(e))?;
            self.unflushed = false;
        }
        if matches!(self.load, TransferBuffer::Buffer { .. }) {
            self.release();
        }
        Poll::Pending
    }

    fn release(&mut self) {
        if let TransferBuffer::Buffer { bytes, .. } = std::mem::replace(&mut self.load, TransferBuffer::None) {
            buffer::release(bytes);
        }
    }

    /// Reads the next bytes; `false` at the source's end.
    fn poll_read(&mut self, cx: &mut Context<'_>, source: &mut IoStream) -> TransferPoll<bool> {
        #[cfg(target_os = "linux")]
        if let (TransferBuffer::Pipe(pipe), Some(tcp)) = (&mut self.load, source.tcp_ref()) {
            // A pending fill leaves the empty pipe in place: it holds no bytes, and the kernel frees pages that are not
            // used.
            let more = ready!(pipe.poll_fill(cx, tcp)).map_err(|e| TransferStep::Read.into_error(e))?;
            // Short fills mean that data trickles: after several, buffers are cheaper.
            self.streak = if pipe.held < MIN_SPLICE_FILL { self.streak.saturating_add(1) } else { 0 };
            return Poll::Ready(Ok(more));
        }

        // A pooled buffer, kept until the direction is idle.
        if !matches!(self.load, TransferBuffer::Buffer { .. }) {
            self.load = TransferBuffer::Buffer { bytes: buffer::take(), at: 0, end: 0 };
        }
        let TransferBuffer::Buffer { bytes, at, end } = &mut self.load else { return Poll::Ready(Ok(true)) };
        let mut into = ReadBuf::new(bytes);
        ready!(Pin::new(source).poll_read(cx, &mut into)).map_err(|e| TransferStep::Read.into_error(e))?;
        (*at, *end) = (0, into.filled().len());
        #[cfg(target_os = "linux")]
        {
            self.streak = if *end >= FULL_READ_BYTES { self.streak.saturating_add(1) } else { 0 };
        }
        // No bytes: the source has ended.
        Poll::Ready(Ok(*end > 0))
    }

    /// Chooses between a buffer and a pipe by the recent pattern of reads. If no pipe can be created, buffers are
    /// used.
    #[cfg(target_os = "linux")]
    fn choose_buffer(&mut self, carried: &AtomicU64) {
        if let TransferBuffer::Pipe(_) = &self.load {
            if self.streak >= UNSPLICE_AFTER_SHORT_FILLS
                && let TransferBuffer::Pipe(pipe) = std::mem::replace(&mut self.load, TransferBuffer::None)
            {
                // Kept, because creating a pipe takes several system calls.
                self.spare = Some(pipe);
                // Traffic that alternates between short and long pieces would otherwise switch back and forth.
                self.demand = self.demand.saturating_mul(2);
                self.streak = 0;
            }
            return;
        }
        // Short tunnels, such as one API call, end before a pipe would pay for its system calls.
        if !self.splice || self.streak < self.demand || carried.load(Ordering::Relaxed) < SPLICE_THRESHOLD {
            return;
        }
        match self.spare.take().map_or_else(SplicePipe::new, Ok) {
            Ok(pipe) => {
                self.release();
                self.load = TransferBuffer::Pipe(pipe);
                self.streak = 0;
            }
            // Usually the limit on descriptors or on pipe memory. Buffers work without either.
            Err(_) => self.splice = false,
        }
    }

    /// Writes some of the bytes in transit.
    fn poll_write(&mut self, cx: &mut Context<'_>, sink: &mut IoStream, carried: &AtomicU64) -> TransferPoll {
        let fail = |e| TransferStep::Write.into_error(e);
        let written = match &mut self.load {
            TransferBuffer::None => 0,
            TransferBuffer::First(first) => {
                let n = ready!(Pin::new(&mut *sink).poll_write(cx, first)).map_err(fail)?;
                first.advance(n);
                n
            }
            TransferBuffer::Buffer { bytes, at, end } => {
                let n = ready!(Pin::new(&mut *sink).poll_write(cx, &bytes[*at..*end])).map_err(fail)?;
                *at += n;
                n
            }

            #[cfg(target_os = "linux")]
            TransferBuffer::Pipe(pipe) => {
                let Some(tcp) = sink.tcp_ref() else {
                    // Cannot happen: a pipe is chosen only for plain TCP, and layers are never added later.
                    return Poll::Ready(Err(fail(io::ErrorKind::NotConnected.into())));
                };
                ready!(pipe.poll_drain(cx, tcp)).map_err(fail)?
            }
        };
        // A sink that accepts nothing would make the loop spin.
        if written == 0 {
            return Poll::Ready(Err(fail(io::ErrorKind::WriteZero.into())));
        }
        // Plain TCP does not buffer; only layers above it need a flush.
        self.unflushed = sink.tcp_ref().is_none();
        carried.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl TransferBuffer {
    fn is_some(&self) -> bool {
        match self {
            Self::None => false,
            Self::First(first) => !first.is_empty(),
            Self::Buffer { at, end, .. } => at < end,
            #[cfg(target_os = "linux")]
            Self::Pipe(pipe) => !pipe.is_empty(),
        }
    }
}

impl Drop for DirectionCopy {
    fn drop(&mut self) {
        self.release();
    }
}
