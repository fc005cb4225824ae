//! Rates in text form: `60/m`, `10/s`, `1000/h`, `5000/d`.

#[cfg(feature = "schema")]
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A number per second, minute, hour or day, written `60/m`. `seconds` is the length of the period.
///
/// ```
/// use interflow_limits::RateLimit;
///
/// let rate: RateLimit = "60/m".parse()?;
/// assert_eq!((rate.count, rate.seconds), (60, 60));
/// assert_eq!(rate.per_second(), 1.0);
/// assert!("60 per minute".parse::<RateLimit>().is_err());
/// # Ok::<(), interflow_limits::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub count: u64,
    pub seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rate: write it as 10/s, 60/m, 1000/h or 5000/d, at least 1")]
pub struct RateError(String);

const UNITS: [(&str, u32); 4] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];

impl RateLimit {
    /// Refill rate of a bucket with this rate.
    pub fn per_second(self) -> f64 {
        self.count as f64 / f64::from(self.seconds)
    }
}

impl FromStr for RateLimit {
    type Err = RateError;

    fn from_str(s: &str) -> Result<Self, RateError> {
        let wrong = || RateError(s.to_owned());
        let (count, unit) = s.split_once('/').ok_or_else(wrong)?;
        let count: u64 = count.trim().replace('_', "").parse().map_err(|_| wrong())?;
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        // Above 2^53, `f64` arithmetic would lose single tokens.
        if count == 0 || count > 1 << 53 {
            return Err(wrong());
        }
        Ok(Self { count, seconds: *seconds })
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, n)| *n == self.seconds).map_or("s", |(name, _)| name);
        write!(f, "{}/{unit}", self.count)
    }
}

interflow_types::serialize_as_text!(RateLimit);

#[cfg(feature = "schema")]
impl JsonSchema for RateLimit {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9_]+ */ *[smhd]$",
            "description": "a rate such as 10/s, 60/m, 1000/h or 5000/d"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_and_displayed() {
        for (text, count, seconds, shown) in [
            ("60/m", 60, 60, "60/m"),
            ("10 / s", 10, 1, "10/s"),
            ("1_000/h", 1000, 3600, "1000/h"),
            ("1/d", 1, 86400, "1/d"),
        ] {
            let rate: RateLimit = text.parse().unwrap();
            assert_eq!((rate.count, rate.seconds, rate.to_string().as_str()), (count, seconds, shown));
        }
        for bad in ["", "60", "0/m", "-1/s", "1/y", "1.5/s", "/s", "99999999999999999999/s"] {
            assert!(bad.parse::<RateLimit>().is_err(), "{bad}");
        }
    }
}
