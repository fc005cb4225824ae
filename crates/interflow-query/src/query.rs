//! [`Query`]: a parsed query with its compiled matcher.

use std::fmt;
use std::str::FromStr;

use interflow_types::{Direction, Phase};

use crate::ast::{Expr, TermTest};
use crate::error::QueryError;
use crate::key::{Flag, Key};
use crate::limits::MAX_LENGTH;
use crate::matcher::{self, CompiledExpr};
use crate::parse::{HostMatch, ParsedQuery};
use crate::subject::{QuerySubject, Tristate};
use crate::{parse, tilde_syntax};

/// A parsed and compiled query. Bounded: at most [`MAX_LENGTH`] bytes, [`MAX_TERMS`](crate::MAX_TERMS) terms and
/// [`MAX_DEPTH`](crate::MAX_DEPTH) nested parentheses, because queries come from users and from rules.
///
/// ```
/// use interflow_query::{Fact, Key, Query, QuerySubject, Tristate};
///
/// struct Exchange {
///     host: &'static str,
///     status: u64,
/// }
///
/// impl QuerySubject for Exchange {
///     fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
///         Tristate::any([self.host].into_iter().filter(|_| key == Key::Host), fits)
///     }
///
///     fn number(&self, key: Key) -> Fact<u64> {
///         if key == Key::Status { Fact::Is(self.status) } else { Fact::Absent }
///     }
/// }
///
/// let query = Query::parse("host:*.example.com -status:2xx")?;
/// assert!(query.matches(&Exchange { host: "api.example.com", status: 404 }));
/// assert!(!query.matches(&Exchange { host: "api.example.com", status: 204 }));
/// # Ok::<(), interflow_query::QueryError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    expr: Expr,
    node: CompiledExpr,
    /// The first operator in lower case, which is searched as a word.
    lowercase_operator: Option<Box<QueryError>>,
}

impl Query {
    /// Parses a query in Interflow's or the tilde syntax; an empty text selects every flow.
    ///
    /// # Errors
    /// The column, what was expected there, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        parse::parse(text, HostMatch::Part).map(Self::from_parsed)
    }

    /// Parses a filter in the tilde syntax, in which a text without an operator is a regex on the URL.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_tilde(text: &str) -> Result<Self, QueryError> {
        if text.len() > MAX_LENGTH {
            // It fails there with the error about the length.
            return Self::parse(text);
        }
        tilde_syntax::parse(text).map(Self::from_parsed)
    }

    fn from_parsed((expr, lowercase_operator): ParsedQuery) -> Self {
        Self { lowercase_operator: lowercase_operator.map(Box::new), ..Self::from(expr) }
    }

    /// As [`parse`](Self::parse) for queries that decide what is allowed or blocked: an operator in lower case is an
    /// error, and a host without a dot is the whole name.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and an operator in lower case outside quotes.
    pub fn parse_strict(text: &str) -> Result<Self, QueryError> {
        parse::parse(text, HostMatch::Whole).map(Self::from_parsed)?.without_hint()
    }

    /// The query, unless something in it is probably not meant.
    ///
    /// # Errors
    /// The [`hint`](Self::hint).
    pub fn without_hint(self) -> Result<Self, QueryError> {
        match self.lowercase_operator {
            Some(error) => Err(*error),
            None => Ok(self),
        }
    }

    /// What its author probably did not mean: an operator in lower case is searched as a word. Displayed to people who
    /// search; where more depends on the query, [`parse_strict`](Self::parse_strict) refuses it.
    pub fn hint(&self) -> Option<&QueryError> {
        self.lowercase_operator.as_deref()
    }

    /// The query simplified for the moment of a request (no response yet) or of a response: what is certain then is
    /// decided, and facts that both directions have refer to the request as long as there is no response.
    pub fn simplified_at(self, side: Direction) -> Self {
        simplify(self.expr, side).into()
    }

    /// Whether it selects no flow, whatever its facts.
    pub fn is_none(&self) -> bool {
        matches!(&self.expr, Expr::Not(inner) if **inner == Expr::All)
    }

    pub fn all() -> Self {
        Expr::All.into()
    }

    pub fn is_all(&self) -> bool {
        self.expr == Expr::All
    }

    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    pub fn and(self, other: Self) -> Self {
        let lowercase_operator = self.lowercase_operator.or(other.lowercase_operator);
        Self { lowercase_operator, ..Expr::and([self.expr, other.expr]).into() }
    }

    /// Whether the flow is selected; facts that are not known yet select nothing, also under a negation.
    pub fn matches(&self, subject: &dyn QuerySubject) -> bool {
        self.evaluate(subject).holds()
    }

    /// Whether the flow is selected, as far as is known at its phase. Allocates nothing for texts, numbers and flags.
    pub fn evaluate(&self, subject: &dyn QuerySubject) -> Tristate {
        self.node.evaluate(subject)
    }

    /// The phase from which every fact in the query is known. The result may be decided earlier, by the facts known
    /// until then.
    pub fn phase(&self) -> Phase {
        matcher::required_phase(&self.expr)
    }

    /// Whether it may need the body or messages of this direction, so that they have to be buffered.
    pub fn wants_body(&self, side: Direction) -> bool {
        let mut depends = false;
        self.expr.visit(&mut |term| {
            depends |= term.key == Key::Word
                || matches!(term.key, Key::Body | Key::ReqBody | Key::RespBody)
                    && matcher::key_directions(term.key).contains(&side);
        });
        depends
    }
}

fn simplify(expr: Expr, side: Direction) -> Expr {
    let never = || Expr::or([]);
    match expr {
        Expr::All => Expr::All,
        Expr::And(parts) => {
            let parts: Vec<Expr> = parts.into_iter().map(|p| simplify(p, side)).collect();
            // A part that is false makes the conjunction false.
            if parts.contains(&never()) { never() } else { Expr::and(parts) }
        }
        Expr::Or(parts) => Expr::or(parts.into_iter().map(|p| simplify(p, side)).filter(|p| *p != never())),
        Expr::Not(inner) => Expr::not(simplify(*inner, side)),
        Expr::Term(term) => {
            let request = side == Direction::Request;
            let (key, known) = match (term.key, &term.test) {
                (Key::Is, TermTest::Flag(Flag::Answered)) => (Key::Is, Some(!request)),
                (Key::Is, TermTest::Flag(Flag::Http)) => (Key::Is, Some(true)),
                (Key::Is, TermTest::Flag(Flag::Error | Flag::Tunnel)) => (Key::Is, Some(false)),
                (Key::Is, TermTest::Flag(Flag::Websocket | Flag::Sse)) if request => (Key::Is, Some(false)),
                (Key::Status | Key::RespType | Key::RespHeader | Key::RespBody | Key::RespSize, _) if request => {
                    (term.key, Some(false))
                }
                (Key::Type, _) if request => (Key::ReqType, None),
                (Key::Header, _) if request => (Key::ReqHeader, None),
                (Key::Body, _) if request => (Key::ReqBody, None),
                (key, _) => (key, None),
            };
            match known {
                Some(true) => Expr::All,
                Some(false) => never(),
                None => Expr::Term(crate::ast::Term { key, ..term }),
            }
        }
    }
}

impl From<Expr> for Query {
    fn from(expr: Expr) -> Self {
        let node = CompiledExpr::compile(&expr);
        Self { expr, node, lowercase_operator: None }
    }
}

impl PartialEq for Query {
    fn eq(&self, other: &Self) -> bool {
        self.expr == other.expr
    }
}

impl fmt::Display for Query {
    /// Formats in Interflow's syntax; empty for the query that selects every flow.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() { Ok(()) } else { self.expr.fmt(f) }
    }
}

impl FromStr for Query {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Self, QueryError> {
        Self::parse(text)
    }
}
