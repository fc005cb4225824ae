//! A conversation with its sub-agents, and texts of their contents.

use std::collections::HashMap;

use crate::assembly::view::ItemKind;
use interflow_llm::message::{Attachment, ContentBlock};
use interflow_store::{FlowStore, Result};

use super::load::{ConversationView, load_conversation};

/// Maximum depth of nested sub-agents; deeper ones are left out.
const MAX_DEPTH: usize = 8;

pub struct ConversationTree {
    pub opened: ConversationView,
    /// Its sub-agents, by id.
    pub children: HashMap<String, ConversationTree>,
}

impl ConversationTree {
    /// The sub-agents in the order of their start.
    pub fn agents(&self) -> Vec<&Self> {
        let mut agents: Vec<_> = self.children.values().collect();
        agents.sort_by_key(|t| (t.opened.listed.row.started, &t.opened.listed.row.id));
        agents
    }

    /// Those that no tool call on the path started, as far as it is known.
    pub fn other_agents(&self) -> Vec<&Self> {
        let turns = &self.opened.thread.turns;
        let names =
            |what: &ItemKind, id: &str| matches!(what, ItemKind::Tool { child: Some(child), .. } if child == id);
        let mut agents = self.agents();
        agents.retain(|t| !turns.iter().flat_map(|turn| &turn.items).any(|i| names(&i.what, &t.opened.listed.row.id)));
        agents
    }
}

/// Loads a conversation with its sub-agents; `None` if it does not exist.
///
/// # Errors
/// The store failed.
pub fn load_tree(store: &dyn FlowStore, id: &str) -> Result<Option<ConversationTree>> {
    load_subtree(store, id, 0)
}

fn load_subtree(store: &dyn FlowStore, id: &str, depth: usize) -> Result<Option<ConversationTree>> {
    let Some(opened) = load_conversation(store, id, None)? else { return Ok(None) };
    let mut children = HashMap::new();
    for child in opened.children.iter().filter(|_| depth < MAX_DEPTH) {
        let id = &child.listed.row.id;
        children.extend(load_subtree(store, id, depth + 1)?.map(|tree| (id.clone(), tree)));
    }
    Ok(Some(ConversationTree { opened, children }))
}

pub(super) fn attachment_label(what: &str, r: &Attachment) -> String {
    let words = [&r.title, &r.media_type, &r.url].into_iter().filter(|w| !w.is_empty()).cloned();
    let size = (r.size > 0).then(|| format!("{} characters", r.size));
    format!("[{what}: {}]", words.chain(size).collect::<Vec<_>>().join(", "))
}

/// A tool result's content as text: images and documents are described, not included.
pub fn content_text(blocks: &[ContentBlock]) -> String {
    let text = |b: &ContentBlock| match b {
        ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } => text.clone(),
        ContentBlock::Image(r) => attachment_label("image", r),
        ContentBlock::Document(r) => attachment_label("document", r),
        ContentBlock::Other { value, .. } => serde_json::to_string_pretty(value).unwrap_or_default(),
        other => serde_json::to_string(other).unwrap_or_default(),
    };
    blocks.iter().map(text).collect::<Vec<_>>().join("\n")
}
