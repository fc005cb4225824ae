//! What rules can read of a flow at one phase; the subject of queries.

use std::cell::OnceCell;
use std::net::SocketAddr;

use interflow_query::{Fact, Flag, Key, QuerySubject, Tristate};
use interflow_types::{
    Authority, Direction, Flow, Headers, Host, MessageKind, Phase, RequestHead, ResponseHead, Scheme, StreamMessage,
    Timestamp,
};

use crate::body::content::BodyContent;
use crate::flow::exec_run::ExecAnswers;
use crate::flow::flow_state::RuleState;
use crate::flow::json_answers::{JsonAnswers, evaluate_now};
use crate::text::json::JsonPath;

/// Constants of the rule files, sorted by name for binary search.
pub(crate) type RuleConstants = Vec<(String, String)>;

/// A flow at one phase, as conditions and templates see it. Data of later phases is `None`.
pub(crate) struct FlowView<'a> {
    pub phase: Phase,
    pub flow: &'a Flow,
    pub request: Option<&'a RequestHead>,
    pub response: Option<&'a ResponseHead>,
    pub request_body: Option<BodyContent>,
    pub response_body: Option<BodyContent>,
    pub message: Option<&'a StreamMessage>,
    /// Whether the content of the message is not known.
    pub message_is_unread: bool,
    pub constants: &'a RuleConstants,
    /// Shared cache of the URL text for several views of the same request.
    pub shared_url: Option<&'a OnceCell<String>>,
    /// What programs answered; `None` where they are not run.
    pub exec: Option<&'a ExecAnswers>,
    /// What JSONPaths select; `None` where nothing can be waited for.
    pub json: Option<&'a JsonAnswers>,
    url: OnceCell<String>,
}

impl<'a> FlowView<'a> {
    pub fn new(phase: Phase, flow: &'a Flow, constants: &'a RuleConstants) -> Self {
        Self {
            phase,
            flow,
            request: None,
            response: None,
            request_body: None,
            response_body: None,
            message: None,
            message_is_unread: false,
            constants,
            shared_url: None,
            exec: None,
            json: None,
            url: OnceCell::new(),
        }
    }

    /// A variable of the flow, or a constant of the files.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let own = self.flow.extension::<RuleState>().and_then(|s| s.variable(name));
        own.or_else(|| {
            let at = self.constants.binary_search_by(|(n, _)| n.as_str().cmp(name)).ok()?;
            self.constants.get(at).map(|(_, v)| v.as_str())
        })
    }

    /// Whether the rules alone determine the value of a variable, whatever peers send.
    pub fn is_fixed(&self, name: &str) -> bool {
        self.flow.extension::<RuleState>().is_none_or(|s| s.is_fixed(name))
    }

    pub fn scheme(&self) -> Scheme {
        self.request.map_or(self.flow.scheme, |r| r.url.scheme)
    }

    /// The request's URL, or the authority before the request is known.
    pub fn url(&self) -> &str {
        self.shared_url.unwrap_or(&self.url).get_or_init(|| match self.request {
            Some(r) => format_url(&r.url),
            None => {
                let Authority { host, port } = &self.flow.authority;
                let named = Authority::new(host.canonical().into_owned(), *port);
                format!("{}://{}/", self.flow.scheme, named.to_host_header(self.flow.scheme))
            }
        })
    }

    /// Calls `see` with the host: lower case, no final dot, IPv6 without brackets. How it is spelled must not evade a rule.
    pub fn with_host<T>(&self, see: impl FnOnce(&str) -> T) -> T {
        match &*self.flow.authority.host.canonical() {
            Host::Name(name) => see(name),
            Host::Ip(ip) => see(&ip.to_string()),
        }
    }

    pub fn head_of(&self, side: Direction) -> Option<&'a Headers> {
        match side {
            Direction::Request => self.request.map(|r| &r.headers),
            Direction::Response => self.response.map(|r| &r.headers),
        }
    }

    /// The body of one side, once it is complete.
    pub fn body_of(&self, side: Direction) -> Option<&BodyContent> {
        match side {
            Direction::Request => self.request_body.as_ref(),
            Direction::Response => self.response_body.as_ref(),
        }
    }

    /// Calls `fits` with what the path selects in the body or message of one side, until it returns true. A string is
    /// compared as it is, any other value as JSON text; a body that is not JSON has no values.
    pub fn json(&self, side: Direction, path: &JsonPath, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        let message = self.message.filter(|m| m.direction == side);
        if message.is_some() && self.message_is_unread {
            return Tristate::NotYet;
        }
        let message = message.map(|m| BodyContent::from(m.payload.clone()));
        let Some(content) = message.as_ref().or(self.body_of(side)) else { return Tristate::NotYet };
        let selected = match self.json {
            Some(answers) => answers.select(side, path, content),
            None => Some(evaluate_now(side, path, content)),
        };
        match selected {
            Some(Ok(values)) => Tristate::Known(values.iter().any(|v| fits(v))),
            // Not known: neither the condition nor its opposite holds.
            Some(Err(_)) | None => Tristate::NotYet,
        }
    }

    /// Compares the content of a message; open if it cannot be read.
    pub fn message_text(&self, message: &StreamMessage, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        if self.message_is_unread { Tristate::NotYet } else { Tristate::Known(fits(&message.payload)) }
    }

    /// Compares the media type of one side, without its parameters.
    fn media_type(&self, side: Direction, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let Some(headers) = self.head_of(side) else { return self.no_head(side) };
        let text = headers.get_str("content-type");
        Tristate::any(text.map(|t| t.split(';').next().unwrap_or(t).trim()), fits)
    }

    fn request_text(
        &self,
        text: impl FnOnce(&'a RequestHead) -> Option<&'a str>,
        fits: &mut dyn FnMut(&str) -> bool,
    ) -> Tristate {
        if let Some(r) = self.request { Tristate::any(text(r), fits) } else { self.no_request() }
    }

    /// What is known of a head that is missing: whether it may still arrive.
    pub fn no_head(&self, side: Direction) -> Tristate {
        match side {
            Direction::Request => self.no_request(),
            Direction::Response => self.no_response(),
        }
    }

    /// For a question about the request that is absent: a tunnel never has one; otherwise it may still arrive.
    pub fn no_request(&self) -> Tristate {
        if self.phase < Phase::RequestHead { Tristate::NotYet } else { Tristate::Known(false) }
    }

    /// For a question about the response that is absent.
    pub fn no_response(&self) -> Tristate {
        if self.phase < Phase::ResponseHead { Tristate::NotYet } else { Tristate::Known(false) }
    }
}

impl QuerySubject for FlowView<'_> {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let tls = self.flow.client_tls.as_deref();
        let hello = |text: Option<&str>, fits: &mut dyn FnMut(&str) -> bool| match text {
            None if self.phase < Phase::ClientHello => Tristate::NotYet,
            text => Tristate::any(text, fits),
        };
        match key {
            Key::Host => Tristate::Known(self.with_host(|h| fits(h))),
            Key::Authority => Tristate::Known(fits(&self.with_host(|h| format!("{h}:{}", self.flow.authority.port)))),
            Key::Scheme => Tristate::any([self.scheme().as_str()], fits),
            Key::Word | Key::Url => match self.request {
                Some(_) => Tristate::any([self.url()], fits),
                None => self.no_request(),
            },
            Key::Path => self.request_text(|r| Some(r.url.path_only()), fits),
            Key::Query => self.request_text(|r| r.url.query(), fits),
            Key::Method => self.request_text(|r| Some(r.method.as_str()), fits),
            Key::Version => match self.request {
                Some(r) => {
                    let upstream = self.flow.upstream.as_ref().map(|u| u.version.as_str());
                    Tristate::any([r.version.as_str()].into_iter().chain(upstream), fits)
                }
                None => self.no_request(),
            },
            Key::Type => {
                // Either side may match; only if the request's does not, the response's decides or leaves it open.
                let request = self.media_type(Direction::Request, fits);
                if request.holds() { request } else { request.or(self.media_type(Direction::Response, fits)) }
            }
            Key::ReqType => self.media_type(Direction::Request, fits),
            Key::RespType => self.media_type(Direction::Response, fits),
            Key::Tag => Tristate::any(self.flow.tags.iter().map(|t| t.as_str()), fits),
            Key::User => Tristate::any(self.flow.user.as_deref(), fits),
            Key::Process => Tristate::any(self.flow.client.process.as_ref().map(|p| p.name.as_str()), fits),
            Key::Container => Tristate::any(self.flow.client.container.as_deref(), fits),
            Key::Listener => Tristate::any([&*self.flow.client.listener], fits),
            Key::Transport => Tristate::any([self.flow.transport.as_str()], fits),
            Key::Sni => hello(tls.and_then(|t| t.sni.as_deref()), fits),
            Key::Ja3 => hello(tls.and_then(|t| t.ja3.as_deref()), fits),
            Key::Ja4 => hello(tls.and_then(|t| t.ja4.as_deref()), fits),
            Key::Ja4h => self.request_text(|_| self.flow.ja4h.as_deref(), fits),
            Key::Http2 => self.request_text(|_| self.flow.client_http2.as_deref(), fits),
            Key::Comment => {
                Tristate::any(self.flow.tags.iter().filter_map(|t| t.as_str().strip_prefix("comment:")), fits)
            }
            Key::Error if self.phase == Phase::Done => {
                Tristate::any(self.flow.error_kind.map(interflow_types::ErrorKind::as_str), fits)
            }
            Key::Id => Tristate::any([self.flow.id.to_string().as_str()], fits),
            Key::Passthrough => Tristate::any(self.flow.passthrough.map(interflow_types::Passthrough::as_str), fits),
            Key::Parent => Tristate::any(self.flow.parent.map(|p| p.to_string()).as_deref(), fits),
            _ if self.phase == Phase::Done => Tristate::Known(false),
            _ => Tristate::NotYet,
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        let size = |body: &Option<BodyContent>| body.as_ref().map(|b| b.len() as u64);
        let (sent, received) = (size(&self.request_body), size(&self.response_body));
        let later = |n: Option<u64>| n.map_or(Fact::NotYet, Fact::Is);
        let timings = &self.flow.timings;
        match key {
            Key::Pid => self.flow.client.process.as_ref().map_or(Fact::Absent, |p| Fact::Is(u64::from(p.pid))),
            Key::Port => Fact::Is(u64::from(self.flow.authority.port)),
            Key::Status => match self.response {
                Some(r) => Fact::Is(u64::from(r.status.as_u16())),
                None if self.phase < Phase::ResponseHead => Fact::NotYet,
                None => Fact::Absent,
            },
            Key::ReqSize => later(sent),
            Key::RespSize => later(received),
            Key::Size => later(sent.zip(received).map(|(a, b)| a + b)),
            Key::Ttfb => later(timings.first_byte.or_else(|| self.response.map(|_| self.flow.clock.micros()))),
            Key::Dur => later(timings.done),
            Key::Time => Fact::Is(self.flow.clock.started_at().micros()),
            _ if self.phase == Phase::Done => Fact::Absent,
            _ => Fact::NotYet,
        }
    }

    fn flag(&self, flag: Flag) -> Tristate {
        let request = |test: &dyn Fn(&RequestHead) -> bool| {
            self.request.map_or_else(|| self.no_request(), |r| Tristate::Known(test(r)))
        };
        let has_tag = |tag: &str| self.flow.tags.iter().any(|t| *t == tag);
        match flag {
            Flag::Http => request(&|_| true),
            Flag::Answered if self.response.is_some() => Tristate::Known(true),
            Flag::Answered => self.no_response(),
            Flag::Websocket => request(&|r| r.protocol.as_deref().is_some_and(|p| p.eq_ignore_ascii_case("websocket"))),
            Flag::Grpc => request(&|r| {
                r.headers
                    .get_str("content-type")
                    .and_then(|t| t.get(..16))
                    .is_some_and(|t| t.eq_ignore_ascii_case("application/grpc"))
            }),
            Flag::Sse => self.media_type(Direction::Response, &mut |t| t.eq_ignore_ascii_case("text/event-stream")),
            Flag::Tunnel if self.request.is_some() => Tristate::Known(false),
            Flag::Tunnel if self.phase >= Phase::UpstreamConnect => Tristate::Known(true),
            Flag::Intercepted => request(&|_| self.flow.client_tls.is_some()),
            Flag::Replay => Tristate::Known(self.flow.parent.is_some()),
            Flag::Imported => Tristate::Known(false),
            Flag::Error if self.phase == Phase::Done => Tristate::Known(self.flow.error_kind.is_some()),
            Flag::Open => Tristate::Known(self.phase != Phase::Done),
            Flag::Redacted => Tristate::Known(has_tag("redacted")),
            Flag::Held => Tristate::Known(has_tag("held")),
            _ if self.phase == Phase::Done => Tristate::Known(false),
            _ => Tristate::NotYet,
        }
    }

    fn address(&self, key: Key) -> Fact<SocketAddr> {
        match (key, &self.flow.upstream) {
            (Key::Client, _) => Fact::Is(self.flow.client.peer),
            (Key::Upstream, Some(upstream)) => Fact::known(upstream.peer),
            (Key::Upstream, None) if self.phase < Phase::ResponseHead => Fact::NotYet,
            _ => Fact::Absent,
        }
    }

    fn headers(&self, side: Direction, fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Tristate {
        let Some(headers) = self.head_of(side) else { return self.no_head(side) };
        Tristate::Known(headers.iter().any(|(n, v)| fits(n, v)))
    }

    fn body(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        // A message is the body of its direction; the other direction has none.
        if let Some(m) = self.message.filter(|m| m.direction == side) {
            return self.message_text(m, fits);
        }
        match self.body_of(side) {
            Some(body) => Tristate::Known(body.readings().any(|text| fits(text))),
            None if self.message.is_some() => Tristate::Known(false),
            None => Tristate::NotYet,
        }
    }
}

/// Formats the URL without `fmt` overhead: rules on it are evaluated for every request.
fn format_url(url: &interflow_types::Url) -> String {
    let path = url.path.as_str();
    if path == "*" {
        // Asterisk form (RFC 9112 3.2.4) is rare and left to the general formatter.
        return url.to_string();
    }
    let mut text = String::with_capacity(url.authority.host.name().map_or(40, str::len) + path.len() + 16);
    text.push_str(url.scheme.as_str());
    text.push_str("://");
    url.authority.host.canonical().push_to(&mut text);
    if url.authority.port != url.scheme.default_port() {
        let mut digits = [0; 5];
        let (mut port, mut at) = (url.authority.port, digits.len());
        while port > 0 {
            at -= 1;
            digits[at] = b'0' + (port % 10) as u8;
            port /= 10;
        }
        text.push(':');
        text.extend(digits[at..].iter().map(|d| char::from(*d)));
    }
    text.push_str(path);
    text
}

/// A copy of the flow's facts, tags and variables for code that cannot hold the flow itself. Other extensions are not
/// copied.
pub(crate) fn copy_facts(flow: &Flow) -> Flow {
    let mut copy = Flow::begin(flow.client.clone(), flow.transport, flow.scheme, flow.authority.clone());
    copy.id = flow.id;
    copy.clock = flow.clock;
    copy.client_tls.clone_from(&flow.client_tls);
    copy.user.clone_from(&flow.user);
    copy.upstream.clone_from(&flow.upstream);
    copy.timings = flow.timings;
    copy.parent = flow.parent;
    copy.client_http2.clone_from(&flow.client_http2);
    copy.ja4h.clone_from(&flow.ja4h);
    (copy.status, copy.error_kind, copy.has_request_body) = (flow.status, flow.error_kind, flow.has_request_body);
    copy.tags.clone_from(&flow.tags);
    if let Some(state) = flow.extension::<RuleState>() {
        let note = copy.extension_mut::<RuleState>();
        note.vars.clone_from(&state.vars);
        note.decided.clone_from(&state.decided);
        note.request_body.clone_from(&state.request_body);
        note.unread_request.clone_from(&state.unread_request);
    }
    copy
}

/// A synthetic message, for explanations and tests.
pub(crate) fn test_message(direction: Direction, kind: MessageKind, payload: bytes::Bytes) -> StreamMessage {
    StreamMessage { direction, kind, payload, at: Timestamp::now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_urls_equal_their_display_form() {
        for text in [
            "http://a.test/",
            "https://a.test:8443/x?y=1",
            "http://a.test:1/",
            "http://a.test:65535/",
            "http://[::1]:80/x",
            "https://127.0.0.1/",
        ] {
            let url = crate::text::url::parse_url(text).unwrap();
            assert_eq!(format_url(&url), url.to_string());
        }
    }
}
