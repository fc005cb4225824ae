//! Percent-decoding (RFC 3986 2.1) for all code that interprets URLs. Invalid sequences are left unchanged.

use std::borrow::Cow;

use percent_encoding::{percent_decode, percent_decode_str};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_sequences_are_left_unchanged() {
        for (text, plain) in [("a%2Fb%2f", "a/b/"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%%41", "%A"), ("", "")] {
            assert_eq!((decoded(text), decoded_lossy(text).as_str()), (plain.into(), plain), "{text}");
            assert_eq!(&*decoded_bytes(text.as_bytes()), plain.as_bytes(), "{text}");
        }
        assert_eq!((decoded("%ff!"), decoded_lossy("%ff!").as_str()), ("%ff!".into(), "\u{fffd}!"));
        assert_eq!(&*decoded_bytes(b"%ff"), b"\xff");
    }
}
