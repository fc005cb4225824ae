//! Texts as a reader takes them: without invisible characters, with look-alike letters, spaced letters and digits for
//! letters undone, in lower case. Every byte of the result leads back to its place in the original.

use std::ops::Range;
use std::sync::LazyLock;

use interflow_types::data_file;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::{compose, is_combining_mark};

/// A normalised text.
pub struct NormalizedText {
    pub text: String,
    /// The offset in the original of each byte, and of the end.
    map: Vec<u32>,
    /// How many invisible characters were in it that no writing system needs.
    pub invisible: usize,
    /// Text in Unicode's tag characters, which no reader sees.
    pub has_tags: bool,
    /// Words with letters of two scripts that look alike.
    pub mixed_scripts: usize,
}

/// How a name or a value looks, whatever its script: of two with the same looks, one may be in disguise.
pub fn looks_of(original: &str) -> String {
    let text = NormalizedText::read(original, Builder::default(), true).text;
    text.trim().to_owned()
}

impl NormalizedText {
    pub fn new(original: &str) -> Self {
        let mut normalized = Self::folded(original, Folding::All);
        normalized.join_spaced_letters();
        normalized
    }

    /// How a text reads where lists of words and expressions are searched, if it is not written so: with its case and
    /// its accented letters. `joins` also joins spelled words.
    pub fn readings(original: &str, joins: bool) -> Vec<Self> {
        let is_plain = original.is_ascii() && !original.bytes().any(|b| is_invisible(b.into()));
        if is_plain && !(joins && has_spelled_word(original)) {
            return Vec::new();
        }
        let has_marks = original.chars().any(is_combining_mark);
        let foldings: &[Folding] = if has_marks { &[Folding::Marks, Folding::Composed] } else { &[Folding::Marks] };
        let reading = |folding: &Folding| {
            let mut reading = Self::folded(original, *folding);
            if joins {
                reading.join_spaced_letters();
            }
            reading
        };
        foldings.iter().map(reading).filter(|reading| reading.text != original).collect()
    }

    /// How a text reads if invisible characters stand for blanks; `None` if it has none.
    pub fn with_blanks(original: &str) -> Option<Self> {
        let is_disguised = original.chars().any(is_invisible);
        is_disguised
            .then(|| Self::built(original, Builder { folding: Folding::Marks, blanks: true, ..Builder::default() }))
    }

    fn folded(original: &str, folding: Folding) -> Self {
        Self::built(original, Builder { folding, ..Builder::default() })
    }

    fn built(original: &str, builder: Builder) -> Self {
        Self::read(original, builder, has_latin_words(original))
    }

    fn read(original: &str, mut builder: Builder, latin: bool) -> Self {
        for (at, c) in original.char_indices() {
            builder.push(at, c, latin);
        }
        builder.finish(original.len())
    }

    /// The offset of what an offset of the original became.
    pub fn derived(&self, original: usize) -> usize {
        self.map.partition_point(|at| (*at as usize) < original).min(self.text.len())
    }

    /// The range of the original that a range of the normalised text came from.
    pub fn original_range(&self, range: &Range<usize>) -> Range<usize> {
        let at = |i: usize| self.map.get(i).map_or(0, |n| *n as usize);
        at(range.start)..at(range.end).max(at(range.start))
    }

    /// Joins letters that are spelled with something between them: `i g n o r e`, `i.g.n.o.r.e`.
    fn join_spaced_letters(&mut self) {
        let bytes = self.text.as_bytes();
        let is_letter = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_alphanumeric);
        let is_gap = |i: usize| bytes.get(i).is_some_and(|b| b" .-_*|/".contains(b));
        let mut drop: Vec<usize> = Vec::new();
        let mut i = 0;
        while i < bytes.len() {
            // A run of single letters, four at least, each with one separator after it.
            let starts = is_letter(i) && (i == 0 || !is_letter(i - 1));
            let mut end = i;
            let mut gaps = Vec::new();
            while starts && is_letter(end) && is_gap(end + 1) && is_letter(end + 2) && !is_letter(end + 3) {
                gaps.push(end + 1);
                end += 2;
            }
            match gaps.len() {
                0..3 => i += 1,
                _ => {
                    drop.extend(gaps);
                    i = end + 1;
                }
            }
        }
        if drop.is_empty() {
            return;
        }
        let (mut text, mut map) = (String::with_capacity(self.text.len()), Vec::with_capacity(self.map.len()));
        let mut dropped = drop.into_iter().peekable();
        for (at, c) in self.text.char_indices() {
            if dropped.next_if_eq(&at).is_none() {
                text.push(c);
                map.extend_from_slice(&self.map[at..at + c.len_utf8()]);
            }
        }
        map.extend(self.map.last());
        (self.text, self.map) = (text, map);
    }
}

/// What of a text is folded besides disguises.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Folding {
    /// Case, accents, and marks that are written as characters of their own.
    #[default]
    All,
    /// Only such marks.
    Marks,
    /// Nothing: such marks and their letters are composed (NFC).
    Composed,
}

/// Whether there may be a word that is spelled with something between its letters.
fn has_spelled_word(text: &str) -> bool {
    let is_gap = |b: u8| b" .-_*|/".contains(&b);
    let mut run = 0;
    text.as_bytes().windows(2).any(|pair| {
        // Letters and gaps in turn.
        let goes_on =
            pair[0].is_ascii_alphanumeric() != pair[1].is_ascii_alphanumeric() && (is_gap(pair[0]) || is_gap(pair[1]));
        run = if goes_on { run + 1 } else { 0 };
        run >= 5
    })
}

#[derive(Default)]
struct Builder {
    folding: Folding,
    /// Whether invisible characters stand for blanks.
    blanks: bool,
    text: String,
    map: Vec<u32>,
    invisible: usize,
    has_tags: bool,
    mixed_scripts: usize,
    was_space: bool,
    word: WordScripts,
}

/// The scripts of the current word.
#[derive(Default)]
struct WordScripts {
    latin: bool,
    alike: bool,
}

impl Builder {
    fn push(&mut self, at: usize, c: char, latin: bool) {
        // Tag characters are a hidden copy of ASCII.
        if let 0xe0020..=0xe007e = c as u32 {
            self.has_tags = true;
            if let Some(plain) = char::from_u32(c as u32 - 0xe0000) {
                self.add(at, if self.folding == Folding::All { plain.to_ascii_lowercase() } else { plain });
            }
            return;
        }
        let is_hidden = is_invisible(c);
        if is_hidden {
            let is_common = matches!(c, '\u{200d}' | '\u{fe0f}' | '\u{200c}' | '\u{feff}' | '\u{ad}');
            self.invisible += usize::from(!is_common && !c.is_control());
            if !self.blanks {
                return;
            }
        }
        if is_hidden || c.is_whitespace() {
            self.end_word();
            if !self.was_space {
                // Line breaks stay: some patterns begin with a line.
                self.add(at, if c == '\n' { '\n' } else { ' ' });
            } else if c == '\n' && self.text.ends_with(' ') {
                self.text.pop();
                self.text.push('\n');
            }
            self.was_space = true;
            return;
        }
        self.was_space = false;
        if is_combining_mark(c) && self.fold_mark(c) {
            return;
        }
        let alike = look_alike(c);
        self.word.latin |= c.is_ascii_alphabetic();
        self.word.alike |= alike.is_some();
        match alike.filter(|_| latin) {
            Some(plain) if self.folding != Folding::All && c.is_uppercase() => self.add(at, plain.to_ascii_uppercase()),
            Some(plain) => self.add(at, plain),
            None if self.folding != Folding::All => std::iter::once(c).nfkc().for_each(|plain| self.add(at, plain)),
            None => {
                for plain in std::iter::once(c).nfkc().flat_map(char::to_lowercase) {
                    // Accents are left out: `ïgnöre` reads as `ignore`.
                    let base = std::iter::once(plain).nfd().next().unwrap_or(plain);
                    self.add(at, if base.is_ascii() { base } else { plain });
                }
            }
        }
    }

    /// A mark over the letter before it: left out, or composed with it. False if the letter needs the mark, as in scripts
    /// that write vowels so.
    fn fold_mark(&mut self, mark: char) -> bool {
        let Some(letter) = self.text.chars().next_back().filter(char::is_ascii_alphanumeric) else { return false };
        if self.folding == Folding::Composed
            && let Some(composed) = compose(letter, mark)
        {
            let at = self.map.pop().map_or(0, |at| at as usize);
            self.text.pop();
            self.add(at, composed);
        }
        true
    }

    fn add(&mut self, at: usize, c: char) {
        self.text.push(c);
        self.map.extend(std::iter::repeat_n(u32::try_from(at).unwrap_or(u32::MAX), c.len_utf8()));
    }

    fn end_word(&mut self) {
        let word = std::mem::take(&mut self.word);
        self.mixed_scripts += usize::from(word.latin && word.alike);
    }

    fn finish(mut self, length: usize) -> NormalizedText {
        self.end_word();
        self.map.push(u32::try_from(length).unwrap_or(u32::MAX));
        let Self { text, map, invisible, has_tags, mixed_scripts, .. } = self;
        NormalizedText { text, map, invisible, has_tags, mixed_scripts }
    }
}

/// Whether the text is written in Latin letters at all: letters of a Russian text are what they seem.
fn has_latin_words(text: &str) -> bool {
    let latin = text.chars().filter(char::is_ascii_alphabetic).count();
    latin * 2 > text.chars().filter(|c| c.is_alphabetic()).count()
}

/// Characters without a glyph: zero-width, directional, variation selectors, soft hyphens, fillers, control characters.
pub(crate) const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\u{e}'..='\u{1b}' | '\u{7f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Letters and the Latin ones that they look like, in the order of the former.
static LOOK_ALIKES: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let records = data_file::records(include_str!("../../data/look_alikes.txt"));
    let letters = |[latin, others]: [&'static str; 2]| others.chars().zip(latin.chars().cycle());
    let mut all: Vec<_> = records.flat_map(letters).filter(|(other, _)| *other != ' ').collect();
    all.sort_unstable();
    all
});

/// The Latin letter that a Cyrillic or Greek one looks like.
fn look_alike(c: char) -> Option<char> {
    if c.is_ascii() {
        return None;
    }
    LOOK_ALIKES.binary_search_by_key(&c, |(other, _)| *other).ok().map(|at| LOOK_ALIKES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disguised_texts_are_read_as_they_look() {
        for (text, expected) in [
            ("Ignore\u{200b} ALL  previous", "ignore all previous"),
            ("Ignоre аll", "ignore all"),
            ("ｉｇｎｏｒｅ ïgnöre", "ignore ignore"),
            ("i g n o r e this", "ignore this"),
            ("i.g.n.o.r.e", "ignore"),
            ("a b or c", "a b or c"),
            ("one\n  two", "one\ntwo"),
            ("Привет мир", "привет мир"),
            ("\u{e0069}\u{e0067}\u{e006e}", "ign"),
            ("i\u{336}g\u{301}nore", "ignore"),
        ] {
            assert_eq!(NormalizedText::new(text).text, expected, "{text}");
        }
    }

    #[test]
    fn ranges_lead_back_to_the_original() {
        let original = "xx  Ignоre\u{200b} thïs i g n o r e";
        let normalized = NormalizedText::new(original);
        for part in ["ignore", "this"] {
            let at = normalized.text.find(part).unwrap();
            let range = normalized.original_range(&(at..at + part.len()));
            assert!(["Ignоre\u{200b}", "thïs"].contains(&&original[range.clone()]), "{:?}", &original[range]);
        }
        let at = normalized.text.rfind("ignore").unwrap();
        assert_eq!(&original[normalized.original_range(&(at..at + 6))], "i g n o r e");
    }

    proptest::proptest! {
        #[test]
        fn any_range_is_a_range_of_the_original(text in "\\PC*", from in 0usize..30, length in 0usize..30) {
            let normalized = NormalizedText::new(&text);
            let end = (from + length).min(normalized.text.len());
            let range = normalized.original_range(&(from.min(end)..end));
            proptest::prop_assert!(text.get(range).is_some());
        }
    }
}
