//! The number of tokens of a request (`/v1/messages/count_tokens` of Anthropic's API), asked of upstreams with other APIs,
//! and estimated for those that cannot tell.

use std::time::Instant;

use interflow_codec::content_coding as coding;
use interflow_llm::translate::{Target, WireFormat};
use interflow_llm::{LlmCall, Operation, Provider};
use interflow_types::{Body, RequestHead, Response, ResponseHead, StatusCode};
use serde_json::{Value, json};

use super::upstream_error::read_error;

/// Says of a number of tokens whether the provider counted (`exact`) or the gateway estimated (`estimate`).
const COUNT_HEADER: &[u8] = b"X-Interflow-Token-Count";

/// The body of a request that counts, made of that of the chat request.
pub(super) fn request(target: &Target<'_>, mut chat: Value) -> Value {
    let retain = |mut chat: Value, keeps: fn(&str) -> bool| {
        if let Some(members) = chat.as_object_mut() {
            members.retain(|name, _| keeps(name));
        }
        chat
    };
    match (target.format, target.provider) {
        // What the model may answer does not count.
        (WireFormat::Bedrock, _) => {
            let chat = retain(chat, |name| !NOT_COUNTED_BY_BEDROCK.contains(&name));
            json!({ "input": { "converse": chat } })
        }
        // What Gemini's own API takes beside messages is a whole request.
        (WireFormat::Gemini, Provider::Gemini) => {
            let name = format!("models/{}", target.model.trim_start_matches("models/"));
            if let Some(members) = chat.as_object_mut() {
                members.insert("model".to_owned(), name.into());
            }
            json!({ "generateContentRequest": chat })
        }
        (WireFormat::Gemini, _) => retain(chat, |name| !NOT_COUNTED_BY_VERTEX.contains(&name)),
        (WireFormat::OpenAiResponses, _) => retain(chat, |name| COUNTED_BY_OPENAI.contains(&name)),
        _ => chat,
    }
}

/// The chat request in a body that counts.
pub(super) fn counted(client: WireFormat, mut body: Value) -> Value {
    let inner = match client {
        WireFormat::Gemini => body.get_mut("generateContentRequest"),
        WireFormat::Bedrock => body.pointer_mut("/input/converse"),
        _ => None,
    };
    inner.map(Value::take).unwrap_or(body)
}

/// Members of a request that `/v1/responses/input_tokens` takes; those about the answer are errors there.
const COUNTED_BY_OPENAI: [&str; 8] =
    ["input", "instructions", "model", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools"];

/// Members of Converse that its count of tokens does not take.
const NOT_COUNTED_BY_BEDROCK: [&str; 4] = ["inferenceConfig", "outputConfig", "requestMetadata", "serviceTier"];
/// Members of `generateContent` that Vertex AI's count of tokens does not take.
const NOT_COUNTED_BY_VERTEX: [&str; 3] = ["labels", "serviceTier", "toolConfig"];

/// Whether an error says that there is no such model, rather than no such endpoint. Anthropic has one type for both.
fn names_model(body: &[u8]) -> bool {
    let body: Value = interflow_codec::json::parse(body).unwrap_or_default();
    let error = &body["error"];
    error["code"] == "model_not_found"
        || error["code"] == "DeploymentNotFound"
        || error["type"] == "not_found_error" && error["message"].as_str().is_some_and(|m| m.starts_with("model:"))
}

/// Whether the upstream of a request that counts says that it has no endpoint for that.
pub(super) const fn has_no_endpoint(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 501)
}

/// Whether a request is one of Anthropic's API that counts.
pub(super) fn is_asked(call: &LlmCall, request: &RequestHead) -> bool {
    call.operation == Operation::CountTokens && request.url.path_only().ends_with("/v1/messages/count_tokens")
}

/// The estimate in place of an error of an upstream [without the endpoint](has_no_endpoint); `None` if the error is about
/// the model, which is the client's mistake.
pub(super) fn estimate_unless_model(call: &LlmCall, error: &[u8]) -> Option<Response> {
    (!names_model(error)).then(|| response(call.provider, call.estimated_input.max(1), "estimate"))
}

/// As [`estimate_unless_model`], of an upstream that was sent the client's own request.
pub(super) async fn estimate_instead(call: &LlmCall, head: &mut ResponseHead, body: Body, deadline: Instant) -> Body {
    let raw = read_error(&head.headers, body, deadline).await;
    coding::strip_stale_headers(&mut head.headers);
    let Some(Response { head: estimated, body }) = estimate_unless_model(call, &raw) else { return Body::from(raw) };
    (head.status, head.reason) = (estimated.status, estimated.reason);
    head.headers.remove("content-type");
    estimated.headers.iter().for_each(|(name, value)| head.headers.append_unchecked(name, value));
    body
}

/// The number in an upstream's response.
pub(super) fn parse(body: &[u8]) -> Option<u64> {
    let body: Value = interflow_codec::json::parse(body).ok()?;
    ["totalTokens", "inputTokens", "input_tokens"].iter().find_map(|name| body[*name].as_u64())
}

/// The answer in the format of a client of this API.
pub(super) fn response(client: Provider, tokens: u64, source: &str) -> Response {
    let name = match client {
        Provider::Gemini | Provider::Vertex => "totalTokens",
        Provider::Bedrock => "inputTokens",
        _ => "input_tokens",
    };
    let body = json!({ name: tokens }).to_string();
    let mut response = Response::full(StatusCode::OK, "application/json", body);
    response.head.headers.append_unchecked(COUNT_HEADER, source.as_bytes());
    response
}
