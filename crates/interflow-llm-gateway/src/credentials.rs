//! Where provider clients put their API keys, and how keys are removed and replaced.

use std::net::IpAddr;

use interflow_limits::{KEY_PREFIX, holds_key};
use interflow_llm::Provider;
use interflow_types::{ByteStr, RequestHead, percent};

/// Header fields with the credentials of providers' clients.
pub(crate) const CREDENTIALS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

/// As [`CREDENTIALS`], of requests of the gateway itself, too.
pub(crate) const SENT_CREDENTIALS: [&str; 5] =
    ["authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token"];

/// A key that a client presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PresentedKey {
    /// In the header for this gateway's keys.
    Own(String),
    /// Where the provider's SDK puts its key.
    Provider(String),
}

/// Whether the text has the format of a virtual key. Such a text must never leave Interflow, whether or not the key
/// exists.
pub(crate) fn is_virtual_key(text: &str) -> bool {
    text.starts_with(KEY_PREFIX)
}

/// The key in one of the places that provider SDKs use. A virtual key takes precedence, so that none is overlooked
/// beside a second credential.
pub(crate) fn presented_key(head: &RequestHead) -> Option<PresentedKey> {
    first_key(client_keys(head).collect())
}

/// As [`presented_key`], in a header field: an address gets into logs and histories.
pub(crate) fn presented_key_in_fields(head: &RequestHead) -> Option<PresentedKey> {
    first_key(presented_in_fields(head).filter(|key| !key.is_empty()).collect())
}

fn first_key(mut all: Vec<String>) -> Option<PresentedKey> {
    let ours = all.iter().position(|k| is_virtual_key(k)).unwrap_or(0);
    (!all.is_empty()).then(|| PresentedKey::Provider(all.swap_remove(ours)))
}

/// The keys with which a client authenticates, in whichever field its SDK puts them.
pub(crate) fn client_keys(head: &RequestHead) -> impl Iterator<Item = String> {
    presented_in_fields(head).chain(presented_in_query(head)).filter(|key| !key.is_empty())
}

/// The bearer token and the key fields.
fn presented_in_fields(head: &RequestHead) -> impl Iterator<Item = String> {
    let text = |v: &[u8]| std::str::from_utf8(v).ok().map(|t| t.trim().to_owned());
    let bearer = |v: &[u8]| {
        let (scheme, key) = std::str::from_utf8(v).ok()?.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().to_owned())
    };
    let [authorization, keys @ ..] = CREDENTIALS;
    let fields = keys.into_iter().flat_map(move |name| head.headers.get_all(name).filter_map(text));
    head.headers.get_all(authorization).filter_map(bearer).chain(fields)
}

/// Whether there is something like a virtual key where no credentials are: it would be forwarded.
pub(crate) fn has_misplaced_key(head: &RequestHead) -> bool {
    let is_other = |name: &[u8]| !CREDENTIALS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let mut others = head.headers.iter().filter(|(name, _)| is_other(name)).map(|(_, value)| value);
    holds_key(&percent::decoded_lossy(&head.url.path)) || others.any(|v| holds_key(&String::from_utf8_lossy(v)))
}

/// Gemini's `key=` in the query.
fn presented_in_query(head: &RequestHead) -> impl Iterator<Item = String> {
    let pairs = head.url.query().into_iter().flat_map(|q| q.split('&'));
    pairs.filter_map(|pair| pair.strip_prefix("key=")).map(percent::decoded_lossy)
}

/// Whether the request carries credentials, the client's or the operator's. A signature in the query counts.
pub(crate) fn has_credentials(head: &RequestHead) -> bool {
    let signed = |pair: &str| pair.starts_with("key=") || pair.starts_with("X-Amz-Signature=");
    CREDENTIALS.iter().any(|name| head.headers.contains(name))
        || head.url.query().is_some_and(|query| query.split('&').any(signed))
}

/// What stays the same of a client's credentials throughout its conversations, in whichever field they are: its API key,
/// or in place of those that are renewed (tokens of a sign-in, signatures) the client's address. `None` without credentials.
/// It is not verified: it tells conversations apart, and gives no access to one.
pub(crate) fn lasting_identity(head: &RequestHead, peer: IpAddr) -> Option<String> {
    let peer = peer.to_canonical();
    // A client on this machine may change between the two families.
    let address = || if peer.is_loopback() { String::new() } else { peer.to_string() };
    if let Some(key) = client_keys(head).next() {
        let is_renewed = [SIGN_IN_TOKEN, "eyJ", "ya29."].iter().any(|start| key.starts_with(start));
        return Some(if is_renewed { address() } else { key });
    }
    let key_id = head.headers.get_str("authorization")?.split("Credential=").nth(1)?.split('/').next();
    // Temporary keys have ids of their own.
    Some(key_id.filter(|id| !id.starts_with("ASIA")).map_or_else(address, str::to_owned))
}

/// Precedes the tokens of a sign-in at Anthropic. They are no API keys.
const SIGN_IN_TOKEN: &str = "sk-ant-oat";

/// Removes the credentials from every place of [`presented_key`], not only from where the valid one was found.
pub(crate) fn remove_credentials(head: &mut RequestHead) {
    for name in CREDENTIALS {
        head.headers.remove(name);
    }
    if let Some(query) = head.url.query()
        && query.split('&').any(|pair| pair.starts_with("key="))
    {
        let rest: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("key=")).collect();
        let path = head.url.path_only();
        let whole = if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) };
        head.url.path = ByteStr::from(whole);
    }
}

/// The field in which a provider expects a key, and its value.
pub(crate) fn key_field(provider: Provider, key: &str) -> (&'static str, String) {
    match provider {
        Provider::Anthropic if !key.starts_with(SIGN_IN_TOKEN) => ("x-api-key", key.to_owned()),
        Provider::Azure => ("api-key", key.to_owned()),
        Provider::Gemini => ("x-goog-api-key", key.to_owned()),
        _ => ("Authorization", format!("Bearer {key}")),
    }
}

/// Replaces any credential by the provider's own key, in the field that the provider documents.
///
/// # Errors
/// The key is not a valid header value.
pub(crate) fn set_provider_key(head: &mut RequestHead, provider: Provider, key: &str) -> Result<(), ()> {
    if key.bytes().any(|b| b.is_ascii_control()) {
        return Err(());
    }
    remove_credentials(head);
    let (name, value) = key_field(provider, key);
    head.headers.append(name, value).map_err(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::{Headers, HttpVersion, Method, Scheme, Url};

    fn head(path: &'static str, fields: &[(&str, &str)]) -> RequestHead {
        RequestHead {
            method: Method::POST,
            url: Url {
                scheme: Scheme::Https,
                authority: "api.test:443".parse().unwrap(),
                path: ByteStr::from_static(path),
            },
            version: HttpVersion::Http11,
            headers: fields.iter().copied().collect::<Headers>(),
            protocol: None,
        }
    }

    #[test]
    fn presented_keys_are_found_where_sdks_send_them() {
        for (path, fields, key) in [
            ("/", vec![("Authorization", "Bearer ifk_1")], Some("ifk_1")),
            ("/", vec![("authorization", "bearer  sk-1 ")], Some("sk-1")),
            ("/", vec![("Authorization", "AWS4-HMAC-SHA256 Credential=x")], None),
            ("/", vec![("X-Api-Key", "k")], Some("k")),
            ("/", vec![("api-key", "k")], Some("k")),
            ("/", vec![("x-goog-api-key", "k")], Some("k")),
            ("/?alt=sse&key=ifk%5F2", vec![], Some("ifk_2")),
            ("/", vec![("Authorization", "Bearer sk-1"), ("x-api-key", "ifk_3")], Some("ifk_3")),
            ("/?key=", vec![("x-api-key", "")], None),
        ] {
            let found = presented_key(&head(path, &fields));
            assert_eq!(found, key.map(|k| PresentedKey::Provider(k.to_owned())), "{path} {fields:?}");
            let in_fields = presented_key_in_fields(&head(path, &fields));
            assert_eq!(in_fields, found.filter(|_| !path.contains("key=ifk")), "{path} {fields:?}");
        }
    }

    #[test]
    fn only_the_provider_key_is_forwarded() {
        let all = [("Authorization", "Bearer ifk_1"), ("x-api-key", "ifk_1"), ("api-key", "a"), ("Other", "stays")];
        for (provider, name, value) in [
            (Provider::OpenAi, "authorization", "Bearer sk"),
            (Provider::Bedrock, "authorization", "Bearer sk"),
            (Provider::Anthropic, "x-api-key", "sk"),
            (Provider::Anthropic, "authorization", "Bearer sk-ant-oat01-t"),
            (Provider::Azure, "api-key", "sk"),
            (Provider::Gemini, "x-goog-api-key", "sk"),
        ] {
            let mut h = head("/p?key=ifk_1&alt=sse", &all);
            set_provider_key(&mut h, provider, value.trim_start_matches("Bearer ")).unwrap();
            assert_eq!(h.headers.get_str(name), Some(value));
            assert_eq!(h.headers.len(), 2);
            assert_eq!(h.url.path.as_str(), "/p?alt=sse");
            assert!(!format!("{h:?}").contains("ifk_"));
        }
        let mut h = head("/p?key=ifk_1", &[]);
        remove_credentials(&mut h);
        assert_eq!(h.url.path.as_str(), "/p");
    }

    #[test]
    fn a_client_stays_the_same_when_its_credentials_change_their_field_or_are_renewed() {
        let peer = IpAddr::from([127, 0, 0, 1]);
        let of = |field: (&str, &str)| lasting_identity(&head("/", &[field]), peer);
        let aws = |id: &str, signature: &str| {
            format!("AWS4-HMAC-SHA256 Credential={id}/20261128/us-east-1/bedrock/aws4_request, Signature={signature}")
        };
        assert_eq!(of(("x-api-key", "sk-ant-api03-a")), of(("authorization", "Bearer sk-ant-api03-a")));
        assert_ne!(of(("x-api-key", "sk-ant-api03-a")), of(("x-api-key", "sk-ant-api03-b")));
        for (before, after) in [
            ("Bearer sk-ant-oat01-a".to_owned(), "Bearer sk-ant-oat01-b".to_owned()),
            ("Bearer eyJ.e1.c2ln".to_owned(), "Bearer eyJ.e2.c2ln".to_owned()),
            (aws("AKIA1", "a"), aws("AKIA1", "b")),
            (aws("ASIA1", "a"), aws("ASIA2", "b")),
        ] {
            assert_eq!(of(("authorization", &before)), of(("authorization", &after)), "{before}");
        }
        assert_ne!(of(("authorization", &aws("AKIA1", "a"))), of(("authorization", &aws("AKIA2", "a"))));
    }
}
