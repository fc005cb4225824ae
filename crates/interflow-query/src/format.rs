//! Formats a query as text that parses back to the same query, whatever characters its values contain.

use std::fmt::{self, Write};

use crate::ast::{Expr, RegexSource, Term, TermTest, TextPattern};
use crate::key::Key;
use crate::parse::operator_named;
use crate::term::{is_host_part, is_special, is_special_start, regex_extent, takes_list, takes_paths};
use crate::value::{format_number, format_time};
use crate::words::find_word;

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_char('*'),
            Self::And(parts) => write_joined(f, parts, " "),
            Self::Or(parts) => write_joined(f, parts, " OR "),
            Self::Not(inner) => {
                f.write_char('-')?;
                write_enclosed(f, inner)
            }
            Self::Term(term) => term.fmt(f),
        }
    }
}

fn write_joined(f: &mut fmt::Formatter<'_>, parts: &[Expr], between: &str) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            f.write_str(between)?;
        }
        write_enclosed(f, part)?;
    }
    Ok(())
}

/// Writes an operand, in parentheses if it is a conjunction or disjunction.
fn write_enclosed(f: &mut fmt::Formatter<'_>, expr: &Expr) -> fmt::Result {
    match expr {
        Expr::And(_) | Expr::Or(_) => write!(f, "({expr})"),
        other => write!(f, "{other}"),
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key != Key::Word {
            f.write_str(self.key.name())?;
            if let Some(name) = &self.name {
                write!(f, ".{name}")?;
            }
            f.write_char(':')?;
        }
        match &self.test {
            TermTest::Present => f.write_char('*'),
            TermTest::Text(pattern) => write_pattern(f, self.key, pattern),
            TermTest::Number(number) => f.write_str(&format_number(self.key.kind(), *number)),
            TermTest::Time(time) => f.write_str(&format_time(*time)),
            TermTest::Flag(flag) => f.write_str(flag.name()),
            // A single address is written without its prefix length.
            TermTest::Net(net) if net.prefix_len() == net.max_prefix_len() => write!(f, "{}", net.addr()),
            TermTest::Net(net) => write!(f, "{net}"),
        }
    }
}

fn write_pattern(f: &mut fmt::Formatter<'_>, key: Key, pattern: &TextPattern) -> fmt::Result {
    match pattern {
        TextPattern::Text(text) => write_text(f, key, text),
        TextPattern::Exact(text) => {
            f.write_char('=')?;
            write_text(f, key, text)
        }
        TextPattern::Glob(pieces) => {
            let escaped = pieces.iter().enumerate().map(|(i, piece)| escape_glob_piece(key, piece, i == 0));
            let text = escaped.collect::<Vec<_>>().join("*");
            // A glob that begins like a regex would be parsed as one.
            if text.starts_with('/') && !takes_paths(key) || regex_extent(key, &text).is_some() {
                f.write_char('\\')?;
            }
            f.write_str(&text)
        }
        TextPattern::Regex(regex) => write_regex(f, key, regex),
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, key: Key, text: &str) -> fmt::Result {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '+' | '@' | '%' | ',');
    let first = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_');
    let operator = operator_named(text).is_some();
    // Unquoted, these mean something else with this key: several values, a word of the table, a part of a host name.
    let special = takes_list(key) && text.contains(',') || find_word(key, text).is_some() || is_host_part(key, text);
    // The operators are words, so a search for them needs quotes; in lower case, a reader would take them for operators.
    if !operator && !special && text.starts_with(first) && text.chars().all(plain) {
        return f.write_str(text);
    }
    f.write_char('"')?;
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(c)?;
    }
    f.write_char('"')
}

/// Escapes a piece of a glob with backslashes where it would be misread, at its start or anywhere.
fn escape_glob_piece(key: Key, piece: &str, leading: bool) -> String {
    let mut out = String::with_capacity(piece.len());
    for (i, c) in piece.chars().enumerate() {
        let starts = leading && i == 0 && is_special_start(c);
        if starts || is_special(c) || c == ',' && takes_list(key) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn write_regex(f: &mut fmt::Formatter<'_>, key: Key, regex: &RegexSource) -> fmt::Result {
    f.write_char('/')?;
    let mut chars = regex.source().chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                f.write_char(c)?;
                if let Some(next) = chars.next() {
                    f.write_char(next)?;
                }
            }
            c if c == '/' || takes_paths(key) && c.is_whitespace() => write!(f, "\\{c}")?,
            other => f.write_char(other)?,
        }
    }
    f.write_str(if regex.ignore_case { "/i" } else { "/" })
}
