//! The tools on conversations: list, read, explain.

use interflow_conversations::assembly::view::{ItemKind, input_summary};
use interflow_conversations::conversations::export::{self, ExportFormat};
use interflow_conversations::conversations::tree::{ConversationTree, load_tree};
use interflow_conversations::conversations::{load, prompt_cache};
use interflow_llm::message::ContentBlock;
use interflow_store::{ConversationOptions, FlowStore};
use serde_json::Value;

use super::arguments::{number, offset, query, text};
use super::secret_masking::mask_json;
use super::tool_text::{MAX_ROWS, MAX_TEXT, ToolCallResult, error_text, text_window};

pub fn list_conversations(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let limit = number(arguments, "limit", 30, MAX_ROWS);
    let options = ConversationOptions { query: query(arguments)?, limit, ..ConversationOptions::default() };
    let conversations = store.conversations(&options).map_err(error_text)?;
    if conversations.is_empty() {
        return Ok("no conversation is selected".into());
    }
    let line = |l: &interflow_store::ConversationSummary| {
        let (r, u) = (&l.row, &l.used);
        // Without any known price there is nothing to show.
        let cost = if u.exchanges > u.unpriced { format!(", ${:.4}", u.cost) } else { String::new() };
        format!(
            "{} {} {} ({} turns, {} exchanges, {} tokens in, {} cached, {} out{cost}): {}",
            r.id, r.agent, r.model, r.turns, u.exchanges, u.input, u.cache_read, u.output, r.title
        )
    };
    Ok(conversations.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn resolve_id(store: &dyn FlowStore, arguments: &Value) -> Result<String, String> {
    let word = text(arguments, "id");
    let id = load::find_conversation(store, word).map_err(error_text)?;
    id.ok_or_else(|| format!("there is no conversation `{word}`"))
}

pub fn read_conversation(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let id = resolve_id(store, arguments)?;
    let mut tree =
        load_tree(store, &id).map_err(error_text)?.ok_or_else(|| format!("the conversation {id} is gone"))?;
    mask_tree(&mut tree);
    let most = number(arguments, "max_chars", 40_000, MAX_TEXT);
    Ok(text_window(&export::write(&tree, ExportFormat::Markdown), offset(arguments), most, ""))
}

/// Masks what is masked in the flows: JSON in arguments, results and texts.
fn mask_tree(tree: &mut ConversationTree) {
    for item in tree.opened.thread.turns.iter_mut().flat_map(|turn| &mut turn.items) {
        match &mut item.what {
            ItemKind::Text { text } | ItemKind::Thinking { text } | ItemKind::Context { text } => mask_text(text),
            ItemKind::Error { message, .. } => mask_text(message),
            ItemKind::Other { value, .. } => mask_json(value),
            ItemKind::Tool { summary, input, result, .. } => {
                mask_json(input);
                *summary = input_summary(input);
                result.iter_mut().flat_map(|result| &mut result.content).for_each(mask_block);
            }
            ItemKind::Image(_) | ItemKind::Document(_) => {}
        }
    }
    tree.children.values_mut().for_each(mask_tree);
}

fn mask_block(block: &mut ContentBlock) {
    match block {
        ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } => mask_text(text),
        ContentBlock::ToolUse { input: value, .. } | ContentBlock::Other { value, .. } => mask_json(value),
        ContentBlock::ToolResult { content, .. } => content.iter_mut().for_each(mask_block),
        ContentBlock::Error { message, .. } => mask_text(message),
        ContentBlock::Image(_) | ContentBlock::Document(_) => {}
    }
}

/// Masks a text that is JSON.
fn mask_text(text: &mut String) {
    let mut value = Value::String(std::mem::take(text));
    mask_json(&mut value);
    if let Value::String(masked) = value {
        *text = masked;
    }
}

pub fn conversation_changes(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let id = resolve_id(store, arguments)?;
    let opened = load::load_conversation(store, &id, None).map_err(error_text)?;
    let opened = opened.ok_or_else(|| format!("the conversation {id} is gone"))?;
    let mut out = String::new();
    for diff in load::request_diffs(store, &opened) {
        let (call, c) = diff.map_err(error_text)?;
        out.push_str(&format!(
            "turn {} flow {}: {} messages the same, {} removed, {} added. {}\n",
            call.facts.turn,
            call.flow,
            c.same,
            c.removed.len(),
            c.added.len(),
            c.cache
        ));
    }
    let report = prompt_cache::report(store, &id, &|_, _, _, _| None).map_err(error_text)?.unwrap_or_default();
    for advice in &report.advice {
        let (breaks, tokens) = (advice.breaks, advice.lost_tokens);
        out.push_str(&format!("prompt cache: {} ({breaks} breaks, {tokens} tokens paid again)\n", advice.text));
    }
    Ok(if out.is_empty() { "there is no request with one before it".into() } else { out })
}
