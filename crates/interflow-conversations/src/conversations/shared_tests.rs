//! Conversations of several replicas: each call is indexed once, whichever replica recorded it and which one indexes.

use std::sync::Arc;
use std::time::Duration;

use interflow_fleet::{BoxedStream, PostgresTls, SharedAccess, SharedStore, TlsClient, TlsHandshake};
use interflow_store::{
    ConversationOptions, ConversationStore, FlowStore, FlowWithBodies, IndexProgress, RecordConfig, SqliteStore,
    StoreError,
};
use interflow_testkit::{PostgresDatabase, PostgresServer};
use interflow_types::Direction;
use serde_json::{Value, json};

use super::endpoints::{EndpointOverride, EndpointOverrides};
use super::format_tests::socket;
use super::indexer::{ConversationIndexer, IndexStep, IndexerHandle};
use super::tests::{asked, everything, open_store, pricing};

struct Replica {
    store: Arc<SharedStore>,
    _spool: tempfile::TempDir,
}

fn replica(database: &PostgresDatabase) -> Replica {
    replica_with(database, tempfile::tempdir().unwrap())
}

fn replica_with(database: &PostgresDatabase, spool: tempfile::TempDir) -> Replica {
    let url = format!("{}?sslmode=disable", database.url()).parse().unwrap();
    let access = SharedAccess { tls: no_tls, objects: None, row_key: None };
    let store = SharedStore::open(&url, access, spool.path(), &RecordConfig::default()).unwrap();
    Replica { store: Arc::new(store), _spool: spool }
}

fn no_tls(_: &PostgresTls) -> Result<Arc<dyn TlsClient>, String> {
    struct NoTls;
    impl TlsClient for NoTls {
        fn handshake(&self, _: &str, _: BoxedStream) -> TlsHandshake {
            Box::pin(async { Err(std::io::Error::other("no TLS")) })
        }
    }
    Ok(Arc::new(NoTls))
}

impl Replica {
    /// Records a flow, and moves it to where all replicas see it.
    fn record(&self, flow: FlowWithBodies) {
        assert!(self.store.insert(flow).unwrap());
        self.store.flush_to_database().unwrap();
    }

    fn indexer(&self) -> ConversationIndexer<'_> {
        ConversationIndexer::new(&*self.store, pricing())
    }

    /// How many calls of all conversations are indexed, and in how many conversations.
    fn calls(&self) -> (u64, usize) {
        let all = ConversationOptions { all: true, ..ConversationOptions::default() };
        let listed = self.store.conversations(&all).unwrap();
        (listed.iter().map(|l| l.used.exchanges).sum(), listed.len())
    }
}

/// The calls of one session, each of which repeats the whole conversation before it.
fn turns(count: u64) -> Vec<FlowWithBodies> {
    let mut history: Vec<Value> = Vec::new();
    (1..=count)
        .map(|n| {
            let answer = json!([{"type": "text", "text": format!("answer {n}")}]);
            history.push(json!({"role": "user", "content": format!("question {n}")}));
            let flow = asked(n, &json!(history), &answer);
            history.push(json!({"role": "assistant", "content": answer}));
            flow
        })
        .collect()
}

/// The conversations of an embedded store with these flows.
fn expected(flows: &[FlowWithBodies]) -> String {
    let (_dir, store) = open_store();
    flows.iter().for_each(|flow| assert!(store.insert(flow.clone()).unwrap()));
    ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
    everything(&store)
}

#[test]
fn a_session_over_two_replicas_is_one_conversation_though_the_indexing_one_dies_midway() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (replica(&database), replica(&database));
    let flows = turns(8);
    let record = |range: std::ops::Range<usize>| {
        flows[range.clone()].iter().zip(range).for_each(|(flow, n)| [&a, &b][n % 2].record(flow.clone()));
    };
    let (mut first, mut second) = (a.indexer(), b.indexer());
    record(0..4);
    assert_eq!(first.step().unwrap(), IndexStep::UpToDate);
    assert_eq!(second.step().unwrap(), IndexStep::Following);
    assert_eq!(b.calls(), (4, 1));
    record(4..6);
    // It has read what is new, and dies before it stores that: its turn ends after a while.
    let index = a.store.shared_index().unwrap();
    assert!(index.lead().unwrap().is_some());
    assert_eq!(index.unindexed(100).unwrap().flows.len(), 2);
    assert_eq!(second.step().unwrap(), IndexStep::Following);
    database.sql("UPDATE interflow.conversation_index SET expires = now()");
    assert_eq!(second.step().unwrap(), IndexStep::UpToDate);
    record(6..8);
    assert_eq!(second.step().unwrap(), IndexStep::UpToDate);
    // It was not dead after all: what it wants to store is refused, and it follows.
    let late = IndexProgress { position: Some(1), reassembled: vec!["session s1".into()], ..IndexProgress::default() };
    let late = index.save(Default::default(), late);
    assert!(matches!(late, Err(StoreError::Stale(_))), "{late:?}");
    assert_eq!(first.step().unwrap(), IndexStep::Following);
    assert_eq!(a.calls(), (8, 1));
    assert_eq!(everything(&*a.store), expected(&flows));
    assert_eq!(everything(&*b.store), everything(&*a.store));
}

#[test]
fn a_websocket_that_is_shipped_twice_is_indexed_once() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let turn = |n: u64| {
        let response = json!({"id": format!("resp_{n}"), "model": "gpt-6.2", "status": "completed",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}]});
        [
            (
                Direction::Request,
                json!({"type": "response.create", "model": "gpt-6.2", "input": format!("question {n}")}),
            ),
            (Direction::Response, json!({"type": "response.completed", "response": response})),
        ]
    };
    let flow = socket("api.openai.com", "/v1/responses", &[turn(1), turn(2)].concat());
    // Each has it on its disk before it looks whether the database does.
    let [a, b, c] = [(); 3].map(|()| {
        let spool = tempfile::tempdir().unwrap();
        assert!(SqliteStore::open(spool.path(), &RecordConfig::default()).unwrap().insert(flow.clone()).unwrap());
        spool
    });
    // Before it is indexed, after that, and by the process that takes over and reads all again.
    let [a, b] = [a, b].map(|spool| replica_with(&database, spool));
    a.store.flush_to_database().unwrap();
    b.store.flush_to_database().unwrap();
    let (mut first, mut second) = (a.indexer(), b.indexer());
    assert_eq!(first.step().unwrap(), IndexStep::UpToDate);
    assert_eq!(a.calls().0, 2);
    replica_with(&database, c).store.flush_to_database().unwrap();
    assert_eq!(first.step().unwrap(), IndexStep::UpToDate);
    database.sql("UPDATE interflow.conversation_index SET expires = now(), position = 0");
    assert_eq!(second.step().unwrap(), IndexStep::UpToDate);
    assert_eq!((a.calls().0, everything(&*a.store)), (2, everything(&*b.store)));
}

#[test]
fn flows_of_a_replica_that_was_cut_off_take_their_place_in_the_conversation() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (replica(&database), replica(&database));
    let flows = turns(7);
    let mut indexer = a.indexer();
    let (here, elsewhere): (Vec<_>, Vec<_>) = flows.iter().enumerate().partition(|(n, _)| n % 2 == 0);
    here.into_iter().for_each(|(_, flow)| a.record(flow.clone()));
    assert_eq!(indexer.step().unwrap(), IndexStep::UpToDate);
    assert_eq!(a.calls().0, 4);
    let note = interflow_store::FlowAnnotation { add_tags: vec!["kept".into()], ..Default::default() };
    let id = a.store.conversations(&ConversationOptions::default()).unwrap()[0].row.id.clone();
    a.store.annotate_conversation(&id, None, note.clone()).unwrap();
    // The newest of them first, as after a long time without a connection.
    for (_, flow) in elsewhere.into_iter().rev() {
        b.record(flow.clone());
        indexer.step().unwrap();
    }
    // They are seen at once, and in order a little later, also if another replica indexes then.
    assert_eq!(a.calls().0, 7);
    assert_eq!(a.store.shared_index().unwrap().late_sessions().unwrap().len(), 1);
    a.store.shared_index().unwrap().resign().unwrap();
    b.indexer().catch_up(&mut |_| {}).unwrap();
    assert_eq!(a.store.shared_index().unwrap().late_sessions().unwrap().len(), 0);
    b.store.shared_index().unwrap().resign().unwrap();
    assert_eq!(a.calls(), (7, 1));
    let summary = a.store.conversation(&id).unwrap().unwrap();
    assert_eq!(summary.tags(), ["kept"]);
    let without_note = interflow_store::FlowAnnotation { remove_tags: note.add_tags, ..Default::default() };
    a.store.annotate_conversation(&id, None, without_note).unwrap();
    assert_eq!(everything(&*a.store), expected(&flows));
    assert_eq!(indexer.rebuild(&mut |_| {}).unwrap(), 7);
    assert_eq!(everything(&*a.store), expected(&flows));
}

#[test]
fn a_session_whose_calls_all_come_out_of_order_costs_in_proportion_to_their_number() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (replica(&database), replica(&database));
    let mut indexer = a.indexer();
    // Whenever a session is put together again, all its calls are stored again.
    database.sql(
        "CREATE SEQUENCE interflow.stored_calls; \
         CREATE FUNCTION interflow.count_call() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM nextval('interflow.stored_calls'); RETURN new; END $$; \
         CREATE TRIGGER count_call BEFORE INSERT ON interflow.conversation_exchanges \
         FOR EACH ROW EXECUTE FUNCTION interflow.count_call()",
    );
    let flows = turns(120);
    for (n, four) in flows.chunks(4).enumerate() {
        // The newest of them become visible first, one by one.
        for flow in four.iter().rev() {
            [&a, &b][n % 2].record(flow.clone());
            indexer.step().unwrap();
        }
    }
    assert_eq!(a.calls().0, 120);
    indexer.catch_up(&mut |_| {}).unwrap();
    let stored: usize = database.sql("SELECT last_value FROM interflow.stored_calls").parse().unwrap();
    assert!(stored < 7 * flows.len(), "{stored}");
    assert_eq!(everything(&*a.store), expected(&flows));
}

#[test]
fn every_replica_can_rebuild_and_set_endpoints_for_all() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let stores = [replica(&database), replica(&database)];
    let flows = turns(6);
    flows.iter().enumerate().for_each(|(n, flow)| stores[n % 2].record(flow.clone()));
    let handles: Vec<IndexerHandle> =
        stores.iter().map(|r| IndexerHandle::start(Arc::clone(&r.store) as _, pricing()).unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for handle in &handles {
            handle.flush().await.unwrap();
        }
        assert_eq!(stores[0].calls(), (6, 1));
        // One of them indexes, the other one asks it to.
        for handle in &handles {
            assert_eq!(handle.rebuild().await.unwrap(), 6);
        }
        let endpoint = EndpointOverride {
            id: 1,
            host: "llm.corp.test".into(),
            path: "/*".into(),
            method: "POST".into(),
            shape: interflow_llm::message::ApiFormat::Chat,
            priority: 1,
            enabled: true,
        };
        let endpoints = EndpointOverrides::new(vec![endpoint]).unwrap();
        handles[0].save_endpoints(endpoints.clone()).await.unwrap();
        let follow = async {
            while **handles[1].endpoints().load() != endpoints {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), follow).await.expect("the other replica follows");
    });
    assert_eq!(everything(&*stores[1].store), expected(&flows));
}

/// A call of a session of its own.
fn call_of(n: u64, session: &str, model: &str) -> FlowWithBodies {
    let mut flow = asked(n, &json!([{"role": "user", "content": format!("question {n}")}]), &json!([]));
    let body = String::from_utf8(flow.request_body.to_vec()).unwrap();
    let body = body.replace("u_session_s1", &format!("u_session_{session}"));
    flow.request_body = body.into();
    let size = flow.request_body.len() as u64;
    flow.row.request.as_mut().unwrap().body = interflow_store::BodyRecord::whole(size);
    let reply = String::from_utf8(flow.response_body.to_vec()).unwrap().replace("claude-x", model);
    flow.response_body = reply.into();
    let size = flow.response_body.len() as u64;
    flow.row.response.as_mut().unwrap().body = interflow_store::BodyRecord::whole(size);
    flow
}

#[test]
fn sessions_with_long_ids_and_calls_that_the_store_refuses_do_not_stop_the_others() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let a = replica(&database);
    // Longer than an entry of an index, and not to be compressed to one; they differ at their ends only.
    let mut random = 7u64;
    let long: String = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + (random >> 40) as u8 % 26)
    })
    .take(6000)
    .collect();
    database.sql("ALTER TABLE interflow.conversation_exchanges ADD CHECK (model <> 'poison')");
    for (n, session, model) in [
        (1, format!("{long}1"), "claude-x"),
        (2, format!("{long}2"), "claude-x"),
        (3, "p".into(), "poison"),
        (4, "q".into(), "claude-x"),
    ] {
        a.record(call_of(n, &session, model));
    }
    let mut indexer = a.indexer();
    indexer.catch_up(&mut |_| {}).unwrap();
    assert_eq!(a.calls(), (3, 3));
    // The refused call is passed, and what comes after it is indexed as before.
    a.record(call_of(5, "r", "claude-x"));
    assert_eq!(indexer.step().unwrap(), IndexStep::UpToDate);
    assert_eq!(a.calls(), (4, 4));
    let sessions: Vec<String> = a
        .store
        .conversations(&ConversationOptions { all: true, ..Default::default() })
        .unwrap()
        .into_iter()
        .map(|c| c.row.session)
        .filter(|s| s.len() > 5000)
        .collect();
    assert_eq!(sessions.len(), 2);
    for session in sessions {
        assert_eq!(a.store.session(&session, 10).unwrap().len(), 1);
        assert_eq!(a.store.shared_index().unwrap().flows_of_session(&session, 10).unwrap().len(), 1);
    }
}
