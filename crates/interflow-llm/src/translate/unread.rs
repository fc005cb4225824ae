//! Members of messages that no other API has a place for: they are named as losses.

use serde_json::Value;

use super::{Losses, WireFormat};
use crate::message::ContentBlock;

/// Citations of a reply: the kind of a block that has them, and the name of their loss.
pub(super) const CITATIONS: &str = "citations";

/// Names what the messages of a client's request have that is not carried to any other API.
pub(super) fn name_in_request(client: WireFormat, body: &Value, losses: &mut Losses) {
    let key = match client {
        WireFormat::OpenAiResponses | WireFormat::Interactions => "input",
        _ => "messages",
    };
    let mut is_history = false;
    if client == WireFormat::Bedrock {
        [&body["system"], &body["toolConfig"]["tools"]].into_iter().for_each(|list| name_in_converse(list, losses));
    }
    for message in body[key].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or_default();
        let is_system = matches!(role, "system" | "developer");
        // It becomes a message of the user, because only OpenAI's APIs have others.
        losses.add_if("messages.system", is_system && is_history);
        is_history |= !is_system;
        if client == WireFormat::OpenAiChat {
            losses.add_if("messages.name", !matches!(role, "tool" | "function") && message["name"].is_string());
            losses.add_if("messages.audio", role == "assistant" && message["audio"].is_object());
        }
        if client == WireFormat::Bedrock {
            name_in_converse(&message["content"], losses);
        }
        if client == WireFormat::Anthropic {
            name_in_blocks(&message["content"], losses);
        }
    }
}

/// Blocks of which nothing but the text is carried.
fn name_in_converse(content: &Value, losses: &mut Losses) {
    for block in content.as_array().into_iter().flatten() {
        for name in ["cachePoint", "guardContent"] {
            losses.add_if(name, block[name].is_object());
        }
        losses.add_if(CITATIONS, is_filled(&block["citationsContent"]["citations"]));
        name_in_converse(&block["toolResult"]["content"], losses);
    }
}

fn name_in_blocks(content: &Value, losses: &mut Losses) {
    for block in content.as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("text") if is_filled(&block["citations"]) => losses.add(CITATIONS),
            Some("tool_result") => name_in_blocks(&block["content"], losses),
            _ => {}
        }
    }
}

/// Names what upstreams other than Anthropic's and Amazon's do not have of documents.
pub(super) fn name_of_documents(blocks: &[ContentBlock], losses: &mut Losses) {
    for block in blocks {
        match block {
            ContentBlock::Document(file) => {
                for (name, loss) in [(CITATIONS, "document.citations"), ("context", "document.context")] {
                    losses.add_if(loss, !file.details()[name].is_null());
                }
            }
            ContentBlock::ToolResult { content, .. } => {
                losses.add_if("tool_result.document", content.iter().any(|b| matches!(b, ContentBlock::Document(_))));
                name_of_documents(content, losses);
            }
            _ => {}
        }
    }
}

pub(super) fn is_filled(list: &Value) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}
