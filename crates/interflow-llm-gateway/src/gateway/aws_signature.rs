//! AWS Signature Version 4 for Bedrock, over the final body.
//!
//! The signature covers method, path, query, the fields below and a hash of the body, so it must be the last change to
//! a request: redaction, a mapped model name or another host invalidate the client's own.

use hmac::{Hmac, KeyInit, Mac};
use interflow_types::RequestHead;
use interflow_types::percent::{AsciiSet, COMPONENT, encoded_as};
use sha2::{Digest, Sha256};

/// The service name in Bedrock's signatures; its host names begin with `bedrock-runtime`.
pub const BEDROCK: &str = "bedrock";

/// The service and region that a signature is valid for (the credential scope).
#[derive(Clone, Copy, Debug)]
pub struct SigningScope<'a> {
    pub service: &'a str,
    pub region: &'a str,
}

/// The keys for signing; `token` belongs to temporary credentials only.
#[derive(Clone)]
pub struct AwsCredentials {
    pub id: String,
    pub key: String,
    pub token: Option<String>,
}

impl std::fmt::Debug for AwsCredentials {
    /// Omits the secrets, so that they do not get into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Signs a request. `time` has the format `20250131T235959Z`. Fields of an earlier signature are removed.
///
/// `Host` and all `X-Amz-*` fields are signed, besides `Content-Type`. AWS accepts a signature for a few minutes
/// around `time`.
pub fn sign(head: &mut RequestHead, body: &[u8], credentials: &AwsCredentials, scope: &SigningScope<'_>, time: &str) {
    let SigningScope { service, region } = *scope;
    let host = head.url.authority.to_host_header(head.url.scheme);
    for name in ["authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "host"] {
        head.headers.remove(name);
    }
    head.headers.append_unchecked(b"Host", host.as_bytes());
    head.headers.append_unchecked(b"X-Amz-Date", time.as_bytes());
    if let Some(token) = &credentials.token {
        head.headers.append_unchecked(b"X-Amz-Security-Token", token.as_bytes());
    }
    // Only what no proxy on the way changes is signed: `Host`, `Content-Type` and `X-Amz-*`.
    let mut signed: Vec<(String, String)> = head
        .headers
        .iter()
        .map(|(n, v)| (String::from_utf8_lossy(n).to_ascii_lowercase(), String::from_utf8_lossy(v).trim().to_owned()))
        .filter(|(n, _)| n == "host" || n == "content-type" || n.starts_with("x-amz-"))
        .collect();
    signed.sort();
    let names: Vec<&str> = signed.iter().map(|(n, _)| n.as_str()).collect();
    let names = names.join(";");
    let fields: String = signed.iter().map(|(n, v)| format!("{n}:{v}\n")).collect();
    let (path, query) =
        (encoded_as(head.url.path_only(), CANONICAL_PATH), canonical_query(head.url.query().unwrap_or_default()));
    // The canonical request: method, path, query, fields, their names, and the hash of the body.
    let request = format!("{}\n{path}\n{query}\n{fields}\n{names}\n{}", head.method, hex::encode(Sha256::digest(body)));
    let day = time.get(..8).unwrap_or_default();
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex::encode(Sha256::digest(request.as_bytes())));
    // The signing key is derived step by step, so that a leaked one is good for one day, region and service only.
    let mut key = format!("AWS4{}", credentials.key).into_bytes();
    for part in [day, region, service, "aws4_request"] {
        key = mac(&key, part.as_bytes());
    }
    let signature = hex::encode(mac(&key, to_sign.as_bytes()));
    let value =
        format!("AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", credentials.id);
    head.headers.append_unchecked(b"Authorization", value.as_bytes());
}

/// Whether the client signed the request itself. Its signature is invalid after any change of the body.
pub fn is_signed(head: &RequestHead) -> bool {
    head.headers.get("authorization").is_some_and(|v| v.starts_with(b"AWS4-HMAC-SHA256"))
}

fn mac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

/// Every segment is encoded once more, as required by all services but S3.
const CANONICAL_PATH: &AsciiSet = &COMPONENT.remove(b'/');

/// The query with its parameters sorted by name; a parameter without `=` gets one.
fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|p| !p.is_empty())
        .map(|p| if p.contains('=') { p.to_owned() } else { format!("{p}=") })
        .collect();
    pairs.sort();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::{Headers, HttpVersion, Method, Scheme, Url};

    fn head(path: &str) -> RequestHead {
        RequestHead {
            method: Method::POST,
            url: Url {
                scheme: Scheme::Https,
                authority: "bedrock-runtime.us-east-1.amazonaws.com:443".parse().unwrap(),
                path: path.into(),
            },
            version: HttpVersion::Http11,
            headers: [
                ("Content-Type", "application/json"),
                ("Authorization", "AWS4-HMAC-SHA256 old"),
                ("X-Amz-Date", "old"),
            ]
            .into_iter()
            .collect::<Headers>(),
            protocol: None,
        }
    }

    /// The expected signature was computed by botocore 1.44 for the same request.
    #[test]
    fn percent_encoded_model_is_signed_as_by_botocore() {
        let mut head = head("/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fx/converse");
        let credentials = AwsCredentials {
            id: "AKIDEXAMPLE".into(),
            key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        };
        let scope = SigningScope { service: BEDROCK, region: "us-east-1" };
        sign(&mut head, b"{}", &credentials, &scope, "20250101T000000Z");
        let value = head.headers.get_str("authorization").unwrap();
        let (before, signature) = value.split_once("Signature=").unwrap();
        assert_eq!(
            before,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20250101/us-east-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date, "
        );
        assert_eq!(signature, "ee2f91b373d38bbe60c7a9aa117d9012f9023b5070bb0eb8566e08156f3e9dbb");
        assert_eq!(head.headers.get_all("authorization").count(), 1);
    }

    #[test]
    fn a_session_token_is_sent_and_signed() {
        let mut head = head("/model/m/converse");
        let credentials = AwsCredentials { id: "A".into(), key: "k".into(), token: Some("session".into()) };
        sign(&mut head, b"{}", &credentials, &SigningScope { service: BEDROCK, region: "r" }, "20250101T000000Z");
        assert_eq!(head.headers.get_str("x-amz-security-token"), Some("session"));
        let value = head.headers.get_str("authorization").unwrap();
        assert!(value.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token,"), "{value}");
    }

    #[test]
    fn queries_are_sorted() {
        assert_eq!(canonical_query("b=2&a&c=%20"), "a=&b=2&c=%20");
    }
}
