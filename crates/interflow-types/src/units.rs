//! Durations and sizes as written in configuration files: `30s`, `500ms`, `64KiB`, `2GB`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration: a number followed by `us`, `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HumanDuration(pub Duration);

/// A number of bytes: without a unit or with `B`, `KB`, `MB`, `GB`, `TB` (powers of 1000), `KiB`, `MiB`, `GiB`, `TiB`
/// (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}")]
pub struct UnitError {
    text: String,
    what: &'static str,
}

/// Units of durations, in microseconds.
pub const TIME_UNITS: [(&str, u64); 6] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];

/// Units of sizes, in bytes.
pub const SIZE_UNITS: [(&str, u64); 9] = [
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
        // Zero needs no unit.
        let zero = (s.trim() == "0").then_some(0);
        zero.or_else(|| parse_with_unit(s, &TIME_UNITS))
            .map(|us| Self(Duration::from_micros(us)))
            .ok_or_else(|| UnitError { text: s.into(), what: "duration: write it as 500ms, 30s, 5m, 2h or 7d" })
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(s: &str) -> Result<Self, UnitError> {
        // A bare number counts bytes.
        let bare = s.trim().parse().ok();
        bare.or_else(|| parse_with_unit(s, &SIZE_UNITS))
            .map(Self)
            .ok_or_else(|| UnitError { text: s.into(), what: "size: write it as 4096, 64KiB, 10MB or 2GiB" })
    }
}

/// A decimal number with one of these units, in either case, rounded down to the smallest unit; `None` if it is something
/// else, or too large.
pub fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    // In 128 bits, so that no product overflows before the final check.
    let scale = u128::from(units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1);
    let number = number.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| {
        let decimal = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        decimal.then(|| text.parse::<u64>().ok()).flatten().map(u128::from)
    };
    // Beyond that, the power of ten would not fit.
    if fraction.len() > 12 {
        return None;
    }
    // The fraction is computed in integers, so that `1.1s` is exact.
    let part = digits(fraction)? * scale / 10u128.pow(fraction.len() as u32);
    u64::try_from(digits(whole)? * scale + part).ok()
}

/// The number in the largest of these units that divides it, so that it parses back; `None` for zero.
pub fn format_with_unit(n: u64, units: &[(&str, u64)]) -> Option<String> {
    let fitting = units.iter().filter(|(_, scale)| n > 0 && n.is_multiple_of(*scale));
    fitting.max_by_key(|(_, scale)| *scale).map(|(unit, scale)| format!("{}{unit}", n / scale))
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_with_unit(self.0.as_micros() as u64, &TIME_UNITS).unwrap_or_else(|| "0s".to_owned()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_with_unit(self.0, &SIZE_UNITS).unwrap_or_else(|| "0B".to_owned()))
    }
}

macro_rules! as_text {
    ($type:ident, $bare:literal, $units:literal, $description:literal) => {
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

                    // TOML and JSON give unsigned numbers as i64 or u64.
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

        #[cfg(feature = "schema")]
        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let pattern = concat!(r"^\s*(", $bare, r"|[0-9]+(\.[0-9]{1,12})?\s*(", $units, r"))\s*$");
                json_schema!({ "type": ["string", "integer"], "pattern": pattern, "description": $description })
            }
        }
    };
}

as_text!(HumanDuration, "0", "[UuMm]?[Ss]|[MmHhDd]", "a duration such as 500ms, 30s, 5m, 2h or 7d");
as_text!(ByteSize, "[0-9]+", "([KkMmGgTt][Ii]?)?[Bb]", "a size such as 4096, 64KiB, 10MB or 2GiB");

/// `1 flow`, `2 flows`, `2 matches`.
pub fn pluralize(n: u64, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        _ if noun.ends_with("ch") => format!("{n} {noun}es"),
        _ => format!("{n} {noun}s"),
    }
}

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
        for bad in ["", "5", "s", "-1s", "1x", "1e99s", "99999999999999999999d", ".5s", "1.s", "1.2.3s"] {
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

    #[cfg(feature = "schema")]
    #[test]
    fn schemas_accept_what_is_parsed() {
        fn says<T: JsonSchema + FromStr>(text: &str) -> (bool, bool) {
            let schema = T::json_schema(&mut SchemaGenerator::default());
            let pattern = schema.get("pattern").unwrap().as_str().unwrap();
            (regex::Regex::new(pattern).unwrap().is_match(text), text.parse::<T>().is_ok())
        }
        let numbers =
            ["", "0", "7", " 7 ", "1.5", "1.", ".5", "-1", "1e3", "1.2.3", "1.0000000000001", "1.000000000001"];
        let units = [
            "", "b", "B", "K", "KB", " kb", "KiB", "kib", "  MIB ", "i", "iB", "PB", "us", "MS", "s", " M", "h", "D",
            "w",
        ];
        for text in numbers.iter().flat_map(|number| units.map(|unit| format!("{number}{unit}"))) {
            for (schema, parser) in [says::<HumanDuration>(&text), says::<ByteSize>(&text)] {
                assert_eq!(schema, parser, "`{text}`");
            }
        }
    }

    #[test]
    fn count_of_one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| pluralize(n, "flow")), ["0 flows", "1 flow", "2 flows"]);
        assert_eq!([1, 2].map(|n| pluralize(n, "match")), ["1 match", "2 matches"]);
    }
}
