//! Tells words of an API from texts in places where only such words belong, so that a text there is read, too.

/// Fewer digits in a row are a version, a date or a time; as many may be a payment card.
const MIN_PERSONAL_RUN: usize = 13;
/// Numbers with separators, of people rather than of versions and dates, have at least so many digits.
const MIN_PERSONAL_DIGITS: usize = 9;

/// The shortest code of a placeholder.
const MIN_CODE: usize = 6;

/// Whether the value of a member that holds words of the API looks like one: `user`, `audio/wav; codecs=1`, `1024x1024`.
/// An address, a sentence or a number of a person does not.
pub(super) fn is_word(raw: &[u8]) -> bool {
    let text = raw.iter().any(|b| matches!(b, b'@' | b'\\') || !b.is_ascii_graphic() && *b != b' ');
    // Parameters of a media type are the only words with spaces.
    let sentence = raw.windows(2).any(|pair| pair[1] == b' ' && !matches!(pair[0], b';' | b','));
    !text && !sentence && !has_personal_number(raw)
}

/// Whether an identifier may be one that a provider made: it has no characters of addresses and sentences.
pub(super) fn is_id(raw: &[u8]) -> bool {
    raw.iter().all(|b| b.is_ascii_graphic() && !matches!(b, b'@' | b'\\'))
}

/// Whether the name of a member looks like one of an API: `max_tokens`, `toolConfig`, `x-vendor`. What redaction puts in
/// place of a name (`EMAIL_vjqr2dzw`) does not, so that it is restored.
pub(super) fn is_api_name(raw: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'$' | b'.');
    raw.iter().all(plain) && !holds_placeholder(raw) && !has_personal_number(raw)
}

/// Whether there is something like a placeholder: a label in capitals, and a code after an underscore.
fn holds_placeholder(raw: &[u8]) -> bool {
    let parts = || raw.split(|b| !b.is_ascii_alphanumeric());
    let is_label = |part: &[u8]| part.len() > 1 && part.iter().all(u8::is_ascii_uppercase);
    let is_code = |part: &[u8]| {
        part.len() >= MIN_CODE && part.iter().any(u8::is_ascii_lowercase) && !part.iter().any(u8::is_ascii_uppercase)
    };
    raw.iter().any(u8::is_ascii_uppercase)
        && parts().zip(parts().skip(1)).any(|(label, code)| is_label(label) && is_code(code))
}

/// Whether a segment of an address may be about a person: decoded or not, it has a space, an `@` or words with capitals,
/// or a long number. Names of files and identifiers of storage services have none of them.
pub(super) fn is_personal_segment(raw: &[u8]) -> bool {
    let marks = raw.iter().any(|b| matches!(b, b'@' | b'%' | b'+' | b' ') || !b.is_ascii());
    let words: Vec<&[u8]> = raw.split(|b| matches!(b, b'-' | b'_' | b'.' | b'~')).collect();
    let is_name =
        |word: &&[u8]| word.len() > 1 && word[0].is_ascii_uppercase() && word[1..].iter().all(u8::is_ascii_lowercase);
    marks || has_personal_number(raw) || holds_placeholder(raw) || words.iter().filter(|word| is_name(word)).count() > 1
}

/// Whether it has so many digits that it may be the number of a card, an account or a person.
pub(super) fn has_personal_number(raw: &[u8]) -> bool {
    let digits = raw.iter().filter(|b| b.is_ascii_digit()).count();
    let has_run = || raw.split(|b| !b.is_ascii_digit()).any(|run| run.len() >= MIN_PERSONAL_RUN);
    digits >= MIN_PERSONAL_DIGITS && (!raw.iter().any(u8::is_ascii_alphabetic) || has_run())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_api_are_distinguished_from_texts() {
        for word in
            ["user", "audio/wav; codecs=1", "1024x1024", "2023-06-01", "vertex-2023-10-16", "tool_use", "wav", ""]
        {
            assert!(is_word(word.as_bytes()), "{word}");
        }
        for text in
            ["anna.berg@firm.com", "Anna Berg", "123-45-6789", "4111111111111111", "wav4111111111111111", "Jürgen"]
        {
            assert!(!is_word(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn names_of_an_api_are_distinguished_from_others() {
        for name in ["max_tokens", "toolConfig", "x-vendor", "$ref", "a.b", "User", "API_VERSION", "HTTP_proxy", ""] {
            assert!(is_api_name(name.as_bytes()), "{name}");
        }
        for name in ["anna.berg@firm.com", "Anna Berg", "EMAIL_vjqr2dzw", "123-45-6789", "4111111111111111"] {
            assert!(!is_api_name(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn segments_of_an_address_about_people_are_distinguished_from_names_of_files() {
        for segment in [
            "images",
            "IMG_20251122_123456.jpg",
            "AF1QipNabc123",
            "IMG_12345678",
            "a1b2c3d4-e5f6-7890-abcd-ef0123456789",
            "Report.pdf",
        ] {
            assert!(!is_personal_segment(segment.as_bytes()), "{segment}");
        }
        for segment in [
            "anna.berg@firm.com",
            "Anna%20Berg",
            "Anna-Berg.jpg",
            "EMAIL_vjqr2dzw",
            "4111111111111111.png",
            "123-45-6789",
        ] {
            assert!(is_personal_segment(segment.as_bytes()), "{segment}");
        }
    }
}
