//! Token usage of a response, normalized across providers, which count cached and reasoning tokens differently.

mod counts;
mod output_count;
mod scanner;
mod usage_tree;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

use interflow_types::{ByteStr, CallUsage};

pub use output_count::{OutputCounter, estimated_tokens};
pub use scanner::UsageReader;

use crate::ResponseSummary;
use counts::usage_in;
use usage_tree::UsageTree;

/// The most tokens that one call can use, far beyond what any model takes or writes. A report with a larger count is a
/// mistake, and is read as if there were none: what was counted then applies.
const MAX_TOKENS: u64 = 1_000_000_000;

/// Whether a call can have used as much.
fn is_plausible(usage: &CallUsage) -> bool {
    usage.counts().iter().all(|n| *n <= MAX_TOKENS)
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
    interflow_codec::json::parse(json).ok().map(|UsageTree(value)| summary_from_value(&value))
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
    let (status, service_tier) = (text(&["status"]), text(&["service_tier"]));
    ResponseSummary { usage, model, id, status, service_tier, by_model: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::{ServiceRegion, ServiceTier};
    use serde_json::json;

    /// What is read of a body; the same from its text and from its tree.
    fn read(body: &Value) -> ResponseSummary {
        let summary = summary_from_value(body);
        assert_eq!(summary_from_json(body.to_string().as_bytes()).as_ref(), Some(&summary), "{body}");
        summary
    }

    #[test]
    fn usage_of_every_provider_is_normalized() {
        let usage = |input, output, cache_read, cache_write, reasoning| CallUsage {
            input,
            output,
            cache_read,
            cache_write,
            reasoning,
            ..CallUsage::default()
        };
        for (body, wanted) in [
            (
                json!({"model": "m", "usage": {"prompt_tokens": 10, "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 6}, "completion_tokens_details": {"reasoning_tokens": 3}}}),
                usage(10, 4, 6, 0, 3),
            ),
            (
                json!({"usage": {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 331,
                    "completion_tokens_details": {"reasoning_tokens": 317}}}),
                usage(12, 319, 0, 0, 317),
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
            let settled = read(&body);
            assert_eq!(settled.usage, Some(wanted), "{body}");
            assert!(may_hold_usage(body.to_string().as_bytes()), "{body}");
        }
    }

    #[test]
    fn pictures_are_counted_by_piece() {
        for (body, images) in [
            (json!({"created": 1, "data": [{"b64_json": "AA"}, {"url": "https://a.test/b.png"}]}), Some(2)),
            (json!({"predictions": [{"bytesBase64Encoded": "AA", "mimeType": "image/png"}]}), Some(1)),
            (json!({"images": ["AA", "AA"], "error": null}), Some(2)),
            (json!({"data": [{"object": "embedding", "embedding": [1]}]}), None),
            (json!({"predictions": [{"content": "AA"}], "images": []}), None),
        ] {
            assert_eq!(read(&body).usage.map(|usage| usage.images), images, "{body}");
        }
        let both = json!({"data": [{"b64_json": "AA"}], "usage": {"input_tokens": 9, "output_tokens": 100}});
        let usage = read(&both).usage.unwrap();
        assert_eq!((usage.images, usage.output), (1, 100));
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
            let read = read(&json!({ "usage": usage })).usage.unwrap();
            assert_eq!((read.input, read.cache_write, read.cache_write_long), (input, written, long), "{usage}");
        }
    }

    #[test]
    fn what_is_priced_apart_is_read_under_the_names_of_each_provider() {
        let usage = |usage: Value| read(&usage).usage.unwrap();
        let anthropic = usage(json!({"model": "m", "usage": {"input_tokens": 40, "output_tokens": 700,
            "output_tokens_details": {"thinking_tokens": 400}, "server_tool_use": {"web_search_requests": 2},
            "service_tier": "standard", "speed": "fast", "inference_geo": "us",
            "iterations": [{"type": "message", "model": "m", "input_tokens": 40, "output_tokens": 700},
                {"type": "compaction", "input_tokens": 9, "output_tokens": 1}]}}));
        let (tier, region) = (Some(ServiceTier::Fast), Some(ServiceRegion::Us));
        let read =
            CallUsage { input: 49, output: 701, reasoning: 400, searches: 2, tier, region, ..CallUsage::default() };
        assert_eq!(anthropic, read);
        let advised = json!({"model": "m", "usage": {"input_tokens": 1, "output_tokens": 1, "service_tier": "standard",
            "iterations": [{"type": "advisor_message", "model": "other", "input_tokens": 9, "output_tokens": 9}]}});
        assert_eq!(usage(advised).tier, Some(ServiceTier::Other), "another model has another price");

        let responses = usage(json!({"response": {"model": "m", "service_tier": "flex", "tool_usage": {
            "image_gen": {"total_tokens": 0}, "web_search": {"num_requests": 3}},
            "usage": {"input_tokens": 9, "output_tokens": 4}}}));
        assert_eq!((responses.searches, responses.tier), (3, Some(ServiceTier::Flex)));
        let realtime =
            usage(json!({"type": "response.done", "response": {"usage": {"input_tokens": 100, "output_tokens": 50,
            "input_token_details": {"text_tokens": 30, "audio_tokens": 60, "image_tokens": 10, "cached_tokens": 40,
                "cached_tokens_details": {"text_tokens": 10, "audio_tokens": 25, "image_tokens": 5}},
            "output_token_details": {"text_tokens": 20, "audio_tokens": 30}}}}));
        let read = CallUsage {
            input: 100,
            output: 50,
            cache_read: 40,
            audio_input: 35,
            audio_cache_read: 25,
            audio_output: 30,
            image_input: 5,
            image_cache_read: 5,
            ..CallUsage::default()
        };
        assert_eq!(realtime, read);
        assert_eq!(usage(json!({"text": "a", "usage": {"type": "duration", "seconds": 11.2}})).seconds, 12);
        assert_eq!(usage(json!({"results": [], "meta": {"billed_units": {"search_units": 2}}})).searches, 2);
        assert_eq!(usage(json!({"pages": [], "usage_info": {"pages_processed": 3, "doc_size_bytes": 9}})).pages, 3);

        let gemini = usage(
            json!({"modelVersion": "m", "candidates": [{"groundingMetadata": {"webSearchQueries": ["a", "b"]}}],
            "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 20, "cachedContentTokenCount": 30,
                "trafficType": "ON_DEMAND_PRIORITY",
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 40}, {"modality": "AUDIO", "tokenCount": 60}],
                "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 30}],
                "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 15}]}}),
        );
        let tier = Some(ServiceTier::Priority);
        let read = CallUsage {
            input: 100,
            output: 20,
            cache_read: 30,
            audio_input: 30,
            audio_cache_read: 30,
            image_output: 15,
            searches: 2,
            tier,
            ..CallUsage::default()
        };
        assert_eq!(gemini, read);
        let live = usage(json!({"serverContent": {"turnComplete": true}, "usageMetadata": {"promptTokenCount": 100,
            "responseTokenCount": 500, "thoughtsTokenCount": 50, "totalTokenCount": 650,
            "responseTokensDetails": [{"modality": "AUDIO", "tokenCount": 480}]}}));
        assert_eq!((live.output, live.reasoning, live.audio_output), (550, 50, 480));
        let interaction = usage(json!({"usage": {"total_input_tokens": 9, "total_output_tokens": 1,
            "input_tokens_by_modality": [{"modality": "video", "tokens": 4}],
            "grounding_tool_count": [{"type": "google_search", "count": 3}, {"type": "google_maps", "count": 1}]}}));
        assert_eq!((interaction.video_input, interaction.searches, interaction.maps), (4, 3, 1));
        let converse = json!({"usage": {"inputTokens": 8, "outputTokens": 4}, "serviceTier": {"type": "flex"}});
        assert_eq!(usage(converse).tier, Some(ServiceTier::Flex));
        for (name, tier) in
            [("default", ServiceTier::Standard), ("on_demand", ServiceTier::Standard), ("scale", ServiceTier::Other)]
        {
            let body = json!({"service_tier": name, "usage": {"prompt_tokens": 1}});
            assert_eq!(usage(body).tier, Some(tier), "{name}");
        }
    }

    #[test]
    fn counts_that_no_call_can_have_are_not_reported() {
        let most = json!({"usage": {"prompt_tokens": 1, "completion_tokens": MAX_TOKENS}});
        assert_eq!(read(&most).usage.map(|usage| usage.output), Some(MAX_TOKENS));
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
            assert_eq!(read(&body).usage, None, "{body}");
        }
        assert_eq!(summary_from_json(b"<html>"), None);
    }
}
