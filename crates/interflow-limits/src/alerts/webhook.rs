//! Posts an alert to a webhook: signed, with bounded attempts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use interflow_tasks::{HttpPost, PostPolicy};
use interflow_types::{ByteStr, Headers, HttpClient, Url};
use sha2::Sha256;

const POLICY: PostPolicy = PostPolicy {
    timeout: Duration::from_secs(10),
    attempts: 5,
    first_pause: Duration::from_millis(500),
    // Other errors of the client's would be the same again.
    may_retry: |status| status.is_server_error() || matches!(status.as_u16(), 408 | 429),
};

/// The operator's URL. It may contain a secret, as those of Slack do, and is not printed.
pub(super) struct Webhook {
    post: HttpPost,
    secret: Option<Arc<str>>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Webhook({})", self.host())
    }
}

impl Webhook {
    /// # Errors
    /// What is wrong with the URL, without the URL.
    pub fn new(url: &str, secret: Option<Arc<str>>) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; write https://HOST/PATH");
        let (scheme, authority, rest) = Url::split(url).map_err(|e| wrong(&e.to_string()))?;
        if rest.starts_with('#') {
            return Err(wrong("a fragment is not sent"));
        }
        let path = rest.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if path.bytes().any(|b| b <= b' ' || b >= 0x7f) {
            return Err(wrong("its path has characters that must be percent-encoded"));
        }
        let url = Url { scheme, authority, path: ByteStr::from(path) };
        let mut headers = Headers::new();
        headers.append_unchecked(b"User-Agent", b"interflow");
        Ok(Self { post: HttpPost::new("limits", url, headers, POLICY), secret })
    }

    pub fn host(&self) -> String {
        self.post.host()
    }

    /// Adds `sha256=` and the HMAC of the body, as GitHub signs its webhooks.
    fn sign(&self, body: &[u8], headers: &mut Headers) {
        let Some(secret) = &self.secret else { return };
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(body);
        let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
        headers.append_unchecked(b"X-Interflow-Signature", signature.as_bytes());
    }

    /// Posts the alert, several times if need be.
    ///
    /// # Errors
    /// Why the last attempt failed.
    pub async fn post(&self, client: &dyn HttpClient, body: &Bytes) -> Result<(), String> {
        self.post.send(client, body, |headers| self.sign(body, headers)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_urls_are_reported_without_the_url() {
        for (url, good) in [
            ("https://hooks.example.com/services/SECRET", true),
            ("http://127.0.0.1:9/?k=SECRET", true),
            ("hooks.example.com/SECRET", false),
            ("ftp://hooks.example.com/SECRET", false),
            ("https://u:SECRET@hooks.example.com/", false),
            ("https://hooks.example.com/a SECRET", false),
        ] {
            match Webhook::new(url, None) {
                Ok(webhook) => assert!(good && !format!("{webhook:?}").contains("SECRET"), "{url}"),
                Err(e) => assert!(!good && !e.contains("SECRET"), "{url}: {e}"),
            }
        }
    }

    #[test]
    fn the_signature_is_the_hmac_of_the_body() {
        let webhook = Webhook::new("https://a.test/", Some("key".into())).unwrap();
        // The usual test vector of HMAC-SHA256.
        let expected = "sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8";
        for (webhook, signature) in [(webhook, Some(expected)), (Webhook::new("https://a.test/", None).unwrap(), None)]
        {
            let mut headers = Headers::new();
            webhook.sign(b"The quick brown fox jumps over the lazy dog", &mut headers);
            assert_eq!(headers.get_str("x-interflow-signature"), signature);
        }
    }
}
