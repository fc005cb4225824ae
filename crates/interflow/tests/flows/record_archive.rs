//! `record.archive`: an instance writes closed hours to a bucket, waits for one that fails, and refuses one that is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use interflow_testkit::object_server::{ObjectServer, s3_error};
use interflow_types::{FlowId, Timestamp};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::*;

/// Flows of 2026-01-05, in two hours.
fn old_flows(home: &Home) -> BTreeSet<String> {
    let exported = home.flows(&["export", "--format", "jsonl", "-o", &home.path("now.jsonl")]);
    assert_eq!(exported.code, 0, "{exported:?}");
    let mut ids = BTreeSet::new();
    let mut text = String::new();
    for (i, line) in home.origin_file("now.jsonl").lines().enumerate() {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let started = 1_767_607_200_000_000 + i as u64 * 1_800_000_000;
        let id = FlowId::new(Timestamp::from_micros(started)).to_string();
        value["flow"]["id"] = id.clone().into();
        value["flow"]["started"] = started.into();
        ids.insert(id);
        text += &format!("{value}\n");
    }
    std::fs::write(home.path("old.jsonl"), text).unwrap();
    ids
}

/// A data directory with only old flows, and the settings of an archive in `place`.
async fn archived_to(place: &str, more: &str) -> (Home, BTreeSet<String>) {
    let filled = Home::filled().await;
    let ids = old_flows(&filled);
    let home = Home::new().await;
    home.flows(&["import", &filled.path("old.jsonl")]).ok();
    std::fs::write(home.path("interflow.toml"), format!("[record]\narchive = \"{place}\"\n{more}")).unwrap();
    (home, ids)
}

/// The flows of the archive with their partitions.
fn archived(objects: &BTreeMap<String, Bytes>) -> BTreeMap<String, String> {
    let mut flows = BTreeMap::new();
    for (name, bytes) in objects.iter().filter(|(name, _)| name.ends_with(".parquet")) {
        let reader = SerializedFileReader::new(bytes.clone()).unwrap();
        for row in reader.get_row_iter(None).unwrap().map(Result::unwrap) {
            let Field::Str(id) = row.get_column_iter().find(|(n, _)| *n == "id").unwrap().1.clone() else { panic!() };
            let partition = name.rsplit_once('/').unwrap().0.to_owned();
            assert!(flows.insert(id, partition).is_none(), "a flow is archived twice");
        }
    }
    flows
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_hours_reach_the_bucket_though_it_fails_at_first() {
    let failures = AtomicUsize::new(3);
    let server = ObjectServer::with_faults(move |_| {
        failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).ok()?;
        Some(s3_error(503, "SlowDown"))
    })
    .await;
    let (mut home, ids) = archived_to("s3://bucket/traffic", "").await;
    home.variables = server.variables();
    let running = home.start();
    until("the archive has every flow", || (archived(&server.objects()).len() == ids.len()).then_some(()));
    let flows = archived(&server.objects());
    assert_eq!(flows.keys().cloned().collect::<BTreeSet<_>>(), ids);
    let partitions: BTreeSet<_> = flows.values().map(String::as_str).collect();
    assert_eq!(
        partitions.into_iter().collect::<Vec<_>>(),
        ["traffic/date=2026-01-05/hour=10", "traffic/date=2026-01-05/hour=11"]
    );
    let status = home.command(&["status", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["archive"]["place"], "s3://bucket/traffic");
    let text = metrics(&home).await;
    for line in [format!("interflow_archive_flows_total {}", ids.len()), "interflow_archive_up 1".to_owned()] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    let shown: Said = home.command(&["status"]).output().unwrap().into();
    assert!(shown.ok().contains("archive    s3://bucket/traffic, 4 flows up to 20"));
    let doctor: Said = home.command(&["doctor", "--json"]).output().unwrap().into();
    let findings: Value = serde_json::from_str(&doctor.out).unwrap();
    let finding = findings.as_array().unwrap().iter().find(|f| f["what"] == "archive").unwrap();
    assert_eq!(finding["state"], "good", "{finding}");
    // A command continues where the instance is.
    let again: Said = home.command(&["record", "archive"]).output().unwrap().into();
    assert_eq!(again.ok(), "nothing new for s3://bucket/traffic\n");
    running.stop();
    assert!(server.objects().keys().all(|name| name.ends_with(".parquet")), "no probe is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_archives_are_refused_at_start_with_the_remedy() {
    let server = ObjectServer::start().await;
    for (place, more, said) in [
        ("s3://other", "", "the bucket does not exist"),
        ("ftp://x", "", "write s3://bucket/prefix"),
        ("s3://k:hush@bucket", "", "come from the environment"),
        ("s3://bucket", "archive_file_bytes = 1\n", "record.archive_file_bytes"),
    ] {
        let mut home = Home::new().await;
        home.variables = server.variables();
        std::fs::write(home.path("interflow.toml"), format!("[record]\narchive = \"{place}\"\n{more}")).unwrap();
        let run = ["run", "--listen-proxy", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0"];
        let refused: Said = home.command(&run).stdin(Stdio::null()).output().unwrap().into();
        assert!(refused.code != 0 && refused.err.contains(said), "{place}: {refused:?}");
        assert!(!refused.err.contains("hush"), "{refused:?}");
        let checked: Said = home.command(&["config", "check"]).output().unwrap().into();
        // A missing bucket is found by asking for it.
        assert_eq!(checked.code == 0, place == "s3://other", "{checked:?}");
    }
    let home = Home::new().await;
    std::fs::write(home.path("interflow.toml"), "[record]\narchive_before_delete = true\n").unwrap();
    let checked: Said = home.command(&["config", "check"]).output().unwrap().into();
    assert!(checked.fails(1).contains("set record.archive too"));
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_is_written_by_hand_to_a_folder() {
    let home = Home::filled().await;
    let place = format!("file://{}", home.path("archive"));
    let missing: Said = home.command(&["record", "archive"]).output().unwrap().into();
    assert!(missing.fails(2).contains("set record.archive"));
    let run = |args: &[&str]| -> Said {
        home.command(&[&["record", "archive", "--to", &place], args].concat()).output().unwrap().into()
    };
    assert!(run(&[]).ok().contains("nothing new"), "the hour is not over");
    // Flows of the last second are left to the next run.
    until("every flow is archived", || {
        run(&["--now", "--json"]).ok();
        let objects = walk(Path::new(&home.path("archive")));
        (archived(&objects).len() == 4).then_some(())
    });
    assert!(run(&["--now"]).ok().contains("nothing new"));
}

async fn metrics(home: &Home) -> String {
    let instance: Value = serde_json::from_str(&home.origin_file("instance.json")).unwrap();
    let admin = instance["admin"].as_str().unwrap();
    let token: Said = home.command(&["token"]).output().unwrap().into();
    let mut wire = Wire::connect(admin.parse::<SocketAddr>().unwrap()).await.unwrap();
    let token = token.ok();
    let head = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {}\r\n\r\n", token.trim());
    wire.send(head).await.unwrap();
    wire.answer().await.unwrap().text()
}

/// The files of a folder by name.
fn walk(folder: &Path) -> BTreeMap<String, Bytes> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(walk(&path)),
            false => drop(found.insert(path.display().to_string(), std::fs::read(path).unwrap().into())),
        }
    }
    found
}
