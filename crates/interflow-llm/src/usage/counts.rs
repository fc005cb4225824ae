//! What a response counts, under the names of each provider.

use serde_json::Value;

use interflow_types::{CallUsage, ServiceRegion, ServiceTier};

/// The usage in a response, or in the object of an event that has the members of one.
pub(super) fn usage_in(value: &Value) -> Option<CallUsage> {
    let mut counts = counts_in(value)?;
    let usage = [&value["usage"], &value["usageMetadata"]].into_iter().find(|v| v.is_object()).unwrap_or(value);
    let tool_searches = number(&value["tool_usage"]["web_search"], &["num_requests"]);
    counts.searches = counts.searches.max(tool_searches).max(grounding_searches(value));
    let tiers = [&usage["service_tier"], &usage["serviceTier"], &usage["trafficType"], &value["service_tier"]];
    let tiers = tiers.into_iter().chain([&value["serviceTier"], &value["serviceTier"]["type"]]);
    counts.tier = tiers.filter_map(Value::as_str).map(ServiceTier::from_name).next();
    if usage["speed"] == "fast" && counts.tier.is_none_or(|tier| tier == ServiceTier::Standard) {
        counts.tier = Some(ServiceTier::Fast);
    }
    // Neither the tokens of another model nor those of a picture that a tool made have the price of this model.
    let answered = &value["model"];
    let others = usage["iterations"].as_array().into_iter().flatten().map(|part| &part["model"]);
    let has_others = others.into_iter().any(|model| model.is_string() && answered.is_string() && model != answered);
    if has_others || number(&value["tool_usage"]["image_gen"], &["total_tokens"]) > 0 {
        counts.tier = Some(ServiceTier::Other);
    }
    counts.region = usage["inference_geo"].as_str().and_then(ServiceRegion::from_name);
    Some(counts)
}

fn counts_in(value: &Value) -> Option<CallUsage> {
    let object = |name: &str| value.get(name).filter(|v| v.is_object());
    if let Some(usage) = object("usage") {
        let images = pictures(value);
        return interaction_counts(usage).or_else(|| parse_counts(usage)).map(|counts| CallUsage { images, ..counts });
    }
    if let Some(ocr) = object("usage_info") {
        return Some(CallUsage { pages: number(ocr, &["pages_processed"]), ..CallUsage::default() });
    }
    if let Some(gemini) = object("usageMetadata") {
        return Some(gemini_counts(gemini));
    }
    let plain = |value: &Value, input: &str, output: &str| CallUsage {
        input: number(value, &[input]),
        output: number(value, &[output]),
        ..CallUsage::default()
    };
    if let Some(metrics) = object("amazon-bedrock-invocationMetrics") {
        return Some(plain(metrics, "inputTokenCount", "outputTokenCount"));
    }
    if value.get("eval_count").is_some() || value.get("prompt_eval_count").is_some() {
        return Some(plain(value, "prompt_eval_count", "eval_count"));
    }
    let images = pictures(value);
    if images > 0 {
        return Some(CallUsage { images, ..CallUsage::default() });
    }
    // Cohere reports it there for v1, and for searches in documents.
    object("meta")
        .filter(|meta| meta.get("tokens").or_else(|| meta.get("billed_units")).is_some())
        .and_then(parse_counts)
}

/// Counts under the names of OpenAI, Anthropic, Bedrock and Cohere; `None` if there is none of them.
fn parse_counts(usage: &Value) -> Option<CallUsage> {
    let searches = number(&usage["billed_units"], &["search_units"]);
    let cohere = usage.get("tokens").or_else(|| usage.get("billed_units"));
    let usage = cohere.filter(|v| v.is_object()).unwrap_or(usage);
    let mut names = "input_tokens output_tokens prompt_tokens completion_tokens inputTokens outputTokens total_tokens \
                     search_units seconds"
        .split(' ');
    if names.all(|n| member(usage, n).is_none_or(Value::is_null)) {
        return None;
    }
    let input = number(usage, &["input_tokens", "prompt_tokens", "inputTokens"]);
    let details = ["input_tokens_details", "prompt_tokens_details", "input_token_details"];
    let details = details.iter().find_map(|n| usage.get(*n)).unwrap_or(&Value::Null);
    let cached_details = &details["cached_tokens_details"];
    let inside = number(details, &["cached_tokens"]).max(number(usage, &["prompt_cache_hit_tokens"]));
    // Anthropic and Bedrock count cached tokens separately; OpenAI includes them in the input.
    let beside = number(usage, &["cache_read_input_tokens", "cacheReadInputTokens"]);
    let (written, written_long) = cache_writes(usage);
    let cache_write = written.max(number(details, &["cache_write_tokens"]));
    // OpenAI's for twelve hours rather than half an hour.
    let long_inside = number(&details["cache_write_tokens_details"], &["ttl_12h_tokens"]);
    // Those of a kind include the cached ones.
    let split = |kind: &str| {
        let cached = number(cached_details, &[kind]);
        (number(details, &[kind]).saturating_sub(cached), cached)
    };
    let ((audio_input, audio_cache_read), (image_input, image_cache_read)) =
        (split("audio_tokens"), split("image_tokens"));
    let made = ["output_tokens_details", "completion_tokens_details", "output_token_details"];
    let made = made.iter().find_map(|n| usage.get(*n)).unwrap_or(&Value::Null);
    let reasoning = number(made, &["reasoning_tokens", "thinking_tokens"]);
    let output = number(usage, &["output_tokens", "completion_tokens", "outputTokens"]);
    // xAI counts thoughts beside the output: only the total has both.
    let with_thoughts = output.saturating_add(reasoning);
    let is_beside = number(usage, &["total_tokens"]) == input.saturating_add(with_thoughts);
    let mut counts = CallUsage {
        input: input.saturating_add(beside).saturating_add(written),
        output: if is_beside { with_thoughts } else { output },
        cache_read: inside.max(beside),
        cache_write,
        cache_write_long: written_long.max(long_inside).min(cache_write),
        reasoning,
        audio_input,
        audio_cache_read,
        audio_output: number(made, &["audio_tokens"]),
        image_input,
        image_cache_read,
        image_output: number(made, &["image_tokens"]),
        searches: searches.max(number(&usage["server_tool_use"], &["web_search_requests"])),
        seconds: usage["seconds"].as_f64().map_or(0, |seconds| seconds.ceil() as u64),
        ..CallUsage::default()
    };
    // Summaries of a context that was closed are not in the sums (Anthropic).
    let parts = usage["iterations"].as_array().into_iter().flatten();
    for part in parts.filter(|part| part["type"] == "compaction").filter_map(parse_counts) {
        counts.add(part);
    }
    Some(counts)
}

/// Tokens written to a cache, and those of them that are kept for an hour, as Anthropic and Bedrock count them.
fn cache_writes(usage: &Value) -> (u64, u64) {
    let total = number(usage, &["cache_creation_input_tokens", "cacheWriteInputTokens"]);
    let by_ttl = &usage["cache_creation"];
    let (short, long) =
        (number(by_ttl, &["ephemeral_5m_input_tokens"]), number(by_ttl, &["ephemeral_1h_input_tokens"]));
    let long_of_bedrock = || sum(&usage["cacheDetails"], "inputTokens", |part| part["ttl"] == "1h");
    (total.max(short.saturating_add(long)), long.max(long_of_bedrock()))
}

/// Gemini counts thoughts apart from the candidates, and prompts of tools apart from the prompt. Live has the output under
/// a name of its own.
fn gemini_counts(usage: &Value) -> CallUsage {
    let made = ["candidatesTokensDetails", "responseTokensDetails"].map(|name| &usage[name]);
    let kinds = [
        ["promptTokensDetails", "toolUsePromptTokensDetails"].map(|name| &usage[name]),
        [&usage["cacheTokensDetails"], made.into_iter().find(|list| list.is_array()).unwrap_or(&Value::Null)],
    ];
    let counts = ["promptTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount"];
    let [prompt, tools, cached] = counts.map(|name| number(usage, &[name]));
    let output = number(usage, &["candidatesTokenCount"]).max(number(usage, &["responseTokenCount"]));
    google_counts([prompt, tools, cached, output], number(usage, &["thoughtsTokenCount"]), kinds)
}

/// Google's Interactions count thoughts apart from the output, and prompts of tools apart from the input.
fn interaction_counts(usage: &Value) -> Option<CallUsage> {
    usage.get("total_input_tokens").or_else(|| usage.get("total_output_tokens"))?;
    let kinds = [
        ["input_tokens_by_modality", "tool_use_tokens_by_modality"].map(|name| &usage[name]),
        [&usage["cached_tokens_by_modality"], &usage["output_tokens_by_modality"]],
    ];
    let counts = ["total_input_tokens", "total_tool_use_tokens", "total_cached_tokens", "total_output_tokens"];
    let counts = counts.map(|name| number(usage, &[name]));
    let queries = |kind: &str| sum(&usage["grounding_tool_count"], "count", |part| part["type"] == kind);
    Some(CallUsage {
        searches: queries("google_search"),
        maps: queries("google_maps"),
        ..google_counts(counts, number(usage, &["total_thought_tokens"]), kinds)
    })
}

/// Counts of the prompt, of tools' prompts, of the cache and of the output, and what of them is audio, images and video.
fn google_counts(counts: [u64; 4], reasoning: u64, [prompts, [cached, made]]: [[&Value; 2]; 2]) -> CallUsage {
    let of = |list: &Value, kind: &str| {
        let is_kind = |part: &Value| part["modality"].as_str().is_some_and(|m| m.eq_ignore_ascii_case(kind));
        sum(list, "tokenCount", is_kind).max(sum(list, "tokens", is_kind))
    };
    let read = |kind: &str| {
        let cached = of(cached, kind);
        (prompts.iter().map(|list| of(list, kind)).sum::<u64>().saturating_sub(cached), cached)
    };
    let [prompt, tools, cache_read, output] = counts;
    let ((audio_input, audio_cache_read), (image_input, image_cache_read)) = (read("audio"), read("image"));
    CallUsage {
        input: prompt.saturating_add(tools),
        output: output.saturating_add(reasoning),
        cache_read,
        reasoning,
        audio_input,
        audio_cache_read,
        audio_output: of(made, "audio"),
        image_input,
        image_cache_read,
        image_output: of(made, "image"),
        video_input: read("video").0,
        ..CallUsage::default()
    }
}

/// The pictures that a response is: of OpenAI's API, of Google's `predict`, of Bedrock's models.
fn pictures(value: &Value) -> u64 {
    let list = ["data", "predictions", "images"].iter().find_map(|name| value[*name].as_array());
    let is_picture = |item: &&Value| {
        item.is_string() && value["images"].is_array()
            || ["b64_json", "url", "bytesBase64Encoded"].iter().any(|name| item[*name].is_string())
    };
    list.into_iter().flatten().filter(is_picture).count() as u64
}

/// Searches that a model of Gemini's made for its answer.
fn grounding_searches(value: &Value) -> u64 {
    let candidates = value["candidates"].as_array().into_iter().flatten();
    candidates.filter_map(|c| c["groundingMetadata"]["webSearchQueries"].as_array()).map(|q| q.len() as u64).sum()
}

/// The sum of a member over the objects of a list that fit.
fn sum(list: &Value, name: &str, fits: impl Fn(&Value) -> bool) -> u64 {
    let parts = list.as_array().into_iter().flatten().filter(|part| fits(part));
    parts.fold(0, |sum, part| sum.saturating_add(number(part, &[name])))
}

fn number(value: &Value, names: &[&str]) -> u64 {
    let one = |v: &Value| v.as_u64().or_else(|| v.as_f64().filter(|f| *f >= 0.0).map(|f| f as u64));
    names.iter().find_map(|n| member(value, n).and_then(one)).unwrap_or(0)
}

/// A member of an object that has few: comparing all their names takes less than hashing one.
fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.as_object()?.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
}
