//! How much of a body is recorded: by its type and size, media and large bodies as heads.

use interflow_types::{Direction, Headers};

use crate::config::{LargeBodies, RecordConfig};
use crate::model::{MissingReason, media_essence};

/// Bytes that are recorded of a body that is recorded as a head.
pub(crate) const HEAD_BYTES: u64 = 64 << 10;
/// Bodies that are neither text nor media are recorded whole up to this size.
pub(crate) const MAX_WHOLE_BINARY: u64 = 1 << 20;
/// Text (JSON, events, forms, Protocol Buffers and the like) is recorded whole up to this size: as much as a search looks at.
pub(crate) const MAX_WHOLE_TEXT: u64 = 64 << 20;

/// How much of one body is recorded, and why not more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyAllowance {
    /// Bytes that may be recorded.
    pub(crate) room: u64,
    /// What is said of a body that is longer.
    pub(crate) reason: MissingReason,
    /// The body may turn out to be one of which only a head is recorded: its bytes are hashed as they come.
    pub(crate) hashed: bool,
}

/// The rule, compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyPolicy {
    mode: LargeBodies,
    /// `u64::MAX` for no cap.
    cap: u64,
}

impl BodyPolicy {
    pub(crate) const fn from_config(config: &RecordConfig) -> Self {
        let cap = if config.max_body.0 == 0 { u64::MAX } else { config.max_body.0 };
        Self { mode: config.large_bodies, cap }
    }

    /// The most that is kept of a body whatever it is, and of one direction's messages.
    pub(crate) const fn cap(self) -> u64 {
        self.cap
    }

    /// How much of the body behind this head is recorded.
    pub(crate) fn allowance(self, direction: Direction, headers: &Headers) -> BodyAllowance {
        let capped = BodyAllowance { room: self.cap, reason: MissingReason::Capped, hashed: false };
        if self.mode == LargeBodies::Full {
            return capped;
        }
        let kind = BodyClass::from_headers(direction, headers);
        let whole = match kind {
            BodyClass::Text => MAX_WHOLE_TEXT,
            BodyClass::Media => HEAD_BYTES,
            BodyClass::Binary => MAX_WHOLE_BINARY,
        };
        let told = headers.get_str("content-length").and_then(|n| n.trim().parse::<u64>().ok());
        let room = if told.is_some_and(|n| n > whole) { HEAD_BYTES } else { whole };
        if room >= self.cap {
            return capped;
        }
        // Of a text without a length only the size is told when it turns out to be that long.
        let hashed = told.map_or(kind != BodyClass::Text, |n| n > room);
        BodyAllowance { room, reason: MissingReason::Head, hashed }
    }
}

/// What a body is to the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyClass {
    /// What people and programs say to one another.
    Text,
    /// Video and audio.
    Media,
    /// Everything else: images, archives, fonts, programs.
    Binary,
}

impl BodyClass {
    fn from_headers(direction: Direction, headers: &Headers) -> Self {
        match media_essence(headers) {
            Some(essence) => Self::from_media_type(&essence),
            // Programs that name no type send text; what comes back without one may be anything.
            None if direction == Direction::Request => Self::Text,
            None => Self::Binary,
        }
    }

    fn from_media_type(essence: &str) -> Self {
        // Playlists and manifests are text, whatever type they come under.
        let list = ["mpegurl", "scpls", "dash.mpd", "dash+xml", "ms-sstr"];
        if list.iter().any(|l| essence.contains(l)) {
            return Self::Text;
        }
        let Some((main, sub)) = essence.split_once('/') else { return Self::Binary };
        match main {
            "video" | "audio" => return Self::Media,
            "text" => return Self::Text,
            "image" => return if sub == "svg+xml" { Self::Text } else { Self::Binary },
            // A camera's pictures, and ranges of files.
            "multipart" if matches!(sub, "x-mixed-replace" | "byteranges") => return Self::Binary,
            "multipart" | "message" => return Self::Text,
            "application" => {}
            _ => return Self::Binary,
        }
        const TEXTS: [&str; 16] = [
            "json",
            "xml",
            "script",
            "urlencoded",
            "grpc",
            "proto",
            "connect",
            "eventstream",
            "graphql",
            "yaml",
            "toml",
            "msgpack",
            "messagepack",
            "cbor",
            "sql",
            "jose",
        ];
        const MEDIA: [&str; 7] = ["mp4", "ogg", "x-matroska", "mp2t", "mpeg", "vnd.ms-asf", "vnd.rn-realmedia"];
        if TEXTS.iter().any(|t| sub.contains(t)) && !sub.contains("officedocument") {
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
    fn media_and_large_bodies_are_recorded_as_heads_and_text_stays_whole() {
        use Direction::{Request, Response};
        const MB: u64 = 1 << 20;
        for (direction, kind, length, room) in [
            (Response, "video/mp4", Some(7 * MB), HEAD_BYTES),
            (Response, "VIDEO/MP2T", None, HEAD_BYTES),
            (Response, "audio/mpeg; x=1", Some(10), HEAD_BYTES),
            (Response, "application/mp4", Some(7 * MB), HEAD_BYTES),
            (Response, "application/vnd.apple.mpegurl", Some(2 * MB), MAX_WHOLE_TEXT),
            (Response, "audio/x-mpegurl", Some(2 * MB), MAX_WHOLE_TEXT),
            (Response, "application/dash+xml", Some(2 * MB), MAX_WHOLE_TEXT),
            (Response, "application/octet-stream", Some(MB), MAX_WHOLE_BINARY),
            (Response, "application/octet-stream", Some(MB + 1), HEAD_BYTES),
            (Response, "application/octet-stream", None, MAX_WHOLE_BINARY),
            (Response, "image/png", Some(3 * MB), HEAD_BYTES),
            (Response, "image/png", Some(1000), MAX_WHOLE_BINARY),
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
            assert_eq!((got.room, got.reason), (room, MissingReason::Head), "{kind} {length:?}");
        }
    }

    #[test]
    fn the_key_and_the_cap_say_more_than_the_rule() {
        let headers: Headers = [("Content-Type", "video/mp4"), ("Content-Length", "9000000")].into_iter().collect();
        let config = RecordConfig { large_bodies: LargeBodies::Full, ..RecordConfig::default() };
        assert_eq!(BodyPolicy::from_config(&config).allowance(Direction::Response, &headers).room, u64::MAX);
        let mut config = RecordConfig::default();
        config.max_body.0 = 1000;
        let share = BodyPolicy::from_config(&config).allowance(Direction::Response, &headers);
        assert_eq!((share.room, share.reason), (1000, MissingReason::Capped));
    }
}
