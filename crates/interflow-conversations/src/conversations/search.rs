//! Searches the texts of stored conversations: prompts, replies, reasoning, arguments and results of tools.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::assembly::MessageHash;
use interflow_llm::message::{ContentBlock, MessageRole};
use interflow_store::{ConversationOptions, ConversationSummary, FlowStore, Result, StoreError};
use interflow_types::schema::JsonSchema;
use serde::Serialize;

use super::mapping;

/// Conversations read per step.
const STEP: usize = 50;
/// How long one search takes; the rest is found by the next one, which continues behind it.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Matches shown per conversation.
const MAX_EXCERPTS: usize = 5;
/// Characters shown before and behind a match.
const AROUND: usize = 60;

/// A page of a search.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TextSearchPage {
    pub conversations: Vec<FoundConversation>,
    /// How many conversations were read.
    pub searched: u64,
    /// The cursor behind which the search continues; null once all conversations were searched.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FoundConversation {
    #[serde(flatten)]
    pub listed: ConversationSummary,
    /// How many of its messages contain the text.
    pub hits: u64,
    /// The first of them.
    pub excerpts: Vec<TextExcerpt>,
}

/// A match with its surroundings, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TextExcerpt {
    /// The key of the message.
    pub key: MessageHash,
    pub role: MessageRole,
    pub before: String,
    pub found: String,
    pub after: String,
}

/// Finds the conversations selected by `options` of which a message contains `text`, whatever the case; the latest
/// first, at most `options.limit`. An empty text finds nothing.
///
/// # Errors
/// The store failed, or `cancelled` said so.
pub fn search(
    store: &dyn FlowStore,
    text: &str,
    options: ConversationOptions,
    cancelled: &dyn Fn() -> ControlFlow<()>,
) -> Result<TextSearchPage> {
    let mut page = TextSearchPage { conversations: Vec::new(), searched: 0, next: None };
    let needle = text.to_lowercase();
    if needle.is_empty() {
        return Ok(page);
    }
    let (limit, until) = (options.limit, Instant::now() + MAX_TIME);
    let mut options = ConversationOptions { limit: STEP, ..options };
    loop {
        let step = store.conversations(&options)?;
        let is_last = step.len() < STEP;
        for listed in step {
            if cancelled().is_break() {
                return Err(StoreError::Cancelled);
            }
            page.searched += 1;
            options.after = Some(listed.row.cursor());
            page.conversations.extend(search_one(store, &needle, listed)?);
            // At least one is read, so that each search comes further.
            if page.conversations.len() >= limit || Instant::now() > until {
                page.next.clone_from(&options.after);
                return Ok(page);
            }
        }
        if is_last {
            return Ok(page);
        }
    }
}

fn search_one(store: &dyn FlowStore, needle: &str, listed: ConversationSummary) -> Result<Option<FoundConversation>> {
    let (mut hits, mut excerpts) = (0, Vec::new());
    for node in store.nodes(&listed.row.id, true)?.into_iter().filter_map(mapping::node) {
        let body = &node.body;
        let mut blocks = body.before.iter().chain(&body.block).chain(&body.after);
        let Some((before, found, after)) = blocks.find_map(|block| find_in_block(block, needle)) else { continue };
        hits += 1;
        if excerpts.len() < MAX_EXCERPTS {
            excerpts.push(TextExcerpt { key: MessageHash(node.key), role: body.role, before, found, after });
        }
    }
    Ok((hits > 0).then_some(FoundConversation { listed, hits, excerpts }))
}

/// The first match within a block of a message.
fn find_in_block(block: &ContentBlock, needle: &str) -> Option<(String, String, String)> {
    match block {
        ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } => excerpt(text, needle),
        ContentBlock::ToolUse { name, input, .. } => excerpt(name, needle).or_else(|| find_in_value(input, needle, 0)),
        ContentBlock::ToolResult { content, .. } => content.iter().find_map(|b| find_in_block(b, needle)),
        ContentBlock::Image(r) | ContentBlock::Document(r) => {
            excerpt(&r.title, needle).or_else(|| excerpt(&r.url, needle))
        }
        ContentBlock::Error { message, .. } => excerpt(message, needle),
        ContentBlock::Other { value, .. } => find_in_value(value, needle, 0),
    }
}

/// Nesting depth up to which arguments are searched; recorded JSON is not nested more deeply than its parser allows.
const MAX_DEPTH: usize = 128;

/// In the strings of a value rather than in its JSON, where line breaks and quotes are escaped.
fn find_in_value(value: &serde_json::Value, needle: &str, depth: usize) -> Option<(String, String, String)> {
    use serde_json::Value;
    match value {
        Value::String(text) => excerpt(text, needle),
        Value::Array(list) if depth < MAX_DEPTH => list.iter().find_map(|v| find_in_value(v, needle, depth + 1)),
        Value::Object(map) if depth < MAX_DEPTH => {
            map.iter().find_map(|(k, v)| excerpt(k, needle).or_else(|| find_in_value(v, needle, depth + 1)))
        }
        Value::Number(n) => excerpt(&n.to_string(), needle),
        _ => None,
    }
}

/// The first match in a text, with what surrounds it.
fn excerpt(text: &str, needle: &str) -> Option<(String, String, String)> {
    let lower = text.to_lowercase();
    let at = lower.find(needle)?;
    let (from, to) = if lower.len() == text.len() {
        (at, at + needle.len())
    } else {
        (place_of(text, at), place_of(text, at + needle.len()))
    };
    // Letters that change their length in both directions would cancel each other out.
    let (Some(_), Some(_)) = (text.get(..from), text.get(from..to)) else { return None };
    let mut before: Vec<char> = text[..from].chars().rev().take(AROUND).collect();
    before.reverse();
    let line = |chars: &mut dyn Iterator<Item = char>| -> String {
        chars.map(|c| if c.is_control() { ' ' } else { c }).collect()
    };
    Some((line(&mut before.into_iter()), line(&mut text[from..to].chars()), line(&mut text[to..].chars().take(AROUND))))
}

/// Where the character stands in a text that begins at this place, or behind it, in lower case.
fn place_of(text: &str, in_lower: usize) -> usize {
    let mut at = 0;
    for (place, c) in text.char_indices() {
        if at >= in_lower {
            return place;
        }
        at += c.to_lowercase().map(char::len_utf8).sum::<usize>();
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_is_shown_with_its_surroundings_whatever_the_case() {
        let find = |text: &str, needle: &str| excerpt(text, &needle.to_lowercase());
        assert_eq!(find("one\nTwo three", "two"), Some(("one ".to_owned(), "Two".to_owned(), " three".to_owned())));
        assert_eq!(find("ÄPFEL und Birnen", "äpfel").map(|f| f.1), Some("ÄPFEL".to_owned()));
        // The lower case of İ is longer than it.
        assert_eq!(find("İİ needle", "needle").map(|f| f.1), Some("needle".to_owned()));
        assert_eq!(find("nothing", "needle"), None);
        assert_eq!(find(&"x".repeat(500), "xx").map(|f| (f.0.len(), f.2.len())), Some((0, AROUND)));
    }

    #[test]
    fn arguments_are_searched_by_their_strings() {
        let value = serde_json::json!({"edits": [{"old": "a \"quoted\"\nline"}], "n": 4711});
        for needle in ["\"quoted\"\nline", "4711", "edits"] {
            assert!(find_in_value(&value, needle, 0).is_some(), "{needle}");
        }
        assert!(find_in_value(&value, "\\n", 0).is_none());
    }
}
