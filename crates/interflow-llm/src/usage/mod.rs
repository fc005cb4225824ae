//! Token usage of a response, normalized across providers, which count cached and reasoning tokens differently.

mod output_count;
mod scanner;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

use interflow_types::{ByteStr, CallUsage};

pub use output_count::{OutputCounter, estimated_tokens};
pub use scanner::{UsageReader, UsageScanner};

use crate::ResponseSummary;

/// The most tokens that one call can use, far beyond what any model takes or writes. A report with a larger count is a
/// mistake, and is read as if there were none: what was counted then applies.
const MAX_TOKENS: u64 = 1_000_000_000;

/// Whether a call can have used as much.
fn is_plausible(usage: &CallUsage) -> bool {
    let CallUsage { input, output, cache_read, cache_write, cache_write_long, reasoning } = *usage;
    [input, output, cache_read, cache_write, cache_write_long, reasoning].iter().all(|n| *n <= MAX_TOKENS)
}

/// Every part of a response with usage contains one of these words. Most events of a stream have none, and are not
/// parsed.
static USAGE_MARKERS: LazyLock<[Finder<'static>; 4]> =
    LazyLock::new(|| ["\"usage", "eval_count\"", "invocationMetrics\"", "\"tokens\""].map(Finder::new));

/// Whether this JSON may contain usage; a fast check without parsing.
pub fn may_hold_usage(json: &[u8]) -> bool {
    USAGE_MARKERS.iter().any(|word| word.find(json).is_some())
}

/// The summary in a response, or in one event of it; `None` if it is not JSON.
pub fn summary_from_json(json: &[u8]) -> Option<ResponseSummary> {
    serde_json::from_slice(json).ok().map(|value| summary_from_value(&value))
}

/// Like [`summary_from_json`], for JSON that is parsed already.
pub fn summary_from_value(value: &Value) -> ResponseSummary {
    // Streams wrap the fields of a complete response: Anthropic, Responses, Interactions, Bedrock, Cohere.
    let inner =
        [value, &value["message"], &value["response"], &value["interaction"], &value["metadata"], &value["delta"]];
    let usage = inner.iter().find_map(|v| usage_in(v)).filter(is_plausible);
    let text = |names: &[&str]| {
        let reported_model = inner.iter().take(4).find_map(|v| names.iter().find_map(|n| v[*n].as_str()));
        reported_model.map(ByteStr::from)
    };
    let (model, id) = (text(&["model", "modelVersion"]), text(&["id", "responseId"]));
    ResponseSummary { usage, model, id, status: text(&["status"]), service_tier: text(&["service_tier"]) }
}

fn usage_in(value: &Value) -> Option<CallUsage> {
    let object = |name: &str| value.get(name).filter(|v| v.is_object());
    if let Some(usage) = object("usage") {
        return interaction_counts(usage).or_else(|| parse_counts(usage));
    }
    if let Some(gemini) = object("usageMetadata") {
        return Some(gemini_counts(gemini));
    }
    if let Some(metrics) = object("amazon-bedrock-invocationMetrics") {
        return Some(CallUsage {
            input: number(metrics, &["inputTokenCount"]),
            output: number(metrics, &["outputTokenCount"]),
            ..CallUsage::default()
        });
    }
    if value.get("eval_count").is_some() || value.get("prompt_eval_count").is_some() {
        return Some(CallUsage {
            input: number(value, &["prompt_eval_count"]),
            output: number(value, &["eval_count"]),
            ..CallUsage::default()
        });
    }
    // Cohere v1 reports it under `meta`.
    object("meta").and_then(|m| m.get("tokens")).and_then(parse_counts)
}

/// Counts under the names of OpenAI, Anthropic, Bedrock and Cohere; `None` if there is none of them.
fn parse_counts(usage: &Value) -> Option<CallUsage> {
    let cohere = usage.get("tokens").or_else(|| usage.get("billed_units"));
    let usage = cohere.filter(|v| v.is_object()).unwrap_or(usage);
    let names = [
        "input_tokens",
        "output_tokens",
        "prompt_tokens",
        "completion_tokens",
        "inputTokens",
        "outputTokens",
        "total_tokens",
    ];
    if names.iter().all(|n| usage.get(*n).is_none_or(Value::is_null)) {
        return None;
    }
    let mut input = number(usage, &["input_tokens", "prompt_tokens", "inputTokens"]);
    let output = number(usage, &["output_tokens", "completion_tokens", "outputTokens"]);
    let details = ["input_tokens_details", "prompt_tokens_details"].iter().find_map(|n| usage.get(*n));
    let detail = |name: &str| details.map_or(0, |d| number(d, &[name]));
    let inside = detail("cached_tokens").max(number(usage, &["prompt_cache_hit_tokens"]));
    // Anthropic and Bedrock count cached tokens separately; OpenAI includes them in the input.
    let beside = number(usage, &["cache_read_input_tokens", "cacheReadInputTokens"]);
    let (written, written_long) = cache_writes(usage);
    input = input.saturating_add(beside).saturating_add(written);
    let (written_inside, long_inside) = (detail("cache_write_tokens"), details.map_or(0, long_writes_of_openai));
    let details = ["output_tokens_details", "completion_tokens_details"].iter().find_map(|n| usage.get(*n));
    let reasoning = details.map_or(0, |d| number(d, &["reasoning_tokens"]));
    let cache_write = written.max(written_inside);
    Some(CallUsage {
        input,
        output,
        cache_read: inside.max(beside),
        cache_write,
        cache_write_long: written_long.max(long_inside).min(cache_write),
        reasoning,
    })
}

/// Tokens written to a cache, and those of them that are kept for an hour, as Anthropic and Bedrock count them.
fn cache_writes(usage: &Value) -> (u64, u64) {
    let total = number(usage, &["cache_creation_input_tokens", "cacheWriteInputTokens"]);
    let by_ttl = &usage["cache_creation"];
    let (short, long) =
        (number(by_ttl, &["ephemeral_5m_input_tokens"]), number(by_ttl, &["ephemeral_1h_input_tokens"]));
    let long_of_bedrock = || {
        let details = usage["cacheDetails"].as_array();
        let long = details.into_iter().flatten().filter(|part| part["ttl"] == "1h");
        long.fold(0u64, |sum, part| sum.saturating_add(number(part, &["inputTokens"])))
    };
    (total.max(short.saturating_add(long)), long.max(long_of_bedrock()))
}

/// Tokens written to a cache for twelve hours rather than half an hour.
fn long_writes_of_openai(details: &Value) -> u64 {
    number(&details["cache_write_tokens_details"], &["ttl_12h_tokens"])
}

/// Gemini counts thoughts apart from the candidates, and prompts of tools apart from the prompt.
fn gemini_counts(usage: &Value) -> CallUsage {
    let reasoning = number(usage, &["thoughtsTokenCount"]);
    CallUsage {
        input: number(usage, &["promptTokenCount"]).saturating_add(number(usage, &["toolUsePromptTokenCount"])),
        output: number(usage, &["candidatesTokenCount"]).saturating_add(reasoning),
        cache_read: number(usage, &["cachedContentTokenCount"]),
        reasoning,
        ..CallUsage::default()
    }
}

/// Google's Interactions count thoughts apart from the output, and prompts of tools apart from the input.
fn interaction_counts(usage: &Value) -> Option<CallUsage> {
    usage.get("total_input_tokens").or_else(|| usage.get("total_output_tokens"))?;
    let reasoning = number(usage, &["total_thought_tokens"]);
    Some(CallUsage {
        input: number(usage, &["total_input_tokens"]).saturating_add(number(usage, &["total_tool_use_tokens"])),
        output: number(usage, &["total_output_tokens"]).saturating_add(reasoning),
        cache_read: number(usage, &["total_cached_tokens"]),
        reasoning,
        ..CallUsage::default()
    })
}

fn number(value: &Value, names: &[&str]) -> u64 {
    let one = |v: &Value| v.as_u64().or_else(|| v.as_f64().filter(|f| *f >= 0.0).map(|f| f as u64));
    names.iter().find_map(|n| value.get(*n).and_then(one)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn usage_of_every_provider_is_normalized() {
        let usage = |input, output, cache_read, cache_write, reasoning| CallUsage {
            input,
            output,
            cache_read,
            cache_write,
            cache_write_long: 0,
            reasoning,
        };
        for (body, wanted) in [
            (
                json!({"model": "m", "usage": {"prompt_tokens": 10, "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 6}, "completion_tokens_details": {"reasoning_tokens": 3}}}),
                usage(10, 4, 6, 0, 3),
            ),
            (
                json!({"response": {"model": "m", "usage": {"input_tokens": 10, "output_tokens": 4,
                    "input_tokens_details": {"cached_tokens": 6}, "output_tokens_details": {"reasoning_tokens": 3}}}}),
                usage(10, 4, 6, 0, 3),
            ),
            (
                json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3,
                    "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}}}),
                usage(10, 1, 5, 2, 0),
            ),
            (json!({"type": "message_delta", "usage": {"output_tokens": 40}}), usage(0, 40, 0, 0, 0)),
            (
                json!({"modelVersion": "m", "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 1,
                    "thoughtsTokenCount": 3, "cachedContentTokenCount": 6}}),
                usage(10, 4, 6, 0, 3),
            ),
            (
                json!({"usage": {"inputTokens": 8, "outputTokens": 4, "cacheReadInputTokens": 2, "totalTokens": 14}}),
                usage(10, 4, 2, 0, 0),
            ),
            (
                json!({"amazon-bedrock-invocationMetrics": {"inputTokenCount": 9, "outputTokenCount": 2}}),
                usage(9, 2, 0, 0, 0),
            ),
            (json!({"model": "m", "done": true, "prompt_eval_count": 9, "eval_count": 2}), usage(9, 2, 0, 0, 0)),
            (
                json!({"type": "message-end", "delta": {"usage": {"billed_units": {"input_tokens": 1},
                    "tokens": {"input_tokens": 9.0, "output_tokens": 2.0}}}}),
                usage(9, 2, 0, 0, 0),
            ),
            (json!({"usage": {"prompt_tokens": 8, "total_tokens": 8}}), usage(8, 0, 0, 0, 0)),
            (
                json!({"event_type": "interaction.completed", "interaction": {"model": "m", "usage": {
                    "total_input_tokens": 8, "total_cached_tokens": 6, "total_output_tokens": 1,
                    "total_thought_tokens": 3, "total_tool_use_tokens": 2, "total_tokens": 14}}}),
                usage(10, 4, 6, 0, 3),
            ),
        ] {
            let settled = summary_from_value(&body);
            assert_eq!(settled.usage, Some(wanted), "{body}");
            assert!(may_hold_usage(body.to_string().as_bytes()), "{body}");
        }
    }

    #[test]
    fn cache_writes_are_read_by_their_time_to_live() {
        for (usage, input, written, long) in [
            // As Anthropic documents it: the three counts are beside each other.
            (
                json!({"input_tokens": 40, "cache_read_input_tokens": 90_000, "cache_creation_input_tokens": 3_000,
                    "cache_creation": {"ephemeral_5m_input_tokens": 1_000, "ephemeral_1h_input_tokens": 2_000}, "output_tokens": 7}),
                93_040,
                3_000,
                2_000,
            ),
            (json!({"input_tokens": 40, "cache_creation_input_tokens": 3_000, "output_tokens": 7}), 3_040, 3_000, 0),
            (
                json!({"input_tokens": 1, "cache_creation": {"ephemeral_1h_input_tokens": 5}, "output_tokens": 1}),
                6,
                5,
                5,
            ),
            (
                json!({"inputTokens": 8, "outputTokens": 4, "cacheWriteInputTokens": 6,
                    "cacheDetails": [{"ttl": "5m", "inputTokens": 2}, {"ttl": "1h", "inputTokens": 4}]}),
                14,
                6,
                4,
            ),
            // As OpenAI documents it: both counts are inside the input.
            (
                json!({"input_tokens": 5_200, "input_tokens_details": {"cached_tokens": 4_096, "cache_write_tokens": 1_024,
                    "cache_write_tokens_details": {"ttl_30m_tokens": 24, "ttl_12h_tokens": 1_000}}, "output_tokens": 310}),
                5_200,
                1_024,
                1_000,
            ),
            (
                json!({"prompt_tokens": 90, "prompt_tokens_details": {"cache_write_tokens": 10}, "completion_tokens": 1}),
                90,
                10,
                0,
            ),
        ] {
            let read = summary_from_value(&json!({ "usage": usage })).usage.unwrap();
            assert_eq!((read.input, read.cache_write, read.cache_write_long), (input, written, long), "{usage}");
        }
    }

    #[test]
    fn counts_that_no_call_can_have_are_not_reported() {
        let most = json!({"usage": {"prompt_tokens": 1, "completion_tokens": MAX_TOKENS}});
        assert_eq!(summary_from_value(&most).usage.map(|usage| usage.output), Some(MAX_TOKENS));
        for absurd in ["1000000001", "9223372036854775807", "18446744073709551615", "99999999999999999999", "1e300"] {
            for body in [
                format!(r#"{{"usage":{{"prompt_tokens":100,"completion_tokens":{absurd}}}}}"#),
                format!(r#"{{"usage":{{"input_tokens":1,"cache_read_input_tokens":{absurd},"output_tokens":1}}}}"#),
                format!(r#"{{"usageMetadata":{{"promptTokenCount":{absurd},"candidatesTokenCount":1}}}}"#),
                format!(r#"{{"prompt_eval_count":{absurd},"eval_count":1}}"#),
            ] {
                assert_eq!(summary_from_json(body.as_bytes()).unwrap().usage, None, "{body}");
            }
        }
    }

    #[test]
    fn missing_usage_is_none() {
        for body in
            [json!({}), json!([]), json!("x"), json!({"usage": null}), json!({"usage": {}}), json!({"choices": []})]
        {
            assert_eq!(summary_from_value(&body).usage, None, "{body}");
        }
        assert_eq!(summary_from_json(b"<html>"), None);
    }
}
