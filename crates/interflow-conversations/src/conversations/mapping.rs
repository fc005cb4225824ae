//! Converts between the assembler's types and rows of the store.

use crate::assembly::{CallPurpose, CallRecord, Conversation, MessageNode, SessionUpdate, StoredConversation};
use interflow_store::{
    ConversationRow, ConversationUpdate, ExchangeRow, FlowStore, MessageNodeRow, Result, TokenUsage,
};
use interflow_types::{CallUsage, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Cost of a call in US dollars, by provider, model, usage and time.
pub type CallPricing = dyn Fn(&str, &str, &CallUsage, Timestamp) -> Option<f64> + Send + Sync;

pub fn conversation_row(c: Conversation) -> ConversationRow {
    ConversationRow { facts: to_json_text(&c.facts), ..c.row }
}

/// Adds a call's messages and the call.
pub fn add_findings(findings: &mut ConversationUpdate, found: SessionUpdate, pricing: &CallPricing) {
    findings.nodes.extend(found.nodes.into_iter().map(node_row));
    findings.exchanges.push(call_row(found.exchange, pricing));
}

/// Loads the stored state of a session, for an assembler that does not have it in memory.
pub fn stored_session(store: &dyn FlowStore, key: &str, most: usize) -> Result<Vec<StoredConversation>> {
    let mut conversations = Vec::new();
    for row in store.session(key, most)? {
        let nodes = store.nodes(&row.id, false)?;
        let nodes = nodes.into_iter().map(|n| (n.key, n.parent, from_json_text(&n.facts))).collect();
        conversations.push((conversation(row), nodes));
    }
    Ok(conversations)
}

pub fn conversation(mut row: ConversationRow) -> Conversation {
    let facts = from_json_text(&std::mem::take(&mut row.facts));
    Conversation { row, facts }
}

fn node_row(n: MessageNode) -> MessageNodeRow {
    let (facts, body) = (to_json_text(&n.facts), to_json_text(&n.body));
    n.with(facts, body)
}

/// A message; `None` if this build does not know the body's format.
pub fn node(row: MessageNodeRow) -> Option<MessageNode> {
    let body = serde_json::from_str(&row.body).ok()?;
    let facts = from_json_text(&row.facts);
    Some(row.with(facts, body))
}

fn call_row(e: CallRecord, pricing: &CallPricing) -> ExchangeRow {
    // Calls that providers do not charge for.
    let is_free = e.facts.status >= 400 || e.facts.purpose == CallPurpose::Probe;
    let price = || match &e.usage {
        Some(usage) => pricing(&e.row.provider, &e.row.model, usage, e.row.started),
        None => is_free.then_some(0.0),
    };
    // The provider's own figure is more exact than a price list.
    let cost = e.cost.or_else(price);
    let usage = e.usage.unwrap_or_default();
    let used = TokenUsage {
        exchanges: 1,
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        reasoning: usage.reasoning,
        cost: cost.unwrap_or_default(),
        unpriced: u64::from(cost.is_none()),
    };
    ExchangeRow { used, facts: to_json_text(&e.facts), ..e.row }
}

pub fn call_record(mut row: ExchangeRow) -> CallRecord {
    let facts: crate::assembly::CallFacts = from_json_text(&std::mem::take(&mut row.facts));
    let used = row.used;
    let usage = CallUsage {
        input: used.input,
        output: used.output,
        cache_read: used.cache_read,
        cache_write: used.cache_write,
        reasoning: used.reasoning,
        ..CallUsage::default()
    };
    CallRecord {
        // Zero tokens and unknown tokens are stored alike; the flag tells them apart.
        usage: facts.counted.then_some(usage),
        cost: (used.unpriced == 0).then_some(used.cost),
        facts,
        row,
    }
}

fn to_json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("facts have names for keys and no failing fields")
}

/// Records that cannot be parsed were written by another build: the conversation is presented without them.
fn from_json_text<T: DeserializeOwned + Default>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_default()
}
