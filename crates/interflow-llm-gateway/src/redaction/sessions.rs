//! The sessions of conversations: whose they are, and those that a provider continues by an id.

use std::sync::Arc;

use hashlink::LruCache;
use interflow_llm::otlp::conversation_id;
use interflow_redact::{PlaceholderVault, RedactionSession, SharedSession, VaultKey};
use interflow_types::{Flow, RequestHead};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::RedactionService;
use super::effective_policy::EffectivePolicy;
use crate::credentials::{SENT_CREDENTIALS, lasting_identity};
use crate::limits::KeyContext;

/// Whose a conversation is: of a virtual key, else of the client's own credentials, and in each case of a user. Ids of
/// conversations are in URLs and records, so that an id alone must not lead to the originals of another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionOwner {
    id: [u8; 32],
    /// The same without what changes when credentials are renewed: placeholders are derived from it, since thoughts are
    /// signed over them. Originals of another client cannot be had by it.
    lasting: [u8; 32],
}

impl SessionOwner {
    pub fn of(flow: &Flow, head: &RequestHead) -> Self {
        let mut parts = HashedParts::default();
        parts.add(flow.user.as_deref().unwrap_or_default().as_bytes());
        let mut lasting = parts.clone();
        match flow.extension::<KeyContext>().and_then(|context| context.key.as_deref()) {
            // The provider's key is the same for all virtual keys, and a client may present its own in several fields.
            Some(key) => {
                parts.add(b"key");
                parts.add(key.id.as_bytes());
                lasting = parts.clone();
            }
            None => {
                lasting.add(lasting_identity(head, flow.client.peer.ip()).unwrap_or_default().as_bytes());
                parts.add(b"credentials");
                SENT_CREDENTIALS.iter().for_each(|name| parts.add(head.headers.get(name).unwrap_or_default()));
                let key = head.url.query().and_then(|q| q.split('&').find_map(|pair| pair.strip_prefix("key=")));
                parts.add(key.unwrap_or_default().as_bytes());
            }
        }
        Self { id: parts.finish(), lasting: lasting.finish() }
    }

    /// The key of a conversation's vault, by the id that the client gave it, or its first message.
    fn vault_key(&self, service: &RedactionService, head: &RequestHead, first: &[u8]) -> VaultKey {
        let mut parts = HashedParts::default();
        parts.add(&self.lasting);
        parts.add(conversation_id(&head.headers).map_or(first, str::as_bytes));
        VaultKey::for_conversation(&service.master, &parts.finish())
    }
}

/// A hash of parts, each preceded by its length, so that no two lists of parts collide.
#[derive(Clone, Default)]
pub(crate) struct HashedParts(Sha256);

impl HashedParts {
    pub fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Sessions of conversations that the provider continues by an id (Responses API: `previous_response_id`), each for its
/// owner alone; those not used for the longest time are evicted first. Without its session, a continued conversation
/// would show placeholders to the client.
pub(super) struct SessionCache(Mutex<LruCache<[u8; 32], SharedSession>>);

impl Default for SessionCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(0)))
    }
}

impl SessionCache {
    pub fn get(&self, owner: SessionOwner, id: &str) -> Option<SharedSession> {
        self.0.lock().get(&Self::key(owner, id)).cloned()
    }

    /// Adds a session; at most `most` are kept.
    pub fn insert(&self, owner: SessionOwner, id: &str, session: SharedSession, most: usize) {
        let mut sessions = self.0.lock();
        sessions.set_capacity(most);
        sessions.insert(Self::key(owner, id), session);
    }

    fn key(owner: SessionOwner, id: &str) -> [u8; 32] {
        let mut parts = HashedParts::default();
        parts.add(&owner.id);
        parts.add(id.as_bytes());
        parts.finish()
    }
}

/// A session whose findings are not restored.
pub(super) fn one_way_session(choice: &EffectivePolicy) -> SharedSession {
    Arc::new(Mutex::new(RedactionSession::one_way().in_context(choice.context.clone())))
}

/// The session of a conversation: the one of the response that it continues, if this owner's, else a new one, whose
/// placeholders are derived from the conversation, so that they are the same in each of its requests.
pub(super) fn conversation_session(
    service: &RedactionService,
    choice: &EffectivePolicy,
    owner: SessionOwner,
    head: &RequestHead,
    continues: Option<&[u8]>,
    first: &[u8],
) -> SharedSession {
    let id = continues.and_then(|id| std::str::from_utf8(id).ok());
    if let Some(known) = id.and_then(|id| service.kept.get(owner, id)) {
        return known;
    }
    // Values in fixed prompts get the same placeholders in all of a client's conversations, so that the provider's
    // prompt cache keeps matching.
    let vault = PlaceholderVault::new(&owner.vault_key(service, head, first))
        .with_fixed(&VaultKey::for_installation(&service.master));
    Arc::new(Mutex::new(RedactionSession::reversible(vault).in_context(choice.context.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SharedSession {
        Arc::new(Mutex::new(RedactionSession::one_way()))
    }

    #[test]
    fn a_session_that_is_used_outlives_one_that_is_not() {
        let of = |id: u8| SessionOwner { id: [id; 32], lasting: [0; 32] };
        let (cache, owner, other) = (SessionCache::default(), of(1), of(2));
        cache.insert(owner, "used", session(), 2);
        cache.insert(owner, "idle", session(), 2);
        assert!(cache.get(owner, "used").is_some());
        cache.insert(owner, "new", session(), 2);
        assert!(cache.get(owner, "used").is_some() && cache.get(owner, "new").is_some());
        assert!(cache.get(owner, "idle").is_none());
        assert!(cache.get(other, "used").is_none(), "the id of another owner");
    }
}
