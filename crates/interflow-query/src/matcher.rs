//! A query made ready: cheap tests first, patterns built once, three-valued answers.

use std::net::IpAddr;

use interflow_flow::{Direction, Phase, Timestamp};
use ipnet::IpNet;

use crate::ast::{Expr, Term, Test};
use crate::key::{Flag, Key, Kind};
use crate::pattern::Matcher;
use crate::subject::{Subject, Truth};

/// A condition ready to be asked.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Always(bool),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Text(Key, Option<Matcher>),
    Number(Key, (u64, u64)),
    /// Relative times are bound when asked, not when built: a rule lives for days.
    Time(crate::ast::Time),
    NumberPresent(Key),
    Flag(Flag),
    Net(Key, IpNet),
    AddressText(Key, Option<Matcher>),
    Header(&'static [Direction], HeaderTest),
    Body(&'static [Direction], Option<Matcher>),
    Word(Matcher),
}

#[derive(Clone, Debug)]
pub(crate) enum HeaderTest {
    Name(Option<Matcher>),
    Line(Matcher),
    Value(String, Option<Matcher>),
}

const REQUEST: &[Direction] = &[Direction::Request];
const RESPONSE: &[Direction] = &[Direction::Response];
const BOTH: &[Direction] = &[Direction::Request, Direction::Response];

/// Which sides a key of headers or bodies looks at.
pub(crate) fn sides(key: Key) -> &'static [Direction] {
    match key {
        Key::ReqHeader | Key::ReqBody => REQUEST,
        Key::RespHeader | Key::RespBody => RESPONSE,
        _ => BOTH,
    }
}

impl Node {
    pub(crate) fn build(expr: &Expr) -> Self {
        match expr {
            Expr::All => Self::Always(true),
            Expr::And(parts) => Self::And(by_cost(parts)),
            Expr::Or(parts) => Self::Or(by_cost(parts)),
            Expr::Not(inner) => Self::Not(Box::new(Self::build(inner))),
            Expr::Term(term) => Self::term(term),
        }
    }

    fn term(term: &Term) -> Self {
        let key = term.key;
        let kind = key.kind();
        match &term.test {
            Test::Number(number) => number.bounds().map_or(Self::Always(false), |b| Self::Number(key, b)),
            Test::Time(time) => Self::Time(*time),
            Test::Flag(flag) => Self::Flag(*flag),
            Test::Net(net) => Self::Net(key, *net),
            Test::Present | Test::Text(_) => {
                let pattern = if let Test::Text(p) = &term.test { Some(p) } else { None };
                let matcher = |kind| pattern.map(|p| Matcher::new(p, kind));
                match kind {
                    Kind::Header => Self::Header(sides(key), header_test(term)),
                    Kind::Address => Self::AddressText(key, matcher(Kind::Whole)),
                    Kind::Count | Kind::Status | Kind::Bytes | Kind::Duration | Kind::Time => Self::NumberPresent(key),
                    _ if matches!(key, Key::Body | Key::ReqBody | Key::RespBody) => {
                        Self::Body(sides(key), matcher(Kind::Inside))
                    }
                    _ if key == Key::Word => matcher(Kind::Inside).map_or(Self::Always(true), Self::Word),
                    _ => Self::Text(key, matcher(kind)),
                }
            }
        }
    }

    /// What it costs to ask, in no unit.
    fn cost(&self) -> u8 {
        match self {
            Self::Always(_) | Self::Flag(_) | Self::Number(..) | Self::NumberPresent(_) | Self::Time(_) => 0,
            Self::Net(..) => 1,
            Self::Text(_, Some(Matcher::Search(_))) | Self::AddressText(..) => 3,
            Self::Text(..) => 2,
            Self::Header(..) => 4,
            Self::Body(..) | Self::Word(_) => 9,
            Self::Not(inner) => inner.cost(),
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::cost).max().unwrap_or(0),
        }
    }

    pub(crate) fn ask(&self, subject: &dyn Subject) -> Truth {
        match self {
            Self::Always(b) => Truth::Known(*b),
            Self::And(parts) => !any(parts.iter().map(|p| !p.ask(subject))),
            Self::Or(parts) => any(parts.iter().map(|p| p.ask(subject))),
            Self::Not(inner) => !inner.ask(subject),
            Self::Text(key, matcher) => subject.text(*key, &mut |v| fits(matcher.as_ref(), v.as_bytes())),
            Self::Number(key, (low, high)) => subject.number(*key).test(|n| (*low..=*high).contains(&n)),
            Self::NumberPresent(key) => subject.number(*key).test(|_| true),
            Self::Time(time) => {
                let bounds = time.bounds(Timestamp::now().micros());
                let within = |n| bounds.is_some_and(|(low, high)| (low..=high).contains(&n));
                subject.number(Key::Time).test(within)
            }
            Self::Flag(flag) => subject.flag(*flag),
            Self::Net(key, net) => subject.address(*key).test(|a| holds(net, a.ip().to_canonical())),
            Self::AddressText(key, matcher) => subject.address(*key).test(|a| {
                let ip = a.ip().to_canonical().to_string();
                fits(matcher.as_ref(), ip.as_bytes()) || fits(matcher.as_ref(), a.to_string().as_bytes())
            }),
            Self::Header(sides, test) => any(sides.iter().map(|&s| subject.headers(s, &mut |n, v| test.fits(n, v)))),
            Self::Body(sides, matcher) => body(subject, sides, matcher.as_ref()),
            Self::Word(matcher) => {
                let url = subject.text(Key::Url, &mut |v| matcher.fits(v.as_bytes()));
                if url.holds() { url } else { url.or(body(subject, BOTH, Some(matcher))) }
            }
        }
    }
}

fn by_cost(parts: &[Expr]) -> Vec<Node> {
    let mut nodes: Vec<Node> = parts.iter().map(Node::build).collect();
    nodes.sort_by_key(Node::cost);
    nodes
}

/// Stops at the first that holds.
fn any(truths: impl Iterator<Item = Truth>) -> Truth {
    let mut so_far = Truth::Known(false);
    for truth in truths {
        so_far = so_far.or(truth);
        if so_far.holds() {
            break;
        }
    }
    so_far
}

fn fits(matcher: Option<&Matcher>, value: &[u8]) -> bool {
    matcher.is_none_or(|m| m.fits(value))
}

fn body(subject: &dyn Subject, sides: &[Direction], matcher: Option<&Matcher>) -> Truth {
    any(sides.iter().map(|&s| subject.body(s, &mut |b| matcher.map_or(!b.is_empty(), |m| m.fits(b)))))
}

fn holds(net: &IpNet, ip: IpAddr) -> bool {
    net.contains(&ip)
}

fn header_test(term: &Term) -> HeaderTest {
    use crate::ast::Pattern::Regex;
    let value = |kind| if let Test::Text(p) = &term.test { Some(Matcher::new(p, kind)) } else { None };
    match (&term.name, &term.test) {
        (Some(name), _) => HeaderTest::Value(name.clone(), value(Kind::Anywhere)),
        (None, Test::Text(pattern @ Regex(_))) => HeaderTest::Line(Matcher::new(pattern, Kind::Anywhere)),
        (None, _) => HeaderTest::Name(value(Kind::Whole)),
    }
}

impl HeaderTest {
    fn fits(&self, name: &[u8], value: &[u8]) -> bool {
        match self {
            Self::Name(matcher) => fits(matcher.as_ref(), name),
            Self::Line(matcher) => matcher.fits(&[name, b": ", value].concat()),
            Self::Value(wanted, matcher) => {
                name.eq_ignore_ascii_case(wanted.as_bytes()) && fits(matcher.as_ref(), value)
            }
        }
    }
}

/// The phase from which on every fact that the condition asks for is known.
pub(crate) fn phase(expr: &Expr) -> Phase {
    let mut latest = Phase::Accepted;
    expr.visit(&mut |term| {
        let phase = match &term.test {
            Test::Flag(flag) => flag.info().phase,
            _ => term.key.info().phase,
        };
        latest = latest.max(phase);
    });
    latest
}
