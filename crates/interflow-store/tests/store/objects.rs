//! Bodies in object storage: one object per batch, nothing lost when the bucket or the database fails, and deleted once
//! no flow needs it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use interflow_fleet::{SharedStore, copy_from_shared, copy_to_shared};
use interflow_query::Query;
use interflow_store::*;
use interflow_types::units::{ByteSize, HumanDuration};
use interflow_types::{CertificateChain, ClientTls, Direction, FlowId};

use super::fixture::access;
use super::*;

/// Files below a folder, relative to it.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    fn walk(folder: &Path, base: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => walk(&path, base, found),
                path => drop(found.insert(path.strip_prefix(base).unwrap().to_owned())),
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(folder, folder, &mut found);
    found
}

fn read(store: &dyn FlowStore, id: FlowId) -> Vec<u8> {
    store.body(id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap().to_vec()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn number(kind: &StoreKind, sql: &str) -> u64 {
    kind.database().sql(sql).trim().parse().unwrap()
}

/// Records a flow with its own long body; returns its id and body.
fn long(store: &TestStore, host: &str, seed: u64) -> (FlowId, Vec<u8>) {
    let body = noise(100_000, seed);
    (exchange(&store.recorder().unwrap(), host, "/", b"short", &body).id, body)
}

/// An imported flow that began on 2026-01-05.
fn old_flow(n: u128, body: Vec<u8>) -> FlowWithBodies {
    let started = Timestamp::from_micros(1_767_607_200_000_000);
    let id = FlowId::from_u128(u128::from(started.micros() / 1000) << 80 | n);
    let authority = "old.test:443".parse().unwrap();
    let mut row = FlowRecord::new(id, started, EntryKind::Connect, Scheme::Https, authority);
    row.state = FlowState::Complete;
    row.response = Some(ResponseRecord {
        status: 200,
        reason: Bytes::new(),
        version: "HTTP/1.1".into(),
        headers: Headers::new(),
        trailers: Headers::new(),
        body: BodyRecord::default(),
    });
    FlowWithBodies { response_body: body.into(), ..FlowWithBodies::new(row) }
}

#[test]
fn bodies_of_a_batch_are_one_object_and_short_ones_stay_in_their_rows() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    // Longer than a piece, compressible and not, beside a short one.
    let text = "all work and no play ".repeat(80_000).into_bytes();
    let bodies = [text, noise(1_300_000, 2), noise(4096, 3), noise(4097, 4)];
    // Held until all are recorded: they would be several batches otherwise.
    kind.database().sql("ALTER TABLE interflow.objects RENAME TO away");
    let flows: Vec<_> = bodies.iter().map(|body| exchange(&recorder, "a.test", "/", b"", body)).collect();
    (*store).flush().unwrap();
    wait_until("the attempts fail", || store.stats().unwrap().shared.unwrap().failures > 0);
    kind.database().sql("ALTER TABLE interflow.away RENAME TO objects");
    wait_until("all are moved", || store.flush().is_ok());
    let found = files(kind.objects());
    let [name] = &found.iter().map(|f| f.to_str().unwrap()).collect::<Vec<_>>()[..] else { panic!("{found:?}") };
    let parts: Vec<_> = name.split('/').collect();
    assert!(parts.len() == 5 && parts[0] == "bodies" && parts[1].parse::<u32>().is_ok_and(|y| y > 2020), "{name}");
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.bodies WHERE bytes IS NOT NULL"), 0);
    let pieces = number(&kind, "SELECT count(*) FROM interflow.bodies");
    assert_eq!(number(&kind, "SELECT pieces FROM interflow.objects"), pieces);
    for (flow, body) in flows.iter().zip(&bodies) {
        assert!(read(&*store, flow.id) == *body, "{} bytes", body.len());
    }
    // Any range, across pieces.
    let part = store.body(flows[1].id, Direction::Response, 524_000..600_001).unwrap().read_all(usize::MAX).unwrap();
    assert!(part == bodies[1][524_000..600_001]);
    assert_eq!(store.count(&Query::parse("body:\"no play all work\"").unwrap()).unwrap(), 1);
    let shared = store.stats().unwrap().shared.unwrap();
    let size = std::fs::metadata(kind.objects().join(name)).unwrap().len();
    assert_eq!((shared.object_bytes, shared.objects), (size, Some(format!("file://{}", kind.objects().display()))));
}

#[test]
fn flows_wait_while_the_bucket_is_gone_and_are_stored_once_when_it_is_back() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let store = kind.open(&RecordConfig::default());
    let (first, body) = long(&store, "before.test", 1);
    store.flush().unwrap();
    let away = kind.objects().with_extension("away");
    std::fs::rename(kind.objects(), &away).unwrap();
    std::fs::write(kind.objects(), "no folder").unwrap();
    let during: Vec<_> = (2..12).map(|seed| long(&store, "during.test", seed)).collect();
    assert!(store.flush().unwrap_err().to_string().contains("record.objects: file://"));
    wait_until("what waits is counted", || store.stats().unwrap().shared.unwrap().waiting_flows == 10);
    let shared = store.stats().unwrap().shared.unwrap();
    assert!(shared.failures > 0, "{shared:?}");
    let error = shared.error.unwrap();
    assert!(error.contains(&*kind.objects().to_string_lossy()), "{error}");
    // What is only there cannot be read, and a search does not pretend otherwise.
    assert_eq!(read(&*store, during[0].0), during[0].1, "from the spool");
    let query = Query::parse("host:before.test body:nothing").unwrap();
    assert!(store.count(&query).unwrap_err().to_string().contains("record.objects"));
    assert_eq!(store.count(&Query::parse("host:during.test").unwrap()).unwrap(), 10);
    std::fs::remove_file(kind.objects()).unwrap();
    std::fs::rename(&away, kind.objects()).unwrap();
    wait_until("all are moved", || store.flush().is_ok());
    assert_eq!(number(&kind, "SELECT count(*) || '' FROM interflow.flows"), 11);
    assert_eq!(read(&*store, first), body);
    for (id, body) in during {
        assert_eq!(read(&*store, id), body);
    }
}

#[test]
fn a_crash_between_upload_and_commit_loses_and_doubles_nothing_and_its_object_is_collected() {
    let Some(kind) = StoreKind::with_objects() else { return };
    kind.open(&RecordConfig::default()).close();
    let sql = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$; \
               CREATE TRIGGER refuse BEFORE INSERT ON interflow.flows FOR EACH ROW EXECUTE FUNCTION refuse()";
    kind.database().sql(sql);
    let store = kind.open(&RecordConfig::default());
    let flows: Vec<_> = (0..5).map(|seed| long(&store, "a.test", seed)).collect();
    assert!(store.flush().unwrap_err().to_string().contains("not now"));
    // Ended in that state, with the flows on its disk and the object in the bucket.
    let store = kind.reopen_read(store);
    let orphans = files(kind.objects()).len();
    assert!(orphans > 0);
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.objects WHERE pieces IS NULL"), orphans as u64);
    kind.database().sql("DROP TRIGGER refuse ON interflow.flows");
    let store = kind.reopen(store, &RecordConfig::default());
    store.flush().unwrap();
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.flows"), 5);
    for (id, body) in &flows {
        assert_eq!(read(&*store, *id), *body);
    }
    let stored = number(&kind, "SELECT count(*) FROM interflow.objects WHERE pieces > 0") as usize;
    assert_eq!(files(kind.objects()).len(), orphans + stored, "they may still belong to an upload");
    kind.database().sql("UPDATE interflow.objects SET made = made - interval '25 hours' WHERE pieces IS NULL");
    let store = kind.reopen(store, &RecordConfig::default());
    wait_until("the orphans are deleted", || files(kind.objects()).len() == stored);
    // Their rows follow.
    wait_until("they are forgotten", || number(&kind, "SELECT count(*) FROM interflow.objects") == stored as u64);
    for (id, body) in &flows {
        assert_eq!(read(&*store, *id), *body);
    }
}

#[test]
fn a_commit_that_was_not_heard_of_is_repeated_without_a_trace() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let store = kind.open(&RecordConfig::default());
    let (id, body) = long(&store, "a.test", 1);
    store.flush().unwrap();
    // The same flow once more in a spool, as if its removal there had been cut off.
    let other = kind.open(&RecordConfig::default());
    let copied = tempfile::tempdir().unwrap();
    {
        let target = SqliteStore::open(copied.path(), &RecordConfig::default()).unwrap();
        copy_from_shared(store.shared(), &target, &mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
    }
    let spool = SqliteStore::open_read(copied.path()).unwrap();
    let again = FlowWithBodies {
        request_body: Bytes::from_static(b"short"),
        response_body: body.clone().into(),
        ..old_flow(0, Vec::new())
    };
    other.spool().insert(FlowWithBodies { row: spool.get(id).unwrap(), ..again }).unwrap();
    other.flush().unwrap();
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.flows"), 1);
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.objects WHERE pieces = 0"), 1);
    // The next deletion takes it along.
    other.delete(&[FlowId::from_u128(1)]).unwrap();
    assert_eq!(files(kind.objects()).len(), 1);
    assert_eq!(read(&*store, id), body);
}

#[test]
fn objects_are_deleted_with_the_last_of_their_flows() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let store = kind.open(&RecordConfig::default());
    kind.database().sql("ALTER TABLE interflow.objects RENAME TO away");
    let flows: Vec<_> =
        ["a.test", "a.test", "b.test"].iter().enumerate().map(|(i, h)| long(&store, h, i as u64)).collect();
    (*store).flush().unwrap();
    wait_until("the attempts fail", || store.stats().unwrap().shared.unwrap().failures > 0);
    kind.database().sql("ALTER TABLE interflow.away RENAME TO objects");
    wait_until("all are moved", || store.flush().is_ok());
    let (alone, _) = long(&store, "alone.test", 9);
    store.flush().unwrap();
    assert_eq!(files(kind.objects()).len(), 2);
    assert_eq!(store.delete(&[alone]).unwrap(), 1);
    assert_eq!(files(kind.objects()).len(), 1);
    assert_eq!(store.prune(&Query::parse("host:a.test").unwrap()).unwrap(), 2);
    assert_eq!(read(&*store, flows[2].0), flows[2].1, "the object is shared");
    // With a query that reads bodies.
    assert_eq!(store.prune(&Query::parse("body:short").unwrap()).unwrap(), 1);
    assert!(files(kind.objects()).is_empty());
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.objects"), 0);
}

#[test]
fn objects_of_flows_that_are_deleted_while_the_bucket_is_gone_follow_later() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let store = kind.open(&RecordConfig::default());
    let (id, _) = long(&store, "a.test", 1);
    store.flush().unwrap();
    let name = files(kind.objects()).pop_first().unwrap();
    // A folder of that name cannot be deleted.
    let object = kind.objects().join(&name);
    std::fs::remove_file(&object).unwrap();
    std::fs::create_dir_all(object.join("in the way")).unwrap();
    assert_eq!(store.delete(&[id]).unwrap(), 1);
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.objects WHERE pieces = 0"), 1);
    std::fs::remove_dir_all(&object).unwrap();
    std::fs::write(&object, "bytes").unwrap();
    let _store = kind.reopen(store, &RecordConfig::default());
    wait_until("it is deleted", || files(kind.objects()).is_empty());
}

#[test]
fn retention_deletes_objects_of_dropped_days_and_of_old_imports() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let store = kind.open(&RecordConfig { retention_age: HumanDuration(Duration::ZERO), ..RecordConfig::default() });
    // Imported into the default partition.
    store.insert(old_flow(1, noise(50_000, 1))).unwrap();
    store.flush().unwrap();
    // And into partitions of its day, as if it had been recorded then.
    let day = |table: &str| {
        let at = |days: u128| format!("{:032x}", (1_767_571_200_000u128 + days * 86_400_000) << 80);
        let (from, to) = (at(0), at(1));
        format!(
            "CREATE TABLE interflow.{table}_20260105 PARTITION OF interflow.{table} FOR VALUES FROM ('{from}') TO ('{to}')"
        )
    };
    kind.database().sql("UPDATE interflow.flows SET id = 'ffffffff-0000-0000-0000-000000000000', stored = 5");
    kind.database().sql("UPDATE interflow.bodies SET flow = 'ffffffff-0000-0000-0000-000000000000'");
    for table in ["flows", "bodies", "messages"] {
        kind.database().sql(&day(table));
    }
    store.insert(old_flow(2, noise(60_000, 2))).unwrap();
    store.flush().unwrap();
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.bodies_20260105"), 1);
    let (fresh, body) = long(&store, "fresh.test", 3);
    store.flush().unwrap();
    assert_eq!(files(kind.objects()).len(), 3);
    let store = kind.reopen(store, &RecordConfig::default());
    wait_until("the objects are deleted", || files(kind.objects()).len() == 1);
    assert_eq!(number(&kind, "SELECT count(*) FROM interflow.flows"), 1);
    assert_eq!(number(&kind, "SELECT count(*) FROM pg_class WHERE relname = 'bodies_20260105'"), 0);
    assert_eq!(store.stats().unwrap().expired_flows, 2);
    assert_eq!(read(&*store, fresh), body);
}

#[test]
fn the_bound_of_the_store_counts_bytes_of_objects() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let unlimited = RecordConfig { retention_age: HumanDuration(Duration::ZERO), ..RecordConfig::default() };
    let bounded = |bytes| RecordConfig { retention_bytes: ByteSize(bytes), ..unlimited.clone() };
    let store = kind.open(&bounded(0));
    let at = |days: u128| format!("{:032x}", (1_767_571_200_000u128 + days * 86_400_000) << 80);
    for table in ["flows", "bodies", "messages"] {
        let (from, to) = (at(0), at(1));
        kind.database().sql(&format!(
            "CREATE TABLE interflow.{table}_20260105 PARTITION OF interflow.{table} FOR VALUES FROM ('{from}') TO ('{to}')"
        ));
    }
    store.insert(old_flow(1, noise(20 << 20, 1))).unwrap();
    store.flush().unwrap();
    // The tables alone are far below it.
    let tables = store.stats().unwrap().database_bytes;
    assert!(tables < 8 << 20, "{tables}");
    let store = kind.reopen(store, &bounded(30 << 20));
    assert_eq!(store.count(&Query::all()).unwrap(), 1);
    let store = kind.reopen(store, &bounded(16 << 20));
    wait_until("the flow is deleted", || store.count(&Query::all()).unwrap() == 0);
    wait_until("the object is deleted", || files(kind.objects()).is_empty());
    drop(store);
}

#[test]
fn a_body_whose_object_is_gone_is_named_and_the_rest_stays_readable() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let store = kind.open(&RecordConfig::default());
    let (lost, _) = long(&store, "lost.test", 1);
    store.flush().unwrap();
    let name = files(kind.objects()).pop_first().unwrap();
    let (kept, body) = long(&store, "kept.test", 2);
    store.flush().unwrap();
    std::fs::remove_file(kind.objects().join(&name)).unwrap();
    let failed =
        store.body(lost, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap_err().to_string();
    assert!(failed.contains(&lost.to_string()) && failed.contains(name.to_str().unwrap()), "{failed}");
    assert_eq!(store.body(lost, Direction::Request, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap(), "short");
    assert_eq!(store.count(&Query::parse("body:short").unwrap()).unwrap(), 2);
    assert_eq!(store.count(&Query::parse("body:nothing").unwrap()).unwrap(), 0);
    assert_eq!(read(&*store, kept), body);
    // One that was cut short.
    let other = kind.objects().join(files(kind.objects()).pop_first().unwrap());
    std::fs::write(other, "short").unwrap();
    assert!(store.body(kept, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).is_err());
}

#[test]
fn another_place_of_bodies_is_refused_while_there_are_some() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let config = RecordConfig::default();
    let store = kind.open(&config);
    let (id, _) = long(&store, "a.test", 1);
    store.flush().unwrap();
    let url = kind.database().url().parse().unwrap();
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let refused = |folder: Option<&tempfile::TempDir>| {
        let error = SharedStore::open(&url, access(folder), dir.path(), &config).err().unwrap().to_string();
        assert_eq!(SharedStore::open_read(&url, access(folder), dir.path()).err().unwrap().to_string(), error);
        error
    };
    let place = format!("file://{}", kind.objects().display());
    assert!(refused(None).contains(&format!("set record.objects = \"{place}\"")));
    let error = refused(Some(&other));
    assert!(error.contains(&place) && error.contains(&*other.path().to_string_lossy()), "{error}");
    // Once the last one is deleted, there may be another.
    store.delete(&[id]).unwrap();
    let moved = SharedStore::open(&url, access(Some(&other)), dir.path(), &config).unwrap();
    let _ = exchange(&moved.spool().unwrap().recorder().unwrap(), "b.test", "/", b"", &noise(9000, 2));
    moved.flush_to_database().unwrap();
    assert_eq!(files(other.path()).len(), 1);
    // A replica of before says why it cannot go on.
    let _ = long(&store, "c.test", 3);
    assert!(store.flush().unwrap_err().to_string().contains("another replica"));
}

#[test]
fn copies_take_bodies_and_certificates_along() {
    let Some(kind) = StoreKind::with_objects() else { return };
    let source = tempfile::tempdir().unwrap();
    let chain = CertificateChain::from_der([&noise(3_000, 1)[..], &noise(2_000, 2)]);
    let (flow, body) = {
        let store = SqliteStore::open(source.path(), &RecordConfig::default()).unwrap();
        let mut flow = flow("a.test");
        flow.client_tls = Some(Arc::new(ClientTls { certificates: chain.clone(), ..ClientTls::default() }));
        let mut capture = store.recorder().unwrap().begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
        capture.response(&flow, &response(200));
        let body = noise(700_000, 3);
        feed(&mut *capture, Direction::Response, &body);
        capture.finish(&flow, FlowOutcome::Complete);
        (flow, body)
    };
    let Some(folder) = kind.folder() else { panic!("it has objects") };
    let url = kind.database().url().parse().unwrap();
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    let source = SqliteStore::open_read(source.path()).unwrap();
    let counts = copy_to_shared(&source, &url, access(Some(folder)), go_on).unwrap();
    assert_eq!((counts.copied, counts.present), (1, 0));
    assert_eq!(copy_to_shared(&source, &url, access(Some(folder)), go_on).unwrap().present, 1);
    assert_eq!(files(kind.objects()).len(), 1);
    let (spool, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shared = SharedStore::open_read(&url, access(Some(folder)), spool.path()).unwrap();
    let back = SqliteStore::open(target.path(), &RecordConfig::default()).unwrap();
    assert_eq!(copy_from_shared(&shared, &back, go_on).unwrap().copied, 1);
    assert_eq!(read(&back, flow.id), body);
    assert_eq!(back.certificates(flow.id).unwrap(), [chain, None]);
}
