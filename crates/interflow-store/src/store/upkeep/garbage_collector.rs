//! The state of garbage collection, which `retention.rs` moves on.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::store::segments::chunks::ChunkWriter;
use crate::store::store_state::ReplySender;

/// The check interval while the disk is full.
pub(crate) const CHECK_INTERVAL_WHEN_FULL: Duration = Duration::from_secs(1);

/// The state of garbage collection: the current phase with its position, and the commands that wait for its end.
pub(crate) struct GarbageCollector {
    pub(crate) phase: CollectionPhase,
    pub(crate) looked: Option<Instant>,
    pub(crate) expired: u64,
    pub(crate) replies: Vec<ReplySender<u64>>,
    pub(crate) freed: u64,
}

pub(crate) enum CollectionPhase {
    Idle,
    /// Flows up to this row are deleted.
    Expire {
        up_to: i64,
    },
    MarkFlows {
        live: ChunkBitmap,
        after: i64,
    },
    MarkMessages {
        live: ChunkBitmap,
        after: (i64, i64),
    },
    Sweep {
        live: ChunkBitmap,
        after: i64,
        used: HashMap<u64, u64>,
    },
    Move {
        sparse: HashSet<u64>,
        after: i64,
    },
    Shrink,
}

/// One bit per chunk that existed when marking began.
pub(crate) struct ChunkBitmap {
    words: Vec<u64>,
    limit: u64,
}

impl ChunkBitmap {
    pub(crate) fn new(limit: u64) -> Self {
        Self { words: vec![0; (limit / 64 + 1) as usize], limit }
    }

    pub(crate) fn set(&mut self, id: u64) {
        // Chunks created after marking began have no bit and need none.
        if id < self.limit
            && let Some(word) = self.words.get_mut((id / 64) as usize)
        {
            *word |= 1 << (id % 64);
        }
    }

    /// Chunks created after marking began count as live.
    pub(crate) fn has(&self, id: u64) -> bool {
        id >= self.limit || self.words.get((id / 64) as usize).is_some_and(|w| w >> (id % 64) & 1 == 1)
    }

    pub(crate) fn revive(&mut self, chunks: &mut ChunkWriter) {
        if let Some(revived) = &mut chunks.revived {
            revived.drain(..).for_each(|id| self.set(id));
        }
    }
}

impl GarbageCollector {
    pub(crate) const fn new() -> Self {
        Self { phase: CollectionPhase::Idle, looked: None, expired: 0, replies: Vec::new(), freed: 0 }
    }

    pub(crate) const fn is_busy(&self) -> bool {
        !matches!(self.phase, CollectionPhase::Idle)
    }

    /// Aborts the current collection after a failed transaction; the next check restarts it. Callers that wait learn that
    /// their space is not freed.
    pub(crate) fn stop(&mut self) {
        self.phase = CollectionPhase::Idle;
        self.looked = Some(Instant::now());
        self.freed = 0;
        for reply in self.replies.drain(..) {
            let _ = reply.send(Err(StoreError::Suspended("disk space could not be given back".to_owned())));
        }
    }

    /// Whether another check may find more to do than the last one did.
    pub(crate) fn is_check_due(&self, expired: u64) -> bool {
        expired != self.expired || self.looked.is_none_or(|at| at.elapsed() >= CHECK_INTERVAL_WHEN_FULL)
    }

    pub(crate) fn reply_waiters(&mut self) {
        let freed = std::mem::take(&mut self.freed);
        for reply in self.replies.drain(..) {
            let _ = reply.send(Ok(freed));
        }
    }
}
