//! The recorder that the corridor talks to. Its captures gather what passes, by reference count, in a slot that the
//! store's writer empties; a worker's part of a short flow is a few clones and one push.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use interflow_flow::{
    Capture, Direction, Flow, Headers, Message, Outcome, Recorder, RequestHead, ResponseHead, TunnelBytes,
};
use parking_lot::Mutex;

use crate::config::RecordConfig;
use crate::model::{FlowState, Missing};
use crate::store::queue::Queue;
use crate::store::refs::side;
use crate::store::slot::{Begin, End, News, Slot, Snapshot};

/// News of a flow are handed to the writer when they hold this much; less waits for the writer's sweep.
const FLUSH_BYTES: usize = 64 << 10;
/// What a piece costs beside its bytes: its handle, and what it may pin of the buffer it is cut from.
const PIECE: usize = 64;
/// What a flow costs beside its header fields and bodies.
const FLOW: usize = 1536;

/// Records into an [`EmbeddedStore`](crate::EmbeddedStore).
#[derive(Clone)]
pub struct StoreRecorder {
    queue: Arc<Queue>,
    bodies: bool,
    /// 0 for no cap.
    max_body: u64,
}

impl StoreRecorder {
    pub(crate) fn new(queue: Arc<Queue>, config: &RecordConfig) -> Self {
        Self { queue, bodies: config.bodies, max_body: config.max_body.0 }
    }
}

impl Recorder for StoreRecorder {
    fn begin(&self, flow: &Flow, head: Option<&RequestHead>) -> Option<Box<dyn Capture>> {
        if !self.queue.admits() {
            self.queue.dropped_flows.fetch_add(1, Relaxed);
            return None;
        }
        let charge = FLOW + head.map_or(0, |h| h.headers.size() + h.url.path.len());
        let missing = if self.bodies { [None; 2] } else { [Some(Missing::Capped); 2] };
        let news = News {
            queued: true,
            charge,
            begin: Some(Begin::of(flow, head)),
            state: Some(Snapshot::of(flow)),
            missing,
            ..News::default()
        };
        let slot = Arc::new(Slot { id: flow.id, news: Mutex::new(news) });
        self.queue.charge(charge);
        self.queue.push(slot.clone());
        Some(Box::new(StoreCapture {
            slot,
            queue: self.queue.clone(),
            room: [if self.max_body == 0 { u64::MAX } else { self.max_body }; 4],
            bodies: self.bodies,
            is_tunnel: head.is_none(),
            ended: false,
        }))
    }
}

/// What is being kept of one flow.
struct StoreCapture {
    slot: Arc<Slot>,
    queue: Arc<Queue>,
    /// Bytes that may still be kept: of the two bodies, of the two directions' messages.
    room: [u64; 4],
    bodies: bool,
    is_tunnel: bool,
    ended: bool,
}

impl StoreCapture {
    /// Changes the news. `change` says how many bytes it took up.
    fn tell(&self, change: impl FnOnce(&mut News) -> usize) {
        let mut news = self.slot.news.lock();
        let charge = change(&mut news);
        news.charge += charge;
        // The flow is queued when it has much to tell or has ended; else the writer comes by within its sweep.
        let push = !news.queued && (news.charge >= FLUSH_BYTES || news.end.is_some());
        news.queued |= push;
        drop(news);
        self.queue.charge(charge);
        if push {
            self.queue.push(self.slot.clone());
        }
    }

    /// How much of `len` bytes may be kept, by the cap at `place` and the state of the queue.
    fn admit(&mut self, place: usize, len: usize) -> Result<usize, Missing> {
        if !self.queue.admits() {
            self.queue.dropped_bytes.fetch_add(len as u64, Relaxed);
            return Err(Missing::Dropped);
        }
        let keep = self.room[place].min(len as u64);
        self.room[place] -= keep;
        Ok(keep as usize)
    }
}

impl Capture for StoreCapture {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.queue.poll_ready(cx)
    }

    fn data(&mut self, direction: Direction, chunk: &Bytes) {
        if chunk.is_empty() {
            return;
        }
        let at = side(direction);
        let admitted = if self.bodies { self.admit(at, chunk.len()) } else { Err(Missing::Capped) };
        self.tell(|news| {
            news.sizes[at] += chunk.len() as u64;
            if news.missing[at].is_some() {
                return 1;
            }
            match admitted {
                Err(why) => {
                    news.missing[at] = Some(why);
                    1
                }
                Ok(keep) => {
                    if keep < chunk.len() {
                        news.missing[at] = Some(Missing::Capped);
                    }
                    if keep > 0 {
                        news.data[at].push(chunk.slice(..keep));
                    }
                    keep + PIECE
                }
            }
        });
    }

    fn trailers(&mut self, direction: Direction, trailers: &Headers) {
        self.tell(|news| {
            news.trailers[side(direction)] = Some(trailers.clone());
            trailers.size() + PIECE
        });
    }

    fn interim(&mut self, head: &ResponseHead) {
        self.tell(|news| {
            news.interim.push(head.clone());
            head.headers.size() + PIECE
        });
    }

    fn response(&mut self, flow: &Flow, head: &ResponseHead) {
        self.tell(|news| {
            news.response = Some(head.clone());
            news.see(flow);
            head.headers.size() + PIECE
        });
    }

    fn message(&mut self, message: &Message) {
        if !self.bodies {
            return;
        }
        let Ok(keep) = self.admit(2 + side(message.direction), message.payload.len()) else { return };
        let mut kept = message.clone();
        let size = message.payload.len();
        kept.payload.truncate(keep);
        self.tell(|news| {
            news.messages.push((kept, size as u64));
            keep + PIECE
        });
    }

    fn done(mut self: Box<Self>, flow: &Flow, outcome: Outcome<'_>) {
        self.ended = true;
        let end = End::of(flow, &outcome, self.is_tunnel);
        self.tell(|news| {
            news.end = Some(end);
            news.see(flow);
            PIECE
        });
    }
}

impl Drop for StoreCapture {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let is_tunnel = self.is_tunnel;
        self.tell(|news| {
            let tunnel = is_tunnel.then(TunnelBytes::default);
            news.end = Some(End { state: FlowState::Cut, tunnel, error: None, after: 0 });
            PIECE
        });
    }
}
