//! HTML put behind the first opening tag of a name, while the page streams.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// How long a tag or comment may be before it is given up.
const LONGEST_TAG: usize = 64 << 10;

/// Looks for the tag.
pub(crate) struct Injector {
    tag: Arc<str>,
    html: Bytes,
    held: BytesMut,
    state: State,
    injected: bool,
}

#[derive(PartialEq, Eq)]
enum State {
    Looking,
    /// Inside `<!-- … -->`.
    Comment,
    /// Done, or given up.
    Idle,
}

impl Injector {
    pub fn new(tag: Arc<str>, html: Bytes) -> Self {
        Self { tag, html, held: BytesMut::new(), state: State::Looking, injected: false }
    }

    /// Whether the HTML was put in.
    pub fn done(&self) -> bool {
        self.injected
    }

    /// Whether nothing more will be changed or held.
    pub fn idle(&self) -> bool {
        self.state == State::Idle && self.held.is_empty()
    }

    /// What is held, at the end.
    pub fn rest(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    /// Takes bytes; gives those that may go on.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(self.held.len() + self.html.len());
        loop {
            match self.state {
                State::Idle => {
                    out.extend_from_slice(&self.held.split());
                    return out;
                }
                State::Comment => match find(&self.held, b"-->") {
                    Some(at) => {
                        out.extend_from_slice(&self.held.split_to(at + 3));
                        self.state = State::Looking;
                    }
                    None => {
                        let keep = self.held.len().min(2);
                        out.extend_from_slice(&self.held.split_to(self.held.len() - keep));
                        return out;
                    }
                },
                State::Looking => {
                    let Some(at) = self.held.iter().position(|b| *b == b'<') else {
                        out.extend_from_slice(&self.held.split());
                        return out;
                    };
                    out.extend_from_slice(&self.held.split_to(at));
                    match self.look() {
                        Look::More if self.held.len() > LONGEST_TAG => self.state = State::Idle,
                        Look::More => return out,
                        Look::Comment => {
                            out.extend_from_slice(&self.held.split_to(4));
                            self.state = State::Comment;
                        }
                        Look::Other => out.extend_from_slice(&self.held.split_to(1)),
                        Look::Tag(len) => {
                            out.extend_from_slice(&self.held.split_to(len));
                            out.extend_from_slice(&self.html);
                            (self.state, self.injected) = (State::Idle, true);
                        }
                    }
                }
            }
        }
    }

    /// What begins at the `<` in front.
    fn look(&self) -> Look {
        let held = &self.held[..];
        if b"<!--".starts_with(&held[..held.len().min(4)]) {
            return if held.len() < 4 { Look::More } else { Look::Comment };
        }
        let name = self.tag.as_bytes();
        let behind = &held[1..];
        let seen = behind.len().min(name.len());
        if !behind[..seen].eq_ignore_ascii_case(&name[..seen]) {
            return Look::Other;
        }
        let Some(next) = behind.get(name.len()) else { return Look::More };
        if !matches!(next, b'>' | b'/' | b' ' | b'\t' | b'\n' | b'\r' | b'\x0c') {
            return Look::Other;
        }
        let mut quote = None;
        for (i, b) in behind.iter().enumerate().skip(name.len()) {
            match (quote, b) {
                (None, b'>') => return Look::Tag(i + 2),
                (None, b'"' | b'\'') => quote = Some(*b),
                (Some(q), b) if q == *b => quote = None,
                _ => {}
            }
        }
        Look::More
    }
}

enum Look {
    More,
    Comment,
    Other,
    Tag(usize),
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

/// HTML for a page of another charset: what is not ASCII as character references.
pub(crate) fn ascii(html: &str) -> String {
    html.chars().map(|c| if c.is_ascii() { c.to_string() } else { format!("&#{};", u32::from(c)) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inject(page: &str, tag: &str, size: usize) -> String {
        let mut injector = Injector::new(tag.into(), Bytes::from_static(b"[X]"));
        let mut out = Vec::new();
        for piece in page.as_bytes().chunks(size) {
            out.extend(injector.feed(piece));
        }
        out.extend_from_slice(&injector.rest());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn html_stands_behind_the_first_tag_however_it_is_cut() {
        for (page, tag, after) in [
            ("<html><head><title>", "head", "<html><head>[X]<title>"),
            ("<HTML><Head lang=\"a>b\">x<head>", "head", "<HTML><Head lang=\"a>b\">[X]x<head>"),
            ("<!-- <head> --><header><head\n>y", "head", "<!-- <head> --><header><head\n>[X]y"),
            ("a < b <heading> no", "head", "a < b <heading> no"),
            ("<hea", "head", "<hea"),
            ("", "head", ""),
            ("<!-->-->-<body>", "body", "<!-->-->-<body>[X]"),
        ] {
            for size in [1, 2, 3, 1000] {
                assert_eq!(inject(page, tag, size), after, "{page} in {size}");
            }
        }
    }

    #[test]
    fn a_tag_without_end_is_given_up() {
        let page = format!("<head {}", "x".repeat(LONGEST_TAG * 2));
        assert_eq!(inject(&page, "head", 4096), page);
    }

    #[test]
    fn other_charsets_get_references() {
        assert_eq!(ascii("é<b>"), "&#233;<b>");
    }
}
