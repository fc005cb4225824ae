//! Rule conditions, evaluated in three-valued logic on what is known of a flow at a phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use interflow_query::{Expr, Flag, Key, Query, TermTest, Tristate};
use interflow_types::{Direction, HostPattern, Phase, Timestamp};

use crate::flow::exec_run::ExecCondition;
use crate::flow::view::FlowView;
use crate::matching::text_predicate::{TextField, TextPredicate};
use crate::text::template::TextTemplate;

/// A condition after parsing, whichever format it was written in.
#[derive(Clone, Debug)]
pub enum ConditionExpr {
    Always(bool),
    And(Vec<ConditionExpr>),
    Or(Vec<ConditionExpr>),
    Not(Box<ConditionExpr>),
    /// A query of the filter language.
    Query(Box<Query>),
    /// A text field matches a pattern.
    Text(TextField, TextPredicate),
    /// There is a body on this side, or the head announced one.
    HasBody(Direction),
    /// The message goes in this direction.
    Direction(Direction),
    Connection(u64),
    /// The authority of the flow matches, whatever its `Host` field says.
    Host(HostPattern),
    /// The authority is one of Interflow's own addresses: a request to it would come back.
    OwnAddress,
    /// True with this probability, from 0 to 1.
    Chance(f64),
    /// True every n-th time; the first time counts.
    Every(u64, Arc<AtomicU64>),
    /// True only the first n times.
    First(u64, Arc<AtomicU64>),
    /// Between two times of day, in minutes after midnight UTC; may wrap around midnight.
    Between(u32, u32),
    /// The client's process, on this machine, has one of these ids or names (lower case, without `.exe`).
    Process {
        ids: Vec<u64>,
        names: Vec<String>,
    },
    /// Decided by the exit code of a program.
    Exec(Arc<ExecCondition>),
}

impl Default for ConditionExpr {
    fn default() -> Self {
        Self::Always(true)
    }
}

impl ConditionExpr {
    /// Joins conditions, cheap ones first. Nested conjunctions become one, so that the order covers all parts.
    pub fn and(parts: Vec<Self>) -> Self {
        let mut flat = Vec::new();
        for part in parts {
            match part {
                Self::Always(true) => {}
                Self::And(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        // Stateful and expensive conditions are evaluated last.
        flat.sort_by_key(Self::cost);
        match flat.len() {
            0 => Self::Always(true),
            1 => flat.remove(0),
            _ => Self::And(flat),
        }
    }

    /// Joins alternatives, cheap ones first.
    pub fn or(mut parts: Vec<Self>) -> Self {
        match parts.len() {
            0 => Self::Always(false),
            1 => parts.remove(0),
            _ => {
                parts.sort_by_key(Self::cost);
                Self::Or(parts)
            }
        }
    }

    #[allow(clippy::should_implement_trait)]
    pub fn not(self) -> Self {
        match self {
            Self::Not(inner) => *inner,
            Self::Always(b) => Self::Always(!b),
            other => Self::Not(Box::new(other)),
        }
    }

    /// A query that selects everything becomes a constant.
    pub fn query(query: Query) -> Self {
        if query.is_all() { Self::Always(true) } else { Self::Query(Box::new(query)) }
    }

    /// Rough cost of an evaluation. From 7 on, an evaluation also has side effects: it counts, draws a number, or
    /// runs a program.
    fn cost(&self) -> u8 {
        match self {
            Self::Always(_) | Self::Direction(_) | Self::Connection(_) | Self::OwnAddress => 0,
            Self::Host(_) | Self::Text(TextField::Host | TextField::Method, _) => 1,
            Self::Text(
                TextField::Body(_) | TextField::Json(..) | TextField::GraphqlOperation | TextField::Message,
                _,
            ) => 6,
            Self::Text(..) | Self::HasBody(_) => 2,
            Self::Query(query) => {
                if query.wants_body(Direction::Request) || query.wants_body(Direction::Response) {
                    6
                } else {
                    3
                }
            }
            Self::Between(..) => 4,
            Self::Process { .. } => 5,
            Self::Chance(_) => 7,
            Self::Every(..) | Self::First(..) => 8,
            Self::Exec(_) => 9,
            Self::Not(inner) => inner.cost(),
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::cost).max().unwrap_or(0),
        }
    }

    /// Evaluates the condition on what is known so far, in Kleene's three-valued logic: what is not known yet leaves
    /// it open only if it matters.
    pub(crate) fn evaluate(&self, view: &FlowView<'_>) -> Tristate {
        match self {
            Self::Always(b) => Tristate::Known(*b),
            Self::And(parts) => {
                let mut open = false;
                for part in parts {
                    // A counter must not advance while another part is still undecided.
                    if open && part.cost() >= 7 {
                        break;
                    }
                    match part.evaluate(view) {
                        Tristate::Known(true) => {}
                        Tristate::Known(false) => return Tristate::Known(false),
                        Tristate::NotYet => open = true,
                    }
                }
                if open { Tristate::NotYet } else { Tristate::Known(true) }
            }
            Self::Or(parts) => {
                let mut so_far = Tristate::Known(false);
                for part in parts {
                    // As in a conjunction.
                    if so_far.holds() || so_far == Tristate::NotYet && part.cost() >= 7 {
                        break;
                    }
                    so_far = so_far.or(part.evaluate(view));
                }
                so_far
            }
            Self::Not(inner) => !inner.evaluate(view),
            Self::Query(query) => query.evaluate(view),
            Self::Text(..) | Self::Exec(_) if !self.templates().all(|t| t.is_known(view)) => Tristate::NotYet,
            Self::Text(place, test) => place.evaluate(view, &mut |v| test.fits(v, view)),
            Self::HasBody(side) => match (view.body_of(*side), view.head_of(*side)) {
                (Some(body), _) => Tristate::Known(body.len() > 0),
                // The client side knows more than the head: in HTTP/2 a body needs no length.
                (None, Some(_)) if *side == Direction::Request && view.flow.has_request_body.is_some() => {
                    Tristate::Known(view.flow.has_request_body == Some(true))
                }
                (None, Some(headers)) => Tristate::Known(
                    headers
                        .get_str("content-length")
                        .map_or(headers.contains("transfer-encoding"), |n| n.trim() != "0"),
                ),
                (None, None) => Tristate::NotYet,
            },
            Self::Direction(side) => view.message.map_or(Tristate::NotYet, |m| Tristate::Known(m.direction == *side)),
            Self::Connection(n) => Tristate::Known(view.flow.client.connection == *n),
            Self::Host(pattern) => {
                let authority = &view.flow.authority;
                Tristate::Known(pattern.matches(&authority.host, authority.port))
            }
            Self::OwnAddress => Tristate::Known(is_own_address(view)),
            Self::Chance(p) => self.draw(view, || random_fraction() < *p),
            Self::Every(n, count) => self.draw(view, || count.fetch_add(1, Relaxed).is_multiple_of(*n)),
            Self::First(n, count) => self.draw(view, || count.fetch_add(1, Relaxed) < *n),
            Self::Between(from, to) => Tristate::Known(is_within_minutes(*from, *to, minute_of_day())),
            Self::Process { ids, names } => Tristate::Known(view.flow.client.process.as_ref().is_some_and(|p| {
                let name = p.name.to_ascii_lowercase();
                ids.contains(&u64::from(p.pid)) || names.iter().any(|n| n == name.trim_end_matches(".exe"))
            })),
            Self::Exec(exec) => exec.evaluate(view),
        }
    }

    /// Answers a condition that counts or is random, once for all evaluations of its rule.
    fn draw(&self, view: &FlowView<'_>, draw: impl FnOnce() -> bool) -> Tristate {
        Tristate::Known(match view.exec {
            Some(answers) => answers.draw(std::ptr::from_ref(self).addr(), draw),
            None => draw(),
        })
    }

    /// The earliest phase in which everything the condition reads is known. A condition without data is known from
    /// the start.
    pub fn phase(&self) -> Phase {
        let own = match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::phase).max().unwrap_or(Phase::Authority),
            Self::Not(inner) => inner.phase(),
            Self::Query(query) => query_phase(query.expr()),
            Self::Text(place, _) => place.phase(),
            Self::HasBody(Direction::Request) => Phase::RequestHead,
            Self::HasBody(Direction::Response) => Phase::ResponseHead,
            Self::Direction(_) => Phase::Message,
            Self::Exec(exec) if exec.head_in_env => Phase::RequestHead,
            _ => Phase::Authority,
        };
        self.templates().map(TextTemplate::phase).fold(own, Phase::max)
    }

    /// The templates of a leaf, whose values it compares or gives to its program.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &TextTemplate> {
        let (first, others): (_, &[TextTemplate]) = match self {
            Self::Text(_, TextPredicate::Filled(_, template, _)) => (Some(template), &[]),
            Self::Exec(exec) => (Some(&exec.program), &exec.arguments),
            _ => (None, &[]),
        };
        first.into_iter().chain(others)
    }

    /// Visits every leaf condition.
    pub(crate) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Self)) {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|p| p.visit(see)),
            Self::Not(inner) => inner.visit(see),
            leaf => see(leaf),
        }
    }

    /// Whether it reads the body of this side, or its size.
    pub(crate) fn reads_body(&self, side: Direction) -> bool {
        let (phase, size) = match side {
            Direction::Request => (Phase::RequestBody, Key::ReqSize),
            Direction::Response => (Phase::ResponseBody, Key::RespSize),
        };
        self.any_leaf(&mut |leaf| match leaf {
            leaf if leaf.templates().any(|t| t.wants_body(side)) => true,
            Self::Text(place, _) => place.phase() == phase,
            Self::Query(query) => {
                let mut sized = false;
                query.expr().visit(&mut |term| sized |= term.key == size || term.key == Key::Size);
                sized || query.wants_body(side)
            }
            _ => false,
        })
    }

    /// Whether one of its leaves passes a test.
    pub(crate) fn any_leaf(&self, test: &mut dyn FnMut(&Self) -> bool) -> bool {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().any(|part| part.any_leaf(test)),
            Self::Not(inner) => inner.any_leaf(test),
            leaf => test(leaf),
        }
    }

    /// The condition as text, for explanations.
    pub fn describe(&self) -> String {
        match self {
            Self::Always(true) => "always".into(),
            Self::Always(false) => "never".into(),
            Self::And(parts) => parts.iter().map(Self::describe).collect::<Vec<_>>().join(" and "),
            Self::Or(parts) => format!("({})", parts.iter().map(Self::describe).collect::<Vec<_>>().join(" or ")),
            Self::Not(inner) => format!("not ({})", inner.describe()),
            Self::Query(query) => query.to_string(),
            Self::Text(place, test) => format!("{} {}", place.describe(), test.describe()),
            Self::HasBody(Direction::Request) => "the request has a body".into(),
            Self::HasBody(Direction::Response) => "the response has a body".into(),
            Self::Direction(Direction::Request) => "the message comes from the client".into(),
            Self::Direction(Direction::Response) => "the message comes from the server".into(),
            Self::Connection(n) => format!("connection {n}"),
            Self::Host(pattern) => format!("the host is {pattern}"),
            Self::OwnAddress => "the authority is our own address".into(),
            Self::Chance(p) => format!("chance {p}"),
            Self::Every(n, _) => format!("every {n} times"),
            Self::First(n, _) => format!("the first {n} times"),
            Self::Between(from, to) => {
                format!("between {:02}:{:02} and {:02}:{:02} UTC", from / 60, from % 60, to / 60, to % 60)
            }
            Self::Process { ids, names } => format!("the client is the process {}", {
                let ids = ids.iter().map(ToString::to_string);
                ids.chain(names.iter().cloned()).collect::<Vec<_>>().join(" or ")
            }),
            Self::Exec(exec) => exec.describe(),
        }
    }
}

/// Loopback addresses count at any listener address, since a listener may be bound to all addresses.
fn is_own_address(view: &FlowView<'_>) -> bool {
    let authority = &view.flow.authority;
    let own = view.flow.client.local;
    let local = authority.host.ip().is_some_and(|ip| ip == own.ip() || ip.is_loopback())
        || authority.host.name().is_some_and(|n| n == "localhost");
    local && authority.port == own.port()
}

/// Uniform in [0, 1).
fn random_fraction() -> f64 {
    let bytes = interflow_types::random_bytes::<16>();
    let n = u64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]);
    // 53 bits are the precision of an `f64`.
    (n >> 11) as f64 / (1u64 << 53) as f64
}

fn minute_of_day() -> u32 {
    (Timestamp::now().micros() / 60_000_000 % 1440) as u32
}

/// The end does not belong to the interval.
const fn is_within_minutes(from: u32, to: u32, now: u32) -> bool {
    if from <= to { from <= now && now < to } else { now >= from || now < to }
}

/// The latest phase of the query's terms. A word searches bodies too, so it waits for the response's.
fn query_phase(expr: &Expr) -> Phase {
    let mut latest = Phase::Authority;
    expr.visit(&mut |term| {
        let phase = match (&term.test, term.key) {
            (TermTest::Flag(Flag::Redacted | Flag::Held | Flag::Open), _) | (_, Key::Tag) => Phase::Authority,
            (TermTest::Flag(Flag::Tunnel), _) => Phase::UpstreamConnect,
            (TermTest::Flag(flag), _) => flag.info().phase,
            (_, Key::ReqBody | Key::ReqSize) => Phase::RequestBody,
            (_, Key::Word | Key::Body | Key::RespBody | Key::Size | Key::RespSize) => Phase::ResponseBody,
            (_, Key::Scheme) => Phase::Authority,
            (_, key) => key.info().phase,
        };
        latest = latest.max(phase);
    });
    latest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::fixture::FlowFixture;

    fn query(text: &str) -> ConditionExpr {
        ConditionExpr::query(Query::parse(text).unwrap())
    }

    #[test]
    fn conditions_have_an_earliest_phase() {
        for (text, phase) in [
            ("", Phase::Authority),
            ("host:a.test tag:x", Phase::Authority),
            ("sni:a.test", Phase::ClientHello),
            ("method:GET", Phase::RequestHead),
            ("req.body:x", Phase::RequestBody),
            ("host:a OR status:500", Phase::ResponseHead),
            ("-resp.body:x", Phase::ResponseBody),
            ("dur:>1s", Phase::Done),
        ] {
            assert_eq!(query(text).phase(), phase, "{text}");
        }
    }

    #[test]
    fn condition_on_later_data_is_undecided_until_it_arrives() {
        let sample = FlowFixture::for_get("http://a.test/x").with_response(500, &[], "oops").unwrap();
        let constants = Vec::new();
        let at = |cond: &ConditionExpr, phase| cond.evaluate(&sample.view(phase, &constants));
        let both = query("host:a.test status:5xx");
        assert_eq!(at(&both, Phase::RequestHead), Tristate::NotYet);
        assert_eq!(at(&both, Phase::ResponseHead), Tristate::Known(true));
        assert_eq!(at(&query("host:b.test status:5xx"), Phase::Authority), Tristate::Known(false));
        assert_eq!(at(&query("resp.body:oops"), Phase::ResponseHead), Tristate::NotYet);
        assert_eq!(at(&query("resp.body:oops"), Phase::ResponseBody), Tristate::Known(true));
        assert_eq!(at(&query("-path:/y"), Phase::RequestHead), Tristate::Known(true));
    }

    #[test]
    fn counting_conditions_count_only_if_the_others_match() {
        let sample = FlowFixture::for_get("http://a.test/x");
        let constants = Vec::new();
        let view = sample.view(Phase::RequestHead, &constants);
        let count = Arc::new(AtomicU64::new(0));
        let other = ConditionExpr::and(vec![ConditionExpr::First(1, count.clone()), query("host:b.test")]);
        assert_eq!(other.evaluate(&view), Tristate::Known(false));
        assert_eq!(count.load(Relaxed), 0);
        let open = ConditionExpr::and(vec![ConditionExpr::First(1, count.clone()), query("status:200")]);
        assert_eq!(open.evaluate(&view), Tristate::NotYet);
        let first = ConditionExpr::and(vec![ConditionExpr::First(1, count), query("host:a.test")]);
        assert_eq!((first.evaluate(&view), first.evaluate(&view)), (Tristate::Known(true), Tristate::Known(false)));
        let every = ConditionExpr::Every(3, Arc::default());
        let hits: Vec<bool> = (0..6).map(|_| every.evaluate(&view).holds()).collect();
        assert_eq!(hits, [true, false, false, true, false, false]);
    }

    #[test]
    fn time_range_may_span_midnight() {
        assert!(
            is_within_minutes(1320, 360, 1400)
                && is_within_minutes(1320, 360, 10)
                && !is_within_minutes(1320, 360, 700)
        );
        assert!(is_within_minutes(60, 120, 60) && !is_within_minutes(60, 120, 120));
    }

    #[test]
    fn chance_matches_its_probability() {
        let hits = (0..2000).filter(|_| random_fraction() < 0.25).count();
        assert!((350..650).contains(&hits), "{hits}");
        assert!((0..100).all(|_| random_fraction() < 1.0));
    }
}
