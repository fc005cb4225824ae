//! The LLM room's findings as rows of the store, and back.

use interflow_llm::Usage;
use interflow_llm::conversation::{Body, Conversation, Exchange, Found, Kept, Node};
use interflow_record::{ConversationRow, ExchangeRow, Findings, NodeRow, Store, StoreError, Used};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What an exchange costs in US dollars: provider, model, tokens.
pub type Pricing = dyn Fn(&str, &str, &Usage) -> Option<f64> + Send + Sync;

/// Adds what an exchange changed; of a conversation only its last state counts.
pub fn add(findings: &mut Findings, found: Found, pricing: &Pricing) {
    for conversation in found.conversations {
        let row = conversation_row(conversation);
        match findings.conversations.iter_mut().find(|c| c.id == row.id) {
            Some(old) => *old = row,
            None => findings.conversations.push(row),
        }
    }
    findings.nodes.extend(found.nodes.into_iter().map(node_row));
    findings.exchanges.extend(found.exchange.map(|e| exchange_row(e, pricing)));
}

/// What was kept of a session, for an assembler that does not have it in memory.
pub fn session(store: &dyn Store, key: &str, most: usize) -> Result<Vec<Kept>, StoreError> {
    let mut kept = Vec::new();
    for row in store.session(key, most)? {
        let nodes = store.nodes(&row.id, false)?;
        let nodes = nodes.into_iter().map(|n| (n.key, n.parent, read(&n.facts))).collect();
        kept.push((conversation(row), nodes));
    }
    Ok(kept)
}

fn conversation_row(c: Conversation) -> ConversationRow {
    ConversationRow {
        facts: text(&c.facts),
        id: c.id,
        session: c.session,
        parent: c.parent,
        started: c.started,
        updated: c.updated,
        agent: c.agent,
        model: c.model,
        provider: c.provider,
        host: c.host,
        user: c.user,
        title: c.title,
        turns: c.turns,
    }
}

pub fn conversation(row: ConversationRow) -> Conversation {
    Conversation {
        facts: read(&row.facts),
        id: row.id,
        session: row.session,
        parent: row.parent,
        started: row.started,
        updated: row.updated,
        agent: row.agent,
        model: row.model,
        provider: row.provider,
        host: row.host,
        user: row.user,
        title: row.title,
        turns: row.turns,
    }
}

fn node_row(n: Node) -> NodeRow {
    NodeRow {
        conversation: n.conversation,
        key: n.key,
        parent: n.parent,
        at: n.at,
        facts: text(&n.facts),
        body: text(&n.body),
    }
}

/// A message; `None` when its body is of a form that this build does not know.
pub fn node(row: NodeRow) -> Option<Node> {
    let body: Body = serde_json::from_str(&row.body).ok()?;
    Some(Node {
        conversation: row.conversation,
        key: row.key,
        parent: row.parent,
        at: row.at,
        facts: read(&row.facts),
        body,
    })
}

fn exchange_row(e: Exchange, pricing: &Pricing) -> ExchangeRow {
    let usage = e.usage.unwrap_or_default();
    let cost = e.cost.or_else(|| pricing(&e.provider, &e.model, &e.usage?));
    let used = Used {
        exchanges: 1,
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        reasoning: usage.reasoning,
        cost: cost.unwrap_or_default(),
        unpriced: u64::from(cost.is_none()),
    };
    ExchangeRow {
        flow: e.flow,
        part: e.part,
        conversation: e.conversation,
        started: e.started,
        leaf: e.leaf,
        agent: e.agent,
        model: e.model,
        provider: e.provider,
        used,
        facts: text(&e.facts),
    }
}

pub fn exchange(row: ExchangeRow) -> Exchange {
    let facts: interflow_llm::conversation::ExchangeFacts = read(&row.facts);
    let used = row.used;
    let usage = Usage {
        input: used.input,
        output: used.output,
        cache_read: used.cache_read,
        cache_write: used.cache_write,
        reasoning: used.reasoning,
    };
    Exchange {
        flow: row.flow,
        part: row.part,
        conversation: row.conversation,
        started: row.started,
        leaf: row.leaf,
        agent: row.agent,
        model: row.model,
        provider: row.provider,
        usage: facts.counted.then_some(usage),
        cost: (used.unpriced == 0).then_some(used.cost),
        facts,
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("facts have names for keys and no failing fields")
}

/// Facts that cannot be read are those of another build: the conversation is shown without them.
fn read<T: DeserializeOwned + Default>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_default()
}
