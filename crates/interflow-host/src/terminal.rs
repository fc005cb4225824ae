//! Standard output and error of every command. On a terminal, control characters are replaced, whatever recorded traffic contains:
//! escape sequences of an origin could write the clipboard, hide text, or type for the user. Only the colours that the commands use
//! pass. In a pipe or a file, everything passes.

use std::io::{self, IsTerminal as _, StderrLock, StdoutLock, Write};
use std::sync::OnceLock;
use std::{fmt, mem};

use anstream::AutoStream;
use interflow_types::is_terminal_control;

/// Parameters of "select graphic rendition" (ECMA-48 8.3.117) that pass: reset, bold, faint, and six foreground colours. None of them
/// can hide text.
const STYLES: [&str; 10] = ["", "0", "1", "2", "31", "32", "33", "34", "35", "36"];
/// Bytes of a sequence of [`STYLES`] that may be split between two writes.
const MAX_STYLE_LENGTH: usize = 16;

/// A standard stream. Writes that fail for a person's terminal are the caller's to report or ignore.
#[derive(Debug)]
pub struct StandardStream<W: Write> {
    inner: W,
    filter: Option<ControlFilter>,
}

/// Standard output for text; its colours are removed unless it is a terminal that shows them.
pub fn stdout() -> StandardStream<AutoStream<StdoutLock<'static>>> {
    StandardStream::new(anstream::stdout().lock(), io::stdout().is_terminal())
}

/// Standard error for text, as [`stdout`].
pub fn stderr() -> StandardStream<AutoStream<StderrLock<'static>>> {
    StandardStream::new(anstream::stderr().lock(), io::stderr().is_terminal())
}

/// Standard output for data, such as bodies and archives: byte for byte unless it is a terminal.
pub fn data_stdout() -> StandardStream<StdoutLock<'static>> {
    StandardStream::new(io::stdout().lock(), io::stdout().is_terminal())
}

/// The first failure of [`print`].
static OUTPUT_FAILURE: OnceLock<String> = OnceLock::new();

/// Writes to [`stdout`]. A failure is [kept](output_failure) for the end of the process, except that the reader may have closed the
/// pipe (`head`).
pub fn print(text: fmt::Arguments<'_>) {
    keep_failure(stdout().write_fmt(text));
}

fn keep_failure(written: io::Result<()>) {
    if let Err(e) = written.or_else(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e) }) {
        let _ = OUTPUT_FAILURE.set(e.to_string());
    }
}

/// Why output was lost, if it was: of [`print`], or of what is still to be written.
pub fn output_failure() -> Option<&'static str> {
    keep_failure(io::stdout().flush());
    OUTPUT_FAILURE.get().map(String::as_str)
}

/// `println!` to [`stdout`](crate::terminal::stdout), as [`print`](crate::terminal::print).
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => {
        $crate::terminal::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// `eprintln!` to [`stderr`](crate::terminal::stderr). Errors are ignored, since there is no other place to report them.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!($crate::terminal::stderr(), $($text)*);
    }};
}

impl<W: Write> StandardStream<W> {
    fn new(inner: W, is_terminal: bool) -> Self {
        Self { inner, filter: is_terminal.then(ControlFilter::default) }
    }
}

impl<W: Write> Write for StandardStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(filter) = &mut self.filter else { return self.inner.write(bytes) };
        self.inner.write_all(filter.filter(bytes).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> Drop for StandardStream<W> {
    fn drop(&mut self) {
        if let Some(filter) = &mut self.filter {
            let _ = self.inner.write_all(filter.finish().as_bytes());
        }
    }
}

/// Text of others as one line without control characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_terminal_control(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Replaces control characters in a stream of UTF-8, however it is split into writes.
#[derive(Debug, Default)]
struct ControlFilter {
    /// The beginning of a character or sequence that the next write continues.
    pending: Vec<u8>,
}

impl ControlFilter {
    fn filter(&mut self, bytes: &[u8]) -> String {
        let mut all = mem::take(&mut self.pending);
        all.extend_from_slice(bytes);
        self.pending = all.split_off(all.len() - incomplete(&all));
        clean(&String::from_utf8_lossy(&all))
    }

    fn finish(&mut self) -> String {
        clean(&String::from_utf8_lossy(&mem::take(&mut self.pending)))
    }
}

/// Bytes at the end whose meaning depends on what follows.
fn incomplete(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(MAX_STYLE_LENGTH);
    if let Some(escape) = bytes[from..].iter().rposition(|b| *b == 0x1b) {
        let sequence = &bytes[from + escape..];
        let parameters = sequence.get(2..).unwrap_or_default();
        let is_open =
            matches!(sequence.get(1), None | Some(b'[')) && parameters.iter().all(|b| matches!(b, b'0'..=b'9' | b';'));
        if is_open {
            return sequence.len();
        }
    }
    if bytes.last() == Some(&b'\r') {
        return 1;
    }
    // A character of UTF-8 has at most four bytes; its first one says how many.
    let needed = |b: &u8| match b {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 0,
    };
    let last = bytes.iter().rev().take(3).position(|b| needed(b) > 0).map(|back| back + 1);
    last.filter(|length| needed(&bytes[bytes.len() - length]) > *length).unwrap_or(0)
}

fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\n' | '\t' => 1,
            '\r' if rest[1..].starts_with('\n') => 2,
            '\u{1b}' => style_length(rest).unwrap_or(0),
            c if is_terminal_control(c) => 0,
            c => c.len_utf8(),
        };
        if length == 0 {
            cleaned.push(char::REPLACEMENT_CHARACTER);
        } else {
            cleaned.push_str(&rest[..length]);
        }
        rest = &rest[length.max(c.len_utf8())..];
    }
    cleaned
}

/// The length of a sequence of [`STYLES`] at the beginning of the text.
fn style_length(text: &str) -> Option<usize> {
    let (parameters, _) = text.strip_prefix("\u{1b}[")?.split_once('m')?;
    let passes = parameters.split(';').all(|parameter| STYLES.contains(&parameter));
    passes.then(|| "\u{1b}[".len() + parameters.len() + "m".len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut stream = StandardStream::new(&mut out, true);
        parts.iter().for_each(|part| stream.write_all(part).unwrap());
        drop(stream);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        for (text, shown) in [
            ("a\tb\r\nc\n", "a\tb\r\nc\n"),
            ("\u{1b}[1mbold\u{1b}[0m \u{1b}[31;2mred\u{1b}[m", "\u{1b}[1mbold\u{1b}[0m \u{1b}[31;2mred\u{1b}[m"),
            ("\u{1b}]52;c;AAAA\u{7}", "\u{fffd}]52;c;AAAA\u{fffd}"),
            ("\u{1b}[8mhidden\u{1b}[38;5;0m", "\u{fffd}[8mhidden\u{fffd}[38;5;0m"),
            ("\u{1b}[2J\u{9b}1A\u{202e}x\u{7f}\rover", "\u{fffd}[2J\u{fffd}1A\u{fffd}x\u{fffd}\u{fffd}over"),
            ("Grüße 😀", "Grüße 😀"),
        ] {
            assert_eq!(written(&[text.as_bytes()]), shown);
            let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(written(&bytes), shown, "byte by byte");
        }
        assert_eq!(written(&[b"\xff\xfe\x1b", b"c"]), "\u{fffd}\u{fffd}\u{fffd}c");
        assert_eq!(written(&[b"end\x1b["]), "end\u{fffd}[");
    }

    #[test]
    fn a_pipe_gets_every_byte() {
        let mut out = Vec::new();
        StandardStream::new(&mut out, false).write_all(b"\x1b]0;x\x07\xff\r").unwrap();
        assert_eq!(out, b"\x1b]0;x\x07\xff\r");
    }
}
