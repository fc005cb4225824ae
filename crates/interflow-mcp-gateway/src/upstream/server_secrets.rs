//! The secrets of a server's configuration, and their mask: a server may repeat in results, errors and logs what it was
//! sent or started with, which neither clients nor the record may get.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use interflow_redact::Replacer;
use interflow_types::secret_names::{is_secret_name, without_credentials};

use crate::config::McpServerConfig;

/// Shorter values may be words of a result.
const MIN_MASKED: usize = 8;

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
#[derive(Clone)]
pub(super) struct SecretMask(Option<Arc<Replacer>>);

impl ServerSecrets {
    /// # Errors
    /// A reference cannot be resolved; the message begins with its key.
    pub fn resolve(config: &McpServerConfig) -> Result<Self, String> {
        let is_http = config.url.is_some();
        let (given, member) = if is_http { (&config.headers, "headers") } else { (&config.env, "env") };
        let oauth = config.oauth.as_ref().map_or(Ok(String::new()), |oauth| oauth.auth().resolve())?;
        let (mut values, mut masked) = (BTreeMap::new(), vec![oauth.clone()]);
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
        // A server may repeat a token without `Bearer`.
        let parts = self.masked.iter().flat_map(|text| [Some(&**text), text.split_once(' ').map(|(_, token)| token)]);
        let secrets: Vec<&str> = parts.flatten().filter(|secret| secret.len() >= MIN_MASKED).collect();
        SecretMask(Replacer::masking(&secrets).map(Arc::new))
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
