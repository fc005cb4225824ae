//! Known prefixes of keys and tokens of more than a hundred providers, and placeholder values in place of secrets:
//! templates, asterisks, examples from documentation. The lists are `data/secrets.toml`.

use std::cmp::Reverse;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use serde::Deserialize;

use crate::Kind;
use crate::word_lists;

/// A known key prefix, as in `data/secrets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownPrefix {
    pub prefix: Box<str>,
    /// Least and most characters after the prefix, both included.
    length: (usize, usize),
    #[serde(deserialize_with = "word_lists::kind")]
    pub kind: Kind,
    /// Dots and slashes belong to the key.
    #[serde(default)]
    pub dotted: bool,
    /// The prefix also begins words, so the rest must contain a digit.
    #[serde(default)]
    pub needs_digit: bool,
    /// The rest is hexadecimal.
    #[serde(default)]
    pub hexadecimal: bool,
}

impl KnownPrefix {
    /// Whether a key has this many characters after the prefix.
    pub fn fits_length(&self, len: usize) -> bool {
        (self.length.0..=self.length.1).contains(&len)
    }
}

/// The file of known secrets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretsFile {
    placeholder_parts: Vec<String>,
    placeholder_words: Vec<String>,
    prefixes: Vec<KnownPrefix>,
}

struct SecretTables {
    /// By first byte; longer prefixes precede their own prefixes.
    by_first: [Vec<KnownPrefix>; 256],
    placeholder_parts: AhoCorasick,
    placeholder_words: Vec<String>,
}

/// Parsed on first use. The file is part of the program, so an error in it shows in the tests.
static TABLES: LazyLock<SecretTables> = LazyLock::new(|| {
    let mut file: SecretsFile =
        word_lists::parse(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/secrets.toml")));
    file.prefixes.sort_by_key(|known| Reverse(known.prefix.len()));
    let mut by_first = [const { Vec::new() }; 256];
    for known in file.prefixes {
        by_first[usize::from(known.prefix.as_bytes()[0])].push(known);
    }
    let parts = AhoCorasick::builder().ascii_case_insensitive(true).build(file.placeholder_parts);
    let placeholder_parts = parts.expect("some thirty short words");
    SecretTables { by_first, placeholder_parts, placeholder_words: file.placeholder_words }
});

/// The known prefixes that begin with a byte; the longest that fits counts, and comes first.
pub(super) fn prefixes_from(first: u8) -> &'static [KnownPrefix] {
    &TABLES.by_first[usize::from(first)]
}

/// `%s`, `%PASSWORD%`, `%(name)s`, `#{name}`, `#optional`; not `%s7Kd!q2`, `#Sommer2024`.
fn is_reference(value: &str) -> bool {
    value.len() <= 3
        || matches!(value.as_bytes()[1], b'(' | b'{')
        || value.ends_with('%')
        || !value.bytes().any(|b| b.is_ascii_digit())
}

/// Whether the value is a placeholder: a template, asterisks, or a documentation example.
pub(super) fn is_placeholder(value: &str) -> bool {
    // One letter repeated (`xxxxxxxx`) stands for a value.
    let mut letters = value.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase);
    let one_letter = letters.next().is_none_or(|first| letters.all(|c| c == first));
    let opened = value.starts_with(['<', '{', '$', '['])
        || value.starts_with(['%', '#']) && is_reference(value)
        || value.starts_with("env:")
        || value.starts_with("file:")
        || value.contains("${")
        || value.contains("{{")
        || value.contains("<%");
    opened
        || one_letter
        || TABLES.placeholder_parts.is_match(value)
        || TABLES.placeholder_words.iter().any(|w| w.eq_ignore_ascii_case(value))
}
