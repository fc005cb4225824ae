//! The MCP tools that read from the store. They work without a running instance.

use interflow_conversations::conversations::export::{self, ExportFormat};
use interflow_conversations::conversations::load;
use interflow_query::Query;
use interflow_store::{ConversationOptions, FlowRow, FlowStore, ListOptions, decoded_body, media_type};
use interflow_types::{Direction, FlowId, Headers, Timestamp};
use serde_json::{Value, json};

use super::{WriteAccess, secret_masking};

/// Maximum number of flows or conversations per response.
const MAX_ROWS: u64 = 200;
/// Default and maximum number of characters per response.
const MAX_TEXT: u64 = 200_000;
/// Bytes of a body that are decoded for display.
const MAX_BODY: u64 = 4 << 20;

/// The text of a tool's result, or of its error.
type ToolCallResult = Result<String, String>;
type ToolFn = fn(&dyn FlowStore, &Value) -> ToolCallResult;

pub fn find(name: &str) -> Option<ToolFn> {
    Some(match name {
        "search_flows" => search_flows,
        "read_flow" => read_flow,
        "list_conversations" => list_conversations,
        "read_conversation" => read_conversation,
        "conversation_changes" => changes,
        "query_help" => |_, _| Ok(interflow_query::help().to_owned()),
        _ => return None,
    })
}

/// The tool descriptions. Tools that change something are listed only if they are allowed.
pub fn list(access: WriteAccess) -> Vec<Value> {
    let mut all = read_tools();
    if access == WriteAccess::Writes {
        all.extend(write_tools());
    }
    all
}

fn write_tools() -> Vec<Value> {
    let text = |doc: &str| json!({"type": "string", "description": doc});
    let texts = |doc: &str| json!({"type": "array", "items": {"type": "string"}, "description": doc});
    let tool = |name: &str, title: &str, description: &str, outside: bool, properties: Value| {
        json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": {"type": "object", "properties": properties, "required": ["id"], "additionalProperties": false},
            "annotations": {"readOnlyHint": false, "destructiveHint": outside, "openWorldHint": outside},
        })
    };
    vec![
        tool(
            "annotate_flow",
            "Tag or comment a flow",
            "Adds tags to a recorded flow, takes tags away, or sets its comment.",
            false,
            json!({
                "id": text("the flow's id"),
                "add_tags": texts("tags to add"),
                "remove_tags": texts("tags to take away"),
                "comment": text("the comment; an empty text takes it away"),
            }),
        ),
        tool(
            "replay_flow",
            "Send a request again",
            "Sends a recorded request again, with changes where they are given, and says what came back. Rules of access hold; \
             placeholders become secrets towards their hosts alone.",
            true,
            json!({
                "id": text("the flow's id"),
                "method": text("another method"),
                "url": text("another URL, or /path for the same origin"),
                "headers": texts("`Name: value` sets a field, `Name:` takes it out"),
                "body": text("another body"),
            }),
        ),
    ]
}

fn read_tools() -> Vec<Value> {
    let tool = |name: &str, title: &str, description: &str, properties: Value, required: &[&str]| {
        json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": {"type": "object", "properties": properties, "required": required, "additionalProperties": false},
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": false},
        })
    };
    let text = |doc: &str| json!({"type": "string", "description": doc});
    let number = |doc: &str| json!({"type": "integer", "minimum": 1, "description": doc});
    vec![
        tool(
            "search_flows",
            "Search flows",
            "Lists recorded HTTP exchanges, WebSockets and tunnels that a query selects, the latest first.",
            json!({
                "query": text("such as: host:api.example.com status:>=400 body:\"refund\"; everything when empty"),
                "limit": number("at most so many; 50 when not given, 200 at most"),
                "after": text("only flows older than the flow of this id"),
            }),
            &[],
        ),
        tool(
            "read_flow",
            "Read a flow",
            "Shows one flow: both heads, both bodies as text without content coding, timings, errors.",
            json!({"id": text("the flow's id"), "max_chars": number("cut each body after so many characters; 20000 when not given")}),
            &["id"],
        ),
        tool(
            "list_conversations",
            "List conversations",
            "Lists conversations with language models: agent, model, turns, tokens, cost, title; the latest first.",
            json!({
                "query": text("such as: agent:claude-code model:opus tokens:>100000 time:>-1d; bare words search the title"),
                "limit": number("at most so many; 30 when not given, 200 at most"),
            }),
            &[],
        ),
        tool(
            "read_conversation",
            "Read a conversation",
            "Shows one conversation as Markdown: prompts, thoughts, tool calls with arguments and results, sub-agents.",
            json!({
                "id": text("its id, the beginning of its id, or `last`"),
                "offset": json!({"type": "integer", "minimum": 0, "description": "skip so many characters: to read on"}),
                "max_chars": number("cut after so many characters; 40000 when not given"),
            }),
            &["id"],
        ),
        tool(
            "conversation_changes",
            "Explain requests and cache misses",
            "For each request of a conversation: what changed since the one before, and why the provider's cache gave what it \
             gave.",
            json!({"id": text("its id, the beginning of its id, or `last`")}),
            &["id"],
        ),
        tool(
            "explain_rules",
            "Explain rules",
            "Explains for each active rule whether it matches a recorded flow, phase by phase, and why. Needs a running instance.",
            json!({"id": text("the flow's id")}),
            &["id"],
        ),
        tool("query_help", "Explain the query language", "The query language on a page.", json!({}), &[]),
    ]
}

fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}

fn number(arguments: &Value, name: &str, default: u64, most: u64) -> usize {
    // Out of range means the nearest allowed value: a model need not know the bounds.
    arguments[name].as_u64().unwrap_or(default).clamp(1, most) as usize
}

fn query(arguments: &Value) -> Result<Query, String> {
    let text = text(arguments, "query");
    Query::parse(text).map_err(|e| e.render(text))
}

fn error_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn search_flows(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let after = Some(text(arguments, "after")).filter(|t| !t.is_empty()).map(str::parse::<FlowId>).transpose();
    let limit = number(arguments, "limit", 50, MAX_ROWS);
    let options =
        ListOptions { query: query(arguments)?, after: after.map_err(error_text)?, limit, ..ListOptions::default() };
    let rows = store.list(&options).map_err(error_text)?;
    if rows.is_empty() {
        return Ok("no flow is selected".into());
    }
    let now = Timestamp::now();
    let line = |row: &FlowRow| {
        let s = row.summary(now);
        let method = s.method.as_deref().unwrap_or("TUNNEL");
        let status = s.status.map_or_else(|| s.error.as_deref().unwrap_or("-").to_owned(), |n| n.to_string());
        let url = format!(
            "{}://{}{}",
            s.scheme,
            s.authority,
            secret_masking::mask_path(s.path.as_deref().unwrap_or_default())
        );
        format!(
            "{} {method} {status} {url} ({} ms, {} B sent, {} B received)",
            s.id,
            s.duration / 1000,
            s.request_size,
            s.response_size
        )
    };
    Ok(rows.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn read_flow(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let id: FlowId = text(arguments, "id").parse().map_err(error_text)?;
    let most = number(arguments, "max_chars", 20_000, MAX_TEXT);
    let row = store.get(id).map_err(error_text)?;
    let mut out = format!("flow {id}, {:?}, {} ms\n", row.state, row.duration().unwrap_or_default() / 1000);
    if let Some(error) = &row.error {
        out.push_str(&format!("error {}: {}\n", error.kind, error.message));
    }
    if let Some(r) = &row.request {
        let target = format!("{}://{}{}", row.scheme, row.authority, secret_masking::mask_path(&r.path));
        out.push_str(&format!("\n{} {target} {}\n{}", r.method, r.version, secret_masking::mask_headers(&r.headers)));
        out.push_str(&body(store, &row, Direction::Request, most)?);
    }
    if let Some(r) = &row.response {
        out.push_str(&format!("\n{} {}\n{}", r.version, r.status, secret_masking::mask_headers(&r.headers)));
        out.push_str(&body(store, &row, Direction::Response, most)?);
    }
    if row.messages > 0 {
        out.push_str(&messages(store, &row, most)?);
    }
    Ok(out)
}

fn body(store: &dyn FlowStore, row: &FlowRow, side: Direction, most: usize) -> ToolCallResult {
    let Some(known) = row.body(side).filter(|b| b.size > 0) else { return Ok(String::new()) };
    // Only the beginning is read; the note below says what is missing.
    let bytes = store.body(row.id, side, 0..known.kept.min(MAX_BODY)).map_err(error_text)?;
    let bytes = bytes.read_all(MAX_BODY as usize).map_err(error_text)?;
    let empty = Headers::new();
    let headers = row.headers(side).unwrap_or(&empty);
    let decoded = decoded_body::decode_body(headers, bytes, MAX_BODY as usize);
    let media = media_type(headers).unwrap_or_default();
    // A truncated body may end in the middle of a character.
    let whole = known.kept <= MAX_BODY && !decoded.truncated;
    Ok(match secret_masking::mask_body(&media, &decoded.bytes, whole) {
        Some(text) => format!("\n{}\n", text_window(&text, 0, most)),
        None => format!("\n[{} bytes of {media}]\n", known.size),
    })
}

fn messages(store: &dyn FlowStore, row: &FlowRow, most: usize) -> ToolCallResult {
    let mut out = format!("\n{} messages\n", row.messages);
    for m in store.messages(row.id, 0..row.messages.min(200)).map_err(error_text)? {
        let text = secret_masking::mask_body("", &m.payload, m.payload.len() as u64 == m.size);
        let text = text.unwrap_or_else(|| format!("[{} bytes]", m.size));
        out.push_str(&format!("{} {}\n", m.direction.as_str(), text.trim_end()));
        // Bounded: later messages would be cut off below.
        if out.len() > most {
            break;
        }
    }
    Ok(text_window(&out, 0, most))
}

fn list_conversations(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let limit = number(arguments, "limit", 30, MAX_ROWS);
    let options = ConversationOptions { query: query(arguments)?, limit, ..ConversationOptions::default() };
    let found = store.conversations(&options).map_err(error_text)?;
    if found.is_empty() {
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
    Ok(found.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn resolve_id(store: &dyn FlowStore, arguments: &Value) -> Result<String, String> {
    let word = text(arguments, "id");
    load::find_conversation(store, word)
        .map_err(error_text)?
        .ok_or_else(|| format!("there is no conversation `{word}`"))
}

fn read_conversation(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let id = resolve_id(store, arguments)?;
    let tree =
        export::load_tree(store, &id).map_err(error_text)?.ok_or_else(|| format!("the conversation {id} is gone"))?;
    let skip = arguments["offset"].as_u64().unwrap_or_default() as usize;
    let most = number(arguments, "max_chars", 40_000, MAX_TEXT);
    Ok(text_window(&export::write(&tree, ExportFormat::Markdown), skip, most))
}

fn changes(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let id = resolve_id(store, arguments)?;
    let opened = load::load_conversation(store, &id, None)
        .map_err(error_text)?
        .ok_or_else(|| format!("the conversation {id} is gone"))?;
    let mut out = String::new();
    // Side calls, such as for a title, have no predecessor in the conversation.
    for e in opened.thread.exchanges.iter().filter(|e| !e.facts.purpose.is_side_call()) {
        let Ok(flow) = e.flow.parse() else { continue };
        if let Some(c) = load::request_diff(store, &id, flow, e.part).map_err(error_text)? {
            out.push_str(&format!(
                "turn {} flow {}: {} messages the same, {} removed, {} added. {}\n",
                e.facts.turn,
                e.flow,
                c.same,
                c.removed.len(),
                c.added.len(),
                c.cache
            ));
        }
    }
    Ok(if out.is_empty() { "there is no request with one before it".into() } else { out })
}

/// A part of a text, with a note on what is omitted.
fn text_window(text: &str, skip: usize, most: usize) -> String {
    // In characters, not bytes, as the arguments say.
    let mut places = text.char_indices().map(|(i, _)| i);
    let Some(start) = places.nth(skip) else { return String::new() };
    let end = places.nth(most.saturating_sub(1)).unwrap_or(text.len());
    let part = text.get(start..end).unwrap_or_default();
    if end >= text.len() {
        return part.to_owned();
    }
    format!("{part}\n[cut here: {} characters in all, offset {} goes on]", text.chars().count(), skip + most)
}
