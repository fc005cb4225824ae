//! Queues of reports that leave the process: bounded, and delivered in the background by one worker at a time. Nothing waits
//! for them; what finds the queue full is dropped and counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Where the items of a [`SinkQueue`] go.
pub trait Sink: Send + Sync + Sized + 'static {
    type Item: Send + 'static;

    /// Starts the delivery on this runtime: of all that [`SinkWorker::next_batch`] returns, until it returns `None`.
    fn start(worker: SinkWorker<Self>, runtime: &Handle);
}

/// A sink with the items that wait for it.
pub struct SinkQueue<S: Sink> {
    sink: S,
    max: usize,
    state: Mutex<QueueState<S::Item>>,
    counts: Arc<SinkCounts>,
}

/// What became of the items of a queue, or of several queues that followed each other.
#[derive(Debug, Default)]
pub struct SinkCounts {
    pub delivered: AtomicU64,
    /// Items that found the queue full, or could not be delivered.
    pub dropped: AtomicU64,
}

struct QueueState<T> {
    waiting: VecDeque<T>,
    /// Items that are being delivered. They count: a sink that hangs must not take more memory than one that was never
    /// used.
    in_flight: usize,
    has_worker: bool,
}

impl<S: Sink> SinkQueue<S> {
    /// A queue of at most `max` items, which adds to these counts.
    pub fn new(sink: S, max: usize, counts: Arc<SinkCounts>) -> Arc<Self> {
        let state = QueueState { waiting: VecDeque::new(), in_flight: 0, has_worker: false };
        Arc::new(Self { sink, max, state: Mutex::new(state), counts })
    }

    pub const fn sink(&self) -> &S {
        &self.sink
    }

    pub fn counts(&self) -> &SinkCounts {
        &self.counts
    }

    /// Whether nothing waits or is being delivered.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && state.in_flight == 0 && !state.has_worker
    }

    /// Queues an item; `false` if the queue is full. Outside a runtime it waits for the next item or for
    /// [`take`](Self::take).
    pub fn push(self: &Arc<Self>, item: S::Item) -> bool {
        let runtime = Handle::try_current();
        let needs_worker = {
            let mut state = self.state.lock();
            if state.waiting.len() + state.in_flight >= self.max {
                self.counts.dropped.fetch_add(1, Relaxed);
                return false;
            }
            state.waiting.push_back(item);
            runtime.is_ok() && !std::mem::replace(&mut state.has_worker, true)
        };
        if needs_worker && let Ok(runtime) = runtime {
            S::start(SinkWorker { queue: Arc::clone(self), is_over: false }, &runtime);
        }
        true
    }

    /// Takes all that waits, to deliver it outside the worker.
    pub fn take(self: &Arc<Self>) -> SinkBatch<S> {
        self.state.lock().take(self)
    }
}

impl<T> QueueState<T> {
    fn take<S: Sink<Item = T>>(&mut self, queue: &Arc<SinkQueue<S>>) -> SinkBatch<S> {
        let items = std::mem::take(&mut self.waiting);
        self.in_flight += items.len();
        SinkBatch { queue: Arc::clone(queue), open: items.len(), items }
    }
}

/// The right to deliver. If it is dropped early, with the runtime of its task, the next item starts another worker.
pub struct SinkWorker<S: Sink> {
    queue: Arc<SinkQueue<S>>,
    is_over: bool,
}

impl<S: Sink> SinkWorker<S> {
    pub const fn queue(&self) -> &Arc<SinkQueue<S>> {
        &self.queue
    }

    /// All that waits. `None` ends the work: from then on the next item starts another worker.
    ///
    /// # Races
    /// Both happen under one lock, so that no item is left without a worker.
    pub fn next_batch(&mut self) -> Option<SinkBatch<S>> {
        let mut state = self.queue.state.lock();
        self.is_over = state.waiting.is_empty();
        state.has_worker = !self.is_over;
        (!self.is_over).then(|| state.take(&self.queue))
    }
}

impl<S: Sink> Drop for SinkWorker<S> {
    fn drop(&mut self) {
        if !self.is_over {
            self.queue.state.lock().has_worker = false;
        }
    }
}

/// Items on their way. Those that are not settled when this is dropped count as dropped.
pub struct SinkBatch<S: Sink> {
    queue: Arc<SinkQueue<S>>,
    pub items: VecDeque<S::Item>,
    open: usize,
}

impl<S: Sink> SinkBatch<S> {
    /// This many items were delivered, or given up.
    pub fn settle(&mut self, count: usize, is_delivered: bool) {
        let count = count.min(self.open);
        self.open -= count;
        self.queue.state.lock().in_flight -= count;
        let counts = &self.queue.counts;
        let counter = if is_delivered { &counts.delivered } else { &counts.dropped };
        counter.fetch_add(count as u64, Relaxed);
    }
}

impl<S: Sink> Drop for SinkBatch<S> {
    fn drop(&mut self) {
        self.settle(self.open, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands its workers to the test.
    #[derive(Default)]
    struct Workers(Mutex<Vec<SinkWorker<Self>>>);

    impl Sink for Workers {
        type Item = u32;

        fn start(worker: SinkWorker<Self>, _: &Handle) {
            let queue = Arc::clone(worker.queue());
            queue.sink().0.lock().push(worker);
        }
    }

    fn worker(queue: &SinkQueue<Workers>) -> SinkWorker<Workers> {
        let mut workers = queue.sink().0.lock();
        assert_eq!(workers.len(), 1);
        workers.remove(0)
    }

    #[tokio::test]
    async fn items_in_flight_count_against_the_bound_until_they_are_settled() {
        let queue = SinkQueue::new(Workers::default(), 2, Arc::default());
        assert!(queue.push(1) && queue.push(2) && !queue.push(3));
        let mut worker = worker(&queue);
        let mut batch = worker.next_batch().unwrap();
        assert_eq!(batch.items, [1, 2]);
        assert!(!queue.push(4));
        batch.settle(1, true);
        assert!(queue.push(5));
        drop(batch);
        let counts = queue.counts();
        assert_eq!((counts.delivered.load(Relaxed), counts.dropped.load(Relaxed)), (1, 3));
        assert_eq!(worker.next_batch().unwrap().items, [5]);
        assert!(worker.next_batch().is_none() && queue.is_idle());
    }

    #[tokio::test]
    async fn a_worker_that_ends_or_is_lost_is_followed_by_another() {
        let queue = SinkQueue::new(Workers::default(), 9, Arc::default());
        queue.push(1);
        drop(worker(&queue));
        queue.push(2);
        let mut second = worker(&queue);
        assert_eq!(second.next_batch().unwrap().items, [1, 2]);
        assert!(second.next_batch().is_none());
        queue.push(3);
        let mut third = worker(&queue);
        // The right of the third is not taken away by the end of the second.
        drop(second);
        queue.push(4);
        assert_eq!(third.next_batch().unwrap().items, [3, 4]);
    }

    #[test]
    fn items_queued_outside_a_runtime_wait() {
        let queue = SinkQueue::new(Workers::default(), 9, Arc::default());
        assert!(queue.push(1) && queue.sink().0.lock().is_empty());
        assert_eq!(queue.take().items, [1]);
    }
}
