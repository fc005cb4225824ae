//! Compiled patterns: case-insensitive texts, globs, and regular expressions.

use std::fmt::Write;

use regex::bytes::{Regex as Compiled, RegexBuilder};

use crate::ast::{RegexSource, TextPattern};
use crate::key::ValueKind;

/// The most memory that one compiled regular expression may use, in bytes.
const REGEX_SIZE: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) enum TextMatcher {
    /// The whole value, ignoring ASCII case.
    Equals(String),
    Prefix(String),
    Glob(Vec<String>),
    /// These texts in order: searched one by one in short values, and by the regular expression in long ones, where
    /// its prefilter pays.
    Inside(Vec<String>, Compiled),
    Search(Compiled),
}

/// In values up to this many bytes, a plain search is faster than a regular expression.
const MAX_SHORT_VALUE: usize = 128;

/// Compiles a regular expression within bounds on its size and nesting: the `regex` crate matches in linear time, but a
/// short source may compile to a very large automaton.
///
/// # Errors
/// A description for the author of the query.
pub(crate) fn compile(regex: &RegexSource) -> Result<Compiled, String> {
    RegexBuilder::new(regex.source())
        .case_insensitive(regex.ignore_case)
        .size_limit(REGEX_SIZE)
        .dfa_size_limit(REGEX_SIZE)
        .nest_limit(50)
        .build()
        .map_err(|e| match e {
            regex::Error::CompiledTooBig(_) => "the regex is too large".to_owned(),
            other => {
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default();
                format!("the regex is malformed ({})", last.trim_start_matches("error: "))
            }
        })
}

impl TextMatcher {
    /// Compiles a pattern for values of this kind. Never fails: a source that does not compile matches nothing.
    pub(crate) fn new(pattern: &TextPattern, kind: ValueKind) -> Self {
        match pattern {
            TextPattern::Exact(text) => Self::Equals(text.clone()),
            TextPattern::Text(text) => match kind {
                ValueKind::Prefix => Self::Prefix(text.clone()),
                ValueKind::Anywhere | ValueKind::Inside => {
                    Self::Inside(vec![text.clone()], search_in_order([text.as_str()]))
                }
                _ => Self::Equals(text.clone()),
            },
            TextPattern::Glob(pieces) if kind == ValueKind::Inside => {
                Self::Inside(pieces.clone(), search_in_order(pieces.iter().map(String::as_str)))
            }
            TextPattern::Glob(pieces) => Self::Glob(pieces.clone()),
            TextPattern::Regex(regex) => {
                // A tree built by hand may contain a source that the parser would refuse.
                Self::Search(compile(regex).unwrap_or_else(|_| never_matching()))
            }
        }
    }

    pub(crate) fn fits(&self, value: &[u8]) -> bool {
        match self {
            Self::Equals(text) => value.eq_ignore_ascii_case(text.as_bytes()),
            Self::Prefix(text) => starts_with(value, text.as_bytes()),
            Self::Glob(pieces) => glob(pieces, value),
            Self::Inside(pieces, _) if value.len() <= MAX_SHORT_VALUE => find_in_order(pieces, value).is_some(),
            Self::Inside(_, regex) | Self::Search(regex) => regex.is_match(value),
        }
    }
}

/// A search for these texts in order. Spelled byte by byte, so that case is ignored for ASCII letters only.
fn search_in_order<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Compiled {
    let mut source = String::from("(?s-u)");
    for (i, piece) in pieces.into_iter().enumerate() {
        if i > 0 {
            source.push_str(".*?");
        }
        for byte in piece.bytes() {
            if byte.is_ascii_alphanumeric() {
                // Not greedy, so that the search ends at the first match.
                source.push(byte.into());
            } else {
                write!(source, "\\x{byte:02X}").expect("writing to a String cannot fail");
            }
        }
    }
    // The limit on a query's length keeps this far below the regex size limit.
    RegexBuilder::new(&source)
        .case_insensitive(true)
        .unicode(false)
        .size_limit(64 << 20)
        .build()
        .unwrap_or_else(|_| never_matching())
}

/// A regular expression that matches nothing: an empty class.
fn never_matching() -> Compiled {
    Compiled::new(r"[^\s\S]").expect("an empty class is well formed")
}

fn starts_with(value: &[u8], start: &[u8]) -> bool {
    value.get(..start.len()).is_some_and(|v| v.eq_ignore_ascii_case(start))
}

fn glob(pieces: &[String], value: &[u8]) -> bool {
    let [first, middle @ .., last] = pieces else { return false };
    if !starts_with(value, first.as_bytes()) {
        return false;
    }
    let Some(rest) = find_in_order(middle, &value[first.len()..]) else { return false };
    rest.len() >= last.len() && rest[rest.len() - last.len()..].eq_ignore_ascii_case(last.as_bytes())
}

/// The rest after these pieces, if each is found after the one before it. Linear in the value for each piece.
fn find_in_order<'a>(pieces: &[String], mut rest: &'a [u8]) -> Option<&'a [u8]> {
    // The first place of each piece leaves most for those after it, so nothing has to be tried twice.
    for piece in pieces.iter().map(String::as_bytes).filter(|p| !p.is_empty()) {
        let at = rest.windows(piece.len()).position(|w| w.eq_ignore_ascii_case(piece))?;
        rest = &rest[at + piece.len()..];
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob_of(text: &str) -> TextPattern {
        TextPattern::Glob(text.split('*').map(str::to_owned).collect())
    }

    #[test]
    fn globs_match_whole_values() {
        for (glob, value, fits) in [
            ("*.openai.com", "API.openai.com", true),
            ("*.openai.com", "openai.com", false),
            ("*.openai.com", "api.openai.com.evil", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("/v1/*/messages", "/v1/x/y/messages", true),
            ("*b*c*", "abbc", true),
            ("*b*c*", "acb", false),
            ("**", "", true),
            ("a**", "a", true),
            ("a**b", "ab", true),
            ("**b", "a", false),
        ] {
            assert_eq!(
                TextMatcher::new(&glob_of(glob), ValueKind::Whole).fits(value.as_bytes()),
                fits,
                "{glob} {value}"
            );
        }
    }

    #[test]
    fn text_patterns_match_anywhere_in_long_texts() {
        let find = |p: &TextPattern, v: &[u8]| TextMatcher::new(p, ValueKind::Inside).fits(v);
        assert!(find(&TextPattern::Text("ReFund é".into()), "no REFUND é now".as_bytes()));
        assert!(!find(&TextPattern::Text("É".into()), "é".as_bytes()));
        assert!(find(&glob_of("no*now"), b"xx no\nrefund \xff now xx"));
        assert!(find(&TextPattern::Text("a.b".into()), b"\xffA.B") && !find(&TextPattern::Text("a.b".into()), b"axb"));
        assert!(find(&TextPattern::Exact("A".into()), b"a") && !find(&TextPattern::Exact("A".into()), b"ab"));
    }

    #[test]
    fn regexes_respect_case_unless_flagged() {
        let find = |ignore_case, v: &[u8]| {
            TextMatcher::new(&TextPattern::Regex(RegexSource::new("^ab?$", ignore_case)), ValueKind::Whole).fits(v)
        };
        assert!(find(false, b"ab") && !find(false, b"AB") && find(true, b"AB"));
    }

    #[test]
    fn malformed_or_huge_regexes_are_reported() {
        assert!(compile(&RegexSource::new("a(", false)).is_err_and(|e| e.contains("unclosed group")));
        assert_eq!(compile(&RegexSource::new("\\w{1000}{10}", false)).err().as_deref(), Some("the regex is too large"));
        assert!(compile(&RegexSource::new("(?=a)", false)).is_err_and(|e| e.contains("look-around")));
    }
}
