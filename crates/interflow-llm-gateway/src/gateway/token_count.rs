//! The number of tokens of a request (`/v1/messages/count_tokens` of Anthropic's API), asked of upstreams with other APIs.

use interflow_llm::Provider;
use interflow_llm::translate::{Target, WireFormat};
use interflow_types::{Response, StatusCode};
use serde_json::{Value, json};

/// Says of a number of tokens whether the provider counted (`exact`) or the gateway estimated (`estimate`).
const COUNT_HEADER: &[u8] = b"X-Interflow-Token-Count";

/// The body of a request that counts, made of that of the chat request.
pub(super) fn request(target: &Target<'_>, mut chat: Value) -> Value {
    let members = chat.as_object_mut();
    match (target.format, target.provider) {
        (WireFormat::Bedrock, _) => {
            // What the model may answer does not count.
            if let Some(members) = members {
                members.retain(|name, _| !NOT_COUNTED_BY_BEDROCK.contains(&name.as_str()));
            }
            json!({ "input": { "converse": chat } })
        }
        // What Gemini's own API takes beside messages is a whole request.
        (WireFormat::Gemini, Provider::Gemini) => {
            let name = format!("models/{}", target.model.trim_start_matches("models/"));
            if let Some(members) = members {
                members.insert("model".to_owned(), name.into());
            }
            json!({ "generateContentRequest": chat })
        }
        (WireFormat::Gemini, _) => {
            if let Some(members) = members {
                members.retain(|name, _| !NOT_COUNTED_BY_VERTEX.contains(&name.as_str()));
            }
            chat
        }
        (WireFormat::OpenAiResponses, _) => {
            if let Some(members) = members {
                members.retain(|name, _| COUNTED_BY_OPENAI.contains(&name.as_str()));
            }
            chat
        }
        _ => chat,
    }
}

/// Members of a request that `/v1/responses/input_tokens` takes; those about the answer are errors there.
const COUNTED_BY_OPENAI: [&str; 8] =
    ["input", "instructions", "model", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools"];

/// Members of Converse that its count of tokens does not take.
const NOT_COUNTED_BY_BEDROCK: [&str; 4] = ["inferenceConfig", "outputConfig", "requestMetadata", "serviceTier"];
/// Members of `generateContent` that Vertex AI's count of tokens does not take.
const NOT_COUNTED_BY_VERTEX: [&str; 3] = ["labels", "serviceTier", "toolConfig"];

/// Whether an error says that there is no such model, rather than no such endpoint.
pub(super) fn names_model(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body["error"]["code"] == "model_not_found" || body["error"]["code"] == "DeploymentNotFound"
}

/// The number in an upstream's response.
pub(super) fn parse(body: &[u8]) -> Option<u64> {
    let body: Value = serde_json::from_slice(body).ok()?;
    ["totalTokens", "inputTokens", "input_tokens"].iter().find_map(|name| body[*name].as_u64())
}

pub(super) fn response(tokens: u64, source: &str) -> Response {
    let body = json!({ "input_tokens": tokens }).to_string();
    let mut response = Response::full(StatusCode::OK, "application/json", body);
    response.head.headers.append_unchecked(COUNT_HEADER, source.as_bytes());
    response
}
