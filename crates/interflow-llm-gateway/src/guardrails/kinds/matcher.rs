//! Words and regular expressions: found in whole texts, and in texts that are still arriving.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use interflow_redact::NormalizedText;
use interflow_types::MaybeFuture;
use regex::Regex;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input};

use super::super::check::{CheckInput, CheckResult, Finding, Guardrail};

/// Memory for one compiled expression, in bytes.
const MAX_REGEX_BYTES: usize = 4 << 20;
/// Memory for the states of one expression in one stream, in bytes.
const MAX_STATE_BYTES: usize = 2 << 20;
/// Findings that are reported of one text; more change nothing but a mask.
const MAX_FINDINGS: usize = 10_000;

/// Compiled expressions, with the state machines that tell whether a match may be in the making.
pub struct TextMatcher {
    expressions: Vec<Expression>,
    /// How long a match in the making is waited for, in bytes.
    window: usize,
    name: &'static str,
    /// Phrases without anything between their words, as they are in a text of which every letter is spelled.
    spelled: Option<Regex>,
}

struct Expression {
    regex: Regex,
    /// `None` if it cannot be built within its memory: then the whole window is waited for.
    prefixes: Option<DFA>,
}

/// The states of a stream: one cache per expression.
pub(in crate::guardrails) struct MatcherCaches(Vec<Option<Cache>>);

impl TextMatcher {
    /// Words and phrases, whatever their case, as whole words.
    ///
    /// # Errors
    /// What is wrong, with the index of the word.
    pub fn words(words: &[String], window: usize) -> Result<Self, String> {
        // One expression for all: a list may have thousands of words.
        let mut alternatives = Vec::with_capacity(words.len());
        let mut prefixes = Vec::with_capacity(words.len());
        let mut spelled = Vec::new();
        for (i, word) in words.iter().enumerate() {
            let plain = word_pattern(word).ok_or_else(|| format!("words[{i}]: it is empty"))?;
            alternatives.push(bounded(word, &plain));
            prefixes.push(plain);
            if word.split_whitespace().nth(1).is_some() {
                let solid: String = word.split_whitespace().collect();
                spelled.push(bounded(&solid, &regex::escape(&solid)));
            }
            // As it reads in a text that is read so.
            for reading in NormalizedText::readings(word, false) {
                if let Some(plain) = word_pattern(&reading.text) {
                    alternatives.push(bounded(&reading.text, &plain));
                    prefixes.push(plain);
                }
            }
        }
        // The longest first, since the first alternative wins.
        alternatives.sort_by_key(|a| std::cmp::Reverse(a.len()));
        let longest = words.iter().map(String::len).max().unwrap_or_default();
        let failed = |e| format!("words: {e}");
        let expression = Expression::new(&join(&alternatives), &join(&prefixes)).map_err(failed)?;
        spelled.sort_by_key(|a| std::cmp::Reverse(a.len()));
        let spelled = (!spelled.is_empty()).then(|| compiled(&join(&spelled))).transpose().map_err(failed)?;
        // White space in a phrase may be longer in the text.
        Ok(Self { expressions: vec![expression], window: window.max(longest * 2), name: "word", spelled })
    }

    /// Regular expressions.
    ///
    /// # Errors
    /// What is wrong, with the index of the expression.
    pub fn patterns(patterns: &[String], window: usize) -> Result<Self, String> {
        let one = |(i, pattern): (usize, &String)| {
            let expression = Expression::new(pattern, pattern).map_err(|e| format!("patterns[{i}]: {e}"))?;
            match expression.regex.is_match("") {
                true => Err(format!("patterns[{i}]: `{pattern}` matches empty text; every text would match")),
                false => Ok(expression),
            }
        };
        let expressions = patterns.iter().enumerate().map(one).collect::<Result<_, _>>()?;
        Ok(Self { expressions, window, name: "pattern", spelled: None })
    }

    /// The matches from this offset on, sorted; look-behind sees what is before it.
    pub(in crate::guardrails) fn find(&self, text: &str, from: usize) -> Vec<(Range<usize>, usize)> {
        let mut matches = Vec::new();
        for (i, expression) in self.expressions.iter().enumerate() {
            let mut at = from;
            while let Some(m) = expression.regex.find_at(text, at).filter(|_| matches.len() < MAX_FINDINGS) {
                at = m.end().max(text.ceil_char_boundary(m.start() + 1));
                if !m.is_empty() {
                    matches.push((m.range(), i));
                }
                if at > text.len() {
                    break;
                }
            }
        }
        matches.sort_by_key(|(range, _)| (range.start, range.end));
        matches
    }

    /// The matches in a text as it is written, and as it reads: without invisible characters, and with look-alikes,
    /// full-width forms and, for words, spelled letters undone.
    pub(in crate::guardrails) fn find_all(&self, text: &str) -> Vec<(Range<usize>, usize)> {
        let mut matches = self.find(text, 0);
        let mut starts: HashSet<(usize, usize)> = matches.iter().map(|(range, i)| (range.start, *i)).collect();
        let is_words = self.name == "word";
        for reading in NormalizedText::readings(text, is_words) {
            let mut more = self.find(&reading.text, 0);
            if let Some(spelled) = &self.spelled {
                let hits = spelled.find_iter(&reading.text).map(|m| (m.range(), 0));
                more.extend(hits.filter(|(range, _)| text.get(reading.original_range(range)).is_some_and(is_spelled)));
            }
            let more = more.into_iter().map(|(range, i)| (reading.original_range(&range), i));
            matches.extend(more.filter(|(range, i)| !range.is_empty() && starts.insert((range.start, *i))));
        }
        // A hyphen that is not shown may be within a word; only between the words of a phrase it stands for a blank.
        if let Some(reading) = NormalizedText::with_blanks(text).filter(|_| self.spelled.is_some()) {
            let mut more = self.find(&reading.text, 0);
            more.retain(|(range, _)| reading.text[range.clone()].contains(char::is_whitespace));
            let more = more.into_iter().map(|(range, i)| (reading.original_range(&range), i));
            matches.extend(more.filter(|(range, i)| starts.insert((range.start, *i))));
        }
        matches.sort_by_key(|(range, _)| (range.start, range.end));
        matches
    }

    pub(in crate::guardrails) const fn window(&self) -> usize {
        self.window
    }

    pub(in crate::guardrails) fn caches(&self) -> MatcherCaches {
        MatcherCaches(self.expressions.iter().map(|e| e.prefixes.as_ref().map(DFA::create_cache)).collect())
    }

    /// Where a match may begin that more text completes or changes; the text's length if nowhere. Nothing before `from`
    /// is considered, nor before the window.
    pub(in crate::guardrails) fn open_from(&self, caches: &mut MatcherCaches, text: &str, from: usize) -> usize {
        let start = text.floor_char_boundary(text.len().saturating_sub(self.window)).max(from);
        let mut open = text.len();
        for (expression, cache) in self.expressions.iter().zip(&mut caches.0) {
            let (Some(dfa), Some(cache)) = (&expression.prefixes, cache) else { return start };
            let begins = text.get(start..open).unwrap_or_default().char_indices().map(|(at, _)| start + at);
            if let Some(at) = begins.into_iter().find(|at| is_open(dfa, cache, text, *at)) {
                open = at;
            }
        }
        open
    }

    pub(in crate::guardrails) fn reason(&self, expression: usize) -> Cow<'static, str> {
        match self.name {
            "word" => "word".into(),
            name => format!("{name} {}", expression + 1).into(),
        }
    }
}

/// Whether something is between all letters of a text.
fn is_spelled(text: &str) -> bool {
    let letters = text.chars().filter(|c| c.is_alphanumeric()).count();
    letters > 1 && text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty()).count() == letters
}

/// Whether a match that begins here may be completed or changed by more text.
fn is_open(dfa: &DFA, cache: &mut Cache, text: &str, at: usize) -> bool {
    let input = Input::new(text).range(at..).anchored(Anchored::Yes);
    let Ok(mut state) = dfa.start_state_forward(cache, &input) else { return true };
    for byte in &text.as_bytes()[at..] {
        match dfa.next_state(cache, state, *byte) {
            Ok(next) if next.is_dead() => return false,
            Ok(next) if !next.is_quit() => state = next,
            // Unknown counts as open: it is only held back.
            _ => return true,
        }
    }
    true
}

impl Expression {
    fn new(pattern: &str, prefixes: &str) -> Result<Self, String> {
        let regex = compiled(pattern)?;
        let config = DFA::config().cache_capacity(MAX_STATE_BYTES).unicode_word_boundary(true);
        let config = config.skip_cache_capacity_check(true);
        let prefixes = DFA::builder().configure(config).build(prefixes).ok();
        Ok(Self { regex, prefixes })
    }
}

fn compiled(pattern: &str) -> Result<Regex, String> {
    let regex = regex::RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).build();
    regex.map_err(|e| e.to_string().trim().to_owned())
}

/// A word as a pattern: its characters, with any white space, hyphens or marks of Markdown between its parts.
fn word_pattern(word: &str) -> Option<String> {
    let parts: Vec<String> = word.split_whitespace().map(regex::escape).collect();
    (!parts.is_empty()).then(|| parts.join(r"[\s_.*~`\p{Pd}]+"))
}

fn join(patterns: &[String]) -> String {
    format!("(?i)(?:{})", patterns.join("|"))
}

/// The pattern with word boundaries, where the word begins or ends with a letter or digit of a script that separates
/// words.
fn bounded(word: &str, pattern: &str) -> String {
    let word = word.trim();
    let separates = |c: Option<char>| c.is_some_and(|c| (c.is_alphanumeric() || c == '_') && !is_unspaced(c));
    let before = if separates(word.chars().next()) { r"\b" } else { "" };
    let after = if separates(word.chars().next_back()) { r"\b" } else { "" };
    format!("{before}{pattern}{after}")
}

/// Scripts that are written without spaces between words: Thai, Lao, Khmer, kana, Chinese characters.
const fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}')
}

/// The kinds `words` and `regex`.
pub(super) struct MatchGuardrail(pub TextMatcher);

impl Guardrail for MatchGuardrail {
    fn check<'a>(&'a self, input: CheckInput<'a>) -> MaybeFuture<'a, CheckResult> {
        let mut findings = Vec::new();
        for (text, _, content) in input.texts() {
            for (range, i) in self.0.find_all(content) {
                findings.push(Finding::new(text, range, 1.0, self.0.reason(i)));
            }
        }
        // A word may be split between two parts of a message, with the space at the edge of one or within the word.
        for joined in ["", " "].into_iter().flat_map(|between| input.joined(between)) {
            for (range, i) in self.0.find_all(&joined.text) {
                let parts = joined.split(&range).into_iter();
                findings.extend(parts.map(|(text, range)| Finding::new(text, range, 1.0, self.0.reason(i))));
            }
        }
        MaybeFuture::Ready(Ok(findings))
    }

    fn matcher(&self) -> Option<&TextMatcher> {
        Some(&self.0)
    }
}

/// The kind `topics`: a text is on a topic if it has enough different words of it.
pub(super) struct TopicGuardrail {
    topics: Vec<(String, TextMatcher)>,
    min_matches: usize,
}

impl TopicGuardrail {
    pub fn new(topics: &std::collections::BTreeMap<String, Vec<String>>, min_matches: usize) -> Result<Self, String> {
        if topics.is_empty() {
            return Err("topics: it is empty; list the words of each topic".into());
        }
        let one = |(name, words): (&String, &Vec<String>)| {
            if words.is_empty() {
                return Err(format!("topics.{name}: it has no words"));
            }
            let matcher = TextMatcher::words(words, 0).map_err(|e| format!("topics.{name}: {e}"))?;
            Ok((name.clone(), matcher))
        };
        let topics = topics.iter().map(one).collect::<Result<_, String>>()?;
        Ok(Self { topics, min_matches: min_matches.max(1) })
    }
}

impl Guardrail for TopicGuardrail {
    fn check<'a>(&'a self, input: CheckInput<'a>) -> MaybeFuture<'a, CheckResult> {
        let mut findings = Vec::new();
        for (text, _, content) in input.texts() {
            for (name, matcher) in &self.topics {
                let matches = matcher.find_all(content);
                let reading =
                    |(range, _): &(Range<usize>, usize)| NormalizedText::new(content.get(range.clone())?).text.into();
                let mut different: Vec<String> = matches.iter().filter_map(reading).collect();
                different.sort_unstable();
                different.dedup();
                if different.len() < self.min_matches {
                    continue;
                }
                // More words make it surer: two of two 0.67, four 0.8.
                let score = different.len() as f64 / (different.len() as f64 + 1.0);
                let reason: Cow<'static, str> = format!("topic {name}").into();
                let finding = |(range, _)| Finding::new(text, range, score, reason.clone());
                findings.extend(matches.into_iter().map(finding));
            }
        }
        MaybeFuture::Ready(Ok(findings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> TextMatcher {
        TextMatcher::words(&list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(), 0).unwrap()
    }

    fn found<'t>(matcher: &TextMatcher, text: &'t str) -> Vec<&'t str> {
        matcher.find_all(text).into_iter().map(|(r, _)| &text[r]).collect()
    }

    #[test]
    fn words_are_whole_words_in_any_case() {
        let matcher = words(&["bank", "Project  Falcon", "C++", "機密"]);
        for (text, expected) in [
            ("The BANK, banks and embankment", vec!["BANK"]),
            ("project\nfalcon begins; ProjectFalcon does not", vec!["project\nfalcon"]),
            ("in C++17", vec!["C++"]),
            ("これは機密です", vec!["機密"]),
            ("bánk", vec![]),
            ("project-falcon and project_falcon", vec!["project-falcon", "project_falcon"]),
            ("a b\u{200b}a\u{ad}nk", vec!["b\u{200b}a\u{ad}nk"]),
            ("ｂａｎｋ", vec!["ｂａｎｋ"]),
            ("my b\u{430}nk", vec!["b\u{430}nk"]),
            ("b\u{336}a\u{336}n\u{336}k\u{336}!", vec!["b\u{336}a\u{336}n\u{336}k\u{336}"]),
            ("ba\u{301}nk", vec!["ba\u{301}nk"]),
            ("b a n k", vec!["b a n k"]),
            ("\u{e0062}\u{e0061}\u{e006e}\u{e006b}", vec!["\u{e0062}\u{e0061}\u{e006e}\u{e006b}"]),
        ] {
            assert_eq!(found(&matcher, text), expected, "{text}");
        }
        assert!(TextMatcher::words(&["a".into(), " ".into()], 0).is_err_and(|e| e.starts_with("words[1]")));
    }

    #[test]
    fn disguised_blanks_of_a_phrase_are_found_and_ordinary_texts_are_not() {
        let matcher = words(&["Project Falcon", "Blue Heron", "ass"]);
        for blank in [
            "\u{200b}",
            "\u{feff}",
            "\u{200d}",
            "\u{ad}",
            "\u{3164}",
            "\u{180e}",
            "\0",
            "** ",
            " `",
            "\u{200b}\u{200b}",
        ] {
            let text = format!("on Project{blank}Falcon now");
            assert_eq!(found(&matcher, &text).len(), 1, "{text:?}");
        }
        for text in [
            "P r o j e c t F a l c o n",
            "now P r o j e c t   F a l c o n now",
            "b-l-u-e h-e-r-o-n",
            "b.l.u.e. h.e.r.o.n",
            "blue h e r o n",
            "the **blue** heron",
        ] {
            assert_eq!(found(&matcher, text).len(), 1, "{text:?}");
        }
        for text in [
            "ProjectFalcon",
            "the falcon project",
            "as\u{ad}sess",
            "Blue herons, Blue Her on",
            "class\0 pass",
            "Blue, heron",
            "a.s.s.e.t",
            "the f a l c o n flies",
        ] {
            assert_eq!(found(&matcher, text), Vec::<&str>::new(), "{text:?}");
        }
    }

    #[test]
    fn bad_expressions_are_named() {
        let fails = |pattern: &str| TextMatcher::patterns(&["a".into(), pattern.into()], 9).err().unwrap_or_default();
        assert!(fails("(").starts_with("patterns[1]: "), "{}", fails("("));
        assert!(fails("a*").contains("matches empty text"));
        assert!(fails(r"(?<=a)b").starts_with("patterns[1]: "));
        assert!(fails(r"\w{1000}{100}").contains("size limit"), "{}", fails(r"\w{1000}{100}"));
    }

    #[test]
    fn only_what_may_be_part_of_a_match_is_open() {
        let open =
            |matcher: &TextMatcher, text: &str| text[matcher.open_from(&mut matcher.caches(), text, 0)..].to_owned();
        let matcher = words(&["project falcon", "secret"]);
        for (text, expected) in [
            ("nothing here", ""),
            ("the Proj", "Proj"),
            ("the project  fal", "project  fal"),
            ("a secret", "secret"),
            ("a secretary", ""),
            ("", ""),
        ] {
            // A word that has ended is only known to have with the next character.
            assert_eq!(open(&matcher, text), expected, "{text}");
        }
        let digits = TextMatcher::patterns(&[r"\d{4}-\d{4}".into(), "x+".into()], 8).unwrap();
        assert_eq!(open(&digits, "id 1234-5"), "1234-5");
        assert_eq!(open(&digits, "id 1234-a"), "");
        assert_eq!(open(&digits, &"x".repeat(100)).len(), 8, "no longer than the window");
    }
}
