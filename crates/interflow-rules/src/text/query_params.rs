//! Query parameters (WHATWG URL 5.1), edited without changing the others.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Characters to escape in a name or value: those that would end it, and those that decoding changes.
const SPECIAL: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'&').add(b'+').add(b'<').add(b'=').add(b'>').add(b'?');

/// Characters to escape in a rendered path: they would end the path or the request line.
const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// Decoded names and values in order; `+` is a space.
pub(crate) fn decode_pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split('&').filter(|p| !p.is_empty()).map(|p| {
        let (name, value) = p.split_once('=').unwrap_or((p, ""));
        (decode(name), decode(value))
    })
}

/// Bytes that are not UTF-8 become replacement characters.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, SPECIAL).to_string()
}

/// Encodes a path for a request line. It begins with `/`; existing escapes stay.
pub(crate) fn encode_path(text: &str) -> String {
    let text = utf8_percent_encode(text, PATH).to_string();
    if text.starts_with('/') || text == "*" { text } else { format!("/{text}") }
}

/// The target with this parameter set or removed. The others keep their spelling; of several with this name, one
/// stays.
pub(crate) fn set_param(target: &str, name: &str, value: Option<&str>) -> String {
    let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
    let new = value.map(|v| format!("{}={}", encode(name), encode(v)));
    let mut pairs: Vec<Cow<'_, str>> = Vec::new();
    let mut pending = new;
    for part in query.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
        let raw = part.split_once('=').map_or(part, |(n, _)| n);
        if decode(raw) != name {
            pairs.push(Cow::Borrowed(part));
        } else if let Some(new) = pending.take() {
            pairs.push(Cow::Owned(new));
        }
    }
    pairs.extend(pending.map(Cow::Owned));
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_parameter_changes_and_the_others_stay_as_written() {
        for (target, name, value, after) in [
            ("/a?x=1&y=%41", "x", Some("2"), "/a?x=2&y=%41"),
            ("/a?y=%41", "x", Some("a b&c"), "/a?y=%41&x=a%20b%26c"),
            ("/a", "x", Some("1"), "/a?x=1"),
            ("/a?x=1&x=2&z", "x", None, "/a?z"),
            ("/a?x=1&x=2", "x", Some("3"), "/a?x=3"),
            ("/a?x=1", "x", None, "/a"),
            ("/a?%78=1", "x", Some("2"), "/a?x=2"),
        ] {
            assert_eq!(set_param(target, name, value), after, "{target} {name}");
        }
    }

    #[test]
    fn names_and_values_are_decoded() {
        let all: Vec<_> = decode_pairs("a=1&b+c=%20x&d&&=e").map(|(n, v)| format!("{n}:{v}")).collect();
        assert_eq!(all, ["a:1", "b c: x", "d:", ":e"]);
    }

    #[test]
    fn a_path_cannot_break_the_request_line() {
        assert_eq!(encode_path("a b\r\nX: y"), "/a%20b%0D%0AX:%20y");
    }
}
