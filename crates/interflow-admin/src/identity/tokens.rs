//! Tokens of people and services for the API: created once, stored as hashes with role and expiry, revoked at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use interflow_files::{FileAccess, optional, write_atomic};
use interflow_types::schema::JsonSchema;
use interflow_types::{Timestamp, random_bytes};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Identity, IdentityKind, Rights, Role};

/// The file in the data directory.
pub const TOKENS_FILE: &str = "admin-tokens.json";
/// Every token begins with it, so that scanners for leaked secrets can recognise one.
const PREFIX: &str = "ift_";
/// Bound on stored tokens.
const MAX_TOKENS: usize = 1000;
/// Bound on a name, in characters.
const MAX_NAME: usize = 100;
/// Uses are written to the file at most this often, in microseconds.
const LAST_USE_STEP: u64 = 60_000_000;

/// Whose token it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// Of a program; made by an admin.
    Service,
    /// Of the person who made it.
    Personal,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiToken {
    pub id: String,
    pub name: String,
    pub kind: TokenKind,
    pub role: Role,
    /// Whether it may read bodies although its role may not.
    #[serde(default)]
    pub read_bodies: bool,
    /// Who made it.
    pub created_by: String,
    /// The person as the issuer names them: whose personal token it is, or who made it for a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub created: Timestamp,
    /// Absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Its last use, to a minute; absent if it was never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

impl ApiToken {
    pub fn is_expired(&self) -> bool {
        self.expires.is_some_and(|at| at.micros() <= Timestamp::now().micros())
    }

    fn identity(&self) -> Identity {
        let (kind, name) = match self.kind {
            TokenKind::Service => (IdentityKind::ServiceToken, self.name.clone()),
            TokenKind::Personal => (IdentityKind::PersonalToken, format!("{} of {}", self.name, self.created_by)),
        };
        // A service is no person, even if a person made its token.
        let subject = self.subject.clone().filter(|_| self.kind == TokenKind::Personal);
        let rights = self.role.rights_with(self.read_bodies);
        Identity { subject, token: Some(self.id.clone()), ..Identity::new(kind, name, self.role, rights) }
    }
}

/// A token as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredToken {
    #[serde(flatten)]
    pub token: ApiToken,
    /// SHA-256 of the secret in hexadecimal. The secret has 256 random bits, so a slow hash would add nothing.
    pub hash: String,
}

/// Where tokens are kept: a file, or the table of a database that several instances share. Methods block.
pub trait TokenStore: Send + Sync {
    /// # Errors
    /// The tokens cannot be read; nobody is let in with one then.
    fn load(&self) -> io::Result<Vec<StoredToken>>;

    /// # Errors
    /// The token cannot be written; it does not exist then.
    fn add(&self, token: &StoredToken) -> io::Result<()>;

    /// Removes tokens; ids of others are ignored.
    ///
    /// # Errors
    /// The tokens cannot be removed; the store still has them.
    fn remove(&self, ids: &[String]) -> io::Result<()>;

    /// Notes when tokens were last used.
    ///
    /// # Errors
    /// The times cannot be written.
    fn save_uses(&self, uses: &[(String, Timestamp)]) -> io::Result<()>;

    /// A value that changes when another instance adds or removes a token; `None` if no other does.
    ///
    /// # Errors
    /// The store does not answer.
    fn version(&self) -> io::Result<Option<String>> {
        Ok(None)
    }
}

/// Tokens in a private file.
#[derive(Debug)]
pub struct FileTokenStore(PathBuf);

impl FileTokenStore {
    pub fn new(data_dir: &Path) -> Self {
        Self(data_dir.join(TOKENS_FILE))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<StoredToken>)) -> io::Result<()> {
        let mut tokens = self.load()?;
        change(&mut tokens);
        let text = serde_json::to_vec_pretty(&tokens).map_err(io::Error::other)?;
        write_atomic(&self.0, &text, FileAccess::Private)
    }
}

impl TokenStore for FileTokenStore {
    fn load(&self) -> io::Result<Vec<StoredToken>> {
        let text = optional(std::fs::read(&self.0))?;
        text.map_or_else(|| Ok(Vec::new()), |text| serde_json::from_slice(&text).map_err(io::Error::other))
    }

    fn add(&self, token: &StoredToken) -> io::Result<()> {
        self.change(|tokens| tokens.push(token.clone()))
    }

    fn remove(&self, ids: &[String]) -> io::Result<()> {
        self.change(|tokens| tokens.retain(|t| !ids.contains(&t.token.id)))
    }

    fn save_uses(&self, uses: &[(String, Timestamp)]) -> io::Result<()> {
        self.change(|tokens| {
            for token in tokens {
                let used = uses.iter().find(|(id, _)| *id == token.token.id);
                token.token.last_used = used.map(|(_, at)| *at).max(token.token.last_used);
            }
        })
    }
}

/// What a new token is to be.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    pub kind: TokenKind,
    pub role: Role,
    pub read_bodies: bool,
    pub created_by: String,
    pub subject: Option<String>,
    pub expires: Option<Timestamp>,
}

/// Whether a presented token is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenCheck {
    Valid(Identity),
    Expired,
    Unknown,
}

/// The tokens of an instance.
pub struct ApiTokens {
    store: Box<dyn TokenStore>,
    tokens: Mutex<Vec<StoredToken>>,
    /// Held while the store is read or written, so that an older list never replaces a newer one; the version of the list.
    saving: Mutex<Option<String>>,
    has_unsaved_uses: AtomicBool,
}

impl ApiTokens {
    /// The tokens in the data directory.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn open(data_dir: &Path) -> Result<Self, String> {
        let store = FileTokenStore::new(data_dir);
        let path = store.0.display().to_string();
        Self::with_store(Box::new(store))
            .map_err(|e| format!("{path} cannot be read: {e}; correct it, or remove it to revoke all tokens"))
    }

    /// # Errors
    /// The store cannot be read.
    pub fn with_store(store: Box<dyn TokenStore>) -> io::Result<Self> {
        let version = store.version()?;
        let tokens = Mutex::new(store.load()?);
        Ok(Self { store, tokens, saving: Mutex::new(version), has_unsaved_uses: AtomicBool::default() })
    }

    pub fn list(&self) -> Vec<ApiToken> {
        self.tokens.lock().iter().map(|t| t.token.clone()).collect()
    }

    /// Creates a token; its text is returned once.
    ///
    /// # Errors
    /// The name is empty or too long, there are too many tokens, or the store cannot be written.
    pub fn create(&self, new: NewToken) -> Result<(ApiToken, String), String> {
        let name = new.name.trim().to_owned();
        if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(format!("a token has a name of 1 to {MAX_NAME} characters without control characters"));
        }
        let id = hex::encode(random_bytes::<6>());
        let secret = hex::encode(random_bytes::<32>());
        let token = ApiToken {
            id: id.clone(),
            name,
            kind: new.kind,
            role: new.role,
            read_bodies: new.read_bodies,
            created_by: new.created_by,
            subject: new.subject,
            created: Timestamp::now(),
            expires: new.expires,
            last_used: None,
        };
        if token.is_expired() {
            return Err("the expiry is in the past".to_owned());
        }
        let _saving = self.saving.lock();
        let not_written = |e: io::Error| format!("the tokens cannot be written: {e}");
        // Expired tokens free capacity; they are listed until then.
        let (expired, left) = {
            let tokens = self.tokens.lock();
            let expired = tokens.iter().filter(|t| t.token.is_expired()).map(|t| t.token.id.clone());
            let expired: Vec<String> = if tokens.len() >= MAX_TOKENS { expired.collect() } else { Vec::new() };
            let remaining = tokens.len() - expired.len();
            (expired, remaining)
        };
        if left >= MAX_TOKENS {
            return Err(format!("there are {MAX_TOKENS} tokens: revoke one first"));
        }
        if !expired.is_empty() {
            self.store.remove(&expired).map_err(not_written)?;
        }
        let stored = StoredToken { token: token.clone(), hash: hash(&secret) };
        self.store.add(&stored).map_err(not_written)?;
        let mut tokens = self.tokens.lock();
        tokens.retain(|t| !expired.contains(&t.token.id));
        tokens.push(stored);
        Ok((token, format!("{PREFIX}{id}_{secret}")))
    }

    /// Revokes a token; `None` if there is none of this id.
    ///
    /// # Errors
    /// The store cannot be written. The token is rejected here nevertheless, until the store is read again.
    pub fn revoke(&self, id: &str) -> Result<Option<ApiToken>, String> {
        Ok(self.revoke_all(|token| token.id == id)?.pop())
    }

    /// Revokes the personal tokens of a person who logged in and no longer has the rights of these tokens, or none.
    ///
    /// # Errors
    /// As [`revoke`](Self::revoke).
    pub(crate) fn revoke_beyond(&self, subject: &str, rights: Option<Rights>) -> Result<Vec<ApiToken>, String> {
        self.revoke_all(|token| {
            let is_theirs = token.kind == TokenKind::Personal && token.subject.as_deref() == Some(subject);
            let needed = token.role.rights_with(token.read_bodies);
            is_theirs && !rights.is_some_and(|rights| rights.contains(needed))
        })
    }

    fn revoke_all(&self, mut is_revoked: impl FnMut(&ApiToken) -> bool) -> Result<Vec<ApiToken>, String> {
        let _saving = self.saving.lock();
        let mut revoked = Vec::new();
        self.tokens.lock().retain(|t| {
            let goes = is_revoked(&t.token);
            if goes {
                revoked.push(t.token.clone());
            }
            !goes
        });
        if revoked.is_empty() {
            return Ok(revoked);
        }
        let ids: Vec<String> = revoked.iter().map(|t| t.id.clone()).collect();
        self.store.remove(&ids).map_err(|e| {
            format!(
                "the token is rejected here for now, but the store cannot be written; revoke it again once it can: {e}"
            )
        })?;
        Ok(revoked)
    }

    pub(crate) fn is_active(&self, id: &str) -> bool {
        self.tokens.lock().iter().any(|t| t.token.id == id && !t.token.is_expired())
    }

    /// Checks a presented token and notes its use.
    pub(crate) fn check(&self, presented: &str) -> TokenCheck {
        let parts = presented.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        let Some((id, secret)) = parts else { return TokenCheck::Unknown };
        let mut tokens = self.tokens.lock();
        let Some(found) = tokens.iter_mut().find(|t| t.token.id == id) else { return TokenCheck::Unknown };
        // In constant time, so that the time of the answer says nothing about the hash.
        if !bool::from(found.hash.as_bytes().ct_eq(hash(secret).as_bytes())) {
            return TokenCheck::Unknown;
        }
        if found.token.is_expired() {
            return TokenCheck::Expired;
        }
        let now = Timestamp::now();
        let is_due = found.token.last_used.is_none_or(|at| now.micros().saturating_sub(at.micros()) >= LAST_USE_STEP);
        if is_due {
            found.token.last_used = Some(now);
            self.has_unsaved_uses.store(true, Relaxed);
        }
        TokenCheck::Valid(found.token.identity())
    }

    pub(crate) fn has_unsaved_uses(&self) -> bool {
        self.has_unsaved_uses.load(Relaxed)
    }

    /// Writes the times of last uses. Blocks on the store.
    pub(crate) fn save_uses(&self) {
        let _saving = self.saving.lock();
        if !self.has_unsaved_uses.swap(false, Relaxed) {
            return;
        }
        let uses = |t: &StoredToken| t.token.last_used.map(|at| (t.token.id.clone(), at));
        let uses: Vec<_> = self.tokens.lock().iter().filter_map(uses).collect();
        // A use that cannot be written is not a reason to refuse it.
        if let Err(e) = self.store.save_uses(&uses) {
            tracing::warn!("admin: the last use of a token cannot be written: {e}");
        }
    }

    /// Takes over what other instances added and revoked; `also_uses` reads the times of last uses, too. Blocks on the
    /// store.
    ///
    /// # Errors
    /// The store does not answer; the tokens stay as they were.
    pub(crate) fn refresh(&self, also_uses: bool) -> io::Result<()> {
        let mut saved = self.saving.lock();
        let version = self.store.version()?;
        if *saved == version && !also_uses {
            return Ok(());
        }
        let mut loaded = self.store.load()?;
        let mut tokens = self.tokens.lock();
        for token in &mut loaded {
            let here = tokens.iter().find(|t| t.token.id == token.token.id).and_then(|t| t.token.last_used);
            token.token.last_used = token.token.last_used.max(here);
        }
        (*tokens, *saved) = (loaded, version);
        Ok(())
    }
}

fn hash(secret: &str) -> String {
    hex::encode(Sha256::digest(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str) -> NewToken {
        let (kind, role) = (TokenKind::Service, Role::Viewer);
        let created_by = "admin token".to_owned();
        NewToken { name: name.into(), kind, role, read_bodies: false, created_by, subject: None, expires: None }
    }

    fn from_now(micros: i64) -> Option<Timestamp> {
        Some(Timestamp::from_micros(Timestamp::now().micros().saturating_add_signed(micros)))
    }

    #[test]
    fn tokens_survive_a_restart_as_hashes_and_are_revoked_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = ApiTokens::open(dir.path()).unwrap();
        let (made, text) = tokens.create(new("ci")).unwrap();
        let file = std::fs::read_to_string(dir.path().join(TOKENS_FILE)).unwrap();
        let secret = text.rsplit('_').next().unwrap();
        assert!(!file.contains(secret) && file.contains(&hash(secret)), "{file}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(dir.path().join(TOKENS_FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let again = ApiTokens::open(dir.path()).unwrap();
        let TokenCheck::Valid(identity) = again.check(&text) else { panic!("{text}") };
        assert_eq!((identity.role, identity.name.as_str()), (Role::Viewer, "ci"));
        again.save_uses();
        assert!(ApiTokens::open(dir.path()).unwrap().list()[0].last_used.is_some());
        for wrong in [text.replace(PREFIX, "ifx_"), format!("{text}0"), format!("{PREFIX}{}_", made.id), "ift_".into()]
        {
            assert_eq!(again.check(&wrong), TokenCheck::Unknown, "{wrong}");
        }
        assert_eq!(again.revoke(&made.id).unwrap().map(|t| t.id), Some(made.id.clone()));
        assert_eq!((again.check(&text), again.is_active(&made.id)), (TokenCheck::Unknown, false));
        assert_eq!(ApiTokens::open(dir.path()).unwrap().check(&text), TokenCheck::Unknown);
    }

    #[test]
    fn expired_tokens_are_refused_and_an_expiry_in_the_past_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = ApiTokens::open(dir.path()).unwrap();
        assert!(tokens.create(NewToken { expires: from_now(-1), ..new("late") }).unwrap_err().contains("past"));
        let (_, text) = tokens.create(NewToken { expires: from_now(3_600_000_000), ..new("soon") }).unwrap();
        assert!(matches!(tokens.check(&text), TokenCheck::Valid(_)));
        tokens.tokens.lock()[0].token.expires = from_now(-1);
        assert_eq!(tokens.check(&text), TokenCheck::Expired);
    }

    #[test]
    fn unreadable_file_is_an_error_rather_than_an_empty_list() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(TOKENS_FILE), "{half").unwrap();
        let error = ApiTokens::open(dir.path()).err().unwrap();
        assert!(error.contains(TOKENS_FILE) && error.contains("remove it"), "{error}");
    }
}
