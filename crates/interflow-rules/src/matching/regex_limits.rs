//! Regular expressions of rules, of limited size.

use regex::bytes::{Captures, Regex, RegexBuilder};

/// Memory limit of one compiled regular expression, in bytes.
const MAX_REGEX_SIZE: usize = 1 << 20;

/// Builds a regular expression with limits on its size and nesting, so that a rule cannot exhaust memory. Matching
/// takes linear time.
///
/// # Errors
/// What is wrong with it.
pub fn build_regex(source: &str, ignore_case: bool) -> Result<Regex, String> {
    RegexBuilder::new(source)
        .case_insensitive(ignore_case)
        .size_limit(MAX_REGEX_SIZE)
        .dfa_size_limit(MAX_REGEX_SIZE)
        .nest_limit(50)
        .build()
        .map_err(|e| match e {
            regex::Error::CompiledTooBig(_) => {
                format!("the regex /{source}/ is too large: repeat less, or split the rule")
            }
            other => {
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                format!("the regex /{source}/ is malformed ({last}); look-around and back-references are not supported")
            }
        })
}

/// A regular expression that searches for a literal text, case-insensitive if wanted.
///
/// # Errors
/// The text is too long.
pub fn search_regex(text: &str, ignore_case: bool) -> Result<Regex, String> {
    let source = regex::escape(text);
    RegexBuilder::new(&source)
        .case_insensitive(ignore_case)
        .size_limit(8 << 20)
        .build()
        .map_err(|_| "the text is too long to search for".into())
}

/// A group by its number or name.
pub(crate) fn group<'t>(groups: &Captures<'t>, name: &str) -> Option<&'t [u8]> {
    let found = name.parse().map_or_else(|_| groups.name(name), |number: usize| groups.get(number));
    found.map(|group| group.as_bytes())
}
