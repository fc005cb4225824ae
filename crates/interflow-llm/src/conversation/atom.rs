//! Messages cut into atoms: one text, one tool call, one result each. Histories are compared atom by atom, so that it does
//! not matter how a shape groups them; what may come and go between two requests that mean the same plays no part.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::scaffold;
use crate::message::{Block, Message, Role, joined};

/// What an atom says, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// Who says it.
    pub role: Role,
    /// It. None when all it has stands beside it: an answer of nothing but thoughts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// What stood before it in its message and plays no part in comparing: thoughts, reminders, what is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Block>,
    /// The same behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Block>,
}

/// A piece of a history.
#[derive(Debug)]
pub struct Atom {
    /// What it is compared by, together with everything before it.
    pub hash: u128,
    /// It begins a turn, unless the atom before it does already.
    pub prompt: bool,
    /// What it says.
    pub body: Body,
}

impl Atom {
    /// The text that was said.
    pub fn text(&self) -> &str {
        self.body.block.as_ref().and_then(Block::as_text).unwrap_or_default()
    }
}

/// Cuts a history into atoms.
pub fn atoms(messages: Vec<Message>) -> Vec<Atom> {
    let mut atoms: Vec<Atom> = Vec::with_capacity(messages.len() * 2);
    let mut waiting = Vec::new();
    for message in messages {
        let first = atoms.len();
        for block in message.blocks {
            add(message.role, block, &mut atoms, &mut waiting);
        }
        // What is left over belongs to this message, or to the next one when this one says nothing else.
        if atoms.len() > first
            && let Some(last) = atoms.last_mut()
        {
            last.body.after.append(&mut waiting);
        }
    }
    if let Some(last) = atoms.last_mut() {
        last.body.after.append(&mut waiting);
    }
    atoms
}

/// Cuts an answer into atoms. One without any that compares is one atom by itself, which nothing will be found equal to:
/// `name` is its alone.
pub fn of_reply(blocks: Vec<Block>, name: u128) -> Vec<Atom> {
    let mut atoms = atoms(vec![Message { role: Role::Assistant, blocks: blocks.clone() }]);
    if atoms.is_empty() && !blocks.is_empty() {
        let hash = hash(b"alone", &[&name.to_be_bytes()]);
        let body = Body { role: Role::Assistant, block: None, before: blocks, after: Vec::new() };
        atoms.push(Atom { hash, prompt: false, body });
    }
    atoms
}

fn add(role: Role, block: Block, atoms: &mut Vec<Atom>, waiting: &mut Vec<Block>) {
    let block = match block {
        Block::Text { text } if role == Role::User => match parted(text, waiting) {
            Some(text) => Block::Text { text },
            None => return,
        },
        block => block,
    };
    let Some(hash) = compared(role, &block) else {
        waiting.push(block);
        return;
    };
    let prompt = role == Role::User && matches!(block, Block::Text { .. } | Block::Image(_) | Block::Document(_));
    let body = Body { role, block: Some(block), before: std::mem::take(waiting), after: Vec::new() };
    atoms.push(Atom { hash, prompt, body });
}

/// What a person said; reminders around it wait for the atom they belong to.
fn parted(text: String, waiting: &mut Vec<Block>) -> Option<String> {
    let parted = scaffold::part(&text);
    if parted.around.is_empty() {
        return Some(text).filter(|t| !t.trim().is_empty());
    }
    let context = |s: &str| Block::Other { kind: "context".into(), value: Value::from(s) };
    waiting.extend(parted.around.iter().map(|s| context(s)));
    Some(parted.said.into_owned()).filter(|s| !s.is_empty())
}

/// The hash that a block is compared by; `None` for what plays no part. A call and its result are known by the call's
/// name, since agents shorten old results and providers write arguments in their own way.
fn compared(role: Role, block: &Block) -> Option<u128> {
    let who: &[u8] = if role == Role::User { b"user" } else { b"assistant" };
    Some(match block {
        Block::Text { text } if text.trim().is_empty() => return None,
        Block::Text { text } => hash(b"text", &[who, text.trim().as_bytes()]),
        Block::ToolUse { id, .. } if !id.is_empty() => hash(b"use", &[id.as_bytes()]),
        Block::ToolUse { name, input, .. } => hash(b"use of", &[name.as_bytes(), canonical(input).as_bytes()]),
        Block::ToolResult { id, .. } if !id.is_empty() => hash(b"result", &[id.as_bytes()]),
        Block::ToolResult { name, content, .. } => hash(b"result of", &[name.as_bytes(), joined(content).as_bytes()]),
        Block::Image(r) | Block::Document(r) => hash(b"file", &[r.hash.as_bytes(), r.url.as_bytes()]),
        Block::Thinking { .. } | Block::Error { .. } | Block::Other { .. } => return None,
    })
}

/// JSON with its keys in order.
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

/// 128 bits of BLAKE3 over a kind and parts, each told from the next by its length.
pub fn hash(kind: &[u8], parts: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for part in std::iter::once(&kind).chain(parts) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut out = [0; 16];
    hasher.finalize_xof().fill(&mut out);
    u128::from_be_bytes(out)
}

/// The name of an atom behind everything that was said before it.
pub fn chained(before: Option<u128>, atom: u128) -> u128 {
    hash(b"chain", &[&before.unwrap_or_default().to_be_bytes(), &atom.to_be_bytes()])
}
