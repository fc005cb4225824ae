//! The parameters of a request: from its query, or from the presented link.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use interflow_types::percent::{decoded_form, decoded_lossy};
use interflow_types::{Error, ErrorKind, Headers, Result, data_file};
use std::sync::LazyLock;

use super::error::MediaError;
use crate::cenc::ContentKeyRing;
use crate::dash::addressing::{DashByteRange, byte_range};
use crate::hls::segment_skip::SkipRanges;
use crate::hls::variant_filter::VariantChoice;
use crate::relay::address::{self, MediaAddress};
use crate::relay::header_filter;
use crate::token::QueryPairs;

/// Parameters inherited by the resources of a playlist or manifest, besides `h_…`, `rp_…` and `v_…`. Others concern
/// the playlist alone.
static INHERITED: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/inherited_parameters.txt")).collect());

/// Parameters in order, decoded. A name may occur several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaParams {
    pub pairs: QueryPairs,
}

impl MediaParams {
    pub fn read(query: &str) -> Self {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded_lossy(name);
            // In URLs, `+` is literal; elsewhere it is a space, as in forms.
            let value = if is_address(&name) { decoded_lossy(value) } else { decoded_form(value) };
            (name, value)
        };
        Self { pairs: query.split('&').filter(|p| !p.is_empty()).map(pair).collect() }
    }

    /// Adds parameters that are not present yet, so that the first source of a name wins.
    pub fn add(&mut self, others: QueryPairs) {
        for (name, value) in others {
            if self.get(&name).is_none() {
                self.pairs.push((name, value));
            }
        }
    }

    /// Replaces the first value of this name.
    pub fn replace(&mut self, name: &str, value: String) {
        if let Some((_, old)) = self.pairs.iter_mut().find(|(n, v)| n == name && !v.is_empty()) {
            *old = value;
        }
    }

    /// Sets the only value of this name; an empty one removes it.
    pub fn set(&mut self, name: &str, value: String) {
        self.pairs.retain(|(n, _)| n != name);
        if !value.is_empty() {
            self.pairs.push((name.to_owned(), value));
        }
    }

    /// The first non-empty value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// Whether it is set to a true value.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| ["1", "true", "yes", "on"].iter().any(|yes| v.eq_ignore_ascii_case(yes)))
    }

    /// A finite number; `None` if it is absent.
    ///
    /// # Errors
    /// [`ErrorKind::BadRequest`] for anything but a number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(Some(n)),
            _ => Err(Error::new(ErrorKind::BadRequest, format!("`{name}={text}`: a number is wanted"))),
        }
    }

    /// Checks the options that are used only where a playlist has what they choose from.
    ///
    /// # Errors
    /// [`ErrorKind::BadRequest`] for a value that means nothing.
    pub fn check(&self) -> Result<()> {
        const SWITCHES: [&str; 5] = ["force_playlist_proxy", "key_only_proxy", "max_res", "no_proxy", "remux_to_ts"];
        const VALUES: [&str; 8] = ["1", "true", "yes", "on", "0", "false", "no", "off"];
        let is_invalid = |name: &&str| {
            self.get(name).is_some_and(|text| match *name {
                "skip" => SkipRanges::read(text).is_none(),
                "resolution" => VariantChoice::read(text).is_none(),
                _ => !VALUES.iter().any(|value| text.eq_ignore_ascii_case(value)),
            })
        };
        let Some(name) = ["skip", "resolution"].into_iter().chain(SWITCHES).find(is_invalid) else { return Ok(()) };
        let value = self.get(name).unwrap_or_default();
        let text = format!("`{name}={value}`: write skip=0-112,280-300, resolution=720p, and true or false otherwise");
        Err(Error::new(ErrorKind::BadRequest, text))
    }

    /// Extracts keys that were appended to the destination (`d=https://host/x.mpd&key_id=…&key=…`, encoded as a
    /// whole), as some generators of links do.
    pub fn repair(&mut self) {
        let Some((_, d)) = self.pairs.iter_mut().find(|(n, _)| n == "d") else { return };
        let Some(at) = d.find("&key_id=").or_else(|| d.find("&key=")) else { return };
        let glued = Self::read(d.get(at..).unwrap_or_default());
        // The origin may have a parameter of the same name.
        let is_key = |key| ContentKeyRing::parse(glued.get("key_id"), key).is_ok();
        if glued.get("key").is_none_or(is_key) {
            d.truncate(at);
            self.add(glued.pairs);
        }
    }

    /// The destination, in clear or base64.
    ///
    /// # Errors
    /// [`ErrorKind::BadRequest`] if it is missing or not a URL.
    pub fn destination(&self, name: &str) -> Result<MediaAddress> {
        let text = self
            .get(name)
            .ok_or_else(|| Error::new(ErrorKind::BadRequest, format!("the parameter `{name}` is missing")))?;
        address::parse(&decode_if_base64(text))
    }

    /// The header fields that the link sends upstream (`h_…`), and a `User-Agent` in any case.
    pub fn request_fields(&self, user_agent: &str) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in self.pairs.iter().filter(|(_, v)| !v.is_empty()) {
            let Some(name) = name.strip_prefix("h_") else { continue };
            let name = if name.eq_ignore_ascii_case("referrer") { "referer" } else { name };
            if header_filter::is_request_header_allowed(name) {
                // Invalid fields are omitted, because there is no way to send them.
                let _ = headers.set(name, value.trim());
            }
        }
        if !headers.contains("user-agent") {
            let _ = headers.set("User-Agent", user_agent);
        }
        headers
    }

    /// Sets and removes response header fields: `r_…` on this response, `rp_…` on segments, `x_headers` removed.
    /// Fields that affect framing or security cannot be changed.
    pub fn apply_header_overrides(&self, headers: &mut Headers, is_segment: bool) {
        for name in self.get("x_headers").into_iter().flat_map(|list| list.split(',')) {
            let name = name.trim();
            if header_filter::is_response_header_allowed(name) {
                headers.remove(name);
            }
        }
        for (name, value) in &self.pairs {
            let own = name.strip_prefix("r_");
            let passed = name.strip_prefix("rp_").filter(|_| is_segment);
            if let Some(name) = own.or(passed)
                && header_filter::is_response_header_allowed(name)
            {
                let _ = headers.set(name, value.trim());
            }
        }
    }

    /// The parameters inherited by the resources of a playlist or manifest. A range applies to one resource only.
    pub fn inherited(&self) -> QueryPairs {
        let inherits = |name: &str| {
            ["h_", "rp_", "v_"].iter().any(|p| name.starts_with(p)) && name != "h_range" || INHERITED.contains(&name)
        };
        self.pairs.iter().filter(|(n, v)| inherits(n) && !v.is_empty()).cloned().collect()
    }
}

fn is_address(name: &str) -> bool {
    name == "d" || name == "url" || name.ends_with("_url")
}

/// A URL that may be in base64, for players that cannot handle escapes. Unchanged if it is neither.
pub fn decode_if_base64(text: &str) -> String {
    let may_be_base64 = !text.contains("://") && text.len() >= 10;
    may_be_base64.then(|| decode_base64(text)).flatten().unwrap_or_else(|| repair_escapes(text))
}

/// Repairs a URL that was escaped twice, and colons that wrong escaping turned into quotes: `https%22//`. Found in links
/// made by other programs.
fn repair_escapes(text: &str) -> String {
    let begins = |start: &str| text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start));
    if begins("https%3a%2f%2f") || begins("http%3a%2f%2f") {
        return decoded_lossy(text);
    }
    for (scheme, right) in [("https", "https://"), ("http", "http://")] {
        for colon in ["\"", ":\"", "%22", ":%22", "%3A", "%3a"] {
            let rest = text.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(colon)?.strip_prefix("//"));
            if let Some(rest) = rest {
                return format!("{right}{rest}");
            }
        }
    }
    text.to_owned()
}

/// The URL in a base64 text, either alphabet, padded or not; `None` if it contains none.
pub fn decode_base64(text: &str) -> Option<String> {
    let decoded = decode_base64_text(text)?;
    address::scheme_of(&decoded)?;
    decoded.contains("://").then_some(decoded)
}

/// Decodes base64 of either alphabet, with or without padding.
pub fn decode_base64_text(text: &str) -> Option<String> {
    let text = text.trim_end_matches('=');
    let bytes = STANDARD_NO_PAD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).ok()?;
    String::from_utf8(bytes).ok()
}

/// `0-99`, or `100-` for everything from there.
pub fn parse_range(text: Option<&str>) -> Result<Option<DashByteRange>, MediaError> {
    let Some(text) = text else { return Ok(None) };
    let open = text.strip_suffix('-').and_then(|first| Some((first.parse().ok()?, u64::MAX / 2)));
    let range = byte_range(text).or(open);
    range.map(Some).ok_or_else(|| MediaError::bad_request(format!("invalid range `{text}`: write it as 0-99")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_parsed() {
        let p = MediaParams::read(
            "d=http%3A%2F%2Fa%2Fx+y%3Fq&h_user-agent=A+B%20C&h_referrer=http://r/&h_host=evil&empty=&r_x=1",
        );
        assert_eq!(p.destination("d").unwrap().url.to_string(), "http://a/x+y?q");
        let h = p.request_fields("ua");
        assert_eq!((h.get_str("user-agent"), h.get_str("referer")), (Some("A B C"), Some("http://r/")));
        assert!(!h.contains("host") && p.get("empty").is_none());
        assert_eq!(MediaParams::default().request_fields("ua").get_str("user-agent"), Some("ua"));
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        for valid in
            ["skip=0-9,20-30.5&resolution=720p&max_res=true", "resolution=1280x720&no_proxy=OFF", "skip=&max_res="]
        {
            assert!(MediaParams::read(valid).check().is_ok(), "{valid}");
        }
        for invalid in ["skip=a-b", "skip=5-2", "skip=0-9,x", "resolution=abc", "max_res=maybe", "remux_to_ts=2"] {
            let error = MediaParams::read(invalid).check().unwrap_err();
            assert!(error.kind() == ErrorKind::BadRequest && error.to_string().contains(invalid), "{error}");
        }
    }

    #[test]
    fn destinations_may_be_base64() {
        for text in [
            "aHR0cHM6Ly9hLnRlc3QveD95PTE",
            "aHR0cHM6Ly9hLnRlc3QveD95PTE=",
            "https://a.test/x?y=1",
            "https\"//a.test/x?y=1",
            "https%22//a.test/x?y=1",
            "https%3A//a.test/x?y=1",
            "https%3A%2F%2Fa.test%2Fx%3Fy%3D1",
            "https%3a%2f%2fa.test/x?y=1",
        ] {
            assert_eq!(decode_if_base64(text), "https://a.test/x?y=1", "{text}");
        }
        // The URL-safe alphabet is distinguished from the standard one.
        assert_eq!(decode_base64("aHR0cDovL2EvP34_fj8").as_deref(), Some("http://a/?~?~?"));
        assert_eq!(decode_base64("not base64 at all"), None);
    }

    #[test]
    fn keys_appended_to_the_destination_are_extracted() {
        const KEY: &str = "00112233445566778899aabbccddeeff";
        let mut p = MediaParams::read(&format!("d=http%3A%2F%2Fa%2Fx.mpd%26key_id%3D{KEY}%26key%3D{KEY}"));
        p.repair();
        assert_eq!((p.get("d"), p.get("key_id"), p.get("key")), (Some("http://a/x.mpd"), Some(KEY), Some(KEY)));
        let mut p = MediaParams::read("d=http%3A%2F%2Fa%2Fx.mpd%3Fa%3D1%26key%3Dabc");
        p.repair();
        assert_eq!((p.get("d"), p.get("key")), (Some("http://a/x.mpd?a=1&key=abc"), None), "that one is the origin's");
    }

    #[test]
    fn response_headers_are_overridden_by_the_link() {
        let p = MediaParams::read("r_a=1&rp_b=2&x_headers=ETag,content-length&r_set-cookie=x");
        let mut own: Headers = [("ETag", "x"), ("Content-Length", "3")].into_iter().collect();
        let mut segment = own.clone();
        p.apply_header_overrides(&mut own, false);
        p.apply_header_overrides(&mut segment, true);
        assert_eq!((own.get_str("a"), own.get_str("b"), segment.get_str("b")), (Some("1"), None, Some("2")));
        assert!(!own.contains("etag") && own.contains("content-length") && !own.contains("set-cookie"));
    }

    #[test]
    fn child_urls_inherit_the_needed_parameters() {
        let p = MediaParams::read("d=x&h_a=1&h_range=2&r_b=3&rp_c=4&key=5&api_password=6&max_res=true&token=7");
        let names: Vec<_> = p.inherited().into_iter().map(|(n, _)| n).collect();
        assert_eq!(names, ["h_a", "rp_c", "key", "max_res"]);
    }
}
