//! What lies between the proxy's workers and the one writer: a bounded queue of flows that have news.
//!
//! A flow stands in the queue at most once, however often it has news: the news themselves gather in its [`PendingFlow`]. So a
//! short flow costs its worker one push, and a stream is taken up by the writer's own sweep.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::Thread;

use parking_lot::Mutex;

use super::pending_flow::PendingFlow;
use crate::config::{OverflowPolicy, RecordConfig};

/// Workers push to different shards, so that they do not meet at one lock.
const SHARDS: usize = 8;
/// The writer is woken early when this much waits.
const URGENT_BYTES: usize = 1 << 20;
const URGENT_FLOWS: usize = 128;
/// Under `wait` a flow that never asks whether it may go on is dropped only when the queue is this many times over.
const HARD_LIMIT_FACTOR: usize = 4;

/// The queue, its bounds, and what was counted at its door.
pub(crate) struct WriterQueue {
    shards: [Mutex<Vec<Arc<PendingFlow>>>; SHARDS],
    bytes: AtomicUsize,
    flows: AtomicUsize,
    waiting: Mutex<Vec<Waker>>,
    writer: OnceLock<Thread>,
    asleep: AtomicBool,
    urgent: AtomicBool,
    suspended: AtomicBool,
    closed: AtomicBool,
    max_bytes: usize,
    max_flows: usize,
    overflow: OverflowPolicy,
    /// Flows of which nothing was kept.
    pub(crate) dropped_flows: AtomicU64,
    /// Bytes of bodies and messages that were not kept.
    pub(crate) dropped_bytes: AtomicU64,
    /// How often a flow had to wait.
    pub(crate) waits: AtomicU64,
}

impl WriterQueue {
    pub(crate) fn new(config: &RecordConfig) -> Self {
        Self {
            shards: Default::default(),
            bytes: AtomicUsize::new(0),
            flows: AtomicUsize::new(0),
            waiting: Mutex::default(),
            writer: OnceLock::new(),
            asleep: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            max_bytes: usize::try_from(config.queue_bytes.0).unwrap_or(usize::MAX).max(1),
            max_flows: config.queue_flows.max(1),
            overflow: config.overflow,
            dropped_flows: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    /// Bytes and flows that wait for the disk.
    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.bytes.load(Ordering::Relaxed), self.flows.load(Ordering::Relaxed))
    }

    fn exceeds(&self, times: usize) -> bool {
        let (bytes, flows) = self.depth();
        bytes / times >= self.max_bytes || flows / times >= self.max_flows
    }

    /// Whether more waits than should.
    pub(crate) fn is_behind(&self) -> bool {
        self.exceeds(1)
    }

    /// Whether there is room for news now; what is refused here has to be counted by the caller.
    pub(crate) fn has_room(&self) -> bool {
        if self.suspended.load(Ordering::Relaxed) || self.closed.load(Ordering::Relaxed) {
            return false;
        }
        match self.overflow {
            OverflowPolicy::Drop => !self.exceeds(1),
            OverflowPolicy::Wait => !self.exceeds(HARD_LIMIT_FACTOR),
        }
    }

    /// Ready when the flow may go on.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let free = || {
            self.overflow == OverflowPolicy::Drop
                || !self.exceeds(1)
                || self.suspended.load(Ordering::Relaxed)
                || self.closed.load(Ordering::Relaxed)
        };
        if free() {
            return Poll::Ready(());
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        {
            let mut waiting = self.waiting.lock();
            if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
        }
        self.request_urgent_batch();
        // There may have come room between the question and the waker's place in the list.
        if free() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts bytes that a slot has taken up.
    pub(crate) fn charge(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before < URGENT_BYTES && before + bytes >= URGENT_BYTES {
            self.request_urgent_batch();
        }
    }

    /// Puts a flow in, which must not be in already.
    pub(crate) fn push(&self, slot: Arc<PendingFlow>) {
        thread_local!(static SHARD: usize = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
        });
        let shard = SHARD.with(|s| *s);
        self.shards[shard].lock().push(slot);
        let before = self.flows.fetch_add(1, Ordering::AcqRel);
        if before + 1 == URGENT_FLOWS {
            self.request_urgent_batch();
        } else if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.unpark();
        }
    }

    /// Takes everything out. The flows count as waiting until [`settle`](Self::settle).
    pub(crate) fn drain(&self) -> Vec<Arc<PendingFlow>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            if all.is_empty() {
                all = std::mem::take(&mut *shard);
            } else {
                all.append(&mut shard);
            }
        }
        all
    }

    /// What was drained is on its way to the disk: there is room again.
    pub(crate) fn release_charge(&self, bytes: usize, flows: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.flows.fetch_sub(flows, Ordering::AcqRel);
        if !self.exceeds(1) {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// While the disk refuses, nothing is taken up and nobody waits.
    pub(crate) fn suspend(&self, on: bool) {
        self.suspended.store(on, Ordering::SeqCst);
        if on {
            self.wake_all();
        }
    }

    /// The writer has ended: nothing is taken up any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Makes the calling thread the writer.
    pub(crate) fn adopt_writer(&self) {
        let _ = self.writer.set(std::thread::current());
    }

    /// Wakes the writer before its time.
    pub(crate) fn request_urgent_batch(&self) {
        if !self.urgent.swap(true, Ordering::SeqCst) {
            self.asleep.store(false, Ordering::SeqCst);
            self.unpark();
        }
    }

    /// The writer is up: whatever comes from here on has to wake it again.
    pub(crate) fn clear_urgent(&self) {
        self.urgent.store(false, Ordering::SeqCst);
    }

    /// Whether the writer should not wait for more.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
    }

    /// The writer sleeps until somebody pushes, or for `longest`.
    pub(crate) fn sleep(&self, longest: std::time::Duration) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.flows.load(Ordering::SeqCst) == 0 && !self.is_urgent() {
            std::thread::park_timeout(longest);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn unpark(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}
