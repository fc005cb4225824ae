//! Exports a conversation as OpenTelemetry GenAI spans in OTLP/JSON: one trace per conversation with its sub-agents;
//! spans for the agent, each call and each tool call.

use crate::assembly::view::{CallView, ItemKind, ThreadItem, ThreadTurn};
use interflow_llm::message::{ContentBlock, MessageRole};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::tree::{ConversationTree, content_text};
use interflow_llm::otlp::{self, attribute, name};

/// The conversations as one OTLP/JSON export request.
pub fn otlp(trees: &[ConversationTree]) -> Value {
    let spans: Vec<Value> = trees.iter().flat_map(|tree| ConversationTrace::from_tree(tree).spans).collect();
    otlp::request(vec![attribute("service.name", "interflow")], "interflow.conversations", spans)
}

struct ConversationTrace {
    id: String,
    spans: Vec<Value>,
}

/// Input, output, cache read, cache write and reasoning tokens.
fn tokens(counts: [u64; 5]) -> impl Iterator<Item = Value> {
    let names = [name::INPUT, name::OUTPUT, name::CACHE_READ, name::CACHE_WRITE, name::REASONING];
    names.into_iter().zip(counts).map(|(name, count)| attribute(name, count))
}

/// A deterministic id with this number of hexadecimal digits: exported again, a conversation has the same spans.
fn hashed_id(parts: &[&str], digits: usize) -> String {
    let hash = Sha256::digest(parts.join("\n").as_bytes());
    hex::encode(&hash[..digits / 2])
}

fn nanos(micros: u64) -> String {
    // OTLP/JSON encodes 64-bit integers as strings.
    (u128::from(micros) * 1000).to_string()
}

impl ConversationTrace {
    fn from_tree(tree: &ConversationTree) -> Self {
        let mut trace = Self { id: hashed_id(&[&tree.opened.listed.row.id], 32), spans: Vec::new() };
        trace.agent(tree, None);
        trace
    }

    fn span(
        &mut self,
        id: &str,
        parent: Option<&str>,
        (title, kind): (String, u8),
        (from, to): (u64, u64),
        attributes: Vec<Value>,
        problem: Option<&str>,
    ) {
        let mut span = json!({
            "traceId": self.id, "spanId": id, "name": title, "kind": kind,
            // A span must not end before it starts, which recorded times do not guarantee.
            "startTimeUnixNano": nanos(from), "endTimeUnixNano": nanos(to.max(from)),
            "attributes": attributes,
            "status": {},
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = parent.into();
        }
        if let Some(problem) = problem {
            // Code 2 is "error".
            span["status"] = json!({"code": 2, "message": problem});
        }
        self.spans.push(span);
    }

    /// The agent span (`invoke_agent`), followed by its calls and tool calls.
    fn agent(&mut self, tree: &ConversationTree, parent: Option<&str>) {
        let opened = &tree.opened;
        let (row, used) = (&opened.listed.row, &opened.listed.used);
        let id = hashed_id(&[&row.id, "agent"], 16);
        let mut attributes = vec![
            attribute(name::OPERATION, "invoke_agent"),
            attribute(name::PROVIDER, otlp::provider_name(&row.provider)),
            attribute("gen_ai.agent.name", row.agent.as_str()),
            attribute("gen_ai.agent.version", opened.version.as_str()),
            attribute("gen_ai.conversation.id", row.id.as_str()),
            attribute(name::RESPONSE_MODEL, row.model.as_str()),
            attribute("interflow.cost_usd", used.cost),
            attribute("interflow.turns", row.turns),
            attribute("interflow.title", row.title.as_str()),
            attribute("server.address", row.host.as_str()),
        ];
        if let Some(note) = opened.listed.note(None) {
            attributes.push(attribute("interflow.tags", note.tags.join(",")));
            attributes.push(attribute("interflow.comment", note.comment.as_deref().unwrap_or_default()));
        }
        attributes.extend(tokens([used.input, used.output, used.cache_read, used.cache_write, used.reasoning]));
        let title = format!("invoke_agent {}", row.agent);
        // Kind 1 is an internal span.
        self.span(&id, parent, (title, 1), (row.started.micros(), row.updated.micros()), attributes, None);
        for exchange in &opened.thread.exchanges {
            self.exchange(tree, exchange, &id);
        }
        for turn in &opened.thread.turns {
            for item in &turn.items {
                self.tool(tree, turn, item, &id);
            }
        }
        tree.other_agents().into_iter().for_each(|child| self.agent(child, Some(&id)));
    }

    /// The span of an LLM call (`chat`), with its messages.
    fn exchange(&mut self, tree: &ConversationTree, e: &CallView, agent: &str) {
        let row = &tree.opened.listed.row;
        let mut all = vec![
            attribute(name::OPERATION, "chat"),
            attribute(name::PROVIDER, otlp::provider_name(&row.provider)),
            attribute("gen_ai.conversation.id", row.id.as_str()),
            attribute(name::REQUEST_MODEL, e.model.as_str()),
            attribute(name::RESPONSE_MODEL, e.model.as_str()),
            attribute("server.address", row.host.as_str()),
            attribute("interflow.flow", e.flow.as_str()),
            attribute("interflow.turn", e.facts.turn),
            attribute("interflow.cache_missed", e.missed),
        ];
        if let Some(u) = &e.usage {
            all.extend(tokens([u.input, u.output, u.cache_read, u.cache_write, u.reasoning]));
        }
        all.extend(e.cost.map(|c| attribute("interflow.cost_usd", c)));
        all.extend(e.speed.map(|s| attribute("interflow.tokens_per_second", s)));
        all.extend(e.facts.first_byte.map(|us| attribute(name::FIRST_CHUNK, us as f64 / 1e6)));
        all.extend(e.facts.stop.as_deref().map(|stop| attribute("gen_ai.response.finish_reasons", [stop])));
        all.extend(e.facts.error.as_deref().map(|error| {
            // A stream that breaks off has the status of a success.
            let status = Some(e.facts.status).filter(|status| *status >= 400).map(|status| status.to_string());
            let kind = || error.split(": ").next().unwrap_or_default().to_owned();
            attribute("error.type", status.unwrap_or_else(kind))
        }));
        let (asked, said) = messages(tree, e);
        all.push(attribute("gen_ai.input.messages", asked.to_string()));
        all.push(attribute("gen_ai.output.messages", said.to_string()));
        let id = hashed_id(&[&row.id, &e.flow, &e.part.to_string()], 16);
        // Kind 3 is a client span.
        let span = (format!("chat {}", e.model), 3);
        self.span(&id, Some(agent), span, (e.started, e.started + e.facts.duration), all, e.facts.error.as_deref());
    }

    /// The span of a tool call (`execute_tool`), with the sub-agent that it started below it.
    fn tool(&mut self, tree: &ConversationTree, turn: &ThreadTurn, item: &ThreadItem, agent: &str) {
        let ItemKind::Tool { id: call, name: tool, input, result, child, .. } = &item.what else { return };
        let row = &tree.opened.listed.row;
        // By its place, because not all calls have an id (Gemini).
        let id = hashed_id(&[&row.id, "tool", &format!("{:032x}", item.key.0)], 16);
        let mut all = vec![
            attribute(name::OPERATION, "execute_tool"),
            attribute("gen_ai.tool.name", tool.as_str()),
            attribute("gen_ai.tool.call.id", call.as_str()),
            attribute("gen_ai.tool.call.arguments", input.to_string()),
            attribute("gen_ai.conversation.id", row.id.as_str()),
            attribute("interflow.turn", turn.number),
        ];
        all.extend(result.as_ref().map(|r| attribute("gen_ai.tool.call.result", content_text(&r.content))));
        let failed = result.as_ref().is_some_and(|r| r.is_error);
        let end = result.as_ref().map_or(item.at, |r| r.at);
        let problem = failed.then_some("the tool failed");
        self.span(&id, Some(agent), (format!("execute_tool {tool}"), 1), (item.at, end), all, problem);
        if let Some(child) = child.as_ref().and_then(|c| tree.children.get(c)) {
            self.agent(child, Some(&id));
        }
    }
}

/// The new messages of a request and the response's: `{role, parts}` by the conventions.
fn messages(tree: &ConversationTree, e: &CallView) -> (Value, Value) {
    let thread = &tree.opened.thread;
    let Some(at) = thread.exchanges.iter().position(|x| x.flow == e.flow && x.part == e.part) else {
        return (json!([]), json!([]));
    };
    let items: Vec<&ThreadItem> = thread.turns.iter().flat_map(|t| &t.items).collect();
    let Some(first) = items.iter().position(|i| i.exchange == Some(at)) else { return (json!([]), json!([])) };
    // Where the reply before it begins, all of whose tool calls have their results in this request.
    let is_said = |i: &ThreadItem| i.role == MessageRole::Assistant;
    let last = items[..first].iter().rposition(|i| is_said(i)).unwrap_or_default();
    let is_begin = |n: &usize| items[*n].exchange.is_some() || *n == 0 || !is_said(items[*n - 1]);
    let before = (0..=last).rev().find(is_begin).unwrap_or_default();
    let end =
        items[first..].iter().position(|i| i.role != MessageRole::Assistant || i.exchange.is_some_and(|x| x != at));
    let end = end.map_or(items.len(), |n| first + n);
    // The results of earlier tool calls are what this request added.
    let results: Vec<Value> = items[before..first].iter().filter_map(|i| tool_result(i)).collect();
    // The result of a call that is not known is a user's item.
    let is_prompt = |i: &ThreadItem| !is_said(i) && !matches!(i.what, ItemKind::Tool { .. });
    let prompts: Vec<Value> =
        items[before..first].iter().filter(|i| is_prompt(i)).filter_map(|i| message_part(i)).collect();
    let replies: Vec<Value> = items[first..end].iter().filter_map(|i| message_part(i)).collect();
    let finish = e.facts.stop.clone().unwrap_or_default();
    let input = [("tool", results), ("user", prompts)].into_iter().filter(|(_, parts)| !parts.is_empty());
    let input: Value = input.map(|(role, parts)| json!({"role": role, "parts": parts})).collect();
    (input, json!([{"role": "assistant", "parts": replies, "finish_reason": finish}]))
}

fn message_part(item: &ThreadItem) -> Option<Value> {
    Some(match &item.what {
        ItemKind::Text { text } | ItemKind::Context { text } => json!({"type": "text", "content": text}),
        ItemKind::Thinking { text } if text.is_empty() => return None,
        ItemKind::Thinking { text } => json!({"type": "reasoning", "content": text}),
        ItemKind::Tool { id, name, input, .. } => {
            json!({"type": "tool_call", "id": id, "name": name, "arguments": input})
        }
        ItemKind::Image(r) => json!({"type": "uri", "modality": "image", "mime_type": r.media_type, "uri": r.url}),
        ItemKind::Document(r) => {
            json!({"type": "uri", "modality": "document", "mime_type": r.media_type, "uri": r.url})
        }
        ItemKind::Error { name, message } => json!({"type": "error", "name": name, "content": message}),
        ItemKind::Other { name, value } => json!({"type": name, "content": value}),
    })
}

fn tool_result(item: &ThreadItem) -> Option<Value> {
    let ItemKind::Tool { id, result: Some(result), .. } = &item.what else { return None };
    let blocks: &[ContentBlock] = &result.content;
    Some(json!({"type": "tool_call_response", "id": id, "response": content_text(blocks)}))
}
