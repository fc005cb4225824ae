//! HTTP dates (RFC 9110 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Parses an HTTP date, also in the formats of mail and Netscape, to seconds since 1970.
pub(crate) fn parse_http_date(text: &str) -> Option<i64> {
    // Netscape's format, still sent by many servers, has dashes between day, month and year.
    let plain = text.replace('-', " ");
    let text = if text.ends_with("GMT") { plain.as_str() } else { text };
    let zoned = rfc2822::DateTimeParser::new().parse_zoned(text).ok()?;
    Some(zoned.timestamp().as_second())
}

/// Formats seconds since 1970; a time that is out of range becomes 1970.
pub(crate) fn format_http_date(seconds: i64) -> String {
    let at = Timestamp::from_second(seconds).unwrap_or_default();
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

pub(crate) fn unix_now() -> i64 {
    Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates_are_parsed_and_formatted() {
        assert_eq!(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse_http_date("Sun, 06-Nov-1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(format_http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse_http_date("soon"), None);
        assert!(unix_now() > 784_111_777);
    }
}
