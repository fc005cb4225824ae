//! Output to a client: small data is gathered in one buffer, large data is kept by reference, and both are written
//! with as few system calls as possible.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// Data up to this size is copied next to its neighbours; larger data is written in place.
const MAX_COPY_BYTES: usize = 2 * 1024;
/// The initial capacity: a head, and a short body or a chunk size after it.
const INITIAL_CAPACITY: usize = 1024;
/// No more is accepted while this much is queued.
const HIGH_WATER_MARK: usize = 64 * 1024;
const MAX_SLICES: usize = 16;

/// Output in order. `pending` counts all queued bytes; the queue is bounded by the callers, which stop adding once
/// [`has_room`](Self::has_room) is false, so it exceeds the mark by one frame at most.
#[derive(Default)]
pub(crate) struct WriteBuf {
    /// The small data; written up to `at`.
    small: Vec<u8>,
    at: usize,
    parts: VecDeque<WriteSegment>,
    pending: usize,
}

enum WriteSegment {
    /// The next bytes of `small`, of this number.
    Small(usize),
    Data(Bytes),
}

impl WriteBuf {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Whether more may be queued before something is written.
    pub(crate) fn has_room(&self) -> bool {
        // One frame adds at most three parts (chunk size, data, chunk end), so that all of them fit in one vectored
        // write.
        self.pending < HIGH_WATER_MARK && self.parts.len() < MAX_SLICES - 2
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    pub(crate) fn append_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.small.capacity() == 0 {
            self.small.reserve(INITIAL_CAPACITY);
        }
        let before = self.small.len();
        write(&mut self.small);
        // The part's length is stored, not its position: `small` may move when it grows.
        let n = self.small.len() - before;
        if n == 0 {
            return;
        }
        self.pending += n;
        match self.parts.back_mut() {
            // Adjacent small pieces form one slice.
            Some(WriteSegment::Small(len)) => *len += n,
            _ => self.parts.push_back(WriteSegment::Small(n)),
        }
    }

    pub(crate) fn append_data(&mut self, data: Bytes) {
        if data.len() <= MAX_COPY_BYTES {
            return self.append_with(|small| small.extend_from_slice(&data));
        }
        self.pending += data.len();
        self.parts.push_back(WriteSegment::Data(data));
    }

    pub(crate) fn poll_drain<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut W,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let n = ready!(self.poll_once(cx, io))?;
            // Without this, a stream that accepts nothing would be polled forever.
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Pin::new(io).poll_flush(cx)
    }

    /// Writes what the stream accepts at once.
    fn poll_once<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, io: &mut W) -> Poll<io::Result<usize>> {
        // The usual case, a head with a short body: one slice needs no vectored write.
        let n = if let [WriteSegment::Small(len)] = self.parts.as_slices().0
            && self.parts.len() == 1
        {
            ready!(Pin::new(io).poll_write(cx, &self.small[self.at..self.at + len]))?
        } else {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut used = 0;
            let mut at = self.at;
            // At most `MAX_SLICES` parts; the rest waits for the next round.
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = match part {
                    WriteSegment::Small(len) => {
                        at += len;
                        IoSlice::new(&self.small[at - len..at])
                    }
                    WriteSegment::Data(data) => IoSlice::new(data),
                };
                used += 1;
            }
            ready!(Pin::new(io).poll_write_vectored(cx, &slices[..used]))?
        };
        self.advance(n);
        Poll::Ready(Ok(n))
    }

    fn advance(&mut self, mut n: usize) {
        self.pending -= n;
        while n > 0 {
            let Some(part) = self.parts.front_mut() else { break };
            let written = match part {
                WriteSegment::Small(len) => {
                    let chunk = n.min(*len);
                    *len -= chunk;
                    self.at += chunk;
                    chunk
                }
                WriteSegment::Data(data) => {
                    let chunk = n.min(data.len());
                    data.advance(chunk);
                    chunk
                }
            };
            n -= written;
            if matches!(part, WriteSegment::Small(0)) || matches!(part, WriteSegment::Data(d) if d.is_empty()) {
                self.parts.pop_front();
            }
        }
        // The positions in `small` are valid until everything is written; only then can it be reused from its start.
        if self.pending == 0 {
            self.small.clear();
            self.at = 0;
            self.parts.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn everything_is_written_in_order_with_partial_writes() {
        for capacity in [1, 7, 3000, 1 << 20] {
            let (mut near, mut far) = tokio::io::duplex(capacity);
            let mut want = Vec::new();
            let mut out = WriteBuf::default();
            for i in 0..6u8 {
                let head = format!("head {i}\r\n");
                out.append_with(|b| b.extend_from_slice(head.as_bytes()));
                let data = Bytes::from(vec![b'a' + i; usize::from(i) * 1500]);
                want.extend_from_slice(head.as_bytes());
                want.extend_from_slice(&data);
                out.append_data(data);
            }
            let write = async {
                poll_fn(|cx| out.poll_drain(cx, &mut near)).await.unwrap();
                drop(near);
            };
            let mut got = Vec::new();
            let (_, read) = tokio::join!(write, far.read_to_end(&mut got));
            read.unwrap();
            assert_eq!(got, want, "{capacity}");
            assert!(out.is_empty());
        }
    }

    #[test]
    fn write_buffer_has_no_room_above_the_high_water_mark() {
        let mut out = WriteBuf::default();
        let mut put = 0;
        while out.has_room() {
            out.append_data(Bytes::from(vec![0; 10_000]));
            put += 10_000;
        }
        assert!(put < HIGH_WATER_MARK + 10_000);
    }
}
