//! Date strategies: parses the formats the detector knows, and writes the result in the same format.

use jiff::civil::Date;
use jiff::{Span, ToSpan, Unit};

use super::{DateShift, random};
use crate::Result;
use crate::word_lists::{WordList, words};

/// A date and the positions of its parts in the text.
struct ParsedDate {
    date: Date,
    /// Start, end and kind of each part.
    parts: Vec<(usize, usize, DatePart)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DatePart {
    Day,
    Month,
    MonthName,
    Year,
}

/// The months of a year in English.
static MONTHS: WordList = WordList::new(|| words("months"));

/// Runs of digits, and runs of letters, by start and end.
fn runs(text: &str) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let kind = (c.is_ascii_digit(), c.is_alphabetic());
        match start {
            Some((from, k)) if k != kind => {
                out.push((from, at));
                start = (kind.0 || kind.1).then_some((at, kind));
            }
            None if kind.0 || kind.1 => start = Some((at, kind)),
            _ => {}
        }
    }
    out
}

/// The month, from 1, of an English name or an abbreviation of at least three letters.
fn month_named(word: &str) -> Option<i8> {
    let at = MONTHS.iter().position(|m| {
        word.len() >= 3 && m.len() >= word.len() && m[..word.len().min(m.len())].eq_ignore_ascii_case(word)
    });
    at.map(|m| m as i8 + 1)
}

/// A complete date: three numbers, or two and a month's name.
fn parse(text: &str) -> Option<ParsedDate> {
    let (mut numbers, mut named) = (Vec::new(), None);
    for (s, e) in runs(text) {
        let word = text.get(s..e)?;
        if word.bytes().all(|b| b.is_ascii_digit()) {
            numbers.push((s, e, word.parse::<i32>().ok()?));
        } else if let (None, Some(m)) = (&named, month_named(word)) {
            named = Some((s, e, i32::from(m)));
        }
        if numbers.len() + usize::from(named.is_some()) == 3 {
            break;
        }
    }
    // Two-digit years up to 50 are in this century.
    let century = |n: i32, len: usize| if len == 2 { n + if n > 50 { 1900 } else { 2000 } } else { n };
    let (day, month, year) = match (&named, numbers.as_slice()) {
        (Some(month), [a, b]) if a.1 - a.0 == 4 => (b, month, a),
        (Some(month), [a, b]) => (a, month, b),
        (None, [a, b, c]) if a.1 - a.0 == 4 => (c, b, a),
        // Month first unless impossible, or dots indicate a European date.
        (None, [a, b, c]) if a.2 > 12 || text.get(a.1..a.1 + 1) == Some(".") => (a, b, c),
        (None, [a, b, c]) => (b, a, c),
        _ => return None,
    };
    let month_part = if named.is_some() { DatePart::MonthName } else { DatePart::Month };
    let mut parts =
        vec![(day.0, day.1, DatePart::Day), (month.0, month.1, month_part), (year.0, year.1, DatePart::Year)];
    parts.sort_by_key(|p| p.0);
    let full_year = century(year.2, year.1 - year.0);
    let date = Date::new(full_year.try_into().ok()?, month.2.try_into().ok()?, day.2.try_into().ok()?).ok()?;
    Some(ParsedDate { date, parts })
}

/// The year of a date, or a number of four digits in the text.
pub(super) fn year(text: &str) -> Option<String> {
    parse(text).map(|p| p.date.year().to_string()).or_else(|| {
        let years = runs(text)
            .into_iter()
            .filter_map(|(s, e)| text.get(s..e))
            .find(|w| w.len() == 4 && w.bytes().all(|b| b.is_ascii_digit()));
        years.map(str::to_owned)
    })
}

/// The distance by which a date is shifted; `None` if it is longer than the calendar.
pub(super) fn span(by: &DateShift) -> Option<Span> {
    Span::new().try_days(by.days).ok()?.try_months(by.months).ok()?.try_years(by.years).ok()
}

/// The shifted date in the same format; `None` if the text is not a complete date.
pub(super) fn shift(text: &str, by: &DateShift) -> Result<Option<String>> {
    let Some(parsed) = parse(text) else { return Ok(None) };
    let span = if by.random {
        // One to 730 days earlier: never in the future.
        let days = i64::from(u16::from_le_bytes(random()?) % 730) + 1;
        Some((-days).days())
    } else {
        span(by)
    };
    Ok(span.and_then(|span| parsed.date.checked_add(span).ok()).map(|date| write(text, &parsed, date)))
}

/// Writes a date in the places of the old one, with the same kind of zeros and month names.
fn write(text: &str, parsed: &ParsedDate, date: Date) -> String {
    let mut out = String::with_capacity(text.len() + 4);
    let mut at = 0;
    // 1/30/1950 has no leading zeros, 01/30/1950 has.
    let zeros = parsed.parts.iter().all(|(s, e, p)| e - s == 2 || !matches!(p, DatePart::Day | DatePart::Month));
    for (s, e, part) in &parsed.parts {
        out.push_str(&text[at..*s]);
        let old = &text[*s..*e];
        let padded = |n: i8| if zeros { format!("{n:02}") } else { n.to_string() };
        match part {
            DatePart::Day => out.push_str(&padded(date.day())),
            DatePart::Month => out.push_str(&padded(date.month())),
            DatePart::MonthName => {
                let name = MONTHS[usize::from(date.month().unsigned_abs()) - 1];
                out.push_str(if old.len() == 3 { &name[..3] } else { name });
            }
            DatePart::Year if old.len() == 2 => out.push_str(&format!("{:02}", date.year() % 100)),
            DatePart::Year => out.push_str(&date.year().to_string()),
        }
        at = *e;
    }
    out.push_str(&text[at..]);
    out
}

/// The time since the date, in the largest unit that fits.
pub(super) fn relative(text: &str) -> Option<String> {
    let today = jiff::Zoned::now().date();
    Some(relative_to(parse(text)?.date, today))
}

fn relative_to(date: Date, today: Date) -> String {
    let days = date.until((Unit::Day, today)).map_or(0, |s| s.get_days());
    let (n, unit) = match days.abs() {
        d @ 730.. => (d / 365, "years"),
        d @ 60.. => (d / 30, "months"),
        d => (d, "days"),
    };
    if days >= 0 { format!("{n} {unit} ago") } else { format!("in {n} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifted_dates_keep_their_format() {
        let by = DateShift { days: 3, months: 1, years: 0, random: false };
        for (text, wanted) in [
            ("1/30/1950", "3/3/1950"),
            ("01/05/1950", "02/08/1950"),
            ("30.1.1950", "3.3.1950"),
            ("2024-06-01", "2024-07-04"),
            ("2024-06-01 12:30:00", "2024-07-04 12:30:00"),
            ("March 12, 1987", "April 15, 1987"),
            ("12 Mar 1987", "15 Apr 1987"),
        ] {
            assert_eq!(shift(text, &by).ok().flatten().as_deref(), Some(wanted), "{text}");
        }
        assert_eq!(shift("next Sunday", &by).ok().flatten(), None);
        assert_eq!(shift("99/99/1950", &by).ok().flatten(), None);
    }

    #[test]
    fn years_and_relative_dates_are_formatted() {
        assert_eq!(year("March 12, 1987").as_deref(), Some("1987"));
        assert_eq!(year("March 1987").as_deref(), Some("1987"));
        let day = |y, m, d| Date::new(y, m, d).expect("a date");
        assert_eq!(relative_to(day(2020, 1, 1), day(2024, 1, 2)), "4 years ago");
        assert_eq!(relative_to(day(2024, 1, 1), day(2024, 1, 11)), "10 days ago");
        assert_eq!(relative_to(day(2024, 4, 1), day(2024, 1, 1)), "in 3 months");
    }
}
