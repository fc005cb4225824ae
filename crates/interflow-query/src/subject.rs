//! What a query is matched against, and three-valued results (Kleene's logic).

use std::net::SocketAddr;

use interflow_types::Direction;

use crate::key::{Flag, Key};

/// Whether a condition holds, as far as is known at the flow's current phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tristate {
    Known(bool),
    /// A fact that decides it is not known yet at this phase.
    NotYet,
}

impl Tristate {
    /// Whether it is known to hold. False for `NotYet` too, so a filter selects nothing that is uncertain.
    pub const fn holds(self) -> bool {
        matches!(self, Self::Known(true))
    }

    /// Whether any of the texts matches: implements [`QuerySubject::text`] for facts that are known. No text at all
    /// counts as absent.
    pub fn any<'a>(values: impl IntoIterator<Item = &'a str>, fits: &mut dyn FnMut(&str) -> bool) -> Self {
        Self::Known(values.into_iter().any(fits))
    }

    /// The disjunction: a part that is known to hold decides, whatever the other is.
    pub const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(true), _) | (_, Self::Known(true)) => Self::Known(true),
            (Self::NotYet, _) | (_, Self::NotYet) => Self::NotYet,
            _ => Self::Known(false),
        }
    }
}

impl std::ops::Not for Tristate {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::Known(b) => Self::Known(!b),
            Self::NotYet => Self::NotYet,
        }
    }
}

/// A single fact of a flow, which may also be unknown yet at the flow's current phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    Is(T),
    /// It is absent, and will stay so: no test of it holds.
    Absent,
    /// It may still become known, at a later phase.
    NotYet,
}

impl<T> Fact<T> {
    /// A fact that is known to be present or absent, never `NotYet`.
    pub fn known(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Is)
    }

    /// Whether the test holds; a fact that is absent satisfies no test.
    pub fn test(self, test: impl FnOnce(T) -> bool) -> Tristate {
        match self {
            Self::Is(value) => Tristate::Known(test(value)),
            Self::Absent => Tristate::Known(false),
            Self::NotYet => Tristate::NotYet,
        }
    }
}

/// A flow as a query sees it. All methods have a default that means "absent", so an implementation covers only what
/// it has. For a flow in progress it returns `NotYet` for what is still to come.
///
/// The visiting methods call `fits` with one value after another until it returns true, and return
/// `Tristate::Known(true)` then. Otherwise they return `Known(false)` if all values were available, or else `NotYet`.
pub trait QuerySubject {
    /// The texts of a key of kind `Whole`, `Prefix`, `Anywhere` or `Choice`, or of `Error` or `Comment`. Spellings:
    /// hosts in lower case and IPv6 without brackets, `Scheme::as_str`, `EntryKind::as_str`, `HttpVersion::as_str`.
    /// `Error` has the kind and the message, `Version` those of both sides.
    fn text(&self, _key: Key, _fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        Tristate::Known(false)
    }

    /// The number of a key of kind `Count`, `Status` or `Bytes`; of `Duration` and `Time` in microseconds (since the
    /// Unix epoch).
    fn number(&self, _key: Key) -> Fact<u64> {
        Fact::Absent
    }

    /// Whether the flag is set.
    fn flag(&self, _flag: Flag) -> Tristate {
        Tristate::Known(false)
    }

    /// The address for `Client` or `Upstream`; port 0 if unknown.
    fn address(&self, _key: Key) -> Fact<SocketAddr> {
        Fact::Absent
    }

    /// The header fields of one direction, as `(name, value)`, in the bytes that were received.
    fn headers(&self, _side: Direction, _fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Tristate {
        Tristate::Known(false)
    }

    /// The decoded body of one direction, and each of its messages. Called last, and only if nothing cheaper decides,
    /// so large bodies should be loaded only here.
    fn body(&self, _side: Direction, _fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        Tristate::Known(false)
    }
}
