//! Responses for errors that end an LLM request, in the error format of the provider's API, so that SDKs raise the
//! exception that their users expect.

use std::time::Duration;

use interflow_types::{Error, ErrorKind, ErrorRenderer, Flow, FlowId, RequestId, Response, data_file};

use crate::{LlmCall, LlmRefusal, Provider};

/// Attaches the call to its flow, and has errors of the flow rendered in the provider's format from then on.
pub fn attach(flow: &mut Flow, exchange: LlmCall) {
    flow.extension_mut::<ErrorRenderer>().0 = Some(render);
    *flow.extension_mut::<LlmCall>() = exchange;
}

fn render(flow: &Flow, error: &Error) -> Response {
    let provider = flow.extension::<LlmCall>().map(|e| e.provider).unwrap_or_default();
    provider_error(error, provider, flow.id, &RequestId::of(flow))
}

/// The response for an error of an LLM call, in the format that the provider's SDKs parse.
fn provider_error(error: &Error, provider: Provider, flow: FlowId, id: &str) -> Response {
    let kind = error.kind();
    let (class, code, again) = class_of(kind);
    let message = match kind.remedy() {
        "" => error.to_string(),
        remedy => format!("{error}. {remedy}"),
    };
    let mut refusal = LlmRefusal::new(kind.status(), class, code, message);
    refusal.retry_after = again.then_some(Duration::from_secs(1));
    let mut response = refusal.answer_with(provider, flow, id);
    response.head.headers.remove("x-interflow-error");
    response.head.headers.append_unchecked(b"X-Interflow-Error", kind.as_str().as_bytes());
    response
}

/// The error type, code, and whether a retry is advised. Certificate and TLS errors do not go away by repeating.
pub fn class_of(kind: ErrorKind) -> (&'static str, &'static str, bool) {
    let mut classes = data_file::records(include_str!("../data/error_classes.txt"));
    let class = classes.find(|[kinds, _, _, _]| data_file::has_word(kinds, kind.as_str()));
    class.map_or(("internal_error", "internal_error", false), |[_, class, code, retry]| (class, code, retry == "retry"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::{Body, StatusCode};

    fn text(r: &Response) -> String {
        match &r.body {
            Body::Full(b) => String::from_utf8(b.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_kind_of_error_has_one_class() {
        let classes: Vec<[&str; 4]> = data_file::records(include_str!("../data/error_classes.txt")).collect();
        for kind in ErrorKind::ALL {
            let listed = classes.iter().filter(|[kinds, ..]| data_file::has_word(kinds, kind.as_str())).count();
            assert_eq!(listed, 1, "{}", kind.as_str());
        }
        assert_eq!(class_of(ErrorKind::Dns), ("provider_error", "unreachable", true));
        assert_eq!(class_of(ErrorKind::UpstreamTls), ("provider_error", "unreachable", false));
    }

    #[test]
    fn errors_have_the_format_of_the_providers_api() {
        let e = Error::new(ErrorKind::Connect, "127.0.0.1:9 refused the connection");
        for (provider, pointer) in [
            (Provider::OpenAi, "/error/code"),
            (Provider::Anthropic, "/error/code"),
            (Provider::Gemini, "/error/details/0/reason"),
            (Provider::Bedrock, "/code"),
        ] {
            let r = provider_error(&e, provider, FlowId::from_u128(7), "req-7");
            let body: serde_json::Value = serde_json::from_str(&text(&r)).unwrap();
            assert_eq!(body.pointer(pointer).and_then(|c| c.as_str()), Some("unreachable"), "{body}");
            assert_eq!(r.head.status, StatusCode::BAD_GATEWAY);
            assert_eq!(r.head.headers.get_str("retry-after"), Some("1"));
            assert_eq!(r.head.headers.get_str("x-interflow-error"), Some("connect"));
        }
    }

    #[test]
    fn spent_memory_budget_asks_the_client_to_retry() {
        let e = Error::new(ErrorKind::Overloaded, "spent");
        let r = provider_error(&e, Provider::OpenAi, FlowId::from_u128(7), "req-7");
        assert_eq!(r.head.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(r.head.headers.get_str("retry-after"), Some("1"));
        assert_eq!(r.head.headers.get_str("x-interflow-error"), Some("overloaded"));
    }
}
