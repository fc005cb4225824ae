//! The bounded queue of flows with updates, between the proxy's workers and the writer thread.
//!
//! A flow is in the queue at most once: updates accumulate in its [`PendingFlow`]. A short flow therefore costs its
//! worker one push, and long streams are collected by the writer's periodic sweep.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::{OverflowPolicy, RecordConfig};
use crate::store::recording::pending_flow::PendingFlow;

/// Workers push to different shards, to avoid contention on one lock.
const SHARDS: usize = 8;
/// The writer is woken early when this many bytes are queued.
const URGENT_BYTES: usize = 1 << 20;
const URGENT_FLOWS: usize = 128;
/// With `overflow = "wait"`, data of a flow that never polls for readiness is dropped only when the queue exceeds its
/// limit by this factor.
const HARD_LIMIT_FACTOR: usize = 4;

/// Flows that wait for the recorder.
#[derive(Default)]
struct WaitingFlows {
    wakers: Vec<Waker>,
    /// Since when at least one waits.
    since: Option<Instant>,
    /// Time during which at least one waited, before `since`.
    before: Duration,
}

/// The queue with its limits and counters.
#[derive(Default)]
pub(crate) struct WriterQueue {
    shards: [Mutex<Vec<Arc<PendingFlow>>>; SHARDS],
    bytes: AtomicUsize,
    flows: AtomicUsize,
    waiting: Mutex<WaitingFlows>,
    writer: OnceLock<Thread>,
    asleep: AtomicBool,
    urgent: AtomicBool,
    suspended: AtomicBool,
    /// Whether what waits for the shared store has reached its bound.
    spool_full: AtomicBool,
    closed: AtomicBool,
    max_bytes: usize,
    max_flows: usize,
    overflow: OverflowPolicy,
    pub(crate) dropped_flows: AtomicU64,
    /// Bytes of bodies and messages that were not recorded.
    pub(crate) dropped_bytes: AtomicU64,
    pub(crate) waits: AtomicU64,
}

impl WriterQueue {
    pub(crate) fn new(config: &RecordConfig) -> Self {
        Self {
            max_bytes: usize::try_from(config.queue_bytes.0).unwrap_or(usize::MAX).max(1),
            max_flows: config.queue_flows.max(1),
            overflow: config.overflow,
            ..Self::default()
        }
    }

    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.bytes.load(Ordering::Relaxed), self.flows.load(Ordering::Relaxed))
    }

    fn exceeds(&self, times: usize) -> bool {
        // Two values read one after the other: the limit is approximate, which is enough here.
        let (bytes, flows) = self.depth();
        // Divided instead of multiplied, which could overflow for a limit near the maximum.
        bytes / times >= self.max_bytes || flows / times >= self.max_flows
    }

    /// Whether the queue is over its limits.
    pub(crate) fn is_behind(&self) -> bool {
        self.exceeds(1)
    }

    /// Whether more data is accepted; the caller must count what is refused.
    pub(crate) fn has_room(&self) -> bool {
        if self.suspended.load(Ordering::Relaxed) || self.closed.load(Ordering::Relaxed) {
            return false;
        }
        match self.overflow {
            OverflowPolicy::Drop => !self.exceeds(1) && !self.spool_full.load(Ordering::Relaxed),
            OverflowPolicy::Wait => !self.exceeds(HARD_LIMIT_FACTOR),
        }
    }

    /// Ready when the flow may continue. With `overflow = "wait"`, this is how a slow disk slows traffic down instead
    /// of losing data. Registers the waker otherwise; spurious wake-ups are possible.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let free = || {
            self.overflow == OverflowPolicy::Drop
                || (!self.exceeds(1) && !self.spool_full.load(Ordering::Relaxed))
                || self.suspended.load(Ordering::Relaxed)
                || self.closed.load(Ordering::Relaxed)
        };
        if free() {
            return Poll::Ready(());
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        {
            let mut waiting = self.waiting.lock();
            // A task polls several flows; one entry for it is enough.
            if !waiting.wakers.iter().any(|w| w.will_wake(cx.waker())) {
                waiting.wakers.push(cx.waker().clone());
            }
            waiting.since.get_or_insert_with(Instant::now);
        }
        self.request_urgent_batch();
        // Capacity may have been freed between the check and the registration of the waker.
        if free() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Charges bytes added to a pending flow: before the writer can see them, or it would subtract what was not added.
    pub(crate) fn charge(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Only the update that crosses the threshold wakes the writer.
        if before < URGENT_BYTES && before + bytes >= URGENT_BYTES {
            self.request_urgent_batch();
        }
    }

    /// Queues a flow, which must not be queued already.
    pub(crate) fn push(&self, slot: Arc<PendingFlow>) {
        thread_local!(static SHARD: usize = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
        });
        // Each worker keeps to one shard, so that its pushes stay in order and rarely contend.
        let shard = SHARD.with(|s| *s);
        // Counted before the writer can see it: what the writer subtracts was added. Sequentially consistent, as the writer
        // looks at the number after it has announced that it sleeps.
        let before = self.flows.fetch_add(1, Ordering::SeqCst);
        self.shards[shard].lock().push(slot);
        if before + 1 == URGENT_FLOWS {
            self.request_urgent_batch();
        // The load alone is enough in nearly all cases; the swap ensures that one worker makes the system call.
        } else if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.unpark();
        }
    }

    /// Takes all queued flows. They count as queued until [`release_charge`](Self::release_charge).
    pub(crate) fn drain(&self) -> Vec<Arc<PendingFlow>> {
        // The order between shards does not matter: all updates of one flow are in its one slot.
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

    /// Releases the charge of drained flows once they are being written.
    pub(crate) fn release_charge(&self, bytes: usize, flows: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.flows.fetch_sub(flows, Ordering::AcqRel);
        // All are woken at once; each checks the limit again and registers anew if it is too late.
        if !self.exceeds(1) && !self.spool_full.load(Ordering::Relaxed) {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let mut waiting = self.waiting.lock();
        let wakers = std::mem::take(&mut waiting.wakers);
        if let Some(since) = waiting.since.take() {
            waiting.before += since.elapsed();
        }
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How long at least one flow was made to wait, in total.
    pub(crate) fn backpressure(&self) -> Duration {
        let waiting = self.waiting.lock();
        waiting.before + waiting.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// While the disk refuses writes, nothing is accepted and no flow waits.
    pub(crate) fn suspend(&self, on: bool) {
        // The flag is set before the wake-ups, so that a task that is woken finds it.
        self.suspended.store(on, Ordering::SeqCst);
        if on {
            self.wake_all();
        }
    }

    /// Whether what waits for the shared store has reached its bound: then the policy for overflow applies.
    pub(crate) fn apply_spool_full(&self, on: bool) {
        if self.spool_full.swap(on, Ordering::SeqCst) && !on {
            self.wake_all();
        }
    }

    /// Whether flows wait until the shared store takes what waits for it.
    pub(crate) fn is_stalled(&self) -> bool {
        self.overflow == OverflowPolicy::Wait && self.spool_full.load(Ordering::Relaxed)
    }

    /// The writer has stopped: nothing more is accepted.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Registers the calling thread as the writer.
    pub(crate) fn adopt_writer(&self) {
        let _ = self.writer.set(std::thread::current());
    }

    /// Wakes the writer before its interval ends.
    pub(crate) fn request_urgent_batch(&self) {
        // The swap lets one worker of many make the system call.
        if !self.urgent.swap(true, Ordering::SeqCst) {
            self.asleep.store(false, Ordering::SeqCst);
            self.unpark();
        }
    }

    /// The writer is awake: later requests must wake it again.
    pub(crate) fn clear_urgent(&self) {
        self.urgent.store(false, Ordering::SeqCst);
    }

    /// Whether the writer should process the queue without further delay.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
    }

    /// Blocks the writer until a push wakes it, or for at most `longest`.
    pub(crate) fn sleep(&self, longest: std::time::Duration) {
        self.asleep.store(true, Ordering::SeqCst);
        // Checked after `asleep` was set: a push in between sees the flag and unparks, and an unpark before the park
        // makes it return at once.
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

#[cfg(test)]
mod tests {
    use interflow_types::{FlowId, Timestamp};

    use super::*;

    #[test]
    fn a_flow_is_counted_before_the_writer_can_take_it() {
        let queue = WriterQueue::new(&RecordConfig::default());
        std::thread::scope(|scope| {
            // The writer is about to take what is there.
            let taken: Vec<_> = queue.shards.iter().map(|shard| shard.lock()).collect();
            scope.spawn(|| {
                queue.push(Arc::new(PendingFlow { id: FlowId::new(Timestamp::now()), updates: Mutex::default() }));
            });
            let begun = Instant::now();
            while queue.depth().1 == 0 {
                assert!(begun.elapsed() < Duration::from_secs(60), "it is counted only when the writer can see it");
                std::thread::yield_now();
            }
            drop(taken);
        });
        assert_eq!(queue.drain().len(), 1);
        queue.release_charge(0, 1);
        assert_eq!(queue.depth(), (0, 0));
    }

    #[test]
    fn what_the_writer_subtracts_was_added() {
        const FLOWS: usize = 20_000;
        let queue = WriterQueue::new(&RecordConfig::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..FLOWS {
                        queue.push(Arc::new(PendingFlow {
                            id: FlowId::new(Timestamp::now()),
                            updates: Mutex::default(),
                        }));
                    }
                });
            }
            let mut taken = 0;
            while taken < 4 * FLOWS {
                let flows = queue.drain().len();
                queue.release_charge(0, flows);
                taken += flows;
                assert!(queue.depth().1 <= 4 * FLOWS, "more was subtracted than added: {:?}", queue.depth());
            }
        });
        assert_eq!(queue.depth(), (0, 0));
    }
}
