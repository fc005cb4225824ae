//! Counts the frames of an HTTP/2 peer that carry neither request nor response: answering or storing them costs us, and
//! sending them costs the peer nothing (CVE-2019-9512, 9513, 9515, 9518, CVE-2024-27316). The `h2` crate bounds resets and
//! the size of heads; this bounds the rest, as Envoy does, for clients and for upstreams alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::time::Instant;

/// Set once the peer has sent too many.
pub(crate) type Flood = Arc<AtomicBool>;

/// The frames of a kind that are allowed at first.
const BURST: u32 = 1000;
/// The same for frames that are empty and end nothing.
const BURST_EMPTY: u32 = 100;
/// Further ones for each second.
const PER_SECOND: u32 = 20;
/// What a connection may save up.
const MOST: u32 = 20_000;

/// The length of the client's connection preface (RFC 9113 3.4).
const PREFACE: usize = 24;
const HEAD: usize = 9;

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

/// Where frames begin in a stream of bytes.
struct Scan {
    skip: usize,
    head: [u8; HEAD],
    have: usize,
}

impl Scan {
    const fn behind(skip: usize) -> Self {
        Self { skip, head: [0; HEAD], have: 0 }
    }

    /// Shows each frame's type, flags and length as its head is complete.
    fn see(&mut self, mut bytes: &[u8], mut frame: impl FnMut(u8, u8, usize)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let Some(room) = self.head.get_mut(self.have..) else { return };
            let n = room.len().min(bytes.len());
            if self.skip > 0 || n == 0 {
                continue;
            }
            let (taken, rest) = bytes.split_at(n);
            room.iter_mut().zip(taken).for_each(|(to, from)| *to = *from);
            bytes = rest;
            self.have += n;
            if self.have == HEAD {
                let [a, b, c, kind, flags, ..] = self.head;
                let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                (self.skip, self.have) = (length, 0);
                frame(kind, flags, length);
            }
        }
    }
}

/// How many frames of a kind may still come.
struct Allowance {
    left: u32,
    /// Up to when the seconds were counted.
    at: Instant,
}

impl Allowance {
    fn new(burst: u32) -> Self {
        Self { left: burst, at: Instant::now() }
    }

    fn earn(&mut self, more: u32) {
        self.left = self.left.saturating_add(more).min(MOST);
    }

    /// Takes one; false when there is none.
    fn take(&mut self) -> bool {
        if self.left == 0 {
            let seconds = self.at.elapsed().as_secs();
            self.at += std::time::Duration::from_secs(seconds);
            self.earn(PER_SECOND.saturating_mul(u32::try_from(seconds).unwrap_or(u32::MAX)));
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

/// The frames of one connection.
pub(crate) struct Control {
    /// Whether the peer is an upstream, which may answer each request that it is sent.
    upstream: bool,
    read: Scan,
    written: Scan,
    /// What has to be answered: PING, SETTINGS; and RST_STREAM, GOAWAY.
    answered: Allowance,
    window: Allowance,
    /// PRIORITY, and types that we do not know.
    ignored: Allowance,
    empty: Allowance,
    flood: Flood,
}

impl Control {
    /// For what a client sends.
    pub fn of_client() -> (Self, Flood) {
        Self::new(false)
    }

    /// For what an upstream sends.
    pub fn of_upstream() -> (Self, Flood) {
        Self::new(true)
    }

    fn new(upstream: bool) -> (Self, Flood) {
        let flood = Flood::default();
        // The client's side begins with the preface.
        let (read, written) = if upstream { (0, PREFACE) } else { (PREFACE, 0) };
        let control = Self {
            upstream,
            read: Scan::behind(read),
            written: Scan::behind(written),
            answered: Allowance::new(BURST),
            window: Allowance::new(BURST),
            ignored: Allowance::new(BURST),
            empty: Allowance::new(BURST_EMPTY),
            flood: Arc::clone(&flood),
        };
        (control, flood)
    }

    /// Whether too many came.
    pub fn is_flood(&self) -> bool {
        self.flood.load(Relaxed)
    }

    /// Whether what was written ends with a whole frame.
    pub fn is_between_frames(&self) -> bool {
        self.written.skip == 0 && self.written.have == 0
    }

    /// Bytes from the peer.
    pub fn read(&mut self, bytes: &[u8]) {
        let Self { read, answered, window, ignored, empty, flood, .. } = self;
        read.see(bytes, |kind, flags, length| {
            let ends = flags & if kind == DATA { END_STREAM } else { END_HEADERS } != 0;
            let fine = match kind {
                DATA | HEADERS | CONTINUATION if length == 0 && !ends => empty.take(),
                DATA | CONTINUATION => true,
                HEADERS => {
                    answered.earn(2);
                    window.earn(2);
                    ignored.earn(10);
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

    /// Bytes to the peer: for what it is sent, it may answer.
    pub fn written(&mut self, bytes: &[u8]) {
        let Self { upstream, written, answered, window, .. } = self;
        written.see(bytes, |kind, _, _| match kind {
            DATA => {
                answered.earn(1);
                window.earn(10);
            }
            HEADERS if *upstream => {
                answered.earn(2);
                window.earn(2);
            }
            _ => {}
        });
    }

    /// As [`written`](Self::written), of which only the first `n` bytes went out.
    pub fn written_from(&mut self, bufs: &[std::io::IoSlice<'_>], n: usize) {
        let mut left = n;
        for buf in bufs {
            let taken = left.min(buf.len());
            self.written(buf.get(..taken).unwrap_or_default());
            left -= taken;
        }
    }
}
