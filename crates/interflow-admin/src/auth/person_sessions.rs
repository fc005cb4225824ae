//! Browser sessions of people who logged in at the issuer: signed cookies that name the person and the groups that give
//! them a role. The role itself follows from the configuration at each request.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_types::{Timestamp, random_bytes};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::auth::cookie_scope::CookieScope;
use crate::oidc::config::OidcConfig;

/// Bound on a cookie's value, which browsers limit too.
const MAX_VALUE: usize = 4096;

/// Somebody who logged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PersonSession {
    /// `sub` of the issuer.
    pub subject: String,
    /// As it is shown.
    pub name: String,
    /// Those groups that the configuration gives a role.
    pub groups: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    expiry: u64,
    /// Makes sessions of the same second differ; absent from cookies of older versions.
    #[serde(default)]
    random: String,
    #[serde(flatten)]
    person: PersonSession,
}

/// What a valid cookie says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedPerson {
    pub person: PersonSession,
    /// The id of the session, which is not renewed.
    pub id: String,
    pub until: Timestamp,
}

pub(crate) struct PersonSessions {
    key: [u8; 32],
    scope: CookieScope,
    duration: Duration,
    is_https: bool,
}

impl PersonSessions {
    /// The key follows from the admin token, so that another token ends all sessions, and from issuer and client, so
    /// that nobody of another issuer stays logged in.
    pub fn new(config: &OidcConfig, token: &str, scope: CookieScope, is_https: bool) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("Interflow admin session of a person, 2026");
        for part in [token, &config.issuer, &config.client_id] {
            hasher.update(&(part.len() as u64).to_be_bytes()).update(part.as_bytes());
        }
        Self { key: hasher.finalize().into(), scope, duration: config.session_duration.0, is_https }
    }

    /// The `Set-Cookie` value of a new session; `None` if it would be too long for browsers.
    pub fn issue_cookie(&self, cookie: &str, person: &PersonSession) -> Option<String> {
        let expiry = Timestamp::now().secs() + self.duration.as_secs();
        let random = URL_SAFE_NO_PAD.encode(random_bytes::<16>());
        let payload = serde_json::to_vec(&Payload { expiry, random, person: person.clone() }).ok()?;
        let value = format!("{}.{}", URL_SAFE_NO_PAD.encode(&payload), URL_SAFE_NO_PAD.encode(self.sign(&payload)));
        let secure = if self.is_https { "; Secure" } else { "" };
        let seconds = self.duration.as_secs();
        (value.len() < MAX_VALUE - 200)
            .then(|| format!("{cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"))
    }

    /// The session of a cookie; `None` if it is invalid or has expired.
    pub fn check(&self, value: &str) -> Option<CheckedPerson> {
        let (payload, signature) = value.split_once('.').filter(|_| value.len() <= MAX_VALUE)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        if !bool::from(signature.ct_eq(&self.sign(&payload)[..])) {
            return None;
        }
        let Payload { expiry, person, .. } = serde_json::from_slice(&payload).ok()?;
        let remaining = expiry.checked_sub(Timestamp::now().secs()).filter(|left| *left > 0)?;
        // A session issued under a longer configured duration is invalid.
        let id = blake3::hash(&payload).to_string();
        (remaining <= self.duration.as_secs()).then(|| CheckedPerson {
            person,
            id,
            until: Timestamp::from_secs(expiry),
        })
    }

    fn sign(&self, payload: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.scope.bytes()).update(payload);
        hasher.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::units::HumanDuration;

    fn config(client: &str, seconds: u64) -> OidcConfig {
        OidcConfig {
            issuer: "https://id.test".into(),
            client_id: client.into(),
            session_duration: HumanDuration::from_secs(seconds),
            ..OidcConfig::default()
        }
    }

    #[test]
    fn session_names_the_person_and_is_valid_for_its_token_client_port_and_time() {
        let sessions = PersonSessions::new(&config("a", 600), "token", CookieScope::Port(7072), true);
        let person = PersonSession { subject: "s1".into(), name: "Anna".into(), groups: vec!["ops".into()] };
        let cookie = sessions.issue_cookie("c", &person).unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict; Secure") && cookie.contains("Max-Age=600"), "{cookie}");
        let value = cookie.split_once('=').unwrap().1.split(';').next().unwrap();
        assert_eq!(sessions.check(value).map(|session| session.person), Some(person.clone()));
        for (config, token, port) in [
            (config("b", 600), "token", 7072),
            (config("a", 60), "token", 7072),
            (config("a", 600), "other", 7072),
            (config("a", 600), "token", 7073),
        ] {
            assert_eq!(
                PersonSessions::new(&config, token, CookieScope::Port(port), true).check(value),
                None,
                "{config:?} {token} {port}"
            );
        }
        let forged = PersonSession { groups: vec!["root".into()], ..person.clone() };
        let payload = serde_json::to_vec(&Payload { expiry: u64::MAX, random: String::new(), person: forged }).unwrap();
        let forged = format!("{}.{}", URL_SAFE_NO_PAD.encode(payload), value.split_once('.').unwrap().1);
        assert_eq!(sessions.check(&forged), None);
        let over = PersonSessions::new(&config("a", 0), "token", CookieScope::Port(7072), false);
        let cookie = over.issue_cookie("c", &person).unwrap();
        assert_eq!(over.check(cookie.split_once('=').unwrap().1.split(';').next().unwrap()), None);
    }
}
