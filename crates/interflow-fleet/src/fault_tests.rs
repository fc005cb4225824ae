//! What holds when the database, the way to it, or another replica hangs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_query::Query;
use interflow_store::{
    BodyRecord, FlowRecord, FlowState, FlowStore, FlowWithBodies, ListOptions, RecordConfig, RequestRecord, StoreError,
};
use interflow_testkit::{PostgresDatabase, PostgresServer};
use interflow_types::{Authority, EntryKind, FlowId, Host, Scheme, Timestamp};

use crate::SharedStore;
use crate::database::connect::{BoxedStream, Connector, SharedAccess, TlsClient, TlsHandshake};
use crate::database::dsn::PostgresTls;
use crate::database::migrate;
use crate::database::pool::{ConnectionRuntime, Database};

struct NoTls;

impl TlsClient for NoTls {
    fn handshake(&self, _: &str, _: BoxedStream) -> TlsHandshake {
        Box::pin(async { Err(std::io::Error::other("the server of these tests has no TLS")) })
    }
}

fn no_tls(_: &PostgresTls) -> Result<Arc<dyn TlsClient>, String> {
    Ok(Arc::new(NoTls))
}

fn connector(database: &PostgresDatabase) -> Connector {
    Connector::new(database.url().parse().unwrap(), no_tls, None).unwrap()
}

fn open(database: &PostgresDatabase, name: Option<&str>) -> (Database, ConnectionRuntime) {
    let access = SharedAccess { tls: no_tls, objects: None, row_key: None };
    Database::new(&database.url().parse().unwrap(), access, &RecordConfig::default(), name).unwrap()
}

/// A replica that gives an attempt up after this time without progress.
fn replica(database: &PostgresDatabase, stall_limit: Duration) -> (tempfile::TempDir, SharedStore) {
    let dir = tempfile::tempdir().unwrap();
    let config = RecordConfig::default();
    let (mut inner, runtime) = open(database, Some("one of\tmany"));
    inner.stall_limit = stall_limit;
    inner.statement_limit = stall_limit.max(Duration::from_secs(2));
    let store = SharedStore::open_on(inner, runtime, dir.path(), &config).unwrap();
    (dir, store)
}

fn flow(method: &str, path: &str) -> FlowWithBodies {
    let started = Timestamp::now();
    let authority = Authority::new(Host::parse("a.test").unwrap(), 443);
    let mut row = FlowRecord::new(FlowId::new(started), started, EntryKind::Connect, Scheme::Https, authority);
    row.state = FlowState::Complete;
    row.request = Some(RequestRecord {
        method: method.into(),
        path: path.into(),
        body: BodyRecord::whole(4),
        ..RequestRecord::default()
    });
    FlowWithBodies {
        row,
        request_body: Bytes::from_static(b"body"),
        response_body: Bytes::new(),
        original_bodies: Default::default(),
        messages: Vec::new(),
        certificates: Default::default(),
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const PATIENT: Duration = Duration::from_secs(60);

#[test]
fn a_replica_that_is_frozen_while_it_commits_holds_the_others_up_for_a_moment_only() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_dir, store) = replica(&database, PATIENT);
    // As a process that is stopped right after it has taken the lock: its connection stays open.
    let frozen = connector(&database);
    let session = store.database.wait_for(async move {
        let client = frozen.client().await?;
        let sql = format!(
            "BEGIN; {}; SELECT pg_advisory_xact_lock({})",
            crate::shipping::insert::BEGIN_COMMIT,
            crate::shipping::insert::COMMIT_LOCK
        );
        client.batch_execute(&sql).await.map_err(|e| frozen.explain(&e))?;
        Ok(client)
    });
    let _session = session.unwrap();
    assert!(store.insert(flow("GET", "/")).unwrap());
    let begun = Instant::now();
    until("the flow is moved", || store.waiting_flows().unwrap() == 0);
    assert!((5..40).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[test]
fn a_flow_that_the_database_never_finishes_is_set_aside_and_the_others_go_on() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_dir, store) = replica(&database, Duration::from_millis(700));
    database.sql(
        "SET search_path = interflow; \
         CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$; \
         CREATE TRIGGER hang BEFORE INSERT ON flows FOR EACH ROW WHEN (NEW.path = '/hangs') EXECUTE FUNCTION hang()",
    );
    for path in ["/a", "/b", "/hangs", "/c", "/d"] {
        assert!(store.insert(flow("GET", path)).unwrap());
    }
    let shared = || store.stats().unwrap().shared.unwrap();
    until("one flow is set aside, and the others are moved", || {
        shared().stuck_flows == 1 && shared().waiting_flows == 1
    });
    assert_eq!(database.sql("SELECT count(*) FROM interflow.flows"), "4");
    // It is still to be seen here.
    assert_eq!(store.count(&Query::parse("path:/hangs").unwrap()).unwrap(), 1);
    // What waits for ever is not waited for.
    assert!(store.insert(flow("GET", "/e")).unwrap());
    store.flush_to_database().unwrap();
    let running = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    until("nothing runs for it", || database.sql(running) == "0");
}

#[test]
fn counting_holds_nobody_up_and_can_be_stopped() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_dir, store) = replica(&database, PATIENT);
    let blocker = connector(&database);
    // A count that takes long: by a table that is locked.
    let session = store.database.wait_for(async move {
        let client = blocker.client().await?;
        let sql = "BEGIN; LOCK TABLE conversation_exchanges IN ACCESS EXCLUSIVE MODE; SET LOCAL idle_in_transaction_session_timeout = 0";
        client.batch_execute(sql).await.map_err(|e| blocker.explain(&e))?;
        Ok(client)
    });
    let session = session.unwrap();
    let query = Query::parse("model:gpt").unwrap();
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let counting = scope.spawn(|| {
            let stopped = stopped;
            let begun = Instant::now();
            let mut watch = || match stopped.try_recv() {
                Err(std::sync::mpsc::TryRecvError::Empty) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            };
            (store.count_while(&query, &mut watch), begun.elapsed())
        });
        let counts = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' \
             AND query LIKE '%count(*) FROM flows f WHERE%' AND pid <> pg_backend_pid()";
        until("the count has begun", || database.sql(counts) == "1");
        assert!(store.insert(flow("GET", "/meanwhile")).unwrap());
        until("flows are moved meanwhile", || store.waiting_flows().unwrap() == 0);
        drop(stop);
        let (counted, _) = counting.join().unwrap();
        assert!(matches!(counted, Err(StoreError::Cancelled)), "{counted:?}");
        until("the server has stopped counting", || database.sql(counts) == "0");
    });
    drop(session);
    until("it is counted", || store.count(&query).is_ok_and(|n| n == 0));
}

#[test]
fn figures_come_at_once_while_the_server_hangs_and_flows_arrive_once_it_goes_on() {
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    let (_dir, store) = replica(&database, Duration::from_secs(2));
    assert!(store.insert(flow("GET", "/before")).unwrap());
    store.flush_to_database().unwrap();
    assert_eq!(store.stats().unwrap().flows, 1);
    server.freeze();
    let spool = store.spool().unwrap();
    for _ in 0..20 {
        assert!(spool.insert(flow("GET", "/meanwhile")).unwrap());
    }
    let mut slowest = Duration::ZERO;
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let begun = Instant::now();
        let stats = store.stats().unwrap();
        slowest = slowest.max(begun.elapsed());
        if stats.shared.unwrap().error.is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "the replica does not say that the server hangs");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    // A reader gets an error instead of waiting for ever, and the next one at once.
    let listed = store.list(&ListOptions::default());
    assert!(listed.unwrap_err().to_string().contains("no answer within the time limit"));
    server.thaw();
    until("all is moved", || store.waiting_flows().unwrap() == 0);
    until("readers are served again", || store.count(&Query::all()).is_ok_and(|n| n == 21));
    assert_eq!(database.sql("SELECT count(*) FROM interflow.flows"), "21");
}

#[test]
fn a_drain_ends_under_load() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_dir, store) = replica(&database, PATIENT);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                assert!(store.spool().unwrap().insert(flow("GET", "/load")).unwrap());
            }
        });
        for _ in 0..3 {
            let last = flow("GET", "/last");
            let id = last.row.id;
            assert!(store.spool().unwrap().insert(last).unwrap());
            store.flush_to_database().unwrap();
            assert!(store.spool().unwrap().get(id).is_err(), "it is moved");
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        load.join().unwrap();
    });
}

#[test]
fn replicas_that_start_together_and_on_an_older_schema_find_one_of_this_version() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    // The first version, with a flow, as an earlier build left it.
    let old = connector(&database);
    let (inner, _runtime) = open(&database, None);
    inner.wait_for(async move { migrate::migrate_to(&old, Some(1)).await }).unwrap();
    let columns = "id, replica, state, kind, started, transport, scheme, host, port, method, path, url, listener, \
         request_size, response_size, messages, tags, stored, kept, detail";
    database.sql(&format!(
        "INSERT INTO interflow.flows({columns}) VALUES ('01900000-0000-7000-8000-000000000001', 'r', 1, 0, 1, 0, 0, 'a.test', \
         443, 'GET', '/', 'https://a.test/', 'proxy', 0, 0, 0, '{{}}', {}, 0, '')",
        Timestamp::now().micros()
    ));
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..10).map(|_| scope.spawn(|| replica(&database, PATIENT))).collect();
        for start in starts {
            let (_dir, store) = start.join().unwrap();
            assert_eq!(store.count(&Query::parse("method:get").unwrap()).unwrap(), 1);
        }
    });
    let versions = database
        .sql("SELECT count(*) = count(DISTINCT version) AND max(version) > 1 FROM interflow.refinery_schema_history");
    assert_eq!(versions, "t");
    assert_eq!(database.sql("SELECT count(*) FROM interflow.instances WHERE name LIKE '% %'"), "0");
}
