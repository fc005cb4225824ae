//! Street addresses: a street with its number, and the unit, town, region and postal code that follow.

mod address_continuation;
mod addressee;
mod corner;

use self::address_continuation::extend_address;
use self::addressee::addressee;
use self::corner::corner;
use super::numbers::is_house_number;
use super::{ScanState, number_context};
use crate::Kind;
use crate::lexicon::{CaseFolded, mark, topic};
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordList, WordSet, words};

/// Suffixes of one-word street names, folded: German, Dutch, Nordic, Finnish, Hungarian.
static COMPOUND_SUFFIXES: WordList = WordList::new(|| words("compound_suffixes"));

/// Street words that rarely mean anything else.
static STRONG_SUFFIXES: WordSet = WordSet::new(|| words("strong_suffixes"));

/// Street prefixes that are also written in lower case.
const LOWERCASE_PREFIXES: &[&str] =
    &["rue", "ul", "ulica", "calle", "rua", "avenida", "avda", "jalan", "jl", "c", "viale", "corso", "piazza"];

/// Street prefixes that are written in lower case after the house number: `5 avenue Anatole France`.
const LOWERCASE_NUMBERED_PREFIXES: &[&str] =
    &["avenue", "boulevard", "place", "allee", "allée", "chemin", "impasse", "quai", "route", "cours"];

/// Maximum number of words of a street's name on one side of its street word.
const MAX_NAME_WORDS: usize = 5;

/// Reports addresses anywhere in the text, and the addressees above them.
pub(super) fn addresses(scan: &mut ScanState<'_>) {
    if !scan.wants.kinds.any(&[Kind::StreetAddress]) {
        return;
    }
    let mut i = 0;
    while let Some(token) = scan.token(i).filter(|_| !scan.should_stop(i)) {
        if token.plain {
            i += 1;
            continue;
        }
        let marks = token.marks;
        let plain = token.shape == TokenShape::Lower
            && marks & (mark::UNIT | mark::STREET_PREFIX | mark::STREET_SUFFIX) == 0
            && (token.len() < 7 || marks & (mark::COMMON | mark::WORD | mark::STOP | mark::TECH) != 0);
        // Most words of a text can neither begin nor be a street, so they are left early.
        let candidate = match token.is_word() {
            _ if plain && !(token.len() == 1 && scan.byte_at(token.end()) == b'/') => None,
            true => address_core(scan, i, token),
            false => number_name_number(scan, i, token),
        };
        let Some(mut part) = candidate else {
            i += 1;
            continue;
        };
        let (last, pieces) = extend_address(scan, part.last);
        part.last = last.min(scan.list().len() - 1);
        // Each further part of an address makes it more certain.
        let confidence = part.confidence + if pieces > 0 { 20 } else { 0 };
        let cued = scan.has_topic_near(part.first, topic::ADDRESS, 6, 0);
        let confidence = (confidence + if cued { 15 } else { 0 }).min(95);
        let list = scan.list();
        part.first -= usize::from(has_block_number(scan, part.first));
        let (start, end) = (list[part.first].start(), list[part.last].end());
        scan.push(Kind::StreetAddress, start, end, confidence);
        addressee(scan, part.first);
        i = i.max(part.last) + 1;
    }
}

/// `95 230 Wit Road`: a block number, or a number that was typed twice. A long one begins a line, or follows `at`.
fn has_block_number(scan: &ScanState<'_>, first: usize) -> bool {
    let Some(p) = first.checked_sub(1).filter(|p| scan.gap(*p) == " ") else { return false };
    let (number, street) = (&scan.list()[p], &scan.list()[first]);
    let led = || scan.gap_before(p).contains('\n') || p == 0 || scan.near_word(p, &["at", "to"], 1, 0);
    is_house_number(scan, street) && number.is_digits() && (number.len() <= 3 || number.len() <= 5 && led())
}

/// An address that was found, by its tokens.
struct AddressPart {
    first: usize,
    last: usize,
    confidence: u8,
}

fn address_part(first: usize, last: usize, confidence: u8) -> Option<AddressPart> {
    Some(AddressPart { first, last, confidence })
}

/// The address that begins with or contains the word at `i`, by the kind of word that it is.
fn address_core(scan: &ScanState<'_>, i: usize, token: &WordToken) -> Option<AddressPart> {
    let marks = token.marks;
    if token.shape == TokenShape::Upper && matches!(scan.word(token), "FPO" | "APO" | "DPO") {
        return military_address(scan, i);
    }
    let boxed = token.len() == 1 && scan.word(token) == "P" && scan.byte_at(token.end()) == b'.';
    if (marks & mark::UNIT != 0 || boxed)
        && let Some(found) = corner(scan, i).or_else(|| unit_address(scan, i))
    {
        return Some(found);
    }
    let calle = token.len() == 1 && scan.byte_at(token.end()) == b'/' && matches!(scan.word(token), "C" | "c");
    if (marks & mark::STREET_PREFIX != 0 || calle)
        && let Some(found) = prefixed_street(scan, i, token)
    {
        return Some(found);
    }
    if marks & mark::STREET_SUFFIX != 0 {
        return suffixed_street(scan, i, token);
    }
    if token.len() >= 7
        && marks & (mark::COMMON | mark::WORD | mark::STOP | mark::TECH) == 0
        && has_street_suffix(scan.word(token))
        // In lower case it is as often the ending of a Finnish noun: `työtilaan 5`.
        && (token.is_capital() || !scan.word(token).ends_with("laan"))
    {
        return with_house_number(scan, i);
    }
    None
}

/// `98 Tylova 1036`, `85 Trg revolucije 12`: a name between two house numbers, in the context of an address.
fn number_name_number(scan: &ScanState<'_>, i: usize, token: &WordToken) -> Option<AddressPart> {
    if let Some(found) = line_above_postcode(scan, i, token).or_else(|| line_above_town(scan, i, token)) {
        return Some(found);
    }
    if !is_house_number(scan, token) || scan.gap(i) != " " {
        return None;
    }
    let mut last = i + 1;
    let mut capitals = 0;
    while last <= i + 4 {
        let next = scan.token(last)?;
        if is_house_number(scan, next) {
            break;
        }
        let lower = next.shape == TokenShape::Lower && (next.class == 0 || next.has(mark::PARTICLE));
        if !(next.is_capital() || next.shape == TokenShape::Caseless || lower)
            || next.has(mark::STOP | mark::MONTH | mark::TECH)
            || matches!(scan.word(next), "CFR" | "USC")
            || !is_name_join(scan.gap(last))
        {
            return None;
        }
        capitals += usize::from(next.is_capital() && !next.has(mark::COMMON));
        last += 1;
    }
    let number = scan.token(last).filter(|t| is_house_number(scan, t))?;
    let cued = scan.has_topic_near(i, topic::ADDRESS, 5, 0);
    let next = scan.token(last + 1);
    let street = || scan.gap(last) == " " && next.is_some_and(|t| t.is_capital() && t.has(mark::STREET_SUFFIX));
    let line = scan.gap(last).starts_with([',', '\n']) && token.len() <= 3;
    let goes_on = line && next.is_some_and(|t| t.is_capital()) || street();
    let fits = capitals > 0 && last > i + 1 && number.len() <= 4 && !followed_by_unit_of_measure(scan, last);
    (fits && (cued || goes_on)).then_some(AddressPart { first: i, last, confidence: 55 })
}

/// `3265 Mary Bridge`, a line break, then a town with its postal code: any street word will do.
fn line_above_town(scan: &ScanState<'_>, i: usize, token: &WordToken) -> Option<AddressPart> {
    if !is_house_number(scan, token) || scan.gap(i) != " " || followed_by_unit_of_measure(scan, i) {
        return None;
    }
    let mut last = i;
    while last < i + 4
        && scan.gap(last) == " "
        && scan.token(last + 1).is_some_and(|t| t.is_capital() && !t.has(mark::STOP))
    {
        last += 1;
    }
    if last == i || !scan.gap(last).starts_with(['\n', ',']) {
        return None;
    }
    let (end, _) = extend_address(scan, last);
    // A list of years and names: `2014 Oracle`, a line break, `2019`.
    let years = is_year(scan, token) && scan.token(end).is_some_and(|t| is_year(scan, t));
    let coded = scan.token(end).is_some_and(|t| t.is_digits() && t.len() >= 4) && end > last + 1 && !years;
    coded.then_some(AddressPart { first: i, last, confidence: 60 })
}

fn is_year(scan: &ScanState<'_>, token: &WordToken) -> bool {
    token.is_digits() && token.len() == 4 && matches!(scan.word(token).as_bytes(), [b'1', b'9', ..] | [b'2', b'0', ..])
}

/// `Fempad 3`, a line break, `3576 HW Friens`: the line above a postal code and a town ends with a house number.
fn line_above_postcode(scan: &ScanState<'_>, i: usize, token: &WordToken) -> Option<AddressPart> {
    let end = i.checked_sub(1)?;
    let code = token.is_digits() && matches!(token.len(), 4 | 5)
        || token.is_digits()
            && token.len() == 2
            && scan.gap(i) == "-"
            && scan.token(i + 1).is_some_and(|t| t.is_digits() && t.len() == 3)
        || token.shape == TokenShape::Mixed
            && token.len() == 6
            && scan.word(token).ends_with(|c: char| c.is_ascii_uppercase());
    let number = scan.list()[end];
    if !code
        || !matches!(scan.gap(end), "\n" | ",\n" | ", ")
        || !is_house_number(scan, &number)
        || scan.gap(end) == ", " && token.len() != 5
    {
        return None;
    }
    let mut first = end;
    let mut capitals = 0;
    while let Some(p) = first.checked_sub(1) {
        let before = &scan.list()[p];
        let joined = matches!(scan.gap(p), " " | ", " | "/" | "-" | ". " | "'");
        let street = before.is_capital()
            || before.has(mark::PARTICLE | mark::STREET_PREFIX)
            || before.class == 0
            || !before.is_word();
        if !joined || !street || end - first > 6 || before.has(mark::STOP) && !before.has(mark::PARTICLE) {
            break;
        }
        capitals += usize::from(before.is_capital());
        first = p;
    }
    let town = if token.len() == 2 { i + 2 } else { i + 1 };
    let towned = scan.token(town).is_some_and(WordToken::is_capital) && scan.gap(town - 1).len() <= 2;
    (capitals > 0 && towned).then_some(AddressPart { first, last: town, confidence: 70 })
}

fn has_street_suffix(word: &str) -> bool {
    // All of these end with one of a few letters.
    if !word.ends_with([
        'e', 'g', 'z', 'r', 'm', 'n', 't', 'l', 'j', 'u', 'a', 'o', 'E', 'G', 'Z', 'R', 'M', 'N', 'T', 'L', 'J', 'U',
        'A', 'O', 'k', 'K',
    ]) {
        return false;
    }
    // Most words are ruled out by the last letter, and ASCII words need no copy.
    let last = word.as_bytes().last().map(u8::to_ascii_lowercase);
    let ends = |word: &str| {
        COMPOUND_SUFFIXES
            .iter()
            .any(|c| word.len() >= c.len() + 3 && c.as_bytes().last().copied() == last && word.ends_with(c))
    };
    if word.is_ascii() && !word.as_bytes()[1..].iter().any(u8::is_ascii_uppercase) {
        ends(word)
    } else {
        ends(&word.to_lowercase())
    }
}

/// A house number right after or before the word at `i`.
fn with_house_number(scan: &ScanState<'_>, i: usize) -> Option<AddressPart> {
    let (before, after) = (number_before(scan, i), number_after(scan, i));
    match (before, after) {
        (None, None) => None,
        (first, last) => address_part(first.unwrap_or(i), last.unwrap_or(i), 75),
    }
}

fn number_after(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let next = scan.token(i + 1)?;
    (matches!(scan.gap(i), " " | ", " | ". " | " n. " | " nr. " | " no. " | " #")
        && is_house_number(scan, next)
        && !followed_by_unit_of_measure(scan, i + 1))
    .then_some(i + 1)
}

fn number_before(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let p = i.checked_sub(1)?;
    let before = scan.token(p)?;
    (matches!(scan.gap(p), " " | ", ") && is_house_number(scan, before)).then_some(p)
}

/// `5 km`, `10 %`, `3 times`: the number is a quantity.
fn followed_by_unit_of_measure(scan: &ScanState<'_>, i: usize) -> bool {
    scan.gap(i) == " "
        && scan.token(i + 1).is_some_and(|t| {
            let word = scan.word(t);
            matches!(word, "m" | "miles" | "times" | "days" | "hours" | "minutes" | "years" | "percent" | "items")
                || number_context::is_unit(word)
        })
}

/// Whether a token can be a word of a street's name.
fn name_word(scan: &ScanState<'_>, token: &WordToken) -> bool {
    token.is_capital() && !token.has(mark::TECH)
        || token.has(mark::PARTICLE)
        // 5th, 42nd
        || token.shape == TokenShape::Mixed && scan.word(token).ends_with(['h', 't', 'd']) && token.len() <= 5
}

fn is_name_join(gap: &str) -> bool {
    matches!(gap, " " | "-" | "'" | "’" | ". " | "." | "/ " | "/" | " - ")
}

/// `2249 College Street`, `Vizirov Street`, `Paul-Nevermann-Platz 47`.
fn suffixed_street(scan: &ScanState<'_>, i: usize, token: &WordToken) -> Option<AddressPart> {
    let mut first = i;
    let mut names = 0;
    let mut number = None;
    while names <= MAX_NAME_WORDS {
        let Some(p) = first.checked_sub(1) else { break };
        let before = scan.list()[p];
        if !is_name_join(scan.gap(p)) {
            break;
        }
        if is_house_number(scan, &before) && names > 0 && matches!(scan.gap(p), " ") {
            number = Some(p);
            break;
        }
        let plain =
            before.shape == TokenShape::Lower && before.marks & (mark::STOP | mark::PREP | mark::SAY) == 0 && names < 3;
        if !(name_word(scan, &before) || plain && lower_street(scan, first, &before))
            || before.marks & (mark::STOP | mark::MONTH) == mark::STOP
        {
            break;
        }
        names += 1;
        first = p;
    }
    // `walk road road`: no word of these is a name.
    let named = |t: &WordToken| t.marks & (mark::STREET_SUFFIX | mark::STREET_PREFIX) == 0;
    if names == 0 || number.is_none() && !scan.list()[first..i].iter().any(named) {
        return None;
    }
    let word = scan.word(token).to_lowercase();
    let strong = STRONG_SUFFIXES.contains(word.as_str());
    let after = number_after(scan, i).filter(|_| token.is_capital());
    let capital = token.is_capital();
    // A second number before the street: `71 34 Avenue`, a house and its entrance.
    let first_number = number.map(|n| number_before(scan, n).unwrap_or(n));
    match (first_number, after) {
        (Some(n), after) if strong => address_part(n, after.unwrap_or(i), if capital { 80 } else { 65 }),
        (Some(n), after) if capital && continues_as_address(scan, after.unwrap_or(i)) => {
            address_part(n, after.unwrap_or(i), 60)
        }
        // `1148 Volimski Place`: the address does not continue, but number and name indicate a street.
        (Some(n), None) if capital && numbered_street(scan, n, first, i) => address_part(n, i, 58),
        (None, Some(a)) if strong || scan.gap(first) == "-" || continues_as_address(scan, a) => {
            address_part(first, a, 60)
        }
        (None, None) if strong && capital && token.len() > 3 && named_street(scan, first, i) => {
            address_part(first, i, 50)
        }
        _ => None,
    }
}

/// A house number of at least three digits, with a name that is not a common word or an unambiguous street word.
fn numbered_street(scan: &ScanState<'_>, number: usize, first: usize, suffix: usize) -> bool {
    let list = scan.list();
    let named = list[first..suffix].iter().any(|t| t.is_capital() && t.len() > 2 && !t.has(mark::COMMON | mark::STOP));
    let usual = matches!(scan.word(&list[suffix]), "St" | "Drive" | "Circle" | "Court" | "Trail" | "Ct" | "Cir" | "Dr");
    list[number].len() >= 3 && (named || usual) && list[first..suffix].iter().all(WordToken::is_capital)
}

/// In `123 main street` the words between are lower case; a number must precede them.
fn lower_street(scan: &ScanState<'_>, first: usize, before: &WordToken) -> bool {
    let mut at = first.saturating_sub(1);
    for _ in 0..3 {
        let Some(p) = at.checked_sub(1) else { return false };
        let Some(token) = scan.token(p) else { return false };
        if scan.gap(p) != " " {
            return false;
        }
        if token.is_digits() {
            return token.len() <= 5 && before.is_word();
        }
        at = p;
    }
    false
}

/// Whether the address continues after token `i`: end of line, a comma and a capital, a unit.
fn continues_as_address(scan: &ScanState<'_>, i: usize) -> bool {
    let gap = scan.gap(i);
    let next = scan.token(i + 1);
    gap.starts_with(['\n', '\r', ',']) && next.is_none_or(|t| t.is_capital() || t.is_digits())
        || next.is_some_and(|t| gap == " " && t.has(mark::UNIT) && t.is_capital())
        || scan.has_topic_near(i, topic::ADDRESS, 8, 0)
}

/// Whether the words before a street word are a name rather than the start of a sentence.
fn named_street(scan: &ScanState<'_>, first: usize, suffix: usize) -> bool {
    scan.list()[first..suffix]
        .iter()
        .any(|t| t.is_capital() && t.len() > 2 && t.marks & (mark::STOP | mark::COMMON) == 0)
        || scan.has_topic_near(first, topic::ADDRESS, 4, 1)
}

/// `Rue de la Sarthe 421`, `31 Rue Al Imam Al Bakri`, `ul. miła 131`.
fn prefixed_street(scan: &ScanState<'_>, i: usize, token: &WordToken) -> Option<AddressPart> {
    let small = token.shape == TokenShape::Lower;
    let numbered = || LOWERCASE_NUMBERED_PREFIXES.contains(&scan.word(token)) && number_before(scan, i).is_some();
    if small && !LOWERCASE_PREFIXES.contains(&scan.word(token)) && !numbered() || scan.word(token) == "OS" {
        return None;
    }
    let word = scan.word(token).to_lowercase();
    let slash = word == "c" && scan.gap(i).starts_with('/');
    if word.len() < 2 && !slash || word.len() == 2 && number_context::is_in_hex_pairs(scan, i) {
        return None;
    }
    let mut last = i;
    let mut names = 0;
    while names < MAX_NAME_WORDS {
        let Some(next) = scan.token(last + 1) else { break };
        if !is_name_join(scan.gap(last)) || !next.is_word() {
            break;
        }
        let lower_ok = next.shape == TokenShape::Lower
            && (names == 0 && small || next.has(mark::PARTICLE) || CONNECTIVES.contains(scan.word(next)));
        if !(next.is_capital() || lower_ok) || next.has(mark::UNIT) && names > 0 {
            break;
        }
        last += 1;
        names += 1;
    }
    if names == 0 {
        return None;
    }
    let before = number_before(scan, i).map(|n| number_before(scan, n).unwrap_or(n));
    let after = number_after(scan, last);
    // Words like `Place` and `Via` begin sentences too.
    let loose = token.marks & (mark::COMMON | mark::WORD | mark::STOP) != 0
        && !matches!(word.as_str(), "rue" | "avenue" | "boulevard");
    match (before, after) {
        (before, Some(a)) => address_part(before.unwrap_or(i), a, if loose { 60 } else { 80 }),
        (Some(b), None) if !loose || continues_as_address(scan, last) => address_part(b, last, 70),
        (None, None) if !loose && token.is_capital() && scan.has_topic_near(i, topic::ADDRESS, 5, 0) => {
            address_part(i, last, 55)
        }
        _ => None,
    }
}

static CONNECTIVES: WordSet = WordSet::new(|| words("connectives"));

/// `Apt. 434`, `PO Box 12`, with the preceding street line if it consists of a number and words.
fn unit_address(scan: &ScanState<'_>, i: usize) -> Option<AddressPart> {
    let token = scan.token(i)?;
    let word = scan.word(token).to_lowercase();
    let next = scan.token(i + 1)?;
    let gap = scan.gap(i);
    if matches!(word.as_str(), "po" | "p") {
        // P.O. Box 101, PO Box 101
        let mut at = i + 1;
        if word == "p" {
            at += 1;
        }
        let boxed = scan.token(at).is_some_and(|t| scan.word(t).eq_ignore_ascii_case("box"));
        let number = scan.token(at + 1).is_some_and(WordToken::is_digits)
            && scan.gap(at).len() <= 2
            && !scan.gap(at).contains('(');
        return (boxed && number).then(|| address_part(number_before(scan, i).unwrap_or(i), at + 1, 80))?;
    }
    let numbered = (next.is_digits() && next.len() <= 5 || is_house_number(scan, next))
        && matches!(gap, " " | ". " | " #" | "." | ", " | " no. ");
    if !numbered {
        return None;
    }
    let strong = matches!(word.as_str(), "apt" | "apartment" | "suite" | "ste" | "appt" | "wohnung");
    let first = street_before(scan, i);
    match first {
        Some(f) => address_part(f, i + 1, if strong { 75 } else { 45 }),
        // `APT 2.6.1`: a version.
        None if strong && token.is_capital() && scan.gap(i + 1) != "." => address_part(i, i + 1, 60),
        None if matches!(word.as_str(), "unit")
            && token.is_capital()
            && scan.token(i + 2).is_some_and(|t| scan.word(t).eq_ignore_ascii_case("box"))
            && scan.token(i + 3).is_some_and(WordToken::is_digits) =>
        {
            address_part(i, i + 3, 75)
        }
        None if strong && scan.has_topic_near(i, topic::ADDRESS, 8, 0) => address_part(i, i + 1, 60),
        None => None,
    }
}

/// The street before a unit: `92 De Lindeboom 105` on the line, or on the part of the line before it.
fn street_before(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let mut at = i;
    let mut first = None;
    let mut words = 0;
    for _ in 0..8 {
        let Some(p) = at.checked_sub(1) else { break };
        let gap = scan.gap(p);
        let broken = gap.len() > 8
            || !gap.chars().all(|c| c.is_whitespace() || matches!(c, ',' | '.' | '\'' | '-' | '/' | '>' | '?' | '’'));
        let new_line = gap.contains('\n') && at < i;
        let token = scan.list()[p];
        if broken || new_line || token.marks & mark::STOP != 0 && !token.has(mark::PARTICLE) {
            break;
        }
        if is_house_number(scan, &token) {
            first = Some(p);
        } else if token.is_word()
            && (token.is_capital()
                || token.has(mark::PARTICLE)
                || token.class == 0
                || first.is_some() && words == 0
                || token.has(mark::STREET_PREFIX | mark::STREET_SUFFIX))
        {
            words += 1;
        } else {
            break;
        }
        at = p;
    }
    first.filter(|_| words > 0)
}

/// `USNS Ujváry` or `PSC 1234, Box 5` before, `AP 24796` behind.
fn military_address(scan: &ScanState<'_>, i: usize) -> Option<AddressPart> {
    let area = scan.token(i + 1)?;
    let zip = scan.token(i + 2)?;
    if !matches!(scan.word(area), "AA" | "AE" | "AP") || !zip.is_digits() || zip.len() != 5 {
        return None;
    }
    let mut first = i;
    for back in 1..=4 {
        let Some(p) = i.checked_sub(back) else { break };
        let token = scan.list()[p];
        let gap = scan.gap(p);
        if gap.len() > 4 || !(token.is_capital() || token.is_digits()) || gap.contains('\n') && back > 1 {
            break;
        }
        let word = scan.word(&token);
        if word.starts_with("US") && token.shape == TokenShape::Upper || matches!(word, "PSC" | "Unit" | "CMR") {
            first = p;
            break;
        }
    }
    address_part(first, i + 2, 90)
}

/// The last token of the longest town or region that begins at `i`.
pub(super) fn place_at(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let token = scan.token(i)?;
    let marks = token.marks;
    if marks & mark::PHRASE != 0
        && let Some((end, found)) = phrase_at(scan, i)
        && found & (mark::PLACE | mark::REGION) != 0
    {
        return Some(end);
    }
    let town = marks & mark::REGION != 0 || marks & mark::PLACE != 0 && marks & (mark::STOP | mark::TECH) == 0;
    town.then_some(i)
}

/// The last token of the longest town, region or multi-word organisation that begins at `i`, and its marks.
pub(super) fn phrase_at(scan: &ScanState<'_>, i: usize) -> Option<(usize, u32)> {
    let mut folded = CaseFolded::default();
    let mut best = None;
    for n in 0..5 {
        let Some(token) = scan.token(i + n).filter(|t| t.is_word()) else { break };
        if n > 0 {
            // A multi-word name is capitalized, except for its small words.
            let fits = token.is_capital() || token.has(mark::PARTICLE | mark::STOP) || !scan.list()[i].is_capital();
            if !fits || !matches!(scan.gap(i + n - 1), " " | "-" | "'" | "’" | ". " | "\n") {
                break;
            }
            folded.byte(b' ');
        }
        folded.push(scan.word(token));
        let marks = if n == 0 { 0 } else { crate::lexicon::entry_of(folded.class()).marks };
        let entry = marks & (mark::PLACE | mark::REGION | mark::ORG) != 0;
        if n > 0 && entry && token.is_capital() == scan.list()[i].is_capital() {
            best = Some((i + n, marks));
        }
    }
    best
}
