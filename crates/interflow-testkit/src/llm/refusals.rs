//! What single models refuse, as their providers document it: sampling, efforts, ways to think, forced calls of tools,
//! histories other than those that thoughts were signed over.

use serde_json::{Value, json};

use super::Api;
use super::knobs::fnv1a;
use crate::message::Request;

type Checked = Result<(), String>;

/// The value of `anthropic-beta` under which requests may say what happens to thoughts that do not fit.
const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Checks a request for a model; the error says what is wrong.
pub(super) fn check(api: Api, request: &Request, model: &str, body: &Value) -> Checked {
    match api {
        Api::Anthropic | Api::VertexClaude => claude(request, model, body, &body["thinking"], &body["output_config"]),
        Api::CountTokens => sampling_by_version(request, body),
        Api::Bedrock | Api::BedrockStream if model.contains("claude") => {
            let fields = &body["additionalModelRequestFields"];
            let mut flat = body.clone();
            for (name, value) in [("temperature", "temperature"), ("top_p", "topP")] {
                flat[name] = body["inferenceConfig"][value].clone();
            }
            flat["top_k"] = fields["top_k"].clone();
            let choice = &body["toolConfig"]["toolChoice"];
            flat["tool_choice"]["type"] = if choice.get("any").is_some() {
                json!("any")
            } else if choice.get("tool").is_some() {
                json!("tool")
            } else {
                Value::Null
            };
            claude(request, model, &flat, &fields["thinking"], &body["outputConfig"])
        }
        Api::Chat => openai(model, body, &body["reasoning_effort"], true).and(others(model, body)),
        Api::Responses => {
            // Reasoning of another provider, or of another's key, cannot be verified.
            let is_foreign =
                |item: &Value| item["type"] == "reasoning" && item["encrypted_content"] != super::responses::SEALED;
            let items = body["input"].as_array().into_iter().flatten();
            refuse(items.into_iter().any(is_foreign), || "The encrypted content could not be verified".into())?;
            openai(model, body, &body["reasoning"]["effort"], false)
        }
        Api::Gemini | Api::GeminiStream => gemini(model, &body["generationConfig"]),
        _ => Ok(()),
    }
}

fn refuse(is_refused: bool, why: impl FnOnce() -> String) -> Checked {
    if is_refused { Err(why()) } else { Ok(()) }
}

fn is_set(body: &Value, name: &str) -> bool {
    body.get(name).is_some_and(|value| !value.is_null())
}

fn sampling_by_version(request: &Request, body: &Value) -> Checked {
    let is_newer = request.header("anthropic-version") == Some("2026-10-21");
    let first = ["temperature", "top_p", "top_k"].into_iter().find(|name| is_set(body, name));
    first.filter(|_| is_newer).map_or(Ok(()), |name| Err(format!("{name}: Extra inputs are not permitted")))
}

/// A family of Claude by what it refuses.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Claude {
    /// 4.5 and before.
    Budget,
    /// 4.6.
    Adaptive,
    /// 4.7 and 4.8: no sampling, no budget.
    NoSampling,
    /// Opus 5, Sonnet 5: they think unless they are told otherwise.
    Thinks,
    /// Haiku 5.5: as before, with bound thoughts.
    Haiku55,
    /// Sonnet 5.5: no forced calls, and thinking only between calls in place of none.
    Sonnet55,
    /// Fable, Mythos, Opus 5.5: thinking cannot be turned off.
    Always,
}

fn claude_of(model: &str) -> Option<Claude> {
    let name = &model[model.find("claude-")?..];
    let has = |parts: &[&str]| parts.iter().any(|part| name.starts_with(&format!("claude-{part}")));
    Some(match () {
        () if has(&["fable-5-", "mythos-5-", "opus-5-5"]) => Claude::Always,
        () if has(&["sonnet-5-5"]) => Claude::Sonnet55,
        () if has(&["haiku-5-5"]) => Claude::Haiku55,
        () if has(&["opus-5", "sonnet-5"]) => Claude::Thinks,
        () if has(&["opus-4-7", "opus-4-8"]) => Claude::NoSampling,
        () if has(&["opus-4-6", "sonnet-4-6"]) => Claude::Adaptive,
        () => Claude::Budget,
    })
}

fn claude(request: &Request, model: &str, body: &Value, thinking: &Value, config: &Value) -> Checked {
    sampling_by_version(request, body)?;
    let Some(family) = claude_of(model) else { return Ok(()) };
    let kind = thinking["type"].as_str();
    let thinks = match kind {
        Some("disabled") => false,
        Some(_) => true,
        None => family >= Claude::Thinks,
    };
    for name in ["temperature", "top_p", "top_k"] {
        let is_refused = is_set(body, name) && (family >= Claude::NoSampling || thinks && name == "temperature");
        refuse(is_refused, || format!("`{name}` is not supported for this model"))?;
    }
    match kind {
        Some("disabled") => refuse(family >= Claude::Sonnet55, || "thinking.type: disabled is not supported".into())?,
        Some("enabled") => {
            refuse(family >= Claude::NoSampling, || "thinking.type: enabled is not supported; use adaptive".into())?;
        }
        Some("adaptive") => refuse(family == Claude::Budget, || "thinking.type: adaptive is not supported".into())?,
        Some("between_tools") => {
            refuse(family != Claude::Sonnet55, || "thinking.type: between_tools is not supported".into())?;
            let effort = config["effort"].as_str();
            refuse(matches!(effort, Some("xhigh" | "max")), || "between_tools: effort must be high or lower".into())?;
        }
        Some(other) => return Err(format!("thinking.type: {other}")),
        None => {}
    }
    if let Some(effort) = config["effort"].as_str() {
        let levels: &[&str] = match family {
            Claude::Budget if model.contains("opus-4-5") => &["low", "medium", "high"],
            Claude::Budget => &[],
            Claude::Adaptive => &["low", "medium", "high", "max"],
            _ => &["low", "medium", "high", "xhigh", "max"],
        };
        refuse(!levels.contains(&effort), || format!("output_config.effort: {effort} is not supported"))?;
    }
    let is_forced = matches!(body["tool_choice"]["type"].as_str(), Some("any" | "tool"));
    let never = family >= Claude::Sonnet55;
    refuse(is_forced && (never || thinks && family != Claude::Haiku55), || {
        "tool_choice: forced tool use is not supported while thinking".into()
    })?;
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let is_prefill = messages.last().is_some_and(|last| last["role"] == "assistant");
    refuse(is_prefill && (family >= Claude::Adaptive || thinks), || {
        "This model does not support assistant message prefill".into()
    })?;
    if is_set(thinking, "block_binding") {
        let betas = request.header("anthropic-beta").unwrap_or_default();
        let is_allowed = betas.contains(BINDING_BETA) || body.to_string().contains(BINDING_BETA);
        refuse(!is_allowed, || "thinking.block_binding: Extra inputs are not permitted".into())?;
        if thinking["block_binding"]["prefix_mismatch_behavior"] == "drop_block" {
            return Ok(());
        }
    }
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let signatures = blocks.filter(|block| block["type"] == "thinking").map(|block| block["signature"].as_str());
    let is_foreign = |signature: Option<&str>| signature.is_none_or(|s| s.is_empty() || s.contains(':'));
    refuse(signatures.into_iter().any(is_foreign), || "Invalid `signature` in `thinking` block".into())?;
    if family >= Claude::Haiku55 { bound(body, messages) } else { Ok(()) }
}

/// Whether a model shows nothing of its thoughts unless it is asked to.
pub(super) fn omits_thoughts(model: &str, body: &Value) -> bool {
    claude_of(model) >= Some(Claude::Haiku55) && body["thinking"]["display"] != "summarized"
}

/// The signature of a thought in the answer to these messages.
pub(super) fn signature(body: &Value, before: usize) -> String {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut signed = json!([body["system"], body["tools"], &messages[..before.min(messages.len())]]);
    without_cache_marks(&mut signed);
    format!("Eq{:016x}==", fnv1a(signed.to_string().as_bytes()))
}

fn bound(body: &Value, messages: &[Value]) -> Checked {
    for (m, message) in messages.iter().enumerate() {
        for (b, block) in message["content"].as_array().into_iter().flatten().enumerate() {
            let is_unfit = block["type"] == "thinking" && block["signature"] != signature(body, m);
            refuse(is_unfit, || {
                format!(
                    "messages.{m}.content.{b}: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
                )
            })?;
        }
    }
    Ok(())
}

fn without_cache_marks(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            members.values_mut().for_each(without_cache_marks);
        }
        Value::Array(list) => list.iter_mut().for_each(without_cache_marks),
        _ => {}
    }
}

/// Efforts of OpenAI's models, the default, and whether Chat Completions take tools with them.
fn openai(model: &str, body: &Value, effort: &Value, is_chat: bool) -> Checked {
    let has = |parts: &[&str]| parts.iter().any(|part| model.starts_with(part));
    let astra = has(&["gpt-6-astra", "gpt-6.1-sol", "gpt-6.2"]);
    let (levels, default): (&[&str], &str) = match () {
        () if astra => (&["low", "medium", "high", "xhigh", "max"], "medium"),
        () if has(&["gpt-6"]) => (&["none", "low", "medium", "high", "xhigh", "max"], "medium"),
        () if has(&["gpt-5.5-pro"]) => (&["medium", "high", "xhigh"], "high"),
        () if has(&["gpt-5.6", "gpt-5.5"]) => (&["none", "low", "medium", "high", "xhigh"], "medium"),
        () if has(&["gpt-5.4"]) => (&["none", "low", "medium", "high", "xhigh"], "none"),
        () if has(&["gpt-5"]) => (&["minimal", "low", "medium", "high"], "medium"),
        () if has(&["gpt-4"]) => (&[], "none"),
        () => return Ok(()),
    };
    refuse(is_chat && has(&["gpt-5.5-pro"]), || "This model is only supported in v1/responses".into())?;
    if let Some(effort) = effort.as_str() {
        refuse(!levels.contains(&effort), || {
            format!("Unsupported value: 'reasoning_effort' does not support '{effort}'")
        })?;
    }
    let thinks = effort.as_str().unwrap_or(default) != "none";
    let functions = body["tools"].as_array().into_iter().flatten().any(|tool| tool["type"] == "function");
    let is_newer = has(&["gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6"]);
    refuse(is_chat && is_newer && thinks && functions, || {
        format!(
            "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'."
        )
    })?;
    for name in ["temperature", "top_p", "top_logprobs", "frequency_penalty", "presence_penalty"] {
        refuse(is_set(body, name) && thinks, || {
            format!("Unsupported parameter: '{name}' is not supported with this model.")
        })?;
    }
    refuse(is_set(body, "max_tokens") && !has(&["gpt-4"]), || "Unsupported parameter: 'max_tokens'".into())?;
    refuse(is_set(body, "stop") && has(&["gpt-6-astra", "gpt-6.2-astra"]), || "Unsupported parameter: 'stop'".into())
}

/// Efforts, the default, and what turns thinking off, of models with OpenAI's API at their makers.
fn others(model: &str, body: &Value) -> Checked {
    let has = |parts: &[&str]| parts.iter().any(|part| model.starts_with(part));
    let (levels, default, may_disable): (&[&str], &str, bool) = match () {
        () if has(&["deepseek-v4"]) => (&["high", "max"], "high", true),
        () if has(&["kimi-k3"]) => (&["low", "high", "max"], "max", false),
        () if has(&["kimi-k2.6"]) => (&[], "on", true),
        () if has(&["grok-4.5", "grok-4.7"]) => (&["low", "medium", "high"], "high", false),
        () if has(&["glm-5.3"]) => (&["low", "high", "max"], "max", false),
        () if has(&["qwen3.8-"]) => (&["low", "medium", "high", "xhigh", "max"], "on", false),
        () if has(&["mistral-large-4", "mistral-medium-3.5"]) => (&["none", "high"], "none", false),
        () => return Ok(()),
    };
    let effort = body["reasoning_effort"].as_str();
    refuse(effort.is_some_and(|effort| !levels.contains(&effort)), || {
        format!("reasoning_effort: please use one of {levels:?}")
    })?;
    let disabled = body["thinking"]["type"] == "disabled";
    refuse(disabled && !may_disable, || "This model always engages in thinking and cannot be disabled".into())?;
    let thinks = !disabled && effort.unwrap_or(default) != "none";
    let is_forced = body["tool_choice"] == "required" || body["tool_choice"].is_object();
    refuse(is_forced && thinks && has(&["deepseek", "kimi", "qwen"]), || {
        "Thinking mode does not support this tool_choice".into()
    })?;
    let sampling = ["temperature", "top_p", "presence_penalty", "frequency_penalty"];
    let is_unknown = is_set(body, "top_k") && !has(&["qwen"]);
    refuse(is_unknown, || "top_k: unknown parameter".into())?;
    let fixed = sampling.into_iter().find(|name| is_set(body, name)).filter(|_| has(&["kimi"]));
    fixed.map_or(Ok(()), |name| Err(format!("invalid {name}: only 1 is allowed for this model")))?;
    let refused = ["presence_penalty", "frequency_penalty", "stop"].into_iter().find(|name| is_set(body, name));
    let refused = refused.filter(|_| has(&["grok-4"]));
    refused.map_or(Ok(()), |name| Err(format!("Model {model} does not support parameter {name}.")))?;
    let messages = body["messages"].as_array().into_iter().flatten();
    let mut turns = messages.filter(|message| message["role"] == "assistant");
    let lacks = |turn: &Value| turn["reasoning_content"].as_str().is_none_or(str::is_empty);
    refuse(thinks && has(&["deepseek", "kimi"]) && turns.any(lacks), || {
        "The `reasoning_content` in the thinking mode must be passed back to the API.".into()
    })
}

fn gemini(model: &str, config: &Value) -> Checked {
    let thinking = &config["thinkingConfig"];
    let has = |part: &str| model.contains(part);
    if let Some(level) = thinking["thinkingLevel"].as_str() {
        let has_minimal = has("gemini-3") && has("flash") && !has("3.7") && !has("3.8");
        let is_level = matches!(level, "low" | "medium" | "high") || level == "minimal" && has_minimal;
        refuse(!is_level || has("gemini-2"), || format!("thinking_level {level} is not supported by {model}"))?;
    }
    refuse(is_set(thinking, "thinkingBudget") && has("gemini-4"), || "thinking_budget is not supported".into())?;
    let off = thinking["thinkingBudget"] == 0;
    refuse(off && (has("pro") || has("gemini-3")), || {
        "Budget 0 is invalid. This model only works in thinking mode.".into()
    })
}
