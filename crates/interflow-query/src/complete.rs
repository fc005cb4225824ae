//! Completion of a query being typed, and the help text; both are derived from the table of keys.

use interflow_types::data_file;
use std::fmt::Write;
use std::sync::LazyLock;

use crate::key::{FLAGS, KEYS, Key, ValueKind};
use crate::tags::TAGS;
use crate::value::DAYS;
use crate::words::TABLE_WORDS;

/// A completion for the end of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The byte offset from which the query's text is replaced.
    pub start: usize,
    /// The replacement, such as `status:` or `is:websocket`.
    pub text: String,
    pub doc: &'static str,
}

/// Completions for the last word of an unfinished query: keys, flags after `is:`, and values of keys that have few.
/// Empty within quotes and after an unknown key.
pub fn complete(query: &str) -> Vec<Completion> {
    if is_inside_quotes(query) {
        return Vec::new();
    }
    let begins = |c: char| c.is_whitespace() || c == '(';
    let word_start = query.rfind(begins).map_or(0, |at| at + query[at..].chars().next().map_or(1, char::len_utf8));
    let word = &query[word_start..];
    // `-host` is completed like `host`.
    let signs = word.len() - word.trim_start_matches(['-', '!']).len();
    let (start, word) = (word_start + signs, &word[signs..]);
    match word.split_once(':') {
        None => keys(start, word),
        Some((key, value)) => match Key::find(key) {
            Some(found) => values(start + key.len() + 1, found, value),
            None => Vec::new(),
        },
    }
}

/// Whether the end of the query is inside a quoted text, in which every character is literal.
fn is_inside_quotes(query: &str) -> bool {
    let mut open = false;
    let mut chars = query.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => open = !open,
            _ => {}
        }
    }
    open
}

fn keys(start: usize, word: &str) -> Vec<Completion> {
    KEYS.iter()
        .filter(|k| !k.name.is_empty())
        .filter(|k| [k.name].iter().chain(k.aliases).any(|n| has_prefix(n, word)))
        .map(|k| Completion { start, text: format!("{}:", k.name), doc: k.doc })
        .collect()
}

fn values(start: usize, key: Key, value: &str) -> Vec<Completion> {
    match key.kind() {
        ValueKind::Flag => FLAGS
            .iter()
            .filter(|f| has_prefix(f.name, value))
            .map(|f| Completion { start, text: f.name.to_owned(), doc: f.doc })
            .chain(table_words(start, key, value))
            .collect(),
        ValueKind::Choice(choices) => choices
            .iter()
            .filter(|(name, others)| has_prefix(name, value) || others.iter().any(|o| has_prefix(o, value)))
            .map(|(name, _)| Completion { start, text: (*name).to_owned(), doc: key.info().doc })
            .collect(),
        // Names with spaces would need quotes, in which a wildcard is literal.
        _ if key == Key::Tag => TAGS
            .iter()
            .filter(|t| has_prefix(t.name, value) && !t.name.contains(' '))
            .map(|t| Completion { start, text: t.name.to_owned() + if t.is_prefix() { "*" } else { "" }, doc: t.doc })
            .collect(),
        _ if key == Key::Time => (DAYS.iter().filter(|day| has_prefix(day, value)))
            .map(|day| Completion { start, text: (*day).to_owned(), doc: "the day in UTC" })
            .collect(),
        _ => table_words(start, key, value).collect(),
    }
}

fn table_words(start: usize, key: Key, value: &str) -> impl Iterator<Item = Completion> {
    let words = TABLE_WORDS.iter().filter(move |w| w.key == key && has_prefix(w.word, value));
    words.map(move |w| Completion { start, text: w.word.to_owned(), doc: w.doc })
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|n| n.eq_ignore_ascii_case(prefix))
}

/// Maximum width of a line of the help text, in characters.
const WIDTH: usize = 90;

/// The help text: grammar, keys, flags, in lines that fit a terminal. Generated from the tables, so it cannot differ from
/// the parser.
pub fn help() -> String {
    let mut out = String::from("Query language:\n");
    SYNTAX.iter().for_each(|(form, meaning)| entry(&mut out, form, meaning));
    out.push('\n');
    SYNTAX_NOTES.iter().for_each(|note| out.extend([*note, "\n"]));
    out.push_str("\nKeys:\n");
    for info in KEYS.iter().filter(|k| !k.name.is_empty()) {
        let names = [info.name].iter().chain(info.aliases.iter().take(1)).copied().collect::<Vec<_>>().join(", ");
        entry(&mut out, &names, &format!("{}. Example: {}", info.doc.trim_end_matches('.'), info.example));
    }
    out.push_str("\nFlags:\n");
    for info in FLAGS {
        entry(&mut out, &format!("is:{}", info.name), info.doc);
    }
    out
}

/// Writes a name and its description, which is wrapped in a column of its own.
fn entry(out: &mut String, name: &str, text: &str) {
    const COLUMN: usize = 24;
    let mut line = format!("  {name}");
    if line.chars().count() + 2 > COLUMN {
        writeln!(out, "{line}").expect("writing to a String cannot fail");
        line.clear();
    }
    let mut width = COLUMN;
    write!(out, "{line:<COLUMN$}").expect("writing to a String cannot fail");
    for (i, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if i > 0 && width + 1 + length > WIDTH {
            write!(out, "\n{:COLUMN$}", "").expect("writing to a String cannot fail");
            width = COLUMN;
        } else if i > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out.push('\n');
}

/// Forms of a query, and what they mean.
pub static SYNTAX: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| data_file::records(include_str!("../data/syntax.txt")).map(<(_, _)>::from).collect());

/// What holds for every query; one line each.
pub const SYNTAX_NOTES: [&str; 4] = [
    "Case does not matter, except in regular expressions.",
    "Quote a value that contains spaces or parentheses: \"...\", with \\\" for a quote.",
    "Words of the table are values: type:sse, type:ws, method:TUNNEL, status:ERR, is:llm.",
    "Filters with ~ operators are understood, too: ~m POST & ~d api | !(~c 404).",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_text_fits_a_terminal_and_has_every_key_and_flag() {
        let text = help();
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH && line == line.trim_end(), "{line:?}");
        }
        for name in KEYS.iter().map(|k| k.name).filter(|n| !n.is_empty()) {
            assert!(text.lines().any(|l| l.trim_start().split([',', ' ']).next() == Some(name)), "{name}");
        }
        assert!(FLAGS.iter().all(|f| text.contains(&format!("  is:{}", f.name))));
    }

    fn texts(query: &str) -> Vec<(usize, String)> {
        complete(query).into_iter().map(|c| (c.start, c.text)).collect()
    }

    #[test]
    fn the_last_word_is_completed() {
        let at = |n, list: &[&str]| list.iter().map(|t| (n, (*t).to_owned())).collect::<Vec<_>>();
        for (query, start, expected) in [
            ("sta", 0, &["status:", "time:"][..]),
            ("host:a -STATU", 8, &["status:"]),
            ("(is:web", 4, &["websocket"]),
            ("transport:so", 10, &["socks5"]),
            ("version:h2", 8, &["HTTP/2"]),
            ("tag:redacte", 4, &["redacted"]),
            ("tag:ref", 4, &["refused:*"]),
            ("is:st", 3, &["starred"]),
            ("type:s", 5, &["sse"]),
            ("status:e", 7, &["ERR"]),
            ("time:to", 5, &["today"]),
            ("host:ex", 0, &[]),
            ("nokey:x", 0, &[]),
            ("body:\"sta", 0, &[]),
        ] {
            assert_eq!(texts(query), at(start, expected), "{query}");
        }
    }

    #[test]
    fn empty_query_completes_to_every_key() {
        assert_eq!(texts("").len(), KEYS.len() - 1);
        assert_eq!(texts("host:a ").len(), KEYS.len() - 1);
    }

    #[test]
    fn help_describes_every_key() {
        // Descriptions are wrapped.
        let help = help().split_whitespace().collect::<Vec<_>>().join(" ");
        for info in KEYS {
            assert!(help.contains(info.doc.trim_end_matches('.')) || info.name.is_empty(), "{}", info.name);
        }
    }
}
