//! The lexical guard: two texts with a high similarity still ask for different things if they differ in a number, a
//! negation, an identifier or a name, which embeddings hardly notice.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use serde::Deserialize;

/// Words that change what a text asks for.
#[derive(Deserialize)]
struct GuardWords {
    /// Words that deny, of the languages that embedding models are mostly asked in.
    negations: HashSet<String>,
    /// Numbers in words, with the digits that they stand for.
    numbers: HashMap<String, String>,
    /// Words of which one turns a question into that for the other.
    opposites: Vec<(String, String)>,
}

static WORDS: LazyLock<GuardWords> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../data/cache_guard.json")).expect("a test reads the words")
});

/// What two texts have to share to be taken for the same question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextFeatures {
    /// Digits and words for numbers, in order.
    numbers: Vec<String>,
    negations: usize,
    /// Quoted texts, and words that are no plain words: `snake_case`, `camelCase`, `a.b`, `x86`, `HTTP`.
    identifiers: BTreeSet<String>,
    /// Words with a capital inside a sentence, in lower case.
    names: BTreeSet<String>,
    /// All words, in lower case and in order.
    words: Vec<String>,
}

impl TextFeatures {
    pub fn of(text: &str) -> Self {
        let mut features = Self::default();
        features.add_quoted(text);
        let mut begins_sentence = true;
        for token in text.split_whitespace() {
            features.add(token, begins_sentence);
            begins_sentence = token.ends_with(['.', '!', '?', ':', '\n']);
        }
        features
    }

    /// Why two texts are not the same question; `None` if nothing says so.
    pub fn conflict(&self, other: &Self) -> Option<&'static str> {
        if self.numbers != other.numbers {
            return Some("number");
        }
        if self.negations != other.negations {
            return Some("negation");
        }
        if self.identifiers != other.identifiers {
            return Some("identifier");
        }
        // A name may begin a sentence in one text and not in the other.
        let has_all = |names: &Self, words: &Self| names.names.iter().all(|name| words.words.contains(name));
        if !has_all(self, other) || !has_all(other, self) {
            return Some("name");
        }
        // From London to Madrid is not from Madrid to London.
        let order = |text: &Self| -> Vec<String> {
            let is_name = |word: &&String| self.names.contains(*word) || other.names.contains(*word);
            text.words.iter().filter(is_name).cloned().collect()
        };
        if order(self) != order(other) {
            return Some("name");
        }
        let has = |text: &Self, word: &str| text.words.iter().any(|w| w == word);
        let only =
            |one: &Self, two: &Self, a: &str, b: &str| has(one, a) && !has(one, b) && has(two, b) && !has(two, a);
        let turned = WORDS.opposites.iter().any(|(a, b)| only(self, other, a, b) || only(other, self, a, b));
        turned.then_some("opposite")
    }

    fn add(&mut self, token: &str, begins_sentence: bool) {
        let trimmed = token.trim_matches(|c: char| !c.is_alphanumeric() && !"-+%$€£#@/_".contains(c));
        let word = trimmed.trim_end_matches("'s").trim_end_matches("’s");
        if word.is_empty() {
            return;
        }
        let lower = word.to_lowercase();
        if word.chars().any(|c| c.is_ascii_digit()) {
            return self.add_number(word, &lower);
        }
        let parts: Vec<&str> = lower.split('-').filter(|part| !part.is_empty()).collect();
        self.numbers.extend(parts.iter().filter_map(|part| WORDS.numbers.get(*part).cloned()));
        let plain = lower.replace('’', "'");
        if WORDS.negations.contains(&plain) || plain.ends_with("n't") {
            self.negations += 1;
        }
        if is_identifier(word) {
            self.identifiers.insert(word.to_owned());
        } else if word.chars().next().is_some_and(char::is_uppercase) && !begins_sentence && lower != "i" {
            self.names.insert(lower.clone());
        }
        self.words.push(lower);
    }

    /// `1,000` and `1000` are the same number; `3.5`, `x86` and `2024-01-02` stay as they are.
    fn add_number(&mut self, word: &str, lower: &str) {
        let digits = lower.replace(',', "");
        let is_number = digits.chars().all(|c| c.is_ascii_digit() || ".%$€£+-".contains(c));
        if is_number {
            self.numbers.push(digits.trim_end_matches('.').to_owned());
        } else {
            self.identifiers.insert(word.to_owned());
        }
    }

    fn add_quoted(&mut self, text: &str) {
        for (open, close) in [('`', '`'), ('"', '"'), ('“', '”'), ('«', '»'), ('„', '“')] {
            let mut rest = text;
            while let Some((_, after)) = rest.split_once(open) {
                let Some((inner, behind)) = after.split_once(close) else { break };
                self.identifiers.insert(inner.trim().to_owned());
                rest = behind;
            }
        }
    }
}

/// Whether a word is not a plain word: it has signs or capitals inside.
fn is_identifier(word: &str) -> bool {
    let inside = word.char_indices().skip(1);
    let has_capital = inside.clone().any(|(_, c)| c.is_uppercase());
    let has_sign = word.contains(['_', '/', '@', '#', '.', ':', '=', '<', '>', '(', '{', '[', '\\']);
    has_capital || word.starts_with('-') || has_sign && word.chars().any(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_ask_for_different_things_conflict() {
        for (a, b, expected) in [
            ("What is 15% of 200?", "What is 15% of 300?", Some("number")),
            ("Give me three tips", "Give me five tips", Some("number")),
            ("Can I take it with food?", "Can't I take it with food?", Some("negation")),
            ("Is it safe?", "Is it not safe?", Some("negation")),
            ("What does `foo_bar` do?", "What does `foo_baz` do?", Some("identifier")),
            ("What does getUser return?", "What does getUsers return?", Some("identifier")),
            ("Explain HTTP", "Explain FTP", Some("identifier")),
            ("Weather in Paris", "Weather in Rome", Some("name")),
            ("Flights from Oslo to Rome", "Flights from Rome to Oslo", Some("name")),
            ("What does --force do?", "What does --force-with-lease do?", Some("identifier")),
            ("How do I enable it?", "How do I disable it?", Some("opposite")),
            ("How do I reset my password?", "How can I reset a password?", None),
            ("What is the capital of France?", "France's capital is what?", None),
            ("A thousand 1,000", "a thousand 1000", None),
            ("Who wrote \"Emma\"?", "Who wrote “Emma”?", None),
            ("Is it two?", "Is it 2?", None),
        ] {
            let (a_features, b_features) = (TextFeatures::of(a), TextFeatures::of(b));
            assert_eq!(a_features.conflict(&b_features), expected, "{a} / {b}: {a_features:?} {b_features:?}");
            assert_eq!(b_features.conflict(&a_features), expected, "{b} / {a}");
        }
    }
}
