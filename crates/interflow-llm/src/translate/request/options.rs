//! Settings of OpenAI's APIs beside messages and sampling, in the form that each API has for them: tiers of service,
//! metadata, keys of prompt caches, identifiers of users.

use serde_json::{Map, Value, json};

use super::{ChatRequest, Target, set};
use crate::Provider;
use crate::translate::{Losses, WireFormat};

/// What Mistral has of them.
const MISTRAL: [&str; 3] = ["metadata", "prompt_cache_key", "service_tier"];
/// What other servers with OpenAI's API may have.
const OTHERS: [&str; 2] = ["metadata", "service_tier"];
/// What Chat Completions know of `prompt_cache_options`.
const CHAT_CACHE_OPTIONS: [&str; 2] = ["mode", "ttl"];
/// Entries of Bedrock's `requestMetadata`, and characters of a name or a value.
const MAX_METADATA: (usize, usize) = (16, 256);
/// Characters of a label of Vertex AI.
const MAX_LABEL: usize = 63;

pub fn write(chat: &ChatRequest, target: &Target<'_>, body: &mut Value, losses: &mut Losses) {
    let settings = &chat.settings;
    let mut options = settings.openai.clone();
    let is_mistral = target.format == WireFormat::Mistral || target.provider == Provider::Mistral;
    match target.format {
        WireFormat::OpenAiChat | WireFormat::OpenAiResponses if !is_mistral => to_openai(chat, target, body, losses),
        WireFormat::OpenAiChat | WireFormat::Mistral => {
            for name in MISTRAL {
                set(body, name, options.shift_remove(name));
            }
            lose_others(chat, &options, losses);
        }
        format => {
            let tier = options.shift_remove("service_tier");
            let metadata = options.shift_remove("metadata");
            let name = |tier: &Value| tier.as_str().and_then(|tier| tier_at(format, tier));
            match tier.as_ref().map(name) {
                Some(Some(tier)) => set_tier(body, format, tier),
                Some(None) => losses.add_if("service_tier", tier.as_ref().is_some_and(|tier| *tier != "auto")),
                None => {}
            }
            let metadata = metadata.filter(|value| value.as_object().is_none_or(|members| !members.is_empty()));
            if let Some(metadata) = metadata {
                match format {
                    WireFormat::Bedrock if fits_bedrock(&metadata) => body["requestMetadata"] = metadata,
                    WireFormat::Gemini if target.provider == Provider::Vertex && fits_labels(&metadata) => {
                        body["labels"] = metadata;
                    }
                    _ => losses.add("metadata"),
                }
            }
            lose_others(chat, &options, losses);
        }
    }
    let has_verbosity =
        target.is_openai && matches!(target.format, WireFormat::OpenAiChat | WireFormat::OpenAiResponses);
    let verbosity = if chat.client == WireFormat::OpenAiResponses { "text.verbosity" } else { "verbosity" };
    losses.add_if(verbosity, settings.verbosity.is_some() && !has_verbosity);
}

fn to_openai(chat: &ChatRequest, target: &Target<'_>, body: &mut Value, losses: &mut Losses) {
    let settings = &chat.settings;
    let is_chat = target.format == WireFormat::OpenAiChat;
    // Other servers need not know what is OpenAI's, nor what the client did not write.
    let is_known = |name: &str| {
        target.is_openai || name == "user" || OTHERS.contains(&name) && chat.client != WireFormat::Anthropic
    };
    for (name, value) in &settings.openai {
        let mut value = value.clone();
        if is_chat && name == "service_tier" && value == "ultrafast" || !is_known(name) {
            losses.add_if(name, target.is_openai || !concerns_openai(name));
            continue;
        }
        if is_chat
            && name == "prompt_cache_options"
            && let Some(members) = value.as_object_mut()
        {
            members.retain(|member, value| {
                let is_known = CHAT_CACHE_OPTIONS.contains(&member.as_str()) && *value != "12h";
                losses.add_if(&format!("{name}.{member}"), !is_known);
                is_known
            });
        }
        set(body, name, Some(value));
    }
    if !target.is_openai {
        return;
    }
    if let Some(verbosity) = settings.verbosity.clone() {
        match (is_chat, body["text"].as_object_mut()) {
            (true, _) => body["verbosity"] = verbosity,
            (false, Some(text)) => drop(text.insert("verbosity".to_owned(), verbosity)),
            (false, None) => body["text"] = json!({ "verbosity": verbosity }),
        }
    }
    if chat.request.stream
        && let Some(obfuscation) = settings.obfuscation
    {
        match body["stream_options"].as_object_mut() {
            Some(options) => drop(options.insert("include_obfuscation".to_owned(), obfuscation.into())),
            None => body["stream_options"] = json!({ "include_obfuscation": obfuscation }),
        }
    }
}

/// Whether a setting says how OpenAI keeps the response and finds its cache, which concerns OpenAI only; the user is
/// named where it is written.
fn concerns_openai(name: &str) -> bool {
    matches!(name, "store" | "prompt_cache_key" | "user" | "safety_identifier")
}

/// Names what an API has no place for.
fn lose_others(chat: &ChatRequest, options: &Map<String, Value>, losses: &mut Losses) {
    for (name, value) in options {
        let is_default = name == "service_tier" && *value == "auto" || name == "metadata" && *value == json!({});
        losses.add_if(name, !concerns_openai(name) && !is_default && chat.client != WireFormat::Anthropic);
    }
}

/// A tier of OpenAI under the name that another API has for it.
fn tier_at(format: WireFormat, tier: &str) -> Option<&'static str> {
    Some(match (format, tier) {
        (WireFormat::Anthropic, "default") => "standard_only",
        (WireFormat::Gemini, "default") => "standard",
        (WireFormat::Gemini | WireFormat::Bedrock, "flex") => "flex",
        (WireFormat::Gemini | WireFormat::Bedrock, "priority" | "fast") => "priority",
        (WireFormat::Bedrock, "default") => "default",
        _ => return None,
    })
}

fn set_tier(body: &mut Value, format: WireFormat, tier: &str) {
    match format {
        WireFormat::Bedrock => body["serviceTier"] = json!({ "type": tier }),
        WireFormat::Gemini => body["serviceTier"] = tier.into(),
        _ => body["service_tier"] = tier.into(),
    }
}

fn fits_bedrock(metadata: &Value) -> bool {
    let (most, longest) = MAX_METADATA;
    let fits = |text: &str| {
        text.len() <= longest && text.chars().all(|c| c.is_ascii_alphanumeric() || " :_@$#=/+,-.".contains(c))
    };
    let all = metadata.as_object().filter(|all| all.len() <= most);
    all.is_some_and(|all| {
        all.iter().all(|(name, value)| !name.is_empty() && fits(name) && value.as_str().is_some_and(fits))
    })
}

fn fits_labels(metadata: &Value) -> bool {
    let fits = |text: &str| {
        text.len() <= MAX_LABEL
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
    };
    let named = |name: &str| name.starts_with(|c: char| c.is_ascii_lowercase()) && fits(name);
    metadata
        .as_object()
        .is_some_and(|all| all.iter().all(|(name, value)| named(name) && value.as_str().is_some_and(fits)))
}
