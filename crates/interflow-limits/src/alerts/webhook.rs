//! Posts an alert to a webhook: signed, with bounded attempts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use interflow_types::{Body, ByteStr, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Url};
use sha2::Sha256;

/// Attempts at one alert; the pauses between them double from the first.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

const SIGNATURE_HEADER: &[u8] = b"X-Interflow-Signature";

/// The operator's URL. It may contain a secret, as those of Slack do, and is not printed.
pub(super) struct Webhook {
    url: Url,
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
        Ok(Self { url: Url { scheme, authority, path: ByteStr::from(path) }, secret })
    }

    pub fn host(&self) -> String {
        self.url.authority.to_string()
    }

    /// `sha256=` and the HMAC of the body, as GitHub signs its webhooks.
    fn signature(&self, body: &str) -> Option<String> {
        let secret = self.secret.as_ref()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(body.as_bytes());
        Some(format!("sha256={}", hex::encode(mac.finalize().into_bytes())))
    }

    fn request(&self, body: &str) -> Request {
        let mut headers = Headers::new();
        headers.append_unchecked(b"Content-Type", b"application/json");
        headers.append_unchecked(b"User-Agent", b"interflow");
        if let Some(signature) = self.signature(body) {
            headers.append_unchecked(SIGNATURE_HEADER, signature.as_bytes());
        }
        let head = RequestHead {
            method: Method::POST,
            url: self.url.clone(),
            version: HttpVersion::Http11,
            headers,
            protocol: None,
        };
        Request { head, body: Body::from(Bytes::from(body.to_owned())) }
    }

    /// Posts the alert, several times if need be.
    ///
    /// # Errors
    /// Why the last attempt failed.
    pub async fn post(&self, client: &dyn HttpClient, body: &str) -> Result<(), String> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let sent = tokio::time::timeout(ATTEMPT_TIMEOUT, client.send(self.request(body))).await;
            let (why, is_final) = match sent {
                Ok(Ok(answer)) if answer.head.status.is_success() => return Ok(()),
                Ok(Ok(answer)) => {
                    let status = answer.head.status;
                    // Other errors of the client's would be the same again.
                    (
                        format!("it answered {status}"),
                        !(status.is_server_error() || matches!(status.as_u16(), 408 | 429)),
                    )
                }
                Ok(Err(e)) => (e.to_string(), false),
                Err(_) => (format!("no response within {} s", ATTEMPT_TIMEOUT.as_secs()), false),
            };
            if is_final || attempt >= ATTEMPTS {
                return Err(format!("{why} (attempt {attempt} of {ATTEMPTS})"));
            }
            tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
            pause *= 2;
        }
        Ok(())
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
        let body = "The quick brown fox jumps over the lazy dog";
        let expected = "sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8";
        assert_eq!(webhook.signature(body).as_deref(), Some(expected));
        assert_eq!(webhook.request(body).head.headers.get_str("x-interflow-signature"), Some(expected));
        assert_eq!(Webhook::new("https://a.test/", None).unwrap().signature(body), None);
    }
}
