//! Damaged databases and rows: intact data stays accessible.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use interflow_archive::{ArchiveFormat, ReadableBodySource, exporter, for_each_readable};
use interflow_query::Query;
use interflow_store::*;
use interflow_types::Direction;
use interflow_types::units::ByteSize;

use super::*;

fn recorded(dir: &std::path::Path, flows: u64) -> Vec<Flow> {
    let store = SqliteStore::open(dir, &RecordConfig::default()).unwrap();
    let recorder = store.recorder().unwrap();
    (0..flows).map(|i| exchange(&recorder, "a.test", "/x", b"sent", &noise(5_000, i))).collect()
}

fn set_aside(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("damaged-")).collect()
}

#[test]
fn damaged_database_is_archived_and_recording_continues_with_a_new_one() {
    let header = |dir: &std::path::Path| {
        let file = std::fs::OpenOptions::new().write(true).open(dir.join("flows.db")).unwrap();
        file.write_all_at(&[0xEE; 64], 0).unwrap();
    };
    let schema = |dir: &std::path::Path| {
        let db = rusqlite::Connection::open(dir.join("flows.db")).unwrap();
        db.execute_batch("DROP TABLE details; DROP TABLE chunks;").unwrap();
    };
    let emptied = |dir: &std::path::Path| std::fs::write(dir.join("flows.db"), b"").unwrap();
    for damage in [&header as &dyn Fn(&std::path::Path), &schema, &emptied] {
        let dir = tempfile::tempdir().unwrap();
        recorded(dir.path(), 3);
        damage(dir.path());
        let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
        assert!(store.recovery().set_aside);
        let aside = set_aside(dir.path());
        assert_eq!(aside.len(), 1);
        assert!(aside[0].join("flows.db").exists() && aside[0].join("segments/00000001.seg").exists());
        let flow = exchange(&store.recorder().unwrap(), "b.test", "/", b"", &noise(5_000, 7));
        store.flush().unwrap();
        assert_eq!(store.stats().unwrap().flows, 1);
        assert!(store.get(flow.id).is_ok());
        assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
        drop(store);
        assert!(!SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap().recovery().set_aside);
    }
}

/// A store of 30 flows, of which four rows are damaged; and all its flows.
fn store_with_damaged_rows() -> (tempfile::TempDir, SqliteStore, Vec<Flow>) {
    let dir = tempfile::tempdir().unwrap();
    let flows = recorded(dir.path(), 30);
    {
        let db = rusqlite::Connection::open(dir.path().join("flows.db")).unwrap();
        // A truncated blob, missing details, an invalid chunk list, a column of another type.
        db.execute("UPDATE details SET detail = x'03ffff' WHERE seq = 3", []).unwrap();
        db.execute("DELETE FROM details WHERE seq = 5", []).unwrap();
        db.execute("UPDATE flows SET chunks = x'ff' WHERE seq = 7", []).unwrap();
        db.execute("UPDATE flows SET transport = 'x' WHERE seq = 9", []).unwrap();
    }
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    (dir, store, flows)
}

#[test]
fn damaged_rows_are_left_out_of_lists_and_counted_once() {
    let (_dir, store, _) = store_with_damaged_rows();
    let all = ListOptions { limit: 1000, ..ListOptions::default() };
    for _ in 0..2 {
        assert_eq!(store.list(&all).unwrap().len(), 26);
    }
    assert_eq!(store.damaged_flows(), 4);
    assert_eq!(store.stats().unwrap().damaged_flows, 4, "each is counted once");
}

#[test]
fn pages_are_full_although_some_rows_are_damaged() {
    let (_dir, store, _) = store_with_damaged_rows();
    // A short page means the end.
    for order in [ListOrder::Oldest, ListOrder::Newest] {
        let mut seen = 0;
        let mut after = None;
        loop {
            let page = store.list(&ListOptions { order, after, limit: 5, ..ListOptions::default() }).unwrap();
            seen += page.len();
            after = page.last().map(|r| r.id);
            if page.len() < 5 {
                break;
            }
        }
        assert_eq!(seen, 26);
    }
}

#[test]
fn a_search_of_bodies_passes_over_damaged_rows() {
    let (_dir, store, _) = store_with_damaged_rows();
    let mut found = 0;
    let each = &mut |_: FlowRecord| {
        found += 1;
        std::ops::ControlFlow::Continue(())
    };
    store.search(&Query::parse("body:sent").unwrap(), &|_| std::ops::ControlFlow::Continue(()), each).unwrap();
    assert_eq!(found, 26);
}

#[test]
fn flows_can_be_deleted_and_pruned_in_spite_of_damaged_rows() {
    let (_dir, store, flows) = store_with_damaged_rows();
    assert_eq!(store.delete(&[flows[0].id]).unwrap(), 1);
    assert!(store.prune(&Query::parse("host:a.test").unwrap()).unwrap() >= 25);
    assert!(store.stats().unwrap().suspended.is_none());
}

/// How many flows of an export are damaged, and the file.
fn exported(store: &SqliteStore, format: ArchiveFormat) -> (u64, Vec<u8>) {
    let mut out = Vec::new();
    let mut exporter = exporter(format, &mut out).unwrap();
    let go_on = || ControlFlow::Continue(());
    let (damaged, done) = for_each_readable(store, Query::all(), format.parts(false), &go_on, &mut |row, contents| {
        exporter.flow(row, contents)
    })
    .unwrap();
    done.unwrap();
    exporter.finish().unwrap();
    drop(exporter);
    (damaged, out)
}

#[test]
fn a_page_holds_short_bodies_up_to_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    let recorder = store.recorder().unwrap();
    exchange(&recorder, "a.test", "/long", b"sent", &noise((1 << 20) + 1, 99));
    (0..20).for_each(|i| drop(exchange(&recorder, "a.test", "/x", b"sent", &noise(1_000_000, i))));
    store.flush().unwrap();
    let page = ListOptions { order: ListOrder::Oldest, ..ListOptions::default() };
    let page = store.list_loaded(&page, FlowParts::All, &mut || ControlFlow::Continue(())).unwrap();
    let held = page.iter().flat_map(|flow| &flow.bodies).flatten().map(|bytes| bytes.len()).sum::<usize>();
    assert!((15 << 20..=16 << 20).contains(&held), "{held}");
    assert!(page.len() == 21 && page[0].bodies[0].is_some() && page[0].bodies[1].is_none());
    let (damaged, lines) = exported(&store, ArchiveFormat::Jsonl);
    assert_eq!((damaged, lines.iter().filter(|byte| **byte == b'\n').count()), (0, 21));
    let mut bodies = Vec::new();
    let mut take = |flow: FlowWithBodies| {
        bodies.push(flow.response_body.len());
        Ok(())
    };
    interflow_archive::import(None, &lines[..], &mut take).unwrap();
    assert_eq!((bodies[0], &bodies[1..]), ((1 << 20) + 1, &[1_000_000; 20][..]), "the others are read one by one");
}

#[test]
fn export_continues_after_a_damaged_body() {
    let dir = tempfile::tempdir().unwrap();
    let flows = recorded(dir.path(), 3);
    let place: (u64, u64) = {
        let db = rusqlite::Connection::open(dir.path().join("flows.db")).unwrap();
        db.query_row("SELECT offset, len FROM chunks ORDER BY id LIMIT 1 OFFSET 1", [], |r| Ok((r.get(0)?, r.get(1)?)))
            .unwrap()
    };
    let segment = std::fs::OpenOptions::new().write(true).open(dir.path().join("segments/00000001.seg")).unwrap();
    segment.write_all_at(b"damage", place.0 + place.1 - 20).unwrap();
    let store = SqliteStore::open_read(dir.path()).unwrap();
    for format in [
        ArchiveFormat::Har,
        ArchiveFormat::Jsonl,
        ArchiveFormat::Mitm,
        ArchiveFormat::Saz,
        ArchiveFormat::Fxzy,
        ArchiveFormat::Pcapng,
    ] {
        assert_eq!(exported(&store, format).0, 1, "{format}");
    }
    assert_eq!(exported(&store, ArchiveFormat::Parquet).0, 0, "without bodies none is read");
    let sound = ReadableBodySource::new(&store);
    let row = store.get(flows[1].id).unwrap();
    // Whether it was read along with the row or not.
    let page = ListOptions { order: ListOrder::Oldest, ..ListOptions::default() };
    let loaded = store.list_loaded(&page, FlowParts::All, &mut || ControlFlow::Continue(())).unwrap().swap_remove(1);
    assert_eq!((loaded.row.id, loaded.bodies[1].as_deref()), (row.id, Some(&b""[..])));
    for flow in [LoadedFlow::new(row, FlowParts::All), loaded] {
        let body = *sound.row(flow).unwrap().body(Direction::Response).unwrap();
        assert_eq!(body, BodyRecord::partial(5_000, 0, Some(MissingReason::Lost)));
    }
}

#[test]
fn what_is_sound_is_found_and_exported_although_a_segment_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let flows = recorded(dir.path(), 3);
    // Each in a segment of its own, after one that goes into the first.
    let small = RecordConfig { segment_bytes: ByteSize(1), ..RecordConfig::default() };
    let [_, sound] = ["a.test", "sound.test"].map(|host| {
        let store = SqliteStore::open(dir.path(), &small).unwrap();
        exchange(&store.recorder().unwrap(), host, "/", b"sent", &noise(9_000, 77 + host.len() as u64))
    });
    std::fs::remove_file(dir.path().join("segments/00000001.seg")).unwrap();
    let store = SqliteStore::open_read(dir.path()).unwrap();
    let lost = store.body(flows[1].id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX);
    assert!(matches!(&lost, Err(StoreError::Damaged { place, .. }) if place == "segment 1"), "{lost:?}");
    assert_eq!(exported(&store, ArchiveFormat::Har).0, 4);
    let sources = ReadableBodySource::new(&store);
    let row = store.get(sound.id).unwrap();
    assert_eq!(
        sources.row(LoadedFlow::new(row, FlowParts::All)).unwrap().body(Direction::Response).unwrap().kept,
        9_000
    );
    assert_eq!(store.count(&Query::parse("body:sent").unwrap()).unwrap(), 5);
}

#[test]
fn a_lost_database_is_reported_and_its_segments_are_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path(), 3);
    for name in ["flows.db", "flows.db-wal", "flows.db-shm"] {
        let _ = std::fs::remove_file(dir.path().join(name));
    }
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    assert!(store.recovery().set_aside);
    assert!(super::disk(&dir.path().join("segments")) < 1000);
    let aside = set_aside(dir.path());
    assert_eq!(aside.len(), 1);
    assert!(super::disk(&aside[0].join("segments")) > 15_000);
    exchange(&store.recorder().unwrap(), "a.test", "/", b"", b"again");
    store.flush().unwrap();
    assert_eq!(store.stats().unwrap().flows, 1);
}

#[test]
fn what_can_be_read_is_listed_whichever_page_of_the_database_is_damaged() {
    const PAGE: usize = 8192;
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path(), 300);
    let file = dir.path().join("flows.db");
    let sound = std::fs::read(&file).unwrap();
    let (mut lost, mut pages) = (0, 0);
    // The first page has the schema: without it, the file is not a database.
    for page in 1..sound.len() / PAGE {
        let mut damaged = sound.clone();
        damaged[page * PAGE..(page + 1) * PAGE].fill(0xff);
        std::fs::write(&file, &damaged).unwrap();
        let db = rusqlite::Connection::open(&file).unwrap();
        let readable = |seq: i64| {
            let read = |table: &str| {
                let text = format!("SELECT * FROM {table} WHERE seq = ?");
                db.query_row(&text, [seq], |row| {
                    (0..row.as_ref().column_count()).try_for_each(|i| row.get_ref(i).map(drop))
                })
            };
            let host = "SELECT h.name FROM flows f JOIN hosts h ON h.id = f.host WHERE f.seq = ?";
            read("flows").is_ok()
                && read("details").is_ok()
                && db.query_row(host, [seq], |row| row.get::<_, String>(0)).is_ok()
        };
        let expected = (1..=300).filter(|seq| readable(*seq)).count();
        let store = SqliteStore::open_read(dir.path()).unwrap();
        for order in [ListOrder::Newest, ListOrder::Oldest] {
            let all = ListOptions { order, limit: 1000, ..ListOptions::default() };
            let ids: Vec<_> = store.list(&all).unwrap().into_iter().map(|row| row.id).collect();
            assert!(ids.len() >= expected.min(300), "page {page}: {} of {expected}", ids.len());
            let read = ids.iter().filter(|id| store.get(**id).is_ok()).count();
            assert!(read >= expected, "page {page}: {read} of {expected} by their ids");
            assert!(ids.is_sorted_by(|a, b| if order == ListOrder::Newest { a > b } else { a < b }), "page {page}");
        }
        let mut found = 0;
        let query = Query::parse("method:GET OR method:POST").unwrap();
        let searched = store.search(&query, &|_| std::ops::ControlFlow::Continue(()), &mut |_| {
            found += 1;
            std::ops::ControlFlow::Continue(())
        });
        searched.unwrap();
        assert!(found >= expected, "page {page}: {found} of {expected}");
        lost += 300 - expected;
        pages += 1;
    }
    assert!(pages > 20 && lost > 0, "{pages} pages, {lost} rows lost");
}
