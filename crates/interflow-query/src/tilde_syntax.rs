//! Parses mitmproxy's filter syntax into the same tree. Its regular expressions ignore case; `!` has precedence over
//! `&`, and that over `|`; adjacent terms must all hold.

use std::sync::LazyLock;

use interflow_types::data_file;

use crate::ast::{CompareOp, Expr, NumberTest, QuerySpan, RegexSource, Term, TermTest, TextPattern};
use crate::error::QueryError;
use crate::key::Key;
use crate::limits::{MAX_DEPTH, MAX_TERMS};
use crate::parse::{ParsedQuery, definition, lowercase_operator_error, operator_named};
use crate::pattern;
use crate::suggestion::closest_name;

type Result<T> = std::result::Result<T, QueryError>;

/// mitmproxy's operators without the `~`, and their meanings.
static OPERATORS: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    data_file::lines(include_str!("../data/mitmproxy_operators.txt")).filter_map(|line| line.split_once(' ')).collect()
});
/// The meaning of an operator that is followed by a regex, before the keys on which that is tested; one match suffices.
const REGEX: &str = "REGEX ";
/// The meaning of the operator that is followed by a status code.
const STATUS: &str = "STATUS CODE";

/// mitmproxy's operators without the `~`, and whether they take an argument.
pub fn operators() -> impl Iterator<Item = (&'static str, bool)> {
    OPERATORS.iter().map(|(name, meaning)| (*name, *meaning == STATUS || meaning.starts_with(REGEX)))
}

/// The error about an operator among the terms of a query in Interflow's syntax.
pub(crate) fn mixed_message(atom: &str) -> String {
    format!("mitmproxy's '{atom}' is used among other terms")
}

/// The operator at the start of the text: `~` and a mitmproxy name, ending where a name can end.
pub(crate) fn leading_atom(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('~')?;
    let len = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let ends = rest[len..].chars().next().is_none_or(|c| c.is_whitespace() || matches!(c, ')' | '"' | '\''));
    (ends && OPERATORS.iter().any(|(name, _)| *name == &rest[..len])).then_some(&text[..=len])
}

/// Whether a query is in this syntax: it begins with an operator, possibly after `!` and `(`.
// Negation and grouping may precede the first operator.
pub(crate) fn starts_with_atom(text: &str) -> bool {
    let first = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '!' | '('));
    first.starts_with('~') && first[1..].starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Parses a whole filter.
///
/// # Errors
/// The position and the remedy, as in Interflow's own syntax.
pub(crate) fn parse(text: &str) -> Result<ParsedQuery> {
    let mut reader = FilterParser { text, at: 0, depth: 0, terms: 0, lowercase: None };
    let expr = reader.juxtaposition()?;
    match reader.peek() {
        None => Ok((expr, reader.lowercase.filter(|_| reader.terms > 1))),
        Some(_) => reader.fail_here("a ')' without its '('", "remove it, or quote the text"),
    }
}

struct FilterParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    terms: usize,
    /// The first word of Interflow's operators, which are none in this syntax.
    lowercase: Option<QueryError>,
}

impl<'a> FilterParser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next character that is not whitespace.
    fn peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    fn error(&self, span: QuerySpan, message: impl Into<String>) -> QueryError {
        QueryError::new(self.text, span, message)
    }

    /// An error at the next character.
    fn fail_here<T>(&self, message: impl Into<String>, remedy: &str) -> Result<T> {
        let len = self.rest().chars().next().map_or(0, char::len_utf8);
        Err(self.error(QuerySpan::new(self.at, self.at + len), message).with_remedy(remedy))
    }

    /// Adjacent terms, which bind weakest in mitmproxy's grammar.
    fn juxtaposition(&mut self) -> Result<Expr> {
        let mut parts = vec![self.alternatives()?];
        while !matches!(self.peek(), None | Some(')')) {
            parts.push(self.alternatives()?);
        }
        Ok(Expr::and(parts))
    }

    fn alternatives(&mut self) -> Result<Expr> {
        self.joined('|', Self::conjunction).map(Expr::or)
    }

    fn conjunction(&mut self) -> Result<Expr> {
        self.joined('&', Self::negation).map(Expr::and)
    }

    fn joined(&mut self, sign: char, operand: fn(&mut Self) -> Result<Expr>) -> Result<Vec<Expr>> {
        let mut parts = vec![operand(self)?];
        while self.peek() == Some(sign) {
            self.at += 1;
            parts.push(operand(self)?);
        }
        Ok(parts)
    }

    fn negation(&mut self) -> Result<Expr> {
        let mut negative = false;
        while self.peek() == Some('!') {
            self.at += 1;
            negative = !negative;
        }
        let inner = self.primary()?;
        Ok(if negative { Expr::not(inner) } else { inner })
    }

    fn primary(&mut self) -> Result<Expr> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return self.fail_here(format!("more than {MAX_TERMS} terms"), "use one regex for many words");
        }
        match self.peek() {
            None | Some(')' | '&' | '|') => {
                self.fail_here("a term is expected here", "add one, such as ~d example.com")
            }
            Some('(') => self.group(),
            Some('~') => self.atom(),
            Some(_) => {
                let start = self.at;
                let url = self.search(&[Key::Url], start)?;
                let span = QuerySpan::new(start, self.at);
                if let (None, Some(operator)) = (&self.lowercase, operator_named(&self.text[start..self.at])) {
                    let sign = match operator {
                        "AND" => "&",
                        "OR" => "|",
                        _ => "!",
                    };
                    self.lowercase = Some(lowercase_operator_error(self.text, span, sign));
                }
                Ok(url)
            }
        }
    }

    fn group(&mut self) -> Result<Expr> {
        let open = self.at;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail_here(format!("parentheses are nested deeper than {MAX_DEPTH}"), "simplify the query");
        }
        self.at += 1;
        let inner = self.juxtaposition()?;
        if self.peek() != Some(')') {
            return Err(self.error(QuerySpan::new(open, open + 1), "this '(' is not closed").with_remedy("add ')'"));
        }
        self.at += 1;
        self.depth -= 1;
        Ok(inner)
    }

    fn atom(&mut self) -> Result<Expr> {
        let start = self.at;
        let name = self.rest()[1..].split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        self.at += 1 + name.len();
        let span = QuerySpan::new(start, self.at);
        let Some((_, meaning)) = OPERATORS.iter().find(|(n, _)| *n == name) else {
            let error = self.error(span, format!("mitmproxy has no '~{name}'"));
            return Err(match closest_name(name, OPERATORS.iter().map(|(n, _)| *n)) {
                Some(meant) => error.with_remedy(format!("did you mean '~{meant}'?")),
                None => error.with_remedy("see the list of its filter expressions, or use key:value terms"),
            });
        };
        match meaning.strip_prefix(REGEX) {
            Some(keys) => self.search(&keys.split(' ').filter_map(Key::find).collect::<Vec<_>>(), start),
            None if *meaning == STATUS => self.code(start),
            None => Ok(definition(meaning, span)),
        }
    }

    fn code(&mut self, start: usize) -> Result<Expr> {
        let (text, span) = self.argument("~c")?;
        let code: u64 = text.parse().map_err(|_| {
            self.error(span, format!("'{text}' is not a status code")).with_remedy("write a number, as in ~c 404")
        })?;
        Ok(Expr::Term(Term {
            key: Key::Status,
            name: None,
            test: TermTest::Number(NumberTest::Compare(CompareOp::Eq, code)),
            span: QuerySpan::new(start, self.at),
        }))
    }

    fn search(&mut self, keys: &[Key], start: usize) -> Result<Expr> {
        let name = self.text[start..self.at].trim();
        let (source, span) = self.argument(name)?;
        // Only in bodies does a dot match line breaks, as in mitmproxy, which compiles these with `re.DOTALL`.
        let in_bodies = keys.iter().all(|k| matches!(k, Key::Body | Key::ReqBody | Key::RespBody));
        let source = if in_bodies && source.contains('.') { format!("(?s){source}") } else { source };
        let regex = RegexSource::new(&source, true);
        pattern::compile(&regex).map_err(|why| {
            self.error(span, why).with_remedy(
                "look-around and back-references are not supported; escape special characters with a backslash",
            )
        })?;
        let whole = QuerySpan::new(start, self.at);
        Ok(Expr::or(keys.iter().map(|&key| {
            Expr::Term(Term { key, name: None, test: TermTest::Text(TextPattern::Regex(regex.clone())), span: whole })
        })))
    }

    /// A quoted text, or an unquoted one without quotes, parentheses, tildes and spaces. `of` is the operator, for
    /// the error.
    fn argument(&mut self, of: &str) -> Result<(String, QuerySpan)> {
        let first = self.peek();
        let start = self.at;
        if let Some(quote @ ('"' | '\'')) = first {
            return self.quoted(quote);
        }
        let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '~' | '"' | '\'');
        let len = self.rest().find(ends).unwrap_or(self.rest().len());
        if len == 0 {
            return self.fail_here(
                format!("'{of}' needs a text after it"),
                "put it in quotes if it has spaces or parentheses",
            );
        }
        self.at += len;
        let span = QuerySpan::new(start, self.at);
        Ok((self.text[start..self.at].to_owned(), span))
    }

    fn quoted(&mut self, quote: char) -> Result<(String, QuerySpan)> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            if c == quote {
                self.at = start + i + 1;
                return Ok((text, QuerySpan::new(start, self.at)));
            }
            // A backslash escapes a quote; elsewhere it belongs to the regex.
            match (c, chars.clone().next()) {
                ('\\', Some((_, next))) if next == quote => {
                    text.push(next);
                    chars.next();
                }
                ('\\', Some((_, next))) => {
                    text.extend([c, next]);
                    chars.next();
                }
                _ => text.push(c),
            }
        }
        Err(self
            .error(QuerySpan::new(start, start + 1), "this quote is not closed")
            .with_remedy("add a quote at the end"))
    }
}
