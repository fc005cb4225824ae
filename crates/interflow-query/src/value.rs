//! Parses numbers, sizes, durations and times as people write them, and formats them again so that they parse back.

use jiff::civil;
use jiff::tz::TimeZone;

use interflow_types::units::{SIZE_UNITS, TIME_UNITS, format_with_unit, parse_with_unit};

use crate::ast::{CompareOp, DAY, NumberTest, TimePoint, TimeTest};
use crate::key::ValueKind;

/// Sizes may leave the `B` out; the units are decimal, as for `MB`.
const SHORT_SIZES: [(&str, u64); 4] = [("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("K", 1000)];

/// Ages may be in weeks, beside the units of durations.
const WEEKS: [(&str, u64); 1] = [("w", 7 * DAY)];

/// What was expected, if a value does not parse; becomes the remedy of the error.
pub(crate) type ExpectedHint = &'static str;

/// Parses `404`, `>=400`, `4xx`, `400..499`, `..499` and `400..`, in the units of the kind; plain counts for one that is not
/// of numbers.
pub(crate) fn number(kind: ValueKind, text: &str) -> Result<NumberTest, ExpectedHint> {
    if kind == ValueKind::Status
        && let Some(class) = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"))
    {
        return match class.parse() {
            Ok(c @ 1..=9) => Ok(NumberTest::Class(c)),
            _ => Err("a class of status codes is written 1xx to 5xx"),
        };
    }
    match text.split_once("..") {
        Some(("", "")) => Err("a range is written 400..499"),
        Some(("", high)) => Ok(NumberTest::Compare(CompareOp::Le, one_number(kind, high)?)),
        Some((low, "")) => Ok(NumberTest::Compare(CompareOp::Ge, one_number(kind, low)?)),
        Some((low, high)) => match (one_number(kind, low)?, one_number(kind, high)?) {
            (low, high) if low <= high => Ok(NumberTest::Range(low, high)),
            _ => Err("a range begins with the smaller number"),
        },
        None => {
            let (op, rest) = operator(text);
            Ok(NumberTest::Compare(op, one_number(kind, rest)?))
        }
    }
}

/// The comparison operator in front of a value; equality if there is none.
pub(crate) fn operator(text: &str) -> (CompareOp, &str) {
    for (sign, op) in
        [(">=", CompareOp::Ge), ("<=", CompareOp::Le), (">", CompareOp::Gt), ("<", CompareOp::Lt), ("=", CompareOp::Eq)]
    {
        if let Some(rest) = text.strip_prefix(sign) {
            return (op, rest);
        }
    }
    (CompareOp::Eq, text)
}

fn one_number(kind: ValueKind, text: &str) -> Result<u64, ExpectedHint> {
    match kind {
        ValueKind::Status => parse_count(text).ok_or("expected a status code such as 404, or a class such as 4xx"),
        ValueKind::Bytes => {
            let in_units = || parse_with_unit(text, &SIZE_UNITS).or_else(|| parse_with_unit(text, &SHORT_SIZES));
            parse_count(text).or_else(in_units).ok_or("expected bytes such as 512, 64KiB or 1.5MB")
        }
        ValueKind::Duration => parse_with_unit(text, &TIME_UNITS)
            // Zero is the same in every unit.
            .or_else(|| (text == "0").then_some(0))
            .ok_or("expected a duration with its unit, such as 2s, 500ms, 80us, 1.5m or 1h"),
        _ => parse_count(text).ok_or("expected a whole number"),
    }
}

/// Digits only: no sign, no separators.
fn parse_count(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Parses `>2026-01-01`, `<-1h`, `2026-01-01..2026-01-03`, `-1h` (within the last hour). Times are in UTC unless they
/// have an offset.
pub(crate) fn time(text: &str) -> Result<TimeTest, ExpectedHint> {
    match text.split_once("..") {
        Some(("", "")) => Err("a range is written 2026-01-01..2026-01-31"),
        Some(("", to)) => Ok(TimeTest::Compare(CompareOp::Le, parse_time_point(to)?)),
        Some((from, "")) => Ok(TimeTest::Compare(CompareOp::Ge, parse_time_point(from)?)),
        Some((from, to)) => Ok(TimeTest::Range(parse_time_point(from)?, parse_time_point(to)?)),
        None => {
            let (op, rest) = operator(text);
            match parse_time_point(rest)? {
                // An age alone means the time from then until now.
                ago @ TimePoint::Ago(_) if op == CompareOp::Eq => Ok(TimeTest::Compare(CompareOp::Ge, ago)),
                point => Ok(TimeTest::Compare(op, point)),
            }
        }
    }
}

const TIME: ExpectedHint = "expected a date (2026-01-31), a time (2026-01-31T12:00, +01:00 or Z behind it if you like) \
                        how long ago (-90s, -2h, -7d), today or yesterday";

/// Days by name, from today backwards.
pub(crate) const DAYS: [&str; 2] = ["today", "yesterday"];

fn parse_time_point(text: &str) -> Result<TimePoint, ExpectedHint> {
    if text == "now" {
        return Ok(TimePoint::Ago(0));
    }
    if let Some(days) = DAYS.iter().position(|day| day.eq_ignore_ascii_case(text)) {
        return Ok(TimePoint::Day(days as u64));
    }
    if let Some(age) = text.strip_prefix('-') {
        let micros = parse_with_unit(age, &TIME_UNITS).or_else(|| parse_with_unit(age, &WEEKS));
        return micros.map(TimePoint::Ago).ok_or(TIME);
    }
    date_time(text).ok_or(TIME)
}

fn date_time(text: &str) -> Option<TimePoint> {
    if text.len() == 10 {
        let start = civil::Date::strptime("%Y-%m-%d", text).ok()?.to_datetime(civil::Time::midnight());
        // A date covers its whole day in UTC.
        return to_time_point(start, 0, DAY);
    }
    let (date, clock) = text.split_at_checked(10)?;
    let clock = clock.strip_prefix(['T', 't'])?;
    let zone = clock.find(['Z', 'z', '+', '-']).unwrap_or(clock.len());
    let (clock, zone) = clock.split_at(zone);
    // The precision follows from the length: minutes, seconds, or a fraction of a second.
    let lasts = match clock.len() {
        5 => 60_000_000,
        8 => 1_000_000,
        10..=15 => 1,
        _ => return None,
    };
    let moment: civil::DateTime = format!("{date}T{clock}").parse().ok()?;
    to_time_point(moment, parse_utc_offset(zone)?, lasts)
}

/// Seconds east of UTC: nothing, `Z`, `+01:00` or `+0100`. `None` if it is malformed.
fn parse_utc_offset(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = if let Some(rest) = zone.strip_prefix('+') { (1, rest) } else { (-1, zone.strip_prefix('-')?) };
    let digits: String = rest.split(':').collect();
    if digits.len() != 4 || rest.len() > 5 {
        return None;
    }
    let (hours, minutes) = (parse_count(&digits[..2])?, parse_count(&digits[2..])?);
    (hours < 24 && minutes < 60).then(|| sign * (hours * 3600 + minutes * 60) as i64)
}

fn to_time_point(moment: civil::DateTime, east: i64, lasts: u64) -> Option<TimePoint> {
    let micros = moment.to_zoned(TimeZone::UTC).ok()?.timestamp().as_microsecond() - east * 1_000_000;
    Some(TimePoint::At { start: u64::try_from(micros).ok()?, lasts })
}

/// Formats a number so that it parses back, in the largest unit that loses nothing.
pub(crate) fn format_number(kind: ValueKind, number: NumberTest) -> String {
    let one = |n: u64| match kind {
        ValueKind::Bytes if n >= 1000 => format_with_unit(n, &SIZE_UNITS).unwrap_or_else(|| "0B".to_owned()),
        ValueKind::Duration => format_with_unit(n, &TIME_UNITS).unwrap_or_else(|| "0s".to_owned()),
        _ => n.to_string(),
    };
    match number {
        NumberTest::Compare(op, n) => format!("{}{}", op.as_str(), one(n)),
        NumberTest::Range(low, high) => format!("{}..{}", one(low), one(high)),
        NumberTest::Class(class) => format!("{class}xx"),
    }
}

/// Formats a time so that it parses back, with the precision in which it was written.
pub(crate) fn format_time(time: TimeTest) -> String {
    match time {
        TimeTest::Compare(CompareOp::Ge, TimePoint::Ago(micros)) => format_point(TimePoint::Ago(micros)),
        TimeTest::Compare(op, point) => format!("{}{}", op.as_str(), format_point(point)),
        TimeTest::Range(from, to) => format!("{}..{}", format_point(from), format_point(to)),
    }
}

fn format_point(point: TimePoint) -> String {
    let (start, lasts) = match point {
        TimePoint::Ago(0) => return "now".to_owned(),
        TimePoint::Ago(micros) => {
            let age = format_with_unit(micros, &WEEKS).or_else(|| format_with_unit(micros, &TIME_UNITS));
            return format!("-{}", age.unwrap_or_else(|| "0s".to_owned()));
        }
        TimePoint::Day(days) => {
            let named = usize::try_from(days).ok().and_then(|days| DAYS.get(days));
            return named.map_or_else(|| format!("-{days}d"), |day| (*day).to_owned());
        }
        TimePoint::At { start, lasts } => (start, lasts),
    };
    let moment = i64::try_from(start).ok().and_then(|m| jiff::Timestamp::from_microsecond(m).ok()).unwrap_or_default();
    let format = match lasts {
        DAY if start.is_multiple_of(DAY) => "%Y-%m-%d",
        60_000_000 => "%Y-%m-%dT%H:%MZ",
        1_000_000 => "%Y-%m-%dT%H:%M:%SZ",
        _ => "%Y-%m-%dT%H:%M:%S.%6fZ",
    };
    moment.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_in_every_form() {
        use NumberTest::{Class, Compare, Range};
        use ValueKind::{Bytes, Count, Duration, Status};
        for (kind, text, number, formatted) in [
            (Status, "404", Compare(CompareOp::Eq, 404), "404"),
            (Status, "=404", Compare(CompareOp::Eq, 404), "404"),
            (Status, ">=400", Compare(CompareOp::Ge, 400), ">=400"),
            (Status, "5XX", Class(5), "5xx"),
            (Status, "400..499", Range(400, 499), "400..499"),
            (Status, "400..", Compare(CompareOp::Ge, 400), ">=400"),
            (Count, "..9", Compare(CompareOp::Le, 9), "<=9"),
            (Bytes, ">1MB", Compare(CompareOp::Gt, 1_000_000), ">1MB"),
            (Bytes, ">1mib", Compare(CompareOp::Gt, 1_048_576), ">1MiB"),
            (Bytes, "1.5k", Compare(CompareOp::Eq, 1500), "1500B"),
            (Bytes, "0", Compare(CompareOp::Eq, 0), "0"),
            (Duration, ">2s", Compare(CompareOp::Gt, 2_000_000), ">2s"),
            (Duration, "<1.5s", Compare(CompareOp::Lt, 1_500_000), "<1500ms"),
            (Duration, "90m", Compare(CompareOp::Eq, 5_400_000_000), "90m"),
            (Duration, "0", Compare(CompareOp::Eq, 0), "0s"),
        ] {
            assert_eq!(super::number(kind, text), Ok(number), "{text}");
            assert_eq!(format_number(kind, number), formatted, "{text}");
            assert_eq!(super::number(kind, formatted), Ok(number), "{formatted}");
        }
    }

    #[test]
    fn invalid_numbers_are_refused() {
        use ValueKind::{Bytes, Count, Duration, Status};
        for (kind, text) in [
            (Status, ""),
            (Status, "xx"),
            (Status, "0xx"),
            (Status, "499..400"),
            (Status, ".."),
            (Status, "-1"),
            (Count, "1k"),
            (Count, "18446744073709551616"),
            (Bytes, "1QB"),
            (Bytes, "1.MB"),
            (Bytes, "99999999999TB"),
            (Duration, "2"),
            (Duration, "s"),
        ] {
            assert!(number(kind, text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_parsed_in_every_form() {
        use TimeTest::{Compare, Range};
        const MIDNIGHT: u64 = 1_767_225_600_000_000; // 2026-01-01T00:00Z
        let at = |start, lasts| TimePoint::At { start, lasts };
        for (text, time, formatted) in [
            ("2026-01-01", Compare(CompareOp::Eq, at(MIDNIGHT, DAY)), "2026-01-01"),
            (">2026-01-01", Compare(CompareOp::Gt, at(MIDNIGHT, DAY)), ">2026-01-01"),
            ("2026-01-01T01:00+01:00", Compare(CompareOp::Eq, at(MIDNIGHT, 60_000_000)), "2026-01-01T00:00Z"),
            ("2025-12-31T19:00:00-0500", Compare(CompareOp::Eq, at(MIDNIGHT, 1_000_000)), "2026-01-01T00:00:00Z"),
            (
                ">=2026-01-01T00:00:00.5Z",
                Compare(CompareOp::Ge, at(MIDNIGHT + 500_000, 1)),
                ">=2026-01-01T00:00:00.500000Z",
            ),
            ("-1h", Compare(CompareOp::Ge, TimePoint::Ago(3_600_000_000)), "-1h"),
            ("<-1.5h", Compare(CompareOp::Lt, TimePoint::Ago(5_400_000_000)), "<-90m"),
            ("-1w..now", Range(TimePoint::Ago(7 * DAY), TimePoint::Ago(0)), "-1w..now"),
            ("2026-01-01..", Compare(CompareOp::Ge, at(MIDNIGHT, DAY)), ">=2026-01-01"),
            ("Today", Compare(CompareOp::Eq, TimePoint::Day(0)), "today"),
            ("yesterday..today", Range(TimePoint::Day(1), TimePoint::Day(0)), "yesterday..today"),
        ] {
            assert_eq!(super::time(text), Ok(time), "{text}");
            assert_eq!(format_time(time), formatted, "{text}");
            assert_eq!(super::time(formatted), Ok(time), "{formatted}");
        }
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "2026-01-01T",
            "2026-01-01T25:00",
            "2026-01-01T10:00+99:00",
            "-1x",
            "-",
            "1960-01-01",
            "2026-01-01é",
            "tomorrow",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
