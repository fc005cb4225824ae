//! Recovery after a kill, a full disk and damaged files.

use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interflow_store::*;
use interflow_types::Direction;

use super::*;

/// The example that records until it is killed; cargo builds examples before it runs these tests.
fn recorder_program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/record_forever");
    assert!(program.exists(), "run `cargo test -p interflow-store`, which builds {}", program.display());
    program
}

/// Kills its child process when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn written(line: &str) -> Option<u64> {
    line.strip_prefix("written ").and_then(|n| n.parse().ok())
}

fn body(i: u64) -> Vec<u8> {
    let mut out = b"the same beginning of every body, again and again. ".repeat(600);
    out.extend(noise(2_000 + (i % 50) as usize * 700, i));
    out
}

#[test]
fn kill_9_under_load_loses_at_most_the_last_batch() {
    let dir = tempfile::tempdir().unwrap();
    let mut promised = Vec::new();
    for round in 0..3 {
        let child = Command::new(recorder_program()).arg(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = Killed(child);
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut last = 0;
        for line in lines.map_while(Result::ok) {
            last = written(&line).unwrap();
            if last >= 300 + round * 90 {
                break;
            }
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        promised.push(last);

        let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
        assert!(store.recovery().unclean);
        assert_eq!(store.recovery().damaged_flows, 0);
        let report = store.check(&mut |_, _| ()).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        let rows = store.list(&ListOptions { limit: usize::MAX, ..ListOptions::default() }).unwrap();
        for last in &promised {
            for i in 0..=*last {
                let path = format!("/{i}");
                let same = rows.iter().filter(|r| r.request.as_ref().unwrap().path == path).count();
                assert!(same >= promised.iter().filter(|l| **l >= i).count(), "flow {i} was promised and is not there");
            }
        }
        for row in rows.iter().step_by(17) {
            let i: u64 = row.request.as_ref().unwrap().path[1..].parse().unwrap();
            let back = store.body(row.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap();
            assert_eq!(back, body(i), "flow {i}");
        }
    }
}

#[test]
fn a_flow_that_was_cut_off_took_as_long_as_a_query_says() {
    let dir = tempfile::tempdir().unwrap();
    let open = |dir: &Path| SqliteStore::open(dir, &RecordConfig::default()).unwrap();
    let store = open(dir.path());
    let mut running = flow("a.test");
    std::thread::sleep(Duration::from_millis(20));
    running.timings.first_byte = Some(10);
    let mut capture = store.recorder().unwrap().begin(&running, Some(&request(&running, "GET", "/"))).unwrap();
    capture.response(&running, &response(200));
    let dropped = flow("b.test");
    std::thread::sleep(Duration::from_millis(20));
    drop(store.recorder().unwrap().begin(&dropped, Some(&request(&dropped, "GET", "/"))).unwrap());
    store.flush().unwrap();
    let killed = shipping::killed_copy(dir.path());
    drop(store);
    for dir in [dir.path(), killed.path()] {
        let store = open(dir);
        for id in [running.id, dropped.id] {
            let took = store.get(id).unwrap().duration().unwrap();
            assert!(took >= 20_000, "{took}");
            let same = interflow_query::Query::parse(&format!("id:{id} is:cut dur:{took}us")).unwrap();
            assert_eq!(store.count(&same).unwrap(), 1, "{took}");
        }
    }
    drop(capture);
}

#[test]
fn a_full_disk_suspends_recording_until_space_is_available() {
    let dir = tempfile::tempdir().unwrap();
    // A file size limit simulates the full disk: writes beyond it fail, and the limit can be lifted.
    let script = "trap '' XFSZ; ulimit -S -f 1500; exec \"$0\" \"$1\"";
    let child = Command::new("sh")
        .args(["-c", script])
        .arg(recorder_program())
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let last = lines.by_ref().take_while(|l| !l.starts_with("suspended")).filter_map(|l| written(&l)).last();
    assert!(last.is_some(), "nothing was written before the disk was full");
    let lifted =
        Command::new("prlimit").args(["--pid", &child.0.id().to_string(), "--fsize=unlimited"]).status().unwrap();
    assert!(lifted.success());
    let start = Instant::now();
    let resumed = lines.by_ref().find_map(|l| written(&l));
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(resumed > last, "{resumed:?} {last:?}");
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    let report = store.check(&mut |_, _| ()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let path = interflow_query::Query::parse(&format!("path:/{}", resumed.unwrap())).unwrap();
    assert!(store.count(&path).unwrap() >= 1);
}

#[test]
fn damaged_bytes_are_found_by_reads_and_by_check() {
    let dir = tempfile::tempdir().unwrap();
    let config = RecordConfig::default();
    let (good, bad) = {
        let store = SqliteStore::open(dir.path(), &config).unwrap();
        let recorder = store.recorder().unwrap();
        let good = exchange(&recorder, "a.test", "/", b"", &noise(5_000, 1));
        store.flush().unwrap();
        (good, exchange(&recorder, "a.test", "/", b"", &noise(5_000, 2)))
    };
    let segment = dir.path().join("segments/00000001.seg");
    let len = std::fs::metadata(&segment).unwrap().len();
    let mut file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.seek(SeekFrom::Start(len - 100)).unwrap();
    file.write_all(b"damage").unwrap();
    drop(file);

    let store = SqliteStore::open_read(dir.path()).unwrap();
    let read = |f: &Flow| store.body(f.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX);
    assert_eq!(read(&good).unwrap(), noise(5_000, 1));
    assert!(matches!(read(&bad), Err(StoreError::Damaged { .. })));
    let report = store.check(&mut |_, _| ()).unwrap();
    assert_eq!((report.flows, report.chunks, report.problem_count), (2, 2, 2));
    assert!(report.problems.iter().any(|p| p.contains(&bad.id.to_string())), "{:?}", report.problems);
    drop(store);

    // After an unclean shutdown the newest segment is read in full, and the flow is marked as having lost its body.
    std::fs::write(dir.path().join("writing"), b"").unwrap();
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    assert_eq!(store.recovery().damaged_flows, 1);
    let body = store.get(bad.id).unwrap().response.unwrap().body;
    assert_eq!(body, BodyRecord::partial(5_000, 0, Some(MissingReason::Lost)));
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}

#[test]
fn incomplete_batch_is_truncated_on_open() {
    let dir = tempfile::tempdir().unwrap();
    let config = RecordConfig::default();
    drop(SqliteStore::open(dir.path(), &config).unwrap());
    let segment = dir.path().join("segments/00000001.seg");
    std::fs::OpenOptions::new().append(true).open(&segment).unwrap().write_all(&[7; 1234]).unwrap();
    std::fs::write(dir.path().join("writing"), b"").unwrap();
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    assert_eq!((store.recovery().unclean, store.recovery().cut_bytes), (true, 1234));
    let flow = exchange(&store.recorder().unwrap(), "a.test", "/", b"", &noise(9_000, 5));
    store.flush().unwrap();
    assert!(store.get(flow.id).is_ok());
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}
