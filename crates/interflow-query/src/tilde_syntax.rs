//! Parses mitmproxy's filter syntax into the same tree. Its regular expressions ignore case; `!` has precedence over
//! `&`, and that over `|`; adjacent terms must all hold.

use std::sync::LazyLock;

use interflow_types::data_file;

use crate::ast::{CompareOp, Expr, NumberTest, QuerySpan, RegexSource, TermTest, TextPattern};
use crate::error::QueryError;
use crate::key::Key;
use crate::parse::{HostMatch, ParsedQuery, QueryParser, definition, lowercase_operator_error, operator_named};
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
    let mut reader = QueryParser::new(text, HostMatch::Part);
    let expr = reader.juxtaposition()?;
    match reader.peek_term() {
        None => Ok((expr, reader.lowercase.filter(|_| reader.terms > 1))),
        Some(_) => reader.fail_here("a ')' without its '('", "remove it, or quote the text"),
    }
}

/// The parser of this syntax, which shares its text and its limits with that of Interflow's own.
impl QueryParser<'_> {
    /// The next character that is not whitespace.
    fn peek_term(&mut self) -> Option<char> {
        self.skip_space();
        self.peek()
    }

    /// Adjacent terms, which bind weakest in mitmproxy's grammar.
    fn juxtaposition(&mut self) -> Result<Expr> {
        let mut parts = vec![self.any_of()?];
        while !matches!(self.peek_term(), None | Some(')')) {
            parts.push(self.any_of()?);
        }
        Ok(Expr::and(parts))
    }

    fn any_of(&mut self) -> Result<Expr> {
        self.joined('|', Self::all_of).map(Expr::or)
    }

    fn all_of(&mut self) -> Result<Expr> {
        self.joined('&', Self::negated).map(Expr::and)
    }

    fn joined(&mut self, sign: char, operand: fn(&mut Self) -> Result<Expr>) -> Result<Vec<Expr>> {
        let mut parts = vec![operand(self)?];
        while self.peek_term() == Some(sign) {
            self.at += 1;
            parts.push(operand(self)?);
        }
        Ok(parts)
    }

    fn negated(&mut self) -> Result<Expr> {
        let mut negative = false;
        while self.peek_term() == Some('!') {
            self.at += 1;
            negative = !negative;
        }
        let inner = self.operand()?;
        Ok(if negative { Expr::not(inner) } else { inner })
    }

    fn operand(&mut self) -> Result<Expr> {
        self.count_term()?;
        match self.peek_term() {
            None | Some(')' | '&' | '|') => {
                self.fail_here("a term is expected here", "add one, such as ~d example.com")
            }
            Some('(') => self.group(Self::juxtaposition),
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
        let test = TermTest::Number(NumberTest::Compare(CompareOp::Eq, code));
        Ok(Expr::term(Key::Status, test).placed(QuerySpan::new(start, self.at)))
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
        let test = TermTest::Text(TextPattern::Regex(regex));
        let parts = keys.iter().map(|&key| Expr::term(key, test.clone()));
        Ok(Expr::or(parts).placed(QuerySpan::new(start, self.at)))
    }

    /// A quoted text, or an unquoted one without quotes, parentheses, tildes and spaces. `of` is the operator, for
    /// the error.
    fn argument(&mut self, of: &str) -> Result<(String, QuerySpan)> {
        let first = self.peek_term();
        let start = self.at;
        if let Some(quote @ ('"' | '\'')) = first {
            // A backslash escapes a quote; elsewhere it belongs to the regex.
            return Ok((self.quoted_text(|c| c == quote)?, QuerySpan::new(start, self.at)));
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
}
