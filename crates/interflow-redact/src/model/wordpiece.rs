//! The WordPiece tokenizer of BERT and its relatives, from a `tokenizer.json`. Words keep their place in the text, so that
//! what the model says of a word can be found again.

use std::collections::HashMap;
use std::ops::Range;

use serde::Deserialize;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// A word of a text: its bytes, and its pieces in [`WordList::ids`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub bytes: Range<usize>,
    pub pieces: Range<usize>,
}

/// The words of a text with the ids of their pieces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WordList {
    pub words: Vec<Word>,
    pub ids: Vec<i32>,
}

#[derive(Debug)]
pub(super) struct WordPiece {
    vocabulary: HashMap<String, i32>,
    prefix: String,
    unknown: i32,
    /// The ids before and after the pieces of a window.
    pub first: i32,
    pub last: i32,
    longest_word: usize,
    lower_case: bool,
    strip_accents: bool,
}

#[derive(Deserialize)]
struct TokenizerFile {
    normalizer: Option<NormalizerFile>,
    model: ModelFile,
}

#[derive(Deserialize)]
struct NormalizerFile {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    lowercase: bool,
    strip_accents: Option<bool>,
}

#[derive(Deserialize)]
struct ModelFile {
    /// Absent in files of old versions of the library that writes them.
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    vocab: serde_json::Value,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    max_input_chars_per_word: Option<usize>,
}

impl WordPiece {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// It is not one, or not one of WordPiece; the message has no file name.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let file: TokenizerFile = serde_json::from_slice(json).map_err(|e| format!("no tokenizer.json: {e}"))?;
        if let Some(kind) = file.model.kind.as_deref().filter(|k| *k != "WordPiece") {
            return Err(format!("its tokens are of the type {kind}; only models with WordPiece (BERT) are supported"));
        }
        let normalizer = file.normalizer;
        if let Some(other) = normalizer.as_ref().filter(|n| n.kind != "BertNormalizer" && n.kind != "Lowercase") {
            return Err(format!("its normalizer {} is not supported; only BertNormalizer is", other.kind));
        }
        let lower_case = normalizer.as_ref().is_some_and(|n| n.lowercase || n.kind == "Lowercase");
        let bert = normalizer.as_ref().is_some_and(|n| n.kind == "BertNormalizer");
        let strip_accents = normalizer.and_then(|n| n.strip_accents).unwrap_or(lower_case && bert);
        let vocabulary: HashMap<String, i32> =
            serde_json::from_value(file.model.vocab).map_err(|e| format!("its vocabulary cannot be read: {e}"))?;
        let id = |token: &str| vocabulary.get(token).copied().ok_or(format!("its vocabulary lacks {token}"));
        let unknown = id(file.model.unk_token.as_deref().unwrap_or("[UNK]"))?;
        let (first, last) = (id("[CLS]")?, id("[SEP]")?);
        Ok(Self {
            vocabulary,
            prefix: file.model.continuing_subword_prefix.unwrap_or_else(|| "##".into()),
            unknown,
            first,
            last,
            longest_word: file.model.max_input_chars_per_word.unwrap_or(100),
            lower_case,
            strip_accents,
        })
    }

    /// The words of a text, each with at least one piece.
    pub fn split(&self, text: &str) -> WordList {
        let mut list = WordList::default();
        let mut begin = None;
        for (at, c) in text.char_indices() {
            let alone = is_punctuation(c) || is_ideograph(c);
            if alone || c.is_whitespace() || is_ignored(c) {
                if let Some(begin) = begin.take() {
                    self.push(text, begin..at, &mut list);
                }
                if alone {
                    self.push(text, at..at + c.len_utf8(), &mut list);
                }
            } else {
                begin.get_or_insert(at);
            }
        }
        if let Some(begin) = begin {
            self.push(text, begin..text.len(), &mut list);
        }
        list
    }

    fn push(&self, text: &str, bytes: Range<usize>, list: &mut WordList) {
        let from = list.ids.len();
        let word = self.normalize(&text[bytes.clone()]);
        if !self.pieces(&word, &mut list.ids) {
            list.ids.truncate(from);
            list.ids.push(self.unknown);
        }
        list.words.push(Word { bytes, pieces: from..list.ids.len() });
    }

    fn normalize(&self, word: &str) -> String {
        match (self.lower_case, self.strip_accents) {
            (false, false) => word.to_owned(),
            (true, false) => word.to_lowercase(),
            (false, true) => word.nfd().filter(|c| !is_combining_mark(*c)).collect(),
            (true, true) => word.nfd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase).collect(),
        }
    }

    /// The longest known pieces from left to right; false if a part of the word has none.
    fn pieces(&self, word: &str, ids: &mut Vec<i32>) -> bool {
        // Bounds the quadratic search below.
        if word.is_empty() || word.chars().count() > self.longest_word.min(200) {
            return false;
        }
        let mut from = 0;
        let mut piece = String::new();
        while from < word.len() {
            let ends = word[from..].char_indices().rev().map(|(at, c)| from + at + c.len_utf8());
            let longest = ends.into_iter().find_map(|end| {
                piece.clear();
                if from > 0 {
                    piece.push_str(&self.prefix);
                }
                piece.push_str(&word[from..end]);
                self.vocabulary.get(&piece).map(|id| (end, *id))
            });
            let Some((end, id)) = longest else { return false };
            ids.push(id);
            from = end;
        }
        true
    }
}

/// Punctuation and signs: a word of their own each.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(c, '¡' | '§' | '«' | '¶' | '·' | '»' | '¿' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}'
            | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{ff01}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff20}')
}

/// Chinese characters: BERT reads each as a word.
fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2fa1f}')
}

fn is_ignored(c: char) -> bool {
    c.is_control() || c == '\u{fffd}'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokenizer(normalizer: &str) -> WordPiece {
        let vocabulary = r###"{"[UNK]":0,"[CLS]":1,"[SEP]":2,"anna":3,"##belle":4,"b":5,"##erg":6,"'":7,",":8,"e":9,"A":10,"x":11,"##x":12}"###;
        WordPiece::parse(
            format!(r#"{{"normalizer":{normalizer},"model":{{"type":"WordPiece","vocab":{vocabulary}}}}}"#).as_bytes(),
        )
        .unwrap()
    }

    const UNCASED: &str = r#"{"type":"BertNormalizer","lowercase":true,"strip_accents":null}"#;

    #[test]
    fn words_have_their_pieces_and_their_place() {
        let text = "Annabelle, \u{c9} 'B\u{e9}rg' Zz";
        let list = tokenizer(UNCASED).split(text);
        let words: Vec<(&str, &[i32])> =
            list.words.iter().map(|w| (&text[w.bytes.clone()], &list.ids[w.pieces.clone()])).collect();
        let expected: [(&str, &[i32]); 7] = [
            ("Annabelle", &[3, 4]),
            (",", &[8]),
            ("\u{c9}", &[9]),
            ("'", &[7]),
            ("B\u{e9}rg", &[5, 6]),
            ("'", &[7]),
            ("Zz", &[0]),
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_cased_model_sees_the_case() {
        let list =
            tokenizer(r#"{"type":"BertNormalizer","lowercase":false,"strip_accents":null}"#).split("A a anna Anna");
        assert_eq!(list.ids, [10, 0, 3, 0]);
    }

    #[test]
    fn a_word_longer_than_the_limit_is_unknown() {
        let list = tokenizer(UNCASED).split(&format!("{} {}", "x".repeat(100), "x".repeat(101)));
        assert_eq!((list.ids.len(), list.words[1].pieces.clone()), (101, 100..101));
    }

    #[test]
    fn other_tokenizers_are_refused_with_the_cause() {
        for (file, said) in [
            (r#"{"model":{"type":"BPE","vocab":{}}}"#, "type BPE"),
            (r#"{"model":{"type":"WordPiece","vocab":{}}}"#, "lacks [UNK]"),
            (r#"{"normalizer":{"type":"NFKC"},"model":{"type":"WordPiece","vocab":{}}}"#, "NFKC"),
            ("[]", "no tokenizer.json"),
        ] {
            let error = WordPiece::parse(file.as_bytes()).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_split_into_words_in_order(text in "\\PC{0,60}") {
            let list = tokenizer(UNCASED).split(&text);
            let mut reach = (0, 0);
            for word in &list.words {
                prop_assert!(word.bytes.start >= reach.0 && !text[word.bytes.clone()].is_empty());
                prop_assert!(word.pieces.start == reach.1 && !word.pieces.is_empty());
                reach = (word.bytes.end, word.pieces.end);
            }
            prop_assert_eq!(reach.1, list.ids.len());
        }
    }
}
