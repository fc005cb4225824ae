//! Members of messages that no other API has a place for, in requests and in replies: they are named as losses.

use memchr::memmem;
use serde_json::Value;

use super::{Losses, WireFormat};

/// Names what the messages of a client's request have that is not carried to any other API.
pub(super) fn name_in_request(client: WireFormat, body: &Value, losses: &mut Losses) {
    let key = if client == WireFormat::OpenAiResponses { "input" } else { "messages" };
    let mut is_history = false;
    for message in body[key].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or_default();
        let is_system = matches!(role, "system" | "developer");
        // It becomes a message of the user, because only OpenAI's APIs have others.
        if is_system && is_history {
            losses.add("messages.system");
        }
        is_history |= !is_system;
        if client == WireFormat::OpenAiChat {
            if !matches!(role, "tool" | "function") && message["name"].is_string() {
                losses.add("messages.name");
            }
            if role == "assistant" && message["audio"].is_object() {
                losses.add("messages.audio");
            }
        }
        if client == WireFormat::Anthropic {
            name_in_blocks(&message["content"], losses);
        }
    }
}

fn name_in_blocks(content: &Value, losses: &mut Losses) {
    for block in content.as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("document") => {
                if block["citations"]["enabled"] == true {
                    losses.add("document.citations");
                }
                if block["context"].is_string() {
                    losses.add("document.context");
                }
            }
            Some("text") if is_filled(&block["citations"]) => losses.add("citations"),
            Some("tool_result") => name_in_blocks(&block["content"], losses),
            _ => {}
        }
    }
}

pub(super) fn is_filled(list: &Value) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}

/// Whether a candidate of Gemini names what its text rests on.
pub(super) fn is_grounded(candidate: &Value) -> bool {
    candidate["groundingMetadata"].as_object().is_some_and(|metadata| !metadata.is_empty())
        || is_filled(&candidate["citationMetadata"]["citationSources"])
}

/// What a whole reply has that its client does not get. A stream names it by [`ChatEvent::Loss`](super::ChatEvent).
pub fn lost_in_reply(format: WireFormat, body: &[u8]) -> Losses {
    let mut losses = Losses::default();
    let (mark, name) = match format {
        WireFormat::Anthropic | WireFormat::Cohere => (&b"\"citations\""[..], "citations"),
        WireFormat::OpenAiChat | WireFormat::OpenAiResponses => (&b"\"annotations\""[..], "annotations"),
        WireFormat::Gemini => (&b"etadata\""[..], "groundingMetadata"),
        WireFormat::Mistral => (&b"\"reference\""[..], "citations"),
        WireFormat::Bedrock | WireFormat::Ollama => return losses,
    };
    // Most replies have none, and need not be parsed for it.
    if memmem::find(body, mark).is_none() {
        return losses;
    }
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return losses };
    let any = |list: &Value, member: &str| {
        list.as_array().is_some_and(|list| list.iter().any(|part| is_filled(&part[member])))
    };
    let is_lost = match format {
        WireFormat::Anthropic => any(&body["content"], "citations"),
        WireFormat::Cohere => is_filled(&body["message"]["citations"]),
        WireFormat::OpenAiChat => is_filled(&body["choices"][0]["message"]["annotations"]),
        WireFormat::OpenAiResponses => {
            body["output"].as_array().is_some_and(|items| items.iter().any(|item| any(&item["content"], "annotations")))
        }
        WireFormat::Mistral => {
            let parts = body["choices"][0]["message"]["content"].as_array();
            parts.is_some_and(|parts| parts.iter().any(|part| part["type"] == "reference"))
        }
        _ => is_grounded(&body["candidates"][0]),
    };
    if is_lost {
        losses.add(name);
    }
    losses
}
