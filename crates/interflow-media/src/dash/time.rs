//! XML Schema durations and dates (XSD 1.1 part 2, 3.3.6 and 3.3.7), leniently.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Parses an `xs:duration` to seconds: `PT1H2M3.5S`, `P1DT2H`, `P2W`, `-PT1S`. A year is 365 days and a month 30, as in
/// players.
pub fn duration(text: &str) -> Option<f64> {
    let text = text.trim();
    let (sign, rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let mut rest = rest.strip_prefix('P')?;
    let (mut seconds, mut in_time, mut any) = (0.0, false, false);
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('T') {
            (rest, in_time) = (behind, true);
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',')?;
        let number: f64 = rest[..end].replace(',', ".").parse().ok()?;
        let factor = match (rest[end..].chars().next()?, in_time) {
            ('Y', false) => 31_536_000.0,
            ('M', false) => 2_592_000.0,
            ('W', false) => 604_800.0,
            ('D', false) => 86_400.0,
            ('H', true) => 3_600.0,
            ('M', true) => 60.0,
            ('S', true) => 1.0,
            _ => return None,
        };
        seconds += number * factor;
        any = true;
        rest = &rest[end + 1..];
    }
    any.then_some(sign * seconds)
}

/// Parses an `xs:dateTime` to seconds since 1970; without a zone it is UTC.
pub fn parse_date_time(text: &str) -> Option<f64> {
    let text = text.trim();
    let at = text.parse::<Timestamp>().ok().or_else(|| {
        let civil = text.parse::<DateTime>().ok()?;
        civil.to_zoned(TimeZone::UTC).ok().map(|z| z.timestamp())
    })?;
    Some(at.as_microsecond() as f64 / 1e6)
}

/// Formats a time for `EXT-X-PROGRAM-DATE-TIME`, with milliseconds, in UTC.
pub fn format_date_time(seconds: f64) -> String {
    let at = Timestamp::from_millisecond((seconds * 1000.0).round() as i64).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{at:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, seconds) in [
            ("PT0S", Some(0.0)),
            ("PT1H2M3.5S", Some(3723.5)),
            ("P1DT2H", Some(93_600.0)),
            ("P2W", Some(1_209_600.0)),
            ("-PT1.5S", Some(-1.5)),
            ("P1M", Some(2_592_000.0)),
            ("PT", None),
            ("5", None),
            ("PT5X", None),
            ("P5H", None),
        ] {
            assert_eq!(duration(text), seconds, "{text}");
        }
    }

    #[test]
    fn timestamps_are_parsed_and_formatted() {
        for text in ["2024-01-02T03:04:05.5Z", "2024-01-02T03:04:05.500", "2024-01-02T04:04:05.5+01:00"] {
            assert_eq!(parse_date_time(text), Some(1_704_164_645.5), "{text}");
        }
        assert_eq!(parse_date_time("soon"), None);
        assert_eq!(format_date_time(1_704_164_645.5), "2024-01-02T03:04:05.500Z");
    }
}
