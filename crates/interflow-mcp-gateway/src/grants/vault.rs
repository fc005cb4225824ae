//! Where grants are kept: sealed, in a file or in what replicas share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use interflow_files::{FileAccess, FileLock, optional, write_atomic};
use interflow_limits::VirtualKey;
use interflow_store::StoreError;
use interflow_store::shared_state::{GrantStore, StoredGrant};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::oauth_client::OAuthClient;
use super::user::{AccountUser, KEY, LOCAL, of_key};
use super::{KeyRingSource, now};
use crate::session::request_state::{StateBinding, StateSealer};

/// What an authorization server granted the gateway for a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub access_token: String,
    /// When it expires, in seconds since 1970.
    pub expires: Option<u64>,
    pub refresh_token: Option<String>,
    /// That were asked for, with those of earlier grants.
    pub scopes: Vec<String>,
    pub issuer: String,
    pub token_endpoint: String,
    pub client: OAuthClient,
    pub resource: String,
    pub connected: u64,
}

pub(crate) struct GrantVault {
    pub store: Arc<dyn GrantStore>,
    pub sealer: Arc<StateSealer>,
    pub keys: KeyRingSource,
}

fn binding(user: &str, server: &str) -> StateBinding {
    StateBinding::new(user, server, "grant", "")
}

impl GrantVault {
    /// The virtual key with this secret.
    pub fn key(&self, secret: &str) -> Option<Arc<VirtualKey>> {
        (self.keys)().find_now(secret).ok()
    }

    /// The grant of a user for a server. One that another secret sealed is none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn grant(&self, user: &AccountUser, server: &str) -> Result<Option<Grant>, String> {
        Ok(self.stored(user, server).await?.map(|(_, grant)| grant))
    }

    /// As [`grant`](Self::grant), with what is stored.
    pub async fn stored(&self, user: &AccountUser, server: &str) -> Result<Option<(StoredGrant, Grant)>, String> {
        if *user.name == *LOCAL && self.store.is_shared() {
            return Err("users of several machines are not told apart without virtual keys or access tokens".to_owned());
        }
        let names = (user.name.to_string(), server.to_owned());
        let stored = self.blocking(move |store| store.grant(&names.0, &names.1)).await?;
        let opened = stored.and_then(|stored| {
            let grant = self.sealer.open_value(&stored.sealed, &binding(&user.name, server))?;
            Some((stored, grant))
        });
        Ok(opened.filter(|(_, grant): &(_, Grant)| grant.connected >= user.since))
    }

    /// Keeps a grant in place of one, or forgets that, unless another took its place meanwhile.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn replace(&self, old: StoredGrant, new: Option<&Grant>) -> Result<bool, String> {
        let seal = |grant| self.sealer.seal_value(grant, &binding(&old.user, &old.server)).map_err(|e| e.message);
        let sealed = new.map(seal).transpose()?;
        self.blocking(move |store| {
            let new = sealed.map(|sealed| StoredGrant { sealed, ..old.clone() });
            store.replace_grant(&old, new.as_ref())
        })
        .await
    }

    /// # Errors
    /// The store cannot be written.
    pub async fn put(&self, user: &str, server: &str, grant: &Grant) -> Result<(), String> {
        let sealed = self.sealer.seal_value(grant, &binding(user, server)).map_err(|e| e.message)?;
        let (user, server) = (user.to_owned(), server.to_owned());
        let stored = StoredGrant { user, server, connected: grant.connected, sealed };
        self.blocking(move |store| store.put_grant(&stored)).await?;
        self.remove_of_lost_keys().await
    }

    /// Forgets a grant; `false` if there is none.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn remove(&self, user: &str, server: &str) -> Result<bool, String> {
        let names = (user.to_owned(), server.to_owned());
        self.blocking(move |store| store.remove_grant(&names.0, &names.1)).await
    }

    /// All grants, of keys that there are.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn grants(&self) -> Result<Vec<StoredGrant>, String> {
        self.remove_of_lost_keys().await?;
        self.blocking(|store| store.grants()).await
    }

    /// Forgets the grants of keys that were removed or revoked.
    ///
    /// # Errors
    /// The store cannot be changed.
    pub async fn remove_of_lost_keys(&self) -> Result<(), String> {
        let ring = (self.keys)();
        self.blocking(move |store| {
            let keys: Vec<_> = ring.keys().iter().filter(|key| key.revoked.is_none()).map(|key| of_key(key)).collect();
            let is_lost = |grant: &StoredGrant| {
                let is_of = |(name, since): &(String, u64)| *name == grant.user && *since <= grant.connected;
                grant.user.starts_with(KEY) && !keys.iter().any(is_of)
            };
            store.grants()?.iter().filter(|grant| is_lost(grant)).try_for_each(|grant| {
                tracing::info!(user = grant.user, server = grant.server, "removed account of a lost key");
                // Not one that was put in its place meanwhile.
                store.replace_grant(grant, None).map(drop)
            })
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn GrantStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, String> {
        let store = Arc::clone(&self.store);
        let done = tokio::task::spawn_blocking(move || work(&*store)).await.map_err(|e| e.to_string())?;
        // Clients are not told where they are.
        done.map_err(|error| {
            tracing::warn!(%error, "cannot read or write the accounts of users");
            "the accounts of users cannot be read or written; the log of the gateway says why".to_owned()
        })
    }
}

/// A file that only its owner may read.
pub struct GrantFile {
    path: PathBuf,
    /// What is in it, with its version.
    content: Mutex<Option<(FileVersion, Arc<[StoredGrant]>)>>,
}

/// When it was changed, and its length.
type FileVersion = (SystemTime, u64);

/// Two changes within this time may leave a file with one time.
const CLOCK_TICK: Duration = Duration::from_secs(1);

#[derive(Default, Serialize, Deserialize)]
struct FileContent {
    grants: Vec<StoredGrant>,
}

impl GrantFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, content: Mutex::default() }
    }

    /// Each request of a client asks for a grant: the file is parsed only if it changed.
    fn read(&self) -> Result<Arc<[StoredGrant]>, StoreError> {
        let version = optional(std::fs::metadata(&self.path).and_then(|meta| Ok((meta.modified()?, meta.len()))));
        let Some(version) = version.map_err(|e| self.failed("reading", e))? else { return Ok(Arc::default()) };
        if let Some((_, grants)) = self.content.lock().as_ref().filter(|(own, _)| *own == version) {
            return Ok(Arc::clone(grants));
        }
        let text = std::fs::read(&self.path).map_err(|e| self.failed("reading", e))?;
        let content: FileContent = serde_json::from_slice(&text).map_err(|e| self.failed("reading", e))?;
        let grants = Arc::from(content.grants);
        let is_settled = version.0.elapsed().is_ok_and(|age| age > CLOCK_TICK);
        *self.content.lock() = is_settled.then(|| (version, Arc::clone(&grants)));
        Ok(grants)
    }

    fn failed(&self, what: &'static str, source: impl Into<std::io::Error>) -> StoreError {
        StoreError::Io { what, path: self.path.clone(), source: source.into() }
    }

    /// Changes the file, unless nothing changes.
    fn edit(&self, edit: impl FnOnce(&mut Vec<StoredGrant>) -> bool) -> Result<bool, StoreError> {
        let _alone = FileLock::for_edit(&self.path).map_err(|e| self.failed("locking", e))?;
        let mut grants = self.read()?.to_vec();
        let is_changed = edit(&mut grants);
        if is_changed {
            let text = serde_json::to_vec_pretty(&FileContent { grants }).map_err(|e| self.failed("writing", e))?;
            write_atomic(&self.path, &text, FileAccess::Private).map_err(|e| self.failed("writing", e))?;
        }
        Ok(is_changed)
    }
}

impl GrantStore for GrantFile {
    fn grants(&self) -> Result<Vec<StoredGrant>, StoreError> {
        Ok(self.read()?.to_vec())
    }

    fn grant(&self, user: &str, server: &str) -> Result<Option<StoredGrant>, StoreError> {
        Ok(self.read()?.iter().find(|grant| grant.user == user && grant.server == server).cloned())
    }

    fn put_grant(&self, grant: &StoredGrant) -> Result<(), StoreError> {
        let put = |grants: &mut Vec<StoredGrant>| {
            grants.retain(|other| (&other.user, &other.server) != (&grant.user, &grant.server));
            grants.push(grant.clone());
            true
        };
        self.edit(put).map(drop)
    }

    fn replace_grant(&self, old: &StoredGrant, new: Option<&StoredGrant>) -> Result<bool, StoreError> {
        self.edit(|grants| {
            let Some(at) = grants.iter().position(|grant| grant == old) else { return false };
            grants.remove(at);
            grants.extend(new.cloned());
            true
        })
    }

    fn remove_grant(&self, user: &str, server: &str) -> Result<bool, StoreError> {
        self.edit(|grants| {
            let before = grants.len();
            grants.retain(|grant| grant.user != user || grant.server != server);
            grants.len() < before
        })
    }
}

impl Grant {
    /// Whether the access token is of no use any more, or soon.
    pub fn is_stale(&self) -> bool {
        const MARGIN: u64 = 30;
        self.expires.is_some_and(|expires| expires <= now() + MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_file_is_parsed_again_only_after_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = GrantFile::new(folder.path().join("accounts.json"));
        assert_eq!(file.grants().unwrap(), []);
        let text =
            |user: &str| format!(r#"{{"grants":[{{"user":"{user}","server":"crm","connected":1,"sealed":""}}]}}"#);
        let write = |user: &str, age: u64| {
            std::fs::write(&file.path, text(user)).unwrap();
            let changed = SystemTime::now().checked_sub(Duration::from_secs(age)).unwrap();
            File::options().write(true).open(&file.path).unwrap().set_modified(changed).unwrap();
            changed
        };
        let users = || file.grants().unwrap().into_iter().map(|grant| grant.user).collect::<String>();
        let changed = write("anna", 60);
        assert_eq!(users(), "anna");
        // The same time and length stand for the same content.
        std::fs::write(&file.path, text("emma")).unwrap();
        File::options().write(true).open(&file.path).unwrap().set_modified(changed).unwrap();
        assert_eq!(users(), "anna");
        write("bob", 60);
        assert_eq!(users(), "bob");
        // What has just changed may change again without another time.
        let changed = write("carl", 0);
        assert_eq!(users(), "carl");
        std::fs::write(&file.path, text("dora")).unwrap();
        File::options().write(true).open(&file.path).unwrap().set_modified(changed).unwrap();
        assert_eq!(users(), "dora");
        let own = StoredGrant { user: "eve".into(), ..file.grants().unwrap()[0].clone() };
        file.put_grant(&own).unwrap();
        assert_eq!(file.grant("eve", "crm").unwrap(), Some(own));
    }
}
