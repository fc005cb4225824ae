//! Exports conversations: Markdown, JSON lines, a self-contained HTML file, and OTLP spans.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::assembly::view::{ItemKind, ThreadItem, ThreadTurn};
use crate::assembly::{BranchReason, CallFacts};
use interflow_llm::message::MessageRole;
use interflow_store::ConversationNote;
use interflow_types::Timestamp;
use interflow_types::units::pluralize;
use serde_json::json;

use super::load::ConversationView;
use super::tree::{ConversationTree, attachment_label, content_text};
use interflow_codec::html::escape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    Markdown,
    Jsonl,
    Html,
    /// Spans by OpenTelemetry's GenAI conventions, as an OTLP/JSON export request in one line.
    Otel,
}

impl ExportFormat {
    /// The file extension, and the media type.
    pub const fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Markdown => ("md", "text/markdown; charset=utf-8"),
            Self::Jsonl => ("jsonl", "application/x-ndjson"),
            Self::Html => ("html", "text/html; charset=utf-8"),
            Self::Otel => ("otlp.json", "application/json"),
        }
    }
}

impl FromStr for ExportFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "markdown" | "md" => Self::Markdown,
            "jsonl" => Self::Jsonl,
            "html" => Self::Html,
            "otel" | "otlp" => Self::Otel,
            other => return Err(format!("`{other}` is not an export format: use markdown, jsonl, html or otel")),
        })
    }
}

/// Renders a conversation with its sub-agents: each within the tool call that started it, else, and in JSON lines, after the
/// conversation.
pub fn write(tree: &ConversationTree, form: ExportFormat) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = match form {
        ExportFormat::Markdown => markdown(&mut out, tree, 1),
        ExportFormat::Jsonl => jsonl(&mut out, tree),
        ExportFormat::Html => html(&mut out, tree),
        ExportFormat::Otel => writeln!(out, "{}", super::otel::otlp(std::slice::from_ref(tree))),
    };
    out
}

/// Agent, model, start, size and cost of the conversation in one line.
fn summary_line(opened: &ConversationView) -> String {
    let (row, used) = (&opened.listed.row, &opened.listed.used);
    let mut words = vec![];
    let agent = format!("{} {}", row.agent, opened.version);
    words.extend([agent.trim(), &row.model].into_iter().filter(|w| !w.is_empty()).map(str::to_owned));
    words.push(format_timestamp(row.started));
    words.push(format!("{}, {}", pluralize(row.turns, "turn"), pluralize(used.exchanges, "exchange")));
    words.push(format!("{} tokens in ({} cached), {} out", used.input, used.cache_read, used.output));
    // Only a cost of which at least a part is known is shown.
    if used.unpriced < used.exchanges {
        words.push(format!("${:.4}", used.cost));
    }
    words.join(" · ")
}

fn format_timestamp(at: Timestamp) -> String {
    let micros = i64::try_from(at.micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| "undated".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

const fn branch_label(begins: BranchReason) -> &'static str {
    match begins {
        BranchReason::Edited => "the history was edited here",
        BranchReason::Retried => "asked again",
        BranchReason::Compacted => "the history was made shorter here",
        BranchReason::Cleared => "the history was cleared here",
    }
}

fn problems<'a>(opened: &'a ConversationView, turn: &'a ThreadTurn) -> impl Iterator<Item = &'a str> {
    let facts = turn.exchanges.iter().filter_map(|i| opened.thread.exchanges.get(*i)).map(|e| &e.facts);
    facts.filter_map(|f: &CallFacts| f.error.as_deref())
}

fn role_label(role: MessageRole) -> &'static str {
    if role == MessageRole::User { "User" } else { "Assistant" }
}

fn markdown(out: &mut String, tree: &ConversationTree, level: usize) -> fmt::Result {
    let opened = &tree.opened;
    // Markdown has six levels, of which the last is for the turns.
    let marks = "#".repeat(level.min(5));
    writeln!(out, "{marks} {}\n\n{}\n", opened.listed.row.title, summary_line(opened))?;
    markdown_note(out, opened.listed.note(None))?;
    for turn in &opened.thread.turns {
        writeln!(out, "{marks}# Turn {}\n", turn.number)?;
        let mut speaker = None;
        for (i, item) in turn.items.iter().enumerate() {
            if let Some(begins) = item.begins {
                writeln!(out, "*— {} —*\n", branch_label(begins))?;
            }
            // The speaker is named when it changes.
            if speaker != Some(item.role) {
                writeln!(out, "**{}**\n", role_label(item.role))?;
                speaker = Some(item.role);
            }
            markdown_item(out, tree, item, level)?;
            markdown_note(out, item_note(opened, turn, i))?;
        }
        for problem in problems(opened, turn) {
            writeln!(out, "> **Error:** {}\n", problem.replace('\n', "\n> "))?;
        }
    }
    tree.other_agents().into_iter().try_for_each(|child| markdown(out, child, level + 1))
}

/// The note on the message of an item, at the last item of that message.
fn item_note<'a>(opened: &'a ConversationView, turn: &ThreadTurn, at: usize) -> Option<&'a ConversationNote> {
    let key = turn.items.get(at)?.key;
    if turn.items.get(at + 1).is_some_and(|next| next.key == key) { None } else { opened.listed.note(Some(key.0)) }
}

/// Tags and comment in one text.
fn note_text(note: &ConversationNote) -> String {
    let tags = (!note.tags.is_empty()).then(|| format!("[{}]", note.tags.join(", ")));
    tags.into_iter().chain(note.comment.clone()).collect::<Vec<_>>().join(" ")
}

fn markdown_note(out: &mut String, note: Option<&ConversationNote>) -> fmt::Result {
    note.map_or(Ok(()), |n| writeln!(out, "> **Note:** {}\n", note_text(n).replace('\n', "\n> ")))
}

fn markdown_item(out: &mut String, tree: &ConversationTree, item: &ThreadItem, level: usize) -> fmt::Result {
    let folded = |out: &mut String, name: &str, text: &str| {
        writeln!(out, "<details><summary>{name}</summary>\n\n{}\n\n</details>\n", fenced(text, ""))
    };
    match &item.what {
        ItemKind::Text { text } => writeln!(out, "{text}\n"),
        ItemKind::Thinking { text } if text.is_empty() => Ok(()),
        ItemKind::Thinking { text } => folded(out, "Thinking", text),
        ItemKind::Context { text } => folded(out, "Context", text),
        ItemKind::Tool { name, summary, input, result, child, .. } => {
            writeln!(out, "**Tool `{name}`** {summary}\n")?;
            if !input.is_null() {
                writeln!(out, "{}\n", fenced(&serde_json::to_string_pretty(input).unwrap_or_default(), "json"))?;
            }
            // The sub-agent is shown between the call and its result.
            if let Some(child) = child.as_ref().and_then(|c| tree.children.get(c)) {
                markdown(out, child, level + 2)?;
            }
            match result {
                Some(r) => {
                    let failed = if r.is_error { " (failed)" } else { "" };
                    writeln!(out, "Result{failed}:\n\n{}\n", fenced(&content_text(&r.content), ""))
                }
                None => writeln!(out, "*No result was recorded.*\n"),
            }
        }
        ItemKind::Image(r) => writeln!(out, "{}\n", attachment_label("image", r)),
        ItemKind::Document(r) => writeln!(out, "{}\n", attachment_label("document", r)),
        ItemKind::Error { name, message } => writeln!(out, "> **Error {name}:** {}\n", message.replace('\n', "\n> ")),
        ItemKind::Other { name, value } => {
            writeln!(out, "{name}:\n\n{}\n", fenced(&serde_json::to_string_pretty(value).unwrap_or_default(), "json"))
        }
    }
}

/// A code block whose fence is longer than any run of backticks in it.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{text}\n{fence}")
}

fn jsonl(out: &mut String, tree: &ConversationTree) -> fmt::Result {
    let opened = &tree.opened;
    let row = &opened.listed.row;
    let head = json!({"conversation": opened.listed, "version": opened.version, "link": opened.link});
    writeln!(out, "{head}")?;
    for turn in &opened.thread.turns {
        for item in &turn.items {
            writeln!(out, "{}", json!({"conversation_id": row.id, "turn": turn.number, "item": item}))?;
        }
    }
    for exchange in &opened.thread.exchanges {
        writeln!(out, "{}", json!({"conversation_id": row.id, "exchange": exchange}))?;
    }
    tree.agents().into_iter().try_for_each(|child| jsonl(out, child))
}

const STYLE: &str = include_str!("../../data/export.css");

fn html(out: &mut String, tree: &ConversationTree) -> fmt::Result {
    let title = escape(&tree.opened.listed.row.title);
    // Nothing in the file may be executed or fetched, whatever the conversation contains.
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{title}</title><style>{STYLE}</style></head><body>"
    )?;
    html_section(out, tree)?;
    writeln!(out, "</body></html>")
}

fn html_section(out: &mut String, tree: &ConversationTree) -> fmt::Result {
    let opened = &tree.opened;
    let (title, facts) = (escape(&opened.listed.row.title), escape(&summary_line(opened)));
    writeln!(out, "<section><h1>{title}</h1><p class=\"facts\">{facts}</p>")?;
    html_note(out, opened.listed.note(None))?;
    for turn in &opened.thread.turns {
        writeln!(out, "<h2>Turn {}</h2>", turn.number)?;
        for (i, item) in turn.items.iter().enumerate() {
            if let Some(begins) = item.begins {
                writeln!(out, "<p class=\"mark\">{}</p>", branch_label(begins))?;
            }
            html_item(out, tree, item)?;
            html_note(out, item_note(opened, turn, i))?;
        }
        for problem in problems(opened, turn) {
            writeln!(out, "<p class=\"error\">{}</p>", escape(problem))?;
        }
    }
    tree.other_agents().into_iter().try_for_each(|child| html_section(out, child))?;
    writeln!(out, "</section>")
}

fn html_note(out: &mut String, note: Option<&ConversationNote>) -> fmt::Result {
    note.map_or(Ok(()), |n| writeln!(out, "<p class=\"note\">{}</p>", escape(&note_text(n))))
}

fn html_item(out: &mut String, tree: &ConversationTree, item: &ThreadItem) -> fmt::Result {
    let folded = |out: &mut String, name: &str, text: &str| {
        writeln!(out, "<details><summary>{name}</summary><pre>{}</pre></details>", escape(text))
    };
    match &item.what {
        ItemKind::Text { text } => {
            let class = if item.role == MessageRole::User { "user text" } else { "text" };
            writeln!(out, "<p class=\"{class}\">{}</p>", escape(text.trim()))
        }
        ItemKind::Thinking { text } if text.is_empty() => Ok(()),
        ItemKind::Thinking { text } => folded(out, "Thinking", text),
        ItemKind::Context { text } => folded(out, "Context", text),
        ItemKind::Tool { name, summary, input, result, child, .. } => {
            let failed = if result.as_ref().is_some_and(|r| r.is_error) { " ✗" } else { "" };
            writeln!(out, "<details><summary><b>{}</b> {}{failed}</summary>", escape(name), escape(summary))?;
            writeln!(out, "<pre>{}</pre>", escape(&serde_json::to_string_pretty(input).unwrap_or_default()))?;
            if let Some(child) = child.as_ref().and_then(|c| tree.children.get(c)) {
                html_section(out, child)?;
            }
            if let Some(result) = result {
                writeln!(out, "<pre>{}</pre>", escape(&content_text(&result.content)))?;
            }
            writeln!(out, "</details>")
        }
        ItemKind::Image(r) => writeln!(out, "<p>{}</p>", escape(&attachment_label("image", r))),
        ItemKind::Document(r) => writeln!(out, "<p>{}</p>", escape(&attachment_label("document", r))),
        ItemKind::Error { name, message } => {
            writeln!(out, "<p class=\"error\">{}: {}</p>", escape(name), escape(message))
        }
        ItemKind::Other { name, value } => {
            folded(out, &escape(name), &serde_json::to_string_pretty(value).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_fences_are_longer_than_any_fence_in_the_content() {
        assert!(fenced("a ```` b", "").starts_with("`````\n"));
        assert!(fenced("a", "json").starts_with("```json\n"));
    }

    #[test]
    fn timestamps_are_formatted_as_dates() {
        assert_eq!(format_timestamp(Timestamp::from_micros(1_700_000_000_000_000)), "2023-11-14 22:13 UTC");
        assert_eq!(format_timestamp(Timestamp::from_micros(951_782_400_000_000)), "2000-02-29 00:00 UTC");
    }
}
