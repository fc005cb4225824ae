//! Conversations as documents: Markdown, lines of JSON, and one HTML file that needs nothing else.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use interflow_flow::Timestamp;
use interflow_llm::conversation::view::{Item, Turn, What};
use interflow_llm::conversation::{Begins, ExchangeFacts};
use interflow_llm::message::{Block, Reference, Role};
use interflow_record::{Store, StoreError};
use serde_json::json;

use super::open::{Opened, open};
use interflow_wire::html::escape;

/// Sub-agents within sub-agents that are written.
const DEEPEST: usize = 8;

/// The form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Markdown.
    Markdown,
    /// One JSON object per line.
    Jsonl,
    /// One HTML file.
    Html,
    /// Spans of OpenTelemetry's GenAI conventions, as a request to a collector in OTLP's JSON, in one line.
    Otel,
}

impl Form {
    /// The ending of a file's name, and the media type.
    pub const fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Markdown => ("md", "text/markdown; charset=utf-8"),
            Self::Jsonl => ("jsonl", "application/x-ndjson"),
            Self::Html => ("html", "text/html; charset=utf-8"),
            Self::Otel => ("otlp.json", "application/json"),
        }
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "markdown" | "md" => Self::Markdown,
            "jsonl" => Self::Jsonl,
            "html" => Self::Html,
            "otel" | "otlp" => Self::Otel,
            other => return Err(format!("`{other}` is no form of a conversation: markdown, jsonl, html or otel")),
        })
    }
}

/// A conversation with its sub-agents.
pub struct Tree {
    /// It.
    pub opened: Opened,
    /// The sub-agents that tool calls began, by id.
    pub children: HashMap<String, Tree>,
}

/// Opens a conversation with its sub-agents; `None` when there is none of this id.
///
/// # Errors
/// The store refused.
pub fn tree(store: &dyn Store, id: &str) -> Result<Option<Tree>, StoreError> {
    grown(store, id, 0)
}

fn grown(store: &dyn Store, id: &str, depth: usize) -> Result<Option<Tree>, StoreError> {
    let Some(opened) = open(store, id, None)? else { return Ok(None) };
    let mut children = HashMap::new();
    for child in opened.children.iter().filter(|_| depth < DEEPEST) {
        let id = &child.listed.row.id;
        children.extend(grown(store, id, depth + 1)?.map(|tree| (id.clone(), tree)));
    }
    Ok(Some(Tree { opened, children }))
}

/// Writes a conversation down.
pub fn write(tree: &Tree, form: Form) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = match form {
        Form::Markdown => markdown(&mut out, tree, 1),
        Form::Jsonl => jsonl(&mut out, tree),
        Form::Html => html(&mut out, tree),
        Form::Otel => writeln!(out, "{}", super::otel::otlp(std::slice::from_ref(tree))),
    };
    out
}

/// The facts of a conversation in a line.
fn facts(opened: &Opened) -> String {
    let (row, used) = (&opened.listed.row, &opened.listed.used);
    let mut words = vec![];
    let agent = format!("{} {}", row.agent, opened.version);
    words.extend([agent.trim(), &row.model].into_iter().filter(|w| !w.is_empty()).map(str::to_owned));
    words.push(moment(row.started));
    words.push(format!("{}, {}", counted(row.turns, "turn"), counted(used.exchanges, "exchange")));
    words.push(format!("{} tokens in ({} cached), {} out", used.input, used.cache_read, used.output));
    if used.unpriced < used.exchanges {
        words.push(format!("${:.4}", used.cost));
    }
    words.join(" · ")
}

/// A count with its word, in the plural where it is one.
pub fn counted(n: u64, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

fn moment(at: Timestamp) -> String {
    let seconds = i64::try_from(at.micros() / 1_000_000).unwrap_or(i64::MAX);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to a date: Howard Hinnant's civil_from_days.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest / 60 % 60)
}

const fn branch(begins: Begins) -> &'static str {
    match begins {
        Begins::Edited => "the history was edited here",
        Begins::Retried => "asked again",
        Begins::Compacted => "the history was made shorter here",
        Begins::Cleared => "the history was cleared here",
    }
}

fn problems<'a>(opened: &'a Opened, turn: &'a Turn) -> impl Iterator<Item = &'a str> {
    let facts = turn.exchanges.iter().filter_map(|i| opened.thread.exchanges.get(*i)).map(|e| &e.facts);
    facts.filter_map(|f: &ExchangeFacts| f.error.as_deref())
}

fn who(role: Role) -> &'static str {
    if role == Role::User { "User" } else { "Assistant" }
}

fn attached(what: &str, r: &Reference) -> String {
    let words = [&r.title, &r.media_type, &r.url].into_iter().filter(|w| !w.is_empty()).cloned();
    let size = (r.size > 0).then(|| format!("{} characters", r.size));
    format!("[{what}: {}]", words.chain(size).collect::<Vec<_>>().join(", "))
}

/// The content of a tool's result as text.
pub fn content(blocks: &[Block]) -> String {
    let text = |b: &Block| match b {
        Block::Text { text } | Block::Thinking { text } => text.clone(),
        Block::Image(r) => attached("image", r),
        Block::Document(r) => attached("document", r),
        Block::Other { value, .. } => serde_json::to_string_pretty(value).unwrap_or_default(),
        other => serde_json::to_string(other).unwrap_or_default(),
    };
    blocks.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn markdown(out: &mut String, tree: &Tree, level: usize) -> fmt::Result {
    let opened = &tree.opened;
    let marks = "#".repeat(level.min(5));
    writeln!(out, "{marks} {}\n\n{}\n", opened.listed.row.title, facts(opened))?;
    for turn in &opened.thread.turns {
        writeln!(out, "{marks}# Turn {}\n", turn.number)?;
        let mut speaker = None;
        for item in &turn.items {
            if let Some(begins) = item.begins {
                writeln!(out, "*— {} —*\n", branch(begins))?;
            }
            if speaker != Some(item.role) {
                writeln!(out, "**{}**\n", who(item.role))?;
                speaker = Some(item.role);
            }
            markdown_item(out, tree, item, level)?;
        }
        for problem in problems(opened, turn) {
            writeln!(out, "> **Error:** {}\n", problem.replace('\n', "\n> "))?;
        }
    }
    Ok(())
}

fn markdown_item(out: &mut String, tree: &Tree, item: &Item, level: usize) -> fmt::Result {
    match &item.what {
        What::Text { text } => writeln!(out, "{text}\n"),
        What::Thinking { text } if text.is_empty() => Ok(()),
        What::Thinking { text } => {
            writeln!(out, "<details><summary>Thinking</summary>\n\n{}\n\n</details>\n", fenced(text, ""))
        }
        What::Context { text } => {
            writeln!(out, "<details><summary>Context</summary>\n\n{}\n\n</details>\n", fenced(text, ""))
        }
        What::Tool { name, summary, input, result, child, .. } => {
            writeln!(out, "**Tool `{name}`** {summary}\n")?;
            if !input.is_null() {
                writeln!(out, "{}\n", fenced(&serde_json::to_string_pretty(input).unwrap_or_default(), "json"))?;
            }
            if let Some(child) = child.as_ref().and_then(|c| tree.children.get(c)) {
                markdown(out, child, level + 2)?;
            }
            match result {
                Some(r) => {
                    let failed = if r.is_error { " (failed)" } else { "" };
                    writeln!(out, "Result{failed}:\n\n{}\n", fenced(&content(&r.content), ""))
                }
                None => writeln!(out, "*No result was seen.*\n"),
            }
        }
        What::Image(r) => writeln!(out, "{}\n", attached("image", r)),
        What::Document(r) => writeln!(out, "{}\n", attached("document", r)),
        What::Error { name, message } => writeln!(out, "> **Error {name}:** {}\n", message.replace('\n', "\n> ")),
        What::Other { name, value } => {
            writeln!(out, "{name}:\n\n{}\n", fenced(&serde_json::to_string_pretty(value).unwrap_or_default(), "json"))
        }
    }
}

/// A block of code whose fence is longer than any run of backticks in it.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{text}\n{fence}")
}

fn jsonl(out: &mut String, tree: &Tree) -> fmt::Result {
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
    let mut children: Vec<_> = tree.children.values().collect();
    children.sort_by_key(|t| (t.opened.listed.row.started, t.opened.listed.row.id.clone()));
    children.into_iter().try_for_each(|child| jsonl(out, child))
}

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.55 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.4rem}h2{font-size:1rem;margin-top:2rem;border-top:1px solid var(--line);padding-top:.8rem;opacity:.7}
.facts{opacity:.7}.user{border-left:3px solid #3b82f6;padding-left:.8rem;margin:.8rem 0}
.text{white-space:pre-wrap}.error{border-left:3px solid #dc2626;padding-left:.8rem;white-space:pre-wrap}
.mark{opacity:.6;font-style:italic;text-align:center}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.3rem .7rem}
summary{cursor:pointer}summary b{font-family:ui-monospace,monospace}
pre{white-space:pre-wrap;background:var(--soft);padding:.6rem;border-radius:6px;font:12.5px/1.45 ui-monospace,monospace}
section section{border-left:2px solid var(--line);padding-left:1rem;margin-left:.3rem}";

fn html(out: &mut String, tree: &Tree) -> fmt::Result {
    let title = escape(&tree.opened.listed.row.title);
    // Nothing in the file is ever run or fetched, whatever a conversation holds.
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{title}</title><style>{STYLE}</style></head><body>"
    )?;
    html_section(out, tree)?;
    writeln!(out, "</body></html>")
}

fn html_section(out: &mut String, tree: &Tree) -> fmt::Result {
    let opened = &tree.opened;
    let (title, facts) = (escape(&opened.listed.row.title), escape(&facts(opened)));
    writeln!(out, "<section><h1>{title}</h1><p class=\"facts\">{facts}</p>")?;
    for turn in &opened.thread.turns {
        writeln!(out, "<h2>Turn {}</h2>", turn.number)?;
        for item in &turn.items {
            if let Some(begins) = item.begins {
                writeln!(out, "<p class=\"mark\">{}</p>", branch(begins))?;
            }
            html_item(out, tree, item)?;
        }
        for problem in problems(opened, turn) {
            writeln!(out, "<p class=\"error\">{}</p>", escape(problem))?;
        }
    }
    writeln!(out, "</section>")
}

fn html_item(out: &mut String, tree: &Tree, item: &Item) -> fmt::Result {
    let folded = |out: &mut String, name: &str, text: &str| {
        writeln!(out, "<details><summary>{name}</summary><pre>{}</pre></details>", escape(text))
    };
    match &item.what {
        What::Text { text } => {
            let class = if item.role == Role::User { "user text" } else { "text" };
            writeln!(out, "<p class=\"{class}\">{}</p>", escape(text.trim()))
        }
        What::Thinking { text } if text.is_empty() => Ok(()),
        What::Thinking { text } => folded(out, "Thinking", text),
        What::Context { text } => folded(out, "Context", text),
        What::Tool { name, summary, input, result, child, .. } => {
            let failed = if result.as_ref().is_some_and(|r| r.is_error) { " ✗" } else { "" };
            writeln!(out, "<details><summary><b>{}</b> {}{failed}</summary>", escape(name), escape(summary))?;
            writeln!(out, "<pre>{}</pre>", escape(&serde_json::to_string_pretty(input).unwrap_or_default()))?;
            if let Some(child) = child.as_ref().and_then(|c| tree.children.get(c)) {
                html_section(out, child)?;
            }
            if let Some(result) = result {
                writeln!(out, "<pre>{}</pre>", escape(&content(&result.content)))?;
            }
            writeln!(out, "</details>")
        }
        What::Image(r) => writeln!(out, "<p>{}</p>", escape(&attached("image", r))),
        What::Document(r) => writeln!(out, "<p>{}</p>", escape(&attached("document", r))),
        What::Error { name, message } => {
            writeln!(out, "<p class=\"error\">{}: {}</p>", escape(name), escape(message))
        }
        What::Other { name, value } => {
            folded(out, &escape(name), &serde_json::to_string_pretty(value).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_longer_than_what_they_hold() {
        assert!(fenced("a ```` b", "").starts_with("`````\n"));
        assert!(fenced("a", "json").starts_with("```json\n"));
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(Timestamp::from_micros(1_700_000_000_000_000)), "2023-11-14 22:13 UTC");
        assert_eq!(moment(Timestamp::from_micros(951_782_400_000_000)), "2000-02-29 00:00 UTC");
    }
}
