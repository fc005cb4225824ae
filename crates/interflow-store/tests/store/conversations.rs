//! Conversations stored next to their flows.

use interflow_query::Query;
use interflow_store::{
    ConversationOptions, ConversationRow, ConversationStore, ConversationUpdate, ExchangeRow, FlowAnnotation,
    FlowStore, MessageNodeRow, SqliteStore, StoreError, TokenUsage,
};
use interflow_types::{FlowId, Timestamp};

use interflow_store::RecordConfig;

fn row(id: &str, updated: u64) -> ConversationRow {
    ConversationRow {
        id: id.into(),
        session: "s".into(),
        updated: Timestamp::from_micros(updated),
        agent: "claude-code".into(),
        model: "opus".into(),
        title: format!("about {id}"),
        turns: 1,
        facts: "{}".into(),
        ..ConversationRow::default()
    }
}

fn node(conversation: &str, key: u128, parent: Option<u128>, body: &str) -> MessageNodeRow {
    let at = Timestamp::from_micros(key as u64);
    MessageNodeRow { conversation: conversation.into(), key, parent, at, facts: "{}".into(), body: body.into() }
}

fn exchange(conversation: &str, flow: FlowId, leaf: u128) -> ExchangeRow {
    ExchangeRow {
        flow,
        part: 0,
        conversation: conversation.into(),
        started: Timestamp::from_micros(leaf as u64 * 1_000_000),
        leaf: Some(leaf),
        agent: "claude-code".into(),
        model: "opus".into(),
        provider: "anthropic".into(),
        used: TokenUsage { exchanges: 1, input: 100, output: 10, cost: 0.25, ..TokenUsage::default() },
        facts: "{}".into(),
    }
}

fn ids(store: &SqliteStore, query: &str, all: bool) -> Vec<String> {
    let options = ConversationOptions { query: Query::parse(query).unwrap(), all, ..ConversationOptions::default() };
    store.conversations(&options).unwrap().into_iter().map(|l| l.row.id).collect()
}

#[test]
fn conversations_round_trip_through_a_reopened_store() {
    let dir = tempfile::tempdir().unwrap();
    let flow = FlowId::from_u128(7);
    let long = "a long message, ".repeat(1000);
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    let found = ConversationUpdate {
        conversations: vec![row("a", 5)],
        nodes: vec![node("a", 1, None, "short"), node("a", 2, Some(1), &long)],
        exchanges: vec![exchange("a", flow, 2)],
        cursor: Some(flow),
    };
    store.save_update(found.clone()).unwrap();
    store.save_update(found.clone()).unwrap();
    drop(store);
    let store = SqliteStore::open_read(dir.path()).unwrap();
    let listed = store.conversation("a").unwrap().unwrap();
    assert_eq!((listed.row, listed.used.cost, listed.used.exchanges), (row("a", 5), 0.25, 1));
    assert_eq!(store.nodes("a", true).unwrap(), found.nodes);
    assert!(store.nodes("a", false).unwrap().iter().all(|n| n.body.is_empty()));
    assert_eq!(store.exchanges("a").unwrap(), found.exchanges);
    assert_eq!(store.exchanges_in(flow).unwrap(), found.exchanges);
    assert_eq!((store.cursor().unwrap(), store.session("s", 9).unwrap().len()), (Some(flow), 1));
    assert!(matches!(store.save_update(ConversationUpdate::default()), Err(StoreError::ReadOnly)));
}

#[test]
fn conversation_lists_are_newest_first_filtered_and_skip_folded_ones() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    let child = ConversationRow { parent: Some("b".into()), ..row("child", 9) };
    let beside = ConversationRow { turns: 0, ..row("beside", 8) };
    let other = ConversationRow { agent: "codex".into(), ..row("c", 3) };
    let mut conversations = vec![row("a", 1), row("b", 2), other, child, beside];
    conversations
        .extend((0..500).map(|i| ConversationRow { agent: "aider".into(), ..row(&format!("m{i:03}"), 100 + i) }));
    let flows = [exchange("b", FlowId::from_u128(1), 1), exchange("b", FlowId::from_u128(2), 2)];
    store
        .save_update(ConversationUpdate { conversations, exchanges: flows.to_vec(), ..ConversationUpdate::default() })
        .unwrap();
    assert_eq!(ids(&store, "-agent:aider", false), ["c", "b", "a"]);
    assert_eq!(ids(&store, "-agent:aider", true), ["child", "beside", "c", "b", "a"]);
    assert_eq!(ids(&store, "agent:claude-code tokens:>200", false), ["b"]);
    assert_eq!(ids(&store, "\"about c\"", false), ["c"]);
    let page = |after: Option<&str>, limit| {
        let options = ConversationOptions { after: after.map(Into::into), limit, ..ConversationOptions::default() };
        store.conversations(&options).unwrap().into_iter().map(|l| l.row.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2), ["m499", "m498"]);
    assert_eq!(page(Some("m498"), 1), ["m497"]);
    let options = ConversationOptions { parent: Some("b".into()), ..ConversationOptions::default() };
    assert_eq!(store.conversations(&options).unwrap()[0].row.id, "child");
    let totals = store.totals(Timestamp::from_micros(0), 10_000_000).unwrap();
    assert_eq!((totals.len(), totals[0].used.input, totals[0].used.exchanges), (1, 200, 2));
}

#[test]
fn deleting_flows_deletes_messages_that_only_they_contain() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    let recorder = store.recorder().unwrap();
    let flows: Vec<FlowId> = (1..=3).map(|_| super::exchange(&recorder, "api.test", "/", b"a", b"b").id).collect();
    store.flush().unwrap();
    // 1 - 2 is a response that was edited away; 1 - 3 - 4 continues.
    let nodes = vec![
        node("a", 1, None, "p"),
        node("a", 2, Some(1), "x"),
        node("a", 3, Some(1), "y"),
        node("a", 4, Some(3), "z"),
    ];
    let exchanges = vec![exchange("a", flows[0], 2), exchange("a", flows[1], 3), exchange("a", flows[2], 4)];
    store.save_update(ConversationUpdate { conversations: vec![row("a", 1)], nodes, exchanges, cursor: None }).unwrap();
    let keys = || store.nodes("a", false).unwrap().iter().map(|n| n.key).collect::<Vec<_>>();
    store.delete(&[flows[0]]).unwrap();
    assert_eq!(keys(), [1, 3, 4]);
    store.delete(&[flows[1]]).unwrap();
    assert_eq!(keys(), [1, 3, 4], "what a later exchange repeats stays with it");
    store.delete(&[flows[2]]).unwrap();
    assert!(keys().is_empty());
    assert_eq!(store.conversation("a").unwrap(), None);
}

#[test]
fn exchanges_whose_prompt_left_with_findings_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    let recorder = store.recorder().unwrap();
    let flows: Vec<FlowId> = (1..=4).map(|_| super::exchange(&recorder, "api.test", "/", b"a", b"b").id).collect();
    store.flush().unwrap();
    let tags = [&["redact:flagged", "found:ssn"][..], &["redact:flagged", "refused:denied"], &["redacted"], &[]];
    for (flow, tags) in flows.iter().zip(tags) {
        let add_tags = tags.iter().map(|t| (*t).to_owned()).collect();
        store.annotate(*flow, FlowAnnotation { add_tags, ..FlowAnnotation::default() }).unwrap();
    }
    let exchanges = flows.iter().map(|flow| exchange("a", *flow, 1)).collect();
    let nodes = vec![node("a", 1, None, "p")];
    store.save_update(ConversationUpdate { conversations: vec![row("a", 1)], nodes, exchanges, cursor: None }).unwrap();
    let summary = store.conversation("a").unwrap().unwrap();
    assert_eq!((summary.used.exchanges, summary.unredacted), (4, 1));
}
