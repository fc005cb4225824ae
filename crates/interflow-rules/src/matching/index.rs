//! Indexes of rules: by host for a plan, and by path, method and header names for a request.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use interflow_query::{Expr, Key, Term, TermTest, TextPattern};
use interflow_types::host_pattern::{addresses_of, domains_of};
use interflow_types::{Direction, Host, HostIndexKey, Phase, RequestHead, ResponseHead};
use smallvec::SmallVec;

use crate::matching::condition::ConditionExpr;
use crate::matching::path_mode::{PathMatchMode, is_ambiguous};
use crate::matching::text_predicate::{MatchMode, TextField, TextPredicate};

/// A key of the host index, in lower case without a final dot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostLiteral {
    Exact(String),
    /// A domain suffix of the host; the condition may require more.
    Below(String),
}

/// Rules by required host. It may name a rule too many, never one too few.
#[derive(Debug, Default)]
pub(crate) struct HostIndex {
    exact: HashMap<String, Vec<u32>>,
    below: HashMap<String, Vec<u32>>,
    any: Vec<u32>,
}

impl HostIndex {
    pub fn add(&mut self, rule: u32, cond: &ConditionExpr) {
        let Some(literals) = required_hosts(cond) else { return self.any.push(rule) };
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

    /// The rules that can match a host, in the order of the files.
    pub fn candidates(&self, host: &Host) -> Vec<u32> {
        let text = host.canonical_text();
        let mut all = self.any.clone();
        all.extend(self.exact.get(&text).into_iter().flatten());
        // The first one is the text.
        all.extend(addresses_of(host).skip(1).filter_map(|ip| self.exact.get(&ip.to_string())).flatten());
        all.extend(domains_of(&text).filter_map(|domain| self.below.get(domain)).flatten());
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The hosts of which a condition requires one; `None` if the rule is a candidate for every host. Negations and patterns
/// that cannot be indexed require nothing.
fn required_hosts(cond: &ConditionExpr) -> Option<Vec<HostLiteral>> {
    match cond {
        ConditionExpr::Always(false) => Some(Vec::new()),
        // All must hold, so that one of them suffices as key: the one with the fewest values.
        ConditionExpr::And(parts) => parts.iter().filter_map(required_hosts).min_by_key(Vec::len),
        // One must hold, so that all are keys; one without a requirement leaves none.
        ConditionExpr::Or(parts) => {
            parts.iter().map(required_hosts).collect::<Option<Vec<_>>>().map(|all| all.concat())
        }
        ConditionExpr::Query(query) => hosts_of_query(query.expr()),
        ConditionExpr::Host(pattern) => match pattern.host.index_key() {
            HostIndexKey::Name(name) => Some(vec![HostLiteral::Exact(name.to_owned())]),
            HostIndexKey::Domain(name) => Some(vec![HostLiteral::Below(name.to_owned())]),
            HostIndexKey::Ip(ip) => Some(vec![HostLiteral::Exact(ip.to_string())]),
            HostIndexKey::None => None,
        },
        ConditionExpr::Text(TextField::Host, TextPredicate::Fixed(mode, text, ..)) => {
            host_literal(*mode, text).map(|literal| vec![literal])
        }
        _ => None,
    }
}

fn hosts_of_query(expr: &Expr) -> Option<Vec<HostLiteral>> {
    let literal = match expr {
        Expr::And(parts) => return parts.iter().filter_map(hosts_of_query).min_by_key(Vec::len),
        Expr::Or(parts) => {
            return parts.iter().map(hosts_of_query).collect::<Option<Vec<_>>>().map(|all| all.concat());
        }
        Expr::Term(Term { key: Key::Host, test: TermTest::Text(pattern), .. }) => match pattern {
            TextPattern::Text(text) | TextPattern::Exact(text) => host_literal(MatchMode::Exact, text),
            TextPattern::Glob(pieces) => host_literal(MatchMode::Suffix, pieces.last()?),
            TextPattern::Regex(_) => None,
        },
        _ => None,
    };
    literal.map(|literal| vec![literal])
}

fn host_literal(mode: MatchMode, text: &str) -> Option<HostLiteral> {
    let text = text.to_ascii_lowercase();
    match mode {
        MatchMode::Exact => Some(HostLiteral::Exact(text)),
        // Only whole labels are indexed, so the first one, which may be partial, is left to the condition.
        MatchMode::Suffix => {
            let rest = text.split_once('.').map(|(_, rest)| rest).filter(|rest| !rest.is_empty())?;
            Some(HostLiteral::Below(rest.to_owned()))
        }
        _ => None,
    }
}

/// Something that a request or its response must have for a condition to match.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RequiredFeature {
    /// This text in the request target, case-insensitive.
    Target(String),
    /// A request field of this name, in lower case.
    Header(String),
    Method(String),
    /// A status in this range.
    Status(u64, u64),
    /// A response field of this name.
    ResponseHeader(String),
    /// This text in the response's media type, case-insensitive.
    ResponseType(String),
}

/// The heads on which features may be tested, since they are available in the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadSet {
    Request,
    Response,
    Both,
}

impl RequiredFeature {
    const fn is_from(&self, of: HeadSet) -> bool {
        match self {
            Self::Target(_) | Self::Header(_) | Self::Method(_) => matches!(of, HeadSet::Request | HeadSet::Both),
            Self::Status(..) | Self::ResponseHeader(_) | Self::ResponseType(_) => {
                matches!(of, HeadSet::Response | HeadSet::Both)
            }
        }
    }

    /// A feature of a response that has not arrived counts as present.
    fn is_present(&self, request: &RequestHead, response: Option<&ResponseHead>) -> bool {
        match self {
            Self::Target(text) => contains_ignore_case(request.url.path.as_bytes(), text.as_bytes()),
            Self::Header(name) => request.headers.contains(name),
            Self::Method(method) => request.method.as_str().eq_ignore_ascii_case(method),
            Self::Status(low, high) => response.is_none_or(|r| (*low..=*high).contains(&u64::from(r.status.as_u16()))),
            Self::ResponseHeader(name) => response.is_none_or(|r| r.headers.contains(name)),
            Self::ResponseType(text) => response.is_none_or(|r| {
                r.headers.get_all("content-type").any(|value| contains_ignore_case(value, text.as_bytes()))
            }),
        }
    }
}

/// Case-insensitive (ASCII) substring test.
fn contains_ignore_case(text: &[u8], wanted: &[u8]) -> bool {
    let Some((first, rest)) = wanted.split_first() else { return !text.is_empty() };
    memchr::memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), text)
        .any(|at| text.get(at + 1..=at + rest.len()).is_some_and(|next| next.eq_ignore_ascii_case(rest)))
}

/// A cheap test that rules out most flows before the condition is evaluated.
#[derive(Debug, Default)]
pub(crate) struct Prefilter {
    anchors: Option<Vec<RequiredFeature>>,
    /// The rule is evaluated on every variant of the path, so an ambiguous path must not be ruled out as written.
    readings: bool,
}

impl Prefilter {
    /// The prefilter of a condition that is evaluated at `phase`. `indexed`: its requirements on the request were
    /// already tested by the index.
    pub fn new(cond: &ConditionExpr, judged: PathMatchMode, phase: Phase, indexed: bool) -> Self {
        Self { readings: judged == PathMatchMode::Any, ..Self::for_condition(cond, phase, indexed) }
    }

    fn for_condition(cond: &ConditionExpr, phase: Phase, indexed: bool) -> Self {
        let of = match phase {
            Phase::RequestHead | Phase::RequestBody if !indexed => HeadSet::Request,
            Phase::ResponseHead | Phase::ResponseBody if indexed => HeadSet::Response,
            Phase::ResponseHead | Phase::ResponseBody => HeadSet::Both,
            _ => return Self::default(),
        };
        Self { anchors: required_features(cond, of), readings: false }
    }

    /// Whether the condition may match. False means that it certainly does not.
    pub fn may_match(&self, request: Option<&RequestHead>, response: Option<&ResponseHead>) -> bool {
        match (&self.anchors, request) {
            (Some(anchors), Some(request)) if !(self.readings && is_ambiguous(request)) => {
                anchors.iter().any(|a| a.is_present(request, response))
            }
            _ => true,
        }
    }
}

/// The features of which one must be present; `None` if the condition cannot be indexed.
fn required_features(cond: &ConditionExpr, of: HeadSet) -> Option<Vec<RequiredFeature>> {
    let inner = |part: &ConditionExpr| required_features(part, of);
    match cond {
        // Each part must hold, so the most selective one is enough.
        ConditionExpr::And(parts) => parts.iter().filter_map(inner).min_by_key(|a| (a.len(), selectivity_rank(a))),
        ConditionExpr::Or(parts) => parts.iter().map(inner).collect::<Option<Vec<_>>>().map(|all| all.concat()),
        ConditionExpr::Query(query) => expr_features(query.expr(), of),
        ConditionExpr::Text(place, test) => text_feature(place, test).filter(|a| a.is_from(of)).map(|a| vec![a]),
        _ => None,
    }
}

/// More selective or cheaper features come first.
fn selectivity_rank(anchors: &[RequiredFeature]) -> u8 {
    anchors
        .iter()
        .map(|a| match a {
            RequiredFeature::Status(..) => 0,
            RequiredFeature::ResponseHeader(_) => 1,
            RequiredFeature::ResponseType(_) => 2,
            RequiredFeature::Target(_) => 3,
            RequiredFeature::Header(_) => 4,
            RequiredFeature::Method(_) => 5,
        })
        .max()
        .unwrap_or(0)
}

fn text_feature(place: &TextField, test: &TextPredicate) -> Option<RequiredFeature> {
    let fixed = match test {
        TextPredicate::Fixed(mode, text, ..) if *mode != MatchMode::Regex && !text.is_empty() => Some((*mode, text)),
        _ => None,
    };
    match place {
        TextField::Path | TextField::Target => fixed.map(|(_, t)| RequiredFeature::Target(t.to_ascii_lowercase())),
        TextField::Method => {
            fixed.filter(|(m, _)| *m == MatchMode::Exact).map(|(_, t)| RequiredFeature::Method(t.clone()))
        }
        TextField::Header(Direction::Request, name) => Some(RequiredFeature::Header(name.to_ascii_lowercase())),
        TextField::MediaType(Direction::Request) => Some(RequiredFeature::Header("content-type".into())),
        TextField::Header(Direction::Response, name) => {
            Some(RequiredFeature::ResponseHeader(name.to_ascii_lowercase()))
        }
        TextField::SetCookie(_) => Some(RequiredFeature::ResponseHeader("set-cookie".into())),
        TextField::MediaType(Direction::Response) => Some(match fixed {
            Some((_, text)) => RequiredFeature::ResponseType(text.to_ascii_lowercase()),
            None => RequiredFeature::ResponseHeader("content-type".into()),
        }),
        TextField::Cookie(_) => Some(RequiredFeature::Header("cookie".into())),
        // The name may be percent-encoded, but a parameter requires a query.
        TextField::Param(_) => Some(RequiredFeature::Target("?".into())),
        _ => None,
    }
}

fn expr_features(expr: &Expr, of: HeadSet) -> Option<Vec<RequiredFeature>> {
    let inner = |part: &Expr| expr_features(part, of);
    match expr {
        Expr::And(parts) => parts.iter().filter_map(inner).min_by_key(|a| (a.len(), selectivity_rank(a))),
        Expr::Or(parts) => parts.iter().map(inner).collect::<Option<Vec<_>>>().map(|all| all.concat()),
        Expr::Term(term) => term_feature(term).filter(|a| a.is_from(of)).map(|a| vec![a]),
        Expr::All | Expr::Not(_) => None,
    }
}

fn term_feature(term: &Term) -> Option<RequiredFeature> {
    match (term.key, &term.test) {
        (Key::ReqHeader, _) if term.name.is_some() => term.name.clone().map(RequiredFeature::Header),
        (Key::ReqHeader, TermTest::Text(TextPattern::Text(t) | TextPattern::Exact(t))) => {
            Some(RequiredFeature::Header(t.to_ascii_lowercase()))
        }
        (Key::ReqType, _) => Some(RequiredFeature::Header("content-type".into())),
        (Key::RespHeader, _) if term.name.is_some() => term.name.clone().map(RequiredFeature::ResponseHeader),
        (Key::Status, TermTest::Number(number)) => {
            // An empty range matches nothing, and neither does this one.
            let (low, high) = number.bounds().unwrap_or((1, 0));
            Some(RequiredFeature::Status(low, high))
        }
        (Key::RespType, TermTest::Text(TextPattern::Text(t) | TextPattern::Exact(t))) => {
            Some(RequiredFeature::ResponseType(t.to_ascii_lowercase()))
        }
        (Key::RespType, _) => Some(RequiredFeature::ResponseHeader("content-type".into())),
        (Key::Method, TermTest::Text(TextPattern::Text(t) | TextPattern::Exact(t))) => {
            Some(RequiredFeature::Method(t.clone()))
        }
        (Key::Path | Key::Query, TermTest::Text(TextPattern::Text(t) | TextPattern::Exact(t))) if !t.is_empty() => {
            Some(RequiredFeature::Target(t.to_ascii_lowercase()))
        }
        (Key::Path | Key::Query, TermTest::Text(TextPattern::Glob(pieces))) => {
            let longest = pieces.iter().max_by_key(|p| p.len()).filter(|p| !p.is_empty())?;
            Some(RequiredFeature::Target(longest.to_ascii_lowercase()))
        }
        _ => None,
    }
}

/// A bit set of indices into a list, 64 per word.
pub(crate) type Candidates = SmallVec<[u64; 4]>;

/// The rules of one phase by what a request must have for them.
#[derive(Debug, Default)]
pub(crate) struct RequestIndex {
    len: usize,
    always: Vec<u32>,
    texts: Option<AhoCorasick>,
    by_text: Vec<Vec<u32>>,
    /// Names in lower case, shorter ones first.
    headers: Vec<(Box<str>, Vec<u32>)>,
    /// Bit set of the lengths of the names in `headers`: most fields of a request are ruled out by theirs.
    lengths: u64,
    methods: Vec<(String, Vec<u32>)>,
}

/// Minimum number of rules for which an index pays off.
const MIN_INDEXED_RULES: usize = 4;
/// Up to this many names are each searched for in a head; beyond that, each field of the head is looked up among them.
const MAX_SCANNED_NAMES: usize = 8;

impl RequestIndex {
    /// An index of these conditions; `None` if they are too few.
    pub fn new<'a>(conds: impl ExactSizeIterator<Item = &'a ConditionExpr>) -> Option<Self> {
        if conds.len() < MIN_INDEXED_RULES {
            return None;
        }
        let mut index = Self { len: conds.len(), ..Self::default() };
        let mut texts: HashMap<String, Vec<u32>> = HashMap::new();
        let mut fields: HashMap<String, Vec<u32>> = HashMap::new();
        for (i, cond) in conds.enumerate() {
            let i = i as u32;
            match required_features(cond, HeadSet::Request) {
                None => index.always.push(i),
                Some(all) => all.into_iter().for_each(|anchor| match anchor {
                    RequiredFeature::Target(text) => texts.entry(text).or_default().push(i),
                    RequiredFeature::Header(name) => {
                        index.lengths |= 1 << name.len().min(63);
                        fields.entry(name).or_default().push(i);
                    }
                    RequiredFeature::Method(method) => {
                        match index.methods.iter_mut().find(|(m, _)| m.eq_ignore_ascii_case(&method)) {
                            Some((_, list)) => list.push(i),
                            None => index.methods.push((method, vec![i])),
                        }
                    }
                    RequiredFeature::Status(..)
                    | RequiredFeature::ResponseHeader(_)
                    | RequiredFeature::ResponseType(_) => {
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
                // Too many texts for one automaton: evaluate their rules always.
                Err(_) => index.always.extend(lists.into_iter().flatten()),
            }
        }
        Some(index)
    }

    /// The rules that can match this request.
    pub fn candidates(&self, request: &RequestHead) -> Candidates {
        let mut picked: Candidates = SmallVec::from_elem(0, self.len.div_ceil(64));
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
        if self.headers.len() <= MAX_SCANNED_NAMES {
            // A head keeps a mask of its names' lengths, so most absent names need no search.
            let there = self.headers.iter().filter(|(name, _)| request.headers.contains(name));
            there.for_each(|(_, list)| put(list));
        } else {
            for (name, _) in &request.headers {
                if self.lengths & 1 << name.len().min(63) != 0 {
                    let first = self.headers.partition_point(|(n, _)| n.len() < name.len());
                    // Sorted by length, so that only names of the same length are compared.
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
    use crate::flow::fixture::FlowFixture;

    fn cond(text: &str) -> ConditionExpr {
        ConditionExpr::query(Query::parse(text).unwrap())
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
            // The index may return more than match, never fewer.
            assert!(found.iter().all(|r| got.contains(r)), "{h}: {got:?}");
            assert!(!got.contains(&3) || h == "b.test" || h == "c.test", "{h}: {got:?}");
        }
        assert!(!index.candidates(&host("z.example")).contains(&0));
    }

    #[test]
    fn gate_passes_every_flow_its_condition_may_match() {
        let plain = || FlowFixture::for_get("http://a/favicon.ico?x");
        let flows = [
            plain().with_response(200, &[("Content-Type", "application/json")], "{}").unwrap(),
            plain().with_response(404, &[("Content-Type", "Text/HTML; charset=utf-8")], "").unwrap(),
            plain().with_response(503, &[("Set-Cookie", "_tracking=1"), ("X-Debug", "on")], "").unwrap(),
            FlowFixture::for_request("POST", "http://a/").unwrap().with_response(204, &[], "").unwrap(),
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
            let gate = Prefilter::for_condition(&cond, Phase::ResponseHead, false);
            for (flow, open) in flows.iter().zip(open) {
                assert_eq!(gate.may_match(flow.request.as_ref(), flow.response.as_ref()), open, "{text}");
                assert!(open || !cond.evaluate(&flow.view(Phase::ResponseHead, &constants)).holds(), "{text}");
            }
        }
        // Before the response nothing is known about it.
        let early = Prefilter::for_condition(&cond("status:404"), Phase::RequestHead, false);
        assert!(early.may_match(flows[0].request.as_ref(), None));
    }

    #[test]
    fn requests_select_candidate_rules() {
        let rules = [
            "path:/v1/a",
            "method:POST",
            "req.header.x-debug:1",
            "path:/v1/*/b",
            "status:500",
            "req.type:json",
            "query:q=1",
        ];
        let conds: Vec<ConditionExpr> = rules.iter().map(|r| cond(r)).collect();
        let index = RequestIndex::new(conds.iter()).unwrap();
        let picks = |s: FlowFixture| {
            let bits = index.candidates(s.request.as_ref().unwrap());
            (0..rules.len()).filter(|i| bits[i / 64] & 1 << (i % 64) != 0).collect::<Vec<_>>()
        };
        assert_eq!(picks(FlowFixture::for_get("http://a/none")), [4]);
        assert_eq!(picks(FlowFixture::for_get("http://a/V1/A?q=1")), [0, 3, 4, 6]);
        assert_eq!(
            picks(FlowFixture::for_request("post", "http://a/").unwrap().with_header("X-DEBUG", "0").unwrap()),
            [1, 2, 4]
        );
        assert!(RequestIndex::new(conds[..2].iter()).is_none());
    }

    proptest! {
        #[test]
        fn an_index_never_hides_a_rule_that_matches(
            paths in prop::collection::vec("/[ab]{0,3}", 4..80), path in "/[abc]{0,6}", post in any::<bool>(),
        ) {
            let conds: Vec<ConditionExpr> = paths.iter().enumerate().map(|(i, p)| match i % 4 {
                0 => cond(&format!("path:{p}")),
                1 => cond(&format!("path:={p}")),
                2 => cond(&format!("path:{p}* method:POST")),
                _ => cond(&format!("method:GET OR path:{p}")),
            }).collect();
            let sample = FlowFixture::for_request(if post { "POST" } else { "GET" }, &format!("http://a{path}")).unwrap();
            let index = RequestIndex::new(conds.iter()).unwrap();
            let picked = index.candidates(sample.request.as_ref().unwrap());
            let constants = Vec::new();
            let view = sample.view(Phase::RequestHead, &constants);
            for (i, c) in conds.iter().enumerate() {
                prop_assert!(!c.evaluate(&view).holds() || picked[i / 64] & 1 << (i % 64) != 0, "{i}");
            }
        }
    }
}
