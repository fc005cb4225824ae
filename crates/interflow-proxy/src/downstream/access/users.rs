//! Users and their passwords. The password hash is computed once per credential, not once per request.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordVerifier as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hashlink::LruCache;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::login_queue::{LoginQueue, LoginQueueFull};

#[derive(Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for BasicCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:***", self.name)
    }
}

impl BasicCredentials {
    /// Parses an `Authorization` or `Proxy-Authorization` value of the scheme Basic (RFC 7617). `None` for another
    /// scheme, invalid base64, text that is not UTF-8, or a missing colon.
    pub fn from_basic(value: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(value).ok()?;
        let (scheme, token) = value.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let text = String::from_utf8(STANDARD.decode(token.trim()).ok()?).ok()?;
        // The first colon separates the two: a user name cannot contain one, a password can (RFC 7617 section 2).
        let (name, password) = text.split_once(':')?;
        Some(Self { name: name.into(), password: password.into() })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    #[error("the users file {path} cannot be read: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path}:{line}: {what}")]
    Line {
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong and what a valid line looks like.
        what: String,
    },
}

/// The users of a file, with a cache of verification results.
pub struct UserDatabase {
    /// A bcrypt or argon2 hash by user name, checked for well-formedness when the file is read.
    hashes: HashMap<String, Arc<str>>,
    verified: Mutex<CredentialCache>,
    /// A random key for the digests in `verified`, so that they are worthless outside this process.
    key: [u8; 32],
    /// Bounds how many passwords are hashed at once, over all clients and per client.
    queue: Arc<LoginQueue>,
}

/// Verification results by a digest keyed for this process; the passwords themselves are not kept.
struct CredentialCache {
    /// At most one per user, so that wrong guesses cannot evict it.
    right: HashMap<String, [u8; 32]>,
    /// The most recent ones, so that guesses do not evict the wrong password that a client keeps repeating: each new
    /// check costs a slow hash.
    wrong: LruCache<[u8; 32], ()>,
}

impl Default for CredentialCache {
    fn default() -> Self {
        Self { right: HashMap::new(), wrong: LruCache::new(MAX_REJECTED) }
    }
}

/// Bound on remembered wrong credentials, so that guessing cannot grow the set.
const MAX_REJECTED: usize = 8192;

impl fmt::Debug for UserDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({} names)", self.hashes.len())
    }
}

impl UserDatabase {
    /// Reads a users file.
    ///
    /// # Errors
    /// The invalid line, and what a valid one looks like.
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| UsersError::Read { path: name.clone(), source })?;
        Self::parse(&text, &name)
    }

    pub(super) fn parse(text: &str, path: &str) -> Result<Self, UsersError> {
        let mut hashes = HashMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| UsersError::Line { path: path.into(), line: i + 1, what };
            let (name, hash) = line
                .split_once(':')
                .filter(|(n, _)| !n.is_empty())
                .ok_or_else(|| wrong("expected name:hash".into()))?;
            check_hash(hash).map_err(wrong)?;
            if hashes.insert(name.to_owned(), Arc::from(hash)).is_some() {
                return Err(wrong(format!("the user {name} is listed twice")));
            }
        }
        // Hashing is slow by design: half of the processors stay free for traffic.
        let hashing = std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2));
        Ok(Self {
            hashes,
            verified: Mutex::default(),
            key: interflow_types::random_bytes(),
            queue: LoginQueue::new(hashing),
        })
    }

    /// The user's entry, which changes with the password.
    pub fn entry(&self, name: &str) -> Option<&Arc<str>> {
        self.hashes.get(name)
    }

    /// Whether the name is known and the password right.
    ///
    /// # Errors
    /// Too many attempts of this client are waiting.
    pub async fn verify(&self, credentials: &BasicCredentials, client: IpAddr) -> Result<bool, LoginQueueFull> {
        let digest = self.digest(credentials);
        if let Some(known) = self.cached_result(&credentials.name, &digest) {
            return Ok(known);
        }
        let slot = self.queue.acquire(client).await.ok_or(LoginQueueFull)?;
        // Another request may have verified the same credentials while this one waited.
        if let Some(known) = self.cached_result(&credentials.name, &digest) {
            return Ok(known);
        }
        // An unknown name costs as much as a known one, so that timing does not reveal which names exist.
        // The hash of any user serves for an unknown name; the result is discarded below.
        let hash = self.hashes.get(&credentials.name).or_else(|| self.hashes.values().next()).cloned();
        let known_name = self.hashes.contains_key(&credentials.name);
        let password = credentials.password.clone();
        let hashed = tokio::task::spawn_blocking(move || {
            // The slot is held while the hash is computed, even if the client disconnects.
            let _slot = slot;
            hash.is_some_and(|h| matches_hash(&password, &h))
        });
        let right = hashed.await;
        // A panic while hashing counts as a wrong password.
        let right = right.unwrap_or(false) && known_name;
        let mut verified = self.verified.lock();
        if right {
            verified.right.insert(credentials.name.clone(), digest);
        } else {
            verified.wrong.insert(digest, ());
        }
        Ok(right)
    }

    fn cached_result(&self, name: &str, digest: &[u8; 32]) -> Option<bool> {
        let mut verified = self.verified.lock();
        if verified.right.get(name) == Some(digest) { Some(true) } else { verified.wrong.get(digest).map(|()| false) }
    }

    fn digest(&self, credentials: &BasicCredentials) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(self.key);
        hasher.update((credentials.name.len() as u64).to_le_bytes());
        hasher.update(&credentials.name);
        hasher.update(&credentials.password);
        hasher.finalize().into()
    }
}

fn check_hash(hash: &str) -> Result<(), String> {
    if hash.starts_with("$argon2") {
        return PasswordHash::new(hash).map(|_| ()).map_err(|e| format!("the argon2 hash is invalid: {e}"));
    }
    if is_bcrypt(hash) {
        return hash.parse::<bcrypt::HashParts>().map(|_| ()).map_err(|e| format!("the bcrypt hash is invalid: {e}"));
    }
    Err("only bcrypt ($2y$…, made by `htpasswd -B`) and argon2 ($argon2id$…) hashes are accepted, not plain passwords"
        .into())
}

fn is_bcrypt(hash: &str) -> bool {
    ["$2a$", "$2b$", "$2x$", "$2y$"].iter().any(|p| hash.starts_with(p))
}

fn matches_hash(password: &str, hash: &str) -> bool {
    if is_bcrypt(hash) {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    PasswordHash::new(hash).is_ok_and(|parsed| Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon2::PasswordHasher as _;

    fn credentials(name: &str, password: &str) -> BasicCredentials {
        BasicCredentials { name: name.into(), password: password.into() }
    }

    fn users() -> UserDatabase {
        let bcrypt = bcrypt::hash("b-pass", 4).unwrap();
        let argon = Argon2::default().hash_password_with_salt(b"a-pass", b"0123456789abcdef").unwrap();
        UserDatabase::parse(&format!("# team\nbob:{bcrypt}\n\nann:{argon}\n"), "users").unwrap()
    }

    #[tokio::test]
    async fn both_password_hash_kinds_are_verified_and_cached() {
        let users = users();
        let client = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..2 {
            for (name, password, right) in [
                ("bob", "b-pass", true),
                ("ann", "a-pass", true),
                ("ann", "b-pass", false),
                ("nobody", "b-pass", false),
            ] {
                assert_eq!(users.verify(&credentials(name, password), client).await, Ok(right), "{name} {password}");
            }
        }
        let verified = users.verified.lock();
        assert_eq!((verified.right.len(), verified.wrong.len()), (2, 2));
    }

    #[tokio::test]
    async fn guesses_do_not_make_other_results_forgotten() {
        let users = users();
        let client = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(users.verify(&credentials("bob", "b-pass"), client).await, Ok(true));
        let repeated = credentials("bob", "old password of a script");
        assert_eq!(users.verify(&repeated, client).await, Ok(false));
        for i in 0..2 * MAX_REJECTED as u64 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&i.to_le_bytes());
            users.verified.lock().wrong.insert(digest, ());
            if i % 1000 == 0 {
                assert_eq!(users.cached_result("bob", &users.digest(&repeated)), Some(false), "after {i} guesses");
            }
        }
        assert_eq!(users.verified.lock().wrong.len(), MAX_REJECTED);
        let bob = credentials("bob", "b-pass");
        assert_eq!(users.cached_result("bob", &users.digest(&bob)), Some(true));
    }

    #[test]
    fn invalid_line_is_reported_with_its_number() {
        for (text, line, says) in [
            ("bob:plain", 1, "not plain passwords"),
            ("# x\nbob", 2, "expected name:hash"),
            ("a:$2y$04$short", 1, "bcrypt hash is invalid"),
        ] {
            let e = UserDatabase::parse(text, "users").unwrap_err().to_string();
            assert!(e.starts_with(&format!("users:{line}: ")) && e.contains(says), "{e}");
        }
    }

    #[test]
    fn basic_scheme_is_parsed_case_insensitively() {
        for value in ["Basic dTpwOnE=", "basic dTpwOnE=", "BASIC   dTpwOnE= "] {
            assert_eq!(BasicCredentials::from_basic(value.as_bytes()), Some(credentials("u", "p:q")), "{value}");
        }
        for value in ["Bearer dTpw", "Basic", "Basic ***", "Basic dQ=="] {
            assert_eq!(BasicCredentials::from_basic(value.as_bytes()), None, "{value}");
        }
    }
}
