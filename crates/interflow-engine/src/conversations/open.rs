//! A kept conversation, laid out for reading.

use interflow_flow::FlowId;
use interflow_llm::conversation::compare::{Around, Changes, compare};
use interflow_llm::conversation::view::{Child, Thread, thread};
use interflow_llm::conversation::{ConversationFacts, Exchange, Key, Link};
use interflow_llm::message::Request;
use interflow_query::Query;
use interflow_record::{ConversationOptions, FlowKind, Listed, Store, StoreError};
use serde::Serialize;

use super::read::{self, Socket};
use super::rows;

/// Sub-agents of one conversation that are shown.
const MOST_CHILDREN: usize = 1000;

/// A conversation, laid out.
#[derive(Clone, Debug, Serialize)]
pub struct Opened {
    /// What a list says of it.
    #[serde(flatten)]
    pub listed: Listed,
    /// The agent's version.
    pub version: String,
    /// The parent's call that began it.
    pub link: Option<Link>,
    /// Its sub-agents.
    pub children: Vec<ChildOf>,
    /// Turns, exchanges, branches.
    pub thread: Thread,
}

/// A sub-agent.
#[derive(Clone, Debug, Serialize)]
pub struct ChildOf {
    /// What a list says of it.
    #[serde(flatten)]
    pub listed: Listed,
    /// The call that began it.
    pub link: Option<Link>,
}

/// Opens a conversation along the way to a message, the current one when none is given; `None` when there is no such
/// conversation.
///
/// # Errors
/// The store refused.
pub fn open(store: &dyn Store, id: &str, leaf: Option<Key>) -> Result<Option<Opened>, StoreError> {
    let Some(listed) = store.conversation(id)? else { return Ok(None) };
    let conversation = rows::conversation(listed.row.clone());
    let nodes = store.nodes(id, true)?.into_iter().filter_map(rows::node).collect();
    let exchanges: Vec<Exchange> = store.exchanges(id)?.into_iter().map(rows::exchange).collect();
    let options =
        ConversationOptions { parent: Some(id.to_owned()), limit: MOST_CHILDREN, ..ConversationOptions::default() };
    let children: Vec<ChildOf> = store
        .conversations(&options)?
        .into_iter()
        .map(|listed| ChildOf { link: rows::conversation(listed.row.clone()).facts.link, listed })
        .collect();
    let linked: Vec<Child<'_>> =
        children.iter().map(|c| Child { id: &c.listed.row.id, link: c.link.as_ref() }).collect();
    let thread = thread(&conversation, nodes, exchanges, &linked, leaf);
    let ConversationFacts { version, link, .. } = conversation.facts;
    Ok(Some(Opened { listed, version, link, children, thread }))
}

/// The conversation that a word names: its id, the beginning of its id, `last`, or `last-2`.
///
/// # Errors
/// The store refused.
pub fn find(store: &dyn Store, word: &str) -> Result<Option<String>, StoreError> {
    if let Some(found) = store.conversation(word)? {
        return Ok(Some(found.row.id));
    }
    let back = match word.strip_prefix("last") {
        Some("") => Some(0),
        Some(rest) => rest.strip_prefix('-').and_then(|n| n.parse::<usize>().ok()),
        None => None,
    };
    if let Some(back) = back.filter(|b| *b < 10_000) {
        let options = ConversationOptions { limit: back + 1, ..ConversationOptions::default() };
        return Ok(store.conversations(&options)?.into_iter().nth(back).map(|l| l.row.id));
    }
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let query = Query::parse(&format!("id:{}", word.to_ascii_lowercase())).unwrap_or_else(|_| Query::all());
    let options = ConversationOptions { query, all: true, limit: 2, ..ConversationOptions::default() };
    let mut found = store.conversations(&options)?.into_iter();
    Ok(match (found.next(), found.next()) {
        (Some(one), None) => Some(one.row.id),
        _ => None,
    })
}

/// What changed from the exchange before to this one, and why the cache gave what it gave; `None` when there is none
/// before, or one of the two is not recorded whole.
///
/// # Errors
/// The store refused.
pub fn changes(store: &dyn Store, id: &str, flow: FlowId, part: u64) -> Result<Option<Changes>, StoreError> {
    let exchanges: Vec<Exchange> = store.exchanges(id)?.into_iter().map(rows::exchange).collect();
    let Some(at) = exchanges.iter().position(|e| e.flow == flow && e.part == part) else { return Ok(None) };
    let before = exchanges[..at].iter().rev().find(|e| !e.facts.purpose.is_beside());
    let Some(before) = before else { return Ok(None) };
    let now = &exchanges[at];
    let (Some(old), Some(new)) = (request(store, before)?, request(store, now)?) else { return Ok(None) };
    let ended = before.started.micros().saturating_add(before.facts.duration);
    let around = Around { before: before.usage, after: now.usage, pause: now.started.micros().saturating_sub(ended) };
    Ok(Some(compare(&old, &new, &around)))
}

fn request(store: &dyn Store, exchange: &Exchange) -> Result<Option<Request>, StoreError> {
    let row = match store.get(exchange.flow) {
        Ok(row) => row,
        Err(StoreError::NotFound(_)) => return Ok(None),
        Err(e) => return Err(e),
    };
    match row.kind {
        FlowKind::WebSocket => Socket::request(store, &row, exchange.part),
        _ => read::request(store, &row),
    }
}
