//! A record is written as in these files, and read from them: exports, archives and the API's clients keep them. A change of
//! either file is a change of the format: see [`FlowRecord::VERSION`].

use std::collections::BTreeSet;

use bytes::Bytes;
use interflow_store::{FlowRecord, FlowSummary, FlowWithBodies, MessageRecord, RecordConfig};
use interflow_types::{Direction, MessageKind, Timestamp};
use serde_json::Value;

use super::*;

const FLOW: &str = include_str!("flow.json");
const SUMMARY: &str = include_str!("summary.json");

both_stores!(the_committed_record_is_stored_and_read_back_whole);

/// The names of all members, at any depth.
fn members(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| members(item, names)),
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            members(value, names);
        }),
        _ => {}
    }
}

/// The names that a schema gives to members, at any depth.
fn documented(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| documented(item, names)),
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            if let ("properties", Value::Object(properties)) = (key.as_str(), value) {
                names.extend(properties.keys().cloned());
            }
            documented(value, names);
        }),
        _ => {}
    }
}

/// Compares with a committed file; `UPDATE_RECORD=1` writes it instead.
fn assert_committed(name: &str, committed: &str, written: &str) {
    if std::env::var_os("UPDATE_RECORD").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store/record/").to_owned() + name;
        return std::fs::write(path, written).unwrap();
    }
    assert_eq!(written, committed, "{name}");
}

#[test]
fn the_committed_record_has_every_member_and_is_written_as_it_was() {
    let record: FlowRecord = serde_json::from_str(FLOW).unwrap();
    assert_eq!(FlowRecord::VERSION, 1);
    assert_committed("flow.json", FLOW, &(serde_json::to_string_pretty(&record).unwrap() + "\n"));
    let (mut present, mut all) = (BTreeSet::new(), BTreeSet::new());
    members(&serde_json::to_value(&record).unwrap(), &mut present);
    documented(&schemars::schema_for!(FlowRecord).to_value(), &mut all);
    assert_eq!(all.difference(&present).collect::<Vec<_>>(), [&""; 0], "not in flow.json");
}

#[test]
fn the_committed_summary_is_that_of_the_record() {
    let record: FlowRecord = serde_json::from_str(FLOW).unwrap();
    let summary = record.summary(Timestamp::now());
    assert_committed("summary.json", SUMMARY, &(serde_json::to_string_pretty(&summary).unwrap() + "\n"));
    assert_eq!(serde_json::from_str::<FlowSummary>(SUMMARY).unwrap(), summary);
}

fn the_committed_record_is_stored_and_read_back_whole(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let record: FlowRecord = serde_json::from_str(FLOW).unwrap();
    let message = MessageRecord {
        index: 0,
        direction: Direction::Response,
        kind: MessageKind::Text,
        at: record.started,
        size: 2,
        payload: Bytes::from_static(b"hi"),
    };
    let flow = FlowWithBodies {
        request_body: Bytes::from_static(b"ques"),
        response_body: Bytes::from_static(b"answer"),
        original_bodies: [Bytes::from_static(b"whole"), Bytes::new()],
        messages: vec![message],
        ..FlowWithBodies::new(record.clone())
    };
    assert!(store.insert(flow).unwrap());
    store.flush().unwrap();
    let mut stored = store.get(record.id).unwrap();
    // Only the recorder itself hashes a head.
    stored.response.as_mut().unwrap().body.head_sha256 = record.response.as_ref().unwrap().body.head_sha256;
    assert_eq!(stored, record);
}
