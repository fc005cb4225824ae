//! Text predicates, and the textual fields of a flow on which they are evaluated.

use std::borrow::Cow;

use interflow_query::{TAGS, Tristate};
use interflow_types::{Direction, Phase};
use regex::bytes::Regex;

use crate::flow::view::FlowView;
use crate::matching::graphql;
use crate::matching::regex_limits::{build_regex, search_regex};
use crate::text::json::JsonPath;
use crate::text::template::TextTemplate;

/// How a text is compared with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchMode {
    /// The whole text.
    Exact,
    Contains,
    Prefix,
    Suffix,
    /// A regular expression, unanchored.
    Regex,
}

/// A predicate on a text.
#[derive(Clone, Debug)]
pub enum TextPredicate {
    /// Any value, if there is one.
    Present,
    /// A literal pattern with mode and whether case is ignored; compiled for `Contains` and `Regex`.
    Fixed(MatchMode, String, bool, Option<Regex>),
    /// A template with mode and whether case is ignored; rendered for each evaluation.
    Filled(MatchMode, TextTemplate, bool),
}

impl TextPredicate {
    /// A predicate whose pattern may be a template.
    ///
    /// # Errors
    /// A regex that is malformed or too large.
    pub fn new(mode: MatchMode, pattern: TextTemplate, ignore_case: bool) -> Result<Self, String> {
        let Some(text) = pattern.as_literal() else { return Ok(Self::Filled(mode, pattern, ignore_case)) };
        Self::fixed(mode, text, ignore_case)
    }

    /// A predicate with this pattern, compiled once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn fixed(mode: MatchMode, text: &str, ignore_case: bool) -> Result<Self, String> {
        Ok(Self::Fixed(mode, text.to_owned(), ignore_case, compile(mode, text, ignore_case)?))
    }

    /// A glob: `*` matches anything, other characters themselves.
    ///
    /// # Errors
    /// A glob that is too large.
    pub fn glob(text: &str, ignore_case: bool) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Present);
        }
        let is_plain = |part: &&str| !part.contains('*');
        if is_plain(&text) {
            return Self::fixed(MatchMode::Exact, text, ignore_case);
        }
        if let Some(end) = text.strip_prefix('*').filter(is_plain) {
            return Self::fixed(MatchMode::Suffix, end, ignore_case);
        }
        if let Some(start) = text.strip_suffix('*').filter(is_plain) {
            return Self::fixed(MatchMode::Prefix, start, ignore_case);
        }
        let source = text.split('*').map(regex::escape).collect::<Vec<_>>().join("(?s:.*)");
        Self::fixed(MatchMode::Regex, &format!("^{source}$"), ignore_case)
    }

    /// Whether a value matches. Case is ignored for ASCII letters only, except in regexes.
    pub(crate) fn fits(&self, value: &[u8], view: &FlowView<'_>) -> bool {
        match self {
            Self::Present => true,
            Self::Fixed(mode, text, ignore_case, built) => compare(*mode, value, text, *ignore_case, built.as_ref()),
            Self::Filled(mode, template, ignore_case) => {
                let text = template.render_view(view);
                // A rendered pattern that is malformed matches nothing.
                compile(*mode, &text, *ignore_case)
                    .is_ok_and(|built| compare(*mode, value, &text, *ignore_case, built.as_ref()))
            }
        }
    }

    /// The regex, if it has named groups, which become variables.
    pub(crate) fn capturing_regex(&self) -> Option<&Regex> {
        match self {
            Self::Fixed(MatchMode::Regex, _, _, Some(regex)) if group_names(regex).next().is_some() => Some(regex),
            _ => None,
        }
    }

    /// For explanations: `is "x"`.
    pub fn describe(&self) -> String {
        let (mode, text) = match self {
            Self::Present => return "is there".into(),
            Self::Fixed(mode, text, ..) => (mode, text.as_str()),
            Self::Filled(mode, template, _) => (mode, template.source()),
        };
        match mode {
            MatchMode::Exact => format!("is \"{text}\""),
            MatchMode::Contains => format!("contains \"{text}\""),
            MatchMode::Prefix => format!("starts with \"{text}\""),
            MatchMode::Suffix => format!("ends with \"{text}\""),
            MatchMode::Regex => format!("fits /{text}/"),
        }
    }
}

pub(crate) fn group_names(regex: &Regex) -> impl Iterator<Item = &str> {
    regex.capture_names().flatten()
}

/// The regex of the modes that need one.
fn compile(mode: MatchMode, text: &str, ignore_case: bool) -> Result<Option<Regex>, String> {
    match mode {
        MatchMode::Regex => build_regex(text, ignore_case).map(Some),
        MatchMode::Contains => search_regex(text, ignore_case).map(Some),
        _ => Ok(None),
    }
}

fn compare(mode: MatchMode, value: &[u8], text: &str, ignore_case: bool, built: Option<&Regex>) -> bool {
    let text = text.as_bytes();
    let same = |a: &[u8], b: &[u8]| if ignore_case { a.eq_ignore_ascii_case(b) } else { a == b };
    match mode {
        MatchMode::Exact => same(value, text),
        MatchMode::Prefix => value.get(..text.len()).is_some_and(|v| same(v, text)),
        MatchMode::Suffix => value.len() >= text.len() && same(&value[value.len() - text.len()..], text),
        MatchMode::Contains | MatchMode::Regex => built.is_some_and(|r| r.is_match(value)),
    }
}

/// A textual field of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum TextField {
    Host,
    Url,
    Path,
    Target,
    /// The query without its question mark.
    Query,
    Method,
    Header(Direction, String),
    /// A query parameter by its decoded name, or any.
    Param(Option<String>),
    Cookie(String),
    /// A cookie that the response sets, or any.
    SetCookie(Option<String>),
    MediaType(Direction),
    ClientIp,
    UpstreamIp,
    /// The client's product name from `User-Agent`: `Chrome`, `curl`.
    Agent,
    User,
    Listener,
    Variable(String),
    Body(Direction),
    Message,
    Json(Direction, JsonPath),
    Tag,
    /// The tags set by rules and people, without Interflow's own, comments and colours.
    OwnerTag,
    /// The service and method of a gRPC call: `pkg.Service/Method`.
    GrpcMethod,
    GraphqlOperation,
}

impl TextField {
    /// The earliest phase in which it is known. Tags and variables may still change later, but count as known.
    pub fn phase(&self) -> Phase {
        match self {
            Self::Host
            | Self::User
            | Self::Listener
            | Self::Tag
            | Self::OwnerTag
            | Self::Variable(_)
            | Self::ClientIp => Phase::Authority,
            Self::Url
            | Self::Path
            | Self::Target
            | Self::Query
            | Self::Method
            | Self::Param(_)
            | Self::Cookie(_)
            | Self::Agent
            | Self::GrpcMethod
            | Self::Header(Direction::Request, _)
            | Self::MediaType(Direction::Request) => Phase::RequestHead,
            Self::Body(Direction::Request) | Self::Json(Direction::Request, _) | Self::GraphqlOperation => {
                Phase::RequestBody
            }
            Self::Header(..) | Self::MediaType(_) | Self::SetCookie(_) | Self::UpstreamIp => Phase::ResponseHead,
            Self::Body(_) | Self::Json(..) => Phase::ResponseBody,
            Self::Message => Phase::Message,
        }
    }

    /// Calls `fits` with each value until it returns true.
    pub(crate) fn evaluate(&self, view: &FlowView<'_>, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        match self {
            Self::Host => Tristate::Known(view.with_host(|h| fits(h.as_bytes()))),
            Self::User => matches_any(view.flow.user.iter().map(|u| u.as_bytes()), fits),
            Self::Listener => Tristate::Known(fits(view.flow.client.listener.as_bytes())),
            Self::Tag => matches_any(view.flow.tags.iter().map(|t| t.as_str().as_bytes()), fits),
            Self::OwnerTag => {
                let own = |t: &&interflow_types::ByteStr| !TAGS.iter().any(|tag| tag.is_of(t));
                matches_any(view.flow.tags.iter().filter(own).map(|t| t.as_str().as_bytes()), fits)
            }
            Self::Variable(name) => matches_any(view.variable(name).iter().map(|v| v.as_bytes()), fits),
            Self::ClientIp => Tristate::Known(fits(view.flow.client.peer.ip().to_canonical().to_string().as_bytes())),
            Self::UpstreamIp => match view.flow.upstream.as_ref().and_then(|u| u.peer) {
                Some(peer) => Tristate::Known(fits(peer.ip().to_canonical().to_string().as_bytes())),
                None => view.no_response(),
            },
            Self::Header(side, name) => match view.head_of(*side) {
                Some(headers) => matches_any(headers.get_all(name), fits),
                None => view.no_head(*side),
            },
            Self::MediaType(side) => match view.head_of(*side) {
                Some(headers) => matches_any(headers.get("content-type").into_iter(), fits),
                None => view.no_head(*side),
            },
            Self::SetCookie(name) => match view.response {
                Some(r) => {
                    let mut values = crate::text::cookies::response_cookies(&r.headers)
                        .filter(|(n, _)| name.as_ref().is_none_or(|name| *n == name.as_bytes()));
                    Tristate::Known(values.any(|(_, v)| fits(v)))
                }
                None => view.no_response(),
            },
            Self::Message => view.message.map_or(Tristate::NotYet, |m| view.message_text(m, fits)),
            Self::Body(side) => match view.message.filter(|m| m.direction == *side) {
                Some(m) => view.message_text(m, fits),
                None => view
                    .body_of(*side)
                    .map_or(Tristate::NotYet, |b| Tristate::Known(b.readings().any(|text| fits(text)))),
            },
            Self::Json(side, path) => view.json(*side, path, fits),
            Self::GraphqlOperation => graphql::evaluate_operations(view, fits),
            _ => match view.request {
                Some(request) => self.evaluate_request(view, request, fits),
                None => view.no_request(),
            },
        }
    }

    fn evaluate_request(
        &self,
        view: &FlowView<'_>,
        request: &interflow_types::RequestHead,
        fits: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Tristate {
        Tristate::Known(match self {
            Self::Url => fits(view.url().as_bytes()),
            Self::Path => fits(request.url.path_only().as_bytes()),
            Self::Target => fits(request.url.path.as_bytes()),
            Self::Query => request.url.query().is_some_and(|query| fits(query.as_bytes())),
            Self::Method => fits(request.method.as_str().as_bytes()),
            Self::Param(name) => request.url.query().is_some_and(|q| {
                crate::text::query_params::decode_pairs(q)
                    .any(|(n, v)| name.as_ref().is_none_or(|w| *w == n) && fits(v.as_bytes()))
            }),
            Self::Cookie(name) => crate::text::cookies::request_cookies(&request.headers)
                .any(|(n, v)| n.eq_ignore_ascii_case(name.as_bytes()) && fits(v)),
            Self::Agent => fits(user_agent_name(request.headers.get_str("user-agent").unwrap_or_default()).as_bytes()),
            Self::GrpcMethod => fits(request.url.path_only().trim_start_matches('/').as_bytes()),
            _ => false,
        })
    }

    /// The values, for explanations: at most three, of 80 bytes each.
    pub(crate) fn sample_values(&self, view: &FlowView<'_>) -> Vec<String> {
        let mut values = Vec::new();
        let _ = self.evaluate(view, &mut |v| {
            let text = String::from_utf8_lossy(&v[..v.len().min(80)]).into_owned();
            values.push(if v.len() > 80 { text + "…" } else { text });
            values.len() == 3
        });
        values
    }

    /// The name in explanations.
    pub fn describe(&self) -> Cow<'static, str> {
        let side = |d: &Direction| if *d == Direction::Request { "request" } else { "response" };
        Cow::Borrowed(match self {
            Self::Host => "host",
            Self::Url => "url",
            Self::Path => "path",
            Self::Target => "path with query",
            Self::Query => "query",
            Self::Method => "method",
            Self::ClientIp => "client address",
            Self::UpstreamIp => "upstream address",
            Self::Agent => "agent",
            Self::User => "user",
            Self::Listener => "listener",
            Self::Message => "message",
            Self::Tag | Self::OwnerTag => "tag",
            Self::GrpcMethod => "gRPC method",
            Self::GraphqlOperation => "GraphQL operation",
            Self::Param(None) => "any query parameter",
            Self::Header(d, name) => return format!("{} header {name}", side(d)).into(),
            Self::Param(Some(name)) => return format!("query parameter {name}").into(),
            Self::Cookie(name) => return format!("cookie {name}").into(),
            Self::SetCookie(None) => "any cookie set by the response",
            Self::SetCookie(Some(name)) => return format!("cookie {name} set by the response").into(),
            Self::MediaType(d) => return format!("{} content type", side(d)).into(),
            Self::Variable(name) => return format!("variable {name}").into(),
            Self::Body(d) => return format!("{} body", side(d)).into(),
            Self::Json(d, path) => return format!("{path} of the {} body", side(d)).into(),
        })
    }
}

fn matches_any<'v>(mut values: impl Iterator<Item = &'v [u8]>, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
    Tristate::Known(values.any(fits))
}

/// The product name of a `User-Agent`. The order of the known ones matters, since browsers also name those they are
/// compatible with.
fn user_agent_name(user_agent: &str) -> &str {
    const KNOWN: [(&str, &str); 10] = [
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("CriOS/", "Chrome"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
        ("PostmanRuntime", "Postman"),
        ("okhttp", "OkHttp"),
        ("python-requests", "Python"),
        ("Go-http-client", "Go"),
    ];
    let known = KNOWN.iter().find(|(mark, _)| user_agent.contains(mark)).map(|(_, name)| *name);
    known.or_else(|| user_agent.split(['/', ' ']).next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::fixture::FlowFixture;

    #[test]
    fn texts_compare_in_every_mode() {
        let sample = FlowFixture::for_get("http://a.test/");
        let constants = Vec::new();
        let view = sample.view(Phase::RequestHead, &constants);
        for (mode, text, ignore, value, fits) in [
            (MatchMode::Exact, "Ab", true, "aB", true),
            (MatchMode::Exact, "Ab", false, "aB", false),
            (MatchMode::Contains, "b.", true, "aB.c", true),
            (MatchMode::Contains, "b.", true, "abxc", false),
            (MatchMode::Prefix, "ab", true, "ABC", true),
            (MatchMode::Prefix, "abcd", true, "abc", false),
            (MatchMode::Suffix, "bc", true, "aBC", true),
            (MatchMode::Suffix, "xabc", true, "abc", false),
            (MatchMode::Regex, "^a.c$", false, "abc", true),
            (MatchMode::Regex, "^a.c$", false, "xabc", false),
        ] {
            let test = TextPredicate::fixed(mode, text, ignore).unwrap();
            assert_eq!(test.fits(value.as_bytes(), &view), fits, "{mode:?} {text} {value}");
            let filled = TextPredicate::Filled(mode, TextTemplate::literal(text), ignore);
            assert_eq!(filled.fits(value.as_bytes(), &view), fits, "filled {mode:?} {text} {value}");
        }
    }

    #[test]
    fn tags_of_interflow_are_not_tags_of_the_owner() {
        let constants = Vec::new();
        for (tag, is_own) in [
            ("mine", true),
            ("media-x", true),
            ("media", false),
            ("composed", false),
            ("key:a", false),
            ("colour:red", false),
        ] {
            let mut sample = FlowFixture::for_get("http://a.test/");
            sample.flow.tag(tag);
            let view = sample.view(Phase::RequestHead, &constants);
            assert_eq!(TextField::OwnerTag.evaluate(&view, &mut |_| true).holds(), is_own, "{tag}");
        }
    }

    #[test]
    fn globs_match_whole_texts() {
        let sample = FlowFixture::for_get("http://a.test/");
        let constants = Vec::new();
        let view = sample.view(Phase::RequestHead, &constants);
        for (glob, value, fits) in [
            ("*.a.test", "x.a.test", true),
            ("*.a.test", "a.test", false),
            ("/v1/*", "/v1/x/y", true),
            ("/v*/x*", "/v1/x2", true),
            ("/v*/x", "/v1/x2", false),
            ("*", "", true),
        ] {
            assert_eq!(TextPredicate::glob(glob, true).unwrap().fits(value.as_bytes(), &view), fits, "{glob} {value}");
        }
    }

    #[test]
    fn oversized_and_malformed_regexes_are_reported() {
        assert!(build_regex("\\w{1000}{10}", false).unwrap_err().contains("too large"));
        assert!(build_regex("a(", false).unwrap_err().contains("unclosed group"));
        assert!(build_regex("(?=a)", false).unwrap_err().contains("look-around"));
    }

    #[test]
    fn graphql_operations_are_found_by_name_or_in_the_document() {
        for (body, name) in [
            (r#"{"operationName":"GetUser","query":"query X{a}"}"#, Some("GetUser")),
            (r#"{"query":"mutation AddOne($a:Int){add(a:$a)}"}"#, Some("AddOne")),
            (r#"{"query":"{ a }"}"#, None),
            ("no json", None),
        ] {
            let mut sample = FlowFixture::for_request("POST", "http://a.test/graphql").unwrap();
            sample.request_body = body.into();
            let constants = Vec::new();
            let mut seen = None;
            let _ = TextField::GraphqlOperation.evaluate(&sample.view(Phase::RequestBody, &constants), &mut |n| {
                seen = Some(String::from_utf8_lossy(n).into_owned());
                true
            });
            assert_eq!(seen.as_deref(), name, "{body}");
        }
    }

    #[test]
    fn user_agents_are_identified_by_product() {
        assert_eq!(user_agent_name("Mozilla/5.0 (X11) AppleWebKit/537.36 Chrome/126.0 Safari/537.36 Edg/126"), "Edge");
        assert_eq!(user_agent_name("curl/8.1"), "curl");
        assert_eq!(user_agent_name(""), "");
    }
}
