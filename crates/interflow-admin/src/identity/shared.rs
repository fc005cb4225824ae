//! API tokens in the database that replicas share. Every replica keeps a copy, by which it checks requests, and looks for
//! changes every second.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use interflow_store::shared_state::{IdentityStore, SharedToken};
use interflow_types::Timestamp;

use crate::auth::ended_sessions::EndedSessions;

use super::tokens::{ApiTokens, FileTokenStore, StoredToken, TOKENS_FILE, TokenStore};

/// How often the copy is compared with the database.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The times of last uses are read with every so many looks.
const USES_EVERY: u32 = 60;

/// The database in which replicas share tokens and audit trail.
#[derive(Clone)]
pub struct SharedIdentity {
    pub store: Arc<dyn IdentityStore>,
    /// The name of this replica in the audit trail.
    pub replica: String,
}

/// Tokens in the database.
struct SharedTokenStore(Arc<dyn IdentityStore>);

impl TokenStore for SharedTokenStore {
    fn load(&self) -> io::Result<Vec<StoredToken>> {
        let parse = |token: SharedToken| -> io::Result<StoredToken> {
            let mut stored: StoredToken = serde_json::from_str(&token.text).map_err(io::Error::other)?;
            stored.token.last_used = token.last_used.map(Timestamp::from_micros);
            Ok(stored)
        };
        self.0.tokens().map_err(io::Error::other)?.into_iter().map(parse).collect()
    }

    fn add(&self, token: &StoredToken) -> io::Result<()> {
        let text = serde_json::to_string(token).map_err(io::Error::other)?;
        self.0.add_token(&token.token.id, &text).map_err(io::Error::other)
    }

    fn remove(&self, ids: &[String]) -> io::Result<()> {
        self.0.remove_tokens(ids).map_err(io::Error::other)
    }

    fn save_uses(&self, uses: &[(String, Timestamp)]) -> io::Result<()> {
        let uses: Vec<_> = uses.iter().map(|(id, at)| (id.clone(), at.micros())).collect();
        self.0.save_token_uses(&uses).map_err(io::Error::other)
    }

    fn version(&self) -> io::Result<Option<String>> {
        self.0.tokens_version().map(|version| Some(format!("{version:?}"))).map_err(io::Error::other)
    }
}

impl ApiTokens {
    /// The tokens in the database. Those of the data directory are moved there first: the file keeps its contents under
    /// another name, so that a token that is revoked later does not come back.
    ///
    /// # Errors
    /// The database does not answer, or the file cannot be read or renamed.
    pub fn open_shared(store: Arc<dyn IdentityStore>, data_dir: &Path) -> Result<Self, String> {
        let shared = SharedTokenStore(store);
        let file = data_dir.join(TOKENS_FILE);
        if file.exists() {
            let failed = |e: io::Error| format!("the tokens of {} cannot be moved: {e}", file.display());
            let local = FileTokenStore::new(data_dir).load().map_err(failed)?;
            local.iter().try_for_each(|token| shared.add(token)).map_err(failed)?;
            let moved = file.with_extension("json.moved");
            std::fs::rename(&file, &moved).map_err(failed)?;
            tracing::info!(
                "admin: {} API tokens are in the database of record.store now; {} has them as they were",
                local.len(),
                moved.display()
            );
        }
        Self::with_store(Box::new(shared)).map_err(|e| format!("the API tokens cannot be read: {e}"))
    }

    /// Follows changes of other replicas on a thread of its own, until the tokens are dropped; also the sessions that ended
    /// there.
    pub(crate) fn follow(self: &Arc<Self>, ended: &Arc<EndedSessions>) -> io::Result<()> {
        let (tokens, ended) = (Arc::downgrade(self), Arc::downgrade(ended));
        std::thread::Builder::new().name("api-tokens".into()).spawn(move || follow_changes(&tokens, &ended)).map(drop)
    }
}

fn follow_changes(tokens: &Weak<ApiTokens>, ended: &Weak<EndedSessions>) {
    let (mut looks, mut is_failing) = (0_u32, false);
    loop {
        std::thread::sleep(LOOK_INTERVAL);
        let (Some(tokens), Some(ended)) = (tokens.upgrade(), ended.upgrade()) else { return };
        looks = looks.wrapping_add(1);
        match tokens.refresh(looks.is_multiple_of(USES_EVERY)).and_then(|()| ended.refresh()) {
            Ok(()) if is_failing => {
                tracing::info!("admin: API tokens and logouts of other replicas are followed again");
                is_failing = false;
            }
            Ok(()) => {}
            Err(e) if !is_failing => {
                tracing::warn!(
                    "admin: API tokens and logouts of other replicas cannot be read until the database answers: {e}"
                );
                is_failing = true;
            }
            Err(_) => {}
        }
    }
}
