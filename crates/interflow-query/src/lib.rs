//! The query language: one syntax to select flows in the CLI, the UI, the REST API and rules.
//!
//! [`Query::parse`] parses a query, [`Query::matches`] tests one flow through [`QuerySubject`], and [`Query::to_sql`]
//! extracts the part that a store can evaluate. [`key`] contains the table from which parser, completion and help are
//! derived.
#![forbid(unsafe_code)]

mod ast;
mod complete;
mod error;
mod format;
pub mod key;
mod limits;
mod matcher;
mod parse;
mod pattern;
mod query;
pub mod sql;
mod subject;
mod suggest;
mod suggestion;
mod tags;
mod term;
mod tilde_syntax;
mod value;
mod words;

pub use ast::{CompareOp, Expr, NumberTest, QuerySpan, RegexSource, Term, TermTest, TextPattern, TimePoint, TimeTest};
pub use complete::{Completion, SYNTAX, SYNTAX_NOTES, complete, help};
pub use error::QueryError;
pub use key::{Flag, Key};
pub use limits::{MAX_DEPTH, MAX_LENGTH, MAX_TERMS};
pub use query::Query;
pub use subject::{Fact, QuerySubject, Tristate};
pub use suggestion::{closest_name, unknown_key_message, with_suggestion};
pub use tags::{TAGS, TagInfo};
pub use tilde_syntax::operators as tilde_operators;
pub use words::{TABLE_WORDS, TableWord};
