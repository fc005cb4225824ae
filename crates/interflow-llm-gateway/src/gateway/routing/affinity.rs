//! Which session or user a request belongs to, as a number that is the same in every process: what stays at one
//! deployment, or keeps its variant of an experiment.

use std::fmt;

use bytes::Bytes;
use interflow_llm::otlp::conversation_id;
use interflow_types::{Flow, RequestHead};
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;

use crate::credentials::lasting_identity;
use crate::redaction::HashedParts;

/// What a request is assigned by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affinity(pub u64);

impl Affinity {
    /// The virtual key or user; without one, the credentials that the client sent, or else its address.
    pub fn of_user(flow: &Flow, head: &RequestHead) -> Self {
        Self::of_parts(parts_of_user(flow, head))
    }

    /// The session: by a header field, the body's session id, or its first messages. `body` is decoded JSON.
    pub fn of_session(flow: &Flow, head: &RequestHead, body: &Bytes) -> Self {
        let mut parts = parts_of_user(flow, head);
        match conversation_id(&head.headers) {
            Some(named) => parts.add(named.as_bytes()),
            None => parts.add(&session_in_body(body)),
        }
        Self::of_parts(parts)
    }

    fn of_parts(parts: HashedParts) -> Self {
        Self(parts.finish().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// A number from 0 to 1 for this key and a name, evenly spread over keys.
    pub fn position(self, name: &str) -> f64 {
        // FNV-1a over the name, then the finalizer of SplitMix64, so that every bit of both counts.
        let mut hash = self.0 ^ 0xcbf2_9ce4_8422_2325;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((hash ^ (hash >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn parts_of_user(flow: &Flow, head: &RequestHead) -> HashedParts {
    let mut parts = HashedParts::default();
    let key = flow.tags.iter().find(|tag| tag.starts_with("key:"));
    match (key, &flow.user) {
        (Some(key), _) => parts.add(key.as_bytes()),
        (None, Some(user)) => parts.add(user.as_bytes()),
        (None, None) => {
            let peer = flow.client.peer.ip();
            parts.add(lasting_identity(head, peer).unwrap_or_else(|| peer.to_string()).as_bytes());
        }
    }
    parts
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SessionFields {
    prompt_cache_key: Value,
    conversation: Value,
    metadata: Value,
    messages: Opening,
    input: Opening,
    contents: Opening,
}

/// The session id in the body, or else the beginning of the conversation, which each of its requests repeats. Empty if
/// the body has neither.
fn session_in_body(body: &[u8]) -> Vec<u8> {
    let Ok(fields) = interflow_codec::json::parse::<SessionFields>(body) else { return Vec::new() };
    let conversation = fields.conversation.as_str().or_else(|| fields.conversation["id"].as_str());
    let ids = [fields.prompt_cache_key.as_str(), conversation, fields.metadata["user_id"].as_str()];
    if let Some(id) = ids.into_iter().flatten().next() {
        return id.as_bytes().to_vec();
    }
    [fields.messages, fields.input, fields.contents].into_iter().find(|o| !o.0.is_empty()).unwrap_or_default().0
}

/// The messages up to the first of a user. The first alone would not do: it may be the system prompt, which all
/// sessions have.
#[derive(Default)]
struct Opening(Vec<u8>);

impl<'de> Deserialize<'de> for Opening {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OpeningVisitor)
    }
}

struct OpeningVisitor;

impl<'de> Visitor<'de> for OpeningVisitor {
    type Value = Opening;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Opening, A::Error> {
        let mut opening = Vec::new();
        while let Some(message) = list.next_element::<Value>()? {
            opening.extend_from_slice(message.to_string().as_bytes());
            // Gemini's `contents` need no role.
            if matches!(message["role"].as_str(), Some("user") | None) {
                break;
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Opening(opening))
    }

    fn visit_str<E>(self, text: &str) -> Result<Opening, E> {
        Ok(Opening(text.as_bytes().to_vec()))
    }

    fn visit_unit<E>(self) -> Result<Opening, E> {
        Ok(Opening::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_by_its_id_or_the_messages_up_to_the_users_first() {
        let read = |body: &str| String::from_utf8(session_in_body(body.as_bytes())).unwrap();
        let turn = |more: &str| {
            read(&format!(
                r#"{{"messages":[{{"role":"system","content":"s"}},{{"role":"user","content":"hi"}}{more}]}}"#
            ))
        };
        assert_eq!(turn(""), turn(r#",{"role":"assistant","content":"hello"},{"role":"user","content":"more"}"#));
        assert!(turn("").contains("hi"));
        assert_ne!(turn(""), read(r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"ho"}]}"#));
        assert_eq!(read(r#"{"input":"hi","prompt_cache_key":"k"}"#), "k");
        assert_eq!(read(r#"{"input":"hi","conversation":{"id":"c"}}"#), "c");
        assert_eq!(read(r#"{"metadata":{"user_id":"u"},"messages":[]}"#), "u");
        assert_eq!(read(r#"{"input":"hi"}"#), "hi");
        assert_eq!(read("[1"), "");
    }

    #[test]
    fn positions_are_even_and_stable() {
        let below = (0..10_000u64).filter(|n| Affinity(*n).position("x") < 0.25).count();
        assert!((2300..2700).contains(&below), "{below}");
        assert_eq!(Affinity(7).position("x"), Affinity(7).position("x"));
        assert_ne!(Affinity(7).position("x"), Affinity(7).position("y"));
    }
}
