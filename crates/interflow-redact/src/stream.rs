//! Text that comes in pieces: originals put back across the pieces' borders, and redaction with a window.

use crate::RedactError;
use crate::json::{decode_piece, escape_into};
use crate::redactor::{Redacted, Redactor, Session};
use crate::vault::{AtStart, Vault};

/// How the pieces are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Text.
    #[default]
    Plain,
    /// The raw text of JSON, as tool-call arguments are sent in deltas: what is put in is escaped.
    Json,
}

/// Puts originals back into text that comes in pieces. One per choice and tool call; holds back only what may be the
/// beginning of a placeholder that the vault knows.
#[derive(Debug, Default)]
pub struct Restorer {
    /// How often what is put in is escaped.
    escapes: u8,
    carry: String,
}

impl Restorer {
    /// A restorer for pieces of this form.
    pub const fn new(form: Form) -> Self {
        Self::escaping(match form {
            Form::Plain => 0,
            Form::Json => 1,
        })
    }

    /// A restorer for the raw text of a JSON string (once), or of JSON that stands in one (twice), so that pieces need
    /// not be decoded and every byte around a placeholder stays.
    pub const fn escaping(times: u8) -> Self {
        Self { escapes: times, carry: String::new() }
    }

    /// Takes a piece and appends to `out` what may go on.
    pub fn push(&mut self, vault: &Vault, piece: &str, out: &mut String) {
        if self.carry.is_empty() {
            let held = self.run(vault, piece, true, out);
            self.carry.push_str(&piece[held..]);
        } else {
            let mut text = std::mem::take(&mut self.carry);
            text.push_str(piece);
            let held = self.run(vault, &text, true, out);
            text.drain(..held);
            self.carry = text;
        }
    }

    /// The end of the stream: what was held back goes out when it is ordinary text.
    ///
    /// # Errors
    /// When the stream ends inside a placeholder.
    pub fn finish(&mut self, vault: &Vault, out: &mut String) -> Result<(), RedactError> {
        let text = std::mem::take(&mut self.carry);
        // `PERSON_4k`: beyond the label there is no doubt that it was one.
        if text.contains('_') {
            return Err(RedactError::OpenPlaceholder);
        }
        let held = self.run(vault, &text, false, out);
        out.push_str(&text[held..]);
        Ok(())
    }

    /// Whether something is held back.
    pub fn holds_back(&self) -> bool {
        !self.carry.is_empty()
    }

    fn put(&self, original: &str, out: &mut String) {
        match self.escapes {
            0 => out.push_str(original),
            1 => escape_into(original, out),
            more => {
                let mut text = original.to_owned();
                for _ in 0..more {
                    let mut escaped = String::with_capacity(text.len() + 8);
                    escape_into(&text, &mut escaped);
                    text = escaped;
                }
                out.push_str(&text);
            }
        }
    }

    /// Writes what is decided; gives where the rest begins.
    fn run(&self, vault: &Vault, text: &str, more: bool, out: &mut String) -> usize {
        let bytes = text.as_bytes();
        let (mut copied, mut at) = (0, 0);
        while let Some(skip) = vault.next_start(&bytes[at..]) {
            at += skip;
            match vault.at_start(&bytes[at..], more) {
                AtStart::Found { len, original } => {
                    out.push_str(&text[copied..at]);
                    self.put(original, out);
                    at += len;
                    copied = at;
                }
                AtStart::Open => {
                    out.push_str(&text[copied..at]);
                    return at;
                }
                AtStart::Not => at += 1,
            }
        }
        out.push_str(&text[copied..]);
        text.len()
    }
}

/// Text behind which nothing is held back: what was decided on, kept for the sake of the words before a finding.
const CONTEXT: usize = 256;
/// Bytes of new text between two looks: so much more than the window may be held back.
const STEP: usize = 64;
/// Most bytes that are held back, a private key's worth and more.
const MOST_HELD: usize = 64 << 10;

/// Redacts text that comes in pieces. The last `window` bytes are held back until more text shows what they are, so
/// that the first piece goes out when the window is full or the stream ends.
#[derive(Debug)]
pub struct StreamRedactor {
    form: Form,
    window: usize,
    /// Raw text: what is decided on up to `done`, the rest held back.
    buffer: String,
    done: usize,
    /// How long the buffer was when it was last looked at.
    looked: usize,
    /// Bytes that have left the buffer, so that spans can be told in the stream's own offsets.
    gone: usize,
}

impl StreamRedactor {
    /// The window that holds every pattern but private keys, which are held as long as they last.
    pub const WINDOW: usize = 192;

    /// A redactor for pieces of this form that holds `window` bytes back ([`Self::WINDOW`] is the usual size).
    pub const fn new(form: Form, window: usize) -> Self {
        Self { form, window, buffer: String::new(), done: 0, looked: 0, gone: 0 }
    }

    /// Takes a piece, appends to `out` what may go on, and tells what was replaced in it.
    ///
    /// # Errors
    /// When a strategy fails, the pieces are no JSON text, or more would have to be held back than may be.
    pub fn push(
        &mut self,
        redactor: &Redactor,
        session: &mut Session,
        piece: &str,
        out: &mut String,
    ) -> Result<Vec<Redacted>, RedactError> {
        self.buffer.push_str(piece);
        // Pieces are some letters long, and each look is at the whole buffer.
        let too_soon = self.looked > 0 && self.buffer.len() - self.looked < STEP;
        if self.buffer.len() - self.done <= self.window || too_soon {
            return Ok(Vec::new());
        }
        let told = self.advance(redactor, session, false, out)?;
        if self.buffer.len() - self.done > MOST_HELD {
            return Err(RedactError::HeldBack { limit: MOST_HELD });
        }
        Ok(told)
    }

    /// The end of the stream: everything goes out.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(
        &mut self,
        redactor: &Redactor,
        session: &mut Session,
        out: &mut String,
    ) -> Result<Vec<Redacted>, RedactError> {
        self.advance(redactor, session, true, out)
    }

    fn advance(
        &mut self,
        redactor: &Redactor,
        session: &mut Session,
        last: bool,
        out: &mut String,
    ) -> Result<Vec<Redacted>, RedactError> {
        let spans = self.spans(redactor, session)?;
        let mut cut = if last { self.buffer.len() } else { self.cut() };
        if !last {
            for span in spans.iter().rev() {
                // A finding that reaches into the window may grow; one at the end surely may.
                if span.end > cut && span.start < cut {
                    cut = span.start;
                }
            }
        }
        let mut told = Vec::new();
        let mut at = self.done;
        for mut span in spans {
            if span.end <= at || span.start >= cut {
                continue;
            }
            // What went out before it was known to be part of something cannot be called back; the rest can.
            span.start = span.start.max(at);
            out.push_str(&self.buffer[at..span.start]);
            match self.form {
                Form::Plain => out.push_str(&span.replacement),
                Form::Json => escape_into(&span.replacement, out),
            }
            at = span.end;
            (span.start, span.end) = (span.start + self.gone, span.end + self.gone);
            told.push(span);
        }
        if at < cut {
            out.push_str(&self.buffer[at..cut]);
            at = cut;
        }
        self.done = at;
        self.forget();
        self.looked = self.buffer.len();
        Ok(told)
    }

    /// What is found in the buffer, in raw offsets.
    fn spans(&self, redactor: &Redactor, session: &mut Session) -> Result<Vec<Redacted>, RedactError> {
        match self.form {
            Form::Plain => redactor.replacements("", &self.buffer, session),
            Form::Json => {
                let decoded = decode_piece(&self.buffer, self.gone)?;
                let mut spans = redactor.replacements("", &decoded.text, session)?;
                for span in &mut spans {
                    (span.start, span.end) = (decoded.map.start(span.start), decoded.map.end(span.end));
                }
                Ok(spans)
            }
        }
    }

    /// Up to where the buffer may go out: a space before the window, or the window's edge when there is none near.
    fn cut(&self) -> usize {
        let edge = self.buffer.floor_char_boundary(self.buffer.len().saturating_sub(self.window)).max(self.done);
        let free = &self.buffer[self.done..edge];
        match free.rfind([' ', '\n', '\t']) {
            Some(at) => self.done + at + 1,
            // One long word: a secret in it is longer than the window or is found as a whole.
            None if free.len() > self.window * 4 => self.whole_escapes(edge),
            None => self.done,
        }
    }

    /// Not between a backslash and what it escapes.
    fn whole_escapes(&self, edge: usize) -> usize {
        match self.form {
            Form::Plain => edge,
            Form::Json => self.buffer[self.done..edge]
                .rfind('\\')
                .map_or(edge, |at| if edge - self.done - at < 12 { self.done + at } else { edge }),
        }
    }

    /// Drops what is too far back to matter.
    fn forget(&mut self) {
        if self.done <= CONTEXT * 2 {
            return;
        }
        let mut from = self.buffer.floor_char_boundary(self.done - CONTEXT);
        if let Some(space) = self.buffer[from..self.done].find([' ', '\n']) {
            from += space;
        } else if self.form == Form::Json {
            from = self.done;
        }
        self.buffer.drain(..from);
        self.done -= from;
        self.gone += from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::vault::VaultKey;
    use proptest::prelude::*;

    fn vault() -> (Vault, Vec<String>) {
        let mut vault = Vault::new(&VaultKey::for_conversation(&[3; 32], b"t"));
        let names = ["Anna \"the\" Bär", "anna@example.com", "C:\\x\n"];
        let made = names.iter().map(|n| vault.placeholder(Kind::Person, "PERSON", n).expect("room")).collect();
        (vault, made)
    }

    fn restored(vault: &Vault, form: Form, text: &str, cuts: &[usize]) -> Result<String, RedactError> {
        let mut restorer = Restorer::new(form);
        let mut out = String::new();
        let mut at = 0;
        for cut in cuts {
            let cut = text.floor_char_boundary(at + cut).min(text.len());
            restorer.push(vault, &text[at..cut], &mut out);
            at = cut;
        }
        restorer.push(vault, &text[at..], &mut out);
        restorer.finish(vault, &mut out)?;
        Ok(out)
    }

    #[test]
    fn ordinary_text_is_never_held_back() {
        let (vault, _) = vault();
        let mut restorer = Restorer::new(Form::Plain);
        let mut out = String::new();
        for piece in ["Hello", " there, ", "how are yo", "u?"] {
            restorer.push(&vault, piece, &mut out);
            assert!(!restorer.holds_back());
        }
        restorer.push(&vault, "a PERS", &mut out);
        assert!(restorer.holds_back() && out.ends_with("a "));
        restorer.push(&vault, "IAN cat", &mut out);
        assert_eq!(out, "Hello there, how are you?a PERSIAN cat");
    }

    #[test]
    fn raw_text_gets_as_many_escapes_as_it_is_deep() {
        let (vault, made) = vault();
        for (times, wanted) in [(0, "Anna \"the\" Bär"), (1, r#"Anna \"the\" Bär"#), (2, r#"Anna \\\"the\\\" Bär"#)]
        {
            let mut out = String::new();
            Restorer::escaping(times).push(&vault, &made[0], &mut out);
            assert_eq!(out, wanted);
        }
    }

    #[test]
    fn an_open_placeholder_at_the_end_is_an_error_and_a_lone_letter_is_not() {
        let (vault, made) = vault();
        assert!(matches!(restored(&vault, Form::Plain, &made[0][..10], &[]), Err(RedactError::OpenPlaceholder)));
        assert_eq!(restored(&vault, Form::Plain, "grade P", &[]).expect("text"), "grade P");
    }

    #[test]
    fn json_text_gets_its_originals_escaped() {
        let (vault, made) = vault();
        let text = format!("{{\"to\":\"{}\",\"path\":\"{}\"}}", made[0], made[2]);
        let out = restored(&vault, Form::Json, &text, &[7, 3, 2, 9]).expect("JSON");
        let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(value["to"], "Anna \"the\" Bär");
        assert_eq!(value["path"], "C:\\x\n");
    }

    fn streamed(form: Form, text: &str, cuts: &[usize]) -> (String, Vec<Redacted>) {
        let redactor = Redactor::default();
        let mut session = Session::one_way();
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
    fn a_number_cut_across_pieces_is_found() {
        let text =
            format!("{} His SSN is 123-45-6789, call 212-555-0143. {}", "word ".repeat(100), "more ".repeat(100));
        for cut in [1, 3, 7, 64] {
            let (out, told) = streamed(Form::Plain, &text, &[cut]);
            assert!(!out.contains("6789") && !out.contains("0143"), "{cut}: {out}");
            assert!(told.iter().any(|r| r.kind == Kind::Ssn && &text[r.start..r.end] == "123-45-6789"));
        }
    }

    #[test]
    fn no_more_is_held_back_than_the_window_and_a_step() {
        let text = "words of seven letters follow here ".repeat(60);
        for cut in [1, 4, 9, 50] {
            let (redactor, mut session) = (Redactor::default(), Session::one_way());
            let mut stream = StreamRedactor::new(Form::Plain, StreamRedactor::WINDOW);
            let (mut out, mut given) = (String::new(), 0);
            for piece in text.as_bytes().chunks(cut) {
                let piece = std::str::from_utf8(piece).expect("ASCII");
                stream.push(&redactor, &mut session, piece, &mut out).expect("text");
                given += piece.len();
                assert!(given - out.len() <= StreamRedactor::WINDOW + STEP + cut + 10, "{} of {given}", out.len());
            }
            stream.finish(&redactor, &mut session, &mut out).expect("text");
            assert_eq!(out, text);
        }
    }

    #[test]
    fn escapes_do_not_hide_a_value_in_json_text() {
        let text = format!("{{\"note\":\"{}\\n123-45-6789\\nmail \\u0061nna.berg@firm.com ok\"}}", "word ".repeat(80));
        let (out, _) = streamed(Form::Json, &text, &[5]);
        assert!(!out.contains("6789") && !out.contains("firm.com"), "{out}");
        assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok());
    }

    #[test]
    fn a_private_key_is_held_as_long_as_it_lasts() {
        let key = format!(
            "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
            "MIIEowIBAAKCAQEA7bq3\n".repeat(60)
        );
        let text = format!("{} {key} and on it goes. {}", "word ".repeat(80), "more ".repeat(80));
        let (out, _) = streamed(Form::Plain, &text, &[33]);
        assert!(!out.contains("MIIE") && out.contains("and on it goes."), "{out}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn cuts_do_not_matter_to_the_restorer(cuts in prop::collection::vec(0usize..12, 0..12), pick in prop::collection::vec(0usize..3, 1..5)) {
            let (vault, made) = vault();
            let text: String = pick.iter().map(|i| format!("P {}é", made[*i])).collect();
            prop_assert_eq!(restored(&vault, Form::Plain, &text, &cuts).expect("text"), vault.restore(&text));
        }

        #[test]
        fn text_without_findings_comes_out_as_it_went_in(text in "[a-z ,.]{0,900}", cuts in prop::collection::vec(1usize..50, 1..6)) {
            let (out, told) = streamed(Form::Plain, &text, &cuts);
            prop_assume!(told.is_empty());
            prop_assert_eq!(out, text);
        }
    }
}
