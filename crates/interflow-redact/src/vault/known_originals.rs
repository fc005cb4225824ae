//! Finds originals again wherever they stand: a password is recognised by the words before it, but a tool may repeat it
//! without them.

use std::ops::Range;

use crate::vault::{CODE_LENGTH, KnownOriginals, PlaceholderVault};

/// A shorter original of letters alone may be any word, or one that a protocol needs.
const MIN_LETTERS: usize = 16;

/// Whether a value is no more than a word, such as `content` or `PASSWORD`.
fn is_word(value: &str) -> bool {
    let rest = || value.bytes().skip(1).filter(|b| *b != b'_');
    value.len() < MIN_LETTERS && (rest().all(|b| b.is_ascii_lowercase()) || rest().all(|b| b.is_ascii_uppercase()))
}

/// Adds an original with its placeholder in lower case.
pub(super) fn add(known: &mut KnownOriginals, placeholder: &str, original: &str) {
    if let Some(first) = original.as_bytes().first_chunk().filter(|_| !is_word(original)) {
        let (label, code) = placeholder.split_at(placeholder.len().saturating_sub(CODE_LENGTH));
        let of_length = known.entry(*first).or_default().entry(original.len()).or_default();
        of_length.insert(original.to_owned(), label.to_ascii_uppercase() + code);
    }
}

impl PlaceholderVault {
    /// The originals in a text that are not parts of words, with their placeholders, in order and without overlaps: of several
    /// at one place, the longest. Those of fewer than 4 bytes are not found, nor are words of fewer than 16.
    pub(crate) fn originals_in(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let known = self.known.get_or_init(|| {
            let mut known = KnownOriginals::new();
            self.originals.iter().for_each(|(placeholder, original)| add(&mut known, placeholder, original));
            known
        });
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(first) = text.as_bytes().get(at..).and_then(<[u8]>::first_chunk).filter(|_| !known.is_empty()) {
            let longest = known.get(first).into_iter().flatten().rev().find_map(|(length, originals)| {
                let placeholder = originals.get(text.get(at..at + length)?)?;
                is_whole(text, at, at + length).then_some((at..at + length, placeholder.as_str()))
            });
            at = longest.as_ref().map_or(at + 1, |(range, _)| range.end);
            found.extend(longest);
        }
        found
    }
}

/// Whether a part of a text has no letter or digit beside it.
fn is_whole(text: &str, start: usize, end: usize) -> bool {
    let beside = [text[..start].chars().next_back(), text[end..].chars().next()];
    !beside.into_iter().flatten().any(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::{Kind, RedactionSession, Redactor, VaultKey};

    /// A session with these originals, and their placeholders.
    fn session(values: &[&str]) -> (RedactionSession, Vec<String>) {
        let mut vault = PlaceholderVault::new(&VaultKey::for_conversation(&[1; 32], b"a"));
        let all = values.iter().map(|value| vault.placeholder(Kind::Password, "PASSWORD", value).unwrap()).collect();
        (RedactionSession::reversible(vault).repeating(Arc::new(Mutex::new(RedactionSession::one_way()))), all)
    }

    fn redacted(json: &str, session: &mut RedactionSession) -> String {
        let done = Redactor::default().redact_json(json.as_bytes(), session).unwrap();
        done.output.map_or_else(|| json.to_owned(), |out| String::from_utf8(out).unwrap())
    }

    #[test]
    fn originals_are_found_in_strings_names_numbers_and_json_in_strings() {
        let (mut session, all) =
            session(&["Xk\"93/mq", "40401234", "Qx-71", "Qx-71 b9", "hunter2x of ann.lee@example.com"]);
        let [quoted, number, short, longer, around] = &all[..] else { panic!() };
        for (json, hidden) in [
            (r#"{"Xk\"93\/mq": "set Xk\"93/mq.\n"}"#, format!(r#"{{"{quoted}": "set {quoted}.\n"}}"#)),
            (r#"["\u0058k\u002293/mq", "a=40401234", 40401234]"#, format!(r#"["{quoted}", "a={number}", "{number}"]"#)),
            (r#"{"a": "{\"b\":\"Xk\\\"93/mq\"}"}"#, format!(r#"{{"a": "{{\"b\":\"{quoted}\"}}"}}"#)),
            (r#"["Qx-71", "Qx-71 b9", "é Qx-71, x"]"#, format!(r#"["{short}", "{longer}", "é {short}, x"]"#)),
            (r#"["to hunter2x of ann.lee@example.com"]"#, format!(r#"["to {around}"]"#)),
        ] {
            assert_eq!(redacted(json, &mut session), hidden, "{json}");
            assert_eq!(redacted(&hidden, &mut session), hidden, "again");
        }
    }

    #[test]
    fn short_originals_words_and_parts_of_words_are_not_found() {
        let (mut session, _) = session(&["a1b", "text", "PASSWORD", "Structured", "secret_word", "Xk93mq"]);
        let json = r#"{"type":"text","a1b":"PASSWORD_abcdefgh Structured secret_word","x":"aXk93mq Xk93mq2","n":193}"#;
        assert_eq!(redacted(json, &mut session), json);
    }

    #[test]
    fn a_finding_that_is_longer_than_an_original_stays_whole() {
        let (mut session, all) = session(&["ann.lee"]);
        let text = redacted(r#"["to ann.lee@example.com and ann.lee"]"#, &mut session);
        assert!(text.contains("EMAIL_") && text.ends_with(&format!(r#" and {}"]"#, all[0])), "{text}");
    }

    #[test]
    fn originals_are_found_quickly_however_many_there_are() {
        let values: Vec<String> = (0..5_000).map(|i| format!("value-{i}")).collect();
        let (session, all) = session(&values.iter().map(String::as_str).collect::<Vec<_>>());
        let text = values.join(" ");
        let found = session.vault().unwrap().originals_in(&text);
        assert!(found.iter().map(|(_, placeholder)| *placeholder).eq(all.iter().map(String::as_str)));
    }
}
