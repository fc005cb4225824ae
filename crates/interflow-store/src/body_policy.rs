//! How much of a body is recorded, by type and size: of media and large bodies only the first part (the "head").

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use interflow_types::{Direction, Headers};

use crate::config::{LargeBodies, RecordConfig};
use crate::model::{MissingReason, media_essence};

/// Bytes recorded of a body of which only the head is kept.
pub(crate) const HEAD_BYTES: u64 = 64 << 10;
/// Bodies that are neither text nor media are recorded in full up to this size.
pub(crate) const MAX_WHOLE_BINARY: u64 = 1 << 20;
/// Text (JSON, events, forms, Protocol Buffers and the like) is recorded in full up to this size, which is also the
/// search limit.
pub(crate) const MAX_WHOLE_TEXT: u64 = 64 << 20;

/// How many bytes of one body may be recorded, and the reason for the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyAllowance {
    pub(crate) max_bytes: u64,
    /// The reason recorded for a body that exceeds `max_bytes`.
    pub(crate) reason: MissingReason,
    /// Whether the body may end up as a head only, so that its bytes must be hashed as they arrive.
    pub(crate) hashed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyPolicy {
    mode: LargeBodies,
    cap: u64,
}

impl BodyPolicy {
    pub(crate) const fn from_config(config: &RecordConfig) -> Self {
        let cap = if config.max_body.0 == 0 { u64::MAX } else { config.max_body.0 };
        Self { mode: config.large_bodies, cap }
    }

    /// The cap on any body, and on the messages of one direction.
    pub(crate) const fn cap(self) -> u64 {
        self.cap
    }

    /// How much to record of the body that follows this message head.
    pub(crate) fn allowance(self, direction: Direction, headers: &Headers) -> BodyAllowance {
        // Also what applies if no rule below is stricter.
        let capped = BodyAllowance { max_bytes: self.cap, reason: MissingReason::Capped, hashed: false };
        if self.mode == LargeBodies::Full {
            return capped;
        }
        let length = headers.get_str("content-length").and_then(|n| n.trim().parse::<u64>().ok());
        // Most bodies are short, and whole in every class.
        if length.is_some_and(|n| n <= HEAD_BYTES) && HEAD_BYTES < self.cap {
            return BodyAllowance { max_bytes: HEAD_BYTES, reason: MissingReason::Head, hashed: false };
        }
        let kind = BodyClass::from_headers(direction, headers);
        let whole = match kind {
            BodyClass::Text => MAX_WHOLE_TEXT,
            BodyClass::Media => HEAD_BYTES,
            BodyClass::Binary => MAX_WHOLE_BINARY,
        };
        // A body that announces more than its allowance is known to be recorded as a head only, so the head may be
        // short at once.
        let max_bytes = if length.is_some_and(|n| n > whole) { HEAD_BYTES } else { whole };
        // The operator's own cap is the stricter one, and names another reason.
        if max_bytes >= self.cap {
            return capped;
        }
        // A text body without a declared length is not hashed, because most such bodies end up whole: if one turns
        // out to be too long, only its size is known.
        let hashed = length.map_or(kind != BodyClass::Text, |n| n > max_bytes);
        BodyAllowance { max_bytes, reason: MissingReason::Head, hashed }
    }
}

/// The recorder's classification of a body: text and structured data; video and audio; everything else, such as images,
/// archives, fonts and programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyClass {
    Text,
    Media,
    Binary,
}

/// Parts of the types of playlists and manifests, which are text, whatever their main type is.
static PLAYLISTS: LazyLock<AhoCorasick> = LazyLock::new(|| any_of("mpegurl scpls dash.mpd dash+xml ms-sstr"));

/// Parts of subtypes of `application` that are text or structured data.
static TEXTS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    any_of(
        "json xml script urlencoded grpc proto connect eventstream graphql yaml toml msgpack messagepack cbor sql jose",
    )
});

/// Finds any of these parts, which are divided by spaces. Every recorded body is classified, so they are searched for in
/// one pass.
fn any_of(parts: &str) -> AhoCorasick {
    let automaton = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(parts.split(' '));
    automaton.expect("a few short words fit into an automaton")
}

impl BodyClass {
    fn from_headers(direction: Direction, headers: &Headers) -> Self {
        match media_essence(headers) {
            Some(essence) => Self::from_media_type(&essence),
            // Clients that send no media type usually send text; an untyped response may be anything.
            None if direction == Direction::Request => Self::Text,
            None => Self::Binary,
        }
    }

    fn from_media_type(essence: &str) -> Self {
        if PLAYLISTS.is_match(essence) {
            return Self::Text;
        }
        let Some((main, sub)) = essence.split_once('/') else { return Self::Binary };
        match main {
            "video" | "audio" => return Self::Media,
            "text" => return Self::Text,
            "image" => return if sub == "svg+xml" { Self::Text } else { Self::Binary },
            // Camera streams and multi-range responses.
            "multipart" if matches!(sub, "x-mixed-replace" | "byteranges") => return Self::Binary,
            "multipart" | "message" => return Self::Text,
            "application" => {}
            _ => return Self::Binary,
        }
        const MEDIA: [&str; 7] = ["mp4", "ogg", "x-matroska", "mp2t", "mpeg", "vnd.ms-asf", "vnd.rn-realmedia"];
        // Office documents are ZIP archives, although their types contain `xml`.
        if TEXTS.is_match(sub) && !sub.contains("officedocument") {
            Self::Text
        } else if MEDIA.contains(&sub) {
            Self::Media
        } else {
            Self::Binary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(direction: Direction, kind: &str, length: Option<u64>) -> BodyAllowance {
        let mut headers = Headers::new();
        if !kind.is_empty() {
            headers.append("Content-Type", kind).unwrap();
        }
        if let Some(n) = length {
            headers.append("Content-Length", n.to_string()).unwrap();
        }
        BodyPolicy::from_config(&RecordConfig::default()).allowance(direction, &headers)
    }

    #[test]
    fn media_and_large_bodies_are_truncated_and_text_is_recorded_whole() {
        use Direction::{Request, Response};
        const MB: u64 = 1 << 20;
        for (direction, kind, length, max_bytes) in [
            (Response, "video/mp4", Some(7 * MB), HEAD_BYTES),
            (Response, "VIDEO/MP2T", None, HEAD_BYTES),
            (Response, "audio/mpeg; x=1", Some(100_000), HEAD_BYTES),
            (Response, "application/mp4", Some(7 * MB), HEAD_BYTES),
            (Response, "application/vnd.apple.mpegurl", Some(2 * MB), MAX_WHOLE_TEXT),
            (Response, "audio/x-mpegurl", Some(2 * MB), MAX_WHOLE_TEXT),
            (Response, "application/dash+xml", Some(2 * MB), MAX_WHOLE_TEXT),
            (Response, "application/octet-stream", Some(MB), MAX_WHOLE_BINARY),
            (Response, "application/octet-stream", Some(MB + 1), HEAD_BYTES),
            (Response, "application/octet-stream", None, MAX_WHOLE_BINARY),
            (Response, "image/png", Some(3 * MB), HEAD_BYTES),
            (Response, "image/png", Some(100_000), MAX_WHOLE_BINARY),
            (Response, "", Some(3 * MB), HEAD_BYTES),
            (Response, "application/json", Some(30 * MB), MAX_WHOLE_TEXT),
            (Response, "application/vnd.amazon.eventstream", None, MAX_WHOLE_TEXT),
            (Response, "text/event-stream", None, MAX_WHOLE_TEXT),
            (Response, "application/grpc+proto", None, MAX_WHOLE_TEXT),
            (Response, "text/plain", Some(65 * MB), HEAD_BYTES),
            (Request, "multipart/form-data; boundary=x", Some(20 * MB), MAX_WHOLE_TEXT),
            (Request, "application/x-www-form-urlencoded", Some(20 * MB), MAX_WHOLE_TEXT),
            (Request, "", Some(20 * MB), MAX_WHOLE_TEXT),
            (Request, "application/zip", Some(20 * MB), HEAD_BYTES),
            (Request, "video/mp4", Some(20 * MB), HEAD_BYTES),
            (Response, "multipart/x-mixed-replace; boundary=x", None, MAX_WHOLE_BINARY),
        ] {
            let got = share(direction, kind, length);
            assert_eq!((got.max_bytes, got.reason), (max_bytes, MissingReason::Head), "{kind} {length:?}");
        }
    }

    #[test]
    fn large_bodies_option_and_body_cap_override_the_default_policy() {
        let headers: Headers = [("Content-Type", "video/mp4"), ("Content-Length", "9000000")].into_iter().collect();
        let config = RecordConfig { large_bodies: LargeBodies::Full, ..RecordConfig::default() };
        assert_eq!(BodyPolicy::from_config(&config).allowance(Direction::Response, &headers).max_bytes, u64::MAX);
        let mut config = RecordConfig::default();
        config.max_body.0 = 1000;
        let share = BodyPolicy::from_config(&config).allowance(Direction::Response, &headers);
        assert_eq!((share.max_bytes, share.reason), (1000, MissingReason::Capped));
    }
}
