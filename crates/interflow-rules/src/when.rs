//! `when:` of a rule file: a query, or matchers by name.

use std::borrow::Cow;
use std::fmt;

use interflow_flow::Direction;
use interflow_query::Query;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use crate::cond::Cond;
use crate::json::Path;
use crate::template::{Template, scalar};
use crate::text::{Mode, Place, TextTest};

/// A condition as it was read.
#[derive(Clone, Debug)]
pub struct When(pub Cond);

impl Default for When {
    fn default() -> Self {
        Self(Cond::Always(true))
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = When;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a query, or matchers by name")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<When, E> {
                let query = Query::parse(s).map_err(|e| E::custom(format!("the query `{s}`, {e}")))?;
                Ok(When(Cond::query(query)))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<When, A::Error> {
                Matchers::deserialize(MapAccessDeserializer::new(map))?.cond().map(When).map_err(de::Error::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl JsonSchema for When {
    fn schema_name() -> Cow<'static, str> {
        "When".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let matchers = g.subschema_for::<Matchers>();
        json_schema!({ "anyOf": [{ "type": "string", "description": "A query, as `interflow flows list` takes it." }, matchers] })
    }
}

/// A text pattern: a text or glob that must fit as a whole in either case, or one of the named forms.
#[derive(Clone, Debug)]
pub struct Pattern(Vec<TextTest>);

/// A pattern by name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PatternMap {
    /// The whole text.
    #[serde(default)]
    exact: Option<Template>,
    /// A text in it.
    #[serde(default)]
    contains: Option<Template>,
    /// Its start.
    #[serde(default)]
    prefix: Option<Template>,
    /// Its end.
    #[serde(default)]
    suffix: Option<Template>,
    /// A regular expression found in it; named groups become variables of the flow.
    #[serde(default)]
    regex: Option<Template>,
    /// Whether letters fit in either case; true, but for a regex.
    #[serde(default)]
    ignore_case: Option<bool>,
}

impl PatternMap {
    fn test(self) -> Result<TextTest, String> {
        let forms = [
            (Mode::Exact, self.exact),
            (Mode::Contains, self.contains),
            (Mode::Prefix, self.prefix),
            (Mode::Suffix, self.suffix),
            (Mode::Regex, self.regex),
        ];
        let mut given = forms.into_iter().filter_map(|(mode, t)| t.map(|t| (mode, t)));
        match (given.next(), given.next()) {
            (Some((mode, text)), None) => TextTest::new(mode, text, self.ignore_case.unwrap_or(mode != Mode::Regex)),
            _ => Err("a pattern has one of exact, contains, prefix, suffix and regex".into()),
        }
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Pattern;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a list of them, or a pattern such as { regex: \"^/v[0-9]/\" }")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<Pattern, E> {
                let test = match Template::parse(s).map_err(E::custom)? {
                    t if t.as_literal().is_some() => TextTest::glob(t.as_literal().unwrap_or_default(), true),
                    t => TextTest::new(Mode::Exact, t, true),
                };
                Ok(Pattern(vec![test.map_err(E::custom)?]))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Pattern, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Pattern, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Pattern, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_bool<E: de::Error>(self, b: bool) -> Result<Pattern, E> {
                self.visit_str(if b { "true" } else { "false" })
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Pattern, A::Error> {
                let mut all = Vec::new();
                while let Some(p) = seq.next_element::<Pattern>()? {
                    all.extend(p.0);
                }
                Ok(Pattern(all))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Pattern, A::Error> {
                let map = PatternMap::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Pattern(vec![map.test().map_err(de::Error::custom)?]))
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl JsonSchema for Pattern {
    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let map = g.subschema_for::<PatternMap>();
        json_schema!({ "anyOf": [
            { "type": ["string", "number", "boolean"], "description": "The whole text in either case; * stands for anything." },
            { "type": "array", "items": { "$ref": "#/$defs/Pattern" } },
            map,
        ] })
    }
}

impl Pattern {
    fn on(self, place: &Place) -> Cond {
        Cond::or(self.0.into_iter().map(|t| Cond::Text(place.clone(), t)).collect())
    }
}

/// Patterns by name: `{ X-Debug: "1" }`; a list of names asks for their presence.
#[derive(Clone, Debug, Default)]
pub struct Named(Vec<(String, Pattern)>);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Named;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("patterns by name, or names that must be there")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<Named, E> {
                Ok(Named(vec![(s.to_owned(), Pattern(vec![TextTest::Present]))]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Named, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = seq.next_element::<String>()? {
                    all.push((name, Pattern(vec![TextTest::Present])));
                }
                Ok(Named(all))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Named, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    all.push((name, map.next_value()?));
                }
                Ok(Named(all))
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl JsonSchema for Named {
    fn schema_name() -> Cow<'static, str> {
        "Named".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let pattern = g.subschema_for::<Pattern>();
        json_schema!({ "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" } },
            { "type": "object", "additionalProperties": pattern },
        ] })
    }
}

/// One text or several.
#[derive(Clone, Debug, Default)]
pub struct Texts(pub Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<Texts, E> {
                Ok(Texts(vec![s.to_owned()]))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Texts, E> {
                Ok(Texts(vec![n.to_string()]))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Texts, E> {
                Ok(Texts(vec![n.to_string()]))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Texts, E> {
                Ok(Texts(vec![n.to_string()]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
                struct One(String);
                impl<'de> Deserialize<'de> for One {
                    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                        scalar(d).map(One)
                    }
                }
                let mut all = Vec::new();
                while let Some(One(text)) = seq.next_element()? {
                    all.push(text);
                }
                Ok(Texts(all))
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl JsonSchema for Texts {
    fn schema_name() -> Cow<'static, str> {
        "Texts".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer", "array"], "items": { "type": ["string", "integer"] } })
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum From {
    /// From the client.
    Client,
    /// From the server.
    Server,
}

/// Matchers by name; all that are given must hold.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Matchers {
    /// A query.
    query: Option<Box<When>>,
    /// Host of the origin.
    host: Option<Pattern>,
    /// Port of the origin.
    port: Option<u16>,
    /// Whole URL.
    url: Option<Pattern>,
    /// Path without the query.
    path: Option<Pattern>,
    /// Request method.
    method: Option<Pattern>,
    /// Query parameters by name.
    param: Named,
    /// Request header fields by name.
    header: Named,
    /// Cookies of the request by name.
    cookie: Named,
    /// Media type of the request, parameters included.
    request_type: Option<Pattern>,
    /// Body of the request.
    request_body: Option<Pattern>,
    /// Values in the request's JSON body by JSONPath.
    json: Named,
    /// Operation of a GraphQL request.
    graphql: Option<Pattern>,
    /// Service and method of a gRPC call: `pkg.Service/Method`.
    grpc: Option<Pattern>,
    /// Status codes: `404`, `5xx`, `400..499`.
    status: Texts,
    /// Response header fields by name.
    response_header: Named,
    /// Cookies that the response sets, by name.
    set_cookie: Named,
    /// Media type of the response, parameters included.
    response_type: Option<Pattern>,
    /// Body of the response.
    response_body: Option<Pattern>,
    /// Values in the response's JSON body by JSONPath.
    response_json: Named,
    /// Payload of a message.
    message: Option<Pattern>,
    /// Which way a message goes.
    from: Option<From>,
    /// Address or network of the client.
    client: Texts,
    /// User of the proxy.
    user: Option<Pattern>,
    /// Name of the listener.
    listener: Option<Pattern>,
    /// Tags on the flow.
    tag: Option<Pattern>,
    /// Variables by name.
    variable: Named,
    /// A probability from 0 to 1.
    chance: Option<f64>,
    /// Only every so many times.
    every: Option<u64>,
    /// Only the first so many times since the rules were loaded.
    first: Option<u64>,
    /// Between two times of day in UTC: `22:00-06:00`.
    between: Option<String>,
    /// All of these.
    all: Vec<When>,
    /// One of these.
    any: Option<Vec<When>>,
    /// Not this.
    not: Option<Box<When>>,
}

impl Matchers {
    fn cond(self) -> Result<Cond, String> {
        use Direction::{Request, Response};
        let mut all: Vec<Cond> = Vec::new();
        all.extend(self.query.map(|w| w.0));
        let single = [
            (Place::Host, self.host),
            (Place::Url, self.url),
            (Place::Path, self.path),
            (Place::Method, self.method),
            (Place::MediaType(Request), self.request_type),
            (Place::MediaType(Response), self.response_type),
            (Place::Body(Request), self.request_body),
            (Place::Body(Response), self.response_body),
            (Place::GraphqlOperation, self.graphql),
            (Place::GrpcMethod, self.grpc),
            (Place::Message, self.message),
            (Place::User, self.user),
            (Place::Listener, self.listener),
            (Place::Tag, self.tag),
        ];
        all.extend(single.into_iter().filter_map(|(place, p)| p.map(|p| p.on(&place))));
        type Make = fn(String) -> Place;
        let named: [(Make, Named); 6] = [
            (|n| Place::Param(Some(n)), self.param),
            (|n| Place::Header(Request, n), self.header),
            (Place::Cookie, self.cookie),
            (|n| Place::Header(Response, n), self.response_header),
            (|n| Place::SetCookie(Some(n)), self.set_cookie),
            (Place::Variable, self.variable),
        ];
        for (place, patterns) in named {
            all.extend(patterns.0.into_iter().map(|(name, p)| p.on(&place(name))));
        }
        for (side, patterns) in [(Request, self.json), (Response, self.response_json)] {
            for (path, pattern) in patterns.0 {
                all.push(pattern.on(&Place::Json(side, Path::parse(&path)?)));
            }
        }
        all.extend(self.port.map(|p| term("port", &p.to_string())).transpose()?);
        all.extend(terms("status", &self.status)?);
        all.extend(terms("client", &self.client)?);
        all.extend(self.from.map(|f| Cond::Direction(if matches!(f, From::Client) { Request } else { Response })));
        all.extend(self.all.into_iter().map(|w| w.0));
        all.extend(self.any.map(|any| Cond::or(any.into_iter().map(|w| w.0).collect())));
        all.extend(self.not.map(|w| w.0.not()));
        all.extend(self.between.map(|b| between(&b)).transpose()?);
        if let Some(p) = self.chance {
            if !(0.0..=1.0).contains(&p) {
                return Err(format!("a chance lies between 0 and 1, and {p} does not"));
            }
            all.push(Cond::Chance(p));
        }
        if self.every == Some(0) {
            return Err("`every` counts from 1".into());
        }
        all.extend(self.every.map(|n| Cond::Every(n, Default::default())));
        all.extend(self.first.map(|n| Cond::First(n, Default::default())));
        Ok(Cond::and(all))
    }
}

fn term(key: &str, value: &str) -> Result<Cond, String> {
    Query::parse(&format!("{key}:{value}")).map(Cond::query).map_err(|e| {
        let remedy = e.remedy.map(|r| format!(": {r}")).unwrap_or_default();
        format!("`{key}: {value}`: {}{remedy}", e.message)
    })
}

fn terms(key: &str, values: &Texts) -> Result<Option<Cond>, String> {
    let all = values.0.iter().map(|v| term(key, v)).collect::<Result<Vec<_>, _>>()?;
    Ok((!all.is_empty()).then(|| Cond::or(all)))
}

fn between(text: &str) -> Result<Cond, String> {
    let minute = |t: &str| {
        let (h, m) = t.trim().split_once(':')?;
        let (h, m): (u32, u32) = (h.parse().ok()?, m.parse().ok()?);
        (h < 24 && m < 60).then_some(h * 60 + m)
    };
    let both = text.split_once('-').and_then(|(a, b)| Some((minute(a)?, minute(b)?)));
    both.map(|(a, b)| Cond::Between(a, b)).ok_or_else(|| format!("`{text}` is no time of day: write it as 22:00-06:00"))
}

#[cfg(test)]
mod tests {
    use interflow_flow::Phase;

    use super::*;
    use crate::sample::Sample;

    fn read(text: &str) -> Result<Cond, String> {
        interflow_wire::yaml::from_str::<When>(text).map(|w| w.0).map_err(|e| e.to_string())
    }

    #[test]
    fn every_matcher_says_yes_and_no() {
        let sample = || {
            Sample::request("POST", "http://api.a.test:8080/v1/x?page=2&q=a%20b")
                .unwrap()
                .header("X-Debug", "on")
                .unwrap()
                .header("Cookie", "sid=7; t=1")
                .unwrap()
                .header("Content-Type", "application/json; charset=utf-8")
                .unwrap()
                .responding(
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
                assert!(read(yes).unwrap().ask(&view).holds(), "{yes}");
            }
            assert!(!read(no).unwrap().ask(&view).holds(), "{no}");
        }
    }

    #[test]
    fn messages_are_matched_by_text_and_way() {
        let s = Sample::get("http://a.test/").message(Direction::Response, "hello");
        let constants = Vec::new();
        let mut view = s.view(Phase::Message, &constants);
        view.message = s.messages.first();
        assert!(read("{message: {contains: ell}, from: server}").unwrap().ask(&view).holds());
        assert!(!read("{message: {contains: ell}, from: client}").unwrap().ask(&view).holds());
        assert!(read("resp.body:hello").unwrap().ask(&view).holds());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("{hots: a}", "unknown field `hots`"),
            ("hots:a", "did you mean 'host'?"),
            ("{path: {regex: 'a('}}", "unclosed group"),
            ("{path: {exact: a, regex: b}}", "one of exact"),
            ("{status: many}", "status"),
            ("{chance: 2}", "between 0 and 1"),
            ("{every: 0}", "from 1"),
            ("{between: noon}", "22:00-06:00"),
            ("{json: {'model': x}}", "no JSONPath"),
            ("{host: '${hots}'}", "did you mean `${host}`?"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
