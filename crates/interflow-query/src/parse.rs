//! The parser. Precedence from high to low: `-` and `NOT`, `AND` or juxtaposition, `OR`.
//!
//! A recursive descent over the text, without a separate lexer, because what a character means depends on the key
//! before it: `-` is an operator or the sign of an age, and `<` a comparison or a part of a text. Depth and number of
//! terms are limited, since queries come from users of the API.

use crate::ast::{Expr, QuerySpan};
use crate::error::QueryError;
use crate::key::{FLAGS, KEYS, Key, ValueKind};
use crate::limits::{MAX_DEPTH, MAX_LENGTH, MAX_TERMS};
use crate::suggestion::closest_name;
use crate::tilde_syntax;

pub(crate) type Result<T> = std::result::Result<T, QueryError>;

/// An expression, and the first operator in lower case among its terms.
pub(crate) type ParsedQuery = (Expr, Option<QueryError>);

/// What a host without a dot is: in a search a part of the name, in a rule all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostMatch {
    Part,
    Whole,
}

/// Parses a query in either syntax. Decides by the text which one it is in.
///
/// # Errors
/// The position, what was expected there, and the remedy.
pub(crate) fn parse(text: &str, hosts: HostMatch) -> Result<ParsedQuery> {
    if text.len() > MAX_LENGTH {
        let message = format!("the query is longer than {MAX_LENGTH} bytes");
        return Err(
            QueryError::new(text, QuerySpan::new(0, 0), message).with_remedy("split it, or use a regex for many words")
        );
    }
    // A text that begins with `~` can only be in the tilde syntax.
    if tilde_syntax::starts_with_atom(text) {
        return tilde_syntax::parse(text);
    }
    let mut parser = QueryParser::new(text, hosts);
    match parser.parse_all() {
        // The error of this syntax is the more useful one, unless the other syntax accepts the text.
        Err(error) if parser.foreign => tilde_syntax::parse(text).map_err(|_| error),
        // A single word is searched for itself.
        parsed => parsed.map(|expr| (expr, parser.lowercase.filter(|_| parser.terms > 1))),
    }
}

/// The condition that a table of the program defines by a query, at a position of another query.
pub(crate) fn definition(query: &str, span: QuerySpan) -> Expr {
    let (expr, _) = parse(query, HostMatch::Whole).expect("the tables hold valid queries");
    expr.placed(span)
}

/// The operator that the word is, whatever its case. In lower case, such as `or`, it is searched as a word.
pub(crate) fn operator_named(word: &str) -> Option<&'static str> {
    ["AND", "OR", "NOT"].into_iter().find(|operator| operator.eq_ignore_ascii_case(word))
}

pub(crate) fn lowercase_operator_error(text: &str, span: QuerySpan, operator: &str) -> QueryError {
    let word = &text[span.start..span.end];
    QueryError::new(text, span, format!("`{word}` is searched as a word"))
        .with_remedy(format!("write {operator} for the operator, or \"{word}\" if the word is meant"))
}

pub(crate) struct QueryParser<'a> {
    pub(crate) text: &'a str,
    pub(crate) hosts: HostMatch,
    pub(crate) at: usize,
    depth: usize,
    pub(crate) terms: usize,
    /// A `key:value` was found: the query is certainly in Interflow's syntax, and a tilde operator in it is an
    /// error.
    keyed: bool,
    /// A tilde operator was found in a query that may well be in the tilde syntax: parsed as such if this
    /// syntax fails.
    foreign: bool,
    /// The first operator in lower case.
    pub(crate) lowercase: Option<QueryError>,
}

/// A key, and the field name for a header key.
pub(crate) type TermSubject = (Key, Option<String>);

impl<'a> QueryParser<'a> {
    pub(crate) const fn new(text: &'a str, hosts: HostMatch) -> Self {
        Self { text, hosts, at: 0, depth: 0, terms: 0, keyed: false, foreign: false, lowercase: None }
    }

    fn parse_all(&mut self) -> Result<Expr> {
        self.skip_space();
        if self.rest().is_empty() {
            return Ok(Expr::All);
        }
        let expr = self.alternatives(None)?;
        match self.peek() {
            None => Ok(expr),
            Some(_) => self.fail_here("a ')' without its '('", "remove it, or quote the text that contains it"),
        }
    }

    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(crate) fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    pub(crate) fn error(&self, span: QuerySpan, message: impl Into<String>) -> QueryError {
        QueryError::new(self.text, span, message)
    }

    /// An error at the next character.
    pub(crate) fn fail_here<T>(&self, message: impl Into<String>, remedy: &str) -> Result<T> {
        let len = self.peek().map_or(0, char::len_utf8);
        Err(self.error(QuerySpan::new(self.at, self.at + len), message).with_remedy(remedy))
    }

    /// `a OR b`. `within` is the key whose group of values is being parsed: `status:(404 OR 5xx)`.
    fn alternatives(&mut self, within: Option<&TermSubject>) -> Result<Expr> {
        let mut parts = vec![self.conjunction(within)?];
        while self.take_operator(&["OR", "||", "|"]) {
            parts.push(self.conjunction(within)?);
        }
        Ok(Expr::or(parts))
    }

    fn conjunction(&mut self, within: Option<&TermSubject>) -> Result<Expr> {
        let mut parts = vec![self.negation(within)?];
        loop {
            let explicit = self.take_operator(&["AND", "&&", "&"]);
            // Two terms beside each other are a conjunction.
            if !explicit && (matches!(self.peek(), None | Some(')')) || self.operator_len(&["OR", "||", "|"]).is_some())
            {
                return Ok(Expr::and(parts));
            }
            parts.push(self.negation(within)?);
        }
    }

    /// `-a`, `NOT a`, `!a`, and their operands. Signs may be repeated; an even number cancels out.
    fn negation(&mut self, within: Option<&TermSubject>) -> Result<Expr> {
        let mut negative = false;
        loop {
            if self.take_operator(&["NOT"]) {
                negative = !negative;
            } else if self.is_negation_sign(within) {
                self.at += 1;
                negative = !negative;
                // `- term` would otherwise negate nothing, and search for the term.
                if self.peek().is_none_or(|c| c.is_whitespace() || c == ')') {
                    return self.fail_here("a term is missing after the sign", "write -term without a space");
                }
            } else {
                break;
            }
        }
        let inner = self.primary(within)?;
        self.skip_space();
        Ok(if negative { Expr::not(inner) } else { inner })
    }

    fn is_negation_sign(&self, within: Option<&TermSubject>) -> bool {
        match self.peek() {
            // In a time, the sign belongs to an age: `time:(-1h OR -2h)`.
            Some('-') => within.is_none_or(|(key, _)| key.kind() != ValueKind::Time),
            // A comparison within a group of values, `status:(!=200)`.
            Some('!') => !(within.is_some() && self.rest().starts_with("!=")),
            _ => false,
        }
    }

    /// The length of one of these operators, if it is here as a word of its own, so that `ORacle` is a text.
    fn operator_len(&self, names: &[&str]) -> Option<usize> {
        let ends = |rest: &str| rest.chars().next().is_none_or(|c| c.is_whitespace() || matches!(c, '(' | ')'));
        names.iter().find(|n| self.rest().strip_prefix(**n).is_some_and(ends)).map(|n| n.len())
    }

    fn take_operator(&mut self, names: &[&str]) -> bool {
        let Some(len) = self.operator_len(names) else { return false };
        self.at += len;
        self.skip_space();
        true
    }

    fn primary(&mut self, within: Option<&TermSubject>) -> Result<Expr> {
        match self.peek() {
            Some('(') => self.group(|parser| parser.alternatives(within)),
            None => self.fail_here("the query ends where a term is expected", "add one, such as host:example.com"),
            Some(')') => self.fail_here("a term is expected before ')'", "add one, such as host:example.com"),
            Some(_) if self.operator_len(&["AND", "OR", "&", "&&", "|", "||"]).is_some() => self.fail_here(
                "a term is expected before the operator",
                "add one, or put the word in quotes to search for it",
            ),
            Some(_) => {
                self.count_term()?;
                self.note_lowercase_operator();
                match within {
                    Some(subject) => self.value(subject, self.at),
                    None => self.term(),
                }
            }
        }
    }

    fn note_lowercase_operator(&mut self) {
        let word = self.rest().split(|c: char| c.is_whitespace() || matches!(c, '(' | ')')).next().unwrap_or_default();
        if let (None, Some(operator)) = (&self.lowercase, operator_named(word)) {
            let span = QuerySpan::new(self.at, self.at + word.len());
            self.lowercase = Some(lowercase_operator_error(self.text, span, operator));
        }
    }

    /// A group in parentheses. Its depth is limited, since each level takes stack.
    pub(crate) fn group(&mut self, inside: impl FnOnce(&mut Self) -> Result<Expr>) -> Result<Expr> {
        let open = self.at;
        if self.depth == MAX_DEPTH {
            return self.fail_here(format!("parentheses are nested deeper than {MAX_DEPTH}"), "simplify the query");
        }
        self.depth += 1;
        self.at += 1;
        self.skip_space();
        let inner = inside(self)?;
        if self.peek() != Some(')') {
            return Err(self.error(QuerySpan::new(open, open + 1), "this '(' is not closed").with_remedy("add ')'"));
        }
        self.at += 1;
        self.depth -= 1;
        Ok(inner)
    }

    pub(crate) fn count_term(&mut self) -> Result<()> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return self.fail_here(format!("more than {MAX_TERMS} terms"), "use one regex for many words");
        }
        Ok(())
    }

    fn term(&mut self) -> Result<Expr> {
        let start = self.at;
        if let Some(name) = self.key_text() {
            let subject = self.subject(name)?;
            self.at += name.len() + 1;
            self.keyed = true;
            return match self.peek() {
                Some('(') => self.group(|parser| parser.alternatives(Some(&subject))),
                _ => self.value(&subject, start),
            };
        }
        if let Some(atom) = tilde_syntax::leading_atom(self.rest()) {
            self.foreign = !self.keyed;
            let message = tilde_syntax::mixed_message(atom);
            return Err(self
                .error(QuerySpan::new(start, start + atom.len()), message)
                .with_remedy("write the whole query in one syntax, or quote the text to search for it"));
        }
        self.value(&(Key::Word, None), start)
    }

    /// The text before a colon, if this term has one that could be a key. An unknown key is then an error, not a text
    /// to search for.
    fn key_text(&self) -> Option<&'a str> {
        let rest = self.rest();
        let name = rest.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))).next()?;
        let behind = rest[name.len()..].strip_prefix(':')?;
        // `http://example.com` is a text to search for, unless the scheme is a key.
        let is_url = behind.starts_with("//") && self.subject(name).is_err();
        (name.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_url).then_some(name)
    }

    fn subject(&self, name: &str) -> Result<TermSubject> {
        if let Some(key) = Key::find(name) {
            return Ok((key, None));
        }
        // The first dot after a name that is a key of headers: field names may contain dots, too.
        for (dot, _) in name.match_indices('.') {
            let (key, field) = (Key::find(&name[..dot]), &name[dot + 1..]);
            if let Some(key) = key.filter(|k| k.kind() == ValueKind::Header)
                && !field.is_empty()
            {
                return Ok((key, Some(field.to_ascii_lowercase())));
            }
        }
        let span = QuerySpan::new(self.at, self.at + name.len());
        let names = KEYS.iter().flat_map(|k| k.aliases.iter().copied().chain([k.name]));
        let remedy = match (closest_name(name, names), FLAGS.iter().find(|f| f.name.eq_ignore_ascii_case(name))) {
            (Some(meant), _) => format!("did you mean '{meant}'?"),
            (None, Some(flag)) => format!("did you mean 'is:{}'?", flag.name),
            (None, None) => "put the term in quotes to search for its text; the keys are in the help".to_owned(),
        };
        Err(self.error(span, format!("unknown key '{name}'")).with_remedy(remedy))
    }
}
