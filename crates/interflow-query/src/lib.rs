//! The query language: one text that selects flows in the CLI, the UI, the REST API and in rules.
//!
//! [`Query::parse`] reads it, [`Query::matches`] tests one flow through [`QuerySubject`], and [`Query::to_sql`] hands a
//! store the part that it can answer itself. [`key`] holds the one table from which parser, completion and help come.
#![forbid(unsafe_code)]

mod ast;
mod complete;
mod error;
mod format;
pub mod key;
mod matcher;
mod mitmproxy;
mod parse;
mod pattern;
mod query;
pub mod sql;
mod subject;
mod term;
mod value;

pub use ast::{CompareOp, Expr, NumberTest, QuerySpan, RegexSource, Term, TermTest, TextPattern, TimePoint, TimeTest};
pub use complete::{Completion, complete, help};
pub use error::QueryError;
pub use key::{Flag, Key};
pub use query::{MAX_DEPTH, MAX_LENGTH, MAX_TERMS, Query};
pub use subject::{Fact, QuerySubject, Tristate};
