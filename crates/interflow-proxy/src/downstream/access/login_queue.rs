//! Schedules password hashing, which is slow by design, at a bounded concurrency. Each client has a queue of its own;
//! clients are served round robin and a client's latest attempt first, so that neither another client's guesses nor
//! earlier attempts of the same client delay a correct password by much.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum waiting attempts per client; the oldest is rejected for a new one.
const MAX_WAITING: usize = 8;
/// Maximum number of waiting clients; others are rejected.
const MAX_CLIENTS: usize = 1024;

#[derive(Debug)]
pub struct LoginQueue {
    lines: Mutex<LoginQueueState>,
    slots: usize,
}

#[derive(Debug, Default)]
struct LoginQueueState {
    running: usize,
    waiting: HashMap<IpAddr, Vec<oneshot::Sender<HashingSlot>>>,
    // Holds each client of `waiting` exactly once.
    turns: VecDeque<IpAddr>,
}

/// Permission to hash; released when dropped. `None` inside means that the slot was passed on and must not be
/// released again.
#[derive(Debug)]
pub struct HashingSlot(Option<Arc<LoginQueue>>);

impl LoginQueue {
    /// `slots` is the number of concurrent hashes.
    pub fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::default(), slots })
    }

    /// Waits for a slot; `None` if too many clients wait, or if this attempt was displaced by later ones of the same
    /// client. Cancel-safe: a waiter that is dropped gives its turn to the next.
    pub async fn acquire(self: &Arc<Self>, client: IpAddr) -> Option<HashingSlot> {
        let client = client.to_canonical();
        let turn = {
            let mut lines = self.lines.lock();
            if lines.running < self.slots {
                lines.running += 1;
                return Some(HashingSlot(Some(Arc::clone(self))));
            }
            if !lines.waiting.contains_key(&client) {
                if lines.turns.len() >= MAX_CLIENTS {
                    return None;
                }
                lines.turns.push_back(client);
            }
            let (leave, turn) = oneshot::channel();
            let line = lines.waiting.entry(client).or_default();
            // Abandoned attempts do not count against the limit.
            line.retain(|waiting| !waiting.is_closed());
            if line.len() >= MAX_WAITING {
                line.remove(0);
            }
            line.push(leave);
            turn
        };
        turn.await.ok()
    }

    /// Passes the slot on, or frees it if nobody waits. The number of running hashes stays the same when the slot is
    /// passed on.
    fn release(self: &Arc<Self>) {
        let mut lines = self.lines.lock();
        while let Some(client) = lines.turns.pop_front() {
            let Some(line) = lines.waiting.get_mut(&client) else { continue };
            // The latest attempt first: a person who corrects a typing error should not wait for the earlier ones.
            let next = line.pop();
            if line.is_empty() {
                lines.waiting.remove(&client);
            } else {
                lines.turns.push_back(client);
            }
            let Some(next) = next else { continue };
            match next.send(HashingSlot(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // The waiter is gone. The lock is held, so the slot's `Drop` must not release it again.
                Err(mut slot) => drop(slot.0.take()),
            }
        }
        lines.running -= 1;
    }
}

impl Drop for HashingSlot {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.release();
        }
    }
}

/// This client has too many attempts waiting, or too many clients are waiting. Callers answer with 429 and ask for a
/// retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginQueueFull;

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// Yields until all ready tasks have run.
    async fn settle() {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn login_flood_of_one_client_is_bounded_and_delays_no_other_client() {
        let queue = LoginQueue::new(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let running = queue.acquire(ONE).await.unwrap();
        let attempt = |name: String, client: IpAddr| {
            let (queue, order) = (Arc::clone(&queue), Arc::clone(&order));
            tokio::spawn(async move {
                let slot = queue.acquire(client).await;
                if slot.is_some() {
                    order.lock().push(name);
                }
                slot.is_some()
            })
        };
        let mut guesses = Vec::new();
        for i in 0..100 {
            guesses.push(attempt(format!("guess {i}"), ONE));
            settle().await;
        }
        let other = attempt("other".into(), OTHER);
        settle().await;
        let last = attempt("last".into(), ONE);
        settle().await;
        drop(running);
        assert!(other.await.unwrap() && last.await.unwrap());
        let mut hashed = 0;
        for guess in guesses {
            hashed += usize::from(guess.await.unwrap());
        }
        assert_eq!(hashed, MAX_WAITING - 1, "the others are refused without a hash");
        assert_eq!(order.lock()[..2], ["last", "other"]);
        assert_eq!(queue.lines.lock().running, 0);
    }

    #[tokio::test]
    async fn cancelled_waiter_does_not_block_the_login_queue() {
        let queue = LoginQueue::new(1);
        let running = queue.acquire(ONE).await.unwrap();
        let gone = {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.acquire(ONE).await.is_some() })
        };
        settle().await;
        gone.abort();
        settle().await;
        drop(running);
        assert_eq!(queue.lines.lock().running, 0);
        assert!(queue.acquire(OTHER).await.is_some());
    }
}
