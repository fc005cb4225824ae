//! Calendar dates in digits and in words, and ages.

use super::ScanState;
use super::digit_run::{DigitRun, NumberMatch};
use crate::Kind;
use crate::lexicon::{mark, topic};
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordSet, words};

/// Years of dates that concern living people or their records.
const YEARS: std::ops::RangeInclusive<u32> = 1800..=2199;

/// Numbers in words, as in an age.
static NUMBER_WORDS: WordSet = WordSet::new(|| words("number_words"));

/// A numeric date that begins at group `k`.
pub(super) fn numeric_date(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    if !scan.wants(Kind::Date) || k > 0 && matches!(run.separator_after(k - 1), b'.' | b'/') {
        return None;
    }
    let sep = run.separator_after(k);
    if !matches!(sep, b'-' | b'/' | b'.') {
        return None;
    }
    iso_date(scan, run, k).or_else(|| day_month_year(scan, run, k))
}

/// A date as in ISO 8601: `2024-06-01`, optionally with `T12:30:00Z`.
fn iso_date(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    if run.group_len(k) != 4 || !YEARS.contains(&run.number(scan.bytes, k)) {
        return None;
    }
    let month = run.number(scan.bytes, k + 1);
    if run.group_len(k + 1) > 2 || !(1..=12).contains(&month) {
        return None;
    }
    let at = run.first + k;
    let (groups, end) = if run.separator_after(k + 1) == run.separator_after(k) && run.group_len(k + 2) <= 2 {
        ((1..=31).contains(&run.number(scan.bytes, k + 2))).then_some((3, run.span(k, 3).1))?
    } else {
        // 2024-06-01T12:30:00Z: day and hour are one token.
        let month_end = run.groups.get(k + 1)?.1;
        let glued = scan.token(at + 2).filter(|t| t.shape == TokenShape::Mixed && t.start() == month_end + 1)?;
        let word = scan.word(glued).as_bytes();
        let ok =
            word.len() >= 4 && word[..2].iter().all(u8::is_ascii_digit) && word[2] == b'T' && k + 2 == run.groups.len();
        ok.then_some((2, glued.end()))?
    };
    let time = time_end(scan, end);
    let timed = time.is_some() && matches!(scan.byte_at(end), b' ' | b':');
    let labelled = scan.gap_before(at).contains(':') && scan.has_topic_near(at, topic::DATE, 1, 0)
        || scan.near_word(at, &["date", "between", "on"], 1, 0);
    let spoken = labelled || scan.has_topic_near(at, topic::BIRTH, 6, 2);
    // A date with a time at the start of a line is a log entry, about an event and no person.
    let logged = timed && is_line_start(scan, run.groups[k].0);
    let in_prose = !timed && is_in_prose(scan, at, run.groups[k].0, time.unwrap_or(end));
    let confidence = match (spoken, logged) {
        (true, _) => 75,
        (_, true) => 20,
        _ if in_prose => 55,
        _ if run.separator_after(k) == b'-' => 40,
        _ => 50,
    };
    Some(with_time(run, k, NumberMatch::new(groups, Kind::Date, confidence), end, time))
}

/// Whether the date occurs in a sentence or after a name, not in a log, a heading or a version line.
fn is_in_prose(scan: &ScanState<'_>, at: usize, start: usize, end: usize) -> bool {
    let Some(before) = at.checked_sub(1).and_then(|p| scan.token(p)) else { return false };
    let joined = matches!(scan.gap_before(at), " " | ", ") && before.is_word();
    let ends = matches!(scan.byte_at(end), b' ' | b'.' | b',' | b';' | b')' | b'?' | b'!' | b'\n');
    joined
        && ends
        && !is_line_start(scan, start)
        && !scan.has_topic_near(at, topic::VERSION | topic::ORDER, 4, 2)
        && !before.has(mark::TECH)
        && !super::names::is_code_line(scan, at)
}

/// Three numbers with the same separator: `1/30/1950`, `30.1.1950`, `30-1-50`.
fn day_month_year(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let lengths = [run.group_len(k), run.group_len(k + 1), run.group_len(k + 2)];
    if k + 3 > run.groups.len()
        || lengths[0] > 2
        || lengths[1] > 2
        || run.separator_after(k + 1) != run.separator_after(k)
    {
        return None;
    }
    // `1.2.3.4` is an address or a version.
    let continues = run.separator_after(k + 2) == run.separator_after(k);
    let (a, b, year) = (run.number(scan.bytes, k), run.number(scan.bytes, k + 1), run.number(scan.bytes, k + 2));
    let fits = (1..=31).contains(&a) && (1..=31).contains(&b) && a.min(b) <= 12;
    if !fits || continues || run.glued_left && k == 0 {
        return None;
    }
    let at = run.first + k;
    let spoken = has_date_cue(scan, at, 5);
    let confidence = match lengths[2] {
        4 if YEARS.contains(&year) => match (run.separator_after(k), spoken) {
            (_, true) => 90,
            (b'/', _) => 70,
            _ => 60,
        },
        // `since dpkg 1.18.19` is a version: the word that indicates a date must directly precede it.
        2 if spoken
            && (run.separator_after(k) != b'.' || scan.has_topic_near(at, topic::BIRTH | topic::DATE, 1, 0)) =>
        {
            75
        }
        2 if run.separator_after(k) == b'/' => 45,
        _ => return None,
    };
    let (start, end) = run.span(k, 3);
    let time = time_end(scan, end);
    let logged = time.is_some() && is_line_start(scan, start);
    Some(with_time(run, k, NumberMatch::new(3, Kind::Date, if logged { 30 } else { confidence }), end, time))
}

/// A date that ends at `end`, with the time behind it, which ends at `time`, if there is one.
fn with_time(run: &DigitRun, k: usize, date: NumberMatch, end: usize, time: Option<usize>) -> NumberMatch {
    let Some(behind) = time else { return NumberMatch { end: Some(end), ..date } };
    let consumed = (k..run.groups.len()).take_while(|g| run.groups[*g].1 <= behind).count();
    NumberMatch { end: Some(behind), groups: consumed.max(date.groups), ..date }
}

/// The end of ` 12:30:59.123 PM` after a date.
fn time_end(scan: &ScanState<'_>, end: usize) -> Option<usize> {
    let rest = scan.bytes.get(end..)?;
    let gap = match rest {
        [b' ' | b'T', b'0'..=b'9', ..] => 1,
        [b',', b' ', b'0'..=b'9', ..] => 2,
        _ => return None,
    };
    let clock = &rest[gap..];
    let len = clock.iter().take_while(|b| b.is_ascii_digit() || matches!(b, b':' | b'.')).count();
    let clock = clock[..len].strip_suffix(b".").unwrap_or(&clock[..len]);
    let hours = clock.iter().take_while(|b| b.is_ascii_digit()).count();
    (matches!(hours, 1 | 2) && clock.get(hours) == Some(&b':') && clock.len() >= hours + 3)
        .then_some(end + gap + clock.len())
}

/// Whether nothing but brackets and spaces precedes the position on its line.
fn is_line_start(scan: &ScanState<'_>, at: usize) -> bool {
    matches!(scan.bytes[..at].iter().rev().find(|b| !matches!(b, b' ' | b'[' | b'(')), None | Some(b'\n'))
}

/// Whether the context indicates a date of a person's life, or announces a date.
fn has_date_cue(scan: &ScanState<'_>, at: usize, back: usize) -> bool {
    scan.has_topic_near(at, topic::BIRTH, back + 4, 2) || scan.has_topic_near(at, topic::DATE, back.min(2), 0)
}

/// Whether a word can be a part of a date or an age.
pub(super) fn may_be_date_word(scan: &ScanState<'_>, token: &crate::text::token::WordToken) -> bool {
    token.has(mark::MONTH) || token.may_be_age_word(scan.bytes)
}

/// Dates with a month name, and ages, both recognized by a word.
pub(super) fn date_or_age_word(scan: &mut ScanState<'_>, i: usize) {
    let Some(token) = scan.token(i) else { return };
    if token.has(mark::MONTH) && scan.wants(Kind::Date) {
        month_date(scan, i);
    } else if scan.wants(Kind::Age) && token.len() <= 6 {
        age_phrase(scan, i);
    }
}

/// Whether the token can be a day of a month, also as an ordinal: `1st`.
fn is_day(scan: &ScanState<'_>, i: usize) -> bool {
    let Some(token) = scan.token(i) else { return false };
    let word = scan.word(token);
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &word[digits.len()..];
    matches!(suffix.to_ascii_lowercase().as_str(), "" | "st" | "nd" | "rd" | "th")
        && digits.len() <= 2
        && digits.parse().is_ok_and(|d: u32| (1..=31).contains(&d))
}

fn is_year(scan: &ScanState<'_>, i: usize) -> bool {
    scan.token(i)
        .is_some_and(|t| t.is_digits() && t.len() == 4 && scan.word(t).parse().is_ok_and(|y| YEARS.contains(&y)))
}

/// A date with the name of the month at token `i`, and day or year on either side.
fn month_date(scan: &mut ScanState<'_>, i: usize) {
    let small_gap = |gap: &str| matches!(gap, " " | "-" | ". " | ", " | "/" | "." | " of " | " de " | " del " | "");
    let token = scan.list()[i];
    let before = i > 0 && small_gap(scan.gap_before(i)) && is_day(scan, i - 1)
        || i > 1
            && scan.gap_before(i) == " "
            && matches!(scan.word(&scan.list()[i - 1]), "of" | "de")
            && is_day(scan, i - 2);
    let mut start = token.start();
    let mut end = token.end();
    let mut day = false;
    let mut last = i;
    if before {
        let steps = if is_day(scan, i - 1) { 1 } else { 2 };
        start = scan.list()[i - steps].start();
        day = true;
    } else if small_gap(scan.gap(i)) && is_day(scan, i + 1) {
        last = i + 1;
        end = scan.list()[last].end();
        day = true;
    }
    // `21 de diciembre de 1990`
    let linked = scan.token(last + 1).is_some_and(|t| matches!(scan.word(t), "de" | "del")) && scan.gap(last) == " ";
    if linked && scan.gap(last + 1) == " " && is_year(scan, last + 2) {
        last += 1;
    }
    let year = small_gap(scan.gap(last)) && is_year(scan, last + 1);
    if year {
        last += 1;
        end = scan.list()[last].end();
    }
    // "may", "mar" and "march" are common words too: they need a day and a capital.
    let capital = token.is_capital();
    let certain = day && year;
    if !capital && !certain {
        return;
    }
    let spoken = scan.has_topic_near(i, topic::BIRTH, 6, 3);
    let confidence = match (day, year) {
        _ if matches!(scan.byte_at(end), b':') || is_line_start(scan, start) && time_end(scan, end).is_some() => 20,
        (true, true) if spoken => 85,
        (true, true) if super::names::is_code_line(scan, i) => 45,
        (true, true) => 60,
        (true, false) if spoken => 70,
        (false, true) if spoken => 65,
        (true, false) | (false, true) => 45,
        _ => return,
    };
    scan.push(Kind::Date, start, time_end(scan, end).unwrap_or(end), confidence);
}

fn is_age(scan: &ScanState<'_>, i: usize) -> bool {
    scan.token(i).is_some_and(|t| {
        t.is_digits() && t.len() <= 3 && scan.word(t).parse().is_ok_and(|n: u32| (1..=120).contains(&n))
    })
}

/// `50 years old`, `50-year-old`, `50 y/o`, `aged 50`, `age: 50`.
fn age_phrase(scan: &mut ScanState<'_>, i: usize) {
    let token = scan.list()[i];
    let lower = scan.word(&token).to_ascii_lowercase();
    let near_gap = |gap: &str| matches!(gap, " " | "-" | ": " | "/" | "" | "=" | "\": " | "\":");
    match lower.as_str() {
        // `8 months old`; `34 ans`, `25 años`, `47 Jahre alt` with the verb or the adjective.
        "ans" | "anni" | "anos" | "años" | "jahre" | "jaar" => foreign_age(scan, i, &lower),
        "months" | "weeks" | "month" | "week" | "year" | "years" | "yr" | "yrs" | "y" | "yo" => {
            if i == 0 || !near_gap(scan.gap_before(i)) {
                return;
            }
            let old = scan.token(i + 1).is_some_and(|t| {
                matches!(scan.word(t).to_ascii_lowercase().as_str(), "old" | "o") && near_gap(scan.gap(i))
            }) || lower == "yo";
            let before = scan.list()[i - 1];
            let worded = !before.is_digits() && NUMBER_WORDS.contains(scan.word(&before).to_ascii_lowercase().as_str());
            if old && (is_age(scan, i - 1) || worded) {
                let end = if lower == "yo" { token.end() } else { scan.list()[i + 1].end() };
                scan.push(Kind::Age, before.start(), end, 85);
            }
        }
        "was" | "is" | "am" if is_age(scan, i + 1) => stated_age(scan, i),
        // `turned 30`: about a person, and not followed by a counted noun.
        "turned" | "turns" | "turn" => {
            // `I'll turn 42`: the person is before `'ll` or `will`.
            let will = lower == "turn";
            let who = i.checked_sub(2).map(|p| scan.word(&scan.list()[p]));
            let whom = will
                && matches!(who, Some("I" | "i" | "he" | "He" | "she" | "She"))
                && scan.near_word(i, &["ll", "will"], 1, 0)
                || !will
                    && i > 0
                    && (matches!(
                        scan.word(&scan.list()[i - 1]),
                        "he" | "He" | "she" | "She" | "I" | "just" | "recently"
                    ) || scan.list()[i - 1].has(mark::FIRST | mark::RELATION));
            let counted = scan.token(i + 2).is_some_and(|t| {
                matches!(scan.gap(i + 1), " ")
                    && t.shape == TokenShape::Lower
                    && !t.has(mark::STOP | mark::PREP)
                    && !matches!(scan.word(t), "last" | "today" | "yesterday" | "years")
            });
            if whom && is_age(scan, i + 1) && scan.gap(i) == " " && !counted {
                let n = scan.list()[i + 1];
                let years = scan.byte_at(n.end()) != b'%' && scan.byte_at(n.end()) != b'.'
                    || !scan.byte_at(n.end() + 1).is_ascii_digit();
                if years {
                    scan.push(Kind::Age, n.start(), n.end(), 65);
                }
            }
        }
        "age" | "aged" | "ages" => {
            let compound = matches!(scan.byte_before(token.start()), b'-' | b'_')
                || token.shape == TokenShape::Upper && scan.gap(i) == " ";
            // `at the age of 66`
            let of = scan.gap(i) == " " && scan.gap(i + 1) == " " && scan.near_word(i, &["of"], 0, 1);
            let at = if of { i + 2 } else { i + 1 };
            if (of || near_gap(scan.gap(i))) && is_age(scan, at) && !compound {
                let n = scan.list()[at];
                scan.push(Kind::Age, n.start(), n.end(), 80);
            }
        }
        _ => {}
    }
}

/// `when she was 12.`, `I am 40 and live alone`: a number that is said of a person and counts nothing.
fn stated_age(scan: &mut ScanState<'_>, i: usize) {
    let number = scan.list()[i + 1];
    let who = i.checked_sub(1).map_or("", |p| scan.word(&scan.list()[p]));
    let spaced = scan.gap_before(i) == " " && scan.gap(i) == " ";
    if !spaced || !matches!(who, "I" | "he" | "He" | "she" | "She") {
        return;
    }
    let gap = scan.gap(i + 1);
    let goes_on =
        gap == " " && scan.token(i + 2).is_some_and(|t| matches!(scan.word(t), "and" | "when" | "now" | "today"));
    let ends = matches!(gap.trim_end(), "." | "," | ";" | "!" | "?" | ".\"")
        && !scan.byte_at(number.end() + 1).is_ascii_digit();
    if goes_on || ends || scan.token(i + 2).is_none() && gap.trim_end().len() <= 1 {
        scan.push(Kind::Age, number.start(), number.end(), 65);
    }
}

/// `Elle a 34 ans`, `tiene 25 años`, `ist 47 Jahre alt`.
fn foreign_age(scan: &mut ScanState<'_>, i: usize, word: &str) {
    let Some(number) = i.checked_sub(1).filter(|p| is_age(scan, *p)).map(|p| scan.list()[p]) else { return };
    if scan.gap_before(i) != " " {
        return;
    }
    let verbs: &[&str] = match word {
        "ans" => &["a", "ai", "avait", "âgé", "âgée", "de"],
        "anni" => &["ha", "ho", "aveva", "di"],
        "anos" | "años" => &["tiene", "tengo", "tenía", "tem", "tenho", "de", "con"],
        _ => &["alt", "oud"],
    };
    let behind = matches!(word, "jahre" | "jaar");
    let cued = if behind { scan.near_word(i, verbs, 0, 1) } else { scan.near_word(i - 1, verbs, 1, 0) };
    // `un contrat de 3 ans`: `de` indicates an age only if a person is mentioned.
    let of = !behind && scan.near_word(i - 1, &["de", "di", "con"], 1, 0);
    let aged = scan.near_word(
        i,
        &[
            "femme", "homme", "fille", "garçon", "mujer", "hombre", "niño", "niña", "enfant", "paciente", "patient",
            "patiente", "donna", "uomo", "mulher", "homem", "âgé", "âgée",
        ],
        5,
        0,
    );
    if cued && (!of || aged) {
        let end = if behind { scan.token(i + 1).map_or(number.end(), WordToken::end) } else { scan.list()[i].end() };
        scan.push(Kind::Age, number.start(), end, 75);
    }
}
