//! Reads jobs from a queue and hands them to workers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MAX_RETRIES: u32 = 5;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum JobState {
    Pending,
    Running { since: u64, worker: usize },
    Failed(String),
    Done,
}

/// A queue with a limit; `push` fails when it is full.
pub struct Queue<T> {
    items: Mutex<Vec<T>>,
    limit: usize,
    stats: Arc<Stats>,
}

impl<T: Send + 'static> Queue<T> {
    pub fn new(limit: usize) -> Self {
        Self { items: Mutex::new(Vec::with_capacity(limit)), limit, stats: Arc::default() }
    }

    pub fn push(&self, item: T) -> Result<(), QueueError> {
        let mut items = self.items.lock().map_err(|_| QueueError::Poisoned)?;
        if items.len() >= self.limit {
            return Err(QueueError::Full { limit: self.limit });
        }
        items.push(item);
        self.stats.pushed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Waits at most `timeout` for a job; `None` when there was none.
    pub async fn next(&self, timeout: Duration) -> Option<T> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(item) = self.items.lock().ok()?.pop() {
                return Some(item);
            }
            if Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses() {
        let queue = Queue::new(1);
        assert!(queue.push(1).is_ok());
        assert!(matches!(queue.push(2), Err(QueueError::Full { limit: 1 })));
        assert_eq!(queue.next(DEFAULT_TIMEOUT).await, Some(1));
    }
}
