//! Percent-encoding (RFC 3986 2.1) for all code that reads or writes URLs. Invalid sequences are left unchanged.

use std::borrow::Cow;

pub use percent_encoding::{AsciiSet, CONTROLS};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_decode_str, utf8_percent_encode};

/// All ASCII but unreserved characters (RFC 3986 2.3).
pub const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes everything but unreserved characters: for a name, a value or a segment.
pub fn encoded(text: &str) -> String {
    encoded_as(text, COMPONENT)
}

/// Encodes the characters of a set, and all that is not ASCII.
pub fn encoded_as(text: &str, set: &'static AsciiSet) -> String {
    utf8_percent_encode(text, set).to_string()
}

pub fn decoded_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(bytes).into()
}

/// The decoded text, or the input if the result is not valid UTF-8.
pub fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8().unwrap_or(Cow::Borrowed(text))
}

/// The decoded text, with U+FFFD for invalid UTF-8.
pub fn decoded_lossy(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A name or value of a query or form, in which `+` is a space; with U+FFFD for invalid UTF-8.
pub fn decoded_form(text: &str) -> String {
    decoded_lossy(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_unreserved_characters_are_encoded() {
        assert_eq!(encoded("aZ0-._~ /%+é"), "aZ0-._~%20%2F%25%2B%C3%A9");
        const PATH: &AsciiSet = &COMPONENT.remove(b'/');
        assert_eq!(encoded_as("a /é", PATH), "a%20/%C3%A9");
        assert_eq!(encoded_as("a /é", &AsciiSet::EMPTY), "a /%C3%A9");
    }

    #[test]
    fn invalid_sequences_are_left_unchanged() {
        for (text, plain) in [("a%2Fb%2f", "a/b/"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%%41", "%A"), ("", "")] {
            assert_eq!((decoded(text), decoded_lossy(text).as_str()), (plain.into(), plain), "{text}");
            assert_eq!(&*decoded_bytes(text.as_bytes()), plain.as_bytes(), "{text}");
        }
        assert_eq!((decoded("%ff!"), decoded_lossy("%ff!").as_str()), ("%ff!".into(), "\u{fffd}!"));
        assert_eq!(&*decoded_bytes(b"%ff"), b"\xff");
        assert_eq!(decoded_form("a+b%2Bc%zz"), "a b+c%zz");
    }
}
