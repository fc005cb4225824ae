//! What Mistral's chat completions take of OpenAI's, and what they have of their own. A request for them that fits is
//! sent as it is; any other is translated.

use interflow_models::capabilities;
use interflow_types::data_file::has_word;
use serde_json::Value;

/// Members that OpenAI's Chat Completions do not have, or that mean nothing to the other APIs; they go to Mistral as they
/// are.
const OWN: &str = "random_seed safe_prompt prompt_mode guardrails min_tokens repetition_penalty prediction prompt_cache_key \
    metadata document_image_limit document_page_limit";
/// The members that both have.
const SHARED: &str = "model messages temperature top_p max_tokens stream stop response_format tools tool_choice presence_penalty \
    frequency_penalty n parallel_tool_calls reasoning_effort top_k logprobs top_logprobs service_tier";

pub(super) fn is_own_member(name: &str) -> bool {
    has_word(OWN, name)
}

/// Whether Mistral takes a body of Chat Completions as it is: it refuses members that it does not know, ids of calls that
/// are not nine letters and digits, and some orders of messages. `follows_tools`: the user may speak right after a tool.
pub fn is_accepted(body: &Value, follows_tools: bool) -> bool {
    let is_known = |name: &String| has_word(SHARED, name) || is_own_member(name);
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let breaks_order = |pair: &[Value]| !follows_tools && pair[0]["role"] == "tool" && pair[1]["role"] == "user";
    let ends_well = messages.last().is_none_or(|last| last["role"] != "assistant" || last["prefix"] == true);
    body.as_object().is_some_and(|members| members.keys().all(is_known))
        && messages.iter().all(is_message)
        && !messages.windows(2).any(breaks_order)
        && ends_well
        && body["tools"].as_array().into_iter().flatten().all(is_tool)
        && body["reasoning_effort"].as_str().is_none_or(|effort| takes_effort(&body["model"], effort))
}

fn takes_effort(model: &Value, effort: &str) -> bool {
    let row = model.as_str().and_then(|model| capabilities("mistral", model));
    row.is_none_or(|row| row.effort.as_ref().is_some_and(|ladder| ladder.takes(effort)))
}

fn is_message(message: &Value) -> bool {
    let members: &[&str] = match message["role"].as_str() {
        Some("system" | "user") => &["role", "content"],
        Some("assistant") => &["role", "content", "tool_calls", "prefix"],
        Some("tool") => &["role", "content", "tool_call_id", "name"],
        _ => return false,
    };
    let is_call = |call: &Value| is_call_id(&call["id"]) && call.get("custom").is_none();
    has_only(message, members)
        && message["content"].as_array().into_iter().flatten().all(is_part)
        && message["tool_calls"].as_array().into_iter().flatten().all(is_call)
        && message.get("tool_call_id").is_none_or(is_call_id)
}

fn is_call_id(id: &Value) -> bool {
    id.as_str().is_none_or(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()))
}

fn is_part(part: &Value) -> bool {
    match part["type"].as_str() {
        Some("text" | "image_url" | "document_url" | "reference" | "thinking") => true,
        Some("input_audio") => part["input_audio"].is_string(),
        Some("file") => part["file_id"].is_string(),
        _ => false,
    }
}

fn is_tool(tool: &Value) -> bool {
    match tool["type"].as_str() {
        Some("function") => has_only(&tool["function"], &["name", "description", "parameters", "strict"]),
        // Those that Mistral runs itself.
        kind => kind != Some("custom"),
    }
}

fn has_only(object: &Value, known: &[&str]) -> bool {
    object.as_object().is_some_and(|members| members.keys().all(|name| known.contains(&name.as_str())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{target, written};
    use super::super::{Target, WireFormat};
    use super::*;

    fn with(more: Value) -> Value {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "q" }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }

    fn history(id: &str, after: Value) -> Value {
        with(json!({ "messages": [
            { "role": "user", "content": "q" },
            { "role": "assistant", "tool_calls": [{ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": id, "content": "r" },
            after,
        ] }))
    }

    #[test]
    fn a_request_fits_mistral_or_is_translated() {
        let answer = json!({ "role": "assistant", "content": "a", "prefix": true });
        for (body, fits) in [
            (with(json!({})), true),
            (with(json!({ "random_seed": 1, "safe_prompt": true, "tool_choice": "any" })), true),
            (with(json!({ "seed": 1 })), false),
            (with(json!({ "model": "mistral-large-4", "reasoning_effort": "high" })), true),
            (with(json!({ "model": "mistral-large-4", "reasoning_effort": "none" })), true),
            (with(json!({ "model": "mistral-large-4", "reasoning_effort": "low" })), false),
            (with(json!({ "max_completion_tokens": 1 })), false),
            (with(json!({ "stream": true, "stream_options": { "include_usage": true } })), false),
            (with(json!({ "user": "u" })), false),
            (with(json!({ "messages": [{ "role": "developer", "content": "q" }] })), false),
            (with(json!({ "messages": [{ "role": "user", "content": "q", "name": "Ann" }] })), false),
            (
                with(
                    json!({ "messages": [{ "role": "assistant", "content": "a", "reasoning_content": "" }, { "role": "user", "content": "q" }] }),
                ),
                false,
            ),
            (
                with(
                    json!({ "messages": [{ "role": "user", "content": "q" }, { "role": "assistant", "content": "a" }] }),
                ),
                false,
            ),
            (
                with(
                    json!({ "messages": [{ "role": "user", "content": [{ "type": "file", "file": { "file_data": "data:" } }] }] }),
                ),
                false,
            ),
            (
                with(
                    json!({ "messages": [{ "role": "user", "content": [{ "type": "document_url", "document_url": "https://a.test" }] }] }),
                ),
                true,
            ),
            (with(json!({ "tools": [{ "type": "custom", "custom": { "name": "c" } }] })), false),
            (with(json!({ "tools": [{ "type": "web_search" }] })), true),
            (history("abcdefgh1", answer.clone()), true),
            (history("call_1", answer), false),
            (history("abcdefgh1", json!({ "role": "user", "content": "more" })), false),
        ] {
            assert_eq!(is_accepted(&body, false), fits, "{body}");
        }
        assert!(is_accepted(&history("abcdefgh1", json!({ "role": "user", "content": "more" })), true));
    }

    #[test]
    fn what_is_written_for_mistral_fits_and_keeps_its_own_members() {
        let ask = json!({
            "model": "m", "max_completion_tokens": 9, "stream": true, "stream_options": { "include_usage": true },
            "seed": 7, "user": "u", "safe_prompt": true, "prediction": { "type": "content", "content": "x" },
            "tool_choice": "required", "parallel_tool_calls": false, "top_k": 3, "logit_bias": { "1": 2 },
            "tools": [{ "type": "function", "function": { "name": "f", "strict": true, "parameters": { "type": "object", "properties": {} } } }],
            "messages": [
                { "role": "developer", "content": "s" },
                { "role": "user", "content": "q", "name": "Ann" },
                { "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{ "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
                { "role": "tool", "tool_call_id": "call_1", "content": "r" },
                { "role": "user", "content": "more" },
                { "role": "assistant", "content": "Well" },
            ],
        });
        let mistral = Target { assistant_after_tools: true, ..target(WireFormat::Mistral, "magistral-medium-2509") };
        let (body, losses) = written(WireFormat::OpenAiChat, &mistral, ask.clone());
        assert!(is_accepted(&body, false), "{body}");
        assert_eq!(losses, "logit_bias, messages.name, top_k, user");
        assert_eq!(
            (&body["random_seed"], &body["max_tokens"], &body["safe_prompt"]),
            (&json!(7), &json!(9), &json!(true))
        );
        assert_eq!((&body["tool_choice"], &body["parallel_tool_calls"]), (&json!("any"), &json!(false)));
        assert_eq!(body["tools"][0]["function"]["strict"], true);
        assert_eq!(body["messages"][2]["content"][0]["thinking"][0]["text"], "hm");
        assert_eq!(body["messages"][6], json!({ "role": "assistant", "content": "Well", "prefix": true }));
        // Another model has no thoughts, and other APIs do not have Mistral's members.
        let large = Target { model: "mistral-large-2512", ..mistral };
        assert!(written(WireFormat::OpenAiChat, &large, ask.clone()).1.contains("thinking"));
        let (body, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::OpenAiChat, "m"), ask);
        assert!(losses.contains("prediction, safe_prompt") && body.get("safe_prompt").is_none(), "{losses}");
    }

    #[test]
    fn effort_takes_the_values_that_a_model_has() {
        for (model, effort, expected, lost) in [
            ("mistral-small-latest", "low", json!("high"), "reasoning.effort"),
            ("mistral-small-2603", "none", json!("none"), ""),
            ("mistral-large-4", "low", json!("high"), "reasoning.effort"),
            ("mistral-large-2512", "high", Value::Null, "reasoning"),
            ("magistral-small-2509", "high", Value::Null, ""),
        ] {
            let ask = with(json!({ "reasoning_effort": effort }));
            let (body, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::Mistral, model), ask);
            assert_eq!((body["reasoning_effort"].clone(), losses.as_str()), (expected, lost), "{model}");
        }
    }
}
