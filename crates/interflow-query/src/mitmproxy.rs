//! mitmproxy's filter language, read into the same tree. Its regular expressions ignore case, `!` binds stronger than
//! `&`, that stronger than `|`, and terms side by side all hold.

use crate::ast::{Expr, Number, Op, Pattern, Regex, Span, Term, Test};
use crate::error::QueryError;
use crate::key::{Flag, Key, nearest};
use crate::pattern;
use crate::query::{MAX_DEPTH, MAX_TERMS};

type Result<T> = std::result::Result<T, QueryError>;

/// What an atom asks for.
#[derive(Clone, Copy)]
enum Atom {
    /// Nothing more.
    Alone(fn() -> Expr),
    /// A regex behind it, for each of these keys.
    Search(&'static [Key]),
    /// A status code behind it.
    Code,
}

const ATOMS: &[(&str, Atom)] = &[
    ("a", Atom::Alone(asset)),
    ("all", Atom::Alone(|| Expr::All)),
    ("e", Atom::Alone(|| Expr::flag(Flag::Error))),
    // There a WebSocket is an HTTP flow with messages.
    ("http", Atom::Alone(|| Expr::or([Expr::flag(Flag::Http), Expr::flag(Flag::Websocket)]))),
    ("websocket", Atom::Alone(|| Expr::flag(Flag::Websocket))),
    ("tcp", Atom::Alone(|| Expr::flag(Flag::Tunnel))),
    ("udp", Atom::Alone(|| Expr::or([]))),
    ("dns", Atom::Alone(|| Expr::or([]))),
    ("q", Atom::Alone(|| Expr::not(Expr::flag(Flag::Answered)))),
    ("s", Atom::Alone(|| Expr::flag(Flag::Answered))),
    ("marked", Atom::Alone(|| Expr::term(Key::Tag, Test::Present))),
    ("replay", Atom::Alone(|| Expr::flag(Flag::Replay))),
    ("replayq", Atom::Alone(|| Expr::flag(Flag::Replay))),
    ("replays", Atom::Alone(|| Expr::term(Key::Tag, Test::Text(Pattern::Text("server-replay".to_owned()))))),
    ("b", Atom::Search(&[Key::Body])),
    ("bq", Atom::Search(&[Key::ReqBody])),
    ("bs", Atom::Search(&[Key::RespBody])),
    ("h", Atom::Search(&[Key::Header])),
    ("hq", Atom::Search(&[Key::ReqHeader])),
    ("hs", Atom::Search(&[Key::RespHeader])),
    ("t", Atom::Search(&[Key::Type])),
    ("tq", Atom::Search(&[Key::ReqType])),
    ("ts", Atom::Search(&[Key::RespType])),
    ("d", Atom::Search(&[Key::Host])),
    ("u", Atom::Search(&[Key::Url])),
    ("m", Atom::Search(&[Key::Method])),
    ("src", Atom::Search(&[Key::Client])),
    ("dst", Atom::Search(&[Key::Authority])),
    ("meta", Atom::Search(&[Key::Tag, Key::Comment])),
    ("marker", Atom::Search(&[Key::Tag])),
    ("comment", Atom::Search(&[Key::Comment])),
    ("c", Atom::Code),
];

/// What browsers load beside a page: scripts, style sheets, images, fonts.
fn asset() -> Expr {
    let types = r"^(text/javascript|(application|text)/(x-)?javascript|text/css|image/|application/x-shockwave-flash|(application/(x-)?)?font)";
    Expr::term(Key::RespType, Test::Text(Pattern::Regex(Regex::new(types, true))))
}

/// The atom that the text begins with: `~` and a name of mitmproxy's.
pub(crate) fn atom(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('~')?;
    let len = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let ends = rest[len..].chars().next().is_none_or(|c| c.is_whitespace() || matches!(c, ')' | '"' | '\''));
    (ends && ATOMS.iter().any(|(name, _)| *name == &rest[..len])).then_some(&text[..=len])
}

/// Whether a query is written in this language: an atom is the first thing in it, but for `!` and `(`.
pub(crate) fn leads(text: &str) -> bool {
    let first = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '!' | '('));
    first.starts_with('~') && first[1..].starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Reads a filter.
pub(crate) fn parse(text: &str) -> Result<Expr> {
    let mut reader = Reader { text, at: 0, depth: 0, terms: 0 };
    let expr = reader.side_by_side()?;
    match reader.peek() {
        None => Ok(expr),
        Some(_) => Err(reader.error_here("a ')' without its '('").hint("take it out, or put the text in quotes")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    terms: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next character that is not space.
    fn peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    fn error(&self, span: Span, message: impl Into<String>) -> QueryError {
        QueryError::new(self.text, span, message)
    }

    fn error_here(&self, message: impl Into<String>) -> QueryError {
        let len = self.rest().chars().next().map_or(0, char::len_utf8);
        self.error(Span::new(self.at, self.at + len), message)
    }

    fn side_by_side(&mut self) -> Result<Expr> {
        let mut parts = vec![self.alternatives()?];
        while !matches!(self.peek(), None | Some(')')) {
            parts.push(self.alternatives()?);
        }
        Ok(Expr::and(parts))
    }

    fn alternatives(&mut self) -> Result<Expr> {
        let mut parts = vec![self.conjunction()?];
        while self.peek() == Some('|') {
            self.at += 1;
            parts.push(self.conjunction()?);
        }
        Ok(Expr::or(parts))
    }

    fn conjunction(&mut self) -> Result<Expr> {
        let mut parts = vec![self.negation()?];
        while self.peek() == Some('&') {
            self.at += 1;
            parts.push(self.negation()?);
        }
        Ok(Expr::and(parts))
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
            return Err(self.error_here(format!("more than {MAX_TERMS} terms")).hint("use one regex for many words"));
        }
        match self.peek() {
            None | Some(')' | '&' | '|') => {
                Err(self.error_here("a term is expected here").hint("add one, such as ~d example.com"))
            }
            Some('(') => self.group(),
            Some('~') => self.atom(),
            Some(_) => self.search(&[Key::Url], self.at),
        }
    }

    fn group(&mut self) -> Result<Expr> {
        let open = self.at;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self
                .error_here(format!("parentheses are nested deeper than {MAX_DEPTH}"))
                .hint("simplify the query"));
        }
        self.at += 1;
        let inner = self.side_by_side()?;
        if self.peek() != Some(')') {
            return Err(self.error(Span::new(open, open + 1), "this '(' is not closed").hint("add ')'"));
        }
        self.at += 1;
        self.depth -= 1;
        Ok(inner)
    }

    fn atom(&mut self) -> Result<Expr> {
        let start = self.at;
        let name = self.rest()[1..].split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        self.at += 1 + name.len();
        let Some((_, atom)) = ATOMS.iter().find(|(n, _)| *n == name) else {
            let error = self.error(Span::new(start, self.at), format!("mitmproxy has no '~{name}'"));
            return Err(match nearest(name, ATOMS.iter().map(|(n, _)| *n)) {
                Some(meant) => error.hint(format!("did you mean '~{meant}'?")),
                None => error.hint("see the list of its filter expressions, or use key:value terms"),
            });
        };
        match atom {
            Atom::Alone(expr) => Ok(expr()),
            Atom::Search(keys) => self.search(keys, start),
            Atom::Code => self.code(start),
        }
    }

    fn code(&mut self, start: usize) -> Result<Expr> {
        let (text, span) = self.argument("~c")?;
        let code: u64 = text.parse().map_err(|_| {
            self.error(span, format!("'{text}' is no status code")).hint("write a number, as in ~c 404")
        })?;
        Ok(Expr::Term(Term {
            key: Key::Status,
            name: None,
            test: Test::Number(Number::Compare(Op::Eq, code)),
            span: Span::new(start, self.at),
        }))
    }

    fn search(&mut self, keys: &[Key], start: usize) -> Result<Expr> {
        let name = self.text[start..self.at].trim();
        let (source, span) = self.argument(name)?;
        // Only in bodies a dot is also the end of a line.
        let in_bodies = keys.iter().all(|k| matches!(k, Key::Body | Key::ReqBody | Key::RespBody));
        let source = if in_bodies && source.contains('.') { format!("(?s){source}") } else { source };
        let regex = Regex::new(&source, true);
        pattern::compile(&regex).map_err(|why| {
            self.error(span, why).hint("look-around and back-references are not supported; put a backslash before signs that are meant as such")
        })?;
        let whole = Span::new(start, self.at);
        Ok(Expr::or(keys.iter().map(|&key| {
            Expr::Term(Term { key, name: None, test: Test::Text(Pattern::Regex(regex.clone())), span: whole })
        })))
    }

    /// A text in either quote, or one without quotes, parentheses, tildes and spaces.
    fn argument(&mut self, of: &str) -> Result<(String, Span)> {
        let first = self.peek();
        let start = self.at;
        if let Some(quote @ ('"' | '\'')) = first {
            return self.quoted(quote);
        }
        let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '~' | '"' | '\'');
        let len = self.rest().find(ends).unwrap_or(self.rest().len());
        if len == 0 {
            return Err(self
                .error_here(format!("'{of}' needs a text behind it"))
                .hint("put it in quotes if it has spaces or parentheses"));
        }
        self.at += len;
        let span = Span::new(start, self.at);
        Ok((self.text[start..self.at].to_owned(), span))
    }

    fn quoted(&mut self, quote: char) -> Result<(String, Span)> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            if c == quote {
                self.at = start + i + 1;
                return Ok((text, Span::new(start, self.at)));
            }
            // A backslash guards a quote; before anything else it belongs to the regex.
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
        Err(self.error(Span::new(start, start + 1), "this quote is not closed").hint("add a quote at the end"))
    }
}
