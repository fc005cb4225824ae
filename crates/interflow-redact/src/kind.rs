//! The kinds of findings: their names in policies, explanations and placeholders.

use std::fmt;

include!(concat!(env!("OUT_DIR"), "/kinds.rs"));

/// What `data/kinds.txt` says about a kind.
struct KindRecord {
    name: &'static str,
    label: &'static str,
    aliases: &'static [&'static str],
    doc: &'static str,
}

impl Kind {
    const fn record(self) -> &'static KindRecord {
        &KIND_RECORDS[self as usize]
    }

    /// The name in policies and explanations.
    pub const fn as_str(self) -> &'static str {
        self.record().name
    }

    /// The label with which a placeholder begins.
    pub const fn label(self) -> &'static str {
        self.record().label
    }

    /// Its other names, such as those of Phileas and Presidio.
    pub const fn aliases(self) -> &'static [&'static str] {
        self.record().aliases
    }

    /// What it is, as a phrase with a full stop.
    pub const fn doc(self) -> &'static str {
        self.record().doc
    }

    /// The kind with this name or one of its aliases; `_` equals `-`, and case is ignored.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase().replace(['_', ' '], "-");
        Self::ALL.iter().copied().find(|k| k.as_str() == name || k.aliases().contains(&name.as_str()))
    }

    /// As [`from_name`](Self::from_name), for models and services: kinds of custom rules need a rule, which these do not
    /// have.
    pub(crate) fn of_entity(name: &str) -> Option<Self> {
        Self::from_name(name).filter(|k| !matches!(k, Self::Custom | Self::Identifier | Self::Section))
    }

    /// Whether it is a machine's secret or a password, not personal data.
    pub const fn is_secret(self) -> bool {
        use Kind::{ApiKey, CloudCredential, ConnectionString, Jwt, Password, PrivateKey, Secret, Token};
        matches!(self, ApiKey | CloudCredential | Token | Jwt | PrivateKey | ConnectionString | Password | Secret)
    }

    /// The bit in a [`KindSet`].
    const fn bit(self) -> u128 {
        1 << self as u8
    }
}

const _: () = assert!(Kind::ALL.len() <= 128, "a KindSet has 128 bits");

/// A set of kinds, as bits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct KindSet(u128);

impl KindSet {
    pub const NONE: Self = Self(0);

    pub fn all() -> Self {
        Kind::ALL.iter().copied().collect()
    }

    pub const fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    pub const fn insert(&mut self, kind: Kind) {
        self.0 |= kind.bit();
    }

    pub const fn remove(&mut self, kind: Kind) {
        self.0 &= !kind.bit();
    }

    /// Whether any of these is in the set.
    pub fn any(self, kinds: &[Kind]) -> bool {
        kinds.iter().any(|k| self.has(*k))
    }

    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(move |k| self.has(*k))
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        let mut set = Self::NONE;
        kinds.into_iter().for_each(|k| set.insert(k));
        set
    }
}

impl fmt::Debug for KindSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_names_aliases_and_labels_are_unambiguous() {
        let mut names = std::collections::HashMap::new();
        for kind in Kind::ALL {
            for name in kind.aliases().iter().chain([&kind.as_str()]) {
                if let Some(other) = names.insert(name.to_string(), *kind) {
                    assert_eq!(other, *kind, "{name} names two kinds");
                }
                assert_eq!(Kind::from_name(name), Some(*kind));
            }
            assert!(kind.label().bytes().all(|b| b.is_ascii_uppercase()), "{kind:?}");
        }
        assert_eq!(Kind::from_name("CREDIT_CARD"), Some(Kind::CreditCard));
        assert_eq!(Kind::from_name("nonsense"), None);
    }

    #[test]
    fn kind_set_contains_inserted_kinds() {
        let mut set: KindSet = [Kind::Email, Kind::Section].into_iter().collect();
        assert!(set.has(Kind::Email) && set.has(Kind::Section) && !set.has(Kind::Phone));
        set.remove(Kind::Email);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Kind::Section]);
        assert_eq!(KindSet::all().iter().count(), Kind::ALL.len());
    }
}
