//! Which flows a query selects.

use std::net::SocketAddr;

use interflow_query::{Fact, Flag, Key, Query, QuerySubject, Tristate};
use interflow_types::{Direction, Phase, Timestamp};

/// The facts of a flow.
#[derive(Clone, Default)]
struct Flow {
    texts: Vec<(Key, &'static str)>,
    numbers: Vec<(Key, u64)>,
    flags: Vec<Flag>,
    peer: Option<&'static str>,
    request: Vec<(&'static str, &'static str)>,
    response: Vec<(&'static str, &'static str)>,
    request_body: &'static str,
    response_body: Option<&'static str>,
    /// Whether the response is still missing.
    early: bool,
}

impl QuerySubject for Flow {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let found = Tristate::any(self.texts.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v), fits);
        let later = self.early && matches!(key, Key::Type | Key::RespType | Key::Error | Key::Model);
        if later { found.or(Tristate::NotYet) } else { found }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match self.numbers.iter().find(|(k, _)| *k == key) {
            Some((_, n)) => Fact::Is(*n),
            None if self.early => Fact::NotYet,
            None => Fact::Absent,
        }
    }

    fn flag(&self, flag: Flag) -> Tristate {
        match (self.flags.contains(&flag), self.early && flag.info().phase > Phase::RequestHead) {
            (false, true) => Tristate::NotYet,
            (set, _) => Tristate::Known(set),
        }
    }

    fn address(&self, key: Key) -> Fact<SocketAddr> {
        Fact::known(self.peer.filter(|_| key == Key::Client).map(|p| p.parse().unwrap()))
    }

    fn headers(&self, side: Direction, fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Tristate {
        let (fields, open) =
            if side == Direction::Request { (&self.request, false) } else { (&self.response, self.early) };
        let found = fields.iter().any(|(n, v)| fits(n.as_bytes(), v.as_bytes()));
        if open && !found { Tristate::NotYet } else { Tristate::Known(found) }
    }

    fn body(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        let body = if side == Direction::Request { Some(self.request_body) } else { self.response_body };
        match body {
            Some(body) => Tristate::Known(fits(body.as_bytes())),
            None if self.early => Tristate::NotYet,
            None => Tristate::Known(false),
        }
    }
}

fn order() -> Flow {
    Flow {
        texts: vec![
            (Key::Host, "api.openai.com"),
            (Key::Url, "https://api.openai.com/v1/chat?page=2"),
            (Key::Path, "/v1/chat"),
            (Key::Query, "page=2"),
            (Key::Method, "POST"),
            (Key::Scheme, "https"),
            (Key::Version, "HTTP/2"),
            (Key::Type, "application/json"),
            (Key::RespType, "application/json; charset=utf-8"),
            (Key::Tag, "checkout"),
            (Key::Tag, "night"),
            (Key::User, "alice"),
            (Key::Id, "01JD3V7T2M00000000000000AB"),
            (Key::Model, "gpt-5-mini"),
        ],
        numbers: vec![
            (Key::Port, 443),
            (Key::Status, 404),
            (Key::Dur, 2_500_000),
            (Key::Size, 1_500_000),
            (Key::Time, Timestamp::now().micros() - 600_000_000),
        ],
        flags: vec![Flag::Http, Flag::Answered, Flag::Intercepted],
        peer: Some("[::ffff:10.1.2.3]:5555"),
        request: vec![("Accept", "text/html"), ("X-Api-Key", "k1")],
        response: vec![("Server", "nginx"), ("Set-Cookie", "a=1")],
        request_body: "please REFUND order 7",
        response_body: Some("{\"error\":\"no funds\"}"),
        early: false,
    }
}

fn tunnel() -> Flow {
    Flow {
        texts: vec![(Key::Host, "192.0.2.7"), (Key::Error, "upstream_timeout"), (Key::Error, "no answer in 30 s")],
        numbers: vec![(Key::Port, 22)],
        flags: vec![Flag::Tunnel, Flag::Error],
        ..Flow::default()
    }
}

#[test]
fn queries_match_the_expected_flows() {
    let (order, tunnel) = (order(), tunnel());
    // Query; whether it selects the order; whether it selects the tunnel.
    for (text, first, second) in [
        ("", true, true),
        ("host:api.openai.com", true, false),
        ("host:openai.com", false, false),
        ("host:*.OPENAI.com", true, false),
        ("domain:192.0.2.7", false, true),
        ("host:*:22", false, true),
        ("host:/open|192/", true, true),
        ("host:/OPEN/", false, false),
        ("host:/OPEN/i", true, false),
        ("method:post", true, false),
        ("method:PO", false, false),
        ("method:(GET OR POST)", true, false),
        ("path:/chat", true, false),
        ("path:=/v1", false, false),
        ("path:=/V1/chat", true, false),
        ("path:/v1/*", true, false),
        ("path:/chat/*", false, false),
        ("url:openai.com/v1", true, false),
        ("query:page=2", true, false),
        ("-path:/health", true, true),
        ("status:404", true, false),
        ("status:>=400", true, false),
        ("status:4xx", true, false),
        ("status:400..403", false, false),
        ("-status:404", false, true),
        ("status:*", true, false),
        ("-status:*", false, true),
        ("port:443 OR port:22", true, true),
        ("dur:>2s dur:<=2500ms", true, false),
        ("size:>1MB", true, false),
        ("size:>1.5MB", false, false),
        ("time:-1h", true, false),
        ("time:<-5m", true, false),
        ("time:>-5m", false, false),
        ("time:>2020-01-01", true, false),
        ("is:intercepted", true, false),
        ("is:error", false, true),
        ("is:tunnel error:timeout", false, true),
        ("error:\"no answer\"", false, true),
        ("error:*", false, true),
        ("header:accept", true, false),
        ("header:acc", false, false),
        ("header:x-*", true, false),
        ("header:/^server: ng/i", true, false),
        ("header.accept:html", true, false),
        ("header.accept:text/*", true, false),
        ("header.accept:*", true, false),
        ("-header.authorization:*", true, true),
        ("req.header.server:*", false, false),
        ("resp.header.server:nginx", true, false),
        ("refund", true, false),
        ("page=2", true, false),
        ("\"refund order\"", true, false),
        ("ref*order", true, false),
        ("/REFUND/", true, false),
        ("/refund/", false, false),
        ("body:\"no funds\"", true, false),
        ("req.body:funds", false, false),
        ("resp.body:/fund(s)\"/", true, false),
        ("body:*", true, false),
        ("type:json", true, false),
        ("resp.type:charset", true, false),
        ("tag:checkout tag:night", true, false),
        ("tag:check", false, false),
        ("-tag:*", false, true),
        ("user:ALICE", true, false),
        ("client:10.0.0.0/8", true, false),
        ("client:10.1.2.3", true, false),
        ("client:10.1.2.4", false, false),
        ("client:10.1.*", true, false),
        ("client:/:5555$/", true, false),
        ("version:h2", true, false),
        ("version:!=h2", false, true),
        ("scheme:!=wss", false, true),
        ("host:=api.openai.com:443", true, false),
        ("host:!=api.openai.com:443", false, true),
        ("scheme:https", true, false),
        ("id:01jd3v", true, false),
        ("id:1jd3v", true, false),
        ("id:1jd4v", false, false),
        ("(model:gpt-5 OR model:claude)", true, false),
        ("host:api.openai.com method:POST status:>=400 dur:>2s -path:/health body:\"refund\"", true, false),
        ("~m POST & ~d api", true, false),
        ("!~m POST", false, true),
        ("~c 404 | ~tcp", true, true),
        ("~h nginx", true, false),
        ("~udp", false, false),
    ] {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!((query.matches(&order), query.matches(&tunnel)), (first, second), "{text}");
    }
}

#[test]
fn missing_facts_leave_a_query_undecided() {
    let mut early = order();
    early.early = true;
    early.texts.retain(|(k, _)| !matches!(k, Key::Type | Key::RespType | Key::Model));
    early.numbers.retain(|(k, _)| matches!(k, Key::Port | Key::Time));
    early.flags.retain(|f| *f != Flag::Answered);
    early.response.clear();
    early.response_body = None;
    for (text, truth) in [
        ("host:api.openai.com", Tristate::Known(true)),
        ("status:404", Tristate::NotYet),
        ("-status:404", Tristate::NotYet),
        ("host:x status:404", Tristate::Known(false)),
        ("method:POST OR status:404", Tristate::Known(true)),
        ("method:GET OR status:404", Tristate::NotYet),
        ("-(host:x status:404)", Tristate::Known(true)),
        ("is:answered", Tristate::NotYet),
        ("header:accept", Tristate::Known(true)),
        ("header:server", Tristate::NotYet),
        ("req.header:server", Tristate::Known(false)),
        ("refund", Tristate::Known(true)),
        ("elsewhere", Tristate::NotYet),
        ("req.body:elsewhere", Tristate::Known(false)),
    ] {
        let query = Query::parse(text).unwrap();
        assert_eq!(query.evaluate(&early), truth, "{text}");
        assert_eq!(query.matches(&early), truth == Tristate::Known(true), "{text}");
    }
}

#[test]
fn query_reports_its_phase_and_required_bodies() {
    use Direction::{Request, Response};
    for (text, phase, request, response) in [
        ("", Phase::Authority, false, false),
        ("client:10.0.0.1", Phase::Authority, false, false),
        ("host:a user:b", Phase::Authority, false, false),
        ("sni:a", Phase::ClientHello, false, false),
        ("method:GET path:/x", Phase::RequestHead, false, false),
        ("req.body:x", Phase::RequestBody, true, false),
        ("status:200 is:intercepted", Phase::ResponseHead, false, false),
        ("is:sse", Phase::ResponseHead, false, false),
        ("resp.body:x", Phase::Done, false, true),
        ("word", Phase::Done, true, true),
    ] {
        let query = Query::parse(text).unwrap();
        assert_eq!(query.phase(), phase, "{text}");
        assert_eq!((query.wants_body(Request), query.wants_body(Response)), (request, response), "{text}");
    }
}

#[test]
fn bodies_are_evaluated_last() {
    struct Costly;
    impl QuerySubject for Costly {
        fn body(&self, _: Direction, _: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
            panic!("the body was evaluated although the port had decided")
        }
    }
    assert!(!Query::parse("body:x port:80").unwrap().matches(&Costly));
    assert!(Query::parse("body:x OR -port:80").unwrap().matches(&Costly));
}
