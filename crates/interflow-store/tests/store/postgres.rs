//! What only the shared store has to do with: rights, servers that do not answer, partitions, and limits of its indexes.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use interflow_fleet::{SharedStore, copy_to_shared};
use interflow_query::Query;
use interflow_store::*;
use interflow_testkit::{PostgresDatabase, PostgresServer};
use interflow_types::FlowId;
use interflow_types::units::{ByteSize, HumanDuration};

use super::fixture::access;
use super::*;

fn open(url: &str, config: &RecordConfig) -> Result<(tempfile::TempDir, SharedStore), StoreError> {
    let dir = tempfile::tempdir().unwrap();
    let store = SharedStore::open(&url.parse()?, access(None), dir.path(), config)?;
    Ok((dir, store))
}

fn refusal(url: &str) -> String {
    open(url, &RecordConfig::default()).err().expect("it cannot be used").to_string()
}

/// A flow that began this long ago.
fn old_flow(days: u64, body: &[u8]) -> FlowWithBodies {
    let started = Timestamp::from_micros(Timestamp::now().micros() - days * 86_400_000_000);
    let id = FlowId::new(started);
    let mut row = FlowRecord::new(id, started, EntryKind::Connect, Scheme::Https, "old.test:443".parse().unwrap());
    row.state = FlowState::Complete;
    let body_row = BodyRecord::whole(body.len() as u64);
    row.request =
        Some(RequestRecord { method: "GET".into(), path: "/".into(), body: body_row, ..RequestRecord::default() });
    FlowWithBodies {
        row,
        request_body: Bytes::copy_from_slice(body),
        response_body: Bytes::new(),
        original_bodies: Default::default(),
        messages: Vec::new(),
        certificates: Default::default(),
    }
}

#[test]
fn a_text_longer_than_an_index_takes_is_stored_and_found() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_dir, store) = open(&database.url(), &RecordConfig::default()).unwrap();
    // Incompressible, as an index compresses its entries.
    let long: String = noise(6000, 1).iter().map(|b| char::from(b'A' + b % 26)).collect();
    let other = format!("{}B", &long[..5999]);
    for (n, text) in [&long, &other].into_iter().enumerate() {
        let mut new = old_flow(0, b"x");
        new.row.request.as_mut().unwrap().method = text.as_str().into();
        new.row.user = Some(text.as_str().into());
        new.row.tags = vec![text.clone()];
        new.row.request.as_mut().unwrap().path = format!("/{n}");
        assert!(store.insert(new).unwrap());
    }
    store.flush_to_database().unwrap();
    assert_eq!(store.waiting_flows().unwrap(), 0);
    let count = |query: String| store.count(&Query::parse(&query).unwrap()).unwrap();
    for key in ["method", "user", "tag"] {
        assert_eq!(count(format!("{key}:{long}")), 1, "{key}");
        assert_eq!(count(format!("{key}:{}*", &long[..5998])), 2, "{key}");
        assert_eq!(count(format!("-{key}:{long}")), 1, "{key}");
        assert_eq!(count(format!("{key}:{}", &long[..400])), 0, "{key}");
    }
    assert_eq!(count("method:get".into()), 0);
}

#[test]
fn conditions_are_served_by_indexes_and_a_span_of_time_by_its_partitions() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_dir, store) = open(&database.url(), &RecordConfig::default()).unwrap();
    for i in 0..50 {
        exchange(&store.spool().unwrap().recorder().unwrap(), &format!("h{i}.test"), "/", b"", b"");
    }
    store.flush_to_database().unwrap();
    let plan = |condition: &str| {
        // With so few rows, an index is only used where there is nothing else.
        let sql = format!(
            "SET enable_seqscan = off; SET enable_sort = off; SET search_path = interflow, public; \
             EXPLAIN SELECT id FROM flows f WHERE {condition}"
        );
        database.sql(&sql)
    };
    for (condition, index) in [
        ("left(lower(f.method), 512) = 'post'", "Index Cond: (\"left\"(lower(method), 512) = 'post'"),
        ("left(lower(f.username), 512) = 'a'", "Index Cond: (\"left\"(lower(username), 512) = 'a'"),
        ("lower(f.host) = 'h9.test'", "Index Cond: (lower(host) = 'h9.test'"),
        ("lower(f.host) LIKE '%9.test' AND lower(f.url) LIKE '%%9.test%'", "Index Cond: (lower(url) ~~ '%%9.test%'"),
        ("cardinality(f.tags) > 0 AND f.tags @> ARRAY['held']", "_id_idx"),
    ] {
        let plan = plan(condition);
        assert!(plan.contains(index), "{condition}: {plan}");
    }
    let now = Timestamp::now().micros() as i64;
    let recent = Query::parse("time:>-1h").unwrap();
    assert_eq!(store.count(&recent).unwrap(), 50);
    let partitions = |text: &str| text.matches(" on flows_2").count();
    let id = |micros: i64| uuid::Uuid::from_u128(((micros / 1000) as u128) << 80);
    let bounded = plan(&format!("f.started >= {} AND f.id >= '{}'", now, id(now + 2 * 86_400_000_000)));
    let unbounded = plan(&format!("f.started >= {now}"));
    assert!(partitions(&bounded) < partitions(&unbounded), "{bounded}\n{unbounded}");
}

#[test]
fn days_are_dropped_by_age_and_by_size_with_all_that_belongs_to_them() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let source = tempfile::tempdir().unwrap();
    let forever = RecordConfig {
        retention_age: HumanDuration(Duration::ZERO),
        retention_bytes: ByteSize(0),
        ..RecordConfig::default()
    };
    let embedded = SqliteStore::open(source.path(), &forever).unwrap();
    for days in [40, 20, 10] {
        assert!(embedded.insert(old_flow(days, &noise(300_000, days))).unwrap());
    }
    embedded.flush().unwrap();
    let url = database.url().parse().unwrap();
    let progress = &mut |_, _| std::ops::ControlFlow::Continue(());
    copy_to_shared(&embedded, &url, access(None), progress).unwrap();
    let days = |table: &str| {
        let sql = format!(
            "SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
             WHERE i.inhparent = 'interflow.{table}'::regclass AND c.relname < '{table}_' || to_char(now() - interval '5 days', 'YYYYMMDD')"
        );
        database.sql(&sql).parse::<u32>().unwrap()
    };
    let rows = |table: &str| database.sql(&format!("SELECT count(*) FROM interflow.{table}"));
    assert_eq!((days("flows"), days("bodies"), days("messages")), (3, 3, 3));

    // A reader that has looked at the flows holds up nobody for longer than it takes.
    let config = RecordConfig { retention_age: HumanDuration(Duration::from_secs(30 * 86_400)), ..forever.clone() };
    let (_dir, store) = open(&database.url(), &config).unwrap();
    assert_eq!((days("flows"), days("bodies"), days("messages")), (2, 2, 2));
    assert_eq!((rows("flows"), store.count(&Query::all()).unwrap()), ("2".to_owned(), 2));
    drop(store);

    // An earlier build dropped the flows of a day and was ended before it dropped the rest.
    let oldest = database.sql(
        "SELECT min(c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
         WHERE i.inhparent = 'interflow.flows'::regclass AND c.relname <> 'flows_default'",
    );
    database.sql(&format!("DROP TABLE interflow.{oldest}"));
    let config = RecordConfig { retention_bytes: ByteSize(1), ..forever };
    let (_dir, store) = open(&database.url(), &config).unwrap();
    assert_eq!((days("flows"), days("bodies"), days("messages")), (0, 0, 0));
    assert_eq!((rows("flows"), rows("bodies")), ("0".to_owned(), "0".to_owned()));
    drop(store);
}

#[test]
fn the_start_ends_with_what_is_missing() {
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    // A host that accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let begun = Instant::now();
    let said = refusal(&format!("postgres://u:p@127.0.0.1:{port}/d?connect_timeout=1"));
    assert!(said.contains("no answer within the time limit"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // Another server is tried after it.
    let real = database.url();
    let both = format!("{}?connect_timeout=1", real.replace("@127.0.0.1:", &format!("@127.0.0.1:{port},127.0.0.1:")));
    drop(open(&both, &RecordConfig::default()).unwrap());

    // Rights.
    database.sql(
        "CREATE ROLE weak LOGIN PASSWORD 'weak'; GRANT USAGE ON SCHEMA interflow TO weak; \
         GRANT SELECT ON ALL TABLES IN SCHEMA interflow TO weak",
    );
    let weak = database.url_for("weak", "weak");
    let said = refusal(&weak);
    assert!(said.contains("GRANT \"interflow\" TO \"weak\"") && said.contains("partitions"), "{said}");
    for table in database
        .sql("SELECT relname FROM pg_class WHERE relnamespace = 'interflow'::regnamespace AND relkind IN ('r', 'p')")
        .lines()
    {
        database.sql(&format!("ALTER TABLE interflow.{table} OWNER TO weak"));
    }
    database.sql("GRANT CREATE ON SCHEMA interflow TO weak; GRANT ALL ON ALL SEQUENCES IN SCHEMA interflow TO weak");
    database.sql("REVOKE INSERT ON interflow.messages FROM weak");
    let said = refusal(&weak);
    assert!(said.contains("may not read and write messages: GRANT SELECT, INSERT"), "{said}");
    database.sql("GRANT INSERT ON interflow.messages TO weak");
    database.sql(&format!("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC", database.name()));
    let said = refusal(&weak);
    assert!(said.contains("GRANT TEMPORARY ON DATABASE"), "{said}");
    database.sql(&format!("GRANT TEMPORARY ON DATABASE {} TO weak", database.name()));
    drop(open(&weak, &RecordConfig::default()).unwrap());

    // A server that takes no writes, as a standby.
    database.sql(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name()));
    let said = refusal(&format!("{real}?target_session_attrs=read-write"));
    assert!(said.contains("this server is a standby"), "{said}");
}

#[test]
fn without_trigrams_parts_of_urls_are_found_and_it_is_said() {
    let Some(server) = PostgresServer::shared() else { return };
    let database: PostgresDatabase = server.database();
    database.sql(
        "DO $$ BEGIN CREATE ROLE plain LOGIN PASSWORD 'plain'; EXCEPTION WHEN duplicate_object THEN NULL; END $$; \
         CREATE SCHEMA interflow AUTHORIZATION plain",
    );
    let (_dir, store) = open(&database.url_for("plain", "plain"), &RecordConfig::default()).unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'"), "0");
    assert!(!store.has_text_index().unwrap());
    exchange(&store.spool().unwrap().recorder().unwrap(), "api.openai.test", "/v1/some/thing", b"", b"");
    store.flush_to_database().unwrap();
    for query in ["url:some/th", "host:*.openai.test", "url:openai"] {
        assert_eq!(store.count(&Query::parse(query).unwrap()).unwrap(), 1, "{query}");
    }
    let with = server.database();
    let (_dir, store) = open(&with.url(), &RecordConfig::default()).unwrap();
    assert!(store.has_text_index().unwrap());
}

#[test]
fn damaged_rows_are_left_out_and_counted() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_dir, store) = open(&database.url(), &RecordConfig::default()).unwrap();
    let recorder = store.spool().unwrap().recorder().unwrap();
    let damaged = exchange(&recorder, "a.test", "/", b"", b"");
    exchange(&recorder, "b.test", "/", b"", b"");
    store.flush_to_database().unwrap();
    database.sql(&format!(
        "UPDATE interflow.flows SET transport = 99 WHERE id = '{}'",
        uuid::Uuid::from_u128(damaged.id.to_u128())
    ));
    assert_eq!(store.list(&ListOptions::default()).unwrap().len(), 1);
    assert_eq!((store.damaged_flows(), store.stats().unwrap().damaged_flows), (1, 1));
}

#[test]
fn another_replica_sees_flows_live_and_what_is_changed_in_them() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_one_dir, one) = open(&database.url(), &RecordConfig::default()).unwrap();
    let (_two_dir, two) = open(&database.url(), &RecordConfig::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut seen = two.subscribe();
    let mut wait_for = |what: &str, fits: &dyn Fn(&FlowSummary) -> bool, mut again: Box<dyn FnMut() + '_>| {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            assert!(Instant::now() < deadline, "not seen: {what}");
            again();
            let next = async { tokio::time::timeout(Duration::from_millis(500), seen.next()).await };
            let Ok(Some(StoreEvent::Flows(flows))) = runtime.block_on(next) else { continue };
            if flows.iter().any(fits) {
                return;
            }
        }
    };
    // The other one may not listen yet: recorded until one is seen.
    let recorder = one.spool().unwrap().recorder().unwrap();
    let last = std::cell::Cell::new(None);
    wait_for(
        "a flow of the other replica",
        &|flow| flow.authority.host.to_string() == "live.test",
        Box::new(|| {
            last.set(Some(exchange(&recorder, "live.test", "/", b"", b"").id));
            one.flush_to_database().unwrap();
        }),
    );
    let id = last.get().unwrap();
    let change = FlowAnnotation { add_tags: vec!["seen-live".into()], ..FlowAnnotation::default() };
    one.annotate(id, change).unwrap();
    wait_for("its new tag", &|flow| flow.id == id && flow.tags.iter().any(|t| t == "seen-live"), Box::new(|| ()));
}

#[test]
fn a_check_reads_everything_and_names_what_is_damaged() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (_dir, store) = open(&database.url(), &RecordConfig::default()).unwrap();
    let recorder = store.spool().unwrap().recorder().unwrap();
    let record = |n: u64| exchange(&recorder, "a.test", "/", b"short", &noise(700_000, n));
    let (damaged, cut, unread) = (record(1), record(2), record(3));
    (4..8).for_each(|n| drop(record(n)));
    store.flush_to_database().unwrap();
    let report = store.check(&mut |_, _| ()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.flows, 7);
    assert!(report.chunks >= 14 && report.bytes >= 7 * 700_000, "{report:?}");
    let id = |flow: &Flow| uuid::Uuid::from_u128(flow.id.to_u128());
    database.sql(&format!("UPDATE interflow.bodies SET bytes = 'x' WHERE flow = '{}' AND at = 0", id(&damaged)));
    database.sql(&format!("DELETE FROM interflow.bodies WHERE flow = '{}'", id(&cut)));
    database.sql(&format!("UPDATE interflow.flows SET transport = 99 WHERE id = '{}'", id(&unread)));
    let report = store.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.problem_count, 3, "{:?}", report.problems);
    let has = |what: &str| report.problems.iter().any(|p| p.contains(what));
    assert!(
        has("fewer bytes are stored than its row says") && has("0 of 700000 bytes") && has("unknown transport"),
        "{report:?}"
    );
}
