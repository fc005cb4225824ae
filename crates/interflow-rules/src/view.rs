//! What a rule sees of a flow at one phase; queries are asked of it.

use std::cell::OnceCell;
use std::net::SocketAddr;

use interflow_flow::{
    Direction, Flow, Headers, Host, Message, MessageKind, Phase, RequestHead, ResponseHead, Scheme, Timestamp,
};
use interflow_query::{Fact, Flag, Key, Subject, Truth};

use crate::state::RuleState;

/// Constants of the rule files by name, sorted.
pub(crate) type Constants = Vec<(String, String)>;

/// A flow at one phase. What has not come yet is `None`.
pub(crate) struct View<'a> {
    pub phase: Phase,
    pub flow: &'a Flow,
    pub request: Option<&'a RequestHead>,
    pub response: Option<&'a ResponseHead>,
    /// The request's body without its content coding.
    pub request_body: Option<&'a [u8]>,
    /// The response's body without its content coding.
    pub response_body: Option<&'a [u8]>,
    pub message: Option<&'a Message>,
    pub constants: &'a Constants,
    /// Where the URL is kept once it was written, when several views are of the same request.
    pub shared_url: Option<&'a OnceCell<String>>,
    url: OnceCell<String>,
}

impl<'a> View<'a> {
    pub fn new(phase: Phase, flow: &'a Flow, constants: &'a Constants) -> Self {
        Self {
            phase,
            flow,
            request: None,
            response: None,
            request_body: None,
            response_body: None,
            message: None,
            constants,
            shared_url: None,
            url: OnceCell::new(),
        }
    }

    /// A variable of the flow, or a constant of the files.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let own = self.flow.note::<RuleState>().and_then(|s| s.variable(name));
        own.or_else(|| {
            let at = self.constants.binary_search_by(|(n, _)| n.as_str().cmp(name)).ok()?;
            self.constants.get(at).map(|(_, v)| v.as_str())
        })
    }

    pub fn scheme(&self) -> Scheme {
        self.request.map_or(self.flow.scheme, |r| r.url.scheme)
    }

    /// The request's URL, or what is known of it before there is a request.
    pub fn url(&self) -> &str {
        self.shared_url.unwrap_or(&self.url).get_or_init(|| match self.request {
            Some(r) => written(&r.url),
            None => format!("{}://{}/", self.flow.scheme, self.flow.authority.host_field(self.flow.scheme)),
        })
    }

    /// Shows the host's text: lower case, IPv6 without brackets.
    pub fn with_host<T>(&self, see: impl FnOnce(&str) -> T) -> T {
        match &self.flow.authority.host {
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

    /// The body of one side: `NotYet` until it is all there.
    pub fn body_of(&self, side: Direction) -> Option<&'a [u8]> {
        match side {
            Direction::Request => self.request_body,
            Direction::Response => self.response_body,
        }
    }

    fn response_is_due(&self) -> bool {
        self.response.is_none() && self.phase < Phase::ResponseHead
    }

    fn media_type(&self, side: Direction) -> Truth2<'a> {
        match self.head_of(side) {
            Some(headers) => Truth2::Is(headers.get_str("content-type")),
            None if side == Direction::Response && self.response_is_due() => Truth2::NotYet,
            None if self.request.is_none() && self.phase < Phase::RequestHead => Truth2::NotYet,
            None => Truth2::Is(None),
        }
    }

    fn request_text(
        &self,
        text: impl FnOnce(&'a RequestHead) -> Option<&'a str>,
        fits: &mut dyn FnMut(&str) -> bool,
    ) -> Truth {
        match self.request {
            Some(r) => Truth::any(text(r), fits),
            None => self.no_request(),
        }
    }

    /// A tunnel never has a request; before its head there may yet be one.
    pub fn no_request(&self) -> Truth {
        if self.phase < Phase::RequestHead { Truth::NotYet } else { Truth::Known(false) }
    }

    pub fn no_response(&self) -> Truth {
        if self.phase < Phase::ResponseHead { Truth::NotYet } else { Truth::Known(false) }
    }
}

enum Truth2<'a> {
    Is(Option<&'a str>),
    NotYet,
}

impl Truth2<'_> {
    fn ask(self, fits: &mut dyn FnMut(&str) -> bool) -> Truth {
        match self {
            // Without its parameters, as queries have it.
            Self::Is(text) => Truth::any(text.map(|t| t.split(';').next().unwrap_or(t).trim()), fits),
            Self::NotYet => Truth::NotYet,
        }
    }
}

impl Subject for View<'_> {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Truth {
        let tls = self.flow.client_tls.as_deref();
        let hello = |text: Option<&str>, fits: &mut dyn FnMut(&str) -> bool| match text {
            None if self.phase < Phase::ClientHello => Truth::NotYet,
            text => Truth::any(text, fits),
        };
        match key {
            Key::Host => Truth::Known(self.with_host(|h| fits(h))),
            Key::Authority => Truth::Known(fits(&self.with_host(|h| format!("{h}:{}", self.flow.authority.port)))),
            Key::Scheme => Truth::any([self.scheme().as_str()], fits),
            Key::Word | Key::Url => match self.request {
                Some(_) => Truth::any([self.url()], fits),
                None => self.no_request(),
            },
            Key::Path => self.request_text(|r| Some(r.url.path_only()), fits),
            Key::Query => self.request_text(|r| r.url.query(), fits),
            Key::Method => self.request_text(|r| Some(r.method.as_str()), fits),
            Key::Version => match self.request {
                Some(r) => {
                    let upstream = self.flow.upstream.as_ref().map(|u| u.version.as_str());
                    Truth::any([r.version.as_str()].into_iter().chain(upstream), fits)
                }
                None => self.no_request(),
            },
            Key::Type => {
                let request = self.media_type(Direction::Request).ask(fits);
                if request.holds() { request } else { request.or(self.media_type(Direction::Response).ask(fits)) }
            }
            Key::ReqType => self.media_type(Direction::Request).ask(fits),
            Key::RespType => self.media_type(Direction::Response).ask(fits),
            Key::Tag => Truth::any(self.flow.tags.iter().map(|t| t.as_str()), fits),
            Key::User => Truth::any(self.flow.user.as_deref(), fits),
            Key::Process => Truth::any(self.flow.client.process.as_ref().map(|p| p.name.as_str()), fits),
            Key::Container => Truth::any(self.flow.client.container.as_deref(), fits),
            Key::Listener => Truth::any([&*self.flow.client.listener], fits),
            Key::Transport => Truth::any([self.flow.transport.as_str()], fits),
            Key::Sni => hello(tls.and_then(|t| t.sni.as_deref()), fits),
            Key::Ja3 => hello(tls.and_then(|t| t.ja3.as_deref()), fits),
            Key::Ja4 => hello(tls.and_then(|t| t.ja4.as_deref()), fits),
            Key::Ja4h => {
                self.request.map_or_else(|| self.no_request(), |_| Truth::any(self.flow.ja4h.as_deref(), fits))
            }
            Key::Http2 => {
                self.request.map_or_else(|| self.no_request(), |_| Truth::any(self.flow.client_http2.as_deref(), fits))
            }
            Key::Comment => Truth::any(self.flow.tags.iter().filter_map(|t| t.as_str().strip_prefix("comment:")), fits),
            Key::Error if self.phase == Phase::Done => {
                Truth::any(self.flow.failed.map(interflow_flow::Kind::as_str), fits)
            }
            Key::Id => Truth::any([self.flow.id.to_string().as_str()], fits),
            Key::Passthrough => Truth::any(self.flow.passthrough.map(interflow_flow::Passthrough::as_str), fits),
            Key::Parent => Truth::any(self.flow.parent.map(|p| p.to_string()).as_deref(), fits),
            _ if self.phase == Phase::Done => Truth::Known(false),
            _ => Truth::NotYet,
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        let (sent, received) = (self.request_body.map(|b| b.len() as u64), self.response_body.map(|b| b.len() as u64));
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
            Key::Time => Fact::Is(self.flow.clock.born().micros()),
            _ if self.phase == Phase::Done => Fact::Absent,
            _ => Fact::NotYet,
        }
    }

    fn flag(&self, flag: Flag) -> Truth {
        let request =
            |test: fn(&RequestHead) -> bool| self.request.map_or_else(|| self.no_request(), |r| Truth::Known(test(r)));
        let has_tag = |tag: &str| self.flow.tags.iter().any(|t| *t == tag);
        match flag {
            Flag::Http => request(|_| true),
            Flag::Answered if self.response.is_some() => Truth::Known(true),
            Flag::Answered => self.no_response(),
            Flag::Websocket => request(|r| r.protocol.as_deref().is_some_and(|p| p.eq_ignore_ascii_case("websocket"))),
            Flag::Grpc => request(|r| {
                r.headers
                    .get_str("content-type")
                    .and_then(|t| t.get(..16))
                    .is_some_and(|t| t.eq_ignore_ascii_case("application/grpc"))
            }),
            Flag::Sse => self.media_type(Direction::Response).ask(&mut |t| t.eq_ignore_ascii_case("text/event-stream")),
            Flag::Tunnel if self.request.is_some() => Truth::Known(false),
            Flag::Tunnel if self.phase >= Phase::Dial => Truth::Known(true),
            Flag::Intercepted => request(|_| true).or(Truth::Known(false)).map_known(self.flow.client_tls.is_some()),
            Flag::Replay => Truth::Known(self.flow.parent.is_some()),
            Flag::Imported => Truth::Known(false),
            Flag::Error if self.phase == Phase::Done => Truth::Known(self.flow.failed.is_some()),
            Flag::Open => Truth::Known(self.phase != Phase::Done),
            Flag::Redacted => Truth::Known(has_tag("redacted")),
            Flag::Held => Truth::Known(has_tag("held")),
            _ if self.phase == Phase::Done => Truth::Known(false),
            _ => Truth::NotYet,
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

    fn headers(&self, side: Direction, fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Truth {
        match (self.head_of(side), side) {
            (Some(headers), _) => Truth::Known(headers.iter().any(|(n, v)| fits(n, v))),
            (None, Direction::Request) => self.no_request(),
            (None, Direction::Response) => self.no_response(),
        }
    }

    fn body(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Truth {
        if let Some(m) = self.message.filter(|m| m.direction == side) {
            return Truth::Known(fits(&m.payload));
        }
        match self.body_of(side) {
            Some(body) => Truth::Known(fits(body)),
            None if self.message.is_some() => Truth::Known(false),
            None => Truth::NotYet,
        }
    }
}

/// The URL as a text, without the detours of formatting: rules on it are asked with every request.
fn written(url: &interflow_flow::Url) -> String {
    let path = url.path.as_str();
    if path == "*" {
        return url.to_string();
    }
    let mut text = String::with_capacity(url.authority.host.name().map_or(40, str::len) + path.len() + 16);
    text.push_str(url.scheme.as_str());
    text.push_str("://");
    url.authority.host.push_to(&mut text);
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

trait Known {
    fn map_known(self, and: bool) -> Truth;
}

impl Known for Truth {
    fn map_known(self, and: bool) -> Truth {
        match self {
            Self::Known(b) => Self::Known(b && and),
            Self::NotYet => Self::NotYet,
        }
    }
}

/// The same flow for those who cannot hold the flow itself: its facts, its tags, its variables.
pub(crate) fn shadow(flow: &Flow) -> Flow {
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
    (copy.status, copy.failed, copy.uploads) = (flow.status, flow.failed, flow.uploads);
    copy.tags.clone_from(&flow.tags);
    if let Some(state) = flow.note::<RuleState>() {
        let vars: Vec<_> = state.variables().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let note = copy.note_mut::<RuleState>();
        vars.into_iter().for_each(|(n, v)| note.set(&n, v));
        note.request_body.clone_from(&state.request_body);
    }
    copy
}

/// A message of our own making, for explanations and tests.
pub(crate) fn message(direction: Direction, kind: MessageKind, payload: bytes::Bytes) -> Message {
    Message { direction, kind, payload, at: Timestamp::now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_written_as_they_are_shown() {
        for text in [
            "http://a.test/",
            "https://a.test:8443/x?y=1",
            "http://a.test:1/",
            "http://a.test:65535/",
            "http://[::1]:80/x",
            "https://127.0.0.1/",
        ] {
            let url = crate::sample::parse_url(text).unwrap();
            assert_eq!(written(&url), url.to_string());
        }
    }
}
