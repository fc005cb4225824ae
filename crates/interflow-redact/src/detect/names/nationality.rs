//! Nationalities and religions, as statements about a person.

use super::super::ScanState;
use super::context_cues::is_in_code;
use crate::Kind;
use crate::lexicon::look_up;
use crate::lexicon::mark::*;
use crate::text::token::{TokenShape, short_lower};
use crate::word_lists::{WordList, WordSet, words};

/// Reports the nationality at token `i`: surer when it is said of a person than as the name of a language.
pub(super) fn report_nationality(scan: &mut ScanState<'_>, i: usize) {
    let token = scan.list()[i];
    if !token.has(NRP) || token.len() <= 3 {
        return;
    }
    let confidence = match (belongs_to_person(scan, i), is_language_name(scan.word(&token))) {
        (true, _) => 65,
        // A language, or something named after a country: `English`, `French`.
        (false, true) => 40,
        (false, false) if is_in_code(scan, i, i) => 40,
        (false, false) => 55,
    };
    scan.push(Kind::Nationality, token.start(), token.end(), confidence);
}

/// `I am cambodian`, `we are proud saudis`: in lower case, and in the plural, only as what people say of themselves.
pub(super) fn report_stated_nationality(scan: &mut ScanState<'_>, i: usize) {
    let token = scan.list()[i];
    let mut buffer = [0; 8];
    let before = i.checked_sub(1).map_or("", |p| short_lower(scan.word(&scan.list()[p]), &mut buffer));
    let stated = match before {
        "am" | "m" | "proud" => true,
        "are" => scan.near_word(i, &["we", "they"], 2, 0),
        _ => false,
    };
    if !stated || scan.gap_before(i) != " " || token.len() <= 3 {
        return;
    }
    let singular = || scan.word(&token).strip_suffix('s').map_or(0, |word| look_up(word).marks);
    if token.has(NRP) || singular() & NRP != 0 {
        scan.push(Kind::Nationality, token.start(), token.end(), 65);
    }
}

/// Nouns after a nationality that make it that of a person.
static PERSON_NOUNS: WordList = WordList::new(|| words("person_nouns"));

/// `I am Swedish`, `a Spanish citizen`, `nationality: Greek`: about a person, not a language or a dish.
fn belongs_to_person(scan: &ScanState<'_>, i: usize) -> bool {
    let of = ["nationality", "citizenship", "religion", "ethnicity", "am", "m", "born", "practicing", "devout"];
    let pronoun = scan.near_word(i, &["he", "she", "they", "who", "i", "we"], 3, 0)
        && scan.near_word(i, &["is", "was", "are", "am", "were", "m", "re", "s"], 2, 0);
    let next = scan.token(i + 1).filter(|_| scan.gap(i) == " ");
    let worker = next.is_some_and(|t| t.has(JOB | RELATION) && t.shape == TokenShape::Lower);
    // `She is 40, Polish, and teaches`: refers to the preceding person.
    let aside = matches!(scan.gap(i), ", " | "." | "; ")
        && scan.near_word(i, &["is", "was", "am", "are", "old"], 5, 0)
        && !scan.near_word(i, &["in", "into", "from", "language", "languages", "to", "speaks", "spoken"], 4, 2);
    scan.near_word(i, &of, 2, 0) || scan.near_word(i, &PERSON_NOUNS, 0, 1) || pronoun || worker || aside
}

/// Whether the nationality's name is more often that of a language.
fn is_language_name(word: &str) -> bool {
    static LANGUAGE_NAMES: WordSet = WordSet::new(|| words("language_names"));
    LANGUAGE_NAMES.contains(word.to_ascii_lowercase().as_str())
}
