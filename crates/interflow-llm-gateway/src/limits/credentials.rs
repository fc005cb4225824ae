//! Where provider clients put their API keys, and how keys are removed and replaced.

use interflow_limits::KEY_PREFIX;
use interflow_llm::Provider;
use interflow_types::{ByteStr, RequestHead, percent};

/// Header fields that carry a provider key, besides `Authorization`.
const KEY_HEADERS: [&str; 3] = ["x-api-key", "api-key", "x-goog-api-key"];

/// A key that a client presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PresentedKey {
    /// In the header for this gateway's keys.
    Own(String),
    /// Where the provider's SDK puts its key.
    Provider(String),
}

/// Whether the text has the format of a virtual key. Such a text must never leave Interflow, whether or not the key
/// exists.
pub(super) fn is_virtual_key(text: &str) -> bool {
    text.starts_with(KEY_PREFIX)
}

/// The key in one of the places that provider SDKs use. A virtual key takes precedence, so that none is overlooked
/// beside a second credential.
pub(super) fn presented_key(head: &RequestHead) -> Option<PresentedKey> {
    first_key(presented_in_fields(head).chain(presented_in_query(head)).collect())
}

/// As [`presented_key`], in a header field: an address gets into logs and histories.
pub(super) fn presented_key_in_fields(head: &RequestHead) -> Option<PresentedKey> {
    first_key(presented_in_fields(head).collect())
}

fn first_key(mut all: Vec<String>) -> Option<PresentedKey> {
    all.retain(|key| !key.is_empty());
    let ours = all.iter().position(|k| is_virtual_key(k)).unwrap_or(0);
    (!all.is_empty()).then(|| PresentedKey::Provider(all.swap_remove(ours)))
}

/// The bearer token and the key fields.
fn presented_in_fields(head: &RequestHead) -> impl Iterator<Item = String> {
    let text = |v: &[u8]| std::str::from_utf8(v).ok().map(|t| t.trim().to_owned());
    let bearer = |v: &[u8]| {
        let (scheme, key) = std::str::from_utf8(v).ok()?.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().to_owned())
    };
    let fields = KEY_HEADERS.iter().flat_map(move |name| head.headers.get_all(name).filter_map(text));
    head.headers.get_all("authorization").filter_map(bearer).chain(fields)
}

/// Gemini's `key=` in the query.
fn presented_in_query(head: &RequestHead) -> impl Iterator<Item = String> {
    let pairs = head.url.query().into_iter().flat_map(|q| q.split('&'));
    pairs.filter_map(|pair| pair.strip_prefix("key=")).map(percent::decoded_lossy)
}

/// Removes the credentials from every place of [`presented_key`], not only from where the valid one was found.
pub(super) fn remove_credentials(head: &mut RequestHead) {
    head.headers.remove("authorization");
    for name in KEY_HEADERS {
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

/// Replaces any credential by the provider's own key, in the field that the provider documents.
///
/// # Errors
/// The key is not a valid header value.
pub(super) fn set_provider_key(head: &mut RequestHead, provider: Provider, key: &str) -> Result<(), ()> {
    remove_credentials(head);
    let bearer = || format!("Bearer {key}");
    let (name, value) = match provider {
        Provider::Anthropic => ("x-api-key", key.to_owned()),
        Provider::Azure => ("api-key", key.to_owned()),
        Provider::Gemini => ("x-goog-api-key", key.to_owned()),
        _ => ("Authorization", bearer()),
    };
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
            (Provider::Azure, "api-key", "sk"),
            (Provider::Gemini, "x-goog-api-key", "sk"),
        ] {
            let mut h = head("/p?key=ifk_1&alt=sse", &all);
            set_provider_key(&mut h, provider, "sk").unwrap();
            assert_eq!(h.headers.get_str(name), Some(value));
            assert_eq!(h.headers.len(), 2);
            assert_eq!(h.url.path.as_str(), "/p?alt=sse");
            assert!(!format!("{h:?}").contains("ifk_"));
        }
        let mut h = head("/p?key=ifk_1", &[]);
        remove_credentials(&mut h);
        assert_eq!(h.url.path.as_str(), "/p");
    }
}
