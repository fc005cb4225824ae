//! Masks secrets in header fields and URL queries before anything is written.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use interflow_types::secret_names::without_credentials;
use interflow_types::{Headers, percent};

/// How deep URLs within parameters of URLs are read; what is deeper is masked as a whole.
const MAX_URL_DEPTH: u8 = 4;
/// What is escaped in a URL within a parameter; the rest stays readable.
const URL_IN_VALUE: &percent::AsciiSet = &percent::COMPONENT.remove(b'*').remove(b'/').remove(b':').remove(b'@');

pub(crate) struct MaskRules {
    names: Vec<String>,
    prefixes: Vec<String>,
    /// Bit sets of the first letters and lengths of `names`, a fast filter that rejects most fields.
    letters: u32,
    lengths: u64,
    parameters: Vec<String>,
}

/// The bit of a name's first letter. The lower five bits of an ASCII letter are the same in both cases.
fn letter(name: &[u8]) -> u32 {
    name.first().map_or(0, |b| 1 << (b & 31))
}

/// The bit of a name's length; long names share the last bit.
fn length(name: &[u8]) -> u64 {
    1 << name.len().min(63)
}

/// The prefix of generated placeholders, and the number of letters and digits that follow.
const PLACEHOLDER: (&[u8], usize) = (b"interflow-secret-", 26);

/// The recorder's masking rules, for heads that are displayed before anything was written.
pub struct HeaderMasker(MaskRules);

impl HeaderMasker {
    /// The rules of a configuration's `record` section as JSON; defaults where it is silent.
    pub fn from_config(record: &serde_json::Value) -> Self {
        let config: crate::RecordConfig = serde_json::from_value(record.clone()).unwrap_or_default();
        // A configuration that cannot be read masks the default names, never nothing.
        Self::new(&config)
    }

    /// The rules of a configuration.
    pub fn new(config: &crate::RecordConfig) -> Self {
        Self(MaskRules::new(&config.mask_headers, &config.mask_query))
    }

    /// The fields with secrets replaced by their length, as the recorder writes them.
    pub fn mask_fields(&self, fields: &[(String, String)]) -> Vec<(String, String)> {
        let masked = |(name, value): &(String, String)| {
            let masked = self.0.masked(name.as_bytes(), value.as_bytes()).unwrap_or_else(|| value.clone());
            (name.clone(), masked)
        };
        fields.iter().map(masked).collect()
    }

    /// The URL with secrets in its query masked.
    pub fn mask_url(&self, url: &str) -> String {
        self.0.mask_path(url)
    }
}

impl MaskRules {
    /// From exact names, or prefixes followed by `*`.
    pub(crate) fn new(fields: &[String], parameters: &[String]) -> Self {
        let lower = fields.iter().map(|f| f.trim().to_ascii_lowercase());
        let (prefixes, names): (Vec<String>, Vec<String>) = lower.partition(|f| f.ends_with('*'));
        let letters = names.iter().fold(0, |all, n| all | letter(n.as_bytes()));
        let lengths = names.iter().fold(0, |all, n| all | length(n.as_bytes()));
        let prefixes = prefixes.into_iter().map(|p| p.trim_end_matches('*').to_owned()).collect();
        Self { names, prefixes, letters, lengths, parameters: parameters.to_vec() }
    }

    fn matches_name(&self, name: &[u8]) -> bool {
        // Most fields are not secret: two bit tests reject them without a comparison of strings.
        let may_be_named = self.letters & letter(name) != 0 && self.lengths & length(name) != 0;
        (may_be_named && self.names.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes())))
            || self
                .prefixes
                .iter()
                .any(|p| name.get(..p.len()).is_some_and(|head| head.eq_ignore_ascii_case(p.as_bytes())))
    }

    /// What is shown of a field's value; `None` if all of it.
    fn masked(&self, name: &[u8], value: &[u8]) -> Option<String> {
        match self.matches_name(name) {
            true => Some(masked_value(value)),
            false if is_protocol_list(name) => masked_protocols(value),
            false => None,
        }
    }

    /// The path with secrets in its query masked.
    pub(crate) fn mask_path(&self, path: &str) -> String {
        self.mask_query(path, MAX_URL_DEPTH)
    }

    fn mask_query(&self, path: &str, depth: u8) -> String {
        let Some((before, query)) = path.split_once('?') else { return path.to_owned() };
        let secret = |part: &str| self.masked_parameter(part, depth);
        // Nearly all paths have no secret and are returned as they are, without being put together again.
        if !query.split('&').any(|part| secret(part).is_some()) {
            return path.to_owned();
        }
        let parts: Vec<String> = query.split('&').map(|part| secret(part).unwrap_or_else(|| part.to_owned())).collect();
        format!("{before}?{}", parts.join("&"))
    }

    /// A parameter with what is secret in it masked; `None` if nothing is.
    fn masked_parameter(&self, part: &str, depth: u8) -> Option<String> {
        let (name, value) = part.split_once('=')?;
        // Placeholders are not secrets: with them, the request can be replayed.
        if value.is_empty() || is_placeholder(value.as_bytes()) {
            return None;
        }
        let plain_name = percent::decoded(name);
        // Links to the media endpoints name header fields in either direction.
        let field = ["h_", "rp_", "r_"].iter().find_map(|prefix| plain_name.strip_prefix(prefix));
        let is_secret = self.parameters.iter().any(|p| p.eq_ignore_ascii_case(&plain_name))
            || field.is_some_and(|field| self.matches_name(field.as_bytes()));
        if is_secret { Some(format!("{name}=***")) } else { Some(format!("{name}={}", self.masked_url(value, depth)?)) }
    }

    /// The URL in a value, escaped or in base64, with its credentials and secrets masked; `None` if it has neither.
    fn masked_url(&self, value: &str, depth: u8) -> Option<String> {
        let plain = percent::decoded(value);
        let in_base64 = ["aHR0", "SFRU"].iter().any(|http| plain.starts_with(http));
        let url = if in_base64 {
            let text = plain.trim_end_matches('=');
            let bytes = STANDARD_NO_PAD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).ok()?;
            Cow::Owned(String::from_utf8(bytes).ok()?)
        } else {
            Cow::Borrowed(&*plain)
        };
        if !url.contains("://") && !url.contains('?') {
            return None;
        }
        let Some(depth) = depth.checked_sub(1) else { return Some("***".to_owned()) };
        let masked = self.mask_query(&without_credentials(&url).unwrap_or_else(|| url.to_string()), depth);
        match masked == *url {
            true => None,
            false if in_base64 => Some(URL_SAFE_NO_PAD.encode(masked)),
            false if matches!(plain, Cow::Borrowed(_)) => Some(masked),
            false => Some(percent::encoded_as(&masked, URL_IN_VALUE)),
        }
    }

    /// The fields with secrets replaced by their length; an authentication scheme stays readable.
    pub(crate) fn mask_headers(&self, headers: Headers) -> Headers {
        // The fields of most messages are kept without a copy.
        if !headers.iter().any(|(name, _)| self.matches_name(name) || is_protocol_list(name)) {
            return headers;
        }
        let mut masked = Headers::with_capacity(headers.len(), headers.size());
        for (name, value) in &headers {
            match self.masked(name, value) {
                // Unchecked, because names were accepted before and the mask consists of printable ASCII characters.
                Some(shown) => masked.append_unchecked(name, shown.as_bytes()),
                None => masked.append_unchecked(name, value),
            }
        }
        masked
    }
}

/// Browsers cannot set fields of a WebSocket's handshake but this one, so that some APIs take credentials in it.
fn is_protocol_list(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"sec-websocket-protocol")
}

/// Longer names of protocols are credentials; the longest that are registered have about thirty characters.
const MAX_PROTOCOL: usize = 40;

/// The list of protocols without its credentials: what follows `bearer` and the like, what has such a word before a
/// dot (`openai-insecure-api-key.…`), and what is too long for a name. `None` if there are none.
fn masked_protocols(value: &[u8]) -> Option<String> {
    const WORDS: [&str; 8] = ["bearer", "token", "access_token", "authorization", "auth", "jwt", "api-key", "apikey"];
    let value = std::str::from_utf8(value).ok()?;
    let mut is_secret = false;
    let mut any = false;
    let entries = value.split(',').map(|entry| {
        let protocol = entry.trim();
        let lower = protocol.to_ascii_lowercase();
        let names_secret = std::mem::replace(&mut is_secret, WORDS.contains(&lower.as_str()));
        let word_end = WORDS.iter().filter_map(|word| Some(lower.find(word)? + word.len())).min();
        let secret_at = match word_end.and_then(|end| Some(end + lower[end..].find('.')? + 1)) {
            _ if names_secret => Some(0),
            Some(at) => Some(at),
            None => (protocol.len() > MAX_PROTOCOL).then_some(0),
        };
        let Some(at) = secret_at.filter(|at| *at < protocol.len()) else { return entry.to_owned() };
        let (start, secret) = protocol.split_at(at);
        if is_placeholder(secret.as_bytes()) || masked_size(secret.as_bytes()).is_some() {
            return entry.to_owned();
        }
        any = true;
        let space = &entry[..entry.len() - entry.trim_start().len()];
        format!("{space}{start}*** ({} bytes)", secret.len())
    });
    let joined = entries.collect::<Vec<_>>().join(",");
    any.then_some(joined)
}

fn masked_value(value: &[u8]) -> String {
    // Only known schemes are shown: a value without one could be a secret that contains a space.
    const SCHEMES: [&str; 6] = ["Bearer", "Basic", "Digest", "Negotiate", "NTLM", "AWS4-HMAC-SHA256"];
    let scheme = SCHEMES.iter().find(|s| {
        value.get(..s.len()).is_some_and(|v| v.eq_ignore_ascii_case(s.as_bytes())) && value.get(s.len()) == Some(&b' ')
    });
    let secret = scheme.map_or(value, |s| &value[s.len() + 1..]);
    if is_placeholder(secret) {
        return String::from_utf8_lossy(value).into_owned();
    }
    // An imported value may have been masked when it was recorded: its mask keeps the original length.
    let size = masked_size(secret).unwrap_or(secret.len());
    if let Some(s) = scheme { format!("{s} *** ({size} bytes)") } else { format!("*** ({size} bytes)") }
}

/// A placeholder is not a secret; keeping it allows the request to be replayed unchanged.
fn is_placeholder(value: &[u8]) -> bool {
    let (prefix, length) = PLACEHOLDER;
    value.strip_prefix(prefix).is_some_and(|rest| rest.len() == length && rest.iter().all(u8::is_ascii_alphanumeric))
}

/// The original length of a masked value; `None` if the value is not a mask.
fn masked_size(value: &[u8]) -> Option<usize> {
    std::str::from_utf8(value.strip_prefix(b"*** (")?.strip_suffix(b" bytes)")?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_placeholders_are_not_masked_and_lookalikes_are() {
        let ours = format!("interflow-secret-{}", "k5".repeat(13));
        for (value, shown) in [
            (ours.clone(), true),
            (format!("Bearer {ours}"), true),
            (format!("{ours}x"), false),
            (format!("{ours} sk-real"), false),
            ("interflow-secret-sk-real".to_owned(), false),
        ] {
            assert_eq!(masked_value(value.as_bytes()) == value, shown, "{value}");
        }
        let mask = MaskRules::new(&[], &["key".to_owned()]);
        for (path, shown) in [(format!("/x?key={ours}"), true), ("/x?key=sk".into(), false)] {
            assert_eq!(mask.mask_path(&path) == path, shown, "{path}");
        }
    }

    #[test]
    fn secret_query_parameters_are_masked() {
        let mask = MaskRules::new(&[], &["api_password".into(), "key".into()]);
        for (path, masked) in [
            ("/a", "/a"),
            ("/a?b=c", "/a?b=c"),
            ("/a?key=s3cret&b=c&API_PASSWORD=x%3D", "/a?key=***&b=c&API_PASSWORD=***"),
            ("/a?monkey=1&key=&key", "/a?monkey=1&key=&key"),
        ] {
            assert_eq!(mask.mask_path(path), masked);
        }
    }

    #[test]
    fn secrets_in_urls_within_parameters_are_masked() {
        let mask = MaskRules::new(&["authorization".into(), "x-secret-*".into()], &["token".into(), "sig".into()]);
        let base64 = |url: &str| URL_SAFE_NO_PAD.encode(url);
        let nested = (0..2000).fold("x".to_owned(), |inner, _| format!("http://a/?d={inner}"));
        let masked_nested = mask.mask_path(&nested);
        assert!(masked_nested.ends_with("d=***") && masked_nested.len() < 100, "{masked_nested}");
        for (path, masked) in [
            (
                "/m?h_Authorization=Bearer%20s&h_user-agent=A&r_x-secret-a=s",
                "/m?h_Authorization=***&h_user-agent=A&r_x-secret-a=***",
            ),
            ("/m?d=http://u:PW@host/x&a=1", "/m?d=http://***@host/x&a=1"),
            (
                "/m?d=http%3A%2F%2Fu%3APW%40host%2Fx%3Ftoken%3Ds%26b%3D1%26sig%3Ds",
                "/m?d=http://***@host/x%3Ftoken%3D***%26b%3D1%26sig%3D***",
            ),
            ("/m?d=http%3A%2F%2Fhost%2Fx%3Fb%3D1", "/m?d=http%3A%2F%2Fhost%2Fx%3Fb%3D1"),
            ("/m?t%6fken=s", "/m?t%6fken=***"),
            ("/m?next=%2Fcb%3Ftoken%3Ds%26b%3D1", "/m?next=/cb%3Ftoken%3D***%26b%3D1"),
            ("/m?next=/cb?token=s", "/m?next=/cb?token=***"),
            ("/m?q=what%3F%20that%3F", "/m?q=what%3F%20that%3F"),
        ] {
            assert_eq!(mask.mask_path(path), masked);
        }
        let open = base64("https://u:PW@host/x?sig=s&b=1");
        let masked = base64("https://***@host/x?sig=***&b=1");
        assert_eq!(mask.mask_path(&format!("/m?d={open}&c=2")), format!("/m?d={masked}&c=2"));
        let harmless = format!("/m?d={}", base64("https://host/x?b=1"));
        assert_eq!(mask.mask_path(&harmless), harmless);
    }

    #[test]
    fn credentials_among_the_protocols_of_a_websocket_are_masked() {
        for (value, masked) in [
            ("bearer, eyJhbGci.eyJzdWIi.c2ln", Some("bearer, *** (22 bytes)")),
            ("chat, Bearer,tok1", Some("chat, Bearer,*** (4 bytes)")),
            (
                "realtime, openai-insecure-api-key.sk-123456, openai-beta.realtime-v1",
                Some("realtime, openai-insecure-api-key.*** (9 bytes), openai-beta.realtime-v1"),
            ),
            ("base64url.bearer.authorization.k8s.io.c2VjcmV0", Some("base64url.bearer.*** (29 bytes)")),
            ("bearer.eyJ.eyJ.sig", Some("bearer.*** (11 bytes)")),
            ("eyJhbGciOiJIUzI1NiJ9aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Some("*** (50 bytes)")),
            ("graphql-transport-ws, v4.channel.k8s.io", None),
            ("bearer, *** (22 bytes)", None),
            ("bearer", None),
        ] {
            assert_eq!(masked_protocols(value.as_bytes()).as_deref(), masked, "{value}");
        }
        let mask = HeaderMasker(MaskRules::new(&[], &[]));
        let fields = [("Sec-WebSocket-Protocol".to_owned(), "bearer, s3cret".to_owned())];
        assert_eq!(mask.mask_fields(&fields)[0].1, "bearer, *** (6 bytes)");
        let headers: Headers = [("sec-websocket-protocol", "bearer, s3cret"), ("Host", "a")].into_iter().collect();
        let mut text = Vec::new();
        MaskRules::new(&[], &[]).mask_headers(headers).write_to(&mut text);
        assert_eq!(text, b"sec-websocket-protocol: bearer, *** (6 bytes)\r\nHost: a\r\n");
    }

    #[test]
    fn masked_values_are_not_masked_again() {
        for (value, masked) in [
            ("*** (11 bytes)", "*** (11 bytes)"),
            ("Bearer *** (51 bytes)", "Bearer *** (51 bytes)"),
            ("s3cret *** (11 bytes)", "*** (21 bytes)"),
            ("*** (s3cret bytes)", "*** (18 bytes)"),
        ] {
            assert_eq!(masked_value(value.as_bytes()), masked, "{value}");
        }
    }

    #[test]
    fn secret_headers_are_masked_and_others_are_unchanged() {
        let mask = MaskRules::new(&["Authorization".into(), "x-secret-*".into(), "cookie".into()], &[]);
        let headers: Headers = [
            ("Host", "a"),
            ("AUTHORIZATION", "Bearer sk-123456"),
            ("X-Secret-One", "hidden"),
            ("Cookie", "s=topsecret"),
            ("Cookies", "no secret"),
        ]
        .into_iter()
        .collect();
        let mut text = Vec::new();
        mask.mask_headers(headers).write_to(&mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "Host: a\r\nAUTHORIZATION: Bearer *** (9 bytes)\r\nX-Secret-One: *** (6 bytes)\r\nCookie: *** (11 bytes)\r\n\
             Cookies: no secret\r\n"
        );
    }
}
