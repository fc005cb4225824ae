//! Persons, organisations, places and nationalities: runs of capitalized words, scored by the lexicon and the context.

mod context_cues;
mod eponyms;
mod organisations;
mod scoring;
mod software;

pub(super) use self::context_cues::{ORG_LABELS, PLACE_LABELS};
use self::context_cues::{has_location_cue, is_in_code};
use self::organisations::company_form;
use self::scoring::{classify, first_name_score, is_foreign_word, last_name_score};
use self::software::{described, technical};
use super::{ScanState, address};
use crate::Kind;
use crate::lexicon::hash_letters;
use crate::lexicon::mark::*;
use crate::token::{TokenShape, WordToken};

/// A run of words that may be a name, with the score of each reading.
#[derive(Clone, Copy, Debug)]
struct NameCandidate {
    first: usize,
    last: usize,
    person: i32,
    place: i32,
    org: i32,
}

/// Whether token `i` is in a line of code.
pub(super) fn is_code_line(scan: &ScanState<'_>, i: usize) -> bool {
    is_in_code(scan, i, i)
}

/// Names anywhere in the text.
pub(super) fn names(scan: &mut ScanState<'_>) {
    if !scan.wants.kinds.any(&[Kind::Person, Kind::Title, Kind::Organization, Kind::Location, Kind::Nationality]) {
        return;
    }
    let mut chunks = Vec::new();
    let mut i = 0;
    while let Some(token) = scan.token(i).filter(|_| !scan.should_stop(i)) {
        let next = match token.shape {
            TokenShape::Title | TokenShape::Upper | TokenShape::Camel => capitalized_run(scan, i, &mut chunks),
            TokenShape::Lower if token.class != 0 && !token.has(FIRST | REGION) => i + 1,
            TokenShape::Lower => lowercase_name(scan, i, token, &mut chunks),
            _ => i + 1,
        };
        i = next.max(i + 1);
    }
    classify_towns(scan, &mut chunks);
    organisations::classify_listed(scan, &mut chunks);
    promote_repeated(scan, &mut chunks);
    things(scan, &mut chunks);
    let mut small = None;
    for chunk in chunks {
        if !is_common_in_text(scan, &chunk, &mut small) {
            report_name(scan, &chunk);
        }
    }
}

/// `The Ninja generator`, in a text about software: treated as a product throughout the text.
fn things(scan: &ScanState<'_>, chunks: &mut [NameCandidate]) {
    let list = scan.list();
    let doubtful = |c: &NameCandidate| c.first == c.last && c.person < 75 && !list[c.first].has(FIRST_TOP | LAST_TOP);
    let named = |c: &&NameCandidate| {
        doubtful(c) && c.person >= MIN_REPORTED_SCORE && described(scan, c.first) && technical(scan, c.first)
    };
    let mut words: Vec<&str> = chunks.iter().filter(named).map(|c| scan.word(&list[c.first])).collect();
    words.sort_unstable();
    if words.is_empty() {
        return;
    }
    for chunk in chunks.iter_mut().filter(|c| doubtful(c)) {
        if words.binary_search(&scan.word(&list[chunk.first])).is_ok() {
            chunk.person = 0;
        }
    }
}

/// Whether an uncertain word that is not a first name occurs in lower case elsewhere in the text, and is therefore a
/// common noun. `small` caches the sorted hashes of the rare lower-case words.
fn is_common_in_text(scan: &ScanState<'_>, chunk: &NameCandidate, small: &mut Option<Vec<u64>>) -> bool {
    let list = scan.list();
    let token = &list[chunk.first];
    let doubtful = chunk.first == chunk.last && !token.has(FIRST | REGION | ORG) && token.is_capital();
    if !doubtful || !(CONFIDENT_SCORE..65).contains(&chunk.person.max(chunk.place).max(chunk.org)) {
        return false;
    }
    let hash = |t: &WordToken| hash_letters(scan.bytes, t.start(), t.end());
    let small = small.get_or_insert_with(|| {
        let rare = list.iter().filter(|t| t.shape == TokenShape::Lower && (t.class == 0 || t.has(PLACE | LAST)));
        // A mailbox such as `anna.b@…` indicates a name.
        let mut hashes: Vec<u64> =
            rare.filter(|t| has_clean_start(scan, t) && has_clean_end(scan, t)).map(hash).collect();
        hashes.sort_unstable();
        hashes
    });
    small.binary_search(&hash(token)).is_ok()
}

/// The threshold of default policies; only less certain candidates are examined again.
const CONFIDENT_SCORE: i32 = 45;

/// Candidates below this are not reported.
const MIN_REPORTED_SCORE: i32 = 30;

fn report_name(scan: &mut ScanState<'_>, chunk: &NameCandidate) {
    let list = scan.list();
    let (start, end) = (list[chunk.first].start(), list[chunk.last].end());
    let (kind, score) = if chunk.org > chunk.person && chunk.org >= chunk.place {
        (Kind::Organization, chunk.org)
    } else if chunk.place > chunk.person {
        (Kind::Location, chunk.place)
    } else {
        (Kind::Person, chunk.person)
    };
    if chunk.person.max(chunk.place).max(chunk.org) >= 15
        && list[chunk.last].is_capital()
        && let Some(longer) = company_form(scan, end)
    {
        return scan.push(Kind::Organization, start, longer, 80);
    }
    if score >= MIN_REPORTED_SCORE {
        let score = score.clamp(0, 95) as u8;
        scan.push(kind, start, end, score);
        if kind == Kind::Person {
            title(scan, chunk.first, score);
        }
    }
}

/// `Mrs.` before a name identifies the person too; without a name it does not.
fn title(scan: &mut ScanState<'_>, first: usize, score: u8) {
    let Some(token) = first.checked_sub(1).and_then(|p| scan.token(p)).copied() else { return };
    let gap = scan.gap_before(first);
    if token.has(HONORIFIC) && matches!(gap, " " | ". ") && matches!(token.shape, TokenShape::Title | TokenShape::Upper)
    {
        let end = token.end() + usize::from(gap == ". ");
        scan.push(Kind::Title, token.start(), end, score);
    }
}

/// A run of capitalized words from token `i`; returns the next token to examine.
fn capitalized_run(scan: &mut ScanState<'_>, i: usize, chunks: &mut Vec<NameCandidate>) -> usize {
    let token = scan.list()[i];
    let marks = token.flags();
    if marks & NRP != 0 && token.len() > 3 {
        let confidence = match (belongs_to_person(scan, i), is_language_name(scan.word(&token))) {
            (true, _) => 65,
            // A language, or something named after a country: `English`, `French`.
            (false, true) => 40,
            (false, false) if is_in_code(scan, i, i) => 40,
            (false, false) => 55,
        };
        scan.push(Kind::Nationality, token.start(), token.end(), confidence);
    }
    if !has_clean_start(scan, &token) {
        return i + 1;
    }
    if marks & (STOP | HONORIFIC) != 0 && marks & (PARTICLE | PHRASE) == 0 {
        return i + 1;
    }
    // `The` only begins known phrases; what follows is examined separately.
    if marks & STOP != 0 && marks & PARTICLE == 0 {
        return match address::phrase_at(scan, i) {
            Some((end, found)) if found & (PLACE | REGION) != 0 => place_phrase(scan, i, end, chunks),
            _ => i + 1,
        };
    }
    if let Some(last) = eponyms::named_after(scan, i) {
        return last + 1;
    }
    if let Some(firm) = organisations::partnership(scan, i) {
        chunks.push(firm);
        return firm.last + 1;
    }
    let phrase = if marks & PHRASE != 0 { address::phrase_at(scan, i) } else { None };
    let last = run_end(scan, i);
    if let Some(body) = organisations::organisation_of(scan, i, last) {
        chunks.push(body);
        return body.last + 1;
    }
    match phrase {
        Some((end, found)) if found & (PLACE | REGION) != 0 => return place_phrase(scan, i, end, chunks),
        Some((end, _)) if has_clean_end(scan, &scan.list()[end]) && end >= last => {
            chunks.push(NameCandidate { first: i, last: end, person: 0, place: 0, org: 72 });
            return end + 1;
        }
        _ => {}
    }
    if marks & STOP != 0 && last == i {
        return i + 1;
    }
    let found = classify(scan, i, last);
    match found {
        Some(chunk) => {
            chunks.push(chunk);
            chunk.last + 1
        }
        None => i + 1,
    }
}

/// `I am Swedish`, `a Spanish citizen`, `nationality: Greek`: about a person, not a language or a dish.
fn belongs_to_person(scan: &ScanState<'_>, i: usize) -> bool {
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
    let next = scan.token(i + 1).filter(|_| scan.gap(i) == " ");
    let worker = next.is_some_and(|t| t.has(JOB | RELATION) && t.shape == TokenShape::Lower);
    // `She is 40, Polish, and teaches`: refers to the preceding person.
    let aside = matches!(scan.gap(i), ", " | "." | "; ")
        && scan.near_word(i, &["is", "was", "am", "are", "old"], 5, 0)
        && !scan.near_word(i, &["in", "into", "from", "language", "languages", "to", "speaks", "spoken"], 4, 2);
    scan.near_word(i, &of, 2, 0) || scan.near_word(i, &who, 0, 1) || pronoun || worker || aside
}

/// Whether the nationality's name is more often that of a language.
fn is_language_name(word: &str) -> bool {
    const LANGUAGE_NAMES: &[&str] = &[
        "english",
        "french",
        "german",
        "spanish",
        "italian",
        "portuguese",
        "dutch",
        "polish",
        "czech",
        "slovak",
        "hungarian",
        "romanian",
        "bulgarian",
        "greek",
        "turkish",
        "russian",
        "ukrainian",
        "belarusian",
        "lithuanian",
        "latvian",
        "estonian",
        "finnish",
        "swedish",
        "norwegian",
        "danish",
        "icelandic",
        "irish",
        "welsh",
        "chinese",
        "japanese",
        "korean",
        "vietnamese",
        "thai",
        "indonesian",
        "nepali",
        "persian",
        "maori",
        "albanian",
        "serbian",
        "croatian",
        "bosnian",
        "slovenian",
        "macedonian",
        "georgian",
        "armenian",
        "kazakh",
        "uzbek",
        "mongolian",
        "kurdish",
        "orthodox",
        "latin",
        "christian",
        "american",
        "british",
        "european",
        "african",
        "asian",
        "indian",
        "swiss",
        "arab",
        "canadian",
        "australian",
        "methodist",
        "baptist",
        "evangelical",
        "mexican",
        "republican",
        "democrat",
        "independent",
    ];
    LANGUAGE_NAMES.contains(&word.to_ascii_lowercase().as_str())
}

fn place_phrase(scan: &ScanState<'_>, i: usize, end: usize, chunks: &mut Vec<NameCandidate>) -> usize {
    // `Jordan Smith` is not a phrase although Jordan is a country; `San Marino Cruz` continues as a name.
    let list = scan.list();
    let wordy = list[i..=end].iter().all(|t| t.has(COMMON | WORD | STOP));
    let located = has_location_cue(scan, i);
    let named = scan.list()[i].has(FIRST) && list[end].has(LAST) && !list[end].has(COMMON);
    let score = match (located, wordy) {
        (true, _) => 80,
        (false, true) => 35,
        (false, false) if named => 50,
        (false, false) => 65,
    };
    let last = run_end(scan, i);
    if last > end
        && let Some(chunk) = classify(scan, i, last).filter(|c| c.org.max(c.person) > score && c.last > end)
    {
        chunks.push(chunk);
        return chunk.last + 1;
    }
    let person = if named && !located { 60 } else { 0 };
    if has_clean_end(scan, &list[end]) {
        chunks.push(NameCandidate { first: i, last: end, person, place: score, org: 0 });
    }
    end + 1
}

/// Whether the surrounding bytes allow a word of prose here, rather than code, a path or a longer name.
fn has_clean_start(scan: &ScanState<'_>, token: &WordToken) -> bool {
    match scan.byte_before(token.start()) {
        b'_' | b'/' | b'\\' | b'=' | b'$' | b'#' | b'&' | b'~' | b'^' | b'%' | b'<' => false,
        // `@Tomasz, can you …` addresses a person; `@Test` and `a@b` do not.
        b'@' => {
            let spoken_to = token.has(FIRST) && !token.has(COMMON | WORD | TECH);
            spoken_to && matches!(scan.byte_before(token.start() - 1), b' ' | b'\n' | b'"')
        }
        b'.' => !scan.byte_before(token.start() - 1).is_ascii_alphanumeric() || initials_before(scan, token.start()),
        b':' => scan.byte_before(token.start() - 1) != b':',
        b'-' => scan.byte_before(token.start() - 1) != b'-' || token.start() < 2,
        _ => true,
    }
}

/// `J.Smith`: a full stop after a single capital.
fn initials_before(scan: &ScanState<'_>, at: usize) -> bool {
    at >= 2 && scan.bytes[at - 2].is_ascii_uppercase() && !scan.byte_before(at - 2).is_ascii_alphanumeric()
}

fn has_clean_end(scan: &ScanState<'_>, token: &WordToken) -> bool {
    let (a, b) = (scan.byte_at(token.end()), scan.byte_at(token.end() + 1));
    match a {
        // The end of an element: `<name>Anna</name>`.
        b'<' => b == b'/',
        b'_' | b'/' | b'(' | b'=' | b'[' | b'{' | b'$' | b'#' | b'@' | b'&' | b'|' | b'~' | b'^' | b'+' => false,
        b'.' => !b.is_ascii_alphanumeric(),
        b':' => b != b':',
        // `Aren't`
        b'\'' => b != b't' || scan.byte_at(token.end() + 2).is_ascii_alphanumeric(),
        b'\\' => matches!(b, b'n' | b'"' | b'\'' | b't' | b'r' | b','),
        _ => true,
    }
}

/// The end of the run of words written as a name.
fn run_end(scan: &ScanState<'_>, i: usize) -> usize {
    let mut last = i;
    while last < i + 7 {
        let Some(next) = scan.token(last + 1) else { break };
        let gap = scan.gap(last);
        let current = scan.list()[last];
        let initial = current.shape == TokenShape::Upper && current.len() == 1;
        let joined = match gap {
            " " | "-" | "'" | "’" => true,
            ". " | "." => initial || current.has(ABBR) || matches!(scan.word(&current), "St" | "Jr" | "Mt" | "Ft"),
            " & " => next.is_capital(),
            ", " => next.has(CREDENTIAL | ORG_SUFFIX) && next.is_capital() && next.flags() & (COMMON | FIRST) == 0,
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
        // van der, de la: lower-case particles inside a name, followed by a capital.
        let mut ahead = last + 1;
        while ahead <= last + 3
            && scan.token(ahead).is_some_and(|t| t.has(PARTICLE) && t.shape == TokenShape::Lower)
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

/// Lower case: names after a cue, and a known first name followed by a last name.
fn lowercase_name(scan: &ScanState<'_>, i: usize, token: &WordToken, chunks: &mut Vec<NameCandidate>) -> usize {
    let m = token.flags();
    if m & (FIRST | REGION) == 0 && token.class != 0 || m & STOP != 0 || token.len() < 3 {
        // Ministry of …: organisations with `of` are capitalized and handled there.
        return i + 1;
    }
    if m & TECH != 0 || token.class == 0 && (!has_cue_at(scan, i) || is_in_code(scan, i, i)) {
        return i + 1;
    }
    if !has_clean_start(scan, token)
        || !has_clean_end(scan, token)
        || !scan.gap_before(i).ends_with([' ', '\n', '"', '\'', '(', ',']) && i > 0
    {
        return i + 1;
    }
    // `a variable named errno`
    if token.class == 0 && technical(scan, i) {
        return i + 1;
    }
    let first = first_name_score(token);
    let next = scan.token(i + 1).filter(|t| {
        t.shape == TokenShape::Lower && t.len() >= 3 && matches!(scan.gap(i), " " | "-") && has_clean_end(scan, t)
    });
    let last = next.map_or(0, |t| if t.has(STOP) { 0 } else { last_name_score(t) });
    let cue = has_cue_at(scan, i);
    let code = is_in_code(scan, i, i);
    if !cue && context_cues::is_foreign_text(scan, i, i) {
        return i + 1;
    }
    let person = match (first, last, cue) {
        (_, 45.., true) => 62,
        (85.., 60.., false) if !code => 60,
        (100, 45.., false) if !code => 52,
        (45.., _, true) => 55,
        (_, _, true) if is_foreign_word(token) || m & LAST != 0 && m & COMMON == 0 => 50,
        (100, _, false) if !code && is_speaker_line(scan, i) => 50,
        _ => 0,
    };
    let place = if m & REGION != 0 && m & (COMMON | WORD) == 0 && has_location_cue(scan, i) && !code { 60 } else { 0 };
    if person.max(place) == 0 {
        return i + 1;
    }
    let end = if person > 0 && last >= 45 { i + 1 } else { i };
    chunks.push(NameCandidate { first: i, last: end, person, place, org: 0 });
    end + 1
}

/// Words before `_name` that refer to a person.
const PEOPLE_WORDS: &[&str] = &[
    "first",
    "last",
    "full",
    "middle",
    "maiden",
    "family",
    "given",
    "customer",
    "client",
    "patient",
    "employee",
    "contact",
    "holder",
    "owner",
    "billing",
    "shipping",
    "sender",
    "recipient",
    "author",
    "cardholder",
    "account",
    "display",
    "legal",
    "user",
    "person",
    "member",
    "student",
    "guest",
    "nick",
    "pet",
    "mother",
    "father",
    "spouse",
];

/// `my name is`, `call me`, `on behalf of`: a name follows, whatever its case.
fn has_cue_at(scan: &ScanState<'_>, i: usize) -> bool {
    let list = scan.list();
    let gap = scan.gap_before(i);
    if !matches!(gap, " " | ": " | ":" | "? " | ": \"" | " \"" | ". ") {
        return false;
    }
    let before = i.checked_sub(1).map(|p| &list[p]);
    let telling = before.is_some_and(|t| t.len() <= 3 || t.has(NAME_CUE | HONORIFIC));
    if !telling && !gap.contains([':', '?']) {
        return false;
    }
    let word = |n: usize| i.checked_sub(n).map_or("", |p| scan.word(&list[p]));
    let any = |n: usize, words: &[&str]| words.iter().any(|w| word(n).eq_ignore_ascii_case(w));
    // `model_name: llama`: the name of a thing.
    let glued = i > 1 && any(1, &["name", "names"]) && matches!(scan.gap_before(i - 1), "_" | "-" | ".");
    if glued && !any(2, PEOPLE_WORDS) {
        return false;
    }
    any(1, &["named", "nicknamed", "surname", "firstname", "lastname", "mr", "mrs"])
        || any(1, &["is", "s", "was"]) && any(2, &["name", "names"])
        || any(1, &["me", "him", "her"]) && any(2, &["call", "calls", "named", "called"])
        || any(1, &["mr", "mrs", "ms", "dr"]) && any(2, &["to", "named", "mr", "mrs"])
        || gap.contains('?') && (1..=6).any(|n| any(n, &["name", "names"]))
        || gap.contains(':')
            && (1..=3).any(|n| {
                any(n, &["name", "names"]) && is_same_line(scan, i - n, i) && (n > 1 || glued || !is_key(scan, i - 1))
            })
}

/// Whether neither a line break nor another label is between two tokens.
fn is_same_line(scan: &ScanState<'_>, from: usize, to: usize) -> bool {
    (from..to.saturating_sub(1)).all(|n| !scan.gap(n).contains(['\n', ':']))
}

/// `  name: bar`: a key at the beginning of a line or in quotes, whose value may be any name.
fn is_key(scan: &ScanState<'_>, i: usize) -> bool {
    let gap = scan.gap_before(i);
    scan.list().get(i).is_some_and(|t| t.shape == TokenShape::Lower)
        && (gap.ends_with(['"', '\'', '{', ',']) || gap.trim_matches(' ').ends_with(['\n', '-']))
}

/// Whether a lower-case first name is followed by a verb of personal action.
fn is_speaker_line(scan: &ScanState<'_>, i: usize) -> bool {
    let after = scan.token(i + 1);
    let before = i.checked_sub(1).and_then(|p| scan.token(p));
    after.is_some_and(|t| t.has(SAY) && scan.gap(i) == " ")
        || after.is_some_and(|t| scan.gap(i) == " " && matches!(scan.word(t), "is" | "was" | "has" | "will" | "s"))
        || before.is_some_and(|t| {
            t.has(RELATION | SAY) || matches!(scan.word(t), "with" | "and" | "me" | "hi" | "hello" | "by")
        })
}

/// The words of the mailboxes in the text: `priya.r@…` indicates that Priya is a name.
fn mailboxes<'t>(scan: &ScanState<'t>) -> Vec<&'t str> {
    let list = scan.list();
    let mut words = Vec::new();
    for at in scan.tokens.ats.iter().take(64) {
        let mut i = list.partition_point(|t| t.end <= *at);
        let mut end = *at as usize;
        while let Some(token) = i.checked_sub(1).and_then(|p| list.get(p)) {
            if token.end() != end {
                break;
            }
            if token.is_word() && token.len() >= 3 && !token.has(COMMON | WORD | STOP | TECH) {
                words.push(scan.word(token));
            }
            if !matches!(scan.byte_before(token.start()), b'.' | b'_' | b'-') {
                break;
            }
            (i, end) = (i - 1, token.start() - 1);
        }
    }
    words
}

/// `Anderstad, Ghana`: an unknown word before a country or a state is a town.
fn classify_towns(scan: &ScanState<'_>, chunks: &mut [NameCandidate]) {
    let list = scan.list();
    for at in 1..chunks.len() {
        let (a, b) = (chunks[at - 1], chunks[at]);
        let region = b.place >= 45 && b.place > b.person && list[b.first].has(REGION | PHRASE);
        let tied = b.first == a.last + 1 && scan.gap(a.last) == ", " && a.last <= a.first + 2;
        if region && tied && a.org < 55 && a.person < 75 && !list[a.first].has(COMMON | NRP | TECH) {
            chunks[at - 1].place = a.place.max(a.person + 1).max(60);
        }
    }
}

/// Second pass: promotes an uncertain word beside a person in a list, or one that is part of a name elsewhere in the
/// text.
fn promote_repeated(scan: &ScanState<'_>, chunks: &mut [NameCandidate]) {
    const PROMOTION_SCORE: i32 = 55;
    let list = scan.list();
    let sure = |c: &NameCandidate| c.person >= PROMOTION_SCORE && c.person >= c.place && c.person >= c.org;
    // Parts of certain names; a single unknown word is not certain enough to search for it everywhere.
    let mut parts: Vec<&str> = chunks
        .iter()
        .filter(|c| sure(c) && (c.last > c.first || list[c.first].has(FIRST | LAST)))
        .take(64)
        .flat_map(|c| list[c.first..=c.last].iter())
        .filter(|t| t.len() >= 3 && !t.has(COMMON | STOP))
        .map(|t| scan.word(t))
        .collect();
    let mails = !scan.tokens.ats.is_empty();
    parts.extend(mailboxes(scan));
    parts.sort_unstable();
    // Two uncertain family names joined: `norberg and smith were`.
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
            chunks[at - 1].person = a.person.max(PROMOTION_SCORE);
            chunks[at].person = b.person.max(PROMOTION_SCORE);
        }
    }
    for at in 0..chunks.len() {
        let c = chunks[at];
        if sure(&c) || c.person < 8 {
            continue;
        }
        let known = c.first == c.last && {
            let word = scan.word(&list[c.first]);
            parts.binary_search(&word).is_ok() || mails && parts.iter().any(|p| p.eq_ignore_ascii_case(word))
        };
        let tied = |a: &NameCandidate, b: &NameCandidate| {
            b.first == a.last + 1 && matches!(scan.gap(a.last), ", " | " & ")
                || b.first == a.last + 2
                    && matches!(scan.word(&list[a.last + 1]), "and" | "or")
                    && scan.gap(a.last).len() <= 2
        };
        let left = at.checked_sub(1).is_some_and(|p| sure(&chunks[p]) && tied(&chunks[p], &c));
        let right = chunks.get(at + 1).is_some_and(|n| sure(n) && tied(&c, n));
        if known || (left || right) && c.person >= 8 {
            chunks[at].person = c.person.max(PROMOTION_SCORE).max(c.place + 1);
        }
    }
}
