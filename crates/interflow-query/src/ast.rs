//! What a query says, as a tree. It is kept in a normal form, so that its text reads back to the same tree.

use ipnet::IpNet;

use crate::key::{Flag, Key};

/// Where something stands in the query's text, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuerySpan {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last.
    pub end: usize,
}

impl QuerySpan {
    /// From the first byte to the one behind the last.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }
}

/// A condition. Build it with [`and`](Self::and), [`or`](Self::or) and [`not`](Self::not), which keep it normal.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// Every flow.
    All,
    /// Each of them holds; at least two, none of them an `And`.
    And(Vec<Expr>),
    /// One of them holds; at least two, none of them an `Or`.
    Or(Vec<Expr>),
    /// It does not hold; never a `Not`.
    Not(Box<Expr>),
    /// One test.
    Term(Term),
}

impl Expr {
    /// All of these; without any, every flow.
    pub fn and(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut flat = Vec::new();
        for part in parts {
            match part {
                Self::All => {}
                Self::And(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        match flat.len() {
            0 => Self::All,
            1 => flat.remove(0),
            _ => Self::And(flat),
        }
    }

    /// One of these; without any, no flow.
    pub fn or(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut flat = Vec::new();
        for part in parts {
            match part {
                Self::All => return Self::All,
                Self::Or(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        match flat.len() {
            0 => Self::not(Self::All),
            1 => flat.remove(0),
            _ => Self::Or(flat),
        }
    }

    /// The opposite.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub fn not(inner: Self) -> Self {
        match inner {
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    /// One test without a place in a text.
    pub fn term(key: Key, test: TermTest) -> Self {
        Self::Term(Term { key, name: None, test, span: QuerySpan::default() })
    }

    /// A flag.
    pub fn flag(flag: Flag) -> Self {
        Self::term(Key::Is, TermTest::Flag(flag))
    }

    /// Shows every term to `see`, from left to right.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Term)) {
        match self {
            Self::All => {}
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|p| p.visit(see)),
            Self::Not(inner) => inner.visit(see),
            Self::Term(term) => see(term),
        }
    }
}

/// One test of one fact.
#[derive(Clone, Debug)]
pub struct Term {
    /// Which fact.
    pub key: Key,
    /// The header field's name in lower case, for `header.name:value`.
    pub name: Option<String>,
    /// What is asked of it.
    pub test: TermTest,
    /// Where it stands in the text it was read from.
    pub span: QuerySpan,
}

impl PartialEq for Term {
    /// Two terms that say the same are equal wherever they stand.
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.name == other.name && self.test == other.test
    }
}

/// What is asked of a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum TermTest {
    /// The fact is there at all: `key:*`.
    Present,
    /// One of its texts fits.
    Text(TextPattern),
    /// The number fits.
    Number(NumberTest),
    /// The moment fits.
    Time(TimeTest),
    /// The flag is set.
    Flag(Flag),
    /// The address is this one or lies in this network.
    Net(IpNet),
}

/// What a text must look like. ASCII letters fit in either case, but in a [`RegexSource`], which says so itself.
#[derive(Clone, Debug, PartialEq)]
pub enum TextPattern {
    /// This text: as a whole, at the start, or anywhere, as its key's kind says.
    Text(String),
    /// This text and nothing else: `key:=text`.
    Exact(String),
    /// These pieces in this order, anything between them: `*.openai.com` is `["", ".openai.com"]`. At least two
    /// pieces; those between the first and the last are not empty, nor are all of them.
    Glob(Vec<String>),
    /// A regular expression, found anywhere.
    Regex(RegexSource),
}

/// A regular expression's source. It compiles; the parser has seen to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexSource {
    source: String,
    /// Letters fit in either case.
    pub ignore_case: bool,
}

impl RegexSource {
    /// A source in the syntax of the `regex` crate. A backslash before a slash or a space goes, and nothing becomes an
    /// empty group, so that the form between slashes reads back to the same.
    pub fn new(source: &str, ignore_case: bool) -> Self {
        let mut plain = String::with_capacity(source.len());
        let mut chars = source.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '\\' && chars.peek().is_some_and(|&n| n != '/' && !n.is_whitespace()) {
                plain.push(c);
                plain.extend(chars.next());
            } else if c != '\\' || chars.peek().is_none() {
                plain.push(c);
            }
        }
        if plain.is_empty() {
            plain.push_str("(?:)");
        }
        Self { source: plain, ignore_case }
    }

    /// The source.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// How a number compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// Smaller.
    Lt,
    /// Smaller or equal.
    Le,
    /// Equal.
    Eq,
    /// Greater or equal.
    Ge,
    /// Greater.
    Gt,
}

impl CompareOp {
    /// As it is written; nothing for equality.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Eq => "",
            Self::Ge => ">=",
            Self::Gt => ">",
        }
    }
}

/// A test of a number in the base unit of its key: bytes, microseconds, or a plain count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberTest {
    /// Against one number.
    Compare(CompareOp, u64),
    /// Between two, both included.
    Range(u64, u64),
    /// A class of status codes: 4 for `4xx`.
    Class(u8),
}

impl NumberTest {
    /// The smallest and the greatest number that fit; `None` when none does.
    pub fn bounds(self) -> Option<(u64, u64)> {
        Some(match self {
            Self::Compare(CompareOp::Lt, n) => (0, n.checked_sub(1)?),
            Self::Compare(CompareOp::Le, n) => (0, n),
            Self::Compare(CompareOp::Eq, n) => (n, n),
            Self::Compare(CompareOp::Ge, n) => (n, u64::MAX),
            Self::Compare(CompareOp::Gt, n) => (n.checked_add(1)?, u64::MAX),
            Self::Range(low, high) => (low, high),
            Self::Class(c) => (u64::from(c) * 100, u64::from(c) * 100 + 99),
        })
    }
}

/// A test of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeTest {
    /// Against one point.
    Compare(CompareOp, TimePoint),
    /// From one point to another, both included.
    Range(TimePoint, TimePoint),
}

/// A point in time as a person writes it: a day is as long as a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePoint {
    /// So many microseconds before now.
    Ago(u64),
    /// A date or a time of day: its first microsecond since the Unix epoch, and how many it lasts.
    At {
        /// Its first microsecond.
        start: u64,
        /// Its length in microseconds: a day, a minute, a second, or one.
        lasts: u64,
    },
}

impl TimePoint {
    /// Its first microsecond and the one behind its last.
    fn extent(self, now: u64) -> (u64, u64) {
        let (start, lasts) = match self {
            Self::Ago(micros) => (now.saturating_sub(micros), 1),
            Self::At { start, lasts } => (start, lasts),
        };
        (start, start.saturating_add(lasts))
    }
}

impl TimeTest {
    /// The first and the last microsecond that fit; `None` when none does.
    pub fn bounds(self, now: u64) -> Option<(u64, u64)> {
        Some(match self {
            Self::Compare(op, point) => {
                let (start, end) = point.extent(now);
                match op {
                    CompareOp::Lt => (0, start.checked_sub(1)?),
                    CompareOp::Le => (0, end - 1),
                    CompareOp::Eq => (start, end - 1),
                    CompareOp::Ge => (start, u64::MAX),
                    CompareOp::Gt => (end, u64::MAX),
                }
            }
            Self::Range(from, to) => {
                let (low, high) = (from.extent(now).0, to.extent(now).1 - 1);
                (low <= high).then_some((low, high))?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_kept_flat() {
        let [a, b, c] = [Flag::Error, Flag::Open, Flag::Sse].map(Expr::flag);
        let both = Expr::and([a.clone(), b.clone()]);
        assert_eq!(Expr::and([both.clone(), c.clone()]), Expr::And(vec![a.clone(), b.clone(), c.clone()]));
        assert_eq!(Expr::and([Expr::All, a.clone()]), a);
        assert_eq!(Expr::or([a.clone(), Expr::All]), Expr::All);
        assert_eq!(Expr::or([]), Expr::Not(Box::new(Expr::All)));
        assert_eq!(Expr::not(Expr::not(both.clone())), both);
    }

    #[test]
    fn a_regex_has_one_spelling() {
        for (written, kept) in [
            ("a\\/b", "a/b"),
            ("a/b", "a/b"),
            ("\\\\/", "\\\\/"),
            ("", "(?:)"),
            ("\\d", "\\d"),
            ("x\\", "x\\"),
            ("a\\ b", "a b"),
        ] {
            assert_eq!(RegexSource::new(written, false).source(), kept, "{written}");
        }
    }

    #[test]
    fn a_day_counts_as_a_whole() {
        let day = TimePoint::At { start: 1000, lasts: 10 };
        for (op, bounds) in [
            (CompareOp::Lt, Some((0, 999))),
            (CompareOp::Le, Some((0, 1009))),
            (CompareOp::Eq, Some((1000, 1009))),
            (CompareOp::Ge, Some((1000, u64::MAX))),
            (CompareOp::Gt, Some((1010, u64::MAX))),
        ] {
            assert_eq!(TimeTest::Compare(op, day).bounds(0), bounds, "{op:?}");
        }
        assert_eq!(TimeTest::Compare(CompareOp::Gt, TimePoint::Ago(50)).bounds(100), Some((51, u64::MAX)));
        assert_eq!(TimeTest::Range(day, TimePoint::Ago(0)).bounds(10), None);
    }

    #[test]
    fn comparisons_beyond_the_ends_fit_nothing() {
        assert_eq!(NumberTest::Compare(CompareOp::Lt, 0).bounds(), None);
        assert_eq!(NumberTest::Compare(CompareOp::Gt, u64::MAX).bounds(), None);
        assert_eq!(NumberTest::Class(4).bounds(), Some((400, 499)));
    }
}
