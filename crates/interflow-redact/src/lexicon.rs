//! The lexicon: marks and topics of a word (name, town, street word, honorific, ...), in one lookup.
//!
//! The build script writes a hash table of 2^19 slots with open addressing; a slot has a fingerprint of the word's hash
//! and the number of its class, and a class has marks and topics. Words themselves are not stored, so an unknown word
//! has the entry of a known one with a probability of about one in half a million per probed slot.

mod hash;

pub use hash::{fingerprint, hash, hash_letters};
use unicode_normalization::char::decompose_canonical;

include!(concat!(env!("OUT_DIR"), "/flags.rs"));

static TABLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lexicon.bin"));

/// Bits of a slot for the class; the rest is the fingerprint.
const CLASS_BITS: u32 = 12;
const SLOTS: usize = 1 << 19;

/// The slots, at the end of the table.
static SLOT_TABLE: &[[u8; 4]; SLOTS] = {
    let Some(bytes) = TABLE.last_chunk::<{ SLOTS * 4 }>() else { panic!("the build script writes this many slots") };
    let Some(slots) = bytes.as_chunks::<4>().0.first_chunk::<SLOTS>() else { panic!("four bytes to a slot") };
    slots
};

/// What the lexicon says about a word: bit sets of marks and of topics, zero for an unknown word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LexiconEntry {
    pub marks: u32,
    pub topics: u32,
}

/// A number of the table in little endian; 0 beyond its end.
fn u32_at(at: usize) -> u32 {
    TABLE.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The class of the word with this hash after [`hash::finish`]; 0 if unknown.
pub fn class_of(finished: u64) -> u16 {
    let expected = fingerprint(finished);
    let mut slot = finished as usize & (SLOTS - 1);
    loop {
        let value = u32::from_le_bytes(SLOT_TABLE[slot & (SLOTS - 1)]);
        if value == 0 {
            return 0;
        }
        if value >> CLASS_BITS == expected {
            return (value & ((1 << CLASS_BITS) - 1)) as u16;
        }
        slot = (slot + 1) & (SLOTS - 1);
    }
}

pub fn entry_of(class: u16) -> LexiconEntry {
    if class == 0 {
        return LexiconEntry::default();
    }
    let at = 4 + (usize::from(class) - 1) * 8;
    LexiconEntry { marks: u32_at(at), topics: u32_at(at + 4) }
}

/// The entry for a word or a phrase, ignoring case and accents.
pub fn look_up(text: &str) -> LexiconEntry {
    let mut folded = CaseFolded::default();
    folded.push(text);
    entry_of(folded.class())
}

/// Maximum length of an entry in folded bytes; a longer text is unknown.
const MAX_ENTRY_BYTES: usize = 96;

/// A word or a phrase in folded form, on the stack.
pub struct CaseFolded {
    bytes: [u8; MAX_ENTRY_BYTES],
    len: usize,
}

impl Default for CaseFolded {
    fn default() -> Self {
        Self { bytes: [0; MAX_ENTRY_BYTES], len: 0 }
    }
}

impl CaseFolded {
    pub fn push(&mut self, text: &str) {
        fold_into(text, &mut |b| self.byte(b));
    }

    pub fn byte(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
        }
        // Counted even if it did not fit, so that a text that is too long is not taken for its beginning.
        self.len += 1;
    }

    /// The class of the accumulated text; 0 if it is unknown or too long.
    pub fn class(&self) -> u16 {
        self.bytes.get(..self.len).map_or(0, |folded| class_of(hash(folded)))
    }
}

/// Passes the folded form of a text (lower case, no accents) to `sink` byte by byte.
pub fn fold_into(text: &str, sink: &mut impl FnMut(u8)) {
    if text.is_ascii() {
        text.bytes().for_each(|b| sink(b.to_ascii_lowercase()));
        return;
    }
    for c in text.chars() {
        fold_char(c, sink);
    }
}

/// One character without case and accents; letters of other scripts than Latin, Greek and Cyrillic only lose their case.
fn fold_char(c: char, sink: &mut impl FnMut(u8)) {
    if c.is_ascii() {
        return sink(c.to_ascii_lowercase() as u8);
    }
    if let Some(plain) = plain_spelling(c) {
        return plain.bytes().for_each(sink);
    }
    let mut fold = |part: char| {
        for lower in part.to_lowercase().filter(|l| !is_combining(*l)) {
            lower.encode_utf8(&mut [0; 4]).bytes().for_each(&mut *sink);
        }
    };
    match c {
        '\u{c0}'..='\u{52f}' | '\u{1e00}'..='\u{1fff}' => decompose_canonical(c, fold),
        _ => fold(c),
    }
}

/// Combining diacritical marks (U+0300 to U+036F).
pub fn is_combining(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

/// The letters that commonly replace a Latin letter without a decomposition.
fn plain_spelling(c: char) -> Option<&'static str> {
    Some(match c {
        'Æ' | 'æ' => "ae",
        'Đ' | 'đ' | 'Ð' | 'ð' => "d",
        'ə' | 'Ə' => "e",
        'Ħ' | 'ħ' => "h",
        'ı' => "i",
        'Ŀ'..='ł' => "l",
        'ŉ' | 'Ŋ' | 'ŋ' => "n",
        'Ø' | 'ø' => "o",
        'Œ' | 'œ' => "oe",
        'ß' | 'ẞ' => "ss",
        'Ŧ' | 'ŧ' => "t",
        'Þ' | 'þ' => "th",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_any_case_and_with_accents() {
        for (word, marks) in [
            ("Maria", mark::FIRST),
            ("MARIA", mark::FIRST),
            ("García", mark::LAST),
            ("garcia", mark::LAST),
            ("München", mark::PLACE),
            ("new york", mark::REGION),
            ("Germany", mark::REGION),
            ("street", mark::STREET_SUFFIX),
            ("the", mark::STOP),
            ("Dr", mark::HONORIFIC),
            ("kubernetes", mark::TECH),
        ] {
            assert_eq!(look_up(word).marks & marks, marks, "{word}");
        }
        assert_eq!(look_up("passwd").topics, topic::PASSWORD);
        assert_eq!(look_up("qzxv"), LexiconEntry::default());
    }

    #[test]
    fn first_word_of_a_phrase_is_marked() {
        assert_ne!(look_up("san").marks & mark::PHRASE, 0);
    }
}
