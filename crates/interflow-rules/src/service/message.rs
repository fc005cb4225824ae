//! Messages of the service protocol, version 1, and the decisions in the replies.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_types::data_file::has_word;
use interflow_types::{Direction, Flow, Headers, RequestHead, ResponseHead, Scheme};
use regex::bytes::Regex;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::flow::view::FlowView;

/// The protocol version that Interflow implements.
const PROTOCOL_VERSION: u64 = 1;

/// The hooks and limits that a service requested in its handshake.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceHandshake {
    pub name: Option<String>,
    hooks: Vec<ServiceHook>,
    /// Larger bodies are sent as null; 0 for no limit, and so no message without its body.
    pub max_body: usize,
}

/// A kind of message that a service wants, and its filters. All filters must match; an empty one matches everything.
#[derive(Clone, Debug, Default)]
struct ServiceHook {
    kind: String,
    host: Vec<Regex>,
    path: Vec<Regex>,
    method: Vec<String>,
    content_type: Vec<Regex>,
    container: Vec<Regex>,
    tls: Option<bool>,
    llm: Option<bool>,
}

interflow_types::labelled_enum! {
    /// The kinds of messages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum ServiceMessageKind {
        Request "http-request",
        Response "http-response",
        /// A chunk of a response's body: an extension, sent only to services that request it.
        Chunk "http-response-chunk",
    }
}

/// The decision of a service. `None` leaves a part as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceDecision {
    Pass,
    Deny { status: Option<u16>, body: Option<Bytes> },
    Rewrite { status: Option<u16>, headers: Vec<(String, Vec<String>)>, body: Option<Bytes> },
}

impl ServiceHandshake {
    /// For services without a handshake: all requests and responses, bodies included.
    pub fn accept_all() -> Self {
        let hook = |kind: ServiceMessageKind| ServiceHook { kind: kind.as_str().into(), ..ServiceHook::default() };
        let hooks = vec![hook(ServiceMessageKind::Request), hook(ServiceMessageKind::Response)];
        Self { hooks, ..Self::default() }
    }

    pub fn parse(value: &Value) -> Result<Self, String> {
        if value["type"] != "hello" {
            return Err(format!(
                "its first message is not a hello but `{}`",
                value["type"].as_str().unwrap_or("nothing")
            ));
        }
        let (min, max) = (
            value["min_version"].as_u64().unwrap_or(PROTOCOL_VERSION),
            value["max_version"].as_u64().unwrap_or(PROTOCOL_VERSION),
        );
        if min > PROTOCOL_VERSION || max < PROTOCOL_VERSION {
            return Err(format!(
                "it speaks the versions {min} to {max} of the protocol, and we version {PROTOCOL_VERSION}"
            ));
        }
        let hooks =
            value["hooks"].as_array().into_iter().flatten().map(ServiceHook::parse).collect::<Result<_, _>>()?;
        let max_body = value["max_body_bytes"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        Ok(Self { name: value["name"].as_str().map(ToOwned::to_owned), hooks, max_body })
    }

    /// Whether it requested this message for the flow.
    pub fn wants_message(&self, ask: ServiceMessageKind, view: &FlowView<'_>) -> bool {
        self.hooks.iter().any(|h| h.kind == ask.as_str() && h.matches(ask, view))
    }

    /// Whether it requested messages of this kind at all.
    pub fn wants_kind(&self, ask: ServiceMessageKind) -> bool {
        self.hooks.iter().any(|h| h.kind == ask.as_str())
    }

    /// The message `http-request`.
    pub fn request_message(&self, id: &str, flow: &Flow, head: &RequestHead, body: Option<&[u8]>) -> Value {
        json!({
            "type": ServiceMessageKind::Request.as_str(), "id": id, "host": head.url.authority.to_string(), "method": head.method.as_str(),
            "uri": head.url.path.as_str(), "proto": head.version.as_str(), "headers": headers_json(&head.headers),
            "body": self.body(body), "container": container(flow), "tls": head.url.scheme == Scheme::Https,
        })
    }

    /// The message `http-response`, with the request that it belongs to.
    pub fn response_message(
        &self,
        id: &str,
        flow: &Flow,
        request: (&RequestHead, Option<&[u8]>),
        head: &ResponseHead,
        body: Option<&[u8]>,
    ) -> Value {
        let (asked, asked_body) = request;
        json!({
            "type": ServiceMessageKind::Response.as_str(), "id": id, "host": asked.url.authority.to_string(), "method": asked.method.as_str(),
            "uri": asked.url.path.as_str(), "status_code": head.status.as_u16(), "request_headers": headers_json(&asked.headers),
            "request_body": self.body(asked_body), "response_headers": headers_json(&head.headers), "response_body": self.body(body),
            "container": container(flow), "duration_ms": flow.clock.micros() / 1000,
        })
    }

    fn body(&self, body: Option<&[u8]>) -> Value {
        // Larger than the service wants: it decides without the body.
        match body {
            Some(b) if self.max_body == 0 || b.len() <= self.max_body => STANDARD.encode(b).into(),
            _ => Value::Null,
        }
    }
}

impl ServiceHook {
    fn parse(value: &Value) -> Result<Self, String> {
        let filters = &value["filters"];
        let texts = |key: &str| -> Vec<String> {
            match &filters[key] {
                Value::String(s) => vec![s.clone()],
                Value::Array(list) => list.iter().filter_map(|v| v.as_str().map(ToOwned::to_owned)).collect(),
                _ => Vec::new(),
            }
        };
        let globs = |key: &str| texts(key).iter().map(|g| glob_regex(g)).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            kind: value["type"].as_str().unwrap_or_default().to_owned(),
            host: globs("host")?,
            path: texts("path")
                .iter()
                .map(|p| crate::matching::regex_limits::build_regex(p, false))
                .collect::<Result<_, _>>()?,
            method: texts("method"),
            content_type: globs("content_type")?,
            container: globs("container")?,
            tls: filters["tls"].as_bool(),
            llm: filters["llm"].as_bool(),
        })
    }

    fn matches(&self, ask: ServiceMessageKind, view: &FlowView<'_>) -> bool {
        let any = |patterns: &[Regex], value: &str| {
            patterns.is_empty() || patterns.iter().any(|p| p.is_match(value.as_bytes()))
        };
        // Before the request is known, no filter can be decided.
        let (Some(request), flow) = (view.request, view.flow) else { return false };
        let side = if ask == ServiceMessageKind::Request { Direction::Request } else { Direction::Response };
        let media = view.head_of(side).and_then(|h| h.get_str("content-type")).unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        view.with_host(|host| any(&self.host, host))
            && any(&self.path, &request.url.path)
            && (self.method.is_empty() || self.method.iter().any(|m| m.eq_ignore_ascii_case(request.method.as_str())))
            && any(&self.content_type, media)
            && any(&self.container, container(flow))
            && self.tls.is_none_or(|tls| tls == (request.url.scheme == Scheme::Https))
            && self.llm.is_none_or(|llm| llm == flow.tags.iter().any(|t| *t == "llm"))
    }
}

/// A glob for the whole text, ignoring case: `*` matches anything.
fn glob_regex(text: &str) -> Result<Regex, String> {
    let source = text.split('*').map(regex::escape).collect::<Vec<_>>().join(".*");
    crate::matching::regex_limits::build_regex(&format!("(?s)^{source}$"), true)
}

/// The name of the client's process, if known. The protocol calls it the container.
fn container(flow: &Flow) -> &str {
    flow.client.process.as_ref().map(|p| p.name.as_str()).unwrap_or_default()
}

/// Fields by name, each with all its values, in the spelling of the first. Bytes that are not UTF-8 are replaced.
fn headers_json(headers: &Headers) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for (name, value) in headers {
        let (name, value) = (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned());
        let header_name = all.keys().find(|k| k.eq_ignore_ascii_case(&name)).cloned().unwrap_or(name);
        match all.entry(header_name).or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(list) => list.push(value.into()),
            _ => continue,
        }
    }
    all.into()
}

/// Parses the decision. An unknown action lets the message pass, with a warning.
///
/// # Errors
/// No action, or a body that is not base64.
pub(super) fn parse_decision(service: &str, answer: &Value) -> Result<ServiceDecision, String> {
    let status = answer["status_code"].as_u64().and_then(|n| u16::try_from(n).ok()).filter(|n| (200..=999).contains(n));
    let body = match &answer["body"] {
        Value::String(text) => {
            Some(STANDARD.decode(text).map_err(|e| format!("the body of its answer is not base64: {e}"))?.into())
        }
        _ => None,
    };
    Ok(match answer["action"].as_str().ok_or("its answer has no `action`")? {
        "allow" | "passthrough" => ServiceDecision::Pass,
        "deny" | "block" => ServiceDecision::Deny { status, body },
        "rewrite" => ServiceDecision::Rewrite { status, headers: settable_headers(service, &answer["headers"]), body },
        other => {
            tracing::warn!("service {service}: the action `{other}` is not known, and taken for allow");
            ServiceDecision::Pass
        }
    })
}

/// The fields to set, except those that services may not set: framing, routing and credentials.
fn settable_headers(service: &str, value: &Value) -> Vec<(String, Vec<String>)> {
    const FORBIDDEN: &str = "connection keep-alive proxy-authorization transfer-encoding upgrade te trailer \
        proxy-authenticate authorization cookie set-cookie host";
    let mut all = Vec::new();
    for (name, values) in value.as_object().into_iter().flatten() {
        if has_word(FORBIDDEN, &name.to_ascii_lowercase()) {
            tracing::warn!("service {service}: it may not set the field {name}, which is left as it was");
            continue;
        }
        let values = match values {
            Value::Array(list) => list.iter().filter_map(|v| v.as_str().map(ToOwned::to_owned)).collect(),
            Value::String(one) => vec![one.clone()],
            _ => Vec::new(),
        };
        all.push((name.clone(), values));
    }
    all
}

/// A queued message and the channel for its reply, which is dropped if the connection breaks.
pub(crate) struct QueuedMessage {
    pub id: String,
    pub text: String,
    pub answer: oneshot::Sender<Value>,
}

/// State of the connection.
#[derive(Clone, Debug)]
pub(crate) enum ServiceStatus {
    /// Connecting for the first time.
    Starting,
    /// Connected; the handshake is complete.
    Up(Arc<ServiceHandshake>),
    /// Disconnected, with the reason.
    Down(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::fixture::FlowFixture;
    use interflow_types::Phase;

    #[test]
    fn service_hook_filters_select_flows() {
        let s = FlowFixture::for_request("POST", "https://api.a.test/v1/x")
            .unwrap()
            .with_header("Content-Type", "application/json; x")
            .unwrap();
        let constants = Vec::new();
        let view = s.view(Phase::RequestBody, &constants);
        for (filters, wanted) in [
            (json!(null), true),
            (json!({"host": ["b.test", "*.a.test"], "method": ["post"]}), true),
            (json!({"host": ["*.b.test"]}), false),
            (json!({"path": ["^/v1/.*"], "content_type": ["application/*"], "tls": true}), true),
            (json!({"tls": false}), false),
            (json!({"llm": true}), false),
            (json!({"llm": false, "method": ["GET"]}), false),
        ] {
            let hello = ServiceHandshake::parse(
                &json!({"type": "hello", "hooks": [{"type": "http-request", "filters": filters}]}),
            )
            .unwrap();
            assert_eq!(hello.wants_message(ServiceMessageKind::Request, &view), wanted, "{filters}");
            assert!(!hello.wants_message(ServiceMessageKind::Response, &view));
        }
        for (url, filter) in [("https://api.a.test./x", "*.a.test"), ("http://[::ffff:10.0.0.1]/", "10.0.0.1")] {
            let s = FlowFixture::for_get(url);
            let hooks = json!([{"type": "http-request", "filters": {"host": [filter]}}]);
            let hello = ServiceHandshake::parse(&json!({"type": "hello", "hooks": hooks})).unwrap();
            assert!(hello.wants_message(ServiceMessageKind::Request, &s.view(Phase::RequestBody, &constants)), "{url}");
        }
    }

    #[test]
    fn invalid_service_handshakes_are_refused() {
        assert!(ServiceHandshake::parse(&json!({"type": "hi"})).is_err());
        assert!(
            ServiceHandshake::parse(&json!({"type": "hello", "min_version": 2, "max_version": 3}))
                .unwrap_err()
                .contains("2 to 3")
        );
        assert!(
            ServiceHandshake::parse(
                &json!({"type": "hello", "hooks": [{"type": "http-request", "filters": {"path": ["("]}}]})
            )
            .is_err()
        );
    }

    #[test]
    fn service_decisions_are_parsed() {
        let rewrite = parse_decision(
            "s",
            &json!({"action": "rewrite", "headers": {"X-A": ["1", "2"], "Cookie": ["x"]}, "body": "aGk="}),
        )
        .unwrap();
        let headers = vec![("X-A".to_owned(), vec!["1".to_owned(), "2".to_owned()])];
        assert_eq!(rewrite, ServiceDecision::Rewrite { status: None, headers, body: Some("hi".into()) });
        assert_eq!(
            parse_decision("s", &json!({"action": "deny", "status_code": 451})).unwrap(),
            ServiceDecision::Deny { status: Some(451), body: None }
        );
        assert_eq!(parse_decision("s", &json!({"action": "alow"})).unwrap(), ServiceDecision::Pass);
        assert!(parse_decision("s", &json!({"action": "rewrite", "body": "?"})).is_err());
        assert!(parse_decision("s", &json!({"error": "no model"})).unwrap_err().contains("no `action`"));
    }

    #[test]
    fn bodies_over_the_bound_are_null() {
        let s = FlowFixture::for_get("http://a.test/x?y=1");
        let hello = ServiceHandshake::parse(&json!({"type": "hello", "max_body_bytes": 2, "hooks": []})).unwrap();
        let head = s.request.as_ref().unwrap();
        assert_eq!(hello.request_message("1", &s.flow, head, Some(b"abc"))["body"], Value::Null);
        let message = hello.request_message("1", &s.flow, head, Some(b"ab"));
        assert_eq!(
            (&message["body"], &message["uri"], &message["host"]),
            (&json!("YWI="), &json!("/x?y=1"), &json!("a.test:80"))
        );
    }
}
