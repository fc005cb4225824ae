//! The compiled form of a query: cheap tests first, patterns compiled once, three-valued results.

use interflow_types::{Direction, Phase, Timestamp};
use ipnet::IpNet;

use crate::ast::{Expr, Term, TermTest};
use crate::key::{Flag, Key, ValueKind};
use crate::pattern::TextMatcher;
use crate::subject::{QuerySubject, Tristate};

/// A compiled condition. Patterns are compiled once, and the parts of a conjunction or disjunction are ordered by
/// cost, so that a flag or a number decides before a body is loaded. Order does not change the result: the parts have
/// no side effects.
#[derive(Clone, Debug)]
pub(crate) enum CompiledExpr {
    Always(bool),
    And(Vec<CompiledExpr>),
    Or(Vec<CompiledExpr>),
    Not(Box<CompiledExpr>),
    Text(Key, Option<TextMatcher>),
    Number(Key, (u64, u64)),
    /// Relative times are resolved when evaluated, not when compiled, because a rule lives for days.
    Time(crate::ast::TimeTest),
    NumberPresent(Key),
    Flag(Flag),
    Net(Key, IpNet),
    AddressText(Key, Option<TextMatcher>),
    Header(&'static [Direction], HeaderTest),
    Body(&'static [Direction], Option<TextMatcher>),
    Word(TextMatcher),
}

#[derive(Clone, Debug)]
pub(crate) enum HeaderTest {
    Name(Option<TextMatcher>),
    Line(TextMatcher),
    Value(String, Option<TextMatcher>),
}

const REQUEST: &[Direction] = &[Direction::Request];
const RESPONSE: &[Direction] = &[Direction::Response];
const BOTH: &[Direction] = &[Direction::Request, Direction::Response];

/// The directions that a key of headers or bodies covers; both for a key without a prefix.
pub(crate) fn key_directions(key: Key) -> &'static [Direction] {
    match key {
        Key::ReqHeader | Key::ReqBody => REQUEST,
        Key::RespHeader | Key::RespBody => RESPONSE,
        _ => BOTH,
    }
}

impl CompiledExpr {
    pub(crate) fn compile(expr: &Expr) -> Self {
        match expr {
            Expr::All => Self::Always(true),
            Expr::And(parts) => Self::And(compile_by_cost(parts)),
            Expr::Or(parts) => Self::Or(compile_by_cost(parts)),
            Expr::Not(inner) => Self::Not(Box::new(Self::compile(inner))),
            Expr::Term(term) => Self::term(term),
        }
    }

    fn term(term: &Term) -> Self {
        let key = term.key;
        let kind = key.kind();
        match &term.test {
            TermTest::Number(number) => number.bounds().map_or(Self::Always(false), |b| Self::Number(key, b)),
            TermTest::Time(time) => Self::Time(*time),
            TermTest::Flag(flag) => Self::Flag(*flag),
            TermTest::Net(net) => Self::Net(key, *net),
            TermTest::Present | TermTest::Text(_) => {
                let pattern = if let TermTest::Text(p) = &term.test { Some(p) } else { None };
                let matcher = |kind| pattern.map(|p| TextMatcher::new(p, kind));
                match kind {
                    ValueKind::Header => Self::Header(key_directions(key), header_test(term)),
                    ValueKind::Address => Self::AddressText(key, matcher(ValueKind::Whole)),
                    kind if kind.is_number() || kind == ValueKind::Time => Self::NumberPresent(key),
                    _ if matches!(key, Key::Body | Key::ReqBody | Key::RespBody) => {
                        Self::Body(key_directions(key), matcher(ValueKind::Inside))
                    }
                    _ if key == Key::Word => matcher(ValueKind::Inside).map_or(Self::Always(true), Self::Word),
                    _ => Self::Text(key, matcher(kind)),
                }
            }
        }
    }

    /// The relative cost of evaluating, without a unit: facts at hand, then texts, regexes, header fields, and bodies
    /// last.
    fn cost(&self) -> u8 {
        match self {
            Self::Always(_) | Self::Flag(_) | Self::Number(..) | Self::NumberPresent(_) | Self::Time(_) => 0,
            Self::Net(..) => 1,
            Self::Text(_, Some(TextMatcher::Search(_))) | Self::AddressText(..) => 3,
            Self::Text(..) => 2,
            Self::Header(..) => 4,
            Self::Body(..) | Self::Word(_) => 9,
            Self::Not(inner) => inner.cost(),
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::cost).max().unwrap_or(0),
        }
    }

    /// Evaluates the condition on one flow, as far as its facts are known.
    pub(crate) fn evaluate(&self, subject: &dyn QuerySubject) -> Tristate {
        match self {
            Self::Always(b) => Tristate::Known(*b),
            // De Morgan, so that both share the short circuit: a conjunction ends at the first part that is known to
            // fail.
            Self::And(parts) => !evaluate_any(parts.iter().map(|p| !p.evaluate(subject))),
            Self::Or(parts) => evaluate_any(parts.iter().map(|p| p.evaluate(subject))),
            Self::Not(inner) => !inner.evaluate(subject),
            Self::Text(key, matcher) => subject.text(*key, &mut |v| matches_value(matcher.as_ref(), v.as_bytes())),
            Self::Number(key, (low, high)) => subject.number(*key).test(|n| (*low..=*high).contains(&n)),
            Self::NumberPresent(key) => subject.number(*key).test(|_| true),
            Self::Time(time) => {
                let bounds = time.bounds(Timestamp::now().micros());
                let within = |n| bounds.is_some_and(|(low, high)| (low..=high).contains(&n));
                subject.number(Key::Time).test(within)
            }
            Self::Flag(flag) => subject.flag(*flag),
            // An IPv4 address mapped to IPv6 is in the IPv4 network.
            Self::Net(key, net) => subject.address(*key).test(|a| net.contains(&a.ip().to_canonical())),
            Self::AddressText(key, matcher) => subject.address(*key).test(|a| {
                let ip = a.ip().to_canonical().to_string();
                matches_value(matcher.as_ref(), ip.as_bytes())
                    || matches_value(matcher.as_ref(), a.to_string().as_bytes())
            }),
            Self::Header(sides, test) => {
                evaluate_any(sides.iter().map(|&s| subject.headers(s, &mut |n, v| test.fits(n, v))))
            }
            Self::Body(sides, matcher) => evaluate_body(subject, sides, matcher.as_ref()),
            Self::Word(matcher) => {
                let url = subject.text(Key::Url, &mut |v| matcher.fits(v.as_bytes()));
                // The bodies are loaded only if the URL does not decide.
                if url.holds() { url } else { url.or(evaluate_body(subject, BOTH, Some(matcher))) }
            }
        }
    }
}

fn compile_by_cost(parts: &[Expr]) -> Vec<CompiledExpr> {
    let mut nodes: Vec<CompiledExpr> = parts.iter().map(CompiledExpr::compile).collect();
    // A stable sort: of equal cost, what the user wrote first is evaluated first.
    nodes.sort_by_key(CompiledExpr::cost);
    nodes
}

/// The disjunction, ended by the first part that holds.
fn evaluate_any(truths: impl Iterator<Item = Tristate>) -> Tristate {
    let mut so_far = Tristate::Known(false);
    for truth in truths {
        so_far = so_far.or(truth);
        if so_far.holds() {
            break;
        }
    }
    so_far
}

fn matches_value(matcher: Option<&TextMatcher>, value: &[u8]) -> bool {
    matcher.is_none_or(|m| m.fits(value))
}

fn evaluate_body(subject: &dyn QuerySubject, sides: &[Direction], matcher: Option<&TextMatcher>) -> Tristate {
    evaluate_any(sides.iter().map(|&s| subject.body(s, &mut |b| matcher.map_or(!b.is_empty(), |m| m.fits(b)))))
}

fn header_test(term: &Term) -> HeaderTest {
    use crate::ast::TextPattern::Regex;
    let value = |kind| if let TermTest::Text(p) = &term.test { Some(TextMatcher::new(p, kind)) } else { None };
    match (&term.name, &term.test) {
        // The kind of pattern decides: a regex without a field name sees the whole line, any other pattern only the
        // name.
        (Some(name), _) => HeaderTest::Value(name.clone(), value(ValueKind::Anywhere)),
        (None, TermTest::Text(pattern @ Regex(_))) => HeaderTest::Line(TextMatcher::new(pattern, ValueKind::Anywhere)),
        (None, _) => HeaderTest::Name(value(ValueKind::Whole)),
    }
}

impl HeaderTest {
    fn fits(&self, name: &[u8], value: &[u8]) -> bool {
        match self {
            Self::Name(matcher) => matches_value(matcher.as_ref(), name),
            // As in the message, so that a regex can test name and value together.
            Self::Line(matcher) => matcher.fits(&[name, b": ", value].concat()),
            Self::Value(wanted, matcher) => {
                name.eq_ignore_ascii_case(wanted.as_bytes()) && matches_value(matcher.as_ref(), value)
            }
        }
    }
}

/// The phase from which every fact in the condition is known: the latest one of its terms.
pub(crate) fn required_phase(expr: &Expr) -> Phase {
    let mut latest = Phase::Authority;
    expr.visit(&mut |term| {
        let phase = match &term.test {
            TermTest::Flag(flag) => flag.info().phase,
            _ => term.key.info().phase,
        };
        latest = latest.max(phase);
    });
    latest
}
