//! The archive of a shared store: one replica at a time writes it, and whoever takes over neither loses nor repeats a flow.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use interflow_fleet::hourly::{
    ArchiveCursor, ArchiveError, ArchiveOptions, ArchivedFlows, ArchivedRecord, HourlyArchive,
};
use interflow_fleet::objects::{ObjectAccess, ObjectStorage, ObjectUrl};
use interflow_fleet::{
    ArchiveClaim, ArchiveLease, ArchiveTurn, BoxedStream, PostgresTls, SharedAccess, SharedStore, TlsClient,
    TlsHandshake,
};
use interflow_store::{FlowStore as _, RecordConfig};
use interflow_testkit::{PostgresDatabase, PostgresServer};
use interflow_types::{FlowId, Timestamp};
use sha2::{Digest, Sha256};

use super::exchange;
use super::hourly::{CLOSED, HOUR, NoClient, TEN, files, rows};

struct Fixture {
    folder: tempfile::TempDir,
    database: PostgresDatabase,
}

/// One replica: its store, and its turn to archive.
struct Replica {
    store: SharedStore,
    turn: ArchiveTurn,
    dir: PathBuf,
}

struct PlainOnly;

impl TlsClient for PlainOnly {
    fn handshake(&self, _: &str, _: BoxedStream) -> TlsHandshake {
        Box::pin(async { Err(std::io::Error::other("no TLS is expected")) })
    }
}

fn plain_only(_: &PostgresTls) -> Result<Arc<dyn TlsClient>, String> {
    Ok(Arc::new(PlainOnly))
}

/// Access to the server of these tests, whose bodies are in the database.
fn access() -> SharedAccess {
    SharedAccess { tls: plain_only, objects: None, row_key: None }
}

impl Fixture {
    fn new() -> Option<Self> {
        let database = PostgresServer::shared()?.database();
        Some(Self { folder: tempfile::tempdir().unwrap(), database })
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("archive")
    }

    fn url(&self) -> ObjectUrl {
        format!("file://{}", self.place().display()).parse().unwrap()
    }

    fn replica(&self, name: &str) -> Replica {
        let dir = self.folder.path().join(name);
        let keep = RecordConfig { retention_age: "0s".parse().unwrap(), ..RecordConfig::default() };
        let store = SharedStore::open(&self.database.url().parse().unwrap(), access(), &dir, &keep).unwrap();
        let turn = store.archive_turn(&self.url().to_string());
        Replica { store, turn, dir }
    }

    fn run(
        &self,
        replica: &Replica,
        lease: &ArchiveLease,
        now: u64,
        each: &mut dyn FnMut(&ArchiveCursor) -> bool,
    ) -> Result<ArchivedFlows, ArchiveError> {
        let storage = ObjectStorage::open(&self.url(), &ObjectAccess::from_env(Arc::new(NoClient))).unwrap();
        let options = ArchiveOptions { bodies: true, file_bytes: 64 << 20 };
        let record = ArchivedRecord::Shared { store: &replica.store, lease };
        let archive = HourlyArchive { record, dir: &replica.dir, storage: &storage, options };
        archive.run(Timestamp::from_micros(now), CLOSED, each)
    }

    /// As a replica does when it has the turn.
    fn archive(&self, replica: &Replica, now: u64) -> ArchivedFlows {
        assert!(replica.turn.claim(ArchiveClaim::Free).unwrap(), "the turn is free");
        let lease = replica.turn.begin().unwrap().unwrap();
        self.run(replica, &lease, now, &mut |_| true).unwrap()
    }

    /// As if the process that archives had been dead for as long as the others wait.
    fn expire(&self) {
        self.database.sql("UPDATE interflow.archives SET expires = now() - interval '1 second'");
    }

    fn names(&self) -> Vec<String> {
        files(&self.place()).iter().map(|f| f.strip_prefix(self.place()).unwrap().display().to_string()).collect()
    }
}

impl Replica {
    /// Records a flow that began at this time; returns its id with the digest of its body.
    fn add(&self, micros: u64, body: &[u8]) -> (String, String) {
        let mut flow = exchange("POST", "/a?b=c", &[("Host", "h")], body, b"{}");
        flow.row.started = Timestamp::from_micros(micros);
        flow.row.id = FlowId::new(flow.row.started);
        let id = flow.row.id;
        assert!(self.store.insert(flow).unwrap());
        (id.to_string(), hex::encode(Sha256::digest(body)))
    }
}

fn digests(fixture: &Fixture) -> BTreeMap<String, String> {
    rows(&fixture.place()).into_iter().map(|(id, (_, digest))| (id, digest)).collect()
}

#[test]
fn a_replica_continues_where_another_one_died() {
    let Some(fixture) = Fixture::new() else { return };
    let (one, two) = (fixture.replica("one"), fixture.replica("two"));
    let mut sent = BTreeMap::new();
    for i in 0..300_u64 {
        // Some bodies are in their rows, some in pieces of their own.
        let body = format!("body {i} {}", "x".repeat((i * 37 % 9000) as usize));
        let replica = if i % 2 == 0 { &one } else { &two };
        sent.extend([replica.add(TEN + i * 50_000_000, body.as_bytes())]);
    }
    one.store.flush_to_database().unwrap();
    two.store.flush_to_database().unwrap();
    assert!(one.turn.claim(ArchiveClaim::Free).unwrap());
    assert!(!two.turn.claim(ArchiveClaim::Free).unwrap(), "one at a time");
    let now = TEN + 6 * HOUR;
    let dead = one.turn.begin().unwrap().unwrap();
    assert!(!two.turn.claim(ArchiveClaim::Idle).unwrap(), "it writes");
    let mut steps = 0;
    fixture
        .run(&one, &dead, now, &mut |_| {
            steps += 1;
            steps < 2
        })
        .unwrap();
    let first = digests(&fixture).len();
    assert!(first > 0 && first < 300, "{first} flows");
    // Written, but not noted any more when it died.
    let unnoted = fixture.place().join("date=2026-11-20/hour=13");
    std::fs::create_dir_all(&unnoted).unwrap();
    let (from, names) = (&files(&fixture.place())[0], fixture.names());
    let own = names[0].rsplit_once('/').unwrap().1;
    assert!(own.contains(".1-"), "the epoch is in the name: {own}");
    std::fs::copy(from, unnoted.join(own)).unwrap();

    fixture.expire();
    let done = fixture.archive(&two, now);
    assert_eq!(done.flows as usize, 300 - first);
    assert_eq!(digests(&fixture), sent);
    let state = two.store.archive_state(&fixture.url().to_string()).unwrap();
    assert_eq!(state.holder.as_deref(), Some(two.turn.name()));
    let progress = ArchiveCursor::from_database(state.cursor.as_deref(), &fixture.url()).unwrap().progress();
    assert_eq!((progress.flows, progress.files), (300, 5), "both counted");

    // The dead one wakes up: it must not store its progress, nor touch the files.
    let names = fixture.names();
    let refused = fixture.run(&one, &dead, now + HOUR, &mut |_| true);
    assert!(matches!(refused, Err(ArchiveError::TakenOver)), "{refused:?}");
    assert!(one.turn.begin().unwrap().is_none());
    assert_eq!(fixture.names(), names);
}

#[test]
fn late_flows_follow_in_the_order_of_their_arrival() {
    let Some(fixture) = Fixture::new() else { return };
    let (one, two) = (fixture.replica("one"), fixture.replica("two"));
    let mut sent: BTreeMap<_, _> = (0..2).map(|hour| one.add(TEN + hour * HOUR, b"in time")).collect();
    one.store.flush_to_database().unwrap();
    assert_eq!(fixture.archive(&one, TEN + 3 * HOUR).flows, 2);
    // As of a replica whose database did not answer: long ago by their time, but nobody has seen them yet.
    for i in 0..600 {
        sent.extend([two.add(TEN + i * 10_000_000, format!("late {i}").as_bytes())]);
    }
    two.store.flush_to_database().unwrap();
    assert_eq!(fixture.archive(&one, TEN + 3 * HOUR).flows, 600);
    assert_eq!(fixture.archive(&one, TEN + 3 * HOUR), ArchivedFlows::default());
    assert_eq!(digests(&fixture), sent);
    assert_eq!(fixture.names().len(), 2, "merged: {:?}", fixture.names());

    one.turn.resign().unwrap();
    sent.extend([two.add(TEN + 1, b"later still")]);
    two.store.flush_to_database().unwrap();
    assert_eq!(fixture.archive(&two, TEN + 4 * HOUR).flows, 1);
    assert_eq!(digests(&fixture), sent);
    assert!(fixture.names().iter().any(|name| name.contains(".2-")), "of the second epoch: {:?}", fixture.names());
}
