//! Incremental decoding of text that may be JSON, whose strings may contain JSON again. Streamed text is decoded to the
//! innermost level, with the number of escape levels that apply there.
//!
//! Each level is a small JSON state machine. A character enters at the outermost level; if that is inside a string, the
//! character, or the one that a complete escape stands for, is passed to the next level, and so on until a level treats
//! it as its own. A level that turns out not to be JSON becomes plain, and from then on takes everything literally.

use super::json::{JsonEscape, json_escape};

/// Maximum depth of JSON in strings; deeper text is read unescaped.
const MAX_LEVELS: usize = 5;
/// Maximum nesting of arrays and objects on one level; a level with more is read as plain text.
const MAX_DEPTH: usize = 256;
/// Number of characters of the longest escape: a surrogate pair.
const MAX_ESCAPE_CHARS: usize = 12;

/// The levels of a text: the text itself, the string that is currently open, the JSON in that string, and so on.
#[derive(Debug)]
pub(crate) struct EscapeLayers {
    stack: Vec<EscapeLayer>,
    /// Whether the text may be any JSON value, not only an object or an array.
    any: bool,
}

/// Receives decoded characters: the character, the start of its raw form, and the number of escape levels.
pub(crate) trait CharSink {
    fn character(&mut self, c: char, start: usize, depth: u8);
}

/// Discards the characters, to advance the state only.
pub(crate) struct NullSink;

impl CharSink for NullSink {
    fn character(&mut self, _: char, _: usize, _: u8) {}
}

/// One level of JSON.
#[derive(Debug)]
struct EscapeLayer {
    mode: LayerMode,
    /// Whether a string is open, and whether it is a member's name.
    in_string: bool,
    is_name: bool,
    expect: LayerExpectation,
    /// The remaining characters of `true`, `false` or `null`.
    literal: &'static [u8],
    /// Bit set: whether each open container is an object.
    objects: [u64; MAX_DEPTH / 64],
    depth: usize,
    /// An incomplete escape: its characters and the start of each raw form.
    pending: [(char, usize); MAX_ESCAPE_CHARS],
    pending_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerMode {
    /// Only white space so far, so the level may still become JSON.
    Start,
    Json,
    /// Not JSON, or no longer: everything is literal.
    Plain,
}

/// What may come next in the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerExpectation {
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    CommaOrEnd,
    Number,
    Literal,
}

/// What a character is on a level: a part of its own syntax, the quote that opens or closes a string, a character in
/// the string, a part of an escape, or the proof that the level is not JSON.
enum LayerStep {
    Own,
    Opens,
    Closes,
    Inner,
    Pending,
    Wrong,
}

impl EscapeLayers {
    /// The levels of a text that may be an object or an array or, if `any` is set, any JSON value (RFC 8259).
    pub fn new(any: bool) -> Self {
        Self { stack: vec![EscapeLayer::new()], any }
    }

    /// Whether no part of the text can be JSON any more.
    pub fn is_plain(&self) -> bool {
        matches!(self.stack.as_slice(), [only] if only.mode == LayerMode::Plain)
    }

    /// The start of the first incomplete escape: what follows it must be held back.
    pub fn pending_start(&self) -> Option<usize> {
        let starts = self.stack.iter().filter_map(|l| l.pending().first().map(|p| p.1));
        starts.min()
    }

    /// Shifts the offsets of incomplete escapes to the left, when the caller dropped that many bytes.
    pub fn rebase(&mut self, by: usize) {
        for layer in &mut self.stack {
            for p in layer.pending.iter_mut().take(layer.pending_len) {
                p.1 = p.1.saturating_sub(by);
            }
        }
    }

    /// Processes the next character, whose raw form begins at `start`.
    pub fn feed(&mut self, c: char, start: usize, sink: &mut impl CharSink) {
        self.feed_at(0, c, start, sink);
    }

    /// Passes a character through the levels from `from` on.
    fn feed_at(&mut self, from: usize, c: char, start: usize, sink: &mut impl CharSink) {
        let (mut at, mut c, mut start) = (from, c, start);
        loop {
            let any = self.any && at == 0;
            let Some(layer) = self.stack.get_mut(at) else {
                return sink.character(c, start, at as u8);
            };
            match layer.step(c, any) {
                LayerStep::Own => return sink.character(c, start, at as u8),
                LayerStep::Opens => {
                    sink.character(c, start, at as u8);
                    self.stack.truncate(at + 1);
                    // Deeper text is read with the escapes of this depth, which is correct unless it is JSON again.
                    if at + 1 < MAX_LEVELS {
                        self.stack.push(EscapeLayer::new());
                    }
                    return;
                }
                LayerStep::Closes => {
                    // The string ends here, so an incomplete escape within it can no longer be completed.
                    self.flush_from(at + 1, sink);
                    self.stack.truncate(at + 1);
                    return sink.character(c, start, at as u8);
                }
                LayerStep::Inner => at += 1,
                LayerStep::Pending => {
                    layer.pending[layer.pending_len] = (c, start);
                    layer.pending_len += 1;
                    match layer.resolve() {
                        ResolvedEscape::Open => return,
                        ResolvedEscape::Char(decoded, first) => {
                            (c, start) = (decoded, first);
                            at += 1;
                        }
                        // An unpaired surrogate, and what follows it, are literal.
                        ResolvedEscape::Half(first, rest) => {
                            self.feed_at(at + 1, char::REPLACEMENT_CHARACTER, first, sink);
                            for (c, start) in rest {
                                self.feed_at(at, c, start, sink);
                            }
                            return;
                        }
                        ResolvedEscape::Wrong => return self.mark_plain(at, sink),
                    }
                }
                LayerStep::Wrong => {
                    self.mark_plain(at, sink);
                    return sink.character(c, start, at as u8);
                }
            }
        }
    }

    /// The level is not JSON: pending characters and everything that follows are literal.
    fn mark_plain(&mut self, at: usize, sink: &mut impl CharSink) {
        self.flush_from(at + 1, sink);
        self.stack.truncate(at + 1);
        if let Some(layer) = self.stack.get_mut(at) {
            layer.mode = LayerMode::Plain;
            layer.release_pending(at, sink);
        }
    }

    /// The end of the text: incomplete escapes are literal.
    pub fn flush(&mut self, sink: &mut impl CharSink) {
        self.flush_from(0, sink);
    }

    fn flush_from(&mut self, from: usize, sink: &mut impl CharSink) {
        // Deeper levels precede what is pending above them.
        for at in (from..self.stack.len()).rev() {
            self.stack[at].release_pending(at, sink);
        }
    }
}

/// The result of another character of an escape: incomplete, the character that it stands for, or not an escape.
enum ResolvedEscape {
    Open,
    Char(char, usize),
    /// An unpaired surrogate at this position, and the characters after it.
    Half(usize, Vec<(char, usize)>),
    Wrong,
}

impl EscapeLayer {
    const fn new() -> Self {
        Self {
            mode: LayerMode::Start,
            in_string: false,
            is_name: false,
            expect: LayerExpectation::Value,
            literal: b"",
            objects: [0; MAX_DEPTH / 64],
            depth: 0,
            pending: [('\0', 0); MAX_ESCAPE_CHARS],
            pending_len: 0,
        }
    }

    /// Gives the characters of an open escape to `sink` as they are.
    fn release_pending(&mut self, depth: usize, sink: &mut impl CharSink) {
        for &(c, start) in self.pending() {
            sink.character(c, start, depth as u8);
        }
        self.pending_len = 0;
    }

    fn pending(&self) -> &[(char, usize)] {
        self.pending.get(..self.pending_len).unwrap_or_default()
    }

    /// What the character is on this level, and the state after it.
    fn step(&mut self, c: char, any: bool) -> LayerStep {
        match self.mode {
            LayerMode::Plain => return LayerStep::Own,
            LayerMode::Start => match c {
                ' ' | '\t' | '\n' | '\r' => return LayerStep::Own,
                '{' | '[' => self.mode = LayerMode::Json,
                _ if any => self.mode = LayerMode::Json,
                _ => return LayerStep::Wrong,
            },
            LayerMode::Json => {}
        }
        if self.in_string {
            return match c {
                _ if self.pending_len > 0 => LayerStep::Pending,
                '\\' => LayerStep::Pending,
                '"' => {
                    self.in_string = false;
                    if self.is_name {
                        self.expect = LayerExpectation::Colon;
                    } else {
                        self.end_value();
                    }
                    LayerStep::Closes
                }
                // JSON requires that control characters are escaped.
                c if c < ' ' => LayerStep::Wrong,
                _ => LayerStep::Inner,
            };
        }
        self.structure(c)
    }

    /// A character outside of strings.
    fn structure(&mut self, c: char) -> LayerStep {
        if self.expect == LayerExpectation::Number {
            if matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E') {
                return LayerStep::Own;
            }
            // A number ends with the first character that cannot belong to it, which is then processed itself.
            self.end_value();
            if self.mode == LayerMode::Start {
                // A top-level number followed by something else.
                return if c.is_ascii_whitespace() { LayerStep::Own } else { LayerStep::Wrong };
            }
        }
        if self.expect == LayerExpectation::Literal {
            let Some((next, rest)) = self.literal.split_first() else { return LayerStep::Wrong };
            if char::from(*next) != c {
                return LayerStep::Wrong;
            }
            self.literal = rest;
            if rest.is_empty() {
                self.end_value();
            }
            return LayerStep::Own;
        }
        if matches!(c, ' ' | '\t' | '\n' | '\r') {
            return LayerStep::Own;
        }
        match (self.expect, c) {
            (LayerExpectation::Value | LayerExpectation::ValueOrEnd, '"') => {
                (self.in_string, self.is_name) = (true, false);
                return LayerStep::Opens;
            }
            (LayerExpectation::Name | LayerExpectation::NameOrEnd, '"') => {
                (self.in_string, self.is_name) = (true, true);
                return LayerStep::Opens;
            }
            (LayerExpectation::Value | LayerExpectation::ValueOrEnd, '{' | '[') => {
                if self.depth >= MAX_DEPTH {
                    return LayerStep::Wrong;
                }
                // One bit per nesting level says which kind of bracket must close it.
                let bit = 1u64 << (self.depth % 64);
                if let Some(word) = self.objects.get_mut(self.depth / 64) {
                    *word = if c == '{' { *word | bit } else { *word & !bit };
                }
                self.depth += 1;
                self.expect = if c == '{' { LayerExpectation::NameOrEnd } else { LayerExpectation::ValueOrEnd };
            }
            (LayerExpectation::Value | LayerExpectation::ValueOrEnd, '-' | '0'..='9') => {
                self.expect = LayerExpectation::Number
            }
            (LayerExpectation::Value | LayerExpectation::ValueOrEnd, 't' | 'f' | 'n') => {
                self.expect = LayerExpectation::Literal;
                self.literal = match c {
                    't' => b"rue",
                    'f' => b"alse",
                    _ => b"ull",
                };
            }
            (LayerExpectation::Colon, ':') => self.expect = LayerExpectation::Value,
            (LayerExpectation::CommaOrEnd, ',') => {
                self.expect = if self.in_object() { LayerExpectation::Name } else { LayerExpectation::Value }
            }
            (LayerExpectation::NameOrEnd | LayerExpectation::CommaOrEnd, '}') if self.in_object() => {
                self.end_container()
            }
            (LayerExpectation::ValueOrEnd | LayerExpectation::CommaOrEnd, ']') if !self.in_object() => {
                self.end_container()
            }
            _ => return LayerStep::Wrong,
        }
        LayerStep::Own
    }

    fn in_object(&self) -> bool {
        let Some(at) = self.depth.checked_sub(1) else { return false };
        self.objects.get(at / 64).is_some_and(|w| w & 1 << (at % 64) != 0)
    }

    fn end_container(&mut self) {
        self.depth -= 1;
        self.end_value();
    }

    /// The end of a value in its container.
    fn end_value(&mut self) {
        if self.depth == 0 {
            // Another value may follow.
            (self.mode, self.expect) = (LayerMode::Start, LayerExpectation::Value);
        } else {
            self.expect = LayerExpectation::CommaOrEnd;
        }
    }

    /// Resolves the pending characters, the last one just added.
    fn resolve(&mut self) -> ResolvedEscape {
        let p = self.pending();
        let (Some(&(_, first)), Some(&(last, _))) = (p.first(), p.last()) else { return ResolvedEscape::Open };
        // Fails at the first wrong digit instead of waiting for the last one.
        if matches!(p.len(), 3..=5 | 9..=11) && !last.is_ascii_hexdigit() {
            return ResolvedEscape::Wrong;
        }
        // A character that is not one byte is wrong in an escape, as NUL is.
        let raw = self.pending.map(|(c, _)| u8::try_from(c).unwrap_or_default());
        let resolved = match json_escape(&raw[..p.len()]) {
            JsonEscape::Cut => return ResolvedEscape::Open,
            JsonEscape::Wrong => return ResolvedEscape::Wrong,
            JsonEscape::Char(c, length) if length == p.len() => ResolvedEscape::Char(c, first),
            JsonEscape::Char(_, length) => ResolvedEscape::Half(first, p[length..].to_vec()),
        };
        self.pending_len = 0;
        resolved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Read(String, Vec<u8>);

    impl CharSink for Read {
        fn character(&mut self, c: char, _: usize, depth: u8) {
            self.0.push(c);
            self.1.push(depth);
        }
    }

    fn read(text: &str) -> Read {
        let mut layers = EscapeLayers::new(false);
        let mut out = Read::default();
        text.char_indices().for_each(|(at, c)| layers.feed(c, at, &mut out));
        layers.flush(&mut out);
        out
    }

    fn depth_of(text: &str, needle: char) -> Option<u8> {
        let read = read(text);
        read.0.chars().zip(read.1).find(|(c, _)| *c == needle).map(|(_, d)| d)
    }

    #[test]
    fn escape_depth_is_the_number_of_enclosing_json_strings() {
        for (text, depth) in [
            ("X", 0),
            ("\"X\"", 0),
            ("{X}", 0),
            ("[X](link)", 0),
            (r#"{"a":"X"}"#, 1),
            (r#"[{"a":[1,true,"X"#, 1),
            (r#"{"X":1}"#, 1),
            (r#"{"a":"{\"b\":\"X\"}"}"#, 2),
            (r#"{"a":"{b: X}"}"#, 1),
            (r#"{"a":"{\"b\":\"[\\\"X\\\"]\"}"}"#, 3),
            (r#"{"a":1} X"#, 0),
            ("{\"a\":1}\n{\"a\":\"X\"}", 1),
            (r#"{"a": tru X"#, 0),
            (r#"{"a\_b": "X"}"#, 0),
        ] {
            assert_eq!(depth_of(text, 'X'), Some(depth), "{text}");
        }
    }

    #[test]
    fn escapes_are_decoded_on_every_level() {
        assert_eq!(read(r#"{"a":"\u0058\n\ud83d\ude00\ud83dz\ud83d\n"}"#).0, "{\"a\":\"X\n😀\u{fffd}z\u{fffd}\n\"}");
        assert_eq!(read(r#"{"a":"{\"b\":\"\\u0058\\\\\"}"}"#).0, r#"{"a":"{"b":"X\"}"}"#);
        assert_eq!(read(r#"{"a":"\x \_"}"#).0, r#"{"a":"\x \_"}"#);
        assert_eq!(read(r#"{"a":"\u00"#).0, r#"{"a":"\u00"#);
    }
}
