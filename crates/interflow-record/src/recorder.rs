//! The recorder that the corridor talks to. Its captures gather what passes, by reference count, in a slot that the
//! store's writer empties; a worker's part of a short flow is a few clones and one push.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use interflow_flow::{
    Capture, DecryptedMedia, Direction, Flow, Headers, Message, Outcome, Recorder, RequestHead, ResponseHead,
    TunnelBytes,
};
use parking_lot::Mutex;

use crate::config::RecordConfig;
use crate::heads::{Heads, Share};
use crate::model::{FlowState, Missing};
use crate::store::queue::Queue;
use crate::store::refs::side;
use crate::store::slot::{Begin, End, News, OriginalNews, RequestBegin, Slot, Snapshot};

/// News of a flow are handed to the writer when they hold this much; less waits for the writer's sweep.
const FLUSH_BYTES: usize = 64 << 10;
/// What a piece costs beside its bytes: its handle, and what it may pin of the buffer it is cut from.
const PIECE: usize = 64;
/// What a flow costs beside its header fields and bodies.
const FLOW: usize = 1536;

/// What is only counted is told when it has come to this much.
const COUNTED: u64 = 1 << 20;

/// Records into an [`EmbeddedStore`](crate::EmbeddedStore).
#[derive(Clone)]
pub struct StoreRecorder {
    queue: Arc<Queue>,
    bodies: bool,
    heads: Heads,
    decrypted_media: bool,
}

impl StoreRecorder {
    pub(crate) fn new(queue: Arc<Queue>, config: &RecordConfig) -> Self {
        Self { queue, bodies: config.bodies, heads: Heads::of(config), decrypted_media: config.decrypted_media }
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
        let cap = self.heads.cap();
        let capped = Share { room: cap, reason: Missing::Capped, hashed: false };
        let request = head.map_or(capped, |h| self.heads.share(Direction::Request, &h.headers));
        let news = News {
            queued: true,
            charge,
            begin: Some(Begin::of(flow, head)),
            state: Some(Snapshot::of(flow)),
            missing,
            hashed: [request.hashed, false],
            ..News::default()
        };
        let slot = Arc::new(Slot { id: flow.id, news: Mutex::new(news) });
        self.queue.charge(charge);
        self.queue.push(slot.clone());
        Some(Box::new(StoreCapture {
            slot,
            queue: self.queue.clone(),
            room: [request.room, cap, cap, cap],
            reasons: [request.reason, Missing::Capped],
            over: [!self.bodies; 2],
            counted: [0; 2],
            heads: self.heads,
            bodies: self.bodies,
            decrypted_media: self.decrypted_media,
            original: None,
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
    /// What is said of a body that is longer than its room.
    reasons: [Missing; 2],
    /// Nothing more of this body is kept: what comes is only counted.
    over: [bool; 2],
    /// What was counted and not told yet.
    counted: [u64; 2],
    heads: Heads,
    bodies: bool,
    decrypted_media: bool,
    /// Of a flow that was edited: what may still be kept of what came in.
    original: Option<Box<OriginalRoom>>,
    is_tunnel: bool,
    ended: bool,
}

/// What may still be kept of the bodies as they came in, as in [`StoreCapture`].
#[derive(Clone, Copy)]
struct OriginalRoom {
    room: [u64; 2],
    reasons: [Missing; 2],
    over: [bool; 2],
}

impl StoreCapture {
    /// Changes the news. `change` says how many bytes it took up.
    fn tell(&mut self, change: impl FnOnce(&mut News) -> usize) {
        let counted = std::mem::take(&mut self.counted);
        let mut news = self.slot.news.lock();
        let charge = change(&mut news);
        news.charge += charge;
        for (size, counted) in news.sizes.iter_mut().zip(counted) {
            *size += counted;
        }
        // The flow is queued when it has much to tell or has ended; else the writer comes by within its sweep.
        let push = !news.queued && (news.charge >= FLUSH_BYTES || news.end.is_some());
        news.queued |= push;
        drop(news);
        self.queue.charge(charge);
        if push {
            self.queue.push(self.slot.clone());
        }
    }

    /// How much of a response's body is recorded.
    fn share_of_response(&self, flow: &Flow, head: &ResponseHead) -> Share {
        match flow.note::<DecryptedMedia>() {
            Some(_) if !self.decrypted_media => Share { room: 0, reason: Missing::Decrypted, hashed: false },
            _ => self.heads.share(Direction::Response, &head.headers),
        }
    }

    /// Makes room for a body as it came in, and tells of its head.
    fn begin_original(&mut self, direction: Direction, share: Share, tell: impl FnOnce(&mut OriginalNews) -> usize) {
        let at = side(direction);
        let all = [Missing::Capped; 2];
        let room =
            self.original.get_or_insert_with(|| OriginalRoom { room: [0; 2], reasons: all, over: [true; 2] }.into());
        (room.room[at], room.reasons[at]) = (share.room, share.reason);
        room.over[at] = !self.bodies || share.room == 0;
        let withheld = room.over[at].then_some(if self.bodies { share.reason } else { Missing::Capped });
        self.tell(|news| {
            let original = news.original.get_or_insert_default();
            original.hashed[at] = share.hashed;
            original.missing[at] = withheld;
            tell(original) + PIECE
        });
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
        // What is only counted takes nothing of the queue.
        if self.bodies && self.over[1] { Poll::Ready(()) } else { self.queue.poll_ready(cx) }
    }

    fn data(&mut self, direction: Direction, chunk: &Bytes) {
        if chunk.is_empty() {
            return;
        }
        let at = side(direction);
        self.counted[at] += chunk.len() as u64;
        if self.over[at] {
            if self.counted[at] >= COUNTED {
                self.tell(|_| 1);
            }
            return;
        }
        let (admitted, reason) = (self.admit(at, chunk.len()), self.reasons[at]);
        let is_full = self.room[at] == 0;
        self.over[at] = admitted.is_err() || is_full;
        self.tell(|news| {
            if news.missing[at].is_some() {
                return 1;
            }
            match admitted {
                Err(why) => {
                    news.missing[at] = Some(why);
                    1
                }
                Ok(keep) => {
                    if keep > 0 {
                        news.data[at].push(chunk.slice(..keep));
                    }
                    // Of a body that is no longer than its room nothing is missing, whatever is said here.
                    if is_full {
                        news.missing[at] = Some(reason);
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
        let share = self.share_of_response(flow, head);
        (self.room[1], self.reasons[1]) = (share.room, share.reason);
        self.over[1] = !self.bodies || share.room == 0;
        let withheld = (self.bodies && share.room == 0).then_some(share.reason);
        self.tell(|news| {
            news.hashed[1] = share.hashed;
            news.missing[1] = news.missing[1].or(withheld);
            news.response = Some(head.clone());
            news.see(flow);
            head.headers.size() + PIECE
        });
    }

    fn original_request(&mut self, head: &RequestHead, body: bool) {
        let share = self.heads.share(Direction::Request, &head.headers);
        self.begin_original(Direction::Request, share, |news| {
            news.request = Some((head.url.clone(), RequestBegin::of(head), body));
            head.headers.size() + head.url.path.len()
        });
    }

    fn original_response(&mut self, flow: &Flow, head: &ResponseHead, body: bool) {
        let share = self.share_of_response(flow, head);
        self.begin_original(Direction::Response, share, |news| {
            news.response = Some((head.clone(), body));
            head.headers.size()
        });
    }

    fn original_data(&mut self, direction: Direction, chunk: &Bytes) {
        let (at, admits) = (side(direction), self.queue.admits());
        let Some(room) = self.original.as_mut().filter(|_| !chunk.is_empty()) else { return };
        let mut keep = 0;
        let mut missing = None;
        if !room.over[at] {
            if admits {
                keep = room.room[at].min(chunk.len() as u64) as usize;
                room.room[at] -= keep as u64;
                // Of a body that is no longer than its room nothing is missing, whatever is said here.
                missing = (room.room[at] == 0).then_some(room.reasons[at]);
            } else {
                self.queue.dropped_bytes.fetch_add(chunk.len() as u64, Relaxed);
                missing = Some(Missing::Dropped);
            }
            room.over[at] = missing.is_some();
        }
        self.tell(|news| {
            let original = news.original.get_or_insert_default();
            original.sizes[at] += chunk.len() as u64;
            if original.missing[at].is_some() {
                return 1;
            }
            original.missing[at] = missing;
            if keep > 0 {
                original.data[at].push(chunk.slice(..keep));
            }
            keep + PIECE
        });
    }

    fn original_lost(&mut self, direction: Direction) {
        let at = side(direction);
        if let Some(room) = &mut self.original {
            room.over[at] = true;
        }
        self.tell(|news| {
            let original = news.original.get_or_insert_default();
            // How long it was nobody knows: longer than nothing.
            original.sizes[at] = original.sizes[at].max(1);
            original.missing[at] = Some(Missing::Dropped);
            PIECE
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
