//! The recorder called by the request pipeline. Captures collect data by reference count in a `PendingFlow` that the
//! store's writer drains; for a short flow a worker performs a few clones and one push.
//!
//! Nothing here waits for the disk. Back-pressure is a separate call, `poll_ready`, which the pipeline makes where it
//! can wait; data that arrives all the same is accepted up to a hard limit, and dropped and counted beyond it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use bytes::Bytes;
use interflow_types::{
    ByteCounts, DecryptedMedia, Direction, Flow, FlowOutcome, FlowRecording, FlowStored, Headers, Recorder,
    RequestHead, ResponseHead, SecretBodies, StreamMessage,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::body_policy::{BodyAllowance, BodyPolicy};
use crate::config::RecordConfig;
use crate::model::MissingReason;
use crate::store::recording::pending_flow::{
    FlowEnd, FlowSnapshot, FlowStart, OriginalUpdates, PendingFlow, PendingUpdates, RequestStart, WithheldResponse,
};
use crate::store::recording::queue::WriterQueue;
use crate::store::segments::chunk_refs::body_index;

/// Updates of a flow are queued for the writer at this size; smaller ones wait for the writer's sweep.
const FLUSH_BYTES: usize = 64 << 10;
/// Accounting overhead of a data chunk: its handle, and the part of the receive buffer that it may pin.
const PIECE_OVERHEAD: usize = 64;
/// Accounting overhead of a flow beside its header fields and bodies.
const FLOW_OVERHEAD: usize = 1536;

/// Bytes that are only counted are reported in steps of this size.
const SIZE_REPORT_BYTES: u64 = 1 << 20;

/// The recorder of the request pipeline. Cheap to clone: all clones feed one queue.
#[derive(Clone)]
pub struct StoreRecorder {
    pub(crate) queue: Arc<WriterQueue>,
    /// The active configuration, which a reload replaces: a flow is recorded to its end as it was begun.
    pub(crate) config: Arc<ArcSwap<RecordConfig>>,
}

impl Recorder for StoreRecorder {
    fn begin(&self, flow: &Flow, head: Option<&RequestHead>) -> Option<Box<dyn FlowRecording>> {
        let config = self.config.load();
        if !config.enabled {
            return None;
        }
        // Refused before anything is allocated; the flow then runs unrecorded.
        if !self.queue.has_room() {
            self.queue.dropped_flows.fetch_add(1, Relaxed);
            return None;
        }
        // Known now, so that a flood of heads alone is bounded too.
        let charge = FLOW_OVERHEAD + head.map_or(0, |h| h.headers.size() + h.url.path.len());
        // With `record.bodies = false`, no body is ever whole.
        let is_secret = flow.extension::<SecretBodies>().is_some();
        let missing = match (config.bodies, is_secret) {
            (true, false) => [None; 2],
            (true, true) => [Some(MissingReason::Secret); 2],
            (false, _) => [Some(MissingReason::Capped); 2],
        };
        let heads = BodyPolicy::from_config(&config);
        let cap = heads.cap();
        let capped = BodyAllowance { max_bytes: cap, reason: MissingReason::Capped, hashed: false };
        let request = head.map_or(capped, |h| heads.allowance(Direction::Request, &h.headers));
        // Marked as queued from the start: the push below is the one that counts.
        let updates = PendingUpdates {
            queued: true,
            charge,
            begin: Some(FlowStart::from_flow(flow, head)),
            state: Some(FlowSnapshot::from_flow(flow)),
            missing,
            hashed: [request.hashed && !is_secret, false],
            ..PendingUpdates::default()
        };
        let slot = Arc::new(PendingFlow { id: flow.id, updates: Mutex::new(updates) });
        // Charged before the push, so that the writer never releases more than was charged.
        self.queue.charge(charge);
        self.queue.push(slot.clone());
        Some(Box::new(StoreCapture {
            slot,
            queue: self.queue.clone(),
            remaining: [request.max_bytes, cap, cap, cap],
            reasons: [request.reason, MissingReason::Capped],
            over: [!config.bodies || is_secret; 2],
            counted: [0; 2],
            heads,
            bodies: config.bodies,
            decrypted_media: config.decrypted_media,
            is_secret,
            original: None,
            is_tunnel: head.is_none(),
            is_synchronous: config.is_synchronous(),
            withheld: None,
            ended: false,
        }))
    }
}

struct StoreCapture {
    slot: Arc<PendingFlow>,
    queue: Arc<WriterQueue>,
    /// Bytes that may still be recorded: for the two bodies, then for the messages of the two directions.
    remaining: [u64; 4],
    /// The reason recorded for a body that exceeds its allowance.
    reasons: [MissingReason; 2],
    /// Whether further bytes of this body are only counted: nothing may be recorded any more.
    over: [bool; 2],
    /// Bytes seen since the last update, reported with the next one.
    counted: [u64; 2],
    heads: BodyPolicy,
    bodies: bool,
    decrypted_media: bool,
    /// The flow's request has [secret bodies](SecretBodies).
    is_secret: bool,
    /// Allowances for the received versions of a flow that was edited.
    original: Option<Box<OriginalAllowance>>,
    is_tunnel: bool,
    is_synchronous: bool,
    withheld: Option<WithheldResponse>,
    ended: bool,
}

/// Remaining allowances for the bodies as received, as in [`StoreCapture`].
#[derive(Clone, Copy)]
struct OriginalAllowance {
    remaining: [u64; 2],
    reasons: [MissingReason; 2],
    over: [bool; 2],
}

impl StoreCapture {
    /// Applies `change` to the pending updates; it returns the number of bytes added.
    fn update(&mut self, change: impl FnOnce(&mut PendingUpdates) -> usize) {
        let counted = std::mem::take(&mut self.counted);
        let mut updates = self.slot.updates.lock();
        let charge = change(&mut updates);
        // The writer subtracts the sum when it takes the updates.
        updates.charge += charge;
        for (size, counted) in updates.sizes.iter_mut().zip(counted) {
            *size += counted;
        }
        // A client that is gone waits for nothing.
        drop(updates.withheld.take_if(|withheld| withheld.is_closed()));
        let is_withheld = updates.withheld.is_some();
        // The flow is queued when it has a lot of data or has ended; otherwise the writer's periodic sweep picks it up.
        let push = !updates.queued && (updates.charge >= FLUSH_BYTES || updates.end.is_some() || is_withheld);
        updates.queued |= push;
        // Charged before the writer can take the updates.
        self.queue.charge(charge);
        // The lock is released before the push: the writer takes it while it drains.
        drop(updates);
        if push {
            self.queue.push(self.slot.clone());
        }
        if is_withheld {
            self.queue.request_urgent_batch();
            // The writer has ended, and nobody takes the updates any more.
            if self.queue.is_closed() {
                self.slot.updates.lock().withheld = None;
            }
        }
    }

    /// How much of a response body is recorded.
    fn response_allowance(&self, flow: &Flow, head: &ResponseHead) -> BodyAllowance {
        let nothing = |reason| BodyAllowance { max_bytes: 0, reason, hashed: false };
        match flow.extension::<DecryptedMedia>() {
            _ if flow.extension::<SecretBodies>().is_some() => nothing(MissingReason::Secret),
            Some(_) if !self.decrypted_media => nothing(MissingReason::Decrypted),
            _ => self.heads.allowance(Direction::Response, &head.headers),
        }
    }

    /// Starts recording a body as received, and records its head.
    fn begin_original(
        &mut self,
        direction: Direction,
        share: BodyAllowance,
        tell: impl FnOnce(&mut OriginalUpdates) -> usize,
    ) {
        let at = body_index(direction);
        let all = [MissingReason::Capped; 2];
        let original = self
            .original
            .get_or_insert_with(|| OriginalAllowance { remaining: [0; 2], reasons: all, over: [true; 2] }.into());
        // Each direction begins on its own; until then it admits nothing.
        (original.remaining[at], original.reasons[at]) = (share.max_bytes, share.reason);
        original.over[at] = !self.bodies || share.max_bytes == 0;
        let withheld = original.over[at].then_some(if self.bodies { share.reason } else { MissingReason::Capped });
        self.update(|updates| {
            let original = updates.original.get_or_insert_default();
            original.hashed[at] = share.hashed;
            original.missing[at] = withheld;
            tell(original) + PIECE_OVERHEAD
        });
    }

    /// How much of `len` bytes may be recorded, given the allowance at `place` and the state of the queue.
    fn admit(&mut self, place: usize, len: usize) -> Result<usize, MissingReason> {
        // The hard limit: waiting is done in `poll_ready`, before data arrives.
        if !self.queue.has_room() {
            self.queue.dropped_bytes.fetch_add(len as u64, Relaxed);
            return Err(MissingReason::Dropped);
        }
        let keep = self.remaining[place].min(len as u64);
        self.remaining[place] -= keep;
        Ok(keep as usize)
    }
}

impl FlowRecording for StoreCapture {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Bytes that are only counted do not occupy the queue.
        if self.bodies && self.over[1] { Poll::Ready(()) } else { self.queue.poll_ready(cx) }
    }

    fn data(&mut self, direction: Direction, chunk: &Bytes) {
        if chunk.is_empty() {
            return;
        }
        let at = body_index(direction);
        // Counted even if nothing of it is recorded: the size is always known.
        self.counted[at] += chunk.len() as u64;
        if self.over[at] {
            if self.counted[at] >= SIZE_REPORT_BYTES {
                // A charge of one, so that the writer's sweep sees that there is an update.
                self.update(|_| 1);
            }
            return;
        }
        let (admitted, reason) = (self.admit(at, chunk.len()), self.reasons[at]);
        let is_full = self.remaining[at] == 0;
        // From here on the body is only counted.
        self.over[at] = admitted.is_err() || is_full;
        self.update(|updates| {
            // An earlier part is missing, so later parts would leave a hole.
            if updates.missing[at].is_some() {
                return 1;
            }
            match admitted {
                Err(why) => {
                    updates.missing[at] = Some(why);
                    1
                }
                Ok(keep) => {
                    if keep > 0 {
                        updates.data[at].push(chunk.slice(..keep));
                    }
                    // The reason has no effect if the body turns out not to exceed its allowance.
                    if is_full {
                        updates.missing[at] = Some(reason);
                    }
                    keep + PIECE_OVERHEAD
                }
            }
        });
    }

    fn trailers(&mut self, direction: Direction, trailers: &Headers) {
        self.update(|updates| {
            updates.trailers[body_index(direction)] = Some(trailers.clone());
            trailers.size() + PIECE_OVERHEAD
        });
    }

    fn interim(&mut self, head: &ResponseHead) {
        self.update(|updates| {
            updates.interim.push(head.clone());
            head.headers.size() + PIECE_OVERHEAD
        });
    }

    fn response(&mut self, flow: &Flow, head: &ResponseHead) {
        let share = self.response_allowance(flow, head);
        (self.remaining[1], self.reasons[1]) = (share.max_bytes, share.reason);
        // Decided anew: the allowance depends on the response's media type and length.
        self.over[1] = !self.bodies || share.max_bytes == 0;
        let withheld = (self.bodies && share.max_bytes == 0).then_some(share.reason);
        self.update(|updates| {
            updates.hashed[1] = share.hashed;
            updates.missing[1] = updates.missing[1].or(withheld);
            updates.response = Some(head.clone());
            updates.set_snapshot(flow);
            head.headers.size() + PIECE_OVERHEAD
        });
    }

    fn original_request(&mut self, head: &RequestHead, body: bool) {
        let share = match self.is_secret {
            true => BodyAllowance { max_bytes: 0, reason: MissingReason::Secret, hashed: false },
            false => self.heads.allowance(Direction::Request, &head.headers),
        };
        self.begin_original(Direction::Request, share, |updates| {
            updates.request = Some((head.url.clone(), RequestStart::from_head(head), body));
            head.headers.size() + head.url.path.len()
        });
    }

    fn original_response(&mut self, flow: &Flow, head: &ResponseHead, body: bool) {
        let share = self.response_allowance(flow, head);
        self.begin_original(Direction::Response, share, |updates| {
            updates.response = Some((head.clone(), body));
            head.headers.size()
        });
    }

    fn original_data(&mut self, direction: Direction, chunk: &Bytes) {
        let (at, admits) = (body_index(direction), self.queue.has_room());
        // Without a head there is nothing to attach the bytes to.
        let Some(original) = self.original.as_mut().filter(|_| !chunk.is_empty()) else { return };
        let mut keep = 0;
        let mut missing = None;
        if !original.over[at] {
            if admits {
                keep = original.remaining[at].min(chunk.len() as u64) as usize;
                original.remaining[at] -= keep as u64;
                // The reason has no effect if the body turns out not to exceed its allowance.
                missing = (original.remaining[at] == 0).then_some(original.reasons[at]);
            } else {
                self.queue.dropped_bytes.fetch_add(chunk.len() as u64, Relaxed);
                missing = Some(MissingReason::Dropped);
            }
            original.over[at] = missing.is_some();
        }
        self.update(|updates| {
            let original = updates.original.get_or_insert_default();
            original.sizes[at] += chunk.len() as u64;
            if original.missing[at].is_some() {
                return 1;
            }
            original.missing[at] = missing;
            if keep > 0 {
                original.data[at].push(chunk.slice(..keep));
            }
            keep + PIECE_OVERHEAD
        });
    }

    fn original_lost(&mut self, direction: Direction) {
        let at = body_index(direction);
        if let Some(original) = &mut self.original {
            original.over[at] = true;
        }
        self.update(|updates| {
            let original = updates.original.get_or_insert_default();
            // The true length is unknown, but greater than zero.
            original.sizes[at] = original.sizes[at].max(1);
            original.missing[at] = Some(MissingReason::Dropped);
            PIECE_OVERHEAD
        });
    }

    fn message(&mut self, message: &StreamMessage) {
        if !self.bodies || self.is_secret {
            return;
        }
        // A message that does not fit is dropped as a whole.
        let Ok(keep) = self.admit(2 + body_index(message.direction), message.payload.len()) else { return };
        let mut stored = message.clone();
        let size = message.payload.len();
        // The size is recorded beside it, so that a cut payload is recognised.
        stored.payload.truncate(keep);
        self.update(|updates| {
            updates.messages.push((stored, size as u64));
            keep + PIECE_OVERHEAD
        });
    }

    fn until_stored(&mut self) -> Option<FlowStored> {
        if !self.is_synchronous {
            return None;
        }
        let (withheld, stored) = oneshot::channel();
        self.withheld = Some(withheld);
        Some(Box::pin(async { drop(stored.await) }))
    }

    fn store_now(&mut self, flow: &Flow) {
        let Some(withheld) = self.withheld.take() else { return };
        self.update(|updates| {
            updates.withheld = Some(withheld);
            updates.set_snapshot(flow);
            PIECE_OVERHEAD
        });
    }

    fn finish(mut self: Box<Self>, flow: &Flow, outcome: FlowOutcome<'_>) {
        self.ended = true;
        let end = FlowEnd::from_flow(flow, &outcome, self.is_tunnel);
        let withheld = self.withheld.take();
        self.update(|updates| {
            updates.end = Some(end);
            updates.withheld = withheld.or(updates.withheld.take());
            updates.set_snapshot(flow);
            PIECE_OVERHEAD
        });
    }
}

impl Drop for StoreCapture {
    fn drop(&mut self) {
        // The usual end: `finish` was called.
        if self.ended {
            return;
        }
        // Dropped without an outcome: the request was cancelled, or its task panicked.
        let is_tunnel = self.is_tunnel;
        self.update(|updates| {
            updates.end = Some(FlowEnd::cut(is_tunnel.then(ByteCounts::default)));
            PIECE_OVERHEAD
        });
    }
}
