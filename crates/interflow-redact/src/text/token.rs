//! Tokenizes a text into words, numbers and mixed runs in one pass, with a lexicon lookup for each word.

use crate::lexicon::{self, CaseFolded, LexiconEntry, mark, topic};

/// The letter case and composition of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TokenShape {
    /// Lower case: `word`.
    Lower,
    /// A capital, then lower case: `Word`.
    Title,
    /// All capitals: `WORD`. One capital letter is `Upper` too.
    Upper,
    /// Capitals inside: `camelCase`, `McDonald`.
    Camel,
    /// Digits only: `123`.
    Digits,
    /// Letters and digits: `a1b2`.
    Mixed,
    /// Letters of a script without case, such as Chinese.
    Caseless,
}

/// A run of letters and digits, with its entry in the lexicon: marks, topics, and the class under which they are found
/// (0 if the word is unknown, or not a word).
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordToken {
    pub start: u32,
    pub end: u32,
    pub marks: u32,
    pub topics: u32,
    pub class: u16,
    pub shape: TokenShape,
    /// A common word of a sentence, from which no detector starts.
    pub plain: bool,
}

impl WordToken {
    #[inline]
    fn new(start: usize, end: usize, class: u16, shape: TokenShape) -> Self {
        let LexiconEntry { marks, topics } = lexicon::entry_of(class);
        Self { start: start as u32, end: end as u32, marks, topics, class, shape, plain: false }
    }

    /// Whether no detector starts from this word in lower case: most words of a text, which are thus examined once.
    #[inline]
    fn is_plain(&self, bytes: &[u8]) -> bool {
        use mark::{FIRST, MONTH, NRP, REGION, STREET_PREFIX, STREET_SUFFIX, UNIT};
        const COMMON: u32 = mark::COMMON | mark::WORD | mark::STOP | mark::TECH;
        const NAMED: u32 = FIRST | REGION | NRP | MONTH | UNIT | STREET_PREFIX | STREET_SUFFIX;
        const ANNOUNCING: u32 = topic::SECRET | topic::PASSWORD | topic::USER | topic::COMMAND;
        matches!(bytes.get(self.end()), Some(b' ' | b','))
            && matches!(self.len(), 2..16)
            && self.has(COMMON)
            && !self.has(NAMED)
            && self.topics & ANNOUNCING == 0
            && !self.may_be_age_word(bytes)
    }

    /// Whether the word can be one of `year`, `months`, `yo`, `aged`, `ans`, `am`, `was`, `turned` and the like.
    #[inline]
    pub fn may_be_age_word(&self, bytes: &[u8]) -> bool {
        let byte = |n: usize| bytes.get(self.start() + n).map_or(b' ', |b| b | 0x20);
        let len = self.len();
        len <= 6
            && match byte(0) {
                b'y' => len <= 2 || matches!(byte(1), b'e' | b'r'),
                b'a' => match byte(1) {
                    b'm' => len == 2,
                    b'n' => matches!(byte(2), b's' | b'n' | b'o'),
                    second => second == b'g' || !second.is_ascii(),
                },
                b'm' => byte(1) == b'o' && len >= 5,
                b'w' => byte(1) == b'e' && byte(3) == b'k' || len == 3 && byte(2) == b's',
                // `he is 40`
                b'i' => len == 2 && byte(1) == b's',
                b'j' => byte(1) == b'a' && len >= 4,
                b't' => byte(1) == b'u' && len >= 4,
                _ => false,
            }
    }

    pub const fn start(&self) -> usize {
        self.start as usize
    }

    pub const fn end(&self) -> usize {
        self.end as usize
    }

    pub const fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether the word has any of these marks.
    #[inline]
    pub const fn has(&self, marks: u32) -> bool {
        self.marks & marks != 0
    }

    /// Marks a word as if it were capitalized.
    fn capitalize(&mut self) {
        (self.shape, self.plain) = (TokenShape::Title, false);
    }

    /// `Word`, `WORD` or `McWord`: capitalized like a name.
    pub const fn is_capital(&self) -> bool {
        matches!(self.shape, TokenShape::Title | TokenShape::Upper | TokenShape::Camel)
    }

    /// Whether it consists of letters only.
    pub const fn is_word(&self) -> bool {
        !matches!(self.shape, TokenShape::Digits | TokenShape::Mixed)
    }

    pub const fn is_digits(&self) -> bool {
        matches!(self.shape, TokenShape::Digits)
    }
}

/// The word in lower case; empty for a capitalized word that is longer than those asked for, or not ASCII.
pub(crate) fn short_lower<'b, const N: usize>(word: &'b str, buffer: &'b mut [u8; N]) -> &'b str {
    if !word.bytes().any(|b| b.is_ascii_uppercase()) {
        return word;
    }
    let Some(space) = buffer.get_mut(..word.len()).filter(|_| word.is_ascii()) else { return "" };
    space.copy_from_slice(word.as_bytes());
    space.make_ascii_lowercase();
    std::str::from_utf8(space).unwrap_or_default()
}

/// The tokens of a text and the positions of the characters from which other detectors start: `@`, `://`, `-----`, and
/// those below. One pass collects them all, so that no detector scans the text by itself.
#[derive(Debug, Default)]
pub(crate) struct TokenList {
    pub list: Vec<WordToken>,
    pub ats: Vec<u32>,
    pub schemes: Vec<u32>,
    /// Positions of `::` and of hexadecimal words before a `:`.
    pub colons: Vec<u32>,
    pub dashes: Vec<u32>,
    /// Positions of punctuation that is typical of code.
    pub signs: Vec<u32>,
}

const OTHER: u8 = 0;
const LOWER: u8 = 1;
const UPPER: u8 = 2;
const DIGIT: u8 = 4;
const HIGH: u8 = 8;
const ANCHOR: u8 = 16;
const SIGN: u8 = 32;

const PLAIN: u8 = LOWER | UPPER | DIGIT;

static CLASS: [u8; 256] = {
    let mut table = [OTHER; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = match b as u8 {
            b'a'..=b'z' => LOWER,
            b'A'..=b'Z' => UPPER,
            b'0'..=b'9' => DIGIT,
            b'@' | b':' | b'-' => ANCHOR,
            // Typical of code rather than prose.
            b'{' | b'}' | b';' | b'=' | b'<' | b'_' | b'(' | b')' | b'[' | b']' | b'|' | b'/' | b'#' | b'$' | b'`'
            | b'&' | b'%' | b'\\' | b'+' => SIGN,
            0x80.. => HIGH,
            _ => OTHER,
        };
        b += 1;
    }
    table
};

/// Maximum length of a word that is looked up; names and towns are shorter.
const MAX_WORD_LEN: usize = 32;

impl TokenList {
    /// Tokenizes the text. Previous content is dropped and its memory reused.
    pub fn tokenize(&mut self, text: &str) {
        self.list.clear();
        self.ats.clear();
        self.schemes.clear();
        self.colons.clear();
        self.dashes.clear();
        self.signs.clear();
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(&b) = bytes.get(at) {
            match CLASS[b as usize] {
                OTHER => at += 1,
                SIGN => {
                    self.signs.push(at as u32);
                    at += 1;
                }
                ANCHOR => at = self.anchor(bytes, at),
                HIGH => match letter_len(text, at) {
                    Ok(_) => at = self.word(text, at),
                    Err(len) => at += len,
                },
                _ => at = self.word(text, at),
            }
        }
    }

    /// A run of dashes, from which PEM armour begins.
    #[cold]
    fn run_of_dashes(&mut self, bytes: &[u8], at: usize) -> usize {
        self.dashes.push(at as u32);
        at + bytes[at..].iter().take_while(|b| **b == b'-').count()
    }

    /// In a text without capitals, marks words that are only known as names, towns and similar as if they were
    /// capitalized. People write chat messages that way, and the name detectors start from capitals.
    pub fn capitalize_known_words(&mut self, text: &str) {
        use mark::{FIRST, HONORIFIC, LAST, ORG, PLACE, REGION, STREET_SUFFIX, UNIT};
        // Code has few capitals too, but its identifiers are no names.
        if text.bytes().any(|b| b.is_ascii_uppercase() || matches!(b, b'{' | b'}' | b'_' | b'=' | b'<' | b'`'))
            || self.list.len() < 4
        {
            return;
        }
        self.capitalize_companies();
        let mut before = 0u32;
        for token in self.list.iter_mut().filter(|t| t.shape == TokenShape::Lower) {
            let marks = token.marks;
            let plain = marks & (mark::STOP | mark::COMMON | mark::WORD | mark::TECH) != 0;
            let name = marks & (FIRST | LAST | PLACE | REGION | ORG | HONORIFIC | STREET_SUFFIX | UNIT) != 0;
            // A common word that is a common family name, after a first name: `christine brown`.
            let tail = before & FIRST != 0 && marks & mark::LAST_TOP != 0;
            let head = marks & mark::FIRST_TOP != 0 && marks & mark::STOP == 0;
            let unknown = token.class == 0 && before & (FIRST | HONORIFIC) != 0 && token.len() >= 3;
            if name && !plain && token.len() >= 3
                || tail
                || head
                || unknown
                || marks & (STREET_SUFFIX | UNIT | HONORIFIC) != 0 && marks & mark::STOP == 0
            {
                token.capitalize();
            }
            before = marks;
        }
    }

    /// `frost llc`: the company form shows that the word before it is a name.
    fn capitalize_companies(&mut self) {
        for at in 1..self.list.len() {
            let form = self.list[at];
            if form.has(mark::ORG_SUFFIX) && !form.has(mark::COMMON | mark::WORD) && (3..=4).contains(&form.len()) {
                let near = form.start() <= self.list[at - 1].end() + 2;
                if near && self.list[at - 1].shape == TokenShape::Lower && !self.list[at - 1].has(mark::STOP) {
                    self.list[at].capitalize();
                    self.list[at - 1].capitalize();
                }
            }
        }
    }

    /// Notes a character from which a detector starts; returns the position after it.
    #[inline]
    fn anchor(&mut self, bytes: &[u8], at: usize) -> usize {
        match bytes[at] {
            b'@' => self.ats.push(at as u32),
            b':' if bytes[at + 1..].starts_with(b"//") => self.schemes.push(at as u32),
            b':' => self.colons.push(at as u32),
            b'-' if bytes[at..].starts_with(b"-----") => return self.run_of_dashes(bytes, at),
            _ => {}
        }
        at + 1
    }

    /// A word of ASCII letters and digits that begins at `start`; returns its end. Words with other letters are left
    /// to [`foreign_word`](Self::foreign_word).
    #[inline]
    fn word(&mut self, text: &str, start: usize) -> usize {
        let bytes = text.as_bytes();
        let (mut seen, mut uppers) = (0, 0u32);
        let mut at = start;
        while let Some(&b) = bytes.get(at) {
            let class = CLASS[b as usize];
            if class & PLAIN == 0 {
                if class == HIGH {
                    return self.foreign_word(text, start);
                }
                break;
            }
            seen |= class;
            uppers += u32::from(class & UPPER);
            at += 1;
        }
        let shape = match seen {
            LOWER => TokenShape::Lower,
            UPPER => TokenShape::Upper,
            DIGIT => TokenShape::Digits,
            _ if seen & DIGIT != 0 => TokenShape::Mixed,
            _ if uppers == u32::from(UPPER) && CLASS[bytes[start] as usize] == UPPER => TokenShape::Title,
            _ => TokenShape::Camel,
        };
        let listable = seen & DIGIT == 0 && at - start <= MAX_WORD_LEN;
        let class = if listable { lexicon::class_of(lexicon::hash_letters(bytes, start, at)) } else { 0 };
        let mut token = WordToken::new(start, at, class, shape);
        token.plain = seen == LOWER && token.is_plain(bytes);
        self.list.push(token);
        at
    }

    /// A word with letters beyond ASCII, by the properties of its characters.
    fn foreign_word(&mut self, text: &str, start: usize) -> usize {
        let (mut lowers, mut uppers, mut digits, mut first_upper) = (0u32, 0u32, 0u32, false);
        let mut at = start;
        while at < text.len() {
            let Ok(len) = letter_len(text, at) else { break };
            let Some(c) = text[at..].chars().next() else { break };
            if c.is_uppercase() {
                first_upper |= at == start;
                uppers += 1;
            } else if c.is_lowercase() {
                lowers += 1;
            } else if c.is_ascii_digit() {
                digits += 1;
            }
            at += len;
        }
        let shape = match (digits, uppers, lowers) {
            (0, 0, 0) => TokenShape::Caseless,
            (0, 0, _) => TokenShape::Lower,
            (0, _, 0) => TokenShape::Upper,
            (0, 1, _) if first_upper => TokenShape::Title,
            (0, ..) => TokenShape::Camel,
            // Ended by a character other than a letter: `48.8584°`, `13800138000。`
            (n, 0, 0) if n as usize == at - start => TokenShape::Digits,
            _ => TokenShape::Mixed,
        };
        let mut class = 0;
        if digits == 0 && at - start <= MAX_WORD_LEN * 2 {
            let mut folded = CaseFolded::default();
            folded.push(&text[start..at]);
            class = folded.class();
        }
        self.list.push(WordToken::new(start, at, class, shape));
        at
    }
}

/// The length of the letter or digit at `at`; for another character, its length as the error.
fn letter_len(text: &str, at: usize) -> Result<usize, usize> {
    let Some(c) = text[at..].chars().next() else { return Err(1) };
    let len = c.len_utf8();
    let letter = if c.is_ascii() { c.is_ascii_alphanumeric() } else { c.is_alphanumeric() || lexicon::is_combining(c) };
    if letter { Ok(len) } else { Err(len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<(&str, TokenShape)> {
        let mut tokens = TokenList::default();
        tokens.tokenize(text);
        tokens.list.iter().map(|t| (&text[t.start()..t.end()], t.shape)).collect()
    }

    #[test]
    fn text_is_split_into_words_with_their_shape() {
        use TokenShape::*;
        assert_eq!(
            cut("Anna's IBAN: GB75 12.5 “Þórshöfn” naïve MÜLLER camelCase 東京x"),
            [
                ("Anna", Title),
                ("s", Lower),
                ("IBAN", Upper),
                ("GB75", Mixed),
                ("12", Digits),
                ("5", Digits),
                ("Þórshöfn", Title),
                ("naïve", Lower),
                ("MÜLLER", Upper),
                ("camelCase", Camel),
                ("東京x", Lower),
            ]
        );
    }

    #[test]
    fn anchor_characters_are_indexed() {
        let mut tokens = TokenList::default();
        tokens.tokenize("a@b http://x 1:2 -----BEGIN -- ");
        assert_eq!(tokens.ats, [1]);
        assert_eq!(tokens.schemes, [8]);
        assert_eq!(tokens.colons, [14]);
        assert_eq!(tokens.dashes, [17]);
    }

    #[test]
    fn accented_words_are_recognised() {
        let mut tokens = TokenList::default();
        tokens.tokenize("José JOSÉ jose");
        assert!(tokens.list.iter().all(|t| t.has(mark::FIRST)));
    }
}
