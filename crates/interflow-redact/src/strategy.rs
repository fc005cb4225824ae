//! Strategies: how a finding is replaced, and the keys that some of them need.

mod date;
mod fpe;

use std::collections::HashMap;

use aes_gcm::aead::Aead;
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

pub(crate) use fpe::Ff3Cipher;

use crate::{Kind, RedactError, Result};

/// How a finding is replaced, as the policy configures it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RedactionStrategy {
    /// A placeholder from the vault; `Redact` if there is no vault.
    Placeholder,
    /// A text in which `%t` is the type, `%l` the classification and `%v` the value.
    Redact {
        format: String,
    },
    /// The same character for every one of the value, or a fixed number of them.
    Mask {
        character: char,
        length: MaskLength,
    },
    /// Always the same text.
    Static(String),
    Random(RandomReplacement),
    /// SHA-256 in hexadecimal of the value and the salt.
    Hash {
        salt: Option<String>,
        random_salt: bool,
    },
    /// AES-GCM under the policy's key: base64 of nonce, ciphertext and tag, in braces.
    Crypto,
    /// Format-preserving encryption of digits and letters.
    Fpe,
    /// Masks all but the last four letters and digits; of a secret, all but the last four characters.
    LastFour,
    /// Masks all but `keep` letters and digits on one side; of a secret, all but `keep` characters.
    Truncate {
        keep: usize,
        character: char,
        side: TruncateSide,
    },
    /// The initials of the words.
    Abbreviate,
    /// A table of values; others are replaced by `otherwise`.
    Map {
        table: HashMap<String, String>,
        case_sensitive: bool,
        otherwise: Box<RedactionStrategy>,
    },
    /// The year of a date.
    Year,
    /// Another date, by a fixed or a random distance.
    Shift(DateShift),
    /// The distance of a date from today, in words.
    Relative,
    /// The first `keep` digits of a postal code.
    Zip {
        keep: usize,
        zeros: bool,
    },
    /// The first three characters become zeros.
    ZeroLeading,
}

/// Length of a mask in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaskLength {
    Same,
    Fixed(usize),
}

/// Where a random replacement comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RandomReplacement {
    Realistic,
    From(Vec<String>),
    Uuid,
}

/// Which end of a value stays when it is truncated: the first characters, or the last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TruncateSide {
    Leading,
    Trailing,
}

/// The distance of a shifted date; with `random` it is one to 730 days earlier, whatever the others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DateShift {
    pub days: i64,
    pub months: i64,
    pub years: i64,
    pub random: bool,
}

/// The keys of a policy. Never logged or displayed.
#[derive(Default)]
pub(crate) struct PolicyKeys {
    crypto: Option<Vec<u8>>,
    fpe: Option<Ff3Cipher>,
}

impl std::fmt::Debug for PolicyKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("crypto", &self.crypto.is_some()).field("fpe", &self.fpe.is_some()).finish()
    }
}

impl PolicyKeys {
    /// Keys in hexadecimal, or as references to the environment. AES needs 16 or 32 bytes.
    pub fn from_config(crypto: Option<&str>, fpe: Option<(&str, &str)>) -> Result<Self> {
        let crypto = crypto.map(|k| key_bytes(k, "crypto.key")).transpose()?;
        if crypto.as_ref().is_some_and(|k| !matches!(k.len(), 16 | 32)) {
            return Err(RedactError::Policy("crypto.key: 16 or 32 bytes in hexadecimal are needed".to_owned()));
        }
        let fpe = fpe
            .map(|(key, tweak)| Ff3Cipher::new(&key_bytes(key, "fpe.key")?, &key_bytes(tweak, "fpe.tweak")?))
            .transpose()?;
        Ok(Self { crypto, fpe })
    }
}

/// A hexadecimal key, or `env:NAME` that contains it.
fn key_bytes(text: &str, place: &str) -> Result<Vec<u8>> {
    let bad = |why: String| RedactError::Policy(format!("{place}: {why}"));
    let held;
    let text = match text.strip_prefix("env:") {
        Some(name) => {
            held = std::env::var(name).map_err(|_| bad(format!("the environment has no {name}")))?;
            held.trim()
        }
        None => text.trim(),
    };
    hex::decode(text).map_err(|_| bad("not hexadecimal".to_owned()))
}

/// AES-GCM with a nonce of 12 bytes; the tag is at the end. `None` for a nonce of another length.
fn encrypt(key: &[u8], nonce: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let nonce = &aes_gcm::Nonce::try_from(nonce).ok()?;
    match key.len() {
        16 => Aes128Gcm::new_from_slice(key).ok()?.encrypt(nonce, plain).ok(),
        _ => Aes256Gcm::new_from_slice(key).ok()?.encrypt(nonce, plain).ok(),
    }
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| RedactError::Random(e.to_string()))?;
    Ok(bytes)
}

/// A value to replace, and what a strategy may mention about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrategyInput<'a> {
    pub value: &'a str,
    pub kind: Kind,
    pub type_name: &'a str,
    pub label: &'a str,
    /// The policy's name for it, if it differs.
    pub class: Option<&'a str>,
}

impl RedactionStrategy {
    pub fn default_format() -> String {
        "{{{REDACTED-%t}}}".to_owned()
    }

    pub fn redact() -> Self {
        Self::Redact { format: Self::default_format() }
    }

    /// Whether the keys that the strategy needs are present, and its numbers in range; checked when the policy is loaded.
    pub fn check(&self, keys: &PolicyKeys) -> Result<()> {
        match self {
            Self::Crypto if keys.crypto.is_none() => {
                Err(RedactError::Policy("a strategy encrypts, but `crypto.key` is missing".to_owned()))
            }
            Self::Fpe if keys.fpe.is_none() => Err(RedactError::Policy(
                "a strategy is format-preserving, but `fpe.key` and `fpe.tweak` are missing".to_owned(),
            )),
            Self::Random(RandomReplacement::From(list)) if list.is_empty() => {
                Err(RedactError::Policy("a strategy chooses from a list that is empty".to_owned()))
            }
            Self::Shift(by) if date::span(by).is_none() => Err(RedactError::Policy(
                "a strategy shifts dates by more than 19,998 years, 239,976 months or 7,304,484 days".to_owned(),
            )),
            Self::Mask { length: MaskLength::Fixed(10_001..), .. } => {
                Err(RedactError::Policy("a strategy masks with more than 10,000 characters".to_owned()))
            }
            Self::Map { otherwise, .. } => otherwise.check(keys),
            _ => Ok(()),
        }
    }

    /// Whether the strategy is random, so that replacements must be remembered for equal values.
    pub const fn is_random(&self) -> bool {
        matches!(
            self,
            Self::Random(_) | Self::Hash { random_salt: true, .. } | Self::Shift(DateShift { random: true, .. })
        )
    }

    /// The replacement of a value. A strategy that cannot handle the value (a date that cannot be parsed, a value too
    /// short or too long for `fpe`) redacts it.
    pub fn apply(&self, subject: &StrategyInput<'_>, keys: &PolicyKeys) -> Result<String> {
        let value = subject.value;
        let or_redact = |text: Option<String>| text.map_or_else(|| Self::redact().apply(subject, keys), Ok);
        Ok(match self {
            Self::Placeholder => Self::redact().apply(subject, keys)?,
            Self::Redact { format } => format
                .replace("%t", subject.type_name)
                .replace("%l", &subject.class.map_or_else(|| subject.label.to_ascii_lowercase(), str::to_owned))
                .replace("%v", value),
            Self::Mask { character, length } => match length {
                MaskLength::Same => character.to_string().repeat(value.chars().count()),
                MaskLength::Fixed(n) => character.to_string().repeat(*n),
            },
            Self::Static(text) => text.clone(),
            Self::Random(way) => way.generate(subject)?,
            Self::Hash { salt, random_salt } => hash(value, salt.as_deref(), *random_salt)?,
            Self::Crypto => {
                let key = keys.crypto.as_deref().ok_or(RedactError::Seal)?;
                // A random nonce for each value: equal values have different ciphertexts.
                let nonce = random::<12>()?;
                let sealed = encrypt(key, &nonce, value.as_bytes()).ok_or(RedactError::Seal)?;
                format!("{{{{{}}}}}", STANDARD.encode([nonce.as_slice(), &sealed].concat()))
            }
            Self::Fpe => or_redact(keys.fpe.as_ref().and_then(|fpe| fpe.encrypt_value(value)))?,
            Self::LastFour => keep_side(subject, 4, '*', TruncateSide::Trailing),
            Self::Truncate { keep, character, side } => keep_side(subject, *keep, *character, *side),
            Self::Abbreviate => value
                .split([' ', '-'])
                .filter_map(|w| w.chars().find(|c| c.is_alphanumeric()))
                .flat_map(char::to_uppercase)
                .collect(),
            Self::Map { table, case_sensitive, otherwise } => {
                let hit = if *case_sensitive {
                    table.get(value)
                } else {
                    table.iter().find(|(k, _)| k.eq_ignore_ascii_case(value)).map(|(_, v)| v)
                };
                match hit {
                    Some(text) => text.clone(),
                    None => otherwise.apply(subject, keys)?,
                }
            }
            Self::Year => or_redact(date::year(value))?,
            Self::Shift(by) => or_redact(date::shift(value, by)?)?,
            Self::Relative => or_redact(date::relative(value))?,
            Self::Zip { keep, zeros } => mask_after(value, *keep, if *zeros { '0' } else { '*' }),
            Self::ZeroLeading => value.chars().enumerate().map(|(i, c)| if i < 3 { '0' } else { c }).collect(),
        })
    }
}

/// Masks all but `keep` characters of one side; separators are kept so that the format remains visible. A secret has none.
fn keep_side(subject: &StrategyInput<'_>, keep: usize, mask: char, side: TruncateSide) -> String {
    let value = subject.value;
    let counts = |c: &char| c.is_alphanumeric() || subject.kind.is_secret();
    let total = value.chars().filter(counts).count();
    // A value hardly longer than the kept part would be disclosed.
    let keep = if total <= keep { 0 } else { keep };
    let mut position = 0;
    let is_visible = |position: usize| match side {
        TruncateSide::Trailing => position > total - keep,
        TruncateSide::Leading => position <= keep,
    };
    value
        .chars()
        .map(|c| {
            if !counts(&c) {
                return c;
            }
            position += 1;
            if is_visible(position) { c } else { mask }
        })
        .collect()
}

/// Replaces all letters and digits after the first `keep` characters.
fn mask_after(value: &str, keep: usize, fill: char) -> String {
    value.chars().enumerate().map(|(i, c)| if i < keep || !c.is_alphanumeric() { c } else { fill }).collect()
}

/// SHA-256 of value and salt, in hexadecimal. A random salt makes equal values differ between sessions.
fn hash(value: &str, salt: Option<&str>, random_salt: bool) -> Result<String> {
    let mut hasher = Sha256::new();
    hasher.update(value);
    hasher.update(salt.unwrap_or_default());
    if random_salt {
        hasher.update(random::<16>()?);
    }
    Ok(hex::encode(hasher.finalize()))
}

impl RandomReplacement {
    fn generate(&self, subject: &StrategyInput<'_>) -> Result<String> {
        match self {
            Self::Uuid => Ok(uuid::Builder::from_random_bytes(random()?).into_uuid().to_string()),
            Self::From(list) => {
                let at = u64::from_le_bytes(random()?) as usize % list.len().max(1);
                Ok(list.get(at).cloned().unwrap_or_default())
            }
            Self::Realistic if subject.kind == Kind::Email => {
                Ok(format!("{}@example.com", random_same_shape(subject.value.split('@').next().unwrap_or("user"))?))
            }
            Self::Realistic => random_same_shape(subject.value),
        }
    }
}

/// Random letters for letters and digits for digits.
fn random_same_shape(value: &str) -> Result<String> {
    let mut pool = random::<64>()?.to_vec();
    let mut draw = |n: u8| -> Result<u8> {
        if pool.is_empty() {
            pool = random::<64>()?.to_vec();
        }
        // The slight preference of the remainder for small values gives nothing away about the original.
        Ok(pool.pop().unwrap_or_default() % n)
    };
    let one = |c: char| {
        Ok(match c {
            '0'..='9' => char::from(b'0' + draw(10)?),
            c if c.is_uppercase() => char::from(b'A' + draw(26)?),
            c if c.is_alphabetic() => char::from(b'a' + draw(26)?),
            c => c,
        })
    };
    value.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(strategy: &RedactionStrategy, value: &str) -> String {
        apply_to(Kind::Ssn, strategy, value)
    }

    fn apply_to(kind: Kind, strategy: &RedactionStrategy, value: &str) -> String {
        let keys = PolicyKeys::from_config(
            Some("000102030405060708090a0b0c0d0e0f"),
            Some(("2DE79D232DF5585D68CE47882AE256D6", "CBD09280979564")),
        )
        .expect("keys");
        strategy
            .apply(&StrategyInput { value, kind, type_name: "ssn", label: "SSN", class: None }, &keys)
            .expect("a replacement")
    }

    #[test]
    fn strategies_produce_their_documented_output() {
        let mask = |length| RedactionStrategy::Mask { character: '#', length };
        let keep = |keep, side| RedactionStrategy::Truncate { keep, character: '*', side };
        for (strategy, value, wanted) in [
            (RedactionStrategy::redact(), "123-45-6789", "{{{REDACTED-ssn}}}"),
            (RedactionStrategy::Redact { format: "<%l:%v>".to_owned() }, "x", "<ssn:x>"),
            (mask(MaskLength::Same), "añb", "###"),
            (mask(MaskLength::Fixed(5)), "ab", "#####"),
            (RedactionStrategy::Static("X".to_owned()), "ab", "X"),
            (RedactionStrategy::LastFour, "123-45-6789", "***-**-6789"),
            (RedactionStrategy::LastFour, "1234", "****"),
            (keep(2, TruncateSide::Leading), "Smith", "Sm***"),
            (keep(2, TruncateSide::Trailing), "Smith", "***th"),
            (RedactionStrategy::Abbreviate, "John Ronald Smith", "JRS"),
            (RedactionStrategy::Zip { keep: 3, zeros: false }, "90210-1234", "902**-****"),
            (RedactionStrategy::Zip { keep: 3, zeros: true }, "90210", "90200"),
            (RedactionStrategy::Zip { keep: 2, zeros: false }, "９０２１０", "９０***"),
            (RedactionStrategy::ZeroLeading, "90210", "00010"),
            (
                RedactionStrategy::Hash { salt: None, random_salt: false },
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (RedactionStrategy::Year, "1/30/1950", "1950"),
        ] {
            assert_eq!(apply(&strategy, value), wanted, "{strategy:?}");
        }
    }

    #[test]
    fn the_signs_of_a_secret_are_masked_too() {
        let keep = |side| RedactionStrategy::Truncate { keep: 2, character: '#', side };
        for (strategy, masked) in [
            (RedactionStrategy::LastFour, "*****Pq2!"),
            (keep(TruncateSide::Leading), "X!#######"),
            (keep(TruncateSide::Trailing), "#######2!"),
        ] {
            assert_eq!(apply_to(Kind::Password, &strategy, "X!9#mPq2!"), masked);
        }
    }

    #[test]
    fn a_map_replaces_and_falls_back() {
        let table = [("Anna".to_owned(), "Berta".to_owned())].into();
        let map =
            RedactionStrategy::Map { table, case_sensitive: false, otherwise: Box::new(RedactionStrategy::redact()) };
        assert_eq!((apply(&map, "ANNA"), apply(&map, "Carl")), ("Berta".to_owned(), "{{{REDACTED-ssn}}}".to_owned()));
    }

    #[test]
    fn encrypted_values_decrypt_and_differ_each_time() {
        let (a, b) = (apply(&RedactionStrategy::Crypto, "Anna"), apply(&RedactionStrategy::Crypto, "Anna"));
        assert_ne!(a, b);
        let bytes = STANDARD.decode(a.trim_matches(['{', '}'])).expect("base64");
        let nonce = aes_gcm::Nonce::try_from(&bytes[..12]).expect("a nonce");
        let key: Vec<u8> = (0..16).collect();
        let plain = Aes128Gcm::new_from_slice(&key).expect("a key").decrypt(&nonce, &bytes[12..]);
        assert_eq!(plain.expect("the key of the policy"), b"Anna");
    }

    #[test]
    fn random_replacements_keep_the_format() {
        let drawn = apply(&RedactionStrategy::Random(RandomReplacement::Realistic), "Ab-12 é");
        let form =
            |s: &str| s.chars().map(|c| (c.is_uppercase(), c.is_numeric(), c.is_alphabetic())).collect::<Vec<_>>();
        assert_eq!(form(&drawn), form("Ab-12 e"));
        assert_eq!(apply(&RedactionStrategy::Random(RandomReplacement::Uuid), "x").len(), 36);
    }

    #[test]
    fn missing_and_invalid_policy_keys_are_refused_at_load() {
        assert!(PolicyKeys::from_config(Some("xyz"), None).is_err());
        assert!(PolicyKeys::from_config(Some("00"), None).is_err());
        assert!(
            RedactionStrategy::Crypto.check(&PolicyKeys::default()).is_err()
                && RedactionStrategy::Fpe.check(&PolicyKeys::default()).is_err()
        );
        let shift = |days, months, years| RedactionStrategy::Shift(DateShift { days, months, years, random: false });
        for (by, is_valid) in [
            (shift(-7_304_484, 239_976, 19_998), true),
            (shift(7_304_485, 0, 0), false),
            (shift(0, -239_977, 0), false),
            (shift(0, 0, 20_000), false),
        ] {
            assert_eq!(by.check(&PolicyKeys::default()).is_ok(), is_valid, "{by:?}");
        }
    }
}
