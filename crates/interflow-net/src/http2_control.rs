//! Limits the rate of HTTP/2 frames that carry neither request nor response: processing them is expensive for the
//! receiver, and sending them is free for the peer (CVE-2019-9512, 9513, 9515, 9518, CVE-2024-27316). The `h2` crate
//! limits resets and the size of heads; this limits the rest, as Envoy does, for clients and upstreams.
//!
//! Each kind of frame has an allowance that starts at a fixed number, grows slowly with time, and grows with real
//! traffic: a request or a piece of content entitles the peer to the control frames that usually accompany it. A busy
//! connection is therefore never limited, and one that sends only control frames soon is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::time::Instant;

/// Set once the peer has exceeded an allowance. It is never cleared: the connection is closed.
pub(crate) type FloodFlag = Arc<AtomicBool>;

/// How many frames of a kind are allowed initially.
const BURST: u32 = 1000;
/// The same for empty frames that do not end a stream.
const BURST_EMPTY: u32 = 100;
/// How many more are allowed per second.
const PER_SECOND: u32 = 20;
/// The most that a connection can accumulate.
const MAX_ALLOWANCE: u32 = 20_000;

/// The length of the client's connection preface (RFC 9113 3.4).
const PREFACE_LEN: usize = 24;
const FRAME_HEADER_LEN: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Finds frame boundaries in a byte stream.
struct FrameScanner {
    skip: usize,
    head: [u8; FRAME_HEADER_LEN],
    have: usize,
}

impl FrameScanner {
    const fn skipping(skip: usize) -> Self {
        Self { skip, head: [0; FRAME_HEADER_LEN], have: 0 }
    }

    /// Calls `frame` with each frame's type, flags and length as soon as its header is complete.
    fn scan(&mut self, mut bytes: &[u8], mut frame: impl FnMut(u8, u8, usize)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            // `have` is always below the header's length, so this cannot fail.
            let Some(header) = self.head.get_mut(self.have..) else { return };
            let n = header.len().min(bytes.len());
            // The payload goes on in the next read.
            if self.skip > 0 || n == 0 {
                continue;
            }
            let (taken, rest) = bytes.split_at(n);
            header.iter_mut().zip(taken).for_each(|(to, from)| *to = *from);
            bytes = rest;
            self.have += n;
            if self.have == FRAME_HEADER_LEN {
                let [a, b, c, kind, flags, ..] = self.head;
                // 24 bits, big-endian (RFC 9113 4.1).
                let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                // The payload is skipped: only the headers of frames are counted.
                (self.skip, self.have) = (length, 0);
                frame(kind, flags, length);
            }
        }
    }
}

/// A token bucket for one kind of frame.
struct FrameAllowance {
    left: u32,
    /// The time up to which tokens were added, in whole seconds after the start.
    at: Instant,
}

impl FrameAllowance {
    fn new(burst: u32) -> Self {
        Self { left: burst, at: Instant::now() }
    }

    fn add(&mut self, more: u32) {
        self.left = self.left.saturating_add(more).min(MAX_ALLOWANCE);
    }

    /// Takes a token; false if there is none.
    fn take(&mut self) -> bool {
        // Tokens for elapsed time are added only when they are needed, so that the clock is not read for each frame.
        if self.left == 0 {
            let seconds = self.at.elapsed().as_secs();
            // Whole seconds only: the remainder counts the next time.
            self.at += std::time::Duration::from_secs(seconds);
            self.add(PER_SECOND.saturating_mul(u32::try_from(seconds).unwrap_or(u32::MAX)));
        }
        let remaining = self.left.checked_sub(1);
        self.left = remaining.unwrap_or(0);
        remaining.is_some()
    }
}

/// The frame limits of one connection, fed with the raw bytes of both directions. `answered` counts frames that need a
/// reply (PING, SETTINGS), RST_STREAM and GOAWAY; `ignored` counts PRIORITY and unknown types; `empty` counts frames
/// without content that do not end a message. An `upstream` peer earns allowance with every request sent to it.
pub(crate) struct FrameLimiter {
    /// Whether the peer is an upstream, which may answer every request.
    upstream: bool,
    read: FrameScanner,
    written: FrameScanner,
    /// Frames that need a reply (PING, SETTINGS), and RST_STREAM and GOAWAY.
    answered: FrameAllowance,
    window: FrameAllowance,
    /// PRIORITY, and unknown frame types.
    ignored: FrameAllowance,
    empty: FrameAllowance,
    flood: FloodFlag,
}

impl FrameLimiter {
    /// For frames from a client.
    pub fn of_client() -> (Self, FloodFlag) {
        Self::new(false)
    }

    /// For frames from an upstream.
    pub fn of_upstream() -> (Self, FloodFlag) {
        Self::new(true)
    }

    fn new(upstream: bool) -> (Self, FloodFlag) {
        let flood = FloodFlag::default();
        // The client's side begins with the connection preface.
        // Whoever is the client sends the preface first: the peer of an ingress, Interflow itself upstream.
        let (read, written) = if upstream { (0, PREFACE_LEN) } else { (PREFACE_LEN, 0) };
        let control = Self {
            upstream,
            read: FrameScanner::skipping(read),
            written: FrameScanner::skipping(written),
            answered: FrameAllowance::new(BURST),
            window: FrameAllowance::new(BURST),
            ignored: FrameAllowance::new(BURST),
            empty: FrameAllowance::new(BURST_EMPTY),
            flood: Arc::clone(&flood),
        };
        (control, flood)
    }

    pub fn is_flood(&self) -> bool {
        self.flood.load(Relaxed)
    }

    /// Whether the written bytes end with a complete frame.
    pub fn is_between_frames(&self) -> bool {
        self.written.skip == 0 && self.written.have == 0
    }

    /// Counts the frames in bytes from the peer.
    pub fn on_read(&mut self, bytes: &[u8]) {
        let Self { read, answered, window, ignored, empty, flood, .. } = self;
        read.scan(bytes, |kind, flags, length| {
            let ends = flags & if kind == DATA { END_STREAM } else { END_HEADERS } != 0;
            let fine = match kind {
                // An empty frame costs as much as a full one, and brings the message no closer to its end.
                DATA | HEADERS | CONTINUATION if length == 0 && !ends => empty.take(),
                // Content is limited by flow control, and the size of heads by `h2`.
                DATA | CONTINUATION => true,
                HEADERS => {
                    // Each request entitles its sender to some control frames of its own.
                    answered.add(2);
                    window.add(2);
                    ignored.add(10);
                    true
                }
                PING | SETTINGS | RST_STREAM | GOAWAY => answered.take(),
                WINDOW_UPDATE => window.take(),
                _ => ignored.take(),
            };
            if !fine {
                flood.store(true, Relaxed);
            }
        });
    }

    /// Counts the frames in bytes to the peer, which permit it to reply.
    pub fn on_write(&mut self, bytes: &[u8]) {
        let Self { upstream, written, answered, window, .. } = self;
        written.scan(bytes, |kind, _, _| match kind {
            DATA => {
                // Each piece sent to the peer may be answered by window updates.
                answered.add(1);
                window.add(10);
            }
            HEADERS if *upstream => {
                answered.add(2);
                window.add(2);
            }
            _ => {}
        });
    }

    /// As [`on_write`](Self::on_write) for vectored writes, of which only the first `n` bytes were written.
    pub fn written_from(&mut self, bufs: &[std::io::IoSlice<'_>], n: usize) {
        let mut remaining = n;
        for buf in bufs {
            let chunk = remaining.min(buf.len());
            self.on_write(buf.get(..chunk).unwrap_or_default());
            remaining -= chunk;
        }
    }
}
