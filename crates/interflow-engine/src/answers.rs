//! The one table from errors to responses, and the pages that Interflow writes itself.

use std::time::Duration;

use interflow_flow::{Error, FlowId, Headers, Kind, Response, StatusCode};
use interflow_llm::{Provider, Refusal};

/// The status that a client sees for an error.
pub(crate) const fn status_of(kind: Kind) -> StatusCode {
    match kind {
        Kind::BadRequest | Kind::UnknownProtocol | Kind::ClientTls => StatusCode::BAD_REQUEST,
        Kind::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Kind::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::UriTooLong => StatusCode::URI_TOO_LONG,
        Kind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        Kind::Unauthorized => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        Kind::Denied => StatusCode::FORBIDDEN,
        Kind::Limited => StatusCode::TOO_MANY_REQUESTS,
        Kind::Loop => StatusCode::LOOP_DETECTED,
        Kind::ClientGone | Kind::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
        Kind::Dns
        | Kind::Connect
        | Kind::UpstreamCertificate
        | Kind::UpstreamTls
        | Kind::UpstreamProxy
        | Kind::BadResponse
        | Kind::UpstreamClosed => StatusCode::BAD_GATEWAY,
        Kind::ConnectTimeout | Kind::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        Kind::PoolTimeout | Kind::Draining | Kind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        Kind::StageFailed | Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What the owner can do about it, in one sentence.
const fn remedy(kind: Kind) -> &'static str {
    match kind {
        Kind::UpstreamCertificate => {
            "If you trust this origin, add its authority with upstream.extra_ca, or its name to upstream.danger_insecure_hosts."
        }
        Kind::Dns => "Check the name, and the machine's DNS settings.",
        Kind::Connect | Kind::ConnectTimeout => "Check that the origin runs and that this machine may reach it.",
        Kind::Unauthorized => "Give the proxy a user name and password.",
        Kind::Denied => "The owner of this proxy does not allow it; see the access rules.",
        Kind::Loop => {
            "Ask an origin, not this proxy itself; where proxies forward to one another, let one of them go straight."
        }
        Kind::HeadTooLarge | Kind::UriTooLong => "Send a shorter head, or raise limits.head_bytes.",
        Kind::UpstreamProxy => "Check the upstream proxy and its credentials (upstream.proxy).",
        Kind::UpstreamTimeout => "The origin did not answer in time; timeouts.response sets how long that is.",
        Kind::PoolTimeout => {
            "All connections to this origin are busy; upstream.connections_per_host sets how many there may be."
        }
        Kind::Overloaded => "Try again in a moment, or raise limits.held_bytes.",
        Kind::BadResponse => "The origin breaks the protocol; its answer was not passed on.",
        _ => "",
    }
}

/// The response for an error: a page for people, JSON or text for programs, as `Accept` says.
pub(crate) fn error_response(error: &Error, flow: Option<FlowId>, request: Option<&Headers>) -> Response {
    let kind = error.kind();
    let status = status_of(kind);
    let accept = request.and_then(|h| h.get_str("accept")).unwrap_or_default();
    let id = flow.map(|f| f.to_string());
    let message = error.to_string();
    let mut response = if accept.contains("text/html") {
        Response::full(status, "text/html; charset=utf-8", error_page(status, kind, &message, id.as_deref()))
    } else if accept.contains("json") {
        let body = serde_json::json!({
            "error": { "kind": kind.as_str(), "message": message, "remedy": remedy(kind), "flow": id }
        });
        Response::full(status, "application/json", body.to_string())
    } else {
        let mut text = format!("{status}\n{message}\n");
        for line in [remedy(kind), &id.as_ref().map(|i| format!("flow {i}")).unwrap_or_default()] {
            if !line.is_empty() {
                text.push_str(line);
                text.push('\n');
            }
        }
        Response::full(status, "text/plain; charset=utf-8", text)
    };
    response.head.headers.append_parsed(b"X-Interflow-Error", kind.as_str().as_bytes());
    if let Some(id) = id {
        response.head.headers.append_parsed(b"X-Interflow-Flow", id.as_bytes());
    }
    response.head.headers.append_parsed(b"Cache-Control", b"no-store");
    if kind == Kind::Overloaded {
        response.head.headers.append_parsed(b"Retry-After", b"1");
    }
    response
}

/// The response for an error of an exchange with a provider, in the shape that the provider's SDKs read.
pub(crate) fn provider_error(error: &Error, provider: Provider, flow: FlowId) -> Response {
    let kind = error.kind();
    let (class, code, again) = class_of(kind);
    let message = match remedy(kind) {
        "" => error.to_string(),
        remedy => format!("{error}. {remedy}"),
    };
    let mut refusal = Refusal::new(status_of(kind), class, code, message);
    refusal.retry_after = again.then_some(Duration::from_secs(1));
    let mut response = refusal.answer(provider, flow);
    response.head.headers.remove("x-interflow-error");
    response.head.headers.append_parsed(b"X-Interflow-Error", kind.as_str().as_bytes());
    response
}

/// What clients of a provider are told of an error: its class, its code, and whether it is worth trying again.
const fn class_of(kind: Kind) -> (&'static str, &'static str, bool) {
    match kind {
        Kind::Dns | Kind::Connect | Kind::ConnectTimeout | Kind::UpstreamClosed | Kind::UpstreamProxy => {
            ("provider_error", "unreachable", true)
        }
        Kind::UpstreamCertificate | Kind::UpstreamTls => ("provider_error", "unreachable", false),
        Kind::UpstreamTimeout => ("provider_error", "timeout", true),
        Kind::BadResponse => ("provider_error", "response_read_failed", true),
        Kind::PoolTimeout | Kind::Draining => ("capacity", "concurrency_exceeded", true),
        Kind::Overloaded => ("capacity", "overloaded", true),
        Kind::Limited => ("rate_limit_error", "rate_limit_exceeded", true),
        Kind::BodyTooLarge => ("payload_too_large", "request_body_too_large", false),
        Kind::HeadTooLarge | Kind::UriTooLong => ("payload_too_large", "request_head_too_large", false),
        Kind::BadRequest | Kind::UnknownProtocol | Kind::Unsupported | Kind::ClientTls | Kind::Loop => {
            ("invalid_request", "bad_request", false)
        }
        Kind::ClientGone | Kind::ClientTimeout => ("invalid_request", "body_read", false),
        Kind::Denied => ("forbidden", "denied", false),
        Kind::Unauthorized => ("unauthorized", "invalid_api_key", false),
        Kind::StageFailed | Kind::Internal => ("internal_error", "internal_error", false),
    }
}

fn error_page(status: StatusCode, kind: Kind, message: &str, flow: Option<&str>) -> String {
    let title = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
    let flow = flow.map(|id| format!("<p class=dim>flow {id}</p>")).unwrap_or_default();
    let body = format!(
        "<h1>{}</h1><p><code>{}</code></p><p>{}</p><p>{}</p>{flow}",
        escape(&title),
        kind.as_str(),
        escape(message),
        escape(remedy(kind))
    );
    page(&title, &body)
}

/// A page in Interflow's plain dress; `body` is HTML.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{}</title><style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;\
         max-width:46rem;margin:3rem auto;padding:0 1rem}}code,pre{{font:14px ui-monospace,monospace}}\
         pre{{padding:.7rem;overflow-x:auto;border:1px solid #8886;border-radius:.4rem}}.dim{{opacity:.6}}</style>{body}</html>\n",
        escape(title)
    )
}

/// Makes text harmless inside HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_flow::Body;

    fn text(r: &Response) -> String {
        match &r.body {
            Body::Full(b) => String::from_utf8(b.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_providers_client_reads_the_providers_shape() {
        let e = Error::new(Kind::Connect, "127.0.0.1:9 refused the connection");
        for (provider, pointer) in [
            (Provider::OpenAi, "/error/code"),
            (Provider::Anthropic, "/error/code"),
            (Provider::Gemini, "/error/details/0/reason"),
            (Provider::Bedrock, "/code"),
        ] {
            let r = provider_error(&e, provider, FlowId::from_u128(7));
            let body: serde_json::Value = serde_json::from_str(&text(&r)).unwrap();
            assert_eq!(body.pointer(pointer).and_then(|c| c.as_str()), Some("unreachable"), "{body}");
            assert_eq!(r.head.status, StatusCode::BAD_GATEWAY);
            assert_eq!(r.head.headers.get_str("retry-after"), Some("1"));
            assert_eq!(r.head.headers.get_str("x-interflow-error"), Some("connect"));
        }
    }

    #[test]
    fn what_there_is_no_memory_for_is_to_be_tried_again() {
        let e = Error::new(Kind::Overloaded, "spent");
        for r in [error_response(&e, None, None), provider_error(&e, Provider::OpenAi, FlowId::from_u128(7))] {
            assert_eq!(r.head.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(r.head.headers.get_str("retry-after"), Some("1"));
            assert_eq!(r.head.headers.get_str("x-interflow-error"), Some("overloaded"));
        }
    }

    #[test]
    fn the_form_follows_accept() {
        let e = Error::new(Kind::Dns, "no such name: <b>.test");
        for (accept, media_type, says) in [
            ("text/html,*/*", "text/html; charset=utf-8", "&lt;b&gt;.test"),
            ("application/json", "application/json", "\"kind\":\"dns\""),
            ("*/*", "text/plain; charset=utf-8", "<b>.test"),
        ] {
            let request: Headers = [("Accept", accept)].into_iter().collect();
            let r = error_response(&e, Some(FlowId::from_u128(7)), Some(&request));
            assert_eq!(r.head.status, StatusCode::BAD_GATEWAY);
            assert_eq!(r.head.headers.get_str("content-type"), Some(media_type));
            assert_eq!(r.head.headers.get_str("x-interflow-error"), Some("dns"));
            assert!(text(&r).contains(says) && text(&r).contains(&FlowId::from_u128(7).to_string()), "{}", text(&r));
        }
    }
}
