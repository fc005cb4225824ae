//! Browser sessions: signed cookies, and the one-time codes by which `interflow open` starts a session. The signing key
//! is derived from the admin token, so that changing the token ends all sessions. What else ends one, see
//! [`ended_sessions`](crate::auth::ended_sessions).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_store::StoreError;
use interflow_store::shared_state::IdentityStore;
use interflow_types::{Timestamp, random_bytes};
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use crate::auth::cookie_scope::CookieScope;

/// The path of the login page; accepts its form and one-time codes.
pub(crate) const LOGIN_PATH: &str = "/login";
/// Lifetime of a one-time code. It appears in a URL, so it is short.
pub(crate) const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of one-time codes; the oldest is dropped.
const MAX_CODES: usize = 16;
/// Bound on the codes that are looked up at a time.
const MAX_LOOKUPS: usize = 4;
/// Wrong tokens that a client may submit on the login page per minute.
const MAX_ATTEMPTS: u32 = 20;
const ATTEMPTS_WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of clients whose wrong tokens are counted.
const MAX_CLIENTS: usize = 1024;
/// Lengths of expiry, random bytes and signature.
const PARTS: [usize; 3] = [8, 16, 32];

/// The random bytes of a session, which its renewed cookies keep.
pub(crate) type SessionBytes = [u8; PARTS[1]];

/// What a valid cookie says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CookieSession {
    pub bytes: SessionBytes,
    pub left: Duration,
}

impl CookieSession {
    pub fn id(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.bytes)
    }
}

pub(crate) struct BrowserSessions {
    key: [u8; 32],
    scope: CookieScope,
    duration: Duration,
    /// Codes of this process: all, unless replicas share them.
    codes: Mutex<VecDeque<(String, Instant)>>,
    /// Where replicas share codes, so that a link may reach any of them.
    shared: Option<Arc<dyn IdentityStore>>,
    /// Codes that are looked up in the database at a time: anybody may send one.
    lookups: Semaphore,
    attempts: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl std::fmt::Debug for BrowserSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sessions({})", self.scope)
    }
}

impl BrowserSessions {
    pub(crate) fn new(
        token: &str,
        scope: CookieScope,
        duration: Duration,
        shared: Option<Arc<dyn IdentityStore>>,
    ) -> Self {
        let key = blake3::derive_key("Interflow admin session cookie, 2026", token.as_bytes());
        let (codes, attempts) = (Mutex::default(), Mutex::default());
        Self { key, scope, duration, codes, shared, lookups: Semaphore::new(MAX_LOOKUPS), attempts }
    }

    /// The cookie's name. Browsers do not separate cookies by port, so the name contains it, or what stands in its place.
    pub(crate) fn cookie_name(&self) -> String {
        format!("interflow_session_{}", self.scope)
    }

    /// The `Set-Cookie` value of a new session.
    pub(crate) fn issue_cookie(&self, is_https: bool) -> String {
        self.cookie(&random_bytes::<{ PARTS[1] }>(), is_https)
    }

    /// The latest time at which a cookie of a session that ends now could expire, in seconds since the Unix epoch.
    pub(crate) fn latest_expiry(&self) -> u64 {
        now() + self.duration.as_secs()
    }

    /// The `Set-Cookie` value of a session. `HttpOnly` keeps it from scripts, `SameSite=Strict` from requests of
    /// other sites; `Secure` from connections without TLS, if the browser came with it.
    pub(crate) fn cookie(&self, session: &SessionBytes, is_https: bool) -> String {
        let expiry = self.latest_expiry();
        let value = [&expiry.to_be_bytes()[..], session, &self.sign(expiry, session)].concat();
        let secure = if is_https { "; Secure" } else { "" };
        format!(
            "{}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}",
            self.cookie_name(),
            URL_SAFE_NO_PAD.encode(value),
            self.duration.as_secs()
        )
    }

    /// The `Set-Cookie` value that ends a session in the browser.
    pub(crate) fn expired_cookie(&self) -> String {
        format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", self.cookie_name())
    }

    /// The session in a cookie; `None` if it is invalid or expired.
    pub(crate) fn check(&self, value: &str) -> Option<CookieSession> {
        let bytes = URL_SAFE_NO_PAD.decode(value).ok().filter(|b| b.len() == PARTS.iter().sum::<usize>())?;
        let (expiry, rest) = bytes.split_at(PARTS[0]);
        let (random, signature) = rest.split_at(PARTS[1]);
        let expiry = u64::from_be_bytes(expiry.try_into().ok()?);
        let signed: bool = signature.ct_eq(&self.sign(expiry, random)[..]).into();
        let remaining = expiry.checked_sub(now()).filter(|left| *left > 0)?;
        // A session issued under a longer configured duration is invalid.
        let bytes = random.try_into().ok()?;
        (signed && remaining <= self.duration.as_secs())
            .then(|| CookieSession { bytes, left: Duration::from_secs(remaining) })
    }

    /// Whether a session should be renewed: less than half of its duration is left.
    pub(crate) fn is_to_be_renewed(&self, left: Duration) -> bool {
        left < self.duration / 2
    }

    fn sign(&self, expiry: u64, random: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        // The scope is signed too: a cookie of another instance with the same token does not count.
        hasher.update(&self.scope.bytes()).update(&expiry.to_be_bytes()).update(random);
        hasher.finalize().into()
    }

    /// A code that starts one session, within [`CODE_LIFETIME`]: at any replica, or at this one only while their database
    /// does not answer.
    pub(crate) async fn issue_code(&self) -> String {
        // 128 bits, for a link that fits a line of a terminal.
        let code = interflow_types::random_token()[..32].to_owned();
        let added = self.with_shared({
            let code = code.clone();
            move |store| store.add_login_code(&code, CODE_LIFETIME)
        });
        match added.await {
            Some(Ok(())) => {}
            Some(Err(e)) => {
                tracing::warn!(error = %e, "admin: cannot share a login link: it is valid at this replica only");
                self.keep_code(&code);
            }
            None => self.keep_code(&code),
        }
        code
    }

    fn keep_code(&self, code: &str) {
        let mut codes = self.codes.lock();
        if codes.len() >= MAX_CODES {
            codes.pop_front();
        }
        codes.push_back((code.to_owned(), Instant::now()));
    }

    /// Redeems a code, which is valid once. A client that sent too many wrong ones or tokens is refused.
    pub(crate) async fn redeem_code(&self, shown: &str, client: Option<IpAddr>) -> bool {
        if self.redeem_own_code(shown) {
            return true;
        }
        if self.shared.is_none() || client.is_some_and(|client| self.has_exceeded(client)) {
            return false;
        }
        let Ok(_turn) = self.lookups.acquire().await else { return false };
        let code = shown.to_owned();
        match self.with_shared(move |store| store.take_login_code(&code)).await {
            Some(Ok(true)) => return true,
            Some(Err(e)) => tracing::warn!("admin: the login codes of other replicas cannot be read: {e}"),
            Some(Ok(false)) | None => {}
        }
        if let Some(client) = client {
            self.count_wrong_token(client);
        }
        false
    }

    fn redeem_own_code(&self, shown: &str) -> bool {
        let mut codes = self.codes.lock();
        codes.retain(|(_, issued)| issued.elapsed() < CODE_LIFETIME);
        let at = codes.iter().position(|(code, _)| code.as_bytes().ct_eq(shown.as_bytes()).into());
        at.and_then(|at| codes.remove(at)).is_some()
    }

    /// Asks the database of the replicas, if there is one.
    async fn with_shared<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn IdentityStore) -> interflow_store::Result<T> + Send + 'static,
    ) -> Option<interflow_store::Result<T>> {
        let store = Arc::clone(self.shared.as_ref()?);
        let result = tokio::task::spawn_blocking(move || ask(&*store)).await;
        Some(result.unwrap_or(Err(StoreError::Closed)))
    }

    /// Whether this client has sent too many wrong tokens.
    fn has_exceeded(&self, client: IpAddr) -> bool {
        let attempts = self.attempts.lock();
        attempts.get(&client).is_some_and(|(count, since)| *count > MAX_ATTEMPTS && since.elapsed() < ATTEMPTS_WITHIN)
    }

    /// Counts a wrong token of this client; returns whether it has exceeded the limit.
    pub(crate) fn count_wrong_token(&self, client: IpAddr) -> bool {
        let mut attempts = self.attempts.lock();
        attempts.retain(|_, (_, since)| since.elapsed() < ATTEMPTS_WITHIN);
        // Full: clients that are not counted must not get unlimited attempts.
        if attempts.len() >= MAX_CLIENTS && !attempts.contains_key(&client) {
            return true;
        }
        let (count, _) = attempts.entry(client).or_insert((0, Instant::now()));
        *count += 1;
        *count > MAX_ATTEMPTS
    }
}

fn now() -> u64 {
    Timestamp::now().secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn browser_sessions(token: &str, port: u16, duration: Duration) -> BrowserSessions {
        BrowserSessions::new(token, CookieScope::Port(port), duration, None)
    }

    fn value(set_cookie: &str) -> &str {
        set_cookie.split_once('=').unwrap().1.split(';').next().unwrap()
    }

    #[test]
    fn session_cookie_is_valid_for_its_port_and_token_until_expiry() {
        let sessions = browser_sessions("token", 7072, DAY);
        let cookie = sessions.issue_cookie(false);
        assert!(!cookie.contains("Secure") && sessions.issue_cookie(true).ends_with("; SameSite=Strict; Secure"));
        assert!(cookie.starts_with("interflow_session_7072=") && cookie.contains("Max-Age=86400"), "{cookie}");
        let value = value(&cookie);
        assert!(sessions.check(value).is_some());
        assert!(!value.contains("token") && !value.contains(&URL_SAFE_NO_PAD.encode("token")));
        assert!(browser_sessions("token", 7073, DAY).check(value).is_none(), "another port");
        assert!(browser_sessions("other", 7072, DAY).check(value).is_none(), "another token");
        assert!(browser_sessions("token", 7072, DAY / 2).check(value).is_none(), "sessions became shorter");
        let mut bytes = URL_SAFE_NO_PAD.decode(value).unwrap();
        for at in [0, 7, 10, 30, 55] {
            bytes[at] ^= 1;
            assert!(sessions.check(&URL_SAFE_NO_PAD.encode(&bytes)).is_none(), "byte {at}");
            bytes[at] ^= 1;
        }
        let over = browser_sessions("token", 7072, Duration::ZERO);
        assert!(over.check(self::value(&over.issue_cookie(false))).is_none());
        for odd in ["", "token", "dG9rZW4"] {
            assert!(sessions.check(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn a_renewed_cookie_is_of_the_same_session() {
        let sessions = browser_sessions("token", 7072, DAY);
        let session = sessions.check(value(&sessions.issue_cookie(false))).unwrap();
        let renewed = sessions.check(value(&sessions.cookie(&session.bytes, false))).unwrap();
        let other = sessions.check(value(&sessions.issue_cookie(false))).unwrap();
        assert!(renewed.id() == session.id() && other.id() != session.id());
    }

    #[tokio::test]
    async fn login_code_is_valid_once_and_the_oldest_is_evicted() {
        let sessions = browser_sessions("token", 7072, DAY);
        let first = sessions.issue_code().await;
        let mut codes = Vec::new();
        for _ in 0..MAX_CODES {
            codes.push(sessions.issue_code().await);
        }
        assert!(!sessions.redeem_code(&first, None).await, "the oldest has gone");
        assert!(sessions.redeem_code(&codes[3], None).await && !sessions.redeem_code(&codes[3], None).await);
        assert!(!sessions.redeem_code("", None).await);
    }

    #[test]
    fn wrong_tokens_are_limited_per_client() {
        let sessions = browser_sessions("token", 7072, DAY);
        let [one, other] = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
        let refused = (0..MAX_ATTEMPTS + 5).filter(|_| sessions.count_wrong_token(one)).count();
        assert_eq!(refused, 5);
        assert!(!sessions.count_wrong_token(other));
    }
}
