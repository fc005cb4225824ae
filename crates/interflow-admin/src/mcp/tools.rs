//! The MCP tools that read from the store. They work without a running instance.

use interflow_conversations::conversations::export::{self, ExportFormat};
use interflow_conversations::conversations::{load, prompt_cache};
use interflow_store::{ConversationOptions, FlowStore};
use serde_json::{Value, json};

use super::arguments::{self, number, offset, query, text};
use super::{WriteAccess, flow_tools};

/// Maximum number of flows or conversations per response.
pub(super) const MAX_ROWS: u64 = 200;
/// Maximum number of characters per response.
pub(super) const MAX_TEXT: u64 = 200_000;
const SINCE: &str = "only what began since then: a date or time (2026-01-31T12:00+01:00), or how long ago (-2h)";
const UNTIL: &str = "only what began before then";

/// The text of a tool's result, or of its error.
pub(super) type ToolCallResult = Result<String, String>;
type ToolFn = fn(&dyn FlowStore, &Value) -> ToolCallResult;

/// Calls a tool that needs nothing but the store; `None` if there is none of this name.
pub fn call(store: &dyn FlowStore, name: &str, arguments: &Value) -> Option<ToolCallResult> {
    let tool = find(name)?;
    Some(check_arguments(name, arguments).and_then(|()| tool(store, arguments)))
}

/// Checks the arguments of a tool against its schema.
pub fn check_arguments(name: &str, arguments: &Value) -> Result<(), String> {
    let all = list(WriteAccess::Writes);
    let tool = all.iter().find(|tool| tool["name"] == name);
    tool.map_or(Ok(()), |tool| arguments::check(&tool["inputSchema"], arguments))
}

fn find(name: &str) -> Option<ToolFn> {
    Some(match name {
        "search_flows" => flow_tools::search_flows,
        "read_flow" => flow_tools::read_flow,
        "diff_flows" => flow_tools::diff_flows,
        "stats" => flow_tools::stats,
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
        let required = if name == "propose_rule" { "text" } else { "id" };
        json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": {"type": "object", "properties": properties, "required": [required], "additionalProperties": false},
            "annotations": {"readOnlyHint": false, "destructiveHint": outside, "openWorldHint": outside},
        })
    };
    vec![
        tool(
            "propose_rule",
            "Propose rules",
            "Checks the text of rules, tries it on recorded flows, and keeps it for the operator, who applies or dismisses it. It is \
             never active without that.",
            false,
            json!({
                "text": text("a rule file in YAML or TOML, with `rules:` on a line of its own: rules:\n  - name: slow\n    when: path:/x\n    then: { delay: 1s }"),
                "reason": text("why, in a sentence for the operator"),
                "query": text("the flows to try it on; the newest ones by default"),
            }),
        ),
        tool(
            "annotate_flow",
            "Tag or comment a flow",
            "Adds or removes tags of a recorded flow, or sets its comment.",
            false,
            json!({
                "id": text("the flow's id"),
                "add_tags": texts("tags to add"),
                "remove_tags": texts("tags to remove"),
                "comment": text("the comment; an empty text removes it"),
            }),
        ),
        tool(
            "replay_flow",
            "Send a request again",
            "Sends a recorded request again, with the given changes, and returns the response. Access rules apply, and placeholders \
             are replaced by secrets only for the hosts of each secret.",
            true,
            json!({
                "id": text("the flow's id"),
                "method": text("another method"),
                "url": text("another URL, or /path for the same origin"),
                "headers": texts("`Name: value` sets a field, `Name:` removes it"),
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
    let from = |doc: &str| json!({"type": "integer", "minimum": 0, "description": doc});
    vec![
        tool(
            "search_flows",
            "Search flows",
            "Lists recorded HTTP exchanges, WebSockets and tunnels that a query selects, the newest first.",
            json!({
                "query": text("such as: host:api.example.com status:>=400 body:\"refund\"; all flows when empty"),
                "limit": number("maximum number of flows; default 50, at most 200"),
                "after": text("only flows older than the flow of this id"),
                "since": text(SINCE),
                "until": text(UNTIL),
            }),
            &[],
        ),
        tool(
            "read_flow",
            "Read a flow",
            "Shows one flow: both heads, both bodies as text without content coding, messages, errors. To read on in a long body, \
             name it as `part` with an `offset`.",
            json!({
                "id": text("the flow's id"),
                "part": json!({"type": "string", "enum": ["request", "response", "messages"], "description": "only this body, or the messages; the whole flow by default"}),
                "offset": from("number of characters of the part to skip"),
                "max_chars": number("truncate each body to this many characters; default 20000"),
            }),
            &["id"],
        ),
        tool(
            "diff_flows",
            "Compare two flows",
            "Shows how the second flow differs from the first: heads by field, JSON bodies by value, other text by line. Secrets are \
             masked before, so that they do not differ.",
            json!({
                "a": text("the id of the first flow"),
                "b": text("the id of the second flow"),
                "offset": from("number of characters to skip, to read on"),
                "max_chars": number("truncate after this many characters; default 20000"),
            }),
            &["a", "b"],
        ),
        tool(
            "stats",
            "Add up traffic",
            "Adds up recorded flows: statuses, errors, bytes, hosts with durations; and calls of language models with tokens and cost.",
            json!({
                "query": text("only flows that it selects; everything when empty. Calls of language models are selected by time alone"),
                "since": text(SINCE),
                "until": text(UNTIL),
                "top": number("maximum number of hosts, error kinds and models; default 10"),
            }),
            &[],
        ),
        tool(
            "list_conversations",
            "List conversations",
            "Lists conversations with language models: agent, model, turns, tokens, cost, title; the newest first.",
            json!({
                "query": text("such as: agent:claude-code model:opus tokens:>100000 time:>-1d; bare words search the title"),
                "limit": number("maximum number; default 30, at most 200"),
                "since": text(SINCE),
                "until": text(UNTIL),
            }),
            &[],
        ),
        tool(
            "read_conversation",
            "Read a conversation",
            "Shows one conversation as Markdown: prompts, thoughts, tool calls with arguments and results, sub-agents.",
            json!({
                "id": text("its id, the beginning of its id, or `last`"),
                "offset": from("number of characters to skip, to read on"),
                "max_chars": number("truncate after this many characters; default 40000"),
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
        tool(
            "wait_for_flow",
            "Wait for a flow",
            "Waits until a flow that a query selects has ended, and gives its id: for a request that someone is about to send.",
            json!({
                "query": text("as in search_flows; any flow when empty"),
                "timeout": number("maximum seconds to wait; default 30, at most 60"),
                "since": text("also a flow that has ended since then, such as -1m"),
            }),
            &[],
        ),
        tool(
            "list_rules",
            "List rules",
            "Lists the active rules: condition, actions, file, and how often each matched. Needs a running instance.",
            json!({}),
            &[],
        ),
        tool(
            "list_pending",
            "List pending requests",
            "Lists the requests, tunnels, responses and messages that wait for a person's decision, also at other replicas that share \
             the recording. They cannot be decided here. Needs a running instance.",
            json!({}),
            &[],
        ),
        tool(
            "how_to_route",
            "Route a program through the proxy",
            "Gives the addresses of proxy and gateway, the files of the CA, and the environment with which a program is recorded. \
             Needs a running instance.",
            json!({}),
            &[],
        ),
        tool("query_help", "Explain the query language", "The query language on a page.", json!({}), &[]),
    ]
}

pub(super) fn error_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn list_conversations(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
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
    load::find_conversation(store, word)
        .map_err(error_text)?
        .ok_or_else(|| format!("there is no conversation `{word}`"))
}

fn read_conversation(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let id = resolve_id(store, arguments)?;
    let tree =
        export::load_tree(store, &id).map_err(error_text)?.ok_or_else(|| format!("the conversation {id} is gone"))?;
    let most = number(arguments, "max_chars", 40_000, MAX_TEXT);
    Ok(text_window(&export::write(&tree, ExportFormat::Markdown), offset(arguments), most, ""))
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
    let report = prompt_cache::report(store, &id, &|_, _, _| None).map_err(error_text)?.unwrap_or_default();
    for advice in &report.advice {
        let (breaks, tokens) = (advice.breaks, advice.lost_tokens);
        out.push_str(&format!("prompt cache: {} ({breaks} breaks, {tokens} tokens paid again)\n", advice.text));
    }
    Ok(if out.is_empty() { "there is no request with one before it".into() } else { out })
}

/// A part of a text, with a note on what is omitted, and with which arguments besides `offset` it goes on.
pub(super) fn text_window(text: &str, skip: usize, most: usize, with: &str) -> String {
    // In characters, not bytes, as the arguments say.
    let mut places = text.char_indices().map(|(i, _)| i);
    let Some(start) = places.nth(skip) else { return String::new() };
    let end = places.nth(most.saturating_sub(1)).unwrap_or(text.len());
    let part = text.get(start..end).unwrap_or_default();
    if end >= text.len() {
        return part.to_owned();
    }
    format!("{part}\n[cut here: {} characters in all, {with}offset {} goes on]", text.chars().count(), skip + most)
}
