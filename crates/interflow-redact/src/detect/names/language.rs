//! The language of a passage: common words of other languages than English are names in some other text.

use super::super::ScanState;
use crate::lexicon::mark::*;
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordSet, words};

/// Whether the context is in a language that the lexicon does not cover: then an unknown word is not evidence.
pub(super) fn is_foreign_text(scan: &ScanState<'_>, first: usize, last: usize) -> bool {
    let list = scan.list();
    let around = &list[first.saturating_sub(12)..(last + 13).min(list.len())];
    let long = around.iter().filter(|t| t.shape == TokenShape::Lower && t.len() >= 4);
    let (known, unknown) = long.fold((0, 0), |(known, unknown), t| {
        if t.has(COMMON | WORD) && !is_other_word(t) { (known + 1, unknown) } else { (known, unknown + 1) }
    });
    unknown >= 4 && unknown * 2 >= known
}

/// A common word of another language, and none of English.
pub(super) fn is_other_word(token: &WordToken) -> bool {
    token.topics & topic::OTHER_LANGUAGE != 0 && !token.has(COMMON | TECH)
}

/// Words of a passage by language.
#[derive(Clone, Copy, Debug, Default)]
struct LanguageCount {
    /// Common words of another language than English, and unknown ones with accents.
    other: u32,
    unknown: u32,
    english: u32,
}

impl LanguageCount {
    fn add(&mut self, text: &[u8], token: &WordToken) {
        match token.shape {
            _ if token.len() < 2 => {}
            TokenShape::Lower | TokenShape::Title if is_other_word(token) => self.other += 1,
            TokenShape::Lower if token.has(COMMON | STOP) => self.english += 1,
            TokenShape::Lower if token.class == 0 && token.len() >= 4 => {
                let accented = !text[token.start()..token.end()].is_ascii();
                self.other += u32::from(accented);
                self.unknown += u32::from(!accented);
            }
            _ => {}
        }
    }

    /// The counts of `self` without those of its beginning.
    const fn since(self, begin: Self) -> Self {
        Self {
            other: self.other - begin.other,
            unknown: self.unknown - begin.unknown,
            english: self.english - begin.english,
        }
    }

    const fn plus(self, more: Self) -> Self {
        Self {
            other: self.other + more.other,
            unknown: self.unknown + more.unknown,
            english: self.english + more.english,
        }
    }

    const fn has_evidence(self) -> bool {
        self.other > 0 && self.other * 2 + self.unknown >= 3
    }

    const fn is_other(self) -> bool {
        self.has_evidence() && self.other * 2 + self.unknown >= self.english * 2
    }

    /// Too few words of either to tell: a list of headings.
    const fn is_open(self) -> bool {
        self.other * 2 + self.unknown < 6 && self.english < 4
    }
}

/// The words of a text by language, up to each token: the counts of any passage are the difference of two.
#[derive(Debug)]
pub(crate) struct LanguageSums(Vec<LanguageCount>);

impl LanguageSums {
    fn of(scan: &ScanState<'_>) -> Self {
        let mut sum = LanguageCount::default();
        // Without a word of another language and without accents, every passage is English; so it is with too few of them.
        if scan.text.is_ascii() {
            scan.list().iter().for_each(|token| sum.add(scan.bytes, token));
            if !sum.has_evidence() {
                return Self(vec![LanguageCount::default()]);
            }
            sum = LanguageCount::default();
        }
        let mut sums = Vec::with_capacity(scan.list().len() + 1);
        sums.push(sum);
        for token in scan.list() {
            sum.add(scan.bytes, token);
            sums.push(sum);
        }
        Self(sums)
    }

    fn between(&self, from: usize, to: usize) -> LanguageCount {
        let end = self.0.len() - 1;
        self.0[to.min(end)].since(self.0[from.min(end)])
    }
}

/// Whether the context is in another language than English; the text as a whole, where there are few words around.
pub(super) fn is_other_language(scan: &ScanState<'_>, first: usize, last: usize) -> bool {
    const WINDOW: usize = 24;
    let sums = scan.languages.get_or_init(|| LanguageSums::of(scan));
    let before = sums.between(first.saturating_sub(WINDOW), first);
    let around = before.plus(sums.between(last + 1, last + 1 + WINDOW));
    let count = scan.list().len();
    around.is_other() || around.is_open() && count > 2 * WINDOW && sums.between(0, count).is_other()
}

/// Words of other languages that are names without their accents, or in another language: the lexicon folds accents.
/// Sorted.
static ACCENTED_WORDS: WordSet = WordSet::new(|| words("accented_words"));

/// Turkish words that are given names in languages of western Europe.
const TURKISH_WORDS: &[&str] = &["alan", "ana"];

/// Whether the word at `i` is a common one of another language than English; a few are that in one language, or in one
/// spelling, only.
pub(super) fn is_other_word_at(scan: &ScanState<'_>, i: usize) -> bool {
    let token = &scan.list()[i];
    if is_other_word(token) {
        return true;
    }
    let word = scan.word(token);
    match word.is_ascii() {
        // Italian and Spanish for `uses`: the country is written in capitals.
        true if word == "Usa" => true,
        // Finnish for `cancel`.
        true if word == "Peru" => is_finnish(scan, token.start()),
        true => TURKISH_WORDS.iter().any(|w| word.eq_ignore_ascii_case(w)) && is_turkish(scan, token.start()),
        false => ACCENTED_WORDS.contains(word.to_lowercase().as_str()),
    }
}

/// The text around `at`.
fn bytes_near<'t>(scan: &ScanState<'t>, at: usize) -> &'t [u8] {
    const WINDOW: usize = 160;
    &scan.bytes[at.saturating_sub(WINDOW)..(at + WINDOW).min(scan.bytes.len())]
}

/// Whether two double vowels that other languages rarely have are near.
fn is_finnish(scan: &ScanState<'_>, at: usize) -> bool {
    let around = bytes_near(scan, at);
    ["ää", "aa", "uu", "yy", "ii"].iter().filter(|v| memchr::memmem::find(around, v.as_bytes()).is_some()).count() > 1
}

/// Whether letters that only Turkish and its relatives have are near.
fn is_turkish(scan: &ScanState<'_>, at: usize) -> bool {
    let around = bytes_near(scan, at);
    // ğ, İ, ı, ş
    [[0xc4, 0x9f], [0xc4, 0xb0], [0xc4, 0xb1], [0xc5, 0x9f]].iter().any(|l| memchr::memmem::find(around, l).is_some())
}
