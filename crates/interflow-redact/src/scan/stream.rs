//! Redaction of streamed text with a sliding window.
//!
//! A secret may be split over fragments, so text is released only when enough has followed that no finding can extend
//! into it. Part of what was released stays in the buffer as context, because a finding may depend on the words before
//! it. The first output is therefore delayed by one window; the total work stays linear, since a scan covers the window
//! and the context only.

use crate::scan::redactor::{RedactionSession, Redactor, Replacement};
use crate::text::json::{decode_piece, escape_into, is_number};
use crate::{RedactError, Result};

/// The encoding of the fragments: text, or the raw text of JSON, as tool call arguments are streamed, in which
/// replacements are escaped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EscapeLevel {
    #[default]
    Plain,
    /// The raw text of JSON, as tool call arguments are streamed: replacements are escaped.
    Json,
}

/// Number of emitted bytes that are kept as context: a finding may depend on the words before it.
const CONTEXT_BYTES: usize = 256;
/// New bytes between two scans: the buffer may exceed the window by this much.
const SCAN_STEP: usize = 64;
/// Maximum number of buffered bytes, more than a private key needs.
const MAX_BUFFERED: usize = 64 << 10;

/// Redacts streamed text. The last `window` bytes are buffered until more text shows what they are, so the first output
/// comes when the window is full or the stream ends.
#[derive(Debug)]
pub struct StreamRedactor {
    form: EscapeLevel,
    window: usize,
    /// Raw text: decided up to `done`, the rest buffered.
    buffer: String,
    done: usize,
    /// The length of the buffer at the last scan.
    looked: usize,
    /// For JSON: whether the buffer begins inside a string.
    inside: bool,
    /// Bytes that have left the buffer, to report spans in offsets of the stream.
    gone: usize,
}

impl StreamRedactor {
    /// Large enough for every pattern but private keys, which are buffered to their end.
    pub const WINDOW: usize = 192;

    /// A redactor for fragments in this encoding with a window of `window` bytes (normally [`Self::WINDOW`]).
    pub const fn new(form: EscapeLevel, window: usize) -> Self {
        Self { form, window, buffer: String::new(), done: 0, looked: 0, inside: false, gone: 0 }
    }

    /// Processes a fragment, appends to `out` what can be forwarded, and returns the replacements in it.
    ///
    /// # Errors
    /// A strategy fails, the fragments are not valid JSON text, or the buffer limit is exceeded.
    pub fn push(
        &mut self,
        redactor: &Redactor,
        session: &mut RedactionSession,
        piece: &str,
        out: &mut String,
    ) -> Result<Vec<Replacement>> {
        self.buffer.push_str(piece);
        // Fragments are a few letters long, and each scan covers the whole buffer.
        let too_soon = self.looked > 0 && self.buffer.len() - self.looked < SCAN_STEP;
        if self.buffer.len() - self.done <= self.window || too_soon {
            return Ok(Vec::new());
        }
        let replacements = self.advance(redactor, session, false, out)?;
        // Only one endless word or an unfinished private key gets here. Failing is the safe end: releasing could
        // disclose it.
        if self.buffer.len() - self.done > MAX_BUFFERED {
            return Err(RedactError::HeldBack { limit: MAX_BUFFERED });
        }
        Ok(replacements)
    }

    /// The end of the stream: everything is released.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(
        &mut self,
        redactor: &Redactor,
        session: &mut RedactionSession,
        out: &mut String,
    ) -> Result<Vec<Replacement>> {
        self.advance(redactor, session, true, out)
    }

    /// Scans the buffer and releases what is certain.
    fn advance(
        &mut self,
        redactor: &Redactor,
        session: &mut RedactionSession,
        last: bool,
        out: &mut String,
    ) -> Result<Vec<Replacement>> {
        let spans = self.spans(redactor, session)?;
        let mut cut = if last { self.buffer.len() } else { self.safe_end() };
        if !last {
            // From the end, since moving the cut may make it fall into the finding before.
            for span in spans.iter().rev() {
                // A finding that reaches into the window may grow; one at its end certainly may.
                if span.end > cut && span.start < cut {
                    cut = span.start;
                }
            }
        }
        let mut replacements = Vec::new();
        let mut at = self.done;
        for mut span in spans {
            if span.end <= at || span.start >= cut {
                continue;
            }
            // Text already emitted cannot be recalled; only the rest is redacted.
            span.start = span.start.max(at);
            let number = self.number(&span, at);
            out.push_str(&self.buffer[at..number.start]);
            match self.form {
                EscapeLevel::Plain => out.push_str(&span.replacement),
                EscapeLevel::Json if number == (span.start..span.end) && self.is_inside(span.start) => {
                    escape_into(&span.replacement, out);
                }
                // A number outside strings: the replacement must be JSON too.
                EscapeLevel::Json if is_number(&span.replacement) => out.push_str(&span.replacement),
                EscapeLevel::Json => {
                    out.push('"');
                    escape_into(&span.replacement, out);
                    out.push('"');
                }
            }
            at = number.end;
            (span.start, span.end) = (span.start + self.gone, span.end + self.gone);
            replacements.push(span);
        }
        if at < cut {
            out.push_str(&self.buffer[at..cut]);
            at = cut;
        }
        self.done = at;
        self.drop_emitted();
        self.looked = self.buffer.len();
        Ok(replacements)
    }

    /// Whether the byte at `at` stands inside a string.
    fn is_inside(&self, at: usize) -> bool {
        let mut inside = self.inside;
        let mut bytes = self.buffer.as_bytes()[..at].iter();
        while let Some(b) = bytes.next() {
            match b {
                b'"' => inside = !inside,
                b'\\' if inside => drop(bytes.next()),
                _ => {}
            }
        }
        inside
    }

    /// The whole number that contains a finding outside strings, else the finding itself.
    fn number(&self, span: &Replacement, from: usize) -> std::ops::Range<usize> {
        let own = span.start..span.end;
        if self.form == EscapeLevel::Plain || self.is_inside(span.start) {
            return own;
        }
        let bytes = self.buffer.as_bytes();
        let part = |b: &&u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
        let before = bytes[from..own.start].iter().rev().take_while(part).count();
        let behind = bytes[own.end..].iter().take_while(part).count();
        own.start - before..own.end + behind
    }

    /// The findings in the buffer, in raw offsets.
    fn spans(&self, redactor: &Redactor, session: &mut RedactionSession) -> Result<Vec<Replacement>> {
        match self.form {
            EscapeLevel::Plain => redactor.replacements("", &self.buffer, session),
            EscapeLevel::Json => {
                let decoded = decode_piece(&self.buffer, self.gone)?;
                let mut spans = redactor.replacements("", &decoded.text, session)?;
                for span in &mut spans {
                    (span.start, span.end) = (decoded.map.start(span.start), decoded.map.end(span.end));
                }
                Ok(spans)
            }
        }
    }

    /// How much of the buffer can be released: up to a space before the window, or the window's edge if there is none
    /// near.
    fn safe_end(&self) -> usize {
        let edge = self.buffer.floor_char_boundary(self.buffer.len().saturating_sub(self.window)).max(self.done);
        let free = &self.buffer[self.done..edge];
        match free.rfind([' ', '\n', '\t']) {
            Some(at) => self.done + at + 1,
            // One long word: a secret in it is longer than the window or is found as a whole.
            None if free.len() > self.window * 4 => self.align_to_escape(edge),
            None => self.done,
        }
    }

    /// The edge, moved back if it would fall into a JSON escape, of which the longest has 12 bytes.
    fn align_to_escape(&self, edge: usize) -> usize {
        match self.form {
            EscapeLevel::Plain => edge,
            EscapeLevel::Json => self.buffer[self.done..edge]
                .rfind('\\')
                .map_or(edge, |at| if edge - self.done - at < 12 { self.done + at } else { edge }),
        }
    }

    /// Drops context that is no longer needed, and remembers whether the rest begins inside a string.
    fn drop_emitted(&mut self) {
        // Context is dropped in large steps, because each step moves the buffer.
        if self.done <= CONTEXT_BYTES * 2 {
            return;
        }
        let mut from = self.buffer.floor_char_boundary(self.done - CONTEXT_BYTES);
        // The context begins between words, so that it is tokenized as it would be in the whole text.
        if let Some(space) = self.buffer[from..self.done].find([' ', '\n']) {
            from += space;
        } else if self.form == EscapeLevel::Json {
            from = self.done;
        }
        self.inside = self.form == EscapeLevel::Json && self.is_inside(from);
        self.buffer.drain(..from);
        self.done -= from;
        self.gone += from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use proptest::prelude::*;

    fn streamed(form: EscapeLevel, text: &str, cuts: &[usize]) -> (String, Vec<Replacement>) {
        let redactor = Redactor::default();
        let mut session = RedactionSession::one_way();
        let mut stream = StreamRedactor::new(form, StreamRedactor::WINDOW);
        let (mut out, mut told, mut at) = (String::new(), Vec::new(), 0);
        for cut in cuts.iter().cycle().take(400) {
            let end = text.floor_char_boundary((at + cut).min(text.len()));
            told.extend(stream.push(&redactor, &mut session, &text[at..end], &mut out).expect("text"));
            at = end;
        }
        told.extend(stream.push(&redactor, &mut session, &text[at..], &mut out).expect("text"));
        told.extend(stream.finish(&redactor, &mut session, &mut out).expect("text"));
        (out, told)
    }

    #[test]
    fn number_split_across_chunks_is_found() {
        let text =
            format!("{} His SSN is 123-45-6789, call 212-555-0143. {}", "word ".repeat(100), "more ".repeat(100));
        for cut in [1, 3, 7, 64] {
            let (out, told) = streamed(EscapeLevel::Plain, &text, &[cut]);
            assert!(!out.contains("6789") && !out.contains("0143"), "{cut}: {out}");
            assert!(told.iter().any(|r| r.kind == Kind::Ssn && &text[r.start..r.end] == "123-45-6789"));
        }
    }

    #[test]
    fn stream_buffer_is_bounded_by_the_window_and_one_step() {
        let text = "words of seven letters follow here ".repeat(60);
        for cut in [1, 4, 9, 50] {
            let (redactor, mut session) = (Redactor::default(), RedactionSession::one_way());
            let mut stream = StreamRedactor::new(EscapeLevel::Plain, StreamRedactor::WINDOW);
            let (mut out, mut given) = (String::new(), 0);
            for piece in text.as_bytes().chunks(cut) {
                let piece = std::str::from_utf8(piece).expect("ASCII");
                stream.push(&redactor, &mut session, piece, &mut out).expect("text");
                given += piece.len();
                assert!(given - out.len() <= StreamRedactor::WINDOW + SCAN_STEP + cut + 10, "{} of {given}", out.len());
            }
            stream.finish(&redactor, &mut session, &mut out).expect("text");
            assert_eq!(out, text);
        }
    }

    #[test]
    fn escapes_do_not_hide_a_value_in_json_text() {
        let text = format!("{{\"note\":\"{}\\n123-45-6789\\nmail \\u0061nna.berg@firm.com ok\"}}", "word ".repeat(80));
        let (out, _) = streamed(EscapeLevel::Json, &text, &[5]);
        assert!(!out.contains("6789") && !out.contains("firm.com"), "{out}");
        assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok());
    }

    #[test]
    fn number_in_json_text_is_replaced_by_valid_json() {
        let text = format!(
            "{{\"note\":\"{}\",\"card\": 4111111111111111 ,\"more\":\"{}\"}}",
            "word ".repeat(90),
            "more ".repeat(90)
        );
        for cut in [1, 7, 400] {
            let (out, told) = streamed(EscapeLevel::Json, &text, &[cut]);
            let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
            assert!(value["card"].is_string() && !out.contains("4111") && told.len() == 1, "{out}");
        }
    }

    #[test]
    fn private_key_is_buffered_until_its_end() {
        let key = format!(
            "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
            "MIIEowIBAAKCAQEA7bq3\n".repeat(60)
        );
        let text = format!("{} {key} and on it goes. {}", "word ".repeat(80), "more ".repeat(80));
        let (out, _) = streamed(EscapeLevel::Plain, &text, &[33]);
        assert!(!out.contains("MIIE") && out.contains("and on it goes."), "{out}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn text_without_findings_is_unchanged(text in "[a-z ,.]{0,900}", cuts in prop::collection::vec(1usize..50, 1..6)) {
            let (out, told) = streamed(EscapeLevel::Plain, &text, &cuts);
            prop_assume!(told.is_empty());
            prop_assert_eq!(out, text);
        }
    }
}
