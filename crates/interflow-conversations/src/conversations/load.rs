//! Loads a stored conversation as a view.

use crate::assembly::diff::{DiffContext, RequestDiff, diff_requests};
use crate::assembly::view::{CallView, ChildThread, ItemKind, ThreadView, build_thread, call_views};
use crate::assembly::{CallRecord, ConversationFacts, MessageHash, SubagentLink};
use interflow_llm::message::ModelRequest;
use interflow_query::Query;
use interflow_store::{ConversationOptions, ConversationSummary, FlowKind, FlowParts, FlowStore, Result, StoreError};
use interflow_types::schema::JsonSchema;
use interflow_types::{FlowId, Timestamp};
use serde::Serialize;

use super::from_recording::{self, WebSocketCallReader};
use super::mapping;
use super::mcp_links::{PENDING, TOOL_TAG, link_mcp_flows};

/// Bound on listed sub-agents of one conversation. Others exist, but are not shown in it.
const MAX_CHILDREN: usize = 1000;
/// Conversations that are searched for the call of one flow.
const MAX_CONVERSATIONS: usize = 50;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConversationView {
    #[serde(flatten)]
    pub listed: ConversationSummary,
    pub version: String,
    pub link: Option<SubagentLink>,
    pub children: Vec<ChildConversation>,
    pub thread: ThreadView,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChildConversation {
    #[serde(flatten)]
    pub listed: ConversationSummary,
    pub link: Option<SubagentLink>,
}

/// Loads a conversation along the path to a message, by default the current one; `None` if it does not exist.
///
/// # Errors
/// The store failed.
pub fn load_conversation(
    store: &dyn FlowStore,
    id: &str,
    leaf: Option<MessageHash>,
) -> Result<Option<ConversationView>> {
    let Some(listed) = store.conversation(id)? else { return Ok(None) };
    let conversation = mapping::conversation(listed.row.clone());
    let nodes = store.nodes(id, true)?.into_iter().filter_map(mapping::node).collect();
    let exchanges: Vec<CallRecord> = store.exchanges(id)?.into_iter().map(mapping::call_record).collect();
    let options =
        ConversationOptions { parent: Some(id.to_owned()), limit: MAX_CHILDREN, ..ConversationOptions::default() };
    let children: Vec<ChildConversation> = store
        .conversations(&options)?
        .into_iter()
        .map(|listed| ChildConversation { link: mapping::conversation(listed.row.clone()).facts.link, listed })
        .collect();
    let linked: Vec<ChildThread<'_>> =
        children.iter().map(|c| ChildThread { id: &c.listed.row.id, link: c.link.as_ref() }).collect();
    let mut thread = build_thread(&conversation, nodes, exchanges, &linked, leaf);
    link_mcp_flows(store, &listed.row, &mut thread)?;
    let ConversationFacts { version, link, .. } = conversation.facts;
    Ok(Some(ConversationView { listed, version, link, children, thread }))
}

/// The tool call that a flow carried.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CarriedToolCall {
    pub conversation: String,
    pub agent: String,
    pub title: String,
    /// The key of the message with the call.
    pub message: MessageHash,
    /// The tool as the model named it.
    pub tool: String,
}

/// The call that a flow of the MCP gateway carried, if one conversation has it.
///
/// # Errors
/// The store failed, or has no such flow.
pub fn call_of_flow(store: &dyn FlowStore, flow: FlowId) -> Result<Option<CarriedToolCall>> {
    let row = store.get(flow)?;
    if !row.tags.iter().any(|tag| tag.starts_with(TOOL_TAG)) {
        return Ok(None);
    }
    let at = row.started.micros();
    let during = Some((Timestamp::from_micros(at.saturating_sub(PENDING)), Timestamp::from_micros(at + 1)));
    let options = ConversationOptions { all: true, during, limit: MAX_CONVERSATIONS, ..ConversationOptions::default() };
    let mut carried = None;
    for summary in store.conversations(&options)? {
        if summary.row.user != row.user.as_deref().unwrap_or_default() {
            continue;
        }
        let Some(view) = load_conversation(store, &summary.row.id, None)? else { continue };
        if let Some(call) = call_in(&view, &flow.to_string()) {
            // Two conversations with such a call: none is named.
            if carried.is_some() {
                return Ok(None);
            }
            carried = Some(call);
        }
    }
    Ok(carried)
}

fn call_in(view: &ConversationView, flow: &str) -> Option<CarriedToolCall> {
    let items = view.thread.turns.iter().flat_map(|turn| &turn.items);
    let row = &view.listed.row;
    items.into_iter().find_map(|item| match &item.what {
        ItemKind::Tool { name, flow: Some(id), .. } if id == flow => Some(CarriedToolCall {
            conversation: row.id.clone(),
            agent: row.agent.clone(),
            title: row.title.clone(),
            message: item.key,
            tool: name.clone(),
        }),
        _ => None,
    })
}

/// Resolves a conversation's name: an id, an id prefix, `last`, or `last-2`.
///
/// # Errors
/// The store failed.
pub fn find_conversation(store: &dyn FlowStore, word: &str) -> Result<Option<String>> {
    if let Some(found) = store.conversation(word)? {
        return Ok(Some(found.row.id));
    }
    let back = match word.strip_prefix("last") {
        Some("") => Some(0),
        Some(rest) => rest.strip_prefix('-').and_then(|n| n.parse::<usize>().ok()),
        None => None,
    };
    // A bound, because as many rows are read as the number says.
    if let Some(back) = back.filter(|b| *b < 10_000) {
        let options = ConversationOptions { limit: back + 1, ..ConversationOptions::default() };
        return Ok(store.conversations(&options)?.into_iter().nth(back).map(|l| l.row.id));
    }
    // Shorter prefixes match too much.
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let query = Query::parse(&format!("id:{}", word.to_ascii_lowercase())).unwrap_or_else(|_| Query::all());
    let options = ConversationOptions { query, all: true, limit: 2, ..ConversationOptions::default() };
    let mut matching = store.conversations(&options)?.into_iter();
    // Two matches mean that the prefix is ambiguous.
    Ok(match (matching.next(), matching.next()) {
        (Some(one), None) => Some(one.row.id),
        _ => None,
    })
}

/// The difference between a call's request and the previous one, which explains its cache usage; `None` if there is
/// no previous one, or one of the two was not fully recorded.
///
/// # Errors
/// The store failed.
pub fn request_diff(store: &dyn FlowStore, id: &str, flow: FlowId, part: u64) -> Result<Option<RequestDiff>> {
    let calls = call_views(store.exchanges(id)?.into_iter().map(mapping::call_record).collect());
    let flow = flow.to_string();
    let Some(at) = calls.iter().position(|call| call.flow == flow && call.part == part) else { return Ok(None) };
    // Side calls have prompts of their own.
    let before = calls[..at].iter().rev().find(|call| !call.facts.purpose.is_side_call());
    before.map_or(Ok(None), |before| diff_between(store, before, &calls[at]))
}

fn diff_between(store: &dyn FlowStore, before: &CallView, now: &CallView) -> Result<Option<RequestDiff>> {
    let read = |call: &CallView| call.flow.parse().map_or(Ok(None), |flow| read_request(store, flow, call.part));
    let (Some(old), Some(new)) = (read(before)?, read(now)?) else { return Ok(None) };
    let pause = now.started.saturating_sub(before.started.saturating_add(before.facts.duration));
    let around = DiffContext { before: before.usage, after: now.usage, pause };
    Ok(Some(diff_requests(&old, &new, &around)))
}

/// Each call of a conversation with the difference between its request and the previous one, in order. Side calls, such
/// as for a title, have no predecessor.
pub fn request_diffs<'a>(
    store: &'a dyn FlowStore,
    opened: &'a ConversationView,
) -> impl Iterator<Item = Result<(&'a CallView, RequestDiff)>> {
    let calls = opened.thread.exchanges.iter().filter(|call| !call.facts.purpose.is_side_call());
    let pairs = calls.clone().zip(calls.skip(1));
    pairs.filter_map(|(before, call)| Some(diff_between(store, before, call).transpose()?.map(|diff| (call, diff))))
}

pub(super) fn read_request(store: &dyn FlowStore, flow: FlowId, part: u64) -> Result<Option<ModelRequest>> {
    let flow = match store.get_loaded(flow, FlowParts::Bodies) {
        Ok(flow) => flow,
        Err(StoreError::NotFound(_)) => return Ok(None),
        Err(e) => return Err(e),
    };
    match flow.row.kind {
        FlowKind::WebSocket => WebSocketCallReader::read_request(store, &flow.row, part),
        _ => from_recording::read_request(store, &flow),
    }
}
