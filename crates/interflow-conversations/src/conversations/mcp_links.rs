//! Links the tool calls of a conversation to the flows of the MCP gateway that carried them.
//!
//! Nothing that both requests have in common names the call, so it is recognized by what was recorded of it: the client, the
//! tool, the arguments, and the time between the model's reply and the result. A call that more than one flow may have
//! carried, or a flow that may have carried more than one call, is linked to none.

use std::collections::HashSet;

use interflow_query::{Expr, Key, Query, TermTest, TextPattern, TimePoint, TimeTest};
use interflow_store::{ConversationRow, FlowRecord, FlowStore, ListOptions, ListOrder, Result, StoreError};
use interflow_types::{Direction, FlowId};
use serde_json::Value;

use crate::assembly::view::{CallView, ItemKind, ThreadItem, ThreadView};

/// The tag of every request to the MCP gateway, and the beginning of that with the tool's name.
const MCP_TAG: &str = "mcp";
pub(super) const TOOL_TAG: &str = "mcp-tool:";
/// Flows of the MCP gateway that are compared with the calls of one conversation.
const MAX_FLOWS: usize = 2000;
/// Longer requests are not compared, in bytes: the gateway accepts 4 MiB by default.
const MAX_REQUEST: u64 = 4 << 20;
/// How long after the reply a call without a result may have been made, in microseconds.
pub(super) const PENDING: u64 = 3_600_000_000;

/// A tool call of the thread: where it is, and when it can have been made.
struct ModelCall {
    turn: usize,
    item: usize,
    from: u64,
    until: u64,
}

/// A call that the MCP gateway carried.
struct McpCall {
    flow: FlowId,
    at: u64,
    /// The name that the client sent, and the one at the server.
    names: [String; 2],
    arguments: Value,
}

/// Sets the flows of the tool calls on the thread's path.
pub(super) fn link_mcp_flows(store: &dyn FlowStore, row: &ConversationRow, thread: &mut ThreadView) -> Result<()> {
    let calls = model_calls(thread);
    let (Some(from), Some(until)) = (calls.iter().map(|c| c.from).min(), calls.iter().map(|c| c.until).max()) else {
        return Ok(());
    };
    let carried = mcp_calls(store, &row.user, thread, from, until)?;
    if carried.is_empty() {
        return Ok(());
    }
    // First those with equal arguments: placeholders differ between the two gateways, and hide what else differs.
    for compare in [<Value as PartialEq>::eq as fn(&Value, &Value) -> bool, equal_but_for_placeholders] {
        link(thread, &calls, &carried, compare);
    }
    Ok(())
}

fn model_calls(thread: &ThreadView) -> Vec<ModelCall> {
    let mut calls = Vec::new();
    for (turn, items) in thread.turns.iter().enumerate().map(|(i, turn)| (i, &turn.items)) {
        for (i, item) in items.iter().enumerate() {
            let ItemKind::Tool { input, result, .. } = &item.what else { continue };
            // Only the result is known.
            if input.is_null() {
                continue;
            }
            // Parts of a reply are dated with its end, but a client may act on a call while the reply goes on.
            let of_reply = |call: &&CallView| call.started.saturating_add(call.facts.duration) == item.at;
            let from = thread.exchanges.iter().filter(of_reply).map(|call| call.started).min().unwrap_or(item.at);
            let until = result.as_ref().map_or(item.at.saturating_add(PENDING), |result| result.at);
            calls.push(ModelCall { turn, item: i, from, until });
        }
    }
    calls
}

/// What the MCP gateway carried between two times, for the client of the conversation.
fn mcp_calls(store: &dyn FlowStore, user: &str, thread: &ThreadView, from: u64, until: u64) -> Result<Vec<McpCall>> {
    let [first, last] = [from, until].map(|start| TimePoint::At { start, lasts: 1 });
    let query = Query::from(Expr::and([
        Expr::term(Key::Tag, TermTest::Text(TextPattern::Exact(MCP_TAG.to_owned()))),
        Expr::term(Key::Time, TermTest::Time(TimeTest::Range(first, last))),
    ]));
    let options = ListOptions { query, order: ListOrder::Oldest, limit: MAX_FLOWS, ..ListOptions::default() };
    let mut flows = store.list(&options)?;
    flows.retain(|flow| flow.tags.iter().any(|tag| tag.starts_with(TOOL_TAG)));
    if flows.is_empty() {
        return Ok(Vec::new());
    }
    let peer = peer_of(store, thread)?;
    let mut calls = Vec::new();
    for flow in flows {
        // The same key or user; without one, the same address.
        let is_same = match flow.user.as_deref() {
            Some(own) => own == user,
            None => user.is_empty() && flow.client.peer.map(|p| p.ip()) == peer,
        };
        if is_same {
            calls.extend(mcp_call(store, &flow)?);
        }
    }
    Ok(calls)
}

/// The client's address, by the conversation's first call that is still recorded.
fn peer_of(store: &dyn FlowStore, thread: &ThreadView) -> Result<Option<std::net::IpAddr>> {
    for call in &thread.exchanges {
        let Ok(id) = call.flow.parse() else { continue };
        match store.get(id) {
            Ok(row) => return Ok(row.client.peer.map(|p| p.ip())),
            Err(StoreError::NotFound(_)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

fn mcp_call(store: &dyn FlowStore, flow: &FlowRecord) -> Result<Option<McpCall>> {
    let Some(kept) = flow.body(Direction::Request).map(|b| b.kept).filter(|kept| *kept <= MAX_REQUEST) else {
        return Ok(None);
    };
    let body = store.body(flow.id, Direction::Request, 0..kept)?.read_all(kept as usize)?;
    let Ok(mut message) = interflow_codec::json::parse::<Value>(&body) else { return Ok(None) };
    let Some(sent) = message["params"]["name"].as_str().filter(|_| message["method"] == "tools/call") else {
        return Ok(None);
    };
    let tool = flow.tags.iter().find_map(|tag| tag.strip_prefix(TOOL_TAG)).unwrap_or(sent);
    let names = [sent, tool].map(plain_name);
    // No arguments are the same as none.
    let arguments = Some(message["params"]["arguments"].take()).filter(|arguments| !arguments.is_null());
    let arguments = arguments.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    Ok(Some(McpCall { flow: flow.id, at: flow.started.micros(), names, arguments }))
}

/// Links calls and flows that have no other choice.
fn link(thread: &mut ThreadView, calls: &[ModelCall], carried: &[McpCall], compare: fn(&Value, &Value) -> bool) {
    let items = thread.turns.iter().flat_map(|turn| &turn.items);
    let carrier = |item: &ThreadItem| if let ItemKind::Tool { flow, .. } = &item.what { flow.clone() } else { None };
    let linked: HashSet<String> = items.filter_map(carrier).collect();
    let open: Vec<&McpCall> = carried.iter().filter(|call| !linked.contains(&call.flow.to_string())).collect();
    let mut choices = Vec::new();
    let mut uses = vec![0_u32; open.len()];
    for call in calls {
        let ItemKind::Tool { name, input, flow: None, .. } = &thread.turns[call.turn].items[call.item].what else {
            continue;
        };
        let fits = |flow: &McpCall| {
            (call.from..=call.until).contains(&flow.at) && is_named(name, flow) && compare(input, &flow.arguments)
        };
        let fitting: Vec<usize> = (0..open.len()).filter(|i| fits(open[*i])).collect();
        fitting.iter().for_each(|i| uses[*i] += 1);
        if let [only] = fitting[..] {
            choices.push((call, only));
        }
    }
    for (call, only) in choices.into_iter().filter(|(_, only)| uses[*only] == 1) {
        if let ItemKind::Tool { flow, .. } = &mut thread.turns[call.turn].items[call.item].what {
            *flow = Some(open[only].flow.to_string());
        }
    }
}

/// Clients show models the name with a prefix, such as `mcp__SERVER__`, and replace characters that providers do not
/// allow.
fn is_named(name: &str, call: &McpCall) -> bool {
    let name = plain_name(name);
    call.names.iter().any(|known| name.strip_suffix(known.as_str()).is_some_and(|p| p.is_empty() || p.ends_with('_')))
}

/// A name with one underscore for all that is neither a letter nor a digit.
fn plain_name(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_alphanumeric() {
            true => plain.extend(c.to_lowercase()),
            false if plain.ends_with('_') => {}
            false => plain.push('_'),
        }
    }
    plain
}

/// Whether two values are the same if placeholders count by their kind: the codes of the LLM gateway and of the MCP gateway
/// have different keys.
fn equal_but_for_placeholders(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a == b || without_codes(a) == without_codes(b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_but_for_placeholders(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal_but_for_placeholders(a, b)))
        }
        (a, b) => a == b,
    }
}

/// A text without the codes of its placeholders, such as `EMAIL_xdh7q9f3`.
fn without_codes(text: &str) -> String {
    const CODE: usize = 8;
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_code =
            |code: &str| code.len() == CODE && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        match bare.rsplit_once('_') {
            Some((label, code)) if is_label(label) && is_code(code) => {
                out.extend([label, "_", &word[bare.len()..]]);
            }
            _ => out.push_str(word),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_that_clients_show_are_recognized() {
        let call = |sent: &str, tool: &str| McpCall {
            flow: FlowId::from_u128(1),
            at: 0,
            names: [sent, tool].map(plain_name),
            arguments: Value::Null,
        };
        let call = call("files__read.text", "read.text");
        for name in ["files__read.text", "mcp__gateway__files__read_text", "gateway_files_read_text", "read.text"] {
            assert!(is_named(name, &call), "{name}");
        }
        for name in ["read", "text", "spread.text", "files__read.text2"] {
            assert!(!is_named(name, &call), "{name}");
        }
    }

    #[test]
    fn placeholders_are_equal_by_their_kind() {
        let same = |a: Value, b: Value| equal_but_for_placeholders(&a, &b);
        assert!(same(json!({"to": ["EMAIL_xdh7q9f3, hi"]}), json!({"to": ["EMAIL_aaaaaaa1, hi"]})));
        assert!(!same(json!({"to": "EMAIL_xdh7q9f3"}), json!({"to": "PHONE_xdh7q9f3"})));
        assert!(!same(json!({"to": "user_xdh7q9f3"}), json!({"to": "user_xdh7q9f4"})));
        assert!(!same(json!({"to": 1}), json!({"to": 1, "cc": 2})));
    }
}
