//! Evidence from the words around a possible name: a person, a place, an organisation, or code.

use super::super::ScanState;
use super::person_cues::{CueContext, PersonCue};
use crate::lexicon::mark::*;
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken, short_lower};
use crate::word_lists::{WordSet, words};

/// Evidence from the preceding and following words.
pub(super) struct ContextCues {
    pub honorific: bool,
    pub person: Option<PersonCue>,
    pub place_cue: bool,
    /// Evidence for an organisation: none, possible, likely, certain.
    pub org: u8,
    /// Preceded by `at` or a word that only an organisation follows.
    pub at: bool,
    /// A label names the kind: `city: `, `"name": "`, `<company>`.
    pub labelled: bool,
    /// The first word of a sentence, a line or a quotation.
    pub opening: bool,
    pub code: bool,
    /// All surrounding text is in capitals.
    pub shouted: bool,
}

impl ContextCues {
    /// The text announces a name: `my name is`.
    pub fn announces_name(&self) -> bool {
        self.person.is_some_and(PersonCue::announces)
    }

    /// A relative, a title, a signature or a label: not the name of software.
    pub fn is_personal(&self) -> bool {
        self.honorific || self.labelled || self.person.is_some_and(PersonCue::is_own)
    }
}

/// Collects the evidence around the run `first..=last`.
pub(super) fn context_cues(scan: &ScanState<'_>, first: usize, last: usize) -> ContextCues {
    let list = scan.list();
    let before = first.checked_sub(1).and_then(|p| list.get(p));
    let gap_before = scan.gap_before(first);
    let opening = gap_before.trim_start_matches([' ', '"', '\'', '(', '“', '*', '>']).is_empty() && before.is_none()
        || gap_before.contains(['.', '!', '?', '\n', ':', '"', '“', '*', '•', '>', ';'])
        || gap_before.ends_with('-') && gap_before.len() > 1;
    let caps = |t: Option<&WordToken>| t.is_some_and(|t| t.shape == TokenShape::Upper && t.len() >= 2);
    ContextCues {
        honorific: has_honorific(scan, first),
        person: CueContext::of(scan, first, last).person_cue(),
        place_cue: has_location_cue(scan, first),
        org: org_cue(scan, first, last),
        at: follows_at_organisation(scan, first),
        labelled: is_object_label(scan, first),
        opening,
        code: is_in_code(scan, first, last),
        shouted: caps(before) && caps(list.get(last + 1)),
    }
}

/// `Mrs `, `Dr. ` directly before the run.
fn has_honorific(scan: &ScanState<'_>, first: usize) -> bool {
    let Some(before) = first.checked_sub(1).and_then(|p| scan.token(p)).filter(|t| t.has(HONORIFIC)) else {
        return false;
    };
    let gap = scan.gap_before(first);
    // `MS-DOS`, `MS Windows`: the vendor, unless the name is in capitals too.
    let maker = || scan.word(before) == "MS" && scan.list()[first].shape != TokenShape::Upper;
    let written =
        gap == ". " || matches!(gap, " " | ": ") && matches!(before.shape, TokenShape::Title | TokenShape::Upper);
    written && !maker()
}

/// Whether a place is to be expected here: after `in`, a label, or a verb of residence.
pub(super) fn has_location_cue(scan: &ScanState<'_>, first: usize) -> bool {
    let list = scan.list();
    let Some(before) = first.checked_sub(1).and_then(|p| list.get(p)) else { return false };
    let gap = scan.gap_before(first);
    let mut buffer = [0; 16];
    let word = short_lower(scan.word(before), &mut buffer);
    let spoken_to =
        first.checked_sub(2).and_then(|p| list.get(p)).is_some_and(|t| t.has(SAY)) && matches!(word, "at" | "to");
    let direct = gap == " " && before.has(PREP) && !matches!(word, "of" | "via") && !spoken_to;
    let labelled = gap.contains([':', '>', '=']) && !gap.contains('\n') && PLACE_LABELS.contains(word);
    let tied = gap == " "
        && word == "of"
        && scan.near_word(
            first,
            &[
                "city", "town", "north", "south", "east", "west", "outside", "capital", "republic", "kingdom", "out",
                "people",
            ],
            3,
            0,
        );
    // `Anna Lindholm of Bergen`
    let hailing = gap == " "
        && word == "of"
        && first
            .checked_sub(2)
            .and_then(|p| list.get(p))
            .is_some_and(|t| t.shape == TokenShape::Title && t.has(LAST) && !t.has(COMMON));
    let lived = gap == " "
        && first.checked_sub(3).and_then(|p| list.get(p..first)).is_some_and(|w| w.iter().any(|t| t.has(LIVE_CUE)));
    direct || tied || lived || hailing || labelled
}

/// Labels whose value is the name of an organisation.
pub(in super::super) static ORG_LABELS: WordSet = WordSet::new(|| words("org_labels"));

/// Labels whose value is the name of a place.
pub(in super::super) static PLACE_LABELS: WordSet = WordSet::new(|| words("place_labels"));

/// Words directly followed by an organisation's name.
static OBJECT_LABELS: WordSet = WordSet::new(|| words("object_labels"));

/// Whether the preceding punctuation separates a label from its value.
fn is_object_label(scan: &ScanState<'_>, first: usize) -> bool {
    let gap = scan.gap_before(first);
    if gap.len() > 8 || gap.contains('\n') || !gap.contains([':', '=', '>', '|']) {
        return false;
    }
    let Some(before) = first.checked_sub(1).and_then(|p| scan.token(p)) else { return false };
    let word = scan.word(before).to_ascii_lowercase();
    before.has(NAME_CUE) || ORG_LABELS.contains(word.as_str()) || PLACE_LABELS.contains(word.as_str())
}

/// Whether a preposition or a word such as `joined` precedes the run.
fn follows_at_organisation(scan: &ScanState<'_>, first: usize) -> bool {
    let word = first.checked_sub(1).and_then(|p| scan.token(p)).map_or("", |t| scan.word(t));
    // `arrived at Norwood`
    let reached = || word == "at" && scan.near_word(first, &["arrive", "arrives", "arrived", "arriving"], 2, 0);
    scan.gap_before(first) == " "
        && (matches!(word, "at" | "from" | "for") && !reached() || OBJECT_LABELS.contains(word))
}

/// `a 78 year old man from`: followed by a town.
fn has_age_cue(scan: &ScanState<'_>, first: usize) -> bool {
    scan.near_word(
        first,
        &["year", "years", "old", "man", "woman", "boy", "girl", "is", "was", "moved", "comes", "came"],
        4,
        0,
    )
}

/// The evidence for an organisation around the run.
pub(super) fn org_cue(scan: &ScanState<'_>, first: usize, last: usize) -> u8 {
    let list = scan.list();
    let (gap_before, gap_after) = (scan.gap_before(first), scan.gap(last));
    let does =
        |n: usize| list.get(last + n).is_some_and(|t| t.topics & topic::ORG_DOES != 0 && t.shape == TokenShape::Lower);
    if gap_after == " " && does(1) && last > first {
        return 3;
    }
    if gap_after == " " && does(1) || matches!(gap_after, "'" | "’") && does(2) {
        return 2;
    }
    // `is a company`, `is the brainchild of`
    let ahead = list.get(last + 2..(last + 6).min(list.len())).unwrap_or_default();
    let copula = gap_after == " " && list.get(last + 1).is_some_and(|t| matches!(scan.word(t), "is" | "was"));
    if copula && ahead.iter().any(|t| t.has(ORG_CUE)) {
        return 3;
    }
    if copula && is_defined_as_organisation(scan, last + 2) {
        return DEFINED;
    }
    // `has agreed to acquire`
    if gap_after == " "
        && does(2)
        && list.get(last + 1).is_some_and(|t| matches!(scan.word(t), "has" | "have" | "also" | "is"))
    {
        return 2;
    }
    let Some(before) = first.checked_sub(1).map(|p| &list[p]) else { return 0 };
    let mut buffer = [0; 16];
    let word = short_lower(scan.word(before), &mut buffer);
    if gap_before.contains([':', '>', '=', '|']) && !gap_before.contains('\n') && ORG_LABELS.contains(word) {
        return 3;
    }
    // `the address of Norwood is`
    if copula && gap_before == " " && word == "of" && scan.near_word(first, &["address"], 2, 0) {
        return 3;
    }
    let near = |n: usize| {
        let back = &list[first.saturating_sub(n)..first];
        back.iter().any(|t| t.topics & topic::ORG_NEAR != 0 || t.has(JOB))
    };
    match gap_before {
        " " if OBJECT_LABELS.contains(word) => return 3,
        // `spent a year at Foo`, `which later became Foo`
        " " if word == "at" && scan.near_word(first, &["year", "years", "stint", "internship", "tenure"], 3, 0) => {
            return 3;
        }
        " " if word == "became" && scan.near_word(first, &["which", "later", "company"], 3, 0) => return 3,
        " " if matches!(word, "at" | "for") && near(5) || word == "from" && near(4) && !has_age_cue(scan, first) => {
            return 3;
        }
        " " if matches!(word, "of" | "with" | "the") && near(3) => return 2,
        " " if word == "by"
            && scan.near_word(
                first,
                &["acquired", "owned", "employed", "made", "sponsored", "funded", "hired", "built"],
                3,
                0,
            ) =>
        {
            return 2;
        }
        // `Senior engineer, Foo, 2018`
        ", " if before.has(JOB) => return 2,
        _ => {}
    }
    let back = &list[first.saturating_sub(3)..first];
    let ahead = &list[(last + 1).min(list.len())..(last + 3).min(list.len())];
    u8::from(back.iter().chain(ahead).any(|t| t.has(ORG_CUE)))
}

/// The evidence of a sentence that says what the run is: its first word has a capital whatever it is.
pub(super) const DEFINED: u8 = 4;

/// Nouns that say of their subject that it is an organisation, and nothing else.
static DEFINING_NOUNS: WordSet = WordSet::new(|| words("defining_nouns"));

/// `a design agency based in`, `an American multinational investment bank`: an article and an institution's noun at the
/// end of its phrase.
fn is_defined_as_organisation(scan: &ScanState<'_>, at: usize) -> bool {
    const MAX_WORDS: usize = 6;
    let article = scan.token(at).is_some_and(|t| matches!(scan.word(t), "a" | "an"));
    let noun = |n: &usize| {
        scan.token(*n).is_some_and(|t| t.has(ORG_CUE) || DEFINING_NOUNS.contains(scan.word(t)))
            && scan
                .token(n + 1)
                .is_none_or(|t| t.has(STOP | PREP | LIVE_CUE) || scan.gap(*n) != " " || scan.word(t) == "based")
    };
    let joined = |n: &usize| scan.gap(n - 1) == " " || scan.gap(n - 1) == "-";
    article && (at + 1..at + 1 + MAX_WORDS).take_while(joined).any(|n| noun(&n))
}

/// Whether the surrounding line looks like code or data rather than prose.
pub(super) fn is_in_code(scan: &ScanState<'_>, first: usize, last: usize) -> bool {
    let list = scan.list();
    let (start, end) = (list[first].start(), list[last].end());
    let all = &scan.tokens.signs;
    let from = all.partition_point(|at| (*at as usize) + 80 < start);
    let close = &all[from..];
    if close.first().is_none_or(|at| (*at as usize) >= end + 80) {
        return false;
    }
    let head = &scan.bytes[start.saturating_sub(80)..start];
    let head = &head[memchr::memrchr(b'\n', head).map_or(0, |n| n + 1)..];
    let right = &scan.bytes[end..(end + 80).min(scan.bytes.len())];
    let right = &right[..memchr::memchr(b'\n', right).unwrap_or(right.len())];
    let (line_start, line_end) = (start - head.len(), end + right.len());
    let inside = |at: &&u32| (**at as usize) < line_end;
    let outside = |at: &&u32| (**at as usize) < start || (**at as usize) >= end;
    let from = close.partition_point(|at| (*at as usize) < line_start);
    let signs = close[from..].iter().take_while(inside).filter(outside).count();
    // Prose rarely ends a line this way, and styles and declarations have little other punctuation.
    let ended = matches!(right.trim_ascii_end().last(), Some(b';' | b'{' | b'}'));
    let comment =
        head.starts_with(b"//") || head.starts_with(b"#") || head.starts_with(b"/*") || head.starts_with(b" *");
    let length = head.len() + right.len() + (end - start);
    ended && signs > 0 || signs >= 4 && signs * 16 > length || signs >= 2 && length < 30 || comment && signs >= 3
}

/// Whether the context is code: punctuation at every other word of the adjacent lines.
pub(super) fn is_near_code(scan: &ScanState<'_>, at: usize) -> bool {
    const WINDOW: usize = 240;
    let signs = &scan.tokens.signs;
    let from = signs.partition_point(|s| (*s as usize) + WINDOW < at);
    let to = signs.partition_point(|s| (*s as usize) < at + WINDOW);
    let length = (at + WINDOW).min(scan.bytes.len()) - at.saturating_sub(WINDOW);
    (to - from) * 18 > length && length > 100
}

/// Nouns of discoveries, illnesses and methods, which are named after well-known people.
static EPONYMS: WordSet = WordSet::new(|| words("eponyms"));

/// `Moore's law`, `the Laplace operator`: not a reference to a person.
pub(super) fn is_eponym(scan: &ScanState<'_>, last: usize) -> bool {
    let list = scan.list();
    let owned = matches!(scan.gap(last), "'" | "’") && list.get(last + 1).is_some_and(|t| t.len() == 1);
    let at = if owned { last + 1 } else { last };
    let called = |n: usize| {
        // `Bayes' theorem`
        let near = matches!(scan.gap(at + n - 1), " " | "' " | "’ ");
        let word = list.get(at + n).filter(|_| near).map_or("", |t| scan.word(t));
        EPONYMS.contains(word.to_ascii_lowercase().as_str())
    };
    // `Newton's second law`
    called(1) || owned && called(2)
}
