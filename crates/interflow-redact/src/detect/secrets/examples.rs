//! Placeholder values in place of secrets: templates, asterisks, examples from documentation.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Substrings of templates and documentation examples.
static EXAMPLE_PARTS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let parts = [
        "example",
        "placeholder",
        "changeme",
        "change_me",
        "change-me",
        "your_",
        "your-",
        "yourapi",
        "yourkey",
        "yoursecret",
        "yourtoken",
        "yourpass",
        "xxxx",
        "redacted",
        "dummy",
        "insert",
        "replace",
        "todo",
        "fixme",
        "1234567890abcdef",
        "abcdefgh",
        "notreal",
        "fake-",
        "fake_",
        "sample",
        "getenv",
        "process.env",
        "os.environ",
        "env.",
        "import.meta",
        "secrets.",
        "vault:",
        "****",
        "....",
    ];
    AhoCorasick::builder().ascii_case_insensitive(true).build(parts).expect("some thirty short words")
});

/// Words in place of a secret.
const EXAMPLE_VALUES: &[&str] = &[
    "password",
    "passwd",
    "secret",
    "token",
    "none",
    "null",
    "nil",
    "true",
    "false",
    "undefined",
    "string",
    "str",
    "required",
    "optional",
    "user",
    "username",
    "root",
    "admin",
    "pass",
    "test",
    "value",
    "key",
    "string?",
    "bytes",
    "self",
    "this",
    "default",
    "empty",
    "unset",
    "bearer",
    "basic",
    "pwd",
    "text",
    "varchar",
    "char",
    "hidden",
    "masked",
    "incorrect",
    "invalid",
    "wrong",
    "correct",
    "reset",
    "forgot",
    "field",
    "here",
];

/// Whether the value is a placeholder: a template, asterisks, or a documentation example.
pub(super) fn is_placeholder(value: &str) -> bool {
    let mut letters = value.bytes().filter(u8::is_ascii_alphanumeric);
    let one_letter = letters.next().is_none_or(|first| letters.all(|b| b.eq_ignore_ascii_case(&first)));
    let opened = value.starts_with(['<', '{', '$', '%', '[', '#'])
        || value.starts_with("env:")
        || value.starts_with("file:")
        || value.contains("${")
        || value.contains("{{")
        || value.contains("<%");
    opened
        || one_letter
        || EXAMPLE_PARTS.is_match(value)
        || EXAMPLE_VALUES.iter().any(|w| w.eq_ignore_ascii_case(value))
}
