//! Translates the part of a query that a store can evaluate to a `WHERE` condition, and returns the rest as a residual
//! query.
//!
//! The condition is never too narrow: every row that the query selects satisfies it. The residual query filters out
//! what it selects in excess.
//!
//! A conjunction may drop parts that cannot be translated, since that only widens it; a disjunction can be translated
//! only as a whole. Negation exchanges the two, so it is pushed down to the terms first (De Morgan). SQL's three-valued
//! logic is avoided: a fact that is absent satisfies no test, hence every negated test, and a `NULL` in SQL would
//! satisfy neither.

use crate::ast::{Expr, Term, TermTest, TextPattern};
use crate::key::{Flag, Key, ValueKind};
use crate::query::Query;

/// Where a store keeps a fact. Expressions are SQL over its tables, such as `flow.host`; `NULL` means that the fact
/// is absent. They are inserted into the statement as they are, so they must be constants of the program, never
/// input. Texts must be stored without NUL characters, and equal those that the row's
/// [`QuerySubject`](crate::QuerySubject) returns. A test of `Text` holds if any of the texts matches.
#[derive(Clone, Copy, Debug)]
pub enum SqlColumn {
    Text(&'static [&'static str]),
    /// Texts stored in lower case, compared without case folding so that an index can be used.
    LowerText(&'static [&'static str]),
    /// Texts of another table: `exists` contains `{}` as the placeholder for the condition on `value`, such as
    /// `EXISTS (SELECT 1 FROM tag WHERE tag.flow = flow.id AND {})`.
    Rows {
        exists: &'static str,
        value: &'static str,
    },
    /// A text of any length, with what serves to find it by an index. At least one of the two is there.
    IndexedText {
        text: &'static str,
        /// Its first [`INDEXED_CHARS`] characters in lower case, where there is an index of those.
        beginning: Option<&'static str>,
        /// A text that contains it, where there is an index of trigrams of that.
        within: Option<&'static str>,
    },
    /// A whole number in the unit of the key.
    Integer(&'static str),
}

/// Characters of a text that an index holds: its entries are limited.
pub const INDEXED_CHARS: usize = 512;

/// Maps keys and flags to the columns of a store.
///
/// ```
/// use interflow_query::sql::{SqlColumn, SqlColumns, SqlParam};
/// use interflow_query::{Key, Query};
///
/// struct FlowTable;
///
/// impl SqlColumns for FlowTable {
///     fn column(&self, key: Key) -> Option<SqlColumn> {
///         (key == Key::Status).then_some(SqlColumn::Integer("flow.status"))
///     }
/// }
///
/// let condition = Query::parse("status:404 body:refund")?.to_sql(&FlowTable);
/// assert_eq!(condition.sql, "flow.status = ?");
/// assert_eq!(condition.params, [SqlParam::Integer(404)]);
/// // The table has no bodies, so they are tested on the selected rows.
/// assert_eq!(condition.residual, Some(Query::parse("body:refund")?));
/// # Ok::<(), interflow_query::QueryError>(())
/// ```
pub trait SqlColumns {
    /// The dialect of the condition.
    fn dialect(&self) -> SqlDialect {
        SqlDialect::Sqlite
    }

    /// Where a key's texts or numbers are; `None` leaves the key to the residual query, which reads every row.
    fn column(&self, key: Key) -> Option<SqlColumn>;

    /// What follows from a key's number being in this range, such as a range of the rows' ids. It must hold for every row
    /// whose number is.
    fn implied(&self, _key: Key, _low: i64, _high: Option<i64>) -> Option<String> {
        None
    }

    /// A condition that is true if the flag is set, and otherwise false, never `NULL`, since it is also used negated.
    fn flag(&self, _flag: Flag) -> Option<&'static str> {
        None
    }
}

/// Where conditions differ from one database to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqlDialect {
    /// Placeholders are `?`.
    #[default]
    Sqlite,
    /// Placeholders are `$1`, `$2` and so on. Text columns must have the collation `"C"`, in which `lower` folds ASCII
    /// only, as the matcher does; numbers must be `bigint`.
    Postgres,
}

impl SqlDialect {
    /// A condition that is always true, or never.
    const fn constant(self, value: bool) -> &'static str {
        match (self, value) {
            (Self::Sqlite, true) => "1",
            (Self::Sqlite, false) => "0",
            (Self::Postgres, true) => "true",
            (Self::Postgres, false) => "false",
        }
    }

    /// A condition and its parameter for texts that contain these pieces in their order: `anchored` says whether the
    /// text must begin with the first piece and end with the last.
    fn pattern<S: AsRef<str>>(self, folded: &str, pieces: &[S], anchored: bool) -> (String, String) {
        let (operator, any) = match self {
            Self::Sqlite => ("GLOB", "*"),
            Self::Postgres => ("LIKE", "%"),
        };
        let pattern = pieces.iter().map(|piece| self.escaped(piece.as_ref())).collect::<Vec<_>>().join(any);
        let pattern = if anchored { pattern } else { format!("{any}{pattern}{any}") };
        (format!("{folded} {operator} ?"), pattern)
    }

    /// A text in lower case, as a pattern that stands for this text only. `GLOB` has no escape character, so that special
    /// characters are put in brackets.
    fn escaped(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match (self, c) {
                (Self::Sqlite, '*' | '?' | '[') => out.extend(['[', c, ']']),
                (Self::Postgres, '%' | '_' | '\\') => out.extend(['\\', c]),
                _ => out.push(c.to_ascii_lowercase()),
            }
        }
        out
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlParam {
    Text(String),
    Integer(i64),
}

/// A `WHERE` condition with its parameters and residual query. Values are always parameters, never part of the SQL.
#[derive(Clone, Debug)]
pub struct SqlCondition {
    /// SQL in the dialect of the columns, with one placeholder for each of `params`; a true condition if nothing can be
    /// said.
    pub sql: String,
    /// Values in the order of the placeholders in `sql`.
    pub params: Vec<SqlParam>,
    /// What must still be matched on the rows; `None` if the condition is exact.
    pub residual: Option<Query>,
}

/// Globs with more stars are matched by Interflow: SQLite's matcher takes exponential time on them.
const MAX_STARS: usize = 6;

/// The most conditions that are joined without parentheses.
const MAX_BESIDE: usize = 8;

/// A condition, and whether it is exact (otherwise it selects too much).
struct SqlFragment {
    sql: String,
    params: Vec<SqlParam>,
    exact: bool,
}

impl SqlFragment {
    /// A condition without parameters that selects exactly the rows that match.
    fn exact(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), params: Vec::new(), exact: true }
    }
}

impl Query {
    /// The part that a store can evaluate, and what must be matched on the resulting rows. Relative times are
    /// resolved now.
    pub fn to_sql(&self, columns: &dyn SqlColumns) -> SqlCondition {
        translate(self.expr(), columns)
    }
}

fn translate(expr: &Expr, columns: &dyn SqlColumns) -> SqlCondition {
    // Only the top-level conjunction is split: its parts are independent filters. Within a part, the residual query
    // repeats the whole part, exact or not.
    let parts = if let Expr::And(parts) = expr { parts.as_slice() } else { std::slice::from_ref(expr) };
    let mut conditions = Vec::new();
    let mut residual = Vec::new();
    for part in parts {
        let translated = condition(part, false, columns);
        if !translated.as_ref().is_some_and(|t| t.exact) {
            residual.push(part.clone());
        }
        conditions.extend(translated);
    }
    let dialect = columns.dialect();
    let whole = join_fragments(conditions, " AND ", dialect.constant(true));
    let sql = match dialect {
        SqlDialect::Sqlite => whole.sql,
        SqlDialect::Postgres => numbered(&whole.sql),
    };
    SqlCondition { sql, params: whole.params, residual: (!residual.is_empty()).then(|| Expr::and(residual).into()) }
}

/// Numbers the placeholders. Neither the expressions of columns nor anything written here has a `?` of its own: values
/// are always parameters.
fn numbered(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 8);
    for (i, piece) in sql.split('?').enumerate() {
        if i > 0 {
            out.push('$');
            out.push_str(&i.to_string());
        }
        out.push_str(piece);
    }
    out
}

/// The condition for an expression or its negation; `None` if nothing can be said. Negation is pushed down to the
/// terms, so that a `NULL` never makes a negation "unknown".
fn condition(expr: &Expr, negative: bool, columns: &dyn SqlColumns) -> Option<SqlFragment> {
    match (expr, negative) {
        (Expr::All, _) => Some(SqlFragment::exact(columns.dialect().constant(!negative))),
        (Expr::Not(inner), _) => condition(inner, !negative, columns),
        (Expr::And(parts), false) | (Expr::Or(parts), true) => {
            let fragments: Vec<SqlFragment> = parts.iter().filter_map(|p| condition(p, negative, columns)).collect();
            let complete = fragments.len() == parts.len();
            (!fragments.is_empty()).then(|| {
                let mut whole = join_fragments(fragments, " AND ", columns.dialect().constant(true));
                // A part that is left out makes the condition wider than the query.
                whole.exact &= complete;
                whole
            })
        }
        (Expr::Or(parts), false) | (Expr::And(parts), true) => {
            // One part that cannot be translated could select any row, and so could the whole.
            let fragments: Option<Vec<SqlFragment>> = parts.iter().map(|p| condition(p, negative, columns)).collect();
            fragments.map(|f| join_fragments(f, " OR ", columns.dialect().constant(false)))
        }
        (Expr::Term(term), _) => term_condition(term, negative, columns),
    }
}

fn join_fragments(mut parts: Vec<SqlFragment>, between: &str, empty: &str) -> SqlFragment {
    // By halves: SQLite nests conditions beside each other as deep as there are of them, at most 1,000.
    if parts.len() > MAX_BESIDE {
        let right = parts.split_off(parts.len() / 2);
        parts = vec![join_fragments(parts, between, empty), join_fragments(right, between, empty)];
    }
    let exact = parts.iter().all(|p| p.exact);
    let sql = match parts.as_slice() {
        [] => empty.to_owned(),
        [one] => one.sql.clone(),
        many => format!("({})", many.iter().map(|p| p.sql.as_str()).collect::<Vec<_>>().join(between)),
    };
    SqlFragment { sql, params: parts.into_iter().flat_map(|p| p.params).collect(), exact }
}

fn term_condition(term: &Term, negative: bool, columns: &dyn SqlColumns) -> Option<SqlFragment> {
    if let TermTest::Flag(flag) = term.test {
        let sql = columns.flag(flag)?;
        return Some(SqlFragment::exact(if negative { format!("NOT {sql}") } else { sql.to_owned() }));
    }
    let dialect = columns.dialect();
    // Of several columns any may match, or, negated, none.
    let any_of = |list: &[&str], lower: bool| {
        let parts = list.iter().map(|column| text_condition(column, lower, term, negative, dialect));
        let between = if negative { " AND " } else { " OR " };
        Some(join_fragments(parts.collect::<Option<_>>()?, between, dialect.constant(negative)))
    };
    match columns.column(term.key)? {
        SqlColumn::Integer(column) => integer_condition(column, term, negative, columns),
        SqlColumn::IndexedText { text, beginning, within } => {
            indexed_text_condition(text, beginning, within, term, negative, dialect)
        }
        SqlColumn::Text(list) => any_of(list, false),
        SqlColumn::LowerText(list) => any_of(list, true),
        SqlColumn::Rows { exists, value } => {
            // The condition on the rows is never negated: "no row matches" differs from "a row does not match".
            let part = text_condition(value, false, term, false, dialect)?;
            let sql = exists.replacen("{}", &part.sql, 1);
            Some(SqlFragment { sql: if negative { format!("NOT {sql}") } else { sql }, ..part })
        }
    }
}

fn integer_condition(column: &str, term: &Term, negative: bool, columns: &dyn SqlColumns) -> Option<SqlFragment> {
    let dialect = columns.dialect();
    let now = interflow_types::Timestamp::now().micros();
    let bounds = match term.test {
        TermTest::Present => return Some(presence_condition(column, negative)),
        TermTest::Number(number) => number.bounds(),
        TermTest::Time(time) => time.bounds(now),
        _ => return None,
    };
    // An empty interval: no number is less than 0.
    let Some((low, high)) = bounds else {
        return Some(SqlFragment::exact(dialect.constant(negative)));
    };
    // The integers of databases are signed. A bound beyond them is left to the residual query.
    let low = i64::try_from(low).ok()?;
    // The largest `u64` means that there is no upper bound.
    let high = if high == u64::MAX { None } else { Some(i64::try_from(high).ok()?) };
    let (sql, params) = match high {
        None => (format!("{column} >= ?"), vec![low]),
        Some(high) if high == low => (format!("{column} = ?"), vec![low]),
        Some(high) if low == 0 => (format!("{column} <= ?"), vec![high]),
        Some(high) => (format!("{column} BETWEEN ? AND ?"), vec![low, high]),
    };
    let params = params.into_iter().map(SqlParam::Integer).collect();
    let sql = match columns.implied(term.key, low, high) {
        Some(implied) => format!("({sql} AND {implied})"),
        None => sql,
    };
    Some(with_negation(column, SqlFragment { sql, params, exact: true }, negative))
}

/// A test of a text that an index has only in part.
fn indexed_text_condition(
    text: &str,
    beginning: Option<&str>,
    within: Option<&str>,
    term: &Term,
    negative: bool,
    dialect: SqlDialect,
) -> Option<SqlFragment> {
    let TermTest::Text(pattern) = &term.test else { return text_condition(text, false, term, negative, dialect) };
    let is_short = |text: &str| text.chars().count() < INDEXED_CHARS;
    // What is shorter than the beginning is decided by it.
    let is_decided = match pattern {
        TextPattern::Exact(text) => is_short(text),
        TextPattern::Text(text) => matches!(term.key.kind(), ValueKind::Whole | ValueKind::Choice(_)) && is_short(text),
        TextPattern::Glob(pieces) => matches!(pieces.as_slice(), [first, rest] if rest.is_empty() && is_short(first)),
        TextPattern::Regex(_) => false,
    };
    if let Some(beginning) = beginning.filter(|_| is_decided && term.key.kind() != ValueKind::Inside) {
        return text_condition(beginning, true, term, negative, dialect);
    }
    let mut part = text_condition(text, false, term, false, dialect)?;
    if let (Some(within), TextPattern::Glob(pieces)) = (within, pattern)
        && !is_decided
    {
        let (sql, param) = dialect.pattern(&format!("lower({within})"), pieces, false);
        part.sql = format!("({} AND {sql})", part.sql);
        part.params.push(SqlParam::Text(param));
    }
    Some(with_negation(text, part, negative))
}

/// A test of one text column; `None` if the database cannot evaluate it as the matcher does.
fn text_condition(column: &str, lower: bool, term: &Term, negative: bool, dialect: SqlDialect) -> Option<SqlFragment> {
    let pattern = match &term.test {
        TermTest::Present => return Some(presence_condition(column, negative)),
        TermTest::Text(pattern) => pattern,
        _ => return None,
    };
    // `lower()` of SQLite folds ASCII only, as the matcher does; it would prevent the use of an index.
    let folded = if lower { column.to_owned() } else { format!("lower({column})") };
    let (sql, param) = match (pattern, term.key.kind()) {
        // SQLite has no regular expressions of its own, and those of PostgreSQL are others.
        (TextPattern::Regex(_), _) => return None,
        (TextPattern::Exact(text), _) => (format!("{folded} = ?"), text.to_ascii_lowercase()),
        (TextPattern::Text(text), ValueKind::Whole | ValueKind::Choice(_)) => {
            (format!("{folded} = ?"), text.to_ascii_lowercase())
        }
        (TextPattern::Text(text), ValueKind::Prefix) => dialect.pattern(&folded, &[text.as_str(), ""], true),
        (TextPattern::Text(text), ValueKind::Anywhere | ValueKind::Inside) => match dialect {
            SqlDialect::Sqlite => (format!("instr({folded}, ?) > 0"), text.to_ascii_lowercase()),
            // An index of trigrams serves LIKE.
            SqlDialect::Postgres => dialect.pattern(&folded, &[text], false),
        },
        (TextPattern::Glob(pieces), ValueKind::Inside) => dialect.pattern(&folded, pieces, false),
        (TextPattern::Glob(pieces), _) => dialect.pattern(&folded, pieces, true),
        (TextPattern::Text(_), _) => return None,
    };
    // SQLite's text functions end at a NUL, and PostgreSQL refuses it.
    let stars = if dialect == SqlDialect::Sqlite { param.matches('*').count() } else { 0 };
    if param.contains('\0') || stars > MAX_STARS {
        return None;
    }
    Some(with_negation(column, SqlFragment { sql, params: vec![SqlParam::Text(param)], exact: true }, negative))
}

/// A negated test also holds if the fact is absent.
fn with_negation(column: &str, part: SqlFragment, negative: bool) -> SqlFragment {
    if !negative {
        return part;
    }
    SqlFragment { sql: format!("({column} IS NULL OR NOT {})", part.sql), ..part }
}

fn presence_condition(column: &str, negative: bool) -> SqlFragment {
    SqlFragment::exact(format!("{column} IS {}", if negative { "NULL" } else { "NOT NULL" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table;

    impl SqlColumns for Table {
        fn dialect(&self) -> SqlDialect {
            SqlDialect::Postgres
        }

        fn column(&self, key: Key) -> Option<SqlColumn> {
            Some(match key {
                Key::Method => {
                    SqlColumn::IndexedText { text: "method", beginning: Some("left(lower(method), 512)"), within: None }
                }
                Key::Host => SqlColumn::IndexedText { text: "host", beginning: None, within: Some("url") },
                Key::Time => SqlColumn::Integer("started"),
                _ => return None,
            })
        }

        fn implied(&self, key: Key, low: i64, high: Option<i64>) -> Option<String> {
            (key == Key::Time).then(|| format!("day BETWEEN {low} AND {}", high.unwrap_or(9)))
        }
    }

    fn sql(query: &str) -> (String, Vec<SqlParam>) {
        let condition = Query::parse(query).unwrap().to_sql(&Table);
        assert!(condition.residual.is_none(), "{query}");
        (condition.sql, condition.params)
    }

    #[test]
    fn a_text_is_found_by_its_beginning_if_that_decides() {
        assert_eq!(sql("method:GET").0, "left(lower(method), 512) = $1");
        assert_eq!(sql("method:GE*").0, "left(lower(method), 512) LIKE $1");
        assert_eq!(sql("method:*T").0, "lower(method) LIKE $1");
        let long = "x".repeat(INDEXED_CHARS);
        assert_eq!(sql(&format!("method:{long}")).0, "lower(method) = $1");
        assert_eq!(sql(&format!("method:{long}*")).0, "lower(method) LIKE $1");
    }

    #[test]
    fn a_part_of_a_text_is_found_by_the_text_that_contains_it() {
        let (text, params) = sql("host:*.a.test");
        assert_eq!(text, "(lower(host) LIKE $1 AND lower(url) LIKE $2)");
        assert_eq!(params, [SqlParam::Text("%.a.test".into()), SqlParam::Text("%%.a.test%".into())]);
        assert_eq!(sql("-host:*.a.test").0, "(host IS NULL OR NOT (lower(host) LIKE $1 AND lower(url) LIKE $2))");
        assert_eq!(sql("host:a.test").0, "lower(host) = $1");
    }

    #[test]
    fn a_range_brings_along_what_follows_from_it() {
        let (text, params) = sql("time:>1970-01-01T00:00:01Z");
        assert!(text.starts_with("(started >= $1 AND day BETWEEN ") && text.ends_with(" AND 9)"), "{text}");
        assert_eq!(params.len(), 1);
    }
}
