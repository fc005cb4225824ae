//! The secrets of a server, and their mask: a server may repeat in results, errors and logs what it was sent or started
//! with, which neither clients nor the record may get.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_redact::Replacer;
use interflow_tasks::WeighedCache;
use interflow_types::percent::decoded_form;
use interflow_types::secret_names::{is_secret_name, secret_parameter, without_credentials};
use parking_lot::Mutex;

use crate::config::McpServerConfig;

/// Shorter values may be words of a result.
const MIN_MASKED: usize = 8;
/// Those of a user that are kept: a token may be valid for a while after the next one was granted.
const MAX_SENT: usize = 6;
/// Bound on the users of whom they are kept.
const MAX_USERS: usize = 10_000;

/// The secrets of a server, without references.
#[derive(PartialEq, Eq)]
pub(crate) struct ServerSecrets {
    /// The values of header fields or environment variables.
    pub values: BTreeMap<String, String>,
    /// The client secret or private key for access tokens; empty if it has none.
    pub oauth: String,
    /// Those among them that are masked.
    masked: Vec<String>,
}

/// Replaces secrets by as many asterisks.
#[derive(Clone, Default)]
pub(super) struct SecretMask(Option<Arc<Replacer>>);

impl ServerSecrets {
    /// # Errors
    /// A reference cannot be resolved; the message begins with its key.
    pub fn resolve(config: &McpServerConfig) -> Result<Self, String> {
        let is_http = config.url.is_some();
        let (given, member) = if is_http { (&config.headers, "headers") } else { (&config.env, "env") };
        let oauth = config.oauth.as_ref().map_or(Ok(String::new()), |oauth| oauth.auth().resolve())?;
        let query = config.url.as_deref().and_then(|url| url.split_once('?')).unwrap_or_default().1;
        let secret =
            |pair: &str| decoded_form(pair.split_once('=').filter(|_| secret_parameter(pair).is_some())?.1).into();
        let mut masked: Vec<String> = query.split('&').filter_map(secret).chain([oauth.clone()]).collect();
        let mut values = BTreeMap::new();
        for (name, written) in given {
            let value = interflow_files::resolve_secret_ref(written).map_err(|e| format!("{member}.{name}: {e}"))?;
            // A variable that is written out may be a folder, which results name for good reason.
            let is_secret =
                is_http || value != *written || is_secret_name(name) || without_credentials(&value).is_some();
            masked.extend(is_secret.then(|| value.clone()));
            values.insert(name.clone(), value);
        }
        Ok(Self { values, oauth, masked })
    }

    pub(super) fn mask(&self) -> SecretMask {
        let parts: Vec<_> = self.masked.iter().flat_map(|secret| parts(secret)).collect();
        let secrets: Vec<&str> = parts.iter().map(|part| &**part).filter(|part| part.len() >= MIN_MASKED).collect();
        SecretMask(Replacer::masking(&secrets).map(Arc::new))
    }
}

/// A secret as a server may repeat it: also without `Bearer`, and the user and password of Basic credentials (RFC 7617) or
/// of a URL.
fn parts(secret: &str) -> [Cow<'_, str>; 4] {
    let (scheme, token) = secret.split_once(' ').unwrap_or_default();
    let basic = STANDARD.decode(token).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
    let of_url = || Some(secret.split_once("://")?.1.rsplit_once('@')?.0.to_owned());
    let user = basic.and_then(|plain| String::from_utf8(plain).ok()).or_else(of_url).unwrap_or_default();
    let password = user.split_once(':').unwrap_or_default().1.to_owned();
    [secret.into(), token.into(), user.into(), password.into()]
}

/// The latest secrets by which requests were authorized, by user: access tokens, and what renews them. Those of the gateway
/// itself are of the user without a name.
#[derive(Default)]
pub(super) struct SentSecrets(Mutex<WeighedCache<Arc<str>, MaskedSecrets>>);

/// Secrets, and what masks them.
type MaskedSecrets = (Vec<Vec<u8>>, SecretMask);

impl SentSecrets {
    pub fn note(&self, user: &Arc<str>, sent: &[&str]) {
        let mut users = self.0.lock();
        let known = users.get(user).map_or_else(Vec::new, |(known, _)| known.clone());
        let new = sent.iter().filter(|secret| secret.len() >= MIN_MASKED).map(|secret| secret.as_bytes().to_vec());
        let mut kept: Vec<_> = new.filter(|secret| !known.contains(secret)).collect();
        if kept.is_empty() {
            return;
        }
        kept.extend(known);
        kept.truncate(MAX_SENT);
        if users.len() >= MAX_USERS {
            users.remove_oldest();
        }
        let mask = SecretMask(Replacer::escaped(kept.clone()).map(Arc::new));
        users.insert(Arc::clone(user), (kept, mask), 1);
    }

    pub fn mask(&self, user: &Arc<str>) -> SecretMask {
        self.0.lock().get(user).map(|(_, mask)| mask.clone()).unwrap_or_default()
    }
}

impl SecretMask {
    /// What a server sent, which stays JSON if it is.
    pub fn masked<'s>(&self, sent: &'s str) -> Cow<'s, str> {
        let masked = self.0.as_ref().and_then(|mask| mask.replace(sent.as_bytes()));
        masked.map_or(sent.into(), |(masked, _)| String::from_utf8_lossy(&masked).into_owned().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_in_any_form_and_other_settings_are_not() {
        let mask = |config: &str| ServerSecrets::resolve(&toml::from_str(config).unwrap()).unwrap().mask();
        let http = mask("url = 'http://a.test'\nheaders = { Authorization = 'Bearer tok/en-1234', X-Short = 'abc' }");
        assert_eq!(
            http.masked(r#"["tok/en-1234","tok\/en-1234","\u0074ok%2Fen-1234","abc"]"#).matches("1234").count(),
            0
        );
        assert_eq!(http.masked(r#"{"a":"tok/en-1234 abc"}"#), r#"{"a":"*********** abc"}"#);
        let process = mask(
            "command = 'x'\nenv = { ROOT = '/srv/files', API_KEY = 'k-12345678', DB = 'postgres://u:pass@db.test/x', \
             REFERENCE = 'env:CARGO_PKG_NAME' }",
        );
        let said = "/srv/files k-12345678 postgres://u:pass@db.test/x interflow-mcp-gateway";
        assert_eq!(
            process.masked(said),
            format!("/srv/files {} {} {}", "*".repeat(10), "*".repeat(27), "*".repeat(21))
        );
        assert!(matches!(mask("command = 'x'").masked("words"), Cow::Borrowed("words")));
    }
}
