//! Parses the value of a term according to the kind of its key: texts, globs, regexes, numbers, addresses.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::ast::{CompareOp, Expr, NumberTest, QuerySpan, RegexSource, Term, TermTest, TextPattern};
use crate::key::{FLAGS, Flag, Key, ValueKind};
use crate::parse::{HostMatch, QueryParser, Result, TermSubject};
use crate::suggestion::closest_name;
use crate::words::{TABLE_WORDS, find_word};
use crate::{pattern, value};

/// Whether the character is special anywhere in an unquoted text, and needs a backslash to be literal.
pub(crate) fn is_special(c: char) -> bool {
    c.is_whitespace() || matches!(c, '(' | ')' | '"' | '*' | '\\' | ':')
}

/// Whether the character is special at the start of an unquoted text, where it would be an operator.
pub(crate) fn is_special_start(c: char) -> bool {
    matches!(c, '-' | '!' | '~' | '=' | '<' | '>')
}

/// If the text begins with `/regex/` or `/regex/i`, followed by its end, a space or `)`: the length of all that, and
/// of the source. If the value could also be a path, a space in it must be escaped, so that two adjacent paths are
/// not taken for a regex.
pub(crate) fn regex_extent(key: Key, text: &str) -> Option<(usize, usize)> {
    let body = text.strip_prefix('/')?;
    let mut escaped = false;
    let stop_at_space = takes_paths(key);
    let end = body.find(|c: char| {
        let stops = !escaped && (c == '/' || stop_at_space && c.is_whitespace());
        escaped = c == '\\' && !escaped;
        stops
    })?;
    if end == 0 || !body[end..].starts_with('/') {
        return None;
    }
    let rest = &body[end + 1..];
    let flags = usize::from(rest.starts_with('i'));
    let boundary = rest[flags..].chars().next().is_none_or(|c| c.is_whitespace() || c == ')');
    boundary.then_some((end + 2 + flags, end))
}

/// Whether values of this key often begin with a slash without being a regex. A regex there must not contain a bare
/// space.
pub(crate) fn takes_paths(key: Key) -> bool {
    matches!(key, Key::Word | Key::Url | Key::Path | Key::Query)
}

/// An unquoted or quoted text of the query, before it is known what it means.
struct TextToken {
    /// The pieces between wildcards; one if there is no wildcard. An empty first or last piece means a wildcard at
    /// that end.
    pieces: Vec<String>,
    quoted: bool,
    span: QuerySpan,
}

impl TextToken {
    /// The text, if it has no wildcard.
    fn plain(&self) -> Option<&str> {
        if let [only] = self.pieces.as_slice() { Some(only) } else { None }
    }

    /// Whether it is nothing but a wildcard (`key:*`).
    fn is_star(&self) -> bool {
        self.pieces.len() > 1 && self.pieces.iter().all(String::is_empty)
    }
}

impl QueryParser<'_> {
    /// Parses one value of a key; `start` is the offset of its term. `!=` negates the comparison, `=` demands the
    /// exact text.
    pub(crate) fn value(&mut self, subject: &TermSubject, start: usize) -> Result<Expr> {
        let key = subject.0;
        let operators = key != Key::Word;
        if operators && self.rest().starts_with("!=") {
            self.at += 2;
            // Of numbers, several values may follow; a text is exact, with its commas.
            let values = if takes_text(key) { Self::comparison } else { Self::alternatives_of };
            return values(self, subject, start, true).map(Expr::not);
        }
        if operators && self.rest().starts_with('=') && takes_text(key) {
            self.at += 1;
            return self.comparison(subject, start, true);
        }
        self.alternatives_of(subject, start, false)
    }

    /// One value, or several with commas between: `status:200,404`.
    fn alternatives_of(&mut self, subject: &TermSubject, start: usize, exact: bool) -> Result<Expr> {
        let mut values = vec![self.comparison(subject, start, exact)?];
        while takes_list(subject.0) && self.peek() == Some(',') {
            self.at += 1;
            self.count_term()?;
            values.push(self.comparison(subject, self.at, exact)?);
        }
        Ok(Expr::or(values))
    }

    fn comparison(&mut self, subject: &TermSubject, start: usize, exact: bool) -> Result<Expr> {
        let (key, name) = subject;
        let test = if takes_text(*key)
            && !exact
            && let Some((len, source)) = regex_extent(*key, self.rest())
        {
            self.regex(len, source)?
        } else {
            let word = self.word(*key, exact)?;
            if *key == Key::Word && word.is_star() {
                return Ok(Expr::All);
            }
            // `host:example.com:8443` means host and port, as in a URL.
            if *key == Key::Host
                && !word.quoted
                && let Some(both) = self.host_and_port(&word, start, exact)
            {
                return Ok(both);
            }
            if !(word.quoted || exact && takes_text(*key))
                && let Some(meant) = word.plain().and_then(|text| find_word(*key, text))
            {
                return Ok(meant.expr(QuerySpan::new(start, self.at)));
            }
            self.test(*key, word, exact)?
        };
        Ok(Expr::Term(Term { key: *key, name: name.clone(), test, span: QuerySpan::new(start, self.at) }))
    }

    fn regex(&mut self, len: usize, source: usize) -> Result<TermTest> {
        let whole = &self.rest()[..len];
        let regex = RegexSource::new(&whole[1..1 + source], whole.ends_with('i'));
        let span = QuerySpan::new(self.at, self.at + len);
        self.at += len;
        match pattern::compile(&regex) {
            Ok(_) => Ok(TermTest::Text(TextPattern::Regex(regex))),
            Err(why) => Err(self.error(span, why).with_remedy("quote a text that is not a regex")),
        }
    }

    fn word(&mut self, key: Key, exact: bool) -> Result<TextToken> {
        let start = self.at;
        let has_list = takes_list(key) && !(exact && takes_text(key));
        let word = if self.peek() == Some('"') { self.quoted()? } else { self.unquoted(has_list)? };
        if word.span.start == word.span.end {
            let name = key.name();
            return Err(self
                .error(QuerySpan::new(start, start), format!("a value is missing after '{name}:'"))
                .with_remedy(format!("write it without a space, as in {}", key.info().example)));
        }
        Ok(word)
    }

    /// A text in double quotes. Only a quote and a backslash are escaped; any other backslash is literal, as in a
    /// regex or a Windows path.
    fn quoted(&mut self) -> Result<TextToken> {
        let start = self.at;
        let text = self.quoted_text(|c| matches!(c, '"' | '\\'))?;
        if self.peek().is_some_and(|c| !c.is_whitespace() && c != ')') {
            return self.fail_here("a space is missing after the quote", "write \\\" for a quote inside the text");
        }
        Ok(TextToken { pieces: vec![text], quoted: true, span: QuerySpan::new(start, self.at) })
    }

    /// The text up to the quote that ends it; any backslash but before what `is_escaped` is literal.
    pub(crate) fn quoted_text(&mut self, is_escaped: impl Fn(char) -> bool) -> Result<String> {
        let start = self.at;
        let (mut text, mut chars) = (String::new(), self.rest().char_indices());
        let quote = chars.next().map(|(_, quote)| quote);
        while let Some((i, c)) = chars.next() {
            match c {
                c if Some(c) == quote => {
                    self.at = start + i + 1;
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, c)) if is_escaped(c) => text.push(c),
                    Some((_, c)) => text.extend(['\\', c]),
                    None => text.push('\\'),
                },
                other => text.push(other),
            }
        }
        Err(self
            .error(QuerySpan::new(start, start + 1), "this quote is not closed")
            .with_remedy("add a quote at the end"))
    }

    /// A text without quotes, up to a space or a parenthesis; in a list of values, up to the comma.
    fn unquoted(&mut self, has_list: bool) -> Result<TextToken> {
        let start = self.at;
        let mut pieces = vec![String::new()];
        while let Some(c) = self.peek() {
            let several = pieces.len() > 1;
            let piece = pieces.last_mut().expect("there is always a piece");
            match c {
                ')' => break,
                ',' if has_list => break,
                c if c.is_whitespace() => break,
                '(' if self.at > start => {
                    return self
                        .fail_here("a '(' in the middle of a text", "put the text in quotes, or a space before it");
                }
                '"' if self.at > start => {
                    return self.fail_here("a quote in the middle of a text", "put the whole text in quotes");
                }
                // Several stars beside each other are one.
                '*' if piece.is_empty() && several => {}
                '*' => pieces.push(String::new()),
                '\\' => {
                    let next = self.rest()[1..].chars().next();
                    // Before any other character a backslash is literal, as in a Windows path.
                    match next.filter(|&n| is_special(n) || is_special_start(n) || n == '/' || n == ',' && has_list) {
                        Some(n) => {
                            piece.push(n);
                            self.at += n.len_utf8();
                        }
                        None => piece.push('\\'),
                    }
                }
                other => piece.push(other),
            }
            self.at += c.len_utf8();
        }
        Ok(TextToken { pieces, quoted: false, span: QuerySpan::new(start, self.at) })
    }

    /// Splits `host:port` into two terms; `None` if the colon is not that of a port.
    fn host_and_port(&self, word: &TextToken, start: usize, exact: bool) -> Option<Expr> {
        if exact && word.pieces.len() > 1 {
            return None;
        }
        let last = word.pieces.last()?;
        let (host, port) = last.rsplit_once(':')?;
        let port_len = port.len();
        let port: u16 = port.parse().ok()?;
        // An escaped colon belongs to the name.
        if self.text[..word.span.end - port_len].ends_with("\\:") {
            return None;
        }
        // A port without a host.
        if last == &format!(":{port}") && word.pieces.len() == 1 {
            return None;
        }
        // An IPv6 address without brackets has colons of its own.
        if last.parse::<IpAddr>().is_ok() || (host.contains(':') && !host.ends_with(']')) {
            return None;
        }
        let mut pieces = word.pieces.clone();
        host.clone_into(pieces.last_mut()?);
        let host = pattern_from_pieces(pieces);
        let host = host.map_or(TermTest::Present, |pattern| TermTest::Text(self.host_name(pattern, exact)));
        let port = TermTest::Number(NumberTest::Compare(CompareOp::Eq, port.into()));
        let both = Expr::and([Expr::term(Key::Host, host), Expr::term(Key::Port, port)]);
        Some(both.placed(QuerySpan::new(start, self.at)))
    }

    fn test(&self, key: Key, word: TextToken, exact: bool) -> Result<TermTest> {
        if word.is_star() && !exact && key.kind() != ValueKind::Flag {
            return Ok(TermTest::Present);
        }
        let wrong = |expected: &str| {
            let word_text = &self.text[word.span.start..word.span.end];
            self.error(word.span, format!("'{word_text}' does not fit '{}'", key.name())).with_remedy(expected)
        };
        let raw = word.plain();
        match key.kind() {
            kind if kind.is_number() => value::number(kind, raw.unwrap_or("*")).map(TermTest::Number).map_err(wrong),
            ValueKind::Time => value::time(raw.unwrap_or("*")).map(TermTest::Time).map_err(wrong),
            ValueKind::Flag => self.flag(raw, word.span),
            ValueKind::Address => address(raw, &word)
                .ok_or_else(|| wrong("expected an address (10.0.0.7), a network (10.0.0.0/8) or a glob (10.0.*)")),
            ValueKind::Choice(choices) if let Some(raw) = raw => self.choice(choices, raw, word.span),
            _ => self.text_test(key, word, exact),
        }
    }

    fn flag(&self, raw: Option<&str>, span: QuerySpan) -> Result<TermTest> {
        let name = raw.unwrap_or("*");
        Flag::find(name).map(TermTest::Flag).ok_or_else(|| {
            let error = self.error(span, format!("unknown flag '{name}'"));
            let words = TABLE_WORDS.iter().filter(|word| word.key == Key::Is).map(|word| word.word);
            let names = || FLAGS.iter().map(|f| f.name).chain(words.clone());
            match closest_name(name, names()) {
                Some(meant) => error.with_remedy(format!("did you mean 'is:{meant}'?")),
                None if value::number(Key::Status.kind(), name).is_ok() => {
                    error.with_remedy(format!("did you mean 'status:{name}'?"))
                }
                None => error.with_remedy(list_names("flags", names())),
            }
        })
    }

    fn choice(&self, choices: &[(&'static str, &[&'static str])], raw: &str, span: QuerySpan) -> Result<TermTest> {
        let is = |n: &str| n.eq_ignore_ascii_case(raw);
        if let Some((name, _)) = choices.iter().find(|(name, others)| is(name) || others.iter().any(|o| is(o))) {
            return Ok(TermTest::Text(TextPattern::Text((*name).to_owned())));
        }
        let error = self.error(span, format!("unknown value '{raw}'"));
        Err(match closest_name(raw, choices.iter().map(|(name, _)| *name)) {
            Some(meant) => error.with_remedy(format!("did you mean '{meant}'?")),
            None => error.with_remedy(list_names("values", choices.iter().map(|(name, _)| *name))),
        })
    }

    fn text_test(&self, key: Key, word: TextToken, exact: bool) -> Result<TermTest> {
        let quoted = word.quoted;
        let span = word.span;
        if let Some(raw) = word.plain() {
            if !quoted
                && !exact
                && key != Key::Word
                && raw.starts_with(['<', '>'])
                && self.text[span.start..].starts_with(['<', '>'])
            {
                return Err(self
                    .error(span, format!("'{}' is a text and has no order", key.name()))
                    .with_remedy("put the value in quotes if it begins with that sign"));
            }
        } else if exact {
            return Err(self
                .error(span, "'=' compares the exact text, without wildcards")
                .with_remedy("remove the '=' or write \\* for a star"));
        }
        let pattern = pattern_from_pieces(word.pieces).expect("a lone star was handled before");
        Ok(TermTest::Text(match pattern {
            pattern if key == Key::Host && !quoted => self.host_name(pattern, exact),
            TextPattern::Text(text) if exact => TextPattern::Exact(text),
            pattern => pattern,
        }))
    }

    /// A host name that is not in quotes. IPv6 addresses may be written with or without brackets, and in any of their forms
    /// (RFC 5952); subjects return the canonical one without brackets.
    fn host_name(&self, pattern: TextPattern, exact: bool) -> TextPattern {
        let TextPattern::Text(text) = pattern else { return pattern };
        let address = text.trim_matches(['[', ']']).parse::<std::net::Ipv6Addr>();
        let text = address.map_or(text, |v6| v6.to_string());
        match exact {
            true => TextPattern::Exact(text),
            false if self.hosts == HostMatch::Part && is_host_part(Key::Host, &text) => {
                TextPattern::Glob(vec![String::new(), text, String::new()])
            }
            false => TextPattern::Text(text),
        }
    }
}

/// Whether several values may be written with commas between, because a single one has none.
pub(crate) fn takes_list(key: Key) -> bool {
    use Key::{Agent, Host, Method, Model, Provider, ReqType, RespType, Tag, Type};
    let kind = key.kind();
    kind.is_number()
        || matches!(kind, ValueKind::Choice(_) | ValueKind::Flag | ValueKind::Address)
        || matches!(key, Host | Method | Type | ReqType | RespType | Provider | Agent | Model | Tag)
}

/// Whether the text is a part of a host name where people search: it has no dot, and is no name or address by itself.
pub(crate) fn is_host_part(key: Key, text: &str) -> bool {
    key == Key::Host && !text.contains(['.', ':']) && !text.is_empty() && !text.eq_ignore_ascii_case("localhost")
}

/// Whether the key's value can be a text, a glob or a regex, rather than a number, a time or a flag.
fn takes_text(key: Key) -> bool {
    !key.kind().is_number() && !matches!(key.kind(), ValueKind::Time | ValueKind::Flag)
}

fn pattern_from_pieces(mut pieces: Vec<String>) -> Option<TextPattern> {
    match pieces.len() {
        1 => pieces.pop().map(TextPattern::Text),
        _ if pieces.iter().all(String::is_empty) => None,
        _ => Some(TextPattern::Glob(pieces)),
    }
}

/// An address, a network, or a glob over the textual form of addresses.
fn address(raw: Option<&str>, word: &TextToken) -> Option<TermTest> {
    let Some(raw) = raw else { return Some(TermTest::Text(TextPattern::Glob(word.pieces.clone()))) };
    let bare = raw.strip_prefix('[').and_then(|r| r.strip_suffix(']')).unwrap_or(raw);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(TermTest::Net(IpNet::from(ip.to_canonical())));
    }
    // `10.0.0.7/8` is the network that contains the address.
    bare.parse::<IpNet>().ok().map(|net| TermTest::Net(net.trunc()))
}

fn list_names<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> String {
    format!("the {what} are {}", names.collect::<Vec<_>>().join(", "))
}
