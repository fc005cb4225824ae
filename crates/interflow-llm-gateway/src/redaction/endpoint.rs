//! Redaction of texts on the gateway port, for programs that send texts rather than requests to a provider:
//! `/api/filter` and `/api/explain`, with the health probes beside them.

use std::sync::Arc;

use interflow_limits::KeyedEndpoint;
use interflow_llm::LlmRefusal;
use interflow_types::{
    BoxFuture, CollectError, Flow, GatewayMount, GatewayRequest, LocalHandler, Method, MountTarget, Request,
    RequestHead, Response, ResponseHead, Result, StatusCode, percent,
};
use serde_json::{Value, json};

use super::{RedactedText, RedactionService};
use crate::llm_telemetry::refusal_response;

/// The name by which key scopes know the endpoints, as if of a provider.
const PROVIDER: &str = "filter";

/// Claims the endpoints. Their flows are not recorded: the texts they receive are not redacted.
pub struct RedactionMount(pub Arc<RedactionService>);

impl GatewayMount for RedactionMount {
    fn name(&self) -> &'static str {
        PROVIDER
    }

    fn find(&self, request: &GatewayRequest<'_>) -> Option<MountTarget> {
        let path = request.path.split('?').next().unwrap_or_default();
        let is_endpoint = matches!(
            (request.method, path),
            (&Method::POST, "/api/filter" | "/api/explain")
                | (&Method::GET, "/api/status" | "/api/health" | "/livez" | "/readyz" | "/health")
        );
        is_endpoint.then(|| MountTarget::Serve(Arc::new(Self(Arc::clone(&self.0)))))
    }
}

impl LocalHandler for RedactionMount {
    fn is_private(&self) -> bool {
        true
    }

    fn identify_client(&self, flow: &mut Flow, _head: &RequestHead) {
        *flow.extension_mut() = KeyedEndpoint { provider: Some(PROVIDER), uses_credentials: false };
    }

    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        Box::pin(async move {
            if request.head.method == Method::GET {
                let body = json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") });
                return Ok(Response::full(StatusCode::OK, "application/json", body.to_string()));
            }
            let answered = self.answer(flow, request).await;
            Ok(answered.unwrap_or_else(|refusal| refusal_response(flow, &refusal)))
        })
    }
}

impl RedactionMount {
    async fn answer(&self, flow: &mut Flow, request: Request) -> Result<Response, LlmRefusal> {
        let url = &request.head.url;
        let explain = url.path_only() == "/api/explain";
        let (policy, context) = (parameter(url.query(), "p"), parameter(url.query(), "c"));
        let media_type = request.head.headers.get_str("content-type").unwrap_or("text/plain").to_ascii_lowercase();
        if !media_type.trim_start().starts_with("text/plain") {
            let message = "only text/plain can be redacted here";
            return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_type", message));
        }
        let text = read_text(self.0.max_text(), request).await?;
        let done = self.0.redact_text(flow, &policy, &context, text).await?;
        let id = flow.id.to_string();
        let mut response = if explain {
            Response::full(StatusCode::OK, "application/json", explanation(&context, &done, &id).to_string())
        } else {
            Response::full(StatusCode::OK, "text/plain; charset=utf-8", done.redacted)
        };
        add_document_headers(&mut response.head, &id, &done.policy, &done.policy_version);
        Ok(response)
    }
}

fn add_document_headers(head: &mut ResponseHead, id: &str, policy: &str, version: &str) {
    let fields = [("X-Document-Id", id), ("X-Interflow-Policy", policy), ("X-Interflow-Policy-Version", version)];
    for (name, value) in fields {
        // A policy's name may contain characters that are invalid in a header.
        let _ = head.headers.append(name, value);
    }
    head.headers.append_unchecked(b"Cache-Control", b"no-store");
}

fn refusal(status: StatusCode, code: &'static str, message: impl Into<String>) -> LlmRefusal {
    let kind = if status == StatusCode::PAYLOAD_TOO_LARGE { "payload_too_large" } else { "invalid_request" };
    LlmRefusal::new(status, kind, code, message)
}

async fn read_text(max: usize, request: Request) -> Result<String, LlmRefusal> {
    let bytes = match request.body.collect(max).await {
        Ok((bytes, _)) => bytes,
        Err(CollectError::TooLarge(_)) => {
            let message = format!("the text is larger than {max} bytes (redact.max_body)");
            return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, "request_body_too_large", message));
        }
        Err(CollectError::Broken(e)) => return Err(refusal(StatusCode::BAD_REQUEST, "body_read", e.to_string())),
    };
    String::from_utf8(bytes.into())
        .map_err(|e| refusal(StatusCode::BAD_REQUEST, "bad_text", format!("the text is not UTF-8: {e}")))
}

/// A query parameter, percent-decoded.
fn parameter(query: Option<&str>, name: &str) -> String {
    let value = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    percent::decoded_form(value.unwrap_or_default())
}

/// What was found and replaced. Offsets are in UTF-16 code units, as JavaScript and Java count.
fn explanation(context: &str, done: &RedactedText, id: &str) -> Value {
    let text = done.original.as_str();
    let mut units = Utf16Counter { text, byte: 0, unit: 0 };
    let spans: Vec<Value> = done
        .spans
        .iter()
        .enumerate()
        .map(|(i, s)| {
            json!({
                "id": i.to_string(),
                "characterStart": units.offset_at(s.start),
                "characterEnd": units.offset_at(s.end),
                "filterType": s.type_name,
                "context": context,
                "classification": null,
                "confidence": f64::from(s.confidence) / 100.0,
                "text": text.get(s.start..s.end),
                "replacement": s.replacement,
                "salt": null,
                "ignored": false,
                "applied": true,
                "priority": 0
            })
        })
        .collect();
    json!({
        "filteredText": done.redacted,
        "context": context,
        "documentId": id,
        "piece": 0,
        "tokens": text.split_whitespace().count(),
        "explanation": { "appliedSpans": spans, "identifiedSpans": spans },
        "policyName": done.policy,
        "policyVersion": done.policy_version,
        "policyContentHash": done.policy_version
    })
}

/// Converts increasing byte offsets to UTF-16 offsets.
struct Utf16Counter<'t> {
    text: &'t str,
    byte: usize,
    unit: usize,
}

impl Utf16Counter<'_> {
    fn offset_at(&mut self, byte: usize) -> usize {
        self.unit += self.text.get(self.byte..byte).map_or(0, |piece| piece.encode_utf16().count());
        self.byte = byte.max(self.byte);
        self.unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_decoded() {
        let query = Some("c=a%20b+c&p=&pp=x&d=%zz");
        for (name, value) in [("c", "a b c"), ("p", ""), ("pp", "x"), ("d", "%zz"), ("e", "")] {
            assert_eq!(parameter(query, name), value, "{name}");
        }
    }

    #[test]
    fn offsets_count_utf_16_code_units() {
        let text = "\u{1F600}\u{e9} Ann";
        let mut units = Utf16Counter { text, byte: 0, unit: 0 };
        assert_eq!((units.offset_at(7), units.offset_at(10)), (4, 7));
    }
}
