//! `when:` of a rule file: a query, or a map of matchers.

use interflow_query::Query;
use interflow_types::Direction;
use interflow_types::schema::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, de};

use crate::matching::condition::ConditionExpr;
use crate::matching::host_matcher::HostMatcher;
use crate::matching::patterns::{FieldPattern, NamedPatterns};
use crate::matching::text_predicate::TextField;
use crate::text::json::JsonPath;
use crate::text::shape::{ShapedValue, deserialize_shaped, written_schema};
use crate::text::string_list::OneOrManyStrings;

deserialize_shaped!(RuleCondition);

/// A parsed condition.
#[derive(Clone, Debug, Default)]
pub struct RuleCondition(pub ConditionExpr);

impl<'de> ShapedValue<'de> for RuleCondition {
    const EXPECTED: &'static str = "a query, or matchers by name";

    fn from_text<E: de::Error>(s: &str) -> Result<Self, E> {
        let query = Query::parse_strict(s).map_err(|e| E::custom(format!("the query `{s}`, {e}")))?;
        Ok(Self(ConditionExpr::query(query)))
    }

    fn from_map<A: de::MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        MatcherMap::deserialize(MapAccessDeserializer::new(map))?
            .into_condition()
            .map(RuleCondition)
            .map_err(de::Error::custom)
    }
}

written_schema!(RuleCondition, "When", |g| {
    let matchers = g.subschema_for::<MatcherMap>();
    json_schema!({ "title": "query or matchers", "anyOf": [{ "type": "string", "description": "A query, as `interflow flows list` takes it." }, matchers] })
});

/// The direction of a message.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MessageSender {
    /// From the client.
    Client,
    /// From the server.
    Server,
}

/// Matchers by name; all that are present must match.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct MatcherMap {
    /// A query.
    query: Option<Box<RuleCondition>>,
    /// Host of the origin.
    host: Option<HostMatcher>,
    /// Port of the origin.
    port: Option<u16>,
    /// Whole URL.
    url: Option<FieldPattern>,
    /// Path without the query.
    path: Option<FieldPattern>,
    /// Request method.
    method: Option<FieldPattern>,
    /// Query parameters by name.
    param: NamedPatterns,
    /// Request header fields by name.
    header: NamedPatterns,
    /// Cookies of the request by name.
    cookie: NamedPatterns,
    /// Media type of the request, parameters included.
    request_type: Option<FieldPattern>,
    /// Body of the request.
    request_body: Option<FieldPattern>,
    /// Values in the request's JSON body by JSONPath.
    json: NamedPatterns,
    /// Operation of a GraphQL request.
    graphql: Option<FieldPattern>,
    /// Service and method of a gRPC call: `pkg.Service/Method`.
    grpc: Option<FieldPattern>,
    /// Status codes: `404`, `5xx`, `400..499`.
    status: OneOrManyStrings,
    /// Response header fields by name.
    response_header: NamedPatterns,
    /// Cookies that the response sets, by name.
    set_cookie: NamedPatterns,
    /// Media type of the response, parameters included.
    response_type: Option<FieldPattern>,
    /// Body of the response.
    response_body: Option<FieldPattern>,
    /// Values in the response's JSON body by JSONPath.
    response_json: NamedPatterns,
    /// Payload of a message.
    message: Option<FieldPattern>,
    /// The sender of a message.
    from: Option<MessageSender>,
    /// Address or network of the client.
    client: OneOrManyStrings,
    /// User of the proxy.
    user: Option<FieldPattern>,
    /// Name of the listener.
    listener: Option<FieldPattern>,
    /// Tags on the flow.
    tag: Option<FieldPattern>,
    /// Variables by name.
    variable: NamedPatterns,
    /// A probability from 0 to 1.
    chance: Option<f64>,
    /// Only every n-th time.
    every: Option<u64>,
    /// Only the first n times since the rules were loaded.
    first: Option<u64>,
    /// Between two times of day in UTC: `22:00-06:00`.
    between: Option<String>,
    /// All of these.
    all: Vec<RuleCondition>,
    /// One of these.
    any: Option<Vec<RuleCondition>>,
    /// Not this.
    not: Option<Box<RuleCondition>>,
}

impl MatcherMap {
    fn into_condition(self) -> Result<ConditionExpr, String> {
        use Direction::{Request, Response};
        let mut all: Vec<ConditionExpr> = Vec::new();
        all.extend(self.query.map(|w| w.0));
        all.extend(self.host.map(HostMatcher::into_condition));
        let single = [
            (TextField::Url, self.url),
            (TextField::Path, self.path),
            (TextField::Method, self.method),
            (TextField::MediaType(Request), self.request_type),
            (TextField::MediaType(Response), self.response_type),
            (TextField::Body(Request), self.request_body),
            (TextField::Body(Response), self.response_body),
            (TextField::GraphqlOperation, self.graphql),
            (TextField::GrpcMethod, self.grpc),
            (TextField::Message, self.message),
            (TextField::User, self.user),
            (TextField::Listener, self.listener),
            (TextField::Tag, self.tag),
        ];
        all.extend(single.into_iter().filter_map(|(place, p)| p.map(|p| p.into_condition(&place))));
        type FieldConstructor = fn(String) -> TextField;
        let named: [(FieldConstructor, NamedPatterns); 6] = [
            (|n| TextField::Param(Some(n)), self.param),
            (|n| TextField::Header(Request, n), self.header),
            (TextField::Cookie, self.cookie),
            (|n| TextField::Header(Response, n), self.response_header),
            (|n| TextField::SetCookie(Some(n)), self.set_cookie),
            (TextField::Variable, self.variable),
        ];
        for (place, patterns) in named {
            all.extend(patterns.0.into_iter().map(|(name, p)| p.into_condition(&place(name))));
        }
        for (side, patterns) in [(Request, self.json), (Response, self.response_json)] {
            for (path, pattern) in patterns.0 {
                all.push(pattern.into_condition(&TextField::Json(side, JsonPath::parse(&path)?)));
            }
        }
        all.extend(self.port.map(|p| query_term("port", &p.to_string())).transpose()?);
        all.extend(query_terms("status", &self.status)?);
        all.extend(query_terms("client", &self.client)?);
        all.extend(
            self.from
                .map(|f| ConditionExpr::Direction(if matches!(f, MessageSender::Client) { Request } else { Response })),
        );
        all.extend(self.all.into_iter().map(|w| w.0));
        all.extend(self.any.map(|any| ConditionExpr::or(any.into_iter().map(|w| w.0).collect())));
        all.extend(self.not.map(|w| w.0.not()));
        all.extend(self.between.map(|b| parse_between(&b)).transpose()?);
        if let Some(p) = self.chance {
            if !(0.0..=1.0).contains(&p) {
                return Err(format!("chance must be between 0 and 1, not {p}"));
            }
            all.push(ConditionExpr::Chance(p));
        }
        if self.every == Some(0) {
            return Err("`every` counts from 1".into());
        }
        // The counters start at zero whenever the rules are compiled.
        all.extend(self.every.map(|n| ConditionExpr::Every(n, Default::default())));
        all.extend(self.first.map(|n| ConditionExpr::First(n, Default::default())));
        Ok(ConditionExpr::and(all))
    }
}

/// A matcher that a term of the query language expresses.
fn query_term(key: &str, value: &str) -> Result<ConditionExpr, String> {
    Query::parse_strict(&format!("{key}:{value}")).map(ConditionExpr::query).map_err(|e| {
        let remedy = e.remedy.map(|r| format!(": {r}")).unwrap_or_default();
        format!("`{key}: {value}`: {}{remedy}", e.message)
    })
}

fn query_terms(key: &str, values: &OneOrManyStrings) -> Result<Option<ConditionExpr>, String> {
    let all = values.0.iter().map(|v| query_term(key, v)).collect::<Result<Vec<_>, _>>()?;
    Ok((!all.is_empty()).then(|| ConditionExpr::or(all)))
}

/// `22:00-06:00` in minutes after midnight; the end may be before the start.
fn parse_between(text: &str) -> Result<ConditionExpr, String> {
    let minute = |t: &str| {
        let (h, m) = t.trim().split_once(':')?;
        let (h, m): (u32, u32) = (h.parse().ok()?, m.parse().ok()?);
        (h < 24 && m < 60).then_some(h * 60 + m)
    };
    let both = text.split_once('-').and_then(|(a, b)| Some((minute(a)?, minute(b)?)));
    both.map(|(a, b)| ConditionExpr::Between(a, b))
        .ok_or_else(|| format!("`{text}` is not a time of day: write it as 22:00-06:00"))
}

#[cfg(test)]
mod tests {
    use interflow_types::Phase;

    use super::*;
    use crate::flow::fixture::FlowFixture;

    fn read(text: &str) -> Result<ConditionExpr, String> {
        interflow_codec::document::from_yaml::<RuleCondition>(text).map(|w| w.0).map_err(|e| e.to_string())
    }

    #[test]
    fn every_matcher_matches_and_rejects() {
        let sample = || {
            FlowFixture::for_request("POST", "http://api.a.test:8080/v1/x?page=2&q=a%20b")
                .unwrap()
                .with_header("X-Debug", "on")
                .unwrap()
                .with_header("Cookie", "sid=7; t=1")
                .unwrap()
                .with_header("Content-Type", "application/json; charset=utf-8")
                .unwrap()
                .with_response(
                    503,
                    &[("Server", "nginx"), ("Set-Cookie", "sid=8; Path=/"), ("Content-Type", "application/json")],
                    r#"{"ok":false,"n":[1,2]}"#,
                )
                .unwrap()
        };
        let mut s = sample();
        s.request_body = r#"{"model":"gpt-4","operationName":"Get"}"#.into();
        s.flow.tag("seen");
        s.flow.user = Some("ann".into());
        let constants = vec![("x".to_owned(), "1".to_owned())];
        for (yes, no) in [
            ("host:api.a.test", "host:b.test"),
            ("{host: '*.a.test'}", "{host: '*.b.test'}"),
            ("{host: [b.test, api.a.test]}", "{host: []}"),
            ("{port: 8080}", "{port: 80}"),
            ("{url: {contains: 'a.test:8080/v1'}}", "{url: {prefix: 'https:'}}"),
            ("{path: /V1/X}", "{path: {exact: /V1/X, ignore_case: false}}"),
            ("{path: {regex: '^/v[0-9]/'}}", "{path: {regex: '^/V'}}"),
            ("{method: [GET, post]}", "{method: GET}"),
            ("{param: {page: 2, q: 'a b'}}", "{param: {page: 3}}"),
            ("{param: [page]}", "{param: none}"),
            ("{header: {x-debug: 'on'}}", "{header: {x-debug: 'off'}}"),
            ("{cookie: {sid: 7}}", "{cookie: {sid: 8}}"),
            ("{request_type: 'application/json*'}", "{request_type: 'text/*'}"),
            ("{request_body: {contains: gpt}}", "{request_body: {contains: claude}}"),
            ("{json: {'$.model': 'gpt-*'}}", "{json: {'$.model': 'x'}}"),
            ("{graphql: Get}", "{graphql: Put}"),
            ("{grpc: v1/x}", "{grpc: v1/y}"),
            ("{status: [404, 5xx]}", "{status: '400..499'}"),
            ("{response_header: {server: nginx}}", "{response_header: via}"),
            ("{set_cookie: {sid: 8}}", "{set_cookie: {sid: 7}}"),
            ("{response_type: {contains: json}}", "{response_type: {contains: html}}"),
            ("{response_body: {regex: 'ok.:false'}}", "{response_body: {contains: 'true'}}"),
            ("{response_json: {'$.n[*]': 2}}", "{response_json: {'$.n[*]': 3}}"),
            ("{client: 127.0.0.0/8}", "{client: 10.0.0.1}"),
            ("{user: ann}", "{user: bob}"),
            ("{listener: proxy}", "{listener: gateway}"),
            ("{tag: seen}", "{tag: unseen}"),
            ("{variable: {x: 1}}", "{variable: {x: 2}}"),
            ("{chance: 1}", "{chance: 0}"),
            ("{first: 1}", "{first: 0}"),
            ("{every: 1}", "{between: '00:00-00:00'}"),
            ("{any: ['host:b.test', {port: 8080}]}", "{any: []}"),
            ("{all: ['host:api.a.test', {port: 8080}]}", "{all: ['host:api.a.test', {port: 80}]}"),
            ("{not: {port: 80}}", "{not: {port: 8080}}"),
            ("{query: 'method:POST', host: api.a.test}", "{query: 'method:GET', host: api.a.test}"),
            ("{host: '${var.x}', not: {}}", "{header: {x-debug: '${var.x}'}}"),
        ] {
            let view = s.view(Phase::ResponseBody, &constants);
            if !yes.contains("not: {}") {
                assert!(read(yes).unwrap().evaluate(&view).holds(), "{yes}");
            }
            assert!(!read(no).unwrap().evaluate(&view).holds(), "{no}");
        }
    }

    #[test]
    fn messages_are_matched_by_text_and_direction() {
        let s = FlowFixture::for_get("http://a.test/").with_message(Direction::Response, "hello");
        let constants = Vec::new();
        let mut view = s.view(Phase::Message, &constants);
        view.message = s.messages.first();
        assert!(read("{message: {contains: ell}, from: server}").unwrap().evaluate(&view).holds());
        assert!(!read("{message: {contains: ell}, from: client}").unwrap().evaluate(&view).holds());
        assert!(read("resp.body:hello").unwrap().evaluate(&view).holds());
    }

    #[test]
    fn invalid_definitions_are_reported_with_a_hint() {
        for (text, part) in [
            ("{hots: a}", "unknown field `hots`"),
            ("hots:a", "did you mean 'host'?"),
            ("host:a.test or host:b.test", "column 13: `or` is searched as a word: write OR for the operator"),
            ("{query: not host:a.test}", "write NOT for the operator"),
            ("{any: [host:b.test and method:GET]}", "write AND for the operator"),
            ("{path: {regex: 'a('}}", "unclosed group"),
            ("{path: {exact: a, regex: b}}", "one of exact"),
            ("{status: many}", "status"),
            ("{chance: 2}", "between 0 and 1"),
            ("{every: 0}", "from 1"),
            ("{between: noon}", "22:00-06:00"),
            ("{json: {'model': x}}", "not a valid JSONPath"),
            ("{host: '${hots}'}", "did you mean `${host}`?"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
