//! What a query is matched against, and answers that may still be open.

use std::net::SocketAddr;

use interflow_types::Direction;

use crate::key::{Flag, Key};

/// Whether something holds, as far as is known at this phase of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tristate {
    /// It is known.
    Known(bool),
    /// A fact that decides it has not come yet.
    NotYet,
}

impl Tristate {
    /// Whether it holds for certain.
    pub const fn holds(self) -> bool {
        matches!(self, Self::Known(true))
    }

    /// Whether any of the texts fits: the body of [`QuerySubject::text`] for facts that are known.
    pub fn any<'a>(values: impl IntoIterator<Item = &'a str>, fits: &mut dyn FnMut(&str) -> bool) -> Self {
        Self::Known(values.into_iter().any(fits))
    }

    /// One of the two holds.
    #[must_use]
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

/// A single fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// It is this.
    Is(T),
    /// There is none, and there will be none: no test of it holds.
    Absent,
    /// It has not come yet.
    NotYet,
}

impl<T> Fact<T> {
    /// A fact that is known to be there or not.
    pub fn known(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Is)
    }

    /// Whether the fact passes the test.
    pub fn test(self, test: impl FnOnce(T) -> bool) -> Tristate {
        match self {
            Self::Is(value) => Tristate::Known(test(value)),
            Self::Absent => Tristate::Known(false),
            Self::NotYet => Tristate::NotYet,
        }
    }
}

/// A flow as a query sees it. Every lookup has a default that says "there is none", so that an implementation names
/// only what it knows; while a flow is under way it answers `NotYet` for what is still to come.
///
/// The visiting methods call `fits` with one value after another until it says true, and give
/// `Tristate::Known(true)` then; else `Known(false)` when all values were there to be seen, `NotYet` otherwise.
pub trait QuerySubject {
    /// The texts of a key of kind `Whole`, `Prefix`, `Anywhere`, `Choice`, or of `Error`, `Comment`. Spellings:
    /// hosts in lower case and without brackets around IPv6, `Scheme::as_str`, `Transport::as_str`, `Version::as_str`.
    /// `Error` gives the kind and the message, `Version` both legs'.
    fn text(&self, _key: Key, _fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        Tristate::Known(false)
    }

    /// The number of a key: `Count`, `Status`, `Bytes`; `Duration` and `Time` in microseconds (since the Unix epoch).
    fn number(&self, _key: Key) -> Fact<u64> {
        Fact::Absent
    }

    /// Whether the flag is set.
    fn flag(&self, _flag: Flag) -> Tristate {
        Tristate::Known(false)
    }

    /// `Client` or `Upstream`. Port 0 where it is not known.
    fn address(&self, _key: Key) -> Fact<SocketAddr> {
        Fact::Absent
    }

    /// The header fields of one side, as `(name, value)`.
    fn headers(&self, _side: Direction, _fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Tristate {
        Tristate::Known(false)
    }

    /// The body of one side without its content coding, and each message of that side. Asked last, and only when
    /// nothing cheaper decides; long bodies are loaded here and not before.
    fn body(&self, _side: Direction, _fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        Tristate::Known(false)
    }
}
