//! The registry of active streams, for display.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use interflow_types::schema::JsonSchema;
use interflow_types::{Body, BodyFrame, BodyStream, Result, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;

#[derive(Default)]
pub struct StreamRegistry {
    next: AtomicU64,
    running: Mutex<BTreeMap<u64, Arc<StreamEntry>>>,
    bytes: AtomicU64,
    finished: AtomicU64,
}

struct StreamEntry {
    kind: &'static str,
    origin: String,
    client: SocketAddr,
    user: Option<Arc<str>>,
    started: Timestamp,
    bytes: AtomicU64,
    /// Time and byte count of the last rate query. With several viewers, each gets the rate since the last query of
    /// any of them.
    asked: Mutex<(Instant, u64)>,
}

/// One stream, for display.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ActiveStream {
    /// Its number.
    pub id: u64,
    /// `stream`, `segment`, `playlist`, …
    pub kind: &'static str,
    /// Scheme, host and port it comes from.
    pub origin: String,
    /// The client's address.
    pub client: SocketAddr,
    /// The user.
    pub user: Option<Arc<str>>,
    /// When it began, in microseconds since 1970.
    pub started: u64,
    /// Bytes sent on.
    pub bytes: u64,
    /// Bytes per second since the last query.
    pub rate: u64,
}

/// All streams, for display.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamsView {
    /// The active streams.
    pub streams: Vec<ActiveStream>,
    /// Number of finished streams.
    pub finished: u64,
    /// Total bytes sent.
    pub bytes: u64,
}

impl StreamRegistry {
    pub fn view(&self) -> StreamsView {
        let now = Instant::now();
        let show = |(id, s): (&u64, &Arc<StreamEntry>)| {
            let bytes = s.bytes.load(Relaxed);
            let mut last_request = s.asked.lock();
            let micros = now.duration_since(last_request.0).as_micros().max(1) as u64;
            let rate = (bytes - last_request.1).saturating_mul(1_000_000) / micros;
            *last_request = (now, bytes);
            ActiveStream {
                id: *id,
                kind: s.kind,
                origin: s.origin.clone(),
                client: s.client,
                user: s.user.clone(),
                started: s.started.micros(),
                bytes,
                rate,
            }
        };
        let streams = self.running.lock().iter().map(show).collect();
        StreamsView { streams, finished: self.finished.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }

    /// Counts a body's bytes, and lists it as active until it ends or is dropped. A body in memory counts as finished
    /// at once.
    pub fn track(
        self: &Arc<Self>,
        body: Body,
        kind: &'static str,
        origin: String,
        client: SocketAddr,
        user: Option<Arc<str>>,
    ) -> Body {
        if let Body::Full(bytes) = &body {
            self.bytes.fetch_add(bytes.len() as u64, Relaxed);
            self.finished.fetch_add(1, Relaxed);
            return body;
        }
        if matches!(body, Body::Empty) {
            return body;
        }
        let id = self.next.fetch_add(1, Relaxed);
        let stream = Arc::new(StreamEntry {
            kind,
            origin,
            client,
            user,
            started: Timestamp::now(),
            bytes: AtomicU64::new(0),
            asked: Mutex::new((Instant::now(), 0)),
        });
        self.running.lock().insert(id, Arc::clone(&stream));
        Body::stream(TrackedBody { body, id, stream, streams: Arc::clone(self) })
    }
}

struct TrackedBody {
    body: Body,
    id: u64,
    stream: Arc<StreamEntry>,
    streams: Arc<StreamRegistry>,
}

impl BodyStream for TrackedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        let frame = self.body.poll_frame(cx);
        if let Poll::Ready(Some(Ok(BodyFrame::Data(data)))) = &frame {
            self.stream.bytes.fetch_add(data.len() as u64, Relaxed);
        }
        frame
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.streams.running.lock().remove(&self.id);
        self.streams.finished.fetch_add(1, Relaxed);
        self.streams.bytes.fetch_add(self.stream.bytes.load(Relaxed), Relaxed);
    }
}
