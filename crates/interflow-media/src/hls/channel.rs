//! Per-channel options of IPTV lists: header fields and keys for players (`#EXTVLCOPT`, `#EXTHTTP`, `#KODIPROP`). They
//! become parameters of the channel's link, because the gateway fetches from the origin instead of the player.

use std::sync::LazyLock;

use interflow_types::data_file;
use serde_json::{Map, Value};

use crate::cenc::ContentKeyRing;
use crate::endpoint::MediaParams;

/// Maximum number of options per channel; further lines are left unchanged.
const MAX_OPTIONS: usize = 32;
/// Maximum size of an option's value, in bytes.
const MAX_OPTION_LEN: usize = 8 << 10;

/// Kodi options after a URL that concern its HTTP client, and are no header fields.
static OF_TRANSPORT: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/kodi_transport_options.txt")).collect());

/// The options of the next channel, collected from the lines before its URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelOptions {
    pairs: Vec<(String, String)>,
}

impl ChannelOptions {
    /// Parses a line of a list; returns whether the channel's link now contains its meaning.
    pub fn take(&mut self, line: &str) -> bool {
        let line = line.trim();
        if self.pairs.len() >= MAX_OPTIONS || line.len() > MAX_OPTION_LEN {
            return false;
        }
        if let Some(option) = line.strip_prefix("#EXTVLCOPT:") {
            return self.vlc(option);
        }
        if let Some(fields) = line.strip_prefix("#EXTHTTP:") {
            return self.http(fields);
        }
        line.strip_prefix("#KODIPROP:").is_some_and(|property| self.kodi(property))
    }

    /// Parses Kodi's suffix of a channel's URL: `User-Agent=Box&Referer=http%3A%2F%2Fr.test`. Returns whether the
    /// channel's link now contains it.
    pub fn fields_behind_address(&mut self, fields: &str) -> bool {
        if self.pairs.len() >= MAX_OPTIONS || fields.len() > MAX_OPTION_LEN || !fields.contains('=') {
            return false;
        }
        for (name, value) in MediaParams::read(fields).pairs.iter().take(MAX_OPTIONS) {
            // `!` marks a field that Kodi sends verbatim.
            let name = name.trim().trim_start_matches('!').to_ascii_lowercase();
            if !OF_TRANSPORT.contains(&name.as_str()) {
                self.field(&name, value);
            }
        }
        true
    }

    /// Takes the options, as parameters of a link; the next channel begins without any.
    pub fn finish(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.pairs)
    }

    /// Adds a header field as a parameter `h_NAME`; a later one of the same name replaces it.
    fn field(&mut self, name: &str, value: &str) {
        let name = match name.trim().to_ascii_lowercase().as_str() {
            "user-agent" | "useragent" => "user-agent".to_owned(),
            "referrer" => "referer".to_owned(),
            other => other.to_owned(),
        };
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if is_name && !value.trim().is_empty() {
            let name = format!("h_{name}");
            self.pairs.retain(|(n, _)| *n != name);
            self.pairs.push((name, value.trim().to_owned()));
        }
    }

    /// `#EXTVLCOPT:`: the options that are header fields. Others concern the player.
    fn vlc(&mut self, option: &str) -> bool {
        let Some((name, value)) = option.split_once('=') else { return false };
        let value = value.trim().trim_matches('"');
        let name = match name.trim().to_ascii_lowercase().as_str() {
            "http-user-agent" => "user-agent",
            "http-referrer" | "http-referer" => "referer",
            "http-origin" => "origin",
            "http-cookie" | "http-cookies" => "cookie",
            _ => return false,
        };
        self.field(name, value);
        true
    }

    /// `#EXTHTTP:`: a JSON object of header fields.
    fn http(&mut self, fields: &str) -> bool {
        let Ok(fields) = serde_json::from_str::<Map<String, Value>>(fields) else { return false };
        for (name, value) in &fields {
            if let Some(value) = value.as_str() {
                self.field(name, value);
            }
        }
        true
    }

    /// `#KODIPROP:`: keys and header fields of `inputstream.adaptive`.
    fn kodi(&mut self, property: &str) -> bool {
        let Some((name, value)) = property.split_once('=') else { return false };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match name.strip_prefix("inputstream.adaptive.").unwrap_or_default() {
            "license_key" => self.keys(value),
            "drm_legacy" => value.split_once('|').is_some_and(|(scheme, key)| is_clear(scheme) && self.keys(key)),
            // Removed together with its key, which the player no longer needs.
            "license_type" => is_clear(value),
            "stream_headers" | "manifest_headers" => {
                for (name, value) in &MediaParams::read(value).pairs {
                    self.field(name, value);
                }
                true
            }
            _ => false,
        }
    }

    /// Keys written as `KID:KEY,…` or as a JSON Web Key Set. License server URLs are left to the player.
    fn keys(&mut self, text: &str) -> bool {
        let keys = match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(set)) => key_set(&set),
            _ => Some(text.to_owned()).filter(|t| t.contains(':') && !t.contains("://")),
        };
        let Some(keys) = keys.filter(|keys| ContentKeyRing::parse(None, keys).is_ok()) else { return false };
        self.pairs.retain(|(n, _)| n != "key" && n != "key_id");
        self.pairs.push(("key".into(), keys));
        true
    }
}

/// Whether a key system is Clear Key, whose keys are in the list itself.
fn is_clear(scheme: &str) -> bool {
    matches!(scheme.trim().to_ascii_lowercase().as_str(), "clearkey" | "org.w3.clearkey")
}

/// `{"keys":[{"kid":"…","k":"…"}]}`, or `{"KID":"KEY"}`.
fn key_set(set: &Map<String, Value>) -> Option<String> {
    let pairs: Option<Vec<String>> = match set.get("keys").and_then(Value::as_array) {
        Some(keys) => {
            keys.iter().map(|k| Some(format!("{}:{}", k.get("kid")?.as_str()?, k.get("k")?.as_str()?))).collect()
        }
        None => set.iter().map(|(kid, key)| Some(format!("{kid}:{}", key.as_str()?))).collect(),
    };
    pairs.map(|p| p.join(",")).filter(|p| !p.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> (Vec<bool>, Vec<(String, String)>) {
        let mut options = ChannelOptions::default();
        let taken = lines.iter().map(|l| options.take(l)).collect();
        (taken, options.finish())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn options_of_players_become_parameters() {
        let (taken, pairs) = read(&[
            "#EXTVLCOPT:http-user-agent=Box 1.0",
            "#EXTVLCOPT:http-referrer=http://r.test/",
            "#EXTVLCOPT:network-caching=1000",
            "#EXTHTTP:{\"cookie\":\"a=b\",\"Origin\":\"http://o.test\"}",
            "#EXTHTTP:nonsense",
            "#KODIPROP:inputstream.adaptive.stream_headers=X-One=1%202&User-Agent=Other",
            "#KODIPROP:inputstream=inputstream.adaptive",
        ]);
        assert_eq!(taken, [true, true, false, true, false, true, false]);
        let expected = [
            pair("h_referer", "http://r.test/"),
            pair("h_cookie", "a=b"),
            pair("h_origin", "http://o.test"),
            pair("h_x-one", "1 2"),
            pair("h_user-agent", "Other"),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn headers_appended_to_a_channel_url_become_parameters() {
        let mut options = ChannelOptions::default();
        assert!(options.take("#EXTVLCOPT:http-user-agent=Other"));
        assert!(options.fields_behind_address(
            "User-Agent=Box%201.0&Referer=http%3A%2F%2Fr.test%2F&!X-Plan=b&verifypeer=false&seekable=0"
        ));
        let expected = [pair("h_user-agent", "Box 1.0"), pair("h_referer", "http://r.test/"), pair("h_x-plan", "b")];
        assert_eq!(options.finish(), expected);
        assert!(!options.fields_behind_address("part of a name") && options.finish().is_empty());
    }

    #[test]
    fn keys_are_parsed_in_every_form_and_license_server_lines_kept() {
        const KID: &str = "00112233445566778899aabbccddeeff";
        const KEY: &str = "ffeeddccbbaa99887766554433221100";
        let web = "{\"keys\":[{\"kty\":\"oct\",\"kid\":\"ABEiM0RVZneImaq7zN3u_w\",\"k\":\"ABEiM0RVZneImaq7zN3u_w\"}]}";
        for (line, key) in [
            (format!("license_key={KID}:{KEY}"), Some(format!("{KID}:{KEY}"))),
            (format!("license_key={{\"{KID}\":\"{KEY}\"}}"), Some(format!("{KID}:{KEY}"))),
            (format!("license_key={web}"), Some("ABEiM0RVZneImaq7zN3u_w:ABEiM0RVZneImaq7zN3u_w".into())),
            (format!("drm_legacy=org.w3.clearkey|{KID}:{KEY}"), Some(format!("{KID}:{KEY}"))),
            ("license_key=https://drm.test/licence".into(), None),
            ("license_type=com.widevine.alpha".into(), None),
        ] {
            let (taken, pairs) = read(&[&format!("#KODIPROP:inputstream.adaptive.{line}")]);
            assert_eq!(taken, [key.is_some()], "{line}");
            assert_eq!(pairs, key.map(|k| pair("key", &k)).into_iter().collect::<Vec<_>>(), "{line}");
        }
    }
}
