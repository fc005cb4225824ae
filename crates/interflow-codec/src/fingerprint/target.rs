//! Which fingerprint an upstream connection presents, as named in the configuration and in rules.

use std::fmt;
use std::str::FromStr;

use super::{FingerprintProfile, PROFILES, TlsFingerprint, ja3};

/// The fingerprint that an upstream connection presents: the client's own, that of a well-known client, or a
/// ClientHello parsed from a JA3 string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FingerprintTarget {
    Mirror,
    Profile(&'static FingerprintProfile),
    Ja3(Box<TlsFingerprint>, String),
}

impl FromStr for FingerprintTarget {
    type Err = String;

    /// Parses `mirror`, the name of a profile, or `ja3:771,…`.
    ///
    /// # Errors
    /// An unknown name, with the known ones; or the part of a JA3 string that is malformed or cannot be sent.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        // A bare JA3 string is accepted too: no profile's name contains a comma.
        let ja3 = text.strip_prefix("ja3:").or_else(|| text.starts_with("771,").then_some(text));
        if let Some(ja3) = ja3 {
            return ja3::parse(ja3).map(|shape| Self::Ja3(Box::new(shape), ja3.trim().to_owned()));
        }
        if text.eq_ignore_ascii_case("mirror") {
            return Ok(Self::Mirror);
        }
        let profile = PROFILES.iter().find(|p| p.name.eq_ignore_ascii_case(text));
        profile.map(Self::Profile).ok_or_else(|| {
            let names: Vec<_> = PROFILES.iter().map(|p| p.name.as_str()).collect();
            format!("`{text}` is not a fingerprint: use mirror, {}, or ja3: followed by a JA3 string", names.join(", "))
        })
    }
}

impl fmt::Display for FingerprintTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mirror => f.write_str("mirror"),
            Self::Profile(profile) => f.write_str(&profile.name),
            Self::Ja3(_, text) => write!(f, "ja3:{text}"),
        }
    }
}
