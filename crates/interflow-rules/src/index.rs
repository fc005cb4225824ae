//! Which rules can match at all: by host for a plan, by path, method and header names for a request.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use interflow_flow::{Direction, Host, Phase, RequestHead, ResponseHead};
use interflow_query::{Expr, Key, Pattern, Term, Test};
use smallvec::SmallVec;

use crate::cond::Cond;
use crate::program::Rule;
use crate::readings::{Judged, is_ambiguous};
use crate::text::{Mode, Place, TextTest};

/// What a condition demands of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostNeed {
    /// Nothing that could be looked up.
    Any,
    /// One of these.
    OneOf(Vec<HostLiteral>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostLiteral {
    Exact(String),
    /// A name that the host's labels end in; more may be asked of it.
    Below(String),
}

/// Rules by the host that they are bound to.
#[derive(Debug, Default)]
pub(crate) struct HostIndex {
    exact: HashMap<String, Vec<u32>>,
    below: HashMap<String, Vec<u32>>,
    any: Vec<u32>,
}

impl HostIndex {
    pub fn add(&mut self, rule: u32, cond: &Cond) {
        match host_need(cond) {
            HostNeed::Any => self.any.push(rule),
            HostNeed::OneOf(literals) => {
                for literal in literals {
                    let (map, name) = match literal {
                        HostLiteral::Exact(name) => (&mut self.exact, name),
                        HostLiteral::Below(name) => (&mut self.below, name),
                    };
                    let list = map.entry(name).or_default();
                    if list.last() != Some(&rule) {
                        list.push(rule);
                    }
                }
            }
        }
    }

    /// The rules that a host can match, in their order.
    pub fn candidates(&self, host: &Host) -> Vec<u32> {
        let text = match host {
            Host::Name(name) => name.to_string(),
            Host::Ip(ip) => ip.to_string(),
        };
        let mut all = self.any.clone();
        all.extend(self.exact.get(&text).into_iter().flatten());
        let mut rest = Some(text.as_str());
        while let Some(name) = rest {
            all.extend(self.below.get(name).into_iter().flatten());
            rest = name.split_once('.').map(|(_, r)| r);
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn host_need(cond: &Cond) -> HostNeed {
    match cond {
        Cond::Always(false) => HostNeed::OneOf(Vec::new()),
        Cond::And(parts) => narrowest(parts.iter().map(host_need)),
        Cond::Or(parts) => union(parts.iter().map(host_need)),
        Cond::Query(query) => expr_need(query.expr()),
        Cond::Text(Place::Host, TextTest::Fixed(mode, text, ..)) => literal(*mode, text),
        _ => HostNeed::Any,
    }
}

fn expr_need(expr: &Expr) -> HostNeed {
    match expr {
        Expr::And(parts) => narrowest(parts.iter().map(expr_need)),
        Expr::Or(parts) => union(parts.iter().map(expr_need)),
        Expr::Term(Term { key: Key::Host, test: Test::Text(pattern), .. }) => match pattern {
            Pattern::Text(text) | Pattern::Exact(text) => literal(Mode::Exact, text),
            Pattern::Glob(pieces) => pieces.last().map_or(HostNeed::Any, |last| literal(Mode::Suffix, last)),
            Pattern::Regex(_) => HostNeed::Any,
        },
        _ => HostNeed::Any,
    }
}

fn literal(mode: Mode, text: &str) -> HostNeed {
    let text = text.to_ascii_lowercase();
    match mode {
        Mode::Exact => HostNeed::OneOf(vec![HostLiteral::Exact(text)]),
        // Only whole labels are looked up, so the first one, which may be cut, is left to the test itself.
        Mode::Suffix => match text.split_once('.') {
            Some((_, rest)) if !rest.is_empty() => HostNeed::OneOf(vec![HostLiteral::Below(rest.to_owned())]),
            _ => HostNeed::Any,
        },
        _ => HostNeed::Any,
    }
}

fn narrowest(needs: impl Iterator<Item = HostNeed>) -> HostNeed {
    let mut best = HostNeed::Any;
    for need in needs {
        best = match (best, need) {
            (HostNeed::OneOf(a), HostNeed::OneOf(b)) => HostNeed::OneOf(if b.len() < a.len() { b } else { a }),
            (HostNeed::Any, need) => need,
            (best, HostNeed::Any) => best,
        };
    }
    best
}

fn union(needs: impl Iterator<Item = HostNeed>) -> HostNeed {
    let mut all = Vec::new();
    for need in needs {
        match need {
            HostNeed::Any => return HostNeed::Any,
            HostNeed::OneOf(more) => all.extend(more),
        }
    }
    HostNeed::OneOf(all)
}

/// Something that a request or its response must have for a condition to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Anchor {
    /// This text in the request's target, letters in either case.
    Target(String),
    /// A field of this name in the request, in lower case.
    Header(String),
    /// This method.
    Method(String),
    /// A status between these two.
    Status(u64, u64),
    /// A field of this name in the response.
    ResponseHeader(String),
    /// This text in the response's media type, letters in either case.
    ResponseType(String),
}

/// Of which heads anchors may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Request,
    Response,
    Both,
}

impl Anchor {
    const fn is_of(&self, of: Of) -> bool {
        match self {
            Self::Target(_) | Self::Header(_) | Self::Method(_) => matches!(of, Of::Request | Of::Both),
            Self::Status(..) | Self::ResponseHeader(_) | Self::ResponseType(_) => matches!(of, Of::Response | Of::Both),
        }
    }

    /// Whether it is there.
    fn holds(&self, request: &RequestHead, response: Option<&ResponseHead>) -> bool {
        match self {
            Self::Target(text) => holds_text(request.url.path.as_bytes(), text.as_bytes()),
            Self::Header(name) => request.headers.contains(name),
            Self::Method(method) => request.method.as_str().eq_ignore_ascii_case(method),
            Self::Status(low, high) => response.is_none_or(|r| (*low..=*high).contains(&u64::from(r.status.as_u16()))),
            Self::ResponseHeader(name) => response.is_none_or(|r| r.headers.contains(name)),
            Self::ResponseType(text) => response
                .is_none_or(|r| r.headers.get_all("content-type").any(|value| holds_text(value, text.as_bytes()))),
        }
    }
}

/// Whether a text stands in another, letters in either case.
fn holds_text(text: &[u8], wanted: &[u8]) -> bool {
    let Some(first) = wanted.first() else { return !text.is_empty() };
    text.windows(wanted.len()).any(|w| w[0].eq_ignore_ascii_case(first) && w.eq_ignore_ascii_case(wanted))
}

/// What lets most flows go past a rule without its condition being asked.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    anchors: Option<Vec<Anchor>>,
    /// The rule is asked about every reading of the path.
    readings: bool,
}

impl Gate {
    /// The gate before a condition that is asked when `phase` comes. `indexed`: what it demands of the request has been
    /// looked up already.
    pub fn new(rule: &Rule, phase: Phase, indexed: bool) -> Self {
        Self { readings: rule.judged == Judged::Any, ..Self::of(&rule.cond, phase, indexed) }
    }

    fn of(cond: &Cond, phase: Phase, indexed: bool) -> Self {
        let of = match phase {
            Phase::RequestHead | Phase::RequestBody if !indexed => Of::Request,
            Phase::ResponseHead | Phase::ResponseBody if indexed => Of::Response,
            Phase::ResponseHead | Phase::ResponseBody => Of::Both,
            _ => return Self::default(),
        };
        Self { anchors: anchors(cond, of), readings: false }
    }

    /// Whether the condition may hold.
    pub fn is_open(&self, request: Option<&RequestHead>, response: Option<&ResponseHead>) -> bool {
        match (&self.anchors, request) {
            (Some(anchors), Some(request)) if !(self.readings && is_ambiguous(request)) => {
                anchors.iter().any(|a| a.holds(request, response))
            }
            _ => true,
        }
    }
}

/// The texts of which one must be there; `None` when nothing could be looked up.
fn anchors(cond: &Cond, of: Of) -> Option<Vec<Anchor>> {
    let inner = |part: &Cond| anchors(part, of);
    match cond {
        Cond::And(parts) => parts.iter().filter_map(inner).min_by_key(|a| (a.len(), rank(a))),
        Cond::Or(parts) => parts.iter().map(inner).collect::<Option<Vec<_>>>().map(|all| all.concat()),
        Cond::Query(query) => expr_anchors(query.expr(), of),
        Cond::Text(place, test) => text_anchor(place, test).filter(|a| a.is_of(of)).map(|a| vec![a]),
        _ => None,
    }
}

/// What tells more, or is cheaper to look at, comes first.
fn rank(anchors: &[Anchor]) -> u8 {
    anchors
        .iter()
        .map(|a| match a {
            Anchor::Status(..) => 0,
            Anchor::ResponseHeader(_) => 1,
            Anchor::ResponseType(_) => 2,
            Anchor::Target(_) => 3,
            Anchor::Header(_) => 4,
            Anchor::Method(_) => 5,
        })
        .max()
        .unwrap_or(0)
}

fn text_anchor(place: &Place, test: &TextTest) -> Option<Anchor> {
    let fixed = match test {
        TextTest::Fixed(mode, text, ..) if *mode != Mode::Regex && !text.is_empty() => Some((*mode, text)),
        _ => None,
    };
    match place {
        Place::Path | Place::Target => fixed.map(|(_, t)| Anchor::Target(t.to_ascii_lowercase())),
        Place::Method => fixed.filter(|(m, _)| *m == Mode::Exact).map(|(_, t)| Anchor::Method(t.clone())),
        Place::Header(Direction::Request, name) => Some(Anchor::Header(name.to_ascii_lowercase())),
        Place::MediaType(Direction::Request) => Some(Anchor::Header("content-type".into())),
        Place::Header(Direction::Response, name) => Some(Anchor::ResponseHeader(name.to_ascii_lowercase())),
        Place::SetCookie(_) => Some(Anchor::ResponseHeader("set-cookie".into())),
        Place::MediaType(Direction::Response) => Some(match fixed {
            Some((_, text)) => Anchor::ResponseType(text.to_ascii_lowercase()),
            None => Anchor::ResponseHeader("content-type".into()),
        }),
        Place::Cookie(_) => Some(Anchor::Header("cookie".into())),
        // Its name may be written with escapes, but no parameter is without a query.
        Place::Param(_) => Some(Anchor::Target("?".into())),
        _ => None,
    }
}

fn expr_anchors(expr: &Expr, of: Of) -> Option<Vec<Anchor>> {
    let inner = |part: &Expr| expr_anchors(part, of);
    match expr {
        Expr::And(parts) => parts.iter().filter_map(inner).min_by_key(|a| (a.len(), rank(a))),
        Expr::Or(parts) => parts.iter().map(inner).collect::<Option<Vec<_>>>().map(|all| all.concat()),
        Expr::Term(term) => term_anchor(term).filter(|a| a.is_of(of)).map(|a| vec![a]),
        Expr::All | Expr::Not(_) => None,
    }
}

fn term_anchor(term: &Term) -> Option<Anchor> {
    match (term.key, &term.test) {
        (Key::ReqHeader, _) if term.name.is_some() => term.name.clone().map(Anchor::Header),
        (Key::ReqHeader, Test::Text(Pattern::Text(t) | Pattern::Exact(t))) => {
            Some(Anchor::Header(t.to_ascii_lowercase()))
        }
        (Key::ReqType, _) => Some(Anchor::Header("content-type".into())),
        (Key::RespHeader, _) if term.name.is_some() => term.name.clone().map(Anchor::ResponseHeader),
        (Key::Status, Test::Number(number)) => {
            let (low, high) = number.bounds().unwrap_or((1, 0));
            Some(Anchor::Status(low, high))
        }
        (Key::RespType, Test::Text(Pattern::Text(t) | Pattern::Exact(t))) => {
            Some(Anchor::ResponseType(t.to_ascii_lowercase()))
        }
        (Key::RespType, _) => Some(Anchor::ResponseHeader("content-type".into())),
        (Key::Method, Test::Text(Pattern::Text(t) | Pattern::Exact(t))) => Some(Anchor::Method(t.clone())),
        (Key::Path | Key::Query, Test::Text(Pattern::Text(t) | Pattern::Exact(t))) if !t.is_empty() => {
            Some(Anchor::Target(t.to_ascii_lowercase()))
        }
        (Key::Path | Key::Query, Test::Text(Pattern::Glob(pieces))) => {
            let longest = pieces.iter().max_by_key(|p| p.len()).filter(|p| !p.is_empty())?;
            Some(Anchor::Target(longest.to_ascii_lowercase()))
        }
        _ => None,
    }
}

/// A set of entries by their place in a list.
pub(crate) type Picked = SmallVec<[u64; 4]>;

/// Entries of one phase by what a request must have for them.
#[derive(Debug, Default)]
pub(crate) struct RequestIndex {
    len: usize,
    always: Vec<u32>,
    texts: Option<AhoCorasick>,
    by_text: Vec<Vec<u32>>,
    /// Names in lower case, shorter ones first.
    headers: Vec<(Box<str>, Vec<u32>)>,
    /// The lengths of the names in `headers`: most fields of a request fall out by theirs.
    lengths: u64,
    methods: Vec<(String, Vec<u32>)>,
}

/// From so many entries on looking up pays.
const WORTH_IT: usize = 4;
/// Up to so many names are looked for in a head each; of more, each field of the head is looked up among them.
const FEW_NAMES: usize = 8;

impl RequestIndex {
    /// An index of these conditions; none when they are too few.
    pub fn new<'a>(conds: impl ExactSizeIterator<Item = &'a Cond>) -> Option<Self> {
        if conds.len() < WORTH_IT {
            return None;
        }
        let mut index = Self { len: conds.len(), ..Self::default() };
        let mut texts: HashMap<String, Vec<u32>> = HashMap::new();
        let mut fields: HashMap<String, Vec<u32>> = HashMap::new();
        for (i, cond) in conds.enumerate() {
            let i = i as u32;
            match anchors(cond, Of::Request) {
                None => index.always.push(i),
                Some(all) => all.into_iter().for_each(|anchor| match anchor {
                    Anchor::Target(text) => texts.entry(text).or_default().push(i),
                    Anchor::Header(name) => {
                        index.lengths |= 1 << name.len().min(63);
                        fields.entry(name).or_default().push(i);
                    }
                    Anchor::Method(method) => {
                        match index.methods.iter_mut().find(|(m, _)| m.eq_ignore_ascii_case(&method)) {
                            Some((_, list)) => list.push(i),
                            None => index.methods.push((method, vec![i])),
                        }
                    }
                    Anchor::Status(..) | Anchor::ResponseHeader(_) | Anchor::ResponseType(_) => {
                        unreachable!("only anchors of requests were asked for")
                    }
                }),
            }
        }
        index.headers = fields.into_iter().map(|(name, list)| (name.into(), list)).collect();
        index.headers.sort_unstable_by_key(|(name, _)| name.len());
        if !texts.is_empty() {
            let (names, lists): (Vec<String>, Vec<Vec<u32>>) = texts.into_iter().unzip();
            let built =
                AhoCorasickBuilder::new().ascii_case_insensitive(true).match_kind(MatchKind::Standard).build(&names);
            match built {
                Ok(ac) => (index.texts, index.by_text) = (Some(ac), lists),
                // Too many texts for one automaton: their rules are asked each.
                Err(_) => index.always.extend(lists.into_iter().flatten()),
            }
        }
        Some(index)
    }

    /// The entries that this request can match.
    pub fn pick(&self, request: &RequestHead) -> Picked {
        let mut picked: Picked = SmallVec::from_elem(0, self.len.div_ceil(64));
        let mut put = |list: &[u32]| {
            for i in list {
                if let Some(word) = picked.get_mut(*i as usize / 64) {
                    *word |= 1 << (i % 64);
                }
            }
        };
        put(&self.always);
        if let Some(texts) = &self.texts {
            for found in texts.find_overlapping_iter(request.url.path.as_str()) {
                put(&self.by_text[found.pattern().as_usize()]);
            }
        }
        if self.headers.len() <= FEW_NAMES {
            // A head knows the lengths of its names, so that most are found to be missing without a search.
            let there = self.headers.iter().filter(|(name, _)| request.headers.contains(name));
            there.for_each(|(_, list)| put(list));
        } else {
            for (name, _) in &request.headers {
                if self.lengths & 1 << name.len().min(63) != 0 {
                    let first = self.headers.partition_point(|(n, _)| n.len() < name.len());
                    let same = self.headers[first..].iter().take_while(|(n, _)| n.len() == name.len());
                    same.filter(|(n, _)| n.as_bytes().eq_ignore_ascii_case(name)).for_each(|(_, list)| put(list));
                }
            }
        }
        for (method, list) in &self.methods {
            if method.eq_ignore_ascii_case(request.method.as_str()) {
                put(list);
            }
        }
        picked
    }
}

#[cfg(test)]
mod tests {
    use interflow_query::Query;
    use proptest::prelude::*;

    use super::*;
    use crate::sample::Sample;

    fn cond(text: &str) -> Cond {
        Cond::query(Query::parse(text).unwrap())
    }

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn rules_are_found_by_host() {
        let rules = [
            "host:a.test",
            "host:*.a.test",
            "method:GET",
            "host:b.test OR host:c.test",
            "host:b.test OR path:/x",
            "-host:a.test",
            "host:*ha.test",
            "host:/^a/",
            "host:=A.test method:POST",
        ];
        let mut index = HostIndex::default();
        rules.iter().enumerate().for_each(|(i, r)| index.add(i as u32, &cond(r)));
        for (h, found) in [
            ("a.test", &[0, 2, 4, 5, 7, 8][..]),
            ("x.a.test", &[1, 2, 4, 5, 7]),
            ("b.test", &[2, 3, 4, 5, 7]),
            ("alpha.test", &[2, 4, 5, 6, 7]),
            ("127.0.0.1", &[2, 4, 5, 7]),
        ] {
            let got = index.candidates(&host(h));
            // The index may give more than match, never fewer.
            assert!(found.iter().all(|r| got.contains(r)), "{h}: {got:?}");
            assert!(!got.contains(&3) || h == "b.test" || h == "c.test", "{h}: {got:?}");
        }
        assert!(!index.candidates(&host("z.example")).contains(&0));
    }

    #[test]
    fn a_gate_opens_for_every_flow_that_its_condition_may_hold_of() {
        let plain = || Sample::get("http://a/favicon.ico?x");
        let flows = [
            plain().responding(200, &[("Content-Type", "application/json")], "{}").unwrap(),
            plain().responding(404, &[("Content-Type", "Text/HTML; charset=utf-8")], "").unwrap(),
            plain().responding(503, &[("Set-Cookie", "_tracking=1"), ("X-Debug", "on")], "").unwrap(),
            Sample::request("POST", "http://a/").unwrap().responding(204, &[], "").unwrap(),
        ];
        let constants = Vec::new();
        for (text, open) in [
            ("status:>=500", [false, false, true, false]),
            ("status:404 path:/favicon.ico", [false, true, false, false]),
            ("resp.type:html", [false, true, false, false]),
            ("resp.type:*", [true, true, false, false]),
            ("resp.header.x-debug:on", [false, false, true, false]),
            ("status:404 OR resp.header.x-debug:on", [false, true, true, false]),
            ("status:404 OR size:>10", [true; 4]),
            ("method:POST", [false, false, false, true]),
            ("-status:404", [true; 4]),
        ] {
            let cond = cond(text);
            let gate = Gate::of(&cond, Phase::ResponseHead, false);
            for (flow, open) in flows.iter().zip(open) {
                assert_eq!(gate.is_open(flow.request.as_ref(), flow.response.as_ref()), open, "{text}");
                assert!(open || !cond.ask(&flow.view(Phase::ResponseHead, &constants)).holds(), "{text}");
            }
        }
        // Before there is a response nothing is known of it.
        let early = Gate::of(&cond("status:404"), Phase::RequestHead, false);
        assert!(early.is_open(flows[0].request.as_ref(), None));
    }

    #[test]
    fn requests_pick_what_they_can_match() {
        let rules = [
            "path:/v1/a",
            "method:POST",
            "req.header.x-debug:1",
            "path:/v1/*/b",
            "status:500",
            "req.type:json",
            "query:q=1",
        ];
        let conds: Vec<Cond> = rules.iter().map(|r| cond(r)).collect();
        let index = RequestIndex::new(conds.iter()).unwrap();
        let picks = |s: Sample| {
            let bits = index.pick(s.request.as_ref().unwrap());
            (0..rules.len()).filter(|i| bits[i / 64] & 1 << (i % 64) != 0).collect::<Vec<_>>()
        };
        assert_eq!(picks(Sample::get("http://a/none")), [4]);
        assert_eq!(picks(Sample::get("http://a/V1/A?q=1")), [0, 3, 4, 6]);
        assert_eq!(picks(Sample::request("post", "http://a/").unwrap().header("X-DEBUG", "0").unwrap()), [1, 2, 4]);
        assert!(RequestIndex::new(conds[..2].iter()).is_none());
    }

    proptest! {
        #[test]
        fn an_index_never_hides_a_rule_that_matches(
            paths in prop::collection::vec("/[ab]{0,3}", 4..80), path in "/[abc]{0,6}", post in any::<bool>(),
        ) {
            let conds: Vec<Cond> = paths.iter().enumerate().map(|(i, p)| match i % 4 {
                0 => cond(&format!("path:{p}")),
                1 => cond(&format!("path:={p}")),
                2 => cond(&format!("path:{p}* method:POST")),
                _ => cond(&format!("method:GET OR path:{p}")),
            }).collect();
            let sample = Sample::request(if post { "POST" } else { "GET" }, &format!("http://a{path}")).unwrap();
            let index = RequestIndex::new(conds.iter()).unwrap();
            let picked = index.pick(sample.request.as_ref().unwrap());
            let constants = Vec::new();
            let view = sample.view(Phase::RequestHead, &constants);
            for (i, c) in conds.iter().enumerate() {
                prop_assert!(!c.ask(&view).holds() || picked[i / 64] & 1 << (i % 64) != 0, "{i}");
            }
        }
    }
}
