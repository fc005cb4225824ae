//! Browser sessions: signed cookies, and the one-time codes by which `interflow open` starts a session. The signing key
//! is derived from the admin token, so that changing the token ends all sessions.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_types::{Timestamp, random_bytes};
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;

use crate::cookie_scope::CookieScope;

/// The path of the login page; accepts its form and one-time codes.
pub(crate) const LOGIN_PATH: &str = "/login";
/// Lifetime of a one-time code. It appears in a URL, so it is short.
pub(crate) const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of one-time codes; the oldest is dropped.
const MAX_CODES: usize = 16;
/// Wrong tokens that a client may submit on the login page per minute.
const MAX_ATTEMPTS: u32 = 20;
const ATTEMPTS_WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of clients whose wrong tokens are counted.
const MAX_CLIENTS: usize = 1024;
/// Lengths of expiry, random bytes and signature.
const PARTS: [usize; 3] = [8, 16, 32];

pub(crate) struct BrowserSessions {
    key: [u8; 32],
    scope: CookieScope,
    duration: Duration,
    codes: Mutex<VecDeque<(String, Instant)>>,
    attempts: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl std::fmt::Debug for BrowserSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sessions({})", self.scope)
    }
}

impl BrowserSessions {
    pub(crate) fn new(token: &str, scope: CookieScope, duration: Duration) -> Self {
        let key = blake3::derive_key("Interflow admin session cookie, 2026", token.as_bytes());
        Self { key, scope, duration, codes: Mutex::default(), attempts: Mutex::default() }
    }

    /// The cookie's name. Browsers do not separate cookies by port, so the name contains it, or what stands in its place.
    pub(crate) fn cookie_name(&self) -> String {
        format!("interflow_session_{}", self.scope)
    }

    /// The `Set-Cookie` value of a new session. `HttpOnly` keeps it from scripts, `SameSite=Strict` from requests of
    /// other sites; `Secure` from connections without TLS, if the browser came with it.
    pub(crate) fn issue_cookie(&self, is_https: bool) -> String {
        let expiry = now() + self.duration.as_secs();
        // Makes cookies of the same second differ.
        let random = random_bytes::<{ PARTS[1] }>();
        let value = [&expiry.to_be_bytes()[..], &random, &self.sign(expiry, &random)].concat();
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

    /// The remaining time of the session in a cookie; `None` if it is invalid or expired.
    pub(crate) fn check(&self, value: &str) -> Option<Duration> {
        let bytes = URL_SAFE_NO_PAD.decode(value).ok().filter(|b| b.len() == PARTS.iter().sum::<usize>())?;
        let (expiry, rest) = bytes.split_at(PARTS[0]);
        let (random, signature) = rest.split_at(PARTS[1]);
        let expiry = u64::from_be_bytes(expiry.try_into().ok()?);
        let signed: bool = signature.ct_eq(&self.sign(expiry, random)[..]).into();
        let left = expiry.checked_sub(now()).filter(|left| *left > 0)?;
        // A session issued under a longer configured duration is invalid.
        (signed && left <= self.duration.as_secs()).then(|| Duration::from_secs(left))
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

    /// A code that starts one session, within [`CODE_LIFETIME`].
    pub(crate) fn issue_code(&self) -> String {
        let code = interflow_types::random_token();
        let mut codes = self.codes.lock();
        if codes.len() >= MAX_CODES {
            codes.pop_front();
        }
        codes.push_back((code.clone(), Instant::now()));
        code
    }

    /// Redeems a code, which is valid once.
    pub(crate) fn redeem_code(&self, shown: &str) -> bool {
        let mut codes = self.codes.lock();
        codes.retain(|(_, issued)| issued.elapsed() < CODE_LIFETIME);
        let at = codes.iter().position(|(code, _)| code.as_bytes().ct_eq(shown.as_bytes()).into());
        at.and_then(|at| codes.remove(at)).is_some()
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

    fn value(set_cookie: &str) -> &str {
        set_cookie.split_once('=').unwrap().1.split(';').next().unwrap()
    }

    #[test]
    fn session_cookie_is_valid_for_its_port_and_token_until_expiry() {
        let sessions = BrowserSessions::new("token", CookieScope::Port(7072), DAY);
        let cookie = sessions.issue_cookie(false);
        assert!(!cookie.contains("Secure") && sessions.issue_cookie(true).ends_with("; SameSite=Strict; Secure"));
        assert!(cookie.starts_with("interflow_session_7072=") && cookie.contains("Max-Age=86400"), "{cookie}");
        let value = value(&cookie);
        assert!(sessions.check(value).is_some());
        assert!(!value.contains("token") && !value.contains(&URL_SAFE_NO_PAD.encode("token")));
        assert!(BrowserSessions::new("token", CookieScope::Port(7073), DAY).check(value).is_none(), "another port");
        assert!(BrowserSessions::new("other", CookieScope::Port(7072), DAY).check(value).is_none(), "another token");
        assert!(
            BrowserSessions::new("token", CookieScope::Port(7072), DAY / 2).check(value).is_none(),
            "sessions became shorter"
        );
        let mut bytes = URL_SAFE_NO_PAD.decode(value).unwrap();
        for at in [0, 7, 10, 30, 55] {
            bytes[at] ^= 1;
            assert!(sessions.check(&URL_SAFE_NO_PAD.encode(&bytes)).is_none(), "byte {at}");
            bytes[at] ^= 1;
        }
        let over = BrowserSessions::new("token", CookieScope::Port(7072), Duration::ZERO);
        assert!(over.check(self::value(&over.issue_cookie(false))).is_none());
        for odd in ["", "token", "dG9rZW4"] {
            assert!(sessions.check(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn login_code_is_valid_once_and_the_oldest_is_evicted() {
        let sessions = BrowserSessions::new("token", CookieScope::Port(7072), DAY);
        let first = sessions.issue_code();
        let codes: Vec<String> = (0..MAX_CODES).map(|_| sessions.issue_code()).collect();
        assert!(!sessions.redeem_code(&first), "the oldest has gone");
        assert!(sessions.redeem_code(&codes[3]) && !sessions.redeem_code(&codes[3]) && !sessions.redeem_code(""));
    }

    #[test]
    fn wrong_tokens_are_limited_per_client() {
        let sessions = BrowserSessions::new("token", CookieScope::Port(7072), DAY);
        let [one, other] = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
        let refused = (0..MAX_ATTEMPTS + 5).filter(|_| sessions.count_wrong_token(one)).count();
        assert_eq!(refused, 5);
        assert!(!sessions.count_wrong_token(other));
    }
}
