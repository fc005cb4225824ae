//! A query: its tree, and the matcher made from it.

use std::fmt;
use std::str::FromStr;

use interflow_types::{Direction, Phase};

use crate::ast::{Expr, TermTest};
use crate::error::QueryError;
use crate::key::{Flag, Key};
use crate::matcher::{self, CompiledExpr};
use crate::sql::{self, SqlColumns, SqlCondition};
use crate::subject::{QuerySubject, Tristate};
use crate::{mitmproxy, parse};

/// The longest query, in bytes.
pub const MAX_LENGTH: usize = 16 * 1024;

/// How deep parentheses may stand in one another.
pub const MAX_DEPTH: usize = 32;

/// The most terms in one query.
pub const MAX_TERMS: usize = 512;

/// A query that has been read and made ready to match.
#[derive(Clone, Debug)]
pub struct Query {
    expr: Expr,
    node: CompiledExpr,
}

impl Query {
    /// Reads a query, in our language or in mitmproxy's; nothing but space selects every flow.
    ///
    /// # Errors
    /// The column, what was expected there, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        parse::parse(text).map(Self::from)
    }

    /// Reads a filter in mitmproxy's language, in which a text without an atom is a regex on the URL.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_mitmproxy(text: &str) -> Result<Self, QueryError> {
        if text.len() > MAX_LENGTH {
            return Self::parse(text);
        }
        mitmproxy::parse(text).map(Self::from)
    }

    /// What is left of it at a moment at which there is no response yet, or at which there is one: what is certain then is
    /// decided, and of facts that both sides have the request's count as long as it is alone.
    #[must_use]
    pub fn simplified_at(self, side: Direction) -> Self {
        simplify(self.expr, side).into()
    }

    /// Whether it selects no flow.
    pub fn is_none(&self) -> bool {
        matches!(&self.expr, Expr::Not(inner) if **inner == Expr::All)
    }

    /// The query that selects every flow.
    pub fn all() -> Self {
        Expr::All.into()
    }

    /// Whether it selects every flow.
    pub fn is_all(&self) -> bool {
        self.expr == Expr::All
    }

    /// Its tree.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Flows that both select.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Expr::and([self.expr, other.expr]).into()
    }

    /// Whether the flow is selected; a fact that has not come yet selects nothing.
    pub fn matches(&self, subject: &dyn QuerySubject) -> bool {
        self.evaluate(subject).holds()
    }

    /// Whether the flow is selected, as far as is known at its phase. Allocates nothing for texts, numbers and flags.
    pub fn evaluate(&self, subject: &dyn QuerySubject) -> Tristate {
        self.node.evaluate(subject)
    }

    /// The phase from which on every fact it asks for is known. It may well be decided earlier.
    pub fn phase(&self) -> Phase {
        matcher::required_phase(&self.expr)
    }

    /// Whether it may look into the body or messages of this side.
    pub fn wants_body(&self, side: Direction) -> bool {
        let mut wanted = false;
        self.expr.visit(&mut |term| {
            wanted |= term.key == Key::Word
                || matches!(term.key, Key::Body | Key::ReqBody | Key::RespBody)
                    && matcher::key_directions(term.key).contains(&side);
        });
        wanted
    }

    /// What a store can answer of it, and what must be matched on the rows that come back.
    pub fn to_sql(&self, columns: &dyn SqlColumns) -> SqlCondition {
        sql::translate(&self.expr, columns)
    }
}

/// See [`Query::at`].
fn simplify(expr: Expr, side: Direction) -> Expr {
    let never = || Expr::or([]);
    match expr {
        Expr::All => Expr::All,
        Expr::And(parts) => {
            let parts: Vec<Expr> = parts.into_iter().map(|p| simplify(p, side)).collect();
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
        Self { expr, node }
    }
}

impl PartialEq for Query {
    fn eq(&self, other: &Self) -> bool {
        self.expr == other.expr
    }
}

impl fmt::Display for Query {
    /// In our language; nothing for the query that selects every flow.
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
