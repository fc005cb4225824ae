//! The syntax tree of a query, kept in a normal form so that its text parses back to the same tree, and equal queries
//! have equal trees.

use interflow_types::labelled_enum;
use ipnet::IpNet;

use crate::key::{Flag, Key};

/// A range of bytes in the query's text; `end` is exclusive. Always on character boundaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuerySpan {
    pub start: usize,
    pub end: usize,
}

impl QuerySpan {
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }
}

/// A condition. Build it with [`and`](Self::and), [`or`](Self::or) and [`not`](Self::not), which maintain the normal
/// form.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    // Selects every flow: the empty query.
    All,
    /// All of them hold; at least two, none of them an `And`.
    And(Vec<Expr>),
    /// Any of them holds; at least two, none of them an `Or`.
    Or(Vec<Expr>),
    /// It does not hold; never a `Not`.
    Not(Box<Expr>),
    Term(Term),
}

impl Expr {
    /// The conjunction; selects every flow if empty. Nested conjunctions are merged.
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

    /// The disjunction; selects no flow if empty. Nested disjunctions are merged, and one alternative that selects
    /// everything makes the whole do so.
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
            // No variant of its own for "nothing", so that the text form needs no word for it.
            0 => Self::not(Self::All),
            1 => flat.remove(0),
            _ => Self::Or(flat),
        }
    }

    #[allow(clippy::should_implement_trait)]
    /// The negation; a double negation is removed.
    pub fn not(inner: Self) -> Self {
        match inner {
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    /// A term without a position in a text.
    pub fn term(key: Key, test: TermTest) -> Self {
        Self::Term(Term { key, name: None, test, span: QuerySpan::default() })
    }

    pub fn flag(flag: Flag) -> Self {
        Self::term(Key::Is, TermTest::Flag(flag))
    }

    /// The same condition with all terms at this position of a text.
    pub(crate) fn placed(self, span: QuerySpan) -> Self {
        let all = |parts: Vec<Self>| parts.into_iter().map(|part| part.placed(span)).collect();
        match self {
            Self::All => Self::All,
            Self::And(parts) => Self::And(all(parts)),
            Self::Or(parts) => Self::Or(all(parts)),
            Self::Not(inner) => Self::Not(Box::new(inner.placed(span))),
            Self::Term(term) => Self::Term(Term { span, ..term }),
        }
    }

    /// Calls `see` with every term, from left to right, those under a negation included.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Term)) {
        match self {
            Self::All => {}
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|p| p.visit(see)),
            Self::Not(inner) => inner.visit(see),
            Self::Term(term) => see(term),
        }
    }
}

/// One test of one fact of a flow: the smallest part of a query.
#[derive(Clone, Debug)]
pub struct Term {
    pub key: Key,
    /// The field name in lower case, for `header.name:value`.
    pub name: Option<String>,
    pub test: TermTest,
    /// Its position in the text it was parsed from; empty for a term that was built.
    pub span: QuerySpan,
}

impl PartialEq for Term {
    // Without the position: a condition that was built equals the one that was parsed.
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.name == other.name && self.test == other.test
    }
}

/// What is tested: that the fact is present (`key:*`), or that one of its values matches.
#[derive(Clone, Debug, PartialEq)]
pub enum TermTest {
    Present,
    Text(TextPattern),
    Number(NumberTest),
    Time(TimeTest),
    Flag(Flag),
    /// The address is this one or in this network.
    Net(IpNet),
}

/// A pattern for texts. ASCII case is ignored, except in a [`RegexSource`], which specifies it.
#[derive(Clone, Debug, PartialEq)]
pub enum TextPattern {
    /// This text as a whole, as a prefix, or as a substring, depending on the key's kind.
    Text(String),
    /// Exactly this text, as written `key:=text`.
    Exact(String),
    /// These pieces in this order, with any text between them: `*.openai.com` is `["", ".openai.com"]`. At least two
    /// pieces; inner ones are not empty, and not all of them are.
    Glob(Vec<String>),
    /// A regular expression, found anywhere in the value.
    Regex(RegexSource),
}

/// The source of a regular expression; the parser guarantees that it compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexSource {
    source: String,
    pub ignore_case: bool,
}

impl RegexSource {
    /// Normalizes a source in the syntax of the `regex` crate: an unneeded backslash before a slash or a space is
    /// removed, and an empty source becomes an empty group, so that the form between slashes parses back to the same.
    pub fn new(source: &str, ignore_case: bool) -> Self {
        let mut plain = String::with_capacity(source.len());
        let mut chars = source.chars().peekable();
        while let Some(c) = chars.next() {
            // An escaped slash or space needs no backslash here: the form between slashes adds it again.
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

    pub fn source(&self) -> &str {
        &self.source
    }
}

labelled_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CompareOp {
        Lt "<",
        Le "<=",
        Eq "",
        Ge ">=",
        Gt ">",
    }
}

impl CompareOp {
    /// The smallest and the largest value that compare so with those from `first` to `last`, all inclusive.
    fn bounds(self, first: u64, last: u64) -> Option<(u64, u64)> {
        Some(match self {
            Self::Lt => (0, first.checked_sub(1)?),
            Self::Le => (0, last),
            Self::Eq => (first, last),
            Self::Ge => (first, u64::MAX),
            Self::Gt => (last.checked_add(1)?, u64::MAX),
        })
    }
}

/// A test of a number in the base unit of its key: bytes, microseconds, or a plain count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberTest {
    Compare(CompareOp, u64),
    /// Between two numbers, both inclusive.
    Range(u64, u64),
    /// A class of status codes: 4 for `4xx`.
    Class(u8),
}

impl NumberTest {
    /// The smallest and the largest matching number, both inclusive; `None` if there is none, as for less than 0.
    pub fn bounds(self) -> Option<(u64, u64)> {
        match self {
            Self::Compare(op, n) => op.bounds(n, n),
            Self::Range(low, high) => Some((low, high)),
            Self::Class(c) => Some((u64::from(c) * 100, u64::from(c) * 100 + 99)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeTest {
    Compare(CompareOp, TimePoint),
    /// From one point to another, both inclusive.
    Range(TimePoint, TimePoint),
}

/// Microseconds of a day.
pub(crate) const DAY: u64 = 86_400_000_000;

/// A point in time with the precision in which it was written: a date covers its whole day, so `time:2026-01-31`
/// matches all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePoint {
    /// This many microseconds before now; resolved when the query is evaluated.
    Ago(u64),
    /// The day, in UTC, this many days before today; resolved when the query is evaluated.
    Day(u64),
    /// A date or a time of day.
    At {
        /// Its first microsecond, since the Unix epoch.
        start: u64,
        /// Its length in microseconds: a day, a minute, a second, or one.
        lasts: u64,
    },
}

impl TimePoint {
    /// Its first and its last microsecond. `now` in microseconds since the Unix epoch.
    fn extent(self, now: u64) -> (u64, u64) {
        let (start, lasts) = match self {
            Self::Ago(micros) => (now.saturating_sub(micros), 1),
            Self::Day(days) => ((now / DAY).saturating_sub(days) * DAY, DAY),
            Self::At { start, lasts } => (start, lasts),
        };
        (start, start.saturating_add(lasts) - 1)
    }
}

impl TimeTest {
    /// The first and the last matching microsecond, for a query evaluated at `now`; `None` if there is none.
    pub fn bounds(self, now: u64) -> Option<(u64, u64)> {
        match self {
            Self::Compare(op, point) => {
                let (first, last) = point.extent(now);
                op.bounds(first, last)
            }
            Self::Range(from, to) => Some((from.extent(now).0, to.extent(now).1)).filter(|(low, high)| low <= high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_conditions_are_flattened() {
        let [a, b, c] = [Flag::Error, Flag::Open, Flag::Sse].map(Expr::flag);
        let both = Expr::and([a.clone(), b.clone()]);
        assert_eq!(Expr::and([both.clone(), c.clone()]), Expr::And(vec![a.clone(), b.clone(), c.clone()]));
        assert_eq!(Expr::and([Expr::All, a.clone()]), a);
        assert_eq!(Expr::or([a.clone(), Expr::All]), Expr::All);
        assert_eq!(Expr::or([]), Expr::Not(Box::new(Expr::All)));
        assert_eq!(Expr::not(Expr::not(both.clone())), both);
    }

    #[test]
    fn regex_sources_are_normalized() {
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
    fn date_comparison_covers_the_whole_day() {
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
    fn comparisons_out_of_range_match_nothing() {
        assert_eq!(NumberTest::Compare(CompareOp::Lt, 0).bounds(), None);
        assert_eq!(NumberTest::Compare(CompareOp::Gt, u64::MAX).bounds(), None);
        assert_eq!(NumberTest::Class(4).bounds(), Some((400, 499)));
    }
}
