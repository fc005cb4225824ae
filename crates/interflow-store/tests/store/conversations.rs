//! Conversations stored next to their flows.

use interflow_fleet::{copy_from_shared, copy_to_shared};
use interflow_query::Query;
use interflow_store::{
    ConversationOptions, ConversationRow, ConversationStore as _, ConversationUpdate, ExchangeRow, FlowAnnotation,
    FlowStore as _, MessageNodeRow, RecordConfig, SqliteStore, StoreError, TokenUsage, TotalsRange,
};
use interflow_types::{FlowId, Timestamp};

use super::fixture::access;
use super::{StoreKind, TestStore};

both_stores!(
    conversations_round_trip_through_a_reopened_store,
    conversation_lists_are_newest_first_filtered_and_skip_folded_ones,
    deleting_flows_deletes_messages_that_only_they_contain,
    exchanges_whose_prompt_left_with_findings_are_counted,
    notes_are_kept_with_conversation_and_message_searchable_and_deleted_with_them,
    totals_are_summed_per_user_and_count_failures_within_their_range,
);

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
        failed: leaf == 4,
        facts: "{}".into(),
    }
}

fn range(since: u64, span: u64) -> TotalsRange {
    let until = Timestamp::from_micros(i64::MAX as u64);
    TotalsRange { since: Timestamp::from_micros(since), until, span, offset: 0 }
}

fn ids(store: &TestStore, query: &str, all: bool) -> Vec<String> {
    let options = ConversationOptions { query: Query::parse(query).unwrap(), all, ..ConversationOptions::default() };
    store.conversations(&options).unwrap().into_iter().map(|l| l.row.id).collect()
}

fn conversations_round_trip_through_a_reopened_store(kind: &StoreKind) {
    let flow = FlowId::from_u128(7);
    let long = "a long message, ".repeat(1000);
    let store = kind.open(&RecordConfig::default());
    let found = ConversationUpdate {
        conversations: vec![row("a", 5)],
        nodes: vec![node("a", 1, None, "short"), node("a", 2, Some(1), &long)],
        exchanges: vec![exchange("a", flow, 2)],
        cursor: Some(flow),
    };
    store.save_update(found.clone()).unwrap();
    store.save_update(found.clone()).unwrap();
    let store = kind.reopen_read(store);
    let listed = store.conversation("a").unwrap().unwrap();
    assert_eq!((listed.row, listed.used.cost, listed.used.exchanges), (row("a", 5), 0.25, 1));
    assert_eq!(store.nodes("a", true).unwrap(), found.nodes);
    assert!(store.nodes("a", false).unwrap().iter().all(|n| n.body.is_empty()));
    assert_eq!(store.exchanges("a").unwrap(), found.exchanges);
    assert_eq!(store.exchanges_in(flow).unwrap(), found.exchanges);
    assert_eq!((store.cursor().unwrap(), store.session("s", 9).unwrap().len()), (Some(flow), 1));
    assert!(matches!(store.save_update(ConversationUpdate::default()), Err(StoreError::ReadOnly)));
}

fn conversation_lists_are_newest_first_filtered_and_skip_folded_ones(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
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
    let cursor = row("m498", 598).cursor();
    assert_eq!(page(Some(&cursor), 1), ["m497"]);
    // The last one of the page before has gone on, or was deleted.
    let newest = ConversationRow { agent: "aider".into(), ..row("m498", 10_000) };
    store.save_update(ConversationUpdate { conversations: vec![newest], ..ConversationUpdate::default() }).unwrap();
    assert_eq!(page(Some(&cursor), 1), ["m497"]);
    assert_eq!(page(Some(&row("gone", 598).cursor()), 1), ["m497"]);
    assert!(page(Some("m498"), 1).is_empty(), "no cursor");
    let options = ConversationOptions { parent: Some("b".into()), ..ConversationOptions::default() };
    assert_eq!(store.conversations(&options).unwrap()[0].row.id, "child");
    let totals = store.totals(range(0, 10_000_000)).unwrap();
    assert_eq!((totals.len(), totals[0].used.input, totals[0].used.exchanges), (1, 200, 2));
}

fn deleting_flows_deletes_messages_that_only_they_contain(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
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

fn exchanges_whose_prompt_left_with_findings_are_counted(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
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

fn notes_are_kept_with_conversation_and_message_searchable_and_deleted_with_them(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let flow = super::exchange(&recorder, "api.test", "/", b"a", b"b").id;
    store.flush().unwrap();
    let found = ConversationUpdate {
        conversations: vec![row("a", 1), row("b", 2)],
        nodes: vec![node("a", 1, None, "p"), node("a", 2, Some(1), "x")],
        exchanges: vec![exchange("a", flow, 2), exchange("b", FlowId::from_u128(1), 1)],
        cursor: None,
    };
    store.save_update(found.clone()).unwrap();
    let change = |tags: &[&str], comment: Option<&str>| FlowAnnotation {
        add_tags: tags.iter().map(|t| (*t).to_owned()).collect(),
        comment: comment.map(str::to_owned),
        ..FlowAnnotation::default()
    };
    store.annotate_conversation("a", None, change(&["starred", "two\nlines"], None)).unwrap();
    store.annotate_conversation("a", Some(2), change(&[], Some("wrong answer"))).unwrap();
    store.annotate_conversation("a", Some(99), change(&["nowhere"], None)).unwrap();
    store.annotate_conversation("nobody", None, change(&["nowhere"], None)).unwrap();
    let summary = || store.conversation("a").unwrap().unwrap();
    assert_eq!(summary().tags(), ["starred", "two lines"]);
    assert_eq!(summary().note(Some(2)).unwrap().comment.as_deref(), Some("wrong answer"));
    assert_eq!(summary().notes.len(), 2);
    assert_eq!([ids(&store, "tag:starred", false), ids(&store, "comment:wrong", false)], [["a"], ["a"]]);
    assert_eq!(ids(&store, "-tag:starred", false), ["b"]);
    // Built again, the conversation has its notes.
    store.forget_conversations().unwrap();
    store.save_update(found).unwrap();
    assert_eq!(summary().notes.len(), 2);
    let remove = FlowAnnotation { remove_tags: vec!["starred".into(), "two lines".into()], ..Default::default() };
    store.annotate_conversation("a", None, remove).unwrap();
    assert_eq!((summary().tags().len(), summary().notes.len()), (0, 1));
    store.delete(&[flow]).unwrap();
    assert_eq!(store.conversation("a").unwrap(), None);
    store.save_update(ConversationUpdate { conversations: vec![row("a", 1)], ..Default::default() }).unwrap();
    assert!(summary().notes.is_empty(), "a note went with what it was about");
}

fn totals_are_summed_per_user_and_count_failures_within_their_range(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let conversations = vec![ConversationRow { user: "ann".into(), ..row("a", 1) }, row("b", 2)];
    // They start after 1, 2, 4 and 30 seconds; the one after 4 seconds has failed.
    let exchanges = [("a", 1), ("a", 4), ("b", 2), ("b", 30)];
    let exchanges =
        exchanges.iter().zip(1..).map(|((of, leaf), n)| exchange(of, FlowId::from_u128(n), *leaf)).collect();
    store.save_update(ConversationUpdate { conversations, exchanges, ..ConversationUpdate::default() }).unwrap();
    let until =
        |seconds: u64| TotalsRange { until: Timestamp::from_micros(seconds * 1_000_000), ..range(0, 20_000_000) };
    let totals = store.totals(until(30)).unwrap();
    let found: Vec<_> = totals.iter().map(|t| (t.user.as_str(), t.used.exchanges, t.failed, t.from)).collect();
    assert_eq!(found, [("", 1, 0, 0), ("ann", 2, 1, 0)]);
    let moved = TotalsRange { offset: 18_000_000, ..until(31) };
    let begins: Vec<u64> = store.totals(moved).unwrap().iter().map(|t| t.from).collect();
    assert_eq!(begins, [0, 2_000_000, 2_000_000, 22_000_000], "buckets begin at 2 and 22 seconds");
    let during = |from: u64, to: u64| {
        let range = (Timestamp::from_micros(from * 1_000_000), Timestamp::from_micros(to * 1_000_000));
        let options = ConversationOptions { during: Some(range), ..ConversationOptions::default() };
        store.conversations(&options).unwrap().into_iter().map(|l| l.row.id).collect::<Vec<_>>()
    };
    assert_eq!([during(0, 100), during(3, 10), during(10, 100)], [vec!["b", "a"], vec!["a"], vec!["b"]]);
}

#[test]
fn notes_are_copied_to_the_shared_store_and_back() {
    let Some(kind) = StoreKind::shared() else { return };
    let forever = RecordConfig::default();
    let [source, target] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let embedded = SqliteStore::open(source.path(), &forever).unwrap();
    let recorder = embedded.recorder().unwrap();
    let flow = super::exchange(&recorder, "api.test", "/", b"a", b"b").id;
    embedded.flush().unwrap();
    // More messages than are copied at a time.
    let count = 600;
    let nodes = (1..=count).map(|key| node("a", key, (key > 1).then(|| key - 1), "m")).collect();
    let found = ConversationUpdate {
        conversations: vec![row("a", 1)],
        nodes,
        exchanges: vec![exchange("a", flow, count)],
        cursor: None,
    };
    embedded.save_update(found.clone()).unwrap();
    let note = |tag: &str, comment: Option<&str>| FlowAnnotation {
        add_tags: vec![tag.to_owned()],
        comment: comment.map(str::to_owned),
        ..FlowAnnotation::default()
    };
    embedded.annotate_conversation("a", None, note("starred", Some("the first\nof all"))).unwrap();
    for key in 1..=count {
        embedded.annotate_conversation("a", Some(key), note(&format!("t{key}"), None)).unwrap();
    }
    let noted = embedded.conversation("a").unwrap().unwrap().notes;
    let url = kind.database().url().parse().unwrap();
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    assert_eq!(copy_to_shared(&embedded, &url, access(None), go_on).unwrap().notes, count as u64 + 1);
    assert_eq!(copy_to_shared(&embedded, &url, access(None), go_on).unwrap().notes, 0, "they are there");
    let store = kind.open(&forever);
    store.save_update(found.clone()).unwrap();
    assert_eq!(store.conversation("a").unwrap().unwrap().notes, noted);
    // What was changed there since stays.
    store.annotate_conversation("a", None, note("seen", Some("changed"))).unwrap();
    assert_eq!(copy_to_shared(&embedded, &url, access(None), go_on).unwrap().notes, 0);
    let changed = store.conversation("a").unwrap().unwrap().notes;
    assert_eq!(changed[0].comment.as_deref(), Some("changed"));
    let back = SqliteStore::open(target.path(), &forever).unwrap();
    for notes in [count as u64 + 1, 0] {
        assert_eq!(copy_from_shared(store.shared(), &back, go_on).unwrap().notes, notes);
    }
    back.save_update(found).unwrap();
    assert_eq!(back.conversation("a").unwrap().unwrap().notes, changed);
}
