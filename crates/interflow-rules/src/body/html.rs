//! Streaming insertion of HTML after the first opening tag of a name.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// An edit of a body as it streams.
pub(crate) trait StreamEdit: Send + 'static {
    /// Consumes bytes; returns those that can be passed on.
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8>;

    /// The held bytes, at the end of the body.
    fn rest(&mut self) -> Bytes;

    /// Whether nothing more will be changed or held.
    fn is_idle(&self) -> bool {
        false
    }
}

/// Maximum length of a tag or comment in bytes; longer ones end the search, and the page stays unchanged.
const MAX_TAG_LEN: usize = 64 << 10;

/// Searches for the first opening tag of a name, ignoring case and comments, over chunks of any size.
pub(crate) struct HtmlInjector {
    tag: Arc<str>,
    html: Bytes,
    held: BytesMut,
    state: InjectorState,
    injected: bool,
}

#[derive(PartialEq, Eq)]
enum InjectorState {
    Looking,
    /// Inside `<!-- … -->`, where tags do not count.
    Comment,
    /// Inserted, or given up: everything passes.
    Idle,
}

impl StreamEdit for HtmlInjector {
    fn is_idle(&self) -> bool {
        self.state == InjectorState::Idle && self.held.is_empty()
    }

    fn rest(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(self.held.len() + self.html.len());
        loop {
            match self.state {
                InjectorState::Idle => {
                    out.extend_from_slice(&self.held.split());
                    return out;
                }
                InjectorState::Comment => match memchr::memmem::find(&self.held, b"-->") {
                    Some(at) => {
                        out.extend_from_slice(&self.held.split_to(at + 3));
                        self.state = InjectorState::Looking;
                    }
                    None => {
                        // The end mark may be split between chunks.
                        let keep = self.held.len().min(2);
                        out.extend_from_slice(&self.held.split_to(self.held.len() - keep));
                        return out;
                    }
                },
                InjectorState::Looking => {
                    let Some(at) = self.held.iter().position(|b| *b == b'<') else {
                        out.extend_from_slice(&self.held.split());
                        return out;
                    };
                    out.extend_from_slice(&self.held.split_to(at));
                    match self.match_tag() {
                        TagMatch::More if self.held.len() > MAX_TAG_LEN => self.state = InjectorState::Idle,
                        TagMatch::More => return out,
                        TagMatch::Comment => {
                            out.extend_from_slice(&self.held.split_to(4));
                            self.state = InjectorState::Comment;
                        }
                        TagMatch::Other => out.extend_from_slice(&self.held.split_to(1)),
                        TagMatch::Tag(len) => {
                            out.extend_from_slice(&self.held.split_to(len));
                            out.extend_from_slice(&self.html);
                            (self.state, self.injected) = (InjectorState::Idle, true);
                        }
                    }
                }
            }
        }
    }
}

impl HtmlInjector {
    pub fn new(tag: Arc<str>, html: Bytes) -> Self {
        Self { tag, html, held: BytesMut::new(), state: InjectorState::Looking, injected: false }
    }

    pub fn is_done(&self) -> bool {
        self.injected
    }

    /// Classifies the markup that begins at the leading `<`.
    fn match_tag(&self) -> TagMatch {
        let held = &self.held[..];
        if b"<!--".starts_with(&held[..held.len().min(4)]) {
            return if held.len() < 4 { TagMatch::More } else { TagMatch::Comment };
        }
        let name = self.tag.as_bytes();
        let behind = &held[1..];
        let overlap = behind.len().min(name.len());
        if !behind[..overlap].eq_ignore_ascii_case(&name[..overlap]) {
            return TagMatch::Other;
        }
        let Some(next) = behind.get(name.len()) else { return TagMatch::More };
        if !matches!(next, b'>' | b'/' | b' ' | b'\t' | b'\n' | b'\r' | b'\x0c') {
            return TagMatch::Other;
        }
        // A `>` in a quoted attribute does not end the tag.
        let mut quote = None;
        for (i, b) in behind.iter().enumerate().skip(name.len()) {
            match (quote, b) {
                (None, b'>') => return TagMatch::Tag(i + 2),
                (None, b'"' | b'\'') => quote = Some(*b),
                (Some(q), b) if q == *b => quote = None,
                _ => {}
            }
        }
        TagMatch::More
    }
}

enum TagMatch {
    More,
    Comment,
    Other,
    Tag(usize),
}

/// HTML for a page of another charset: non-ASCII characters become character references.
pub(crate) fn escape_non_ascii(html: &str) -> String {
    html.chars().map(|c| if c.is_ascii() { c.to_string() } else { format!("&#{};", u32::from(c)) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inject(page: &str, tag: &str, size: usize) -> String {
        let mut injector = HtmlInjector::new(tag.into(), Bytes::from_static(b"[X]"));
        let mut out = Vec::new();
        for piece in page.as_bytes().chunks(size) {
            out.extend(injector.feed(piece));
        }
        out.extend_from_slice(&injector.rest());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn html_is_injected_after_the_first_tag_at_any_segmentation() {
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
    fn unterminated_tag_gets_no_injection() {
        let page = format!("<head {}", "x".repeat(MAX_TAG_LEN * 2));
        assert_eq!(inject(&page, "head", 4096), page);
    }

    #[test]
    fn non_ascii_html_is_written_as_character_references() {
        assert_eq!(escape_non_ascii("é<b>"), "&#233;<b>");
    }
}
