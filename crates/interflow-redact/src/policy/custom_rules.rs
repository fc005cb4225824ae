//! Custom terms, patterns and sections of a policy.

use aho_corasick::AhoCorasick;
use regex::Regex;

use crate::detect::Finding;
use crate::detect::check_digits;
use crate::policy::PatternValidator;
use crate::text::normalized_text::normalize;
use crate::{Kind, RedactError, Result};

/// The custom rules of a policy, prepared for search. Each finding refers to its rule by index.
#[derive(Debug, Default)]
pub(crate) struct CustomRules {
    exact: TermSet,
    folded: TermSet,
    fuzzy: Vec<FuzzyTerm>,
    pub patterns: Vec<CustomPattern>,
    pub sections: Vec<CustomSection>,
}

/// Terms in one automaton.
#[derive(Debug, Default)]
struct TermSet {
    terms: Vec<(String, u16)>,
    matcher: Option<AhoCorasick>,
}

/// A term of several words in lower case with their lengths in characters; all together may have `distance` wrong letters.
#[derive(Debug)]
struct FuzzyTerm {
    words: Vec<(String, usize)>,
    rule: u16,
    distance: usize,
}

/// A pattern with its capture group and validator.
#[derive(Debug)]
pub(crate) struct CustomPattern {
    pub regex: Regex,
    pub group: usize,
    pub validator: Option<PatternValidator>,
    pub rule: u16,
}

/// A section between two markers, which belong to it.
#[derive(Debug)]
pub(crate) struct CustomSection {
    pub start: Regex,
    pub end: Regex,
    pub rule: u16,
}

impl CustomRules {
    /// A literal term, which is searched in normalized texts.
    pub fn add_term(&mut self, term: &str, case_sensitive: bool, rule: u16) {
        let term = normalize(term).0;
        let term = term.trim();
        if term.is_empty() {
            return;
        }
        if case_sensitive {
            self.exact.terms.push((term.to_owned(), rule));
        } else {
            self.folded.terms.push((folded(term), rule));
        }
    }

    /// A term with up to `distance` wrong letters (Damerau-Levenshtein, in characters).
    pub fn add_fuzzy(&mut self, term: &str, distance: usize, rule: u16) {
        let words: Vec<_> = lower_words(&normalize(term).0).map(|(_, _, word, length)| (word, length)).collect();
        if !words.is_empty() {
            self.fuzzy.push(FuzzyTerm { words, rule, distance });
        }
    }

    /// Builds the automata. Must be called after the last term.
    pub fn finish(&mut self) -> Result<()> {
        for set in [&mut self.exact, &mut self.folded].into_iter().filter(|set| !set.terms.is_empty()) {
            let built = AhoCorasick::new(set.terms.iter().map(|(t, _)| t.as_str()));
            set.matcher = Some(built.map_err(|e| RedactError::Policy(format!("the terms cannot be used: {e}")))?);
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.exact.terms.is_empty()
            && self.folded.terms.is_empty()
            && self.fuzzy.is_empty()
            && self.patterns.is_empty()
            && self.sections.is_empty()
    }

    /// Adds the findings of all rules; they may overlap.
    pub fn find(&self, text: &str, found: &mut Vec<Finding>) {
        self.find_terms(text, found);
        for pattern in &self.patterns {
            for captures in pattern.regex.captures_iter(text) {
                // Without such a group in this match, the whole match counts.
                let Some(m) = captures.get(pattern.group).or_else(|| captures.get(0)).filter(|m| !m.is_empty()) else {
                    continue;
                };
                if pattern.validator.is_none_or(|v| passes_check(v, m.as_str())) {
                    found.push(Finding { rule: pattern.rule, ..Finding::new(Kind::Identifier, m.range(), 90) });
                }
            }
        }
        for section in &self.sections {
            section.find(text, found);
        }
    }

    /// Adds the findings of terms alone.
    pub fn find_terms(&self, text: &str, found: &mut Vec<Finding>) {
        self.exact.find(text, found);
        if self.folded.matcher.is_some() {
            self.folded.find(&folded(text), found);
        }
        self.find_fuzzy(text, found);
    }

    fn find_fuzzy(&self, text: &str, found: &mut Vec<Finding>) {
        if self.fuzzy.is_empty() {
            return;
        }
        let words: Vec<_> = lower_words(text).collect();
        for fuzzy in &self.fuzzy {
            for window in words.windows(fuzzy.words.len()) {
                let pairs = || fuzzy.words.iter().zip(window);
                // The cheap comparison of lengths comes first.
                if pairs().map(|(a, b)| a.1.abs_diff(b.3)).sum::<usize>() > fuzzy.distance {
                    continue;
                }
                let total: usize = pairs().map(|(a, b)| strsim::damerau_levenshtein(&a.0, &b.2)).sum();
                if total <= fuzzy.distance {
                    let (range, sure) = (window[0].0..window[window.len() - 1].1, if total == 0 { 90 } else { 70 });
                    found.push(Finding { rule: fuzzy.rule, ..Finding::new(Kind::Custom, range, sure) });
                }
            }
        }
    }
}

/// In lower case, but for the few letters whose length in bytes would change, so that offsets stay.
fn folded(text: &str) -> String {
    let lower = |c: char| c.to_lowercase().next().filter(|l| l.len_utf8() == c.len_utf8()).unwrap_or(c);
    text.chars().map(lower).collect()
}

impl TermSet {
    fn find(&self, text: &str, found: &mut Vec<Finding>) {
        let Some(matcher) = &self.matcher else { return };
        // Overlapping ones too: a longer term that is cut must not hide a shorter one that is not.
        for m in matcher.find_overlapping_iter(text) {
            let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            // A term counts only at word boundaries, unless it begins or ends with punctuation itself.
            let inside = |c: Option<char>, edge: Option<char>| word(c) && word(edge);
            let term = &text[m.range()];
            let cut = inside(text[..m.start()].chars().next_back(), term.chars().next())
                || inside(text[m.end()..].chars().next(), term.chars().next_back());
            if !cut {
                let rule = self.terms[m.pattern().as_usize()].1;
                found.push(Finding { rule, ..Finding::new(Kind::Custom, m.range(), 95) });
            }
        }
    }
}

impl CustomSection {
    fn find(&self, text: &str, found: &mut Vec<Finding>) {
        let mut from = 0;
        while let Some(start) = self.start.find_at(text, from) {
            // An unterminated section extends to the end of the text.
            let end = self.end.find_at(text, start.end()).map_or(text.len(), |e| e.end());
            if end > start.start() {
                found.push(Finding { rule: self.rule, ..Finding::new(Kind::Section, start.start()..end, 99) });
            }
            if end >= text.len() {
                break;
            }
            from = end.max(start.end() + usize::from(start.is_empty()));
        }
    }
}

/// The words of a text with their offsets, in lower case, and their lengths in characters.
fn lower_words(text: &str) -> impl Iterator<Item = (usize, usize, String, usize)> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(|w| {
        let start = w.as_ptr() as usize - text.as_ptr() as usize;
        let lower = w.to_lowercase();
        let length = lower.chars().count();
        (start, start + w.len(), lower, length)
    })
}

/// Whether a value passes the pattern's validator.
fn passes_check(validator: PatternValidator, value: &str) -> bool {
    let upper: Vec<u8> = value.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_uppercase()).collect();
    let digits: Vec<u8> = upper.iter().filter(|b| b.is_ascii_digit()).map(|b| b - b'0').collect();
    match validator {
        PatternValidator::Luhn => check_digits::luhn(&digits),
        PatternValidator::Verhoeff => check_digits::verhoeff(&digits),
        // The French NIR has its two check digits at the end.
        PatternValidator::Mod97 if upper.len() == 15 && upper[0].is_ascii_digit() => check_digits::nir(&upper),
        PatternValidator::Bic => check_digits::bic(&upper),
        PatternValidator::Personalausweis => check_digits::german_id_card(&upper),
        PatternValidator::EsCif => check_digits::cif(&upper),
        PatternValidator::Mod97 => {
            upper.len() > 4 && check_digits::mod97(upper[4..].iter().chain(&upper[..4]).copied()) == Some(1)
        }
        PatternValidator::Mod11 => check_digits::mod11(&digits),
        PatternValidator::Iso7064 => check_digits::mod11_10(&digits),
        PatternValidator::Mod23Letter => check_digits::mod23_letter(&upper),
        PatternValidator::Vin => check_digits::vin(&upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(custom: &mut CustomRules, text: &str) -> Vec<String> {
        custom.finish().expect("terms");
        let mut found = Vec::new();
        custom.find(text, &mut found);
        found.iter().map(|f| text[f.start..f.end].to_owned()).collect()
    }

    #[test]
    fn terms_are_whole_words_in_any_case() {
        let mut custom = CustomRules::default();
        custom.add_term("Blue Falcon", false, 0);
        custom.add_term("ACME", true, 0);
        assert_eq!(
            find(&mut custom, "blue falcon, BLUE FALCON; ACME acme ACMEs blue falcons"),
            ["ACME", "blue falcon", "BLUE FALCON"]
        );
    }

    #[test]
    fn case_is_ignored_in_every_script() {
        let mut custom = CustomRules::default();
        ["Özil", "Иванов", "İnan"].iter().for_each(|term| custom.add_term(term, false, 0));
        assert_eq!(find(&mut custom, "Özil ÖZIL özil Иванов ИВАНОВ İnan").len(), 6);
    }

    #[test]
    fn a_longer_term_that_is_cut_hides_no_shorter_one() {
        for case_sensitive in [true, false] {
            let mut custom = CustomRules::default();
            ["Acme", "Acme Co", "and Acme"].iter().for_each(|term| custom.add_term(term, case_sensitive, 0));
            assert_eq!(find(&mut custom, "Acme Corp, Grand Acme"), ["Acme", "Acme"]);
        }
    }

    #[test]
    fn fuzzy_terms_tolerate_a_typo() {
        let mut custom = CustomRules::default();
        custom.add_fuzzy("Blue Falcon", 1, 0);
        assert_eq!(find(&mut custom, "the blue flacon and the blue fan"), ["blue flacon"]);
    }

    #[test]
    fn lengths_of_fuzzy_terms_are_compared_in_characters() {
        let mut custom = CustomRules::default();
        custom.add_fuzzy("Иванов", 1, 0);
        custom.add_fuzzy("O'Neil-Berg", 1, 0);
        assert_eq!(find(&mut custom, "Ивановв, Иванововв, O'Neil-Bergg"), ["Ивановв", "O'Neil-Bergg"]);
    }

    #[test]
    fn terms_are_compared_as_texts_are_read() {
        let mut custom = CustomRules::default();
        for (term, case_sensitive) in [("Zo\u{308}rbiq", false), ("Blue \u{2013} Falcon", true), ("ＡＣＭＥ", false)]
        {
            custom.add_term(term, case_sensitive, 0);
        }
        assert_eq!(find(&mut custom, "Zörbiq, Blue - Falcon, Acme"), ["Blue - Falcon", "Zörbiq", "Acme"]);
    }

    #[test]
    fn sections_extend_to_their_end_marker_or_the_end_of_text() {
        let mut custom = CustomRules::default();
        let regex = |p: &str| Regex::new(p).expect("a pattern");
        custom.sections.push(CustomSection { start: regex("BEGIN"), end: regex("END"), rule: 0 });
        assert_eq!(find(&mut custom, "a BEGIN b END c BEGIN d"), ["BEGIN b END", "BEGIN d"]);
    }
}
