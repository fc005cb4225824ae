//! `record.archive` of replicas with one database: one of them archives, another one continues when it is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_testkit::object_server::{ObjectServer, s3_error};
use interflow_testkit::{Origin, until};
use interflow_types::{FlowId, Timestamp};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use crate::replica::Replica;
use crate::store::{database, instances, send, start, start_with, stored};

/// 2026-01-05T10:00:00Z, and microseconds from one flow to the next.
const BEGAN: u64 = 1_767_607_200_000_000;
const STEP: u64 = 120_000_000;

/// Imports copies of a recorded flow, as if they had been recorded long ago; returns their ids.
fn import(replica: &Replica, numbers: std::ops::Range<u64>) -> BTreeSet<String> {
    let exported = replica.cli(&["flows", "export", "--format", "jsonl", "path:/now/0"]);
    let flow: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    let (mut ids, mut text) = (BTreeSet::new(), String::new());
    for number in numbers {
        let started = BEGAN + number * STEP;
        let id = FlowId::new(Timestamp::from_micros(started)).to_string();
        let mut copy = flow.clone();
        copy["flow"]["id"] = id.clone().into();
        copy["flow"]["started"] = started.into();
        text += &format!("{copy}\n");
        ids.insert(id);
    }
    let file = replica.home.path().join("old.jsonl");
    std::fs::write(&file, text).unwrap();
    replica.cli(&["flows", "import", file.to_str().unwrap()]);
    ids
}

/// The flows of all files; `None` if one is there twice, as while files are being merged.
fn archived(objects: &BTreeMap<String, Bytes>) -> Option<BTreeSet<String>> {
    let mut flows = BTreeSet::new();
    for bytes in objects.iter().filter(|(name, _)| name.ends_with(".parquet")).map(|(_, bytes)| bytes) {
        let reader = SerializedFileReader::new(bytes.clone()).unwrap();
        for row in reader.get_row_iter(None).unwrap().map(Result::unwrap) {
            let Field::Str(id) = row.get_column_iter().find(|(n, _)| *n == "id").unwrap().1.clone() else { panic!() };
            if !flows.insert(id) {
                return None;
            }
        }
    }
    Some(flows)
}

fn hours(objects: &BTreeMap<String, Bytes>) -> BTreeSet<&str> {
    let files = objects.keys().filter(|name| name.ends_with(".parquet"));
    files.filter_map(|name| name.rsplit_once('/')).map(|(hour, _)| hour).collect()
}

fn archive_finding(replica: &Replica) -> Value {
    let findings = replica.command(&["doctor", "--json"]).output().unwrap();
    let findings: Value = serde_json::from_slice(&findings.stdout).unwrap();
    findings.as_array().unwrap().iter().find(|f| f["what"] == "archive").unwrap().clone()
}

/// The name of a replica in the list of instances.
fn own_name(replica: &Replica) -> String {
    let own = instances(replica).into_iter().find(|i| i["own"] == true).unwrap();
    own["name"].as_str().unwrap().to_owned()
}

/// Which of the replicas archives, by what both say.
fn archiving(replicas: &[Replica; 2]) -> Option<usize> {
    let of = |replica: &Replica| {
        let list = instances(replica);
        let own = list.iter().find(|i| i["own"] == true)?;
        (list.iter().filter(|i| i["archives"] == true).count() == 1).then(|| own["archives"] == true)
    };
    match (of(&replicas[0])?, of(&replicas[1])?) {
        (true, false) => Some(0),
        (false, true) => Some(1),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hours_are_archived_once_though_the_replica_that_does_it_is_killed() {
    let Some(database) = database() else { return };
    let origin = Origin::http().start().await;
    // The storage takes three files, and then fails until it is told otherwise.
    let (taken, fails) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (count, failing) = (Arc::clone(&taken), Arc::clone(&fails));
    let server = ObjectServer::with_faults(move |request| {
        let is_file = request.method == "PUT" && request.target.contains(".parquet");
        (is_file && failing.load(SeqCst) && count.fetch_add(1, SeqCst) >= 3).then(|| s3_error(503, "SlowDown"))
    })
    .await;

    // Five hours of flows, recorded by a replica that does not archive.
    let first = start(&database.url());
    send(first.proxy, &origin, "now", 0..1).await;
    let mut expected = import(&first, 0..150);
    until("all flows are in the database", || (stored(&database, "/now/").0 == 151).then_some(()));
    drop(first);

    let more = "archive = \"s3://bucket/traffic\"\n";
    let mut replicas = [(); 2].map(|()| start_with(&database.url(), more, server.variables()));
    until("the storage has failed", || (taken.load(SeqCst) > 4).then_some(()));
    let killed = until("one replica archives", || archiving(&replicas));
    replicas[killed].kill();
    assert_eq!(hours(&server.objects()).len(), 3, "in the middle");
    let died = Instant::now();
    fails.store(false, SeqCst);
    until("the other replica archives all", || (archived(&server.objects()).as_ref() == Some(&expected)).then_some(()));
    // Ten seconds until the right ends, two until it is taken, and the machine is busy.
    assert!(died.elapsed() < Duration::from_secs(40), "{:?}", died.elapsed());
    assert_eq!(hours(&server.objects()).len(), 5);
    let names = server.objects().into_keys().collect::<Vec<_>>();
    assert!(names.iter().any(|name| name.contains(".2-")), "a file of the successor: {names:?}");

    // Who archives is said at both, and by the diagnosis.
    replicas[killed].run();
    let status = |replica: &Replica| replica.json(&["status", "--format", "json"])["archive"].clone();
    let other = &replicas[1 - killed];
    let own = own_name(other);
    until("both replicas say who archives", || {
        replicas.iter().all(|r| status(r)["replica"] == *own && status(r)["flows"] == 150).then_some(())
    });
    assert_eq!(archiving(&replicas), Some(1 - killed));
    let finding = archive_finding(&replicas[killed]);
    assert!(finding["state"] == "good" && finding["text"].as_str().unwrap().contains(&own), "{finding}");
    let shown = other.cli(&["status"]);
    assert!(shown.contains(&format!(", by {own}")), "{shown}");

    // Flows that come late by either replica, and by a command that archives at once.
    expected.extend(import(&replicas[killed], 150..160));
    expected.extend(import(other, 0..10));
    until("late flows are in the database", || (stored(&database, "/now/").0 == 171).then_some(()));
    let said = until("a command takes an idle replica's turn", || {
        let done = replicas[killed].command(&["record", "archive"]).output().unwrap();
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap())
    });
    assert!(said.starts_with("20 flows in ") || said.starts_with("nothing new"), "{said}");
    until("late flows are archived, with one file for each hour", || {
        (archived(&server.objects()).as_ref() == Some(&expected) && server.objects().len() == 6).then_some(())
    });
    assert!(server.objects().keys().all(|name| name.ends_with(".parquet")), "nothing else is left");

    // A replica that stops leaves its turn to the other at once.
    let stopped = until("a replica archives again", || archiving(&replicas));
    let name = own_name(&replicas[stopped]);
    replicas[stopped].stop();
    let left = &replicas[1 - stopped];
    assert_eq!(database.sql(&format!("SELECT count(*) FROM interflow.archives WHERE holder = '{name}'")), "0");
    until("the other one archives", || {
        instances(left).iter().any(|i| i["own"] == true && i["archives"] == true).then_some(())
    });
}
