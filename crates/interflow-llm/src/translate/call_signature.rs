//! Gemini's thought signatures on tool calls. A thinking model has to get them back with its calls, but no client's format
//! has a place for them that every client returns: they travel in the id of the call, which every client does.
//!
//! Kept in the id, they outlive a restart, reach any instance, and need no memory. The id is plain again where a request
//! leaves for another API.

use std::borrow::Cow;

use memchr::memmem;

/// Separates an id from the signature behind it.
const MARK: &str = "__thought__";
/// What Google documents for calls without a signature, which another model made, or which came from another client.
pub(super) const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// Longer signatures are not carried: the call then has none.
const MAX_SIGNATURE: usize = 64 << 10;

/// The id with a signature behind it, in the characters that every API accepts in an id: base64url without padding. One
/// that is not base64 is left out.
pub(super) fn signed_id(id: String, signature: Option<&str>) -> String {
    let Some(signature) = signature.filter(|s| !s.is_empty() && s.len() <= MAX_SIGNATURE) else { return id };
    let signature = signature.trim_end_matches('=');
    let fits = |c: char| c.is_ascii_alphanumeric() || "+/-_".contains(c);
    if !signature.chars().all(fits) || id.contains(MARK) {
        return id;
    }
    format!("{id}{MARK}{}", signature.replace('+', "-").replace('/', "_"))
}

/// The id that a client gets: `own` is used if the upstream gave none.
pub(super) fn completed_id(id: String, own: impl FnOnce() -> String) -> String {
    if id.is_empty() || id.starts_with(MARK) { own() + &id } else { id }
}

/// The id alone.
pub(super) fn plain_id(id: &str) -> &str {
    id.split_once(MARK).map_or(id, |(id, _)| id)
}

/// The signature in an id, as Gemini wrote it.
pub(super) fn signature_in(id: &str) -> Option<String> {
    let (_, signature) = id.split_once(MARK).filter(|(_, s)| !s.is_empty())?;
    let padding = "=".repeat((4 - signature.len() % 4) % 4);
    Some(signature.replace('-', "+").replace('_', "/") + &padding)
}

/// A body without signatures in ids, for an API whose ids are short. What is removed is only what was added here.
pub fn without_call_signatures(body: &[u8]) -> Cow<'_, [u8]> {
    let mark = memmem::Finder::new(MARK);
    let (mut rest, mut out) = (body, Vec::new());
    while let Some(at) = mark.find(rest) {
        let (before, after) = rest.split_at(at);
        let behind = after.get(MARK.len()..).unwrap_or_default();
        let length = behind.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')).count();
        out.extend_from_slice(before);
        // An id ends with it; anything else is a text about it.
        let is_end = behind.get(length) == Some(&b'"') && length > 0;
        if !is_end {
            out.extend_from_slice(MARK.as_bytes());
        }
        rest = if is_end { behind.get(length..).unwrap_or_default() } else { behind };
    }
    if out.is_empty() && rest.len() == body.len() {
        return Cow::Borrowed(body);
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_survives_in_an_id_of_plain_characters() {
        for signature in ["CiQB4/+x", "CiQB4/+xYQ==", "YQ=="] {
            let id = completed_id(signed_id(String::new(), Some(signature)), || "call_1".into());
            assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{id}");
            assert_eq!((plain_id(&id), signature_in(&id).as_deref()), ("call_1", Some(signature)));
        }
        for (id, signature) in [("a", None), ("a", Some("")), ("a", Some("no base64!")), ("", None)] {
            assert_eq!(signed_id(id.into(), signature), id);
        }
        assert_eq!((plain_id("call_1"), signature_in("call_1"), signature_in("a__thought__")), ("call_1", None, None));
        assert_eq!(signed_id("a".into(), Some(&"x".repeat(MAX_SIGNATURE + 1))), "a");
    }

    #[test]
    fn ids_are_plain_again_in_a_body_and_nothing_else_changes() {
        let body =
            br#"{"id":"call_1__thought__Ab-_9","x":"__thought__ is a mark","tool_call_id":"call_1__thought__Ab-_9"}"#;
        let plain = r#"{"id":"call_1","x":"__thought__ is a mark","tool_call_id":"call_1"}"#;
        assert_eq!(String::from_utf8_lossy(&without_call_signatures(body)), plain);
        assert!(matches!(without_call_signatures(plain.replace("__", "").as_bytes()), Cow::Borrowed(_)));
    }
}
