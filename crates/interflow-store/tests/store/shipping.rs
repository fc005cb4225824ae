//! Flows on their way from the spool to PostgreSQL: each arrives once and whole, whatever is there already.

use std::path::Path;

use interflow_fleet::SharedStore;
use interflow_store::*;
use interflow_testkit::{PostgresDatabase, PostgresServer};
use interflow_types::FlowId;

use super::fixture::access;
use super::*;

fn open(database: &PostgresDatabase, dir: &Path) -> SharedStore {
    SharedStore::open(&database.url().parse().unwrap(), access(None), dir, &RecordConfig::default()).unwrap()
}

/// A flow with this id, as any replica has it, and a message.
fn new_flow(id: FlowId, body: &[u8]) -> FlowWithBodies {
    let started = Timestamp::from_micros(id.unix_millis() * 1000);
    let mut row = FlowRecord::new(id, started, EntryKind::Connect, Scheme::Https, "a.test:443".parse().unwrap());
    row.state = FlowState::Complete;
    let body_row = BodyRecord::whole(body.len() as u64);
    row.request =
        Some(RequestRecord { method: "GET".into(), path: "/".into(), body: body_row, ..RequestRecord::default() });
    let kind = interflow_types::MessageKind::Text;
    let message = MessageRecord {
        index: 0,
        direction: Direction::Response,
        kind,
        at: started,
        size: 2,
        payload: Bytes::from_static(b"hi"),
    };
    FlowWithBodies {
        row,
        request_body: Bytes::copy_from_slice(body),
        response_body: Bytes::new(),
        original_bodies: Default::default(),
        messages: vec![message],
        certificates: Default::default(),
    }
}

fn body(store: &SharedStore, id: FlowId, direction: Direction) -> Vec<u8> {
    store.body(id, direction, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap().to_vec()
}

fn assert_rows(database: &PostgresDatabase, flows: usize, bodies: usize, messages: usize) {
    let counts = "SELECT (SELECT count(*) FROM interflow.flows), (SELECT count(*) FROM interflow.bodies), \
         (SELECT count(*) FROM interflow.messages)";
    assert_eq!(database.sql(counts), format!("{flows}|{bodies}|{messages}"));
}

/// Copies the files of a spool, as they are when its process is killed.
pub fn killed_copy(dir: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.path().is_dir() {
                copy(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }
    let target = tempfile::tempdir().unwrap();
    copy(dir, target.path());
    target
}

#[test]
fn a_batch_with_flows_that_are_there_already_is_stored_without_them() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, two] = dirs.each_ref().map(|dir| open(&database, dir.path()));
    let ids: Vec<_> = (0..4).map(|_| FlowId::new(Timestamp::now())).collect();
    // Another body under the same id: what is there first stays.
    one.insert(new_flow(ids[1], &noise(9000, 1))).unwrap();
    one.insert(new_flow(ids[2], b"short")).unwrap();
    one.flush_to_database().unwrap();
    let long = noise(9000, 7);
    for id in &ids {
        two.spool().unwrap().insert(new_flow(*id, &long)).unwrap();
    }
    two.flush_to_database().unwrap();
    assert_eq!(two.waiting_flows().unwrap(), 0);
    assert_eq!(two.stats().unwrap().shared.unwrap().stuck_flows, 0);
    assert_eq!(two.count(&interflow_query::Query::all()).unwrap(), 4);
    for (id, expected) in ids.iter().zip([&long, &noise(9000, 1), &b"short".to_vec(), &long]) {
        assert_eq!(body(&two, *id, Direction::Request), *expected);
        assert_eq!(two.messages(*id, 0..9).unwrap().len(), 1);
    }
    // What comes next is not a repetition.
    two.insert(new_flow(FlowId::new(Timestamp::now()), &long)).unwrap();
    two.flush_to_database().unwrap();
    assert_rows(&database, 5, 5, 5);
}

#[test]
fn what_an_earlier_process_left_is_stored_once_although_it_was_sent() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let dir = tempfile::tempdir().unwrap();
    let store = open(&database, dir.path());
    database.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON interflow.flows FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let recorder = store.spool().unwrap().recorder().unwrap();
    let flows: Vec<_> =
        (0..30).map(|n| exchange(&recorder, "a.test", "/", b"short", &noise(3000 + n as usize * 300, n)).id).collect();
    assert!(store.flush_to_database().unwrap_err().to_string().contains("not now"));
    assert_rows(&database, 0, 0, 0);
    let copied = killed_copy(dir.path());
    database.sql("DROP TRIGGER refuse ON interflow.flows");
    // The last attempt before that may still be heard of.
    while store.flush_to_database().is_err() {}
    let bodies = (0..30).filter(|n| 3000 + n * 300 > 4096).count();
    assert_rows(&database, 30, bodies, 0);
    // As if its removal from the spool had been cut off by the end of the process.
    let again = open(&database, copied.path());
    assert_eq!(again.waiting_flows().unwrap(), 30);
    exchange(&again.spool().unwrap().recorder().unwrap(), "b.test", "/", b"", &noise(9000, 99));
    again.flush_to_database().unwrap();
    assert_eq!(again.waiting_flows().unwrap(), 0);
    assert_rows(&database, 31, bodies + 1, 0);
    for (n, id) in flows.iter().enumerate() {
        assert_eq!(body(&again, *id, Direction::Response), noise(3000 + n * 300, n as u64));
    }
}

#[test]
fn a_flow_that_a_killed_process_had_not_finished_is_moved_with_all_that_was_saved_of_it() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let dir = tempfile::tempdir().unwrap();
    let store = open(&database, dir.path());
    let recorder = store.spool().unwrap().recorder().unwrap();
    let mut running = Vec::new();
    for len in [100, 2000, 10_000, 700_000] {
        let flow = flow("a.test");
        let mut capture = recorder.begin(&flow, Some(&request(&flow, "POST", "/"))).unwrap();
        capture.response(&flow, &response(200));
        feed(&mut *capture, Direction::Response, &noise(len, len as u64));
        running.push((flow.id, len, capture));
    }
    store.spool().unwrap().flush().unwrap();
    let copied = killed_copy(dir.path());
    let again = open(&database, copied.path());
    again.flush_to_database().unwrap();
    assert_eq!(again.waiting_flows().unwrap(), 0);
    assert_eq!(database.sql("SELECT count(*) FROM interflow.flows WHERE state = 3"), "4");
    // What is stored apart is not in the row as well.
    assert_eq!(database.sql("SELECT max(octet_length(detail)) < 3000 FROM interflow.flows"), "t");
    for (id, len, _) in &running {
        assert_eq!(body(&again, *id, Direction::Response), noise(*len, *len as u64), "{len} bytes");
    }
}

#[test]
fn equal_bodies_are_read_once_and_stored_with_each_flow() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let dir = tempfile::tempdir().unwrap();
    let store = open(&database, dir.path());
    let recorder = store.spool().unwrap().recorder().unwrap();
    // In the row, apart, and in more than one piece.
    let bodies = [noise(2000, 1), noise(8192, 2), b"text that is compressed ".repeat(2000), noise(1_200_000, 3)];
    let flows: Vec<_> = (0..24)
        .map(|n| (n % bodies.len(), exchange(&recorder, "a.test", "/", &bodies[1], &bodies[n % bodies.len()]).id))
        .collect();
    store.flush_to_database().unwrap();
    for (n, id) in flows {
        assert_eq!(body(&store, id, Direction::Request), bodies[1]);
        assert_eq!(body(&store, id, Direction::Response), bodies[n]);
    }
}
