//! Persons, organisations, places and nationalities: runs of capitalised words, weighed by what the lexicon knows of
//! them and by the words around.

use super::{Scan, address};
use crate::Kind;
use crate::lexicon::mark::*;
use crate::token::{Shape, Token};

/// A run of words that may be a name, with what speaks for each reading.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    first: usize,
    last: usize,
    person: i32,
    place: i32,
    org: i32,
}

/// Names anywhere in the text.
pub(super) fn names(scan: &mut Scan<'_>) {
    if !scan.wants.kinds.any(&[Kind::Person, Kind::Organization, Kind::Location, Kind::Nationality]) {
        return;
    }
    let mut chunks = Vec::new();
    let mut i = 0;
    while let Some(token) = scan.token(i) {
        let next = match token.shape {
            Shape::Title | Shape::Upper | Shape::Camel => capitals(scan, i, &mut chunks),
            Shape::Lower => small(scan, i, token, &mut chunks),
            _ => i + 1,
        };
        i = next.max(i + 1);
    }
    promote(scan, &mut chunks);
    for chunk in chunks {
        report(scan, &chunk);
    }
}

/// Below this, nobody is told.
const TOLD: i32 = 30;

fn report(scan: &mut Scan<'_>, chunk: &Chunk) {
    let list = scan.list();
    let (start, end) = (list[chunk.first].start(), list[chunk.last].end());
    let (kind, score) = if chunk.org > chunk.person && chunk.org >= chunk.place {
        (Kind::Organization, chunk.org)
    } else if chunk.place > chunk.person {
        (Kind::Location, chunk.place)
    } else {
        (Kind::Person, chunk.person)
    };
    if score >= TOLD {
        scan.push(kind, start, end, score.clamp(0, 95) as u8);
    }
}

/// A run of capitalised words from token `i` on; gives the token to go on from.
fn capitals(scan: &mut Scan<'_>, i: usize, chunks: &mut Vec<Chunk>) -> usize {
    let token = scan.list()[i];
    let marks = token.marks();
    if marks & NRP != 0 && token.len() > 3 {
        let confidence = if belongs_to_a_person(scan, i) { 65 } else { 40 };
        scan.push(Kind::Nationality, token.start(), token.end(), confidence);
    }
    if !starts_cleanly(scan, &token) {
        return i + 1;
    }
    if marks & (STOP | HONORIFIC) != 0 && marks & (PARTICLE | PHRASE) == 0 {
        return i + 1;
    }
    if let Some(end) = address::phrase_at(scan, i) {
        return place_phrase(scan, i, end, chunks);
    }
    let last = run_end(scan, i);
    let found = classify(scan, i, last);
    match found {
        Some(chunk) => {
            chunks.push(chunk);
            chunk.last + 1
        }
        None => i + 1,
    }
}

/// `I am Swedish`, `a Spanish citizen`, `nationality: Greek`: somebody's, not a language's or a dish's.
fn belongs_to_a_person(scan: &Scan<'_>, i: usize) -> bool {
    let of = ["nationality", "citizenship", "religion", "ethnicity", "am", "m", "born", "practicing", "devout"];
    let who = [
        "citizen",
        "citizens",
        "man",
        "woman",
        "men",
        "women",
        "national",
        "passport",
        "people",
        "girl",
        "boy",
        "descent",
        "origin",
        "immigrant",
        "immigrants",
        "family",
        "parents",
    ];
    let pronoun = scan.near_word(i, &["he", "she", "they", "who", "i", "we"], 3, 0)
        && scan.near_word(i, &["is", "was", "are", "am", "were", "m", "re", "s"], 2, 0);
    scan.near_word(i, &of, 2, 0) || scan.near_word(i, &who, 0, 1) || pronoun
}

fn place_phrase(scan: &Scan<'_>, i: usize, end: usize, chunks: &mut Vec<Chunk>) -> usize {
    // `Jordan Smith` where Jordan is a country is no phrase; `San Marino Cruz` goes on as a name.
    let list = scan.list();
    let wordy = list[i..=end].iter().all(|t| t.has(COMMON | WORD | STOP));
    let located = located(scan, i);
    let named = scan.list()[i].has(FIRST) && list[end].has(LAST) && !list[end].has(COMMON);
    let score = match (located, wordy) {
        (true, _) => 80,
        (false, true) => 35,
        (false, false) if named => 50,
        (false, false) => 65,
    };
    let last = run_end(scan, i);
    if last > end {
        if let Some(chunk) = classify(scan, i, last).filter(|c| c.org.max(c.person) > score && c.last > end) {
            chunks.push(chunk);
            return chunk.last + 1;
        }
    }
    let person = if named && !located { 60 } else { 0 };
    if ends_cleanly(scan, &list[end]) {
        chunks.push(Chunk { first: i, last: end, person, place: score, org: 0 });
    }
    end + 1
}

/// Whether the bytes around allow a word of prose here, not a part of code, of a path or of a longer name.
fn starts_cleanly(scan: &Scan<'_>, token: &Token) -> bool {
    match scan.byte_before(token.start()) {
        b'_' | b'/' | b'\\' | b'=' | b'$' | b'#' | b'@' | b'&' | b'~' | b'^' | b'%' | b'<' => false,
        b'.' => !scan.byte_before(token.start() - 1).is_ascii_alphanumeric() || initials_before(scan, token.start()),
        b':' => scan.byte_before(token.start() - 1) != b':',
        b'-' => scan.byte_before(token.start() - 1) != b'-' || token.start() < 2,
        _ => true,
    }
}

/// `J.Smith`: a stop behind a single capital.
fn initials_before(scan: &Scan<'_>, at: usize) -> bool {
    at >= 2 && scan.bytes[at - 2].is_ascii_uppercase() && !scan.byte_before(at - 2).is_ascii_alphanumeric()
}

fn ends_cleanly(scan: &Scan<'_>, token: &Token) -> bool {
    let (a, b) = (scan.byte_at(token.end()), scan.byte_at(token.end() + 1));
    match a {
        b'_' | b'/' | b'(' | b'=' | b'[' | b'{' | b'<' | b'$' | b'#' | b'@' | b'&' | b'|' | b'~' | b'^' | b'+' => false,
        b'.' => !b.is_ascii_alphanumeric(),
        b':' => b != b':',
        b'\\' => matches!(b, b'n' | b'"' | b'\'' | b't' | b'r' | b','),
        _ => true,
    }
}

/// How far the run of words written as a name goes.
fn run_end(scan: &Scan<'_>, i: usize) -> usize {
    let mut last = i;
    while last < i + 7 {
        let Some(next) = scan.token(last + 1) else { break };
        let gap = scan.gap(last);
        let current = scan.list()[last];
        let initial = current.shape == Shape::Upper && current.len() == 1;
        let joined = match gap {
            " " | "-" | "'" | "’" => true,
            ". " | "." => initial || current.has(ABBR) || matches!(scan.word(&current), "St" | "Jr" | "Mt" | "Ft"),
            " & " => next.is_capital(),
            ", " => next.has(CREDENTIAL | ORG_SUFFIX) && next.is_capital() && next.marks() & (COMMON | FIRST) == 0,
            _ => false,
        };
        if !joined {
            break;
        }
        if next.is_capital() {
            if next.has(STOP) && !next.has(PARTICLE | CREDENTIAL) {
                break;
            }
            last += 1;
            continue;
        }
        // van der, de la: small words inside a name, with a capital behind them.
        let mut ahead = last + 1;
        while ahead <= last + 3
            && scan.token(ahead).is_some_and(|t| t.has(PARTICLE) && t.shape == Shape::Lower)
            && matches!(scan.gap(ahead), " " | "'" | "’")
        {
            ahead += 1;
        }
        let particle = ahead > last + 1 && scan.token(ahead).is_some_and(|t| t.is_capital() && !t.has(STOP));
        if !particle || gap == " & " {
            break;
        }
        last = ahead;
    }
    last
}

/// How much a word looks like the first of a name, 0 to 100.
fn as_first(token: &Token) -> i32 {
    let m = token.marks();
    let word = m & (COMMON | WORD) != 0;
    let score = match () {
        () if m & (STOP | TECH | MONTH | DAY) != 0 && m & FIRST_TOP == 0 => 0,
        // April, June and August are months first.
        () if m & (MONTH | DAY) != 0 => 45,
        () if m & FIRST_TOP != 0 && !word => 100,
        () if m & FIRST_TOP != 0 => 60,
        () if m & FIRST != 0 && m & COMMON == 0 && m & WORD == 0 => 85,
        () if m & FIRST != 0 && m & COMMON == 0 => 45,
        () if m & FIRST != 0 => 20,
        () => 0,
    };
    if m & (TECH | ORG) != 0 { score / 2 } else { score }
}

/// How much a word looks like the last of a name, 0 to 100.
fn as_last(token: &Token) -> i32 {
    let m = token.marks();
    match () {
        () if m & (STOP | TECH | MONTH | DAY | ORG) != 0 && m & LAST_TOP == 0 => 0,
        () if m & LAST_TOP != 0 && m & COMMON == 0 => 85,
        () if m & LAST_TOP != 0 => 60,
        () if m & LAST != 0 && m & (COMMON | WORD) == 0 => 75,
        () if m & LAST != 0 && m & COMMON == 0 => 45,
        () if m & LAST != 0 => 25,
        () if m & FIRST != 0 && m & COMMON == 0 => 60,
        () if foreign(token) => 45,
        () => 0,
    }
}

/// A word that no list knows: neither English nor a name. Short capitals are abbreviations.
fn foreign(token: &Token) -> bool {
    let m = token.marks();
    let unknown = m
        & (COMMON
            | WORD
            | STOP
            | TECH
            | FIRST
            | LAST
            | PLACE
            | REGION
            | NRP
            | MONTH
            | DAY
            | ORG
            | ORG_SUFFIX
            | ORG_WORD
            | UNIT
            | JOB)
        == 0;
    unknown
        && match token.shape {
            Shape::Title => token.len() >= 3,
            Shape::Upper => token.len() >= 6,
            Shape::Lower => token.len() >= 4,
            _ => false,
        }
}

/// What the words before and behind say.
struct Around {
    honorific: bool,
    /// A name must follow: `my name is`, `says`, `called`.
    strong_cue: bool,
    person_cue: bool,
    place_cue: bool,
    org_cue: bool,
    /// The first word of a sentence, a line or a quotation.
    opening: bool,
    code: bool,
    /// Everything around is in capitals.
    shouted: bool,
}

fn around(scan: &Scan<'_>, first: usize, last: usize) -> Around {
    let list = scan.list();
    let before = |n: usize| first.checked_sub(n).and_then(|p| list.get(p));
    let after = |n: usize| list.get(last + n);
    let gap_before = scan.gap_before(first);
    let gap_after = scan.gap(last);
    let near_before = gap_before == " " || gap_before == ". " || gap_before == ": " || gap_before == "-";
    let marks_before = |n: usize| before(n).map_or(0, Token::marks);
    let word_before = |n: usize| before(n).map_or("", |t| scan.word(t));
    let word_after = |n: usize| after(n).map_or("", |t| scan.word(t));
    let opening = gap_before.trim_start_matches([' ', '"', '\'', '(', '“', '*', '>']).is_empty() && before(1).is_none()
        || gap_before.contains(['.', '!', '?', '\n', ':', '"', '“', '*', '•', '>', ';'])
        || gap_before.ends_with('-') && gap_before.len() > 1;
    let honorific = near_before && marks_before(1) & HONORIFIC != 0 && before(1).is_some_and(Token::is_capital);
    let (strong_cue, person_cue) =
        person_cue(&marks_before, &word_before, &word_after, after(1), gap_before, gap_after);
    let caps = |t: Option<&Token>| t.is_some_and(|t| t.shape == Shape::Upper && t.len() >= 2);
    Around {
        honorific,
        strong_cue,
        person_cue,
        place_cue: located(scan, first),
        org_cue: org_cue(scan, first, last),
        opening,
        code: in_code(scan, first, last),
        shouted: caps(before(1)) && caps(after(1)),
    }
}

/// Whether the words around speak of a person: surely, and at all.
fn person_cue<'a>(
    marks_before: &impl Fn(usize) -> u32,
    word_before: &impl Fn(usize) -> &'a str,
    word_after: &impl Fn(usize) -> &'a str,
    after: Option<&Token>,
    gap_before: &str,
    gap_after: &str,
) -> (bool, bool) {
    let near = matches!(gap_before, " " | ": " | " \"" | ", " | " '" | "? " | " “" | ":" | ":    " | ":  " | "\": \"");
    let b1 = word_before(1).to_ascii_lowercase();
    let b2 = word_before(2).to_ascii_lowercase();
    let named = near
        && (marks_before(1) & NAME_CUE != 0
            || marks_before(2) & NAME_CUE != 0
                && matches!(b1.as_str(), "is" | "was" | "to" | "s" | "me" | "as" | "be" | "of" | "are"))
        || gap_before.contains(':')
            && (1..=5).any(|n| matches!(word_before(n).to_ascii_lowercase().as_str(), "name" | "names"))
        || gap_before.contains('?')
            && (1..=5).any(|n| matches!(word_before(n).to_ascii_lowercase().as_str(), "name" | "names"));
    let called = matches!(
        (b2.as_str(), b1.as_str()),
        ("call" | "calls" | "called" | "named" | "name" | "names", "me" | "him" | "her" | "us" | "it")
            | ("i", "m" | "am")
            | ("this" | "that", "is")
            | ("name", "s")
            | ("everyone", "calls")
            | ("under" | "account", "of")
            | ("of", "name")
    );
    let greeted = matches!(
        b1.as_str(),
        "hi" | "hello"
            | "hey"
            | "dear"
            | "thanks"
            | "sincerely"
            | "regards"
            | "cheers"
            | "by"
            | "starring"
            | "with"
            | "under"
            | "ask"
            | "tell"
            | "told"
            | "asked"
            | "says"
            | "said"
            | "sir"
            | "madam"
            | "for"
            | "and"
            | "featuring"
            | "contact"
            | "thank"
            | "bye"
            | "goodbye"
            | "miss"
            | "add"
            | "ex"
            | "unlike"
            | "novel"
            | "novelist"
            | "singer"
            | "versus"
    );
    let strong_greeted = matches!(
        b1.as_str(),
        "hi" | "hello"
            | "hey"
            | "dear"
            | "thanks"
            | "starring"
            | "says"
            | "said"
            | "told"
            | "asked"
            | "sincerely"
            | "regards"
    );
    let related = marks_before(1) & (RELATION | JOB) != 0 && gap_before == " ";
    let says = after.is_some_and(|t| t.has(SAY) && t.shape == Shape::Lower) && matches!(gap_after, " " | ", ");
    let possessive = matches!(gap_after, "'" | "’" | "\\'") && word_after(1) == "s";
    let spoken_to = matches!(b1.as_str(), "at" | "to") && marks_before(2) & SAY != 0 && gap_before == " ";
    let speaks = matches!(gap_after, ": \"" | ":\"" | ": “" | ": \\\"" | ":\\\"" | ": '")
        || gap_after == ": " && gap_before.contains('\n');
    let a1 = word_after(1);
    let acts = gap_after == " "
        && matches!(
            a1,
            "is" | "was"
                | "has"
                | "had"
                | "will"
                | "would"
                | "just"
                | "shouted"
                | "listed"
                | "who"
                | "himself"
                | "herself"
                | "and"
                | "spent"
                | "joined"
                | "went"
                | "came"
                | "got"
                | "made"
                | "took"
                | "left"
                | "bought"
                | "sent"
                | "gave"
                | "knows"
                | "lives"
                | "likes"
                | "novel"
                | "version"
                | "concert"
                | "song"
                | "album"
        );
    let strong = named || called || says || strong_greeted && near || speaks || spoken_to || related;
    let any = named
        || called
        || related
        || says
        || strong_greeted && near
        || greeted && near && (acts || gap_after != " " || possessive)
        || possessive && gap_before == " "
        || acts && (gap_before.trim().is_empty() || gap_before.ends_with([' ', '"', '\n']));
    (strong, strong || any)
}

fn located(scan: &Scan<'_>, first: usize) -> bool {
    let list = scan.list();
    let Some(before) = first.checked_sub(1).and_then(|p| list.get(p)) else { return false };
    let gap = scan.gap_before(first);
    let word = scan.word(before).to_ascii_lowercase();
    let spoken_to =
        first.checked_sub(2).and_then(|p| list.get(p)).is_some_and(|t| t.has(SAY) && t.shape == Shape::Lower)
            && matches!(word.as_str(), "at" | "to");
    let direct = gap == " " && before.has(PREP) && !matches!(word.as_str(), "of" | "via") && !spoken_to;
    let labelled = gap.contains(':')
        && matches!(word.as_str(), "where" | "location" | "city" | "country" | "town" | "place" | "state" | "region");
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
    let lived = gap == " "
        && first.checked_sub(3).and_then(|p| list.get(p..first)).is_some_and(|w| w.iter().any(|t| t.has(LIVE_CUE)));
    direct || tied || lived || labelled
}

fn org_cue(scan: &Scan<'_>, first: usize, last: usize) -> bool {
    let list = scan.list();
    let back = &list[first.saturating_sub(3)..first];
    let ahead = &list[(last + 1).min(list.len())..(last + 3).min(list.len())];
    let word_before = first.checked_sub(1).map_or("", |p| scan.word(&list[p]));
    back.iter().chain(ahead).any(|t| t.has(ORG_CUE))
        || scan.gap_before(first) == " "
            && matches!(word_before, "at" | "for" | "from" | "joined" | "of")
            && back.iter().any(|t| {
                matches!(
                    scan.word(t),
                    "works"
                        | "work"
                        | "working"
                        | "worked"
                        | "job"
                        | "position"
                        | "contract"
                        | "year"
                        | "years"
                        | "office"
                        | "employee"
                        | "customer"
                )
            })
}

/// Whether the line around looks like code or data rather than prose.
fn in_code(scan: &Scan<'_>, first: usize, last: usize) -> bool {
    let list = scan.list();
    let (start, end) = (list[first].start(), list[last].end());
    let left = &scan.bytes[start.saturating_sub(80)..start];
    let right = &scan.bytes[end..(end + 80).min(scan.bytes.len())];
    let left = left.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    let right = right.split(|b| *b == b'\n').next().unwrap_or_default();
    let signs = left
        .iter()
        .chain(right)
        .filter(|b| {
            matches!(
                b,
                b'{' | b'}'
                    | b';'
                    | b'='
                    | b'<'
                    | b'_'
                    | b'('
                    | b')'
                    | b'['
                    | b']'
                    | b'|'
                    | b'/'
                    | b'#'
                    | b'$'
                    | b'`'
                    | b'&'
                    | b'%'
                    | b'\\'
                    | b'+'
            )
        })
        .count();
    let comment =
        left.starts_with(b"//") || left.starts_with(b"#") || left.starts_with(b"/*") || left.starts_with(b" *");
    let length = left.len() + right.len() + (end - start);
    signs >= 4 && signs * 16 > length || signs >= 2 && length < 30 || comment && signs >= 3
}

fn classify(scan: &Scan<'_>, first: usize, last: usize) -> Option<Chunk> {
    let list = scan.list();
    let mut last = last;
    while last > first && !ends_cleanly(scan, &list[last]) {
        last -= 1;
    }
    if !ends_cleanly(scan, &list[last]) || list[last].shape == Shape::Upper && list[last].len() == 1 && last == first {
        return None;
    }
    if let Some(org) = organisation(scan, first, last) {
        return Some(org);
    }
    // A trade or a plain word before a first name belongs to the sentence: `Producer Amanda Sultygov`.
    let mut from = first;
    let named_word = first < last
        && list[first].has(FIRST)
        && !list[first].has(STOP | TECH | JOB | RELATION)
        && as_last(&list[last]) >= 75;
    while !named_word
        && from < last
        && as_first(&list[from]) < 45
        && list[from].has(COMMON | WORD | JOB | RELATION | STOP | DAY | MONTH | TECH)
        && !initial(&list[from])
    {
        from += 1;
    }
    if from > first && as_first(&list[from]) < 45 && !(from == last && as_last(&list[from]) >= 75) {
        return wordy(scan, first, last);
    }
    if from == last {
        return single(scan, from);
    }
    several(scan, from, last)
}

fn initial(token: &Token) -> bool {
    token.shape == Shape::Upper && token.len() == 1
}

/// A run of English words: nothing, unless a name is told by the words before it.
fn wordy(scan: &Scan<'_>, first: usize, last: usize) -> Option<Chunk> {
    let around = around(scan, first, last);
    let person = if around.honorific { 70 } else { 0 };
    (person > 0).then_some(Chunk { first, last: last.min(first + 1), person, place: 0, org: 0 })
}

fn several(scan: &Scan<'_>, first: usize, last: usize) -> Option<Chunk> {
    let list = scan.list();
    let mut last = last;
    // A run that goes on into plain words ends before them.
    for at in first + 1..=last {
        let t = &list[at];
        let joined_name = matches!(scan.gap(at - 1), "-" | "'" | "’");
        let plain = t.has(COMMON | WORD | JOB | TECH | MONTH | DAY | ORG_WORD | STREET_SUFFIX)
            && as_last(t) < 45
            && as_first(t) < 45
            && !t.has(CREDENTIAL | PARTICLE)
            && !initial(t)
            && !joined_name;
        if plain {
            last = at - 1;
            break;
        }
    }
    if last == first {
        return single(scan, first);
    }
    let around = around(scan, first, last);
    let core: Vec<&Token> = list[first..=last]
        .iter()
        .filter(|t| !initial(t) && !t.has(CREDENTIAL) && !(t.has(PARTICLE) && t.shape == Shape::Lower))
        .collect();
    let head = core.first()?;
    let tail = core.last()?;
    let (f, l) = (as_first(head), if core.len() > 1 { as_last(tail).max(as_first(tail) - 15) } else { 0 });
    let foreigns = core.iter().filter(|t| foreign(t)).count();
    let mut person = match (f, l) {
        _ if core.len() == 1 => f.max(as_last(head)) * 6 / 10 + 15,
        (85.., 45..) => 88,
        (85.., 20..) => 72,
        (85.., _) => 60,
        (45.., 60..) => 78,
        (45.., 45..) => 62,
        (20.., 75..) => 56,
        _ if as_last(head) >= 60 && l >= 60 => 58,
        _ if (as_last(head) >= 45 || foreign(head)) && l >= 60 => 52,
        _ if foreigns == core.len() => 40,
        _ if foreigns > 0 && l >= 45 => 40,
        _ => 15,
    };
    let caps = list[first..=last].iter().all(|t| t.shape == Shape::Upper);
    if caps && f < 85 {
        person -= 20;
    }
    if core.iter().any(|t| t.has(TECH | ORG_WORD | STREET_SUFFIX | DAY)) && f < 85 {
        person -= 25;
    }
    if around.person_cue || around.honorific {
        person += if around.honorific { 35 } else { 18 };
    }
    if around.code {
        person -= 15;
    }
    let known_place = address::place_at(scan, first).is_some_and(|e| e <= last);
    let mut place = if known_place && core.iter().any(|t| t.has(REGION)) {
        45
    } else if known_place {
        30
    } else {
        0
    };
    if around.place_cue && !around.honorific {
        place = (place + 40).max(if foreigns > 0 { 50 } else { 0 });
        if f < 85 {
            person -= 10;
        }
    }
    let mut org = 0;
    if list[first..=last].iter().any(|t| t.shape == Shape::Camel && t.class == 0) {
        org = 40;
    }
    if around.org_cue && foreigns + 1 >= core.len() {
        org += 45;
    }
    Some(Chunk { first, last, person, place, org })
}

fn single(scan: &Scan<'_>, i: usize) -> Option<Chunk> {
    let token = scan.list()[i];
    let m = token.marks();
    let around = around(scan, i, i);
    let (f, l) = (as_first(&token), as_last(&token));
    let unknown = foreign(&token);
    let short_caps = token.shape == Shape::Upper && token.len() <= 4;
    let mut person = match (f, l) {
        (100, _) => 66,
        (85.., _) if token.len() >= 4 => 58,
        (85.., _) => 45,
        (60.., _) => {
            if around.opening {
                30
            } else {
                42
            }
        }
        (45.., _) => {
            if around.opening {
                20
            } else {
                38
            }
        }
        (_, 75..) => {
            if around.opening {
                36
            } else {
                48
            }
        }
        (_, 60..) => 25,
        (_, 45..) if unknown => {
            if around.opening {
                15
            } else {
                30
            }
        }
        (_, 45..) => 22,
        (20.., _) => 8,
        (_, 25..) => 8,
        _ => 0,
    };
    let region = m & REGION != 0 && !short_caps;
    let town = m & PLACE != 0 && m & (STOP | TECH) == 0 && !short_caps;
    let plain = m & (COMMON | WORD) != 0;
    let mut place = match (region, town, plain) {
        (true, _, false) => 72,
        (true, _, true) => 40,
        (_, true, false) => 48,
        (_, true, true) => 5,
        _ => 0,
    };
    if short_caps {
        person -= 30;
    }
    if around.shouted && f < 85 {
        (person, place) = (0, 0);
    }
    // A country is rarely a person.
    if region && m & FIRST_TOP == 0 {
        person /= 2;
    }
    if around.honorific {
        person = person.max(20) + 55;
    } else if around.person_cue {
        person += match (around.strong_cue, unknown) {
            (true, _) if person >= 20 => 24,
            (false, false) if person >= 20 => 22,
            _ if person > 0 => 12,
            _ => 0,
        };
        if place > 0 && person > 0 && !around.place_cue && !region {
            place -= 12;
        }
    }
    if around.place_cue && !around.honorific {
        if place > 0 {
            place += if plain { 20 } else { 25 };
        } else if (unknown || l >= 60 && !plain) && !short_caps && !around.shouted && token.len() > 3 {
            place = if around.code { 30 } else { 52 };
        }
        if f < 85 {
            person -= 12;
        }
    }
    let mut org = if m & ORG != 0 { 62 } else { 0 };
    if token.shape == Shape::Camel && token.class == 0 && token.len() >= 6 && !around.code {
        org = org.max(if around.org_cue { 60 } else { 20 });
    }
    if around.org_cue && (unknown || l >= 45 && !plain) {
        org = org.max(55);
    }
    if around.code {
        person -= if f >= 85 { 15 } else { 25 };
        place -= 25;
        org -= 25;
    }
    Some(Chunk { first: i, last: i, person, place, org }).filter(|c| c.person.max(c.place).max(c.org) > 0)
}

/// A run with a company's form or a body's kind in it.
fn organisation(scan: &Scan<'_>, first: usize, last: usize) -> Option<Chunk> {
    let list = scan.list();
    let words = &list[first..=last];
    let suffix = words.iter().rposition(|t| t.has(ORG_SUFFIX) && t.is_capital());
    let around = around(scan, first, last);
    let held = |t: &Token| {
        matches!(
            scan.word(t),
            "Inc"
                | "LLC"
                | "LLP"
                | "Ltd"
                | "GmbH"
                | "Corp"
                | "PLC"
                | "Plc"
                | "Incorporated"
                | "Limited"
                | "KG"
                | "AG"
                | "Pty"
                | "SRL"
                | "Srl"
                | "SpA"
                | "BV"
                | "AB"
                | "Oy"
                | "Corporation"
                | "Holdings"
                | "Co"
                | "Company"
                | "Group"
        )
    };
    if let Some(at) = suffix.filter(|at| *at > 0 && held(&words[*at])) {
        return Some(Chunk { first, last: first + at, person: 0, place: 0, org: 85 });
    }
    if words.len() < 2 {
        return None;
    }
    // Bank of X, University of X: the words behind the `of` belong to it.
    let kind_at = words.iter().rposition(|t| t.has(ORG_WORD) && t.shape == Shape::Title);
    if let Some(at) = kind_at {
        let named = words.iter().any(|t| {
            t.marks() & (COMMON | WORD | STOP | ORG_WORD) == 0 || t.has(PLACE | REGION | LAST_TOP) && !t.has(STOP)
        });
        let person_first = as_first(&words[0]) >= 85 && at + 1 == words.len() && as_last(&words[at]) >= 45;
        if named && !person_first && at + 1 >= words.len().saturating_sub(1) && !around.code {
            return Some(Chunk { first, last, person: 0, place: 0, org: if around.org_cue { 72 } else { 58 } });
        }
    }
    if words.iter().any(|t| t.has(ORG)) && !around.code {
        return Some(Chunk { first, last, person: 0, place: 0, org: 60 });
    }
    None
}

/// Small letters: names behind a cue, and a known first name with a last name behind it.
fn small(scan: &Scan<'_>, i: usize, token: &Token, chunks: &mut Vec<Chunk>) -> usize {
    let m = token.marks();
    if m & (FIRST | REGION) == 0 && token.class != 0 || m & STOP != 0 || token.len() < 3 {
        // Ministry of …: bodies that go on behind an `of` are capitals and seen there.
        return i + 1;
    }
    if m & TECH != 0 || token.class == 0 && (!cue_at(scan, i) || in_code(scan, i, i)) {
        return i + 1;
    }
    if !starts_cleanly(scan, token)
        || !ends_cleanly(scan, token)
        || !scan.gap_before(i).ends_with([' ', '\n', '"', '\'', '(', ',']) && i > 0
    {
        return i + 1;
    }
    let first = as_first(token);
    let next = scan.token(i + 1).filter(|t| {
        t.shape == Shape::Lower && t.len() >= 3 && matches!(scan.gap(i), " " | "-") && ends_cleanly(scan, t)
    });
    let last = next.map_or(0, |t| if t.has(STOP) { 0 } else { as_last(t) });
    let cue = cue_at(scan, i);
    let code = in_code(scan, i, i);
    let person = match (first, last, cue) {
        (_, 45.., true) => 62,
        (85.., 60.., false) if !code => 60,
        (100, 45.., false) if !code => 52,
        (45.., _, true) => 55,
        (_, _, true) if foreign(token) || m & LAST != 0 && m & COMMON == 0 => 50,
        (100, _, false) if !code && speaks(scan, i) => 50,
        _ => 0,
    };
    let place = if m & REGION != 0 && m & (COMMON | WORD) == 0 && located(scan, i) && !code { 60 } else { 0 };
    if person.max(place) == 0 {
        return i + 1;
    }
    let end = if person > 0 && last >= 45 { i + 1 } else { i };
    chunks.push(Chunk { first: i, last: end, person, place, org: 0 });
    end + 1
}

/// `my name is`, `call me`, `on behalf of`: what follows is a name however it is written.
fn cue_at(scan: &Scan<'_>, i: usize) -> bool {
    let list = scan.list();
    let word = |n: usize| i.checked_sub(n).map_or(String::new(), |p| scan.word(&list[p]).to_ascii_lowercase());
    if !matches!(scan.gap_before(i), " " | ": " | ":" | "? " | ": \"" | " \"" | ". ") {
        return false;
    }
    let (b1, b2) = (word(1), word(2));
    matches!(
        (b2.as_str(), b1.as_str()),
        ("name" | "names", "is" | "s" | "was")
            | ("call" | "calls" | "named" | "called", "me" | "him" | "her")
            | ("to" | "named" | "mr" | "mrs", "mr" | "mrs" | "ms" | "dr")
    ) || matches!(b1.as_str(), "named" | "nicknamed" | "surname" | "firstname" | "lastname" | "mr" | "mrs")
        || scan.gap_before(i).contains([':', '?']) && (1..=6).any(|n| matches!(word(n).as_str(), "name" | "names"))
}

/// Whether the word behind a small first name is what a person does.
fn speaks(scan: &Scan<'_>, i: usize) -> bool {
    let after = scan.token(i + 1);
    let before = i.checked_sub(1).and_then(|p| scan.token(p));
    after.is_some_and(|t| t.has(SAY) && scan.gap(i) == " ")
        || after.is_some_and(|t| scan.gap(i) == " " && matches!(scan.word(t), "is" | "was" | "has" | "will" | "s"))
        || before.is_some_and(|t| {
            t.has(RELATION | SAY) || matches!(scan.word(t), "with" | "and" | "me" | "hi" | "hello" | "by")
        })
}

/// Second look: a doubtful word beside a person in a list, or one that was part of a name elsewhere in the text.
fn promote(scan: &Scan<'_>, chunks: &mut [Chunk]) {
    const SURE: i32 = 55;
    let list = scan.list();
    let sure = |c: &Chunk| c.person >= SURE && c.person >= c.place && c.person >= c.org;
    // Parts of sure names, by their class and text.
    let parts: Vec<&str> = chunks
        .iter()
        .filter(|c| sure(c))
        .take(64)
        .flat_map(|c| list[c.first..=c.last].iter())
        .filter(|t| t.len() >= 3 && !t.has(COMMON | STOP))
        .map(|t| scan.word(t))
        .collect();
    // Two doubtful family names joined: `norberg and smith were`.
    for at in 1..chunks.len() {
        let (a, b) = (chunks[at - 1], chunks[at]);
        let joined =
            b.first == a.last + 2 && scan.word(&list[a.last + 1]) == "and" && a.first == a.last && b.first == b.last;
        if joined
            && a.person >= 25
            && b.person >= 25
            && a.person.max(b.person) >= 36
            && a.person + b.person > a.place + b.place
        {
            chunks[at - 1].person = a.person.max(SURE);
            chunks[at].person = b.person.max(SURE);
        }
    }
    for at in 0..chunks.len() {
        let c = chunks[at];
        if sure(&c) || c.person < 8 {
            continue;
        }
        let known = c.first == c.last && parts.contains(&scan.word(&list[c.first]));
        let tied = |a: &Chunk, b: &Chunk| {
            b.first == a.last + 1 && matches!(scan.gap(a.last), ", " | " & ")
                || b.first == a.last + 2
                    && matches!(scan.word(&list[a.last + 1]), "and" | "or")
                    && scan.gap(a.last).len() <= 2
        };
        let left = at.checked_sub(1).is_some_and(|p| sure(&chunks[p]) && tied(&chunks[p], &c));
        let right = chunks.get(at + 1).is_some_and(|n| sure(n) && tied(&c, n));
        if known || (left || right) && c.person >= 8 {
            chunks[at].person = c.person.max(SURE).max(c.place + 1);
        }
    }
}
