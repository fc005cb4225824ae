//! Rows of a table with a header line: cells below `name`, `city` or `company` are of that kind, whatever their text.

use super::ScanState;
use super::names::{ORG_LABELS, PLACE_LABELS};
use crate::Kind;
use crate::lexicon::{look_up, mark};

/// Maximum number of columns of a table.
const MAX_COLUMNS: usize = 40;
/// Maximum length of a header line in bytes.
const MAX_HEADING_BYTES: usize = 400;

/// The cells of every table in the text with known headings.
pub(super) fn detect_rows(scan: &mut ScanState<'_>) {
    if !scan.wants.kinds.any(&[Kind::Person, Kind::Organization, Kind::Location]) {
        return;
    }
    let text = scan.text;
    let mut at = 0;
    let mut table: Option<(u8, Vec<Option<Kind>>)> = None;
    while let Some(len) = memchr::memchr(b'\n', text.as_bytes().get(at..).unwrap_or_default()) {
        let line = &text[at..at + len];
        let next = at + len + 1;
        // The last row may have no line break.
        let rest = memchr::memchr(b'\n', &text.as_bytes()[next..]).map_or(text.len(), |n| next + n);
        match &table {
            Some((separator, kinds)) if cell_count(&text[next..rest], *separator) == kinds.len() => {
                detect_row(scan, next, &text[next..rest], *separator, kinds);
            }
            Some(_) => table = None,
            None => {
                table = headings(line, &text[next..rest]);
                if let Some((separator, kinds)) = &table {
                    detect_row(scan, next, &text[next..rest], *separator, kinds);
                }
            }
        }
        at = next;
    }
}

/// The number of cells of a line.
fn cell_count(line: &str, separator: u8) -> usize {
    memchr::memchr_iter(separator, line.as_bytes()).count() + 1
}

/// The kinds of the columns, if the line is a header line with at least one known heading.
fn headings(line: &str, below: &str) -> Option<(u8, Vec<Option<Kind>>)> {
    if line.len() > MAX_HEADING_BYTES {
        return None;
    }
    let separator = *line.as_bytes().iter().find(|b| matches!(b, b',' | b';' | b'\t' | b'|'))?;
    let count = cell_count(line, separator);
    if count < 2 || cell_count(below, separator) != count {
        return None;
    }
    let plain = |b: u8| {
        b.is_ascii_alphabetic() || matches!(b, b' ' | b'_' | b'-' | b'"' | b'\r' | b'/' | b'.') || b == separator
    };
    if !(2..=MAX_COLUMNS).contains(&count) || !line.bytes().all(plain) || line.contains(". ") {
        return None;
    }
    let kinds: Vec<_> = line.split(char::from(separator)).map(column_kind).collect();
    let short = line.split(char::from(separator)).all(|c| c.trim().split([' ', '_']).count() <= 3);
    let named = kinds.iter().flatten().count() > 0 && count >= if separator == b',' { 3 } else { 2 };
    (short && named).then_some((separator, kinds))
}

/// The kind that the heading of a column names.
fn column_kind(cell: &str) -> Option<Kind> {
    let cell = cell.trim().trim_matches('"').to_ascii_lowercase();
    let last = cell.rsplit([' ', '_', '-', '.']).next().unwrap_or_default();
    if cell.contains("file") || cell.contains("host") || cell.contains("model") {
        return None;
    }
    let person = look_up(last).marks & mark::NAME_CUE != 0 && !matches!(last, "called" | "known" | "contact")
        || matches!(cell.as_str(), "patient" | "customer" | "employee" | "firstname" | "lastname" | "author");
    match last {
        _ if ORG_LABELS.contains(last) && !matches!(last, "customer" | "client" | "store" | "carrier") => {
            Some(Kind::Organization)
        }
        _ if person => Some(Kind::Person),
        _ if PLACE_LABELS.contains(last) && !matches!(last, "state" | "place" | "where" | "origin" | "land") => {
            Some(Kind::Location)
        }
        _ => None,
    }
}

/// Reports the cells of a row in columns of known kinds.
fn detect_row(scan: &mut ScanState<'_>, start: usize, line: &str, separator: u8, kinds: &[Option<Kind>]) {
    let mut at = start;
    for (cell, kind) in line.split(char::from(separator)).zip(kinds) {
        let value = cell.trim().trim_matches(['"', '\'']);
        if let Some(kind) = kind
            && is_name(value)
        {
            let from = at + (value.as_ptr() as usize - cell.as_ptr() as usize);
            scan.push(*kind, from, from + value.len(), 76);
        }
        at += cell.len() + 1;
    }
}

/// A few words with at least one capital, and no digits.
pub(super) fn is_name(value: &str) -> bool {
    (2..=60).contains(&value.len())
        && value.chars().any(char::is_uppercase)
        && value.split(' ').count() <= 6
        && value.chars().all(|c| c.is_alphabetic() || matches!(c, ' ' | '-' | '\'' | '’' | '.' | '&' | '/'))
        && value.chars().filter(|c| c.is_alphabetic()).count() >= 2
}
