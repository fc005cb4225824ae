//! Tokens of people and services for the API: created once, stored as hashes with role and expiry, revoked at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use interflow_files::{FileAccess, write_atomic};
use interflow_types::{Timestamp, random_bytes};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Identity, IdentityKind, Role};

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
    /// The person of a personal token, as the issuer names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(deserialize_with = "from_micros")]
    pub created: Timestamp,
    /// Absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_from_micros")]
    pub expires: Option<Timestamp>,
    /// Its last use, to a minute; absent if it was never used.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_from_micros")]
    pub last_used: Option<Timestamp>,
}

impl ApiToken {
    pub fn is_expired(&self) -> bool {
        self.expires.is_some_and(|at| at.micros() <= Timestamp::now().micros())
    }

    fn identity(&self) -> Identity {
        Identity {
            kind: match self.kind {
                TokenKind::Service => IdentityKind::ServiceToken,
                TokenKind::Personal => IdentityKind::PersonalToken,
            },
            name: match self.kind {
                TokenKind::Service => self.name.clone(),
                TokenKind::Personal => format!("{} of {}", self.name, self.created_by),
            },
            subject: self.subject.clone(),
            token: Some(self.id.clone()),
            role: self.role,
            rights: self.role.rights_with(self.read_bodies),
            until: None,
        }
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

/// Where tokens are kept: a file, or the table of a database that several instances share.
pub trait TokenStore: Send + Sync {
    /// # Errors
    /// The tokens cannot be read; nobody is let in with one then.
    fn load(&self) -> io::Result<Vec<StoredToken>>;

    /// Replaces all tokens.
    ///
    /// # Errors
    /// The tokens cannot be written; the old ones stay.
    fn save(&self, tokens: &[StoredToken]) -> io::Result<()>;
}

/// Tokens in a private file.
#[derive(Debug)]
pub struct FileTokenStore(PathBuf);

impl TokenStore for FileTokenStore {
    fn load(&self) -> io::Result<Vec<StoredToken>> {
        match std::fs::read(&self.0) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    fn save(&self, tokens: &[StoredToken]) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(tokens).map_err(io::Error::other)?;
        write_atomic(&self.0, &text, FileAccess::Private)
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
    /// Held while the store is written, so that an older list never replaces a newer one.
    saving: Mutex<()>,
    has_unsaved_uses: AtomicBool,
}

impl ApiTokens {
    /// # Errors
    /// The file exists but cannot be read.
    pub fn open(data_dir: &Path) -> Result<Self, String> {
        let path = data_dir.join(TOKENS_FILE);
        let shown = path.display().to_string();
        Self::with_store(Box::new(FileTokenStore(path)))
            .map_err(|e| format!("{shown} cannot be read: {e}; correct it, or remove it to revoke all tokens"))
    }

    /// # Errors
    /// The store cannot be read.
    pub fn with_store(store: Box<dyn TokenStore>) -> io::Result<Self> {
        let tokens = Mutex::new(store.load()?);
        Ok(Self { store, tokens, saving: Mutex::default(), has_unsaved_uses: AtomicBool::default() })
    }

    pub fn list(&self) -> Vec<ApiToken> {
        self.tokens.lock().iter().map(|t| t.token.clone()).collect()
    }

    /// Creates a token; its text is returned once.
    ///
    /// # Errors
    /// The name is empty or too long, there are too many tokens, or the file cannot be written.
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
        // Expired tokens make room; they are listed until then.
        let mut changed = self.tokens.lock().clone();
        if changed.len() >= MAX_TOKENS {
            changed.retain(|t| !t.token.is_expired());
        }
        if changed.len() >= MAX_TOKENS {
            return Err(format!("there are {MAX_TOKENS} tokens: revoke one first"));
        }
        changed.push(StoredToken { token: token.clone(), hash: hash(&secret) });
        self.store.save(&changed).map_err(|e| format!("the tokens cannot be written: {e}"))?;
        *self.tokens.lock() = changed;
        Ok((token, format!("{PREFIX}{id}_{secret}")))
    }

    /// Revokes a token; `None` if there is none of this id.
    ///
    /// # Errors
    /// The file cannot be written. The token is rejected from now on nevertheless, until a restart.
    pub fn revoke(&self, id: &str) -> Result<Option<ApiToken>, String> {
        let _saving = self.saving.lock();
        let (revoked, left) = {
            let mut tokens = self.tokens.lock();
            let Some(at) = tokens.iter().position(|t| t.token.id == id) else { return Ok(None) };
            (tokens.remove(at), tokens.clone())
        };
        self.store.save(&left).map_err(|e| {
            format!(
                "the token is rejected now, but the file cannot be written, so it is valid again after a restart: {e}"
            )
        })?;
        Ok(Some(revoked.token))
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

    /// Writes the times of last uses. Blocks on the disk.
    pub(crate) fn save_uses(&self) {
        let _saving = self.saving.lock();
        if !self.has_unsaved_uses.swap(false, Relaxed) {
            return;
        }
        let tokens = self.tokens.lock().clone();
        // A use that cannot be written is not a reason to refuse it.
        if let Err(e) = self.store.save(&tokens) {
            tracing::warn!("admin: the last use of a token cannot be written: {e}");
        }
    }
}

fn from_micros<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    u64::deserialize(from).map(Timestamp::from_micros)
}

fn some_from_micros<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    from_micros(from).map(Some)
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
