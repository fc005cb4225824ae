//! Splits messages into content parts: one text, one tool call, one result each. Histories are compared part by part,
//! so that the grouping of an API format does not matter; content that varies between otherwise equal requests is
//! ignored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::injected_context;
use interflow_llm::message::{ChatMessage, ContentBlock, MessageRole, joined};

/// The content of a part, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartBody {
    pub role: MessageRole,
    /// The block. `None` if the part has only ignored blocks: a reply that is nothing but thinking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<ContentBlock>,
    /// Preceding blocks of the message that are ignored in comparisons: thinking, reminders, unknown blocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<ContentBlock>,
    /// Following blocks that are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ContentBlock>,
}

/// An element of a history: one block of a message, with the ignored blocks around it.
#[derive(Debug)]
pub struct ContentPart {
    /// Hash for comparison, combined with everything before it.
    pub hash: u128,
    /// Whether it begins a turn, unless the preceding part already does.
    pub prompt: bool,
    pub body: PartBody,
}

impl ContentPart {
    /// The text of a text block, and the empty string for any other.
    pub fn text(&self) -> &str {
        self.body.block.as_ref().and_then(ContentBlock::as_text).unwrap_or_default()
    }
}

/// Splits a history into parts. Ignored blocks are attached to the parts around them.
pub fn content_parts(messages: Vec<ChatMessage>) -> Vec<ContentPart> {
    let mut parts: Vec<ContentPart> = Vec::with_capacity(messages.len() * 2);
    let mut waiting = Vec::new();
    for message in messages {
        let first = parts.len();
        for block in message.blocks {
            add_block(message.role, block, &mut parts, &mut waiting);
        }
        // Remaining ignored blocks belong to this message, or to the next one if this one has no parts.
        if parts.len() > first
            && let Some(last) = parts.last_mut()
        {
            last.body.after.append(&mut waiting);
        }
    }
    if let Some(last) = parts.last_mut() {
        last.body.after.append(&mut waiting);
    }
    parts
}

/// Splits a reply into parts. A reply without a comparable part becomes a single part that is equal to no other: `name`
/// must be unique.
pub fn reply_parts(blocks: Vec<ContentBlock>, name: u128) -> Vec<ContentPart> {
    let mut parts = content_parts(vec![ChatMessage { role: MessageRole::Assistant, blocks: blocks.clone() }]);
    if parts.is_empty() && !blocks.is_empty() {
        let hash = hash(b"alone", &[&name.to_be_bytes()]);
        let body = PartBody { role: MessageRole::Assistant, block: None, before: blocks, after: Vec::new() };
        parts.push(ContentPart { hash, prompt: false, body });
    }
    parts
}

fn add_block(role: MessageRole, block: ContentBlock, parts: &mut Vec<ContentPart>, waiting: &mut Vec<ContentBlock>) {
    // Only user messages contain injected context.
    let block = match block {
        ContentBlock::Text { text } if role == MessageRole::User => match split_context(text, waiting) {
            Some(text) => ContentBlock::Text { text },
            None => return,
        },
        block => block,
    };
    let Some(hash) = comparison_hash(role, &block) else {
        waiting.push(block);
        return;
    };
    // Tool results come in user messages, too, but start no turn.
    let prompt = role == MessageRole::User
        && matches!(block, ContentBlock::Text { .. } | ContentBlock::Image(_) | ContentBlock::Document(_));
    let body = PartBody { role, block: Some(block), before: std::mem::take(waiting), after: Vec::new() };
    parts.push(ContentPart { hash, prompt, body });
}

/// The user's own text; context around it is queued for the part it belongs to.
fn split_context(text: String, waiting: &mut Vec<ContentBlock>) -> Option<String> {
    let parted = injected_context::split_text(&text);
    if parted.around.is_empty() {
        return Some(text).filter(|t| !t.trim().is_empty());
    }
    let context = |s: &str| ContentBlock::Other { kind: "context".into(), value: Value::from(s) };
    waiting.extend(parted.around.iter().map(|s| context(s)));
    Some(parted.said.into_owned()).filter(|s| !s.is_empty())
}

/// The comparison hash of a block; `None` if it is ignored. Tool calls and results are identified by the call's id,
/// since agents truncate old results and providers format arguments differently.
fn comparison_hash(role: MessageRole, block: &ContentBlock) -> Option<u128> {
    let who: &[u8] = if role == MessageRole::User { b"user" } else { b"assistant" };
    Some(match block {
        ContentBlock::Text { text } if text.trim().is_empty() => return None,
        ContentBlock::Text { text } => hash(b"text", &[who, text.trim().as_bytes()]),
        ContentBlock::ToolUse { id, .. } if !id.is_empty() => hash(b"use", &[id.as_bytes()]),
        ContentBlock::ToolUse { name, input, .. } => hash(b"use of", &[name.as_bytes(), canonical(input).as_bytes()]),
        ContentBlock::ToolResult { id, .. } if !id.is_empty() => hash(b"result", &[id.as_bytes()]),
        ContentBlock::ToolResult { name, content, .. } => {
            hash(b"result of", &[name.as_bytes(), joined(content).as_bytes()])
        }
        ContentBlock::Image(r) | ContentBlock::Document(r) => hash(b"file", &[r.hash.as_bytes(), r.url.as_bytes()]),
        ContentBlock::Thinking { .. } | ContentBlock::Error { .. } | ContentBlock::Other { .. } => return None,
    })
}

/// JSON with sorted keys: two serializations of the same arguments have one hash.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.iter().collect();
            pairs.sort_by_key(|(k, _)| k.as_str());
            let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k:?}:{}", canonical(v))).collect();
            format!("{{{}}}", pairs.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// 128 bits of BLAKE3 over a kind and length-prefixed parts.
pub fn hash(kind: &[u8], parts: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    // The lengths keep different parts from running together to the same bytes.
    for part in std::iter::once(&kind).chain(parts) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut out = [0; 16];
    hasher.finalize_xof().fill(&mut out);
    u128::from_be_bytes(out)
}

/// The chained hash of a part and everything before it.
pub fn chain_hash(before: Option<u128>, part: u128) -> u128 {
    hash(b"chain", &[&before.unwrap_or_default().to_be_bytes(), &part.to_be_bytes()])
}
