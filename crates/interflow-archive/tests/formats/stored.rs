//! Import into and export from a store.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::sleep;
use std::time::Duration;

use interflow_archive::{
    ArchiveFormat, BodySource, ExportOptions, FlowExporter, ReadableBodySource, StoreBodySource, exporter,
    exporter_with, for_each_readable, import,
};
use interflow_query::Query;
use interflow_store::{
    BodyRecord, FlowParts, FlowRecord, FlowStore, FlowWithBodies, ListOptions, LoadedFlow, MessageRecord,
    MissingReason, RecordConfig, SqliteStore, StoreError,
};
use interflow_types::{Direction, FlowId};

use super::jsonl::edited;
use super::{exchange, export, imported, samples, web_socket};

fn filled(flows: &[FlowWithBodies]) -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let config = RecordConfig { mask_headers: Vec::new(), ..RecordConfig::default() };
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    let report = import(None, &*export(ArchiveFormat::Jsonl, flows), &mut |flow| {
        assert!(store.insert(flow).map_err(std::io::Error::other)?);
        Ok(())
    });
    assert_eq!(report.unwrap().flows, flows.len() as u64);
    store.flush().unwrap();
    (dir, store)
}

fn out_of(store: &SqliteStore, format: ArchiveFormat, ids: &[FlowWithBodies]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut exporter = exporter(format, &mut out).unwrap();
    for flow in ids {
        exporter.flow(&store.get(flow.row.id).unwrap(), &StoreBodySource(store)).unwrap();
    }
    exporter.finish().unwrap();
    drop(exporter);
    out
}

#[test]
fn export_from_the_store_equals_direct_export() {
    let flows = samples();
    let (_dir, store) = filled(&flows);
    for format in [ArchiveFormat::Har, ArchiveFormat::Jsonl, ArchiveFormat::Curl, ArchiveFormat::Raw] {
        let (a, b) = (out_of(&store, format, &flows), export(format, &flows));
        assert_eq!(String::from_utf8_lossy(&a), String::from_utf8_lossy(&b), "{format}");
    }
    let posted = ListOptions { query: Query::parse("method:POST req.body:é").unwrap(), ..ListOptions::default() };
    assert_eq!(store.list(&posted).unwrap().len(), 1);
}

#[test]
fn export_of_many_flows_equals_direct_export() {
    let mut flows = samples();
    flows.push(exchange("POST", "/long", &[], &[7; 3 << 20], b"longer than what is held"));
    let short = exchange("GET", "/short", &[], b"", b"short");
    flows.extend((0..600).map(|_| short.clone()));
    // The order of the store.
    for (flow, i) in flows.iter_mut().zip(1_000..) {
        flow.row.id = FlowId::from_u128(i);
    }
    let (_dir, store) = filled(&flows);
    let go_on = || ControlFlow::Continue(());
    for format in [ArchiveFormat::Har, ArchiveFormat::Jsonl, ArchiveFormat::Raw, ArchiveFormat::Parquet] {
        let written = |export: &dyn Fn(&mut dyn FlowExporter)| {
            let mut out = Vec::new();
            let options = ExportOptions { bodies: true, ..ExportOptions::default() };
            let mut exporter = exporter_with(format, &mut out, options).unwrap();
            export(&mut *exporter);
            exporter.finish().unwrap();
            drop(exporter);
            out
        };
        let stored = written(&|exporter| {
            let each = &mut |row: &FlowRecord, contents: &dyn BodySource| exporter.flow(row, contents);
            let (damaged, done) = for_each_readable(&store, Query::all(), format.parts(true), &go_on, each).unwrap();
            done.unwrap();
            assert_eq!(damaged, 0);
        });
        let direct = written(&|exporter| flows.iter().for_each(|flow| exporter.flow(&flow.row, flow).unwrap()));
        assert!(stored == direct, "{format}");
    }
    let stop = || ControlFlow::Break(());
    let stopped = for_each_readable(&store, Query::all(), FlowParts::All, &stop, &mut |_, _| Ok(()));
    assert!(matches!(stopped, Err(StoreError::Cancelled)));
    let fail = &mut |_: &FlowRecord, _: &dyn BodySource| Err(std::io::ErrorKind::BrokenPipe.into());
    assert!(for_each_readable(&store, Query::all(), FlowParts::Row, &go_on, fail).unwrap().1.is_err());
}

#[test]
fn an_export_that_fails_does_not_wait_for_the_search_for_its_next_flows() {
    let short = exchange("GET", "/", &[], b"", b"short");
    let mut flows = vec![short; 1_000];
    for (flow, i) in flows.iter_mut().zip(1..) {
        flow.row.id = FlowId::from_u128(i);
    }
    let (_dir, store) = filled(&flows);
    // As if each row of the second page took long to examine.
    let (examined, exported) = (AtomicU64::new(0), AtomicBool::new(false));
    let watch = || {
        if examined.fetch_add(1, SeqCst) >= 256 {
            (0..1_000).take_while(|_| !exported.load(SeqCst)).for_each(|_| sleep(Duration::from_millis(10)));
            sleep(Duration::from_millis(10));
        }
        ControlFlow::Continue(())
    };
    let fail = &mut |_: &FlowRecord, _: &dyn BodySource| {
        exported.store(true, SeqCst);
        Err(std::io::ErrorKind::BrokenPipe.into())
    };
    assert!(for_each_readable(&store, Query::all(), FlowParts::Row, &watch, fail).unwrap().1.is_err());
    assert!(examined.load(SeqCst) < 500, "{examined:?}");
}

#[test]
fn original_messages_round_trip_through_the_store() {
    let flow = edited();
    let (_dir, store) = filled(&samples()[..1]);
    assert!(store.insert(flow.clone()).unwrap());
    store.flush().unwrap();
    let row = store.get(flow.row.id).unwrap();
    assert_eq!(row.original, flow.row.original);
    let original = |d| store.original_body(row.id, d, 0..99).unwrap().read_all(99).unwrap();
    assert_eq!(&original(Direction::Request)[..], b"the alpha");
    assert_eq!(&original(Direction::Response)[..], b"back", "only its head was edited");
    let sound = ReadableBodySource::new(&store);
    let mut file = Vec::new();
    let options = ExportOptions { originals: true, ..ExportOptions::default() };
    let mut exporter = exporter_with(ArchiveFormat::Jsonl, &mut file, options).unwrap();
    exporter.flow(&sound.row(LoadedFlow::new(row.clone(), FlowParts::All)).unwrap(), &sound).unwrap();
    exporter.finish().unwrap();
    drop(exporter);
    assert_eq!(imported(None, &file).0[0].original_bodies, flow.original_bodies);
    assert_eq!(sound.truncated_flows(), 0);
}

#[test]
fn the_digest_of_a_head_round_trips_through_the_store() {
    let mut flow = edited();
    let head = BodyRecord {
        size: 70_000,
        kept: 4,
        missing: Some(MissingReason::Head),
        head_sha256: "2f".repeat(32).parse().ok(),
    };
    flow.row.response.as_mut().unwrap().body = head;
    flow.row.original.as_mut().unwrap().request.as_mut().unwrap().head.body = BodyRecord { kept: 9, ..head };
    let (_dir, store) = filled(&samples()[..1]);
    assert!(store.insert(flow.clone()).unwrap());
    store.flush().unwrap();
    let row = store.get(flow.row.id).unwrap();
    assert_eq!((row.response, row.original), (flow.row.response, flow.row.original));
}

#[test]
fn large_numbers_of_messages_are_exported_page_by_page() {
    let mut flow = web_socket();
    let first = flow.messages[0].clone();
    flow.messages = (0..600).map(|index| MessageRecord { index, ..first.clone() }).collect();
    flow.row.messages = 600;
    let flows = [flow];
    let (_dir, store) = filled(&flows);
    assert!(out_of(&store, ArchiveFormat::Jsonl, &flows) == export(ArchiveFormat::Jsonl, &flows));
}

#[test]
fn unknown_har_members_are_preserved_in_the_store() {
    let (flows, _) = imported(None, include_bytes!("data/chromium.har"));
    let (_dir, store) = filled(&flows);
    let har = out_of(&store, ArchiveFormat::Har, &flows[..1]);
    assert!(String::from_utf8(har).unwrap().contains("\"_initiator\":{\"type\":\"other\"}"));
}
