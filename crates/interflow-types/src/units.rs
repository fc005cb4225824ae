//! Durations and sizes as written in configuration files: `30s`, `500ms`, `64KiB`, `2GB`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration: a number followed by `us`, `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HumanDuration(pub Duration);

/// A number of bytes: without a unit or with `B`, `KB`, `MB`, `GB`, `TB` (powers of 1000), `KiB`, `MiB`, `GiB`, `TiB`
/// (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

/// The text is not a duration or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}")]
pub struct UnitError {
    text: String,
    what: &'static str,
}

const SPANS: [(&str, u64); 6] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];

const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl HumanDuration {
    pub const fn from_secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    pub const fn from_millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
}

impl FromStr for HumanDuration {
    type Err = UnitError;

    fn from_str(s: &str) -> Result<Self, UnitError> {
        parse_with_unit(s, &SPANS, None)
            .map(|us| Self(Duration::from_micros(us)))
            .ok_or_else(|| UnitError { text: s.into(), what: "duration: write it as 500ms, 30s, 5m, 2h or 7d" })
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(s: &str) -> Result<Self, UnitError> {
        parse_with_unit(s, &SIZES, Some(1))
            .map(Self)
            .ok_or_else(|| UnitError { text: s.into(), what: "size: write it as 4096, 64KiB, 10MB or 2GiB" })
    }
}

/// Parses a number with one of the units; `bare` is the factor of a number without a unit.
fn parse_with_unit(s: &str, units: &[(&str, u64)], bare: Option<u64>) -> Option<u64> {
    let s = s.trim();
    let end = s.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(s.len());
    let (number, unit) = s.split_at(end);
    let unit = unit.trim();
    let factor = if unit.is_empty() && number != "0" {
        bare?
    } else {
        units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map_or_else(|| (number == "0" && unit.is_empty()).then_some(1), |(_, factor)| Some(*factor))?
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let fraction: f64 = number.parse().ok()?;
    let value = fraction * factor as f64;
    (value < 1e18).then_some(value as u64)
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros() as u64;
        let (name, factor) = SPANS.iter().rev().find(|(_, n)| us >= *n && us.is_multiple_of(*n)).unwrap_or(&("s", 1));
        write!(f, "{}{name}", us / factor)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let best = SIZES.iter().filter(|(_, n)| self.0 >= *n && self.0.is_multiple_of(*n)).max_by_key(|(_, n)| *n);
        let (name, factor) = best.unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

macro_rules! as_text {
    ($type:ident, $pattern:literal, $description:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($description)
                    }

                    fn visit_str<E: de::Error>(self, s: &str) -> Result<$type, E> {
                        s.parse().map_err(E::custom)
                    }

                    fn visit_i64<E: de::Error>(self, n: i64) -> Result<$type, E> {
                        n.to_string().parse().map_err(E::custom)
                    }

                    fn visit_u64<E: de::Error>(self, n: u64) -> Result<$type, E> {
                        n.to_string().parse().map_err(E::custom)
                    }
                }
                d.deserialize_any(Visitor)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": ["string", "integer"], "pattern": $pattern, "description": $description })
            }
        }
    };
}

as_text!(HumanDuration, "^[0-9.]+ *(us|ms|s|m|h|d)$|^0$", "a duration such as 500ms, 30s, 5m, 2h or 7d");
as_text!(ByteSize, "^[0-9.]+ *([KMGT]i?)?B?$", "a size such as 4096, 64KiB, 10MB or 2GiB");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_displayed() {
        for (text, micros, displayed) in [
            ("500ms", 500_000, "500ms"),
            ("1.5s", 1_500_000, "1500ms"),
            ("90s", 90_000_000, "90s"),
            ("120s", 120_000_000, "2m"),
            ("2 h", 7_200_000_000, "2h"),
            ("7d", 604_800_000_000, "7d"),
            ("0", 0, "0s"),
        ] {
            let span: HumanDuration = text.parse().unwrap();
            assert_eq!((span.0.as_micros(), span.to_string().as_str()), (micros, displayed), "{text}");
        }
        for bad in ["", "5", "s", "-1s", "1x", "1e99s", "99999999999999999999d"] {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_parsed_and_displayed() {
        for (text, bytes, displayed) in
            [("64KiB", 65536, "64KiB"), ("10MB", 10_000_000, "10MB"), ("1.5MiB", 1_572_864, "1536KiB"), ("7", 7, "7B")]
        {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, displayed), "{text}");
        }
        assert!("ten".parse::<ByteSize>().is_err());
    }
}
