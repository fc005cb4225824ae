//! Conversations whose thoughts do not fit their history any more.

use hashlink::LruCache;
use parking_lot::Mutex;

use crate::gateway::routing::Affinity;

/// Conversations that are remembered; those not used for the longest time are forgotten first. A request of one that is
/// forgotten is refused once more, and repeated.
const MAX_CONVERSATIONS: usize = 10_000;

pub(in crate::gateway) struct UnboundConversations(Mutex<LruCache<u64, ()>>);

impl Default for UnboundConversations {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_CONVERSATIONS)))
    }
}

impl UnboundConversations {
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub fn insert(&self, conversation: Affinity) {
        self.0.lock().insert(conversation.0, ());
    }

    pub fn contains(&self, conversation: Affinity) -> bool {
        self.0.lock().get(&conversation.0).is_some()
    }
}
