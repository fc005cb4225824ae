//! Import into and export from a store.

use interflow_archive::{
    ArchiveFormat, ExportOptions, ReadableBodySource, StoreBodySource, exporter, exporter_with, import,
};
use interflow_query::Query;
use interflow_store::{
    BodyRecord, FlowStore, FlowWithBodies, ListOptions, MessageRecord, MissingReason, RecordConfig, SqliteStore,
};
use interflow_types::Direction;

use super::jsonl::edited;
use super::{export, imported, samples, web_socket};

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
    exporter.flow(&sound.row(&row).unwrap(), &sound).unwrap();
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
