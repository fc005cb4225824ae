//! Black-box tests of the embedded store, of the shared store, and of their recorder.

#[macro_use]
mod fixture;

mod configure;
mod conversations;
mod crash;
mod damage;
mod full_disk;
mod heads;
mod live;
mod objects;
mod overflow;
mod overview;
mod pending;
mod postgres;
mod record;
mod retention;
mod round_trip;
mod savings;
mod selection;
mod shipping;
mod synchronous;

use std::sync::Arc;

use bytes::Bytes;
use fixture::{StoreKind, TestStore};
use interflow_store::{RecordConfig, SqliteStore};
use interflow_types::{
    ByteStr, ClientInfo, Direction, EntryKind, Flow, FlowOutcome, FlowRecording, Headers, HttpVersion, Method,
    Recorder, RequestHead, ResponseHead, Scheme, StatusCode, Timestamp, Url,
};

fn store(config: &RecordConfig) -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), config).unwrap();
    (dir, store)
}

fn client() -> Arc<ClientInfo> {
    Arc::new(ClientInfo {
        connection: 7,
        peer: "10.1.2.3:5555".parse().unwrap(),
        local: "127.0.0.1:7070".parse().unwrap(),
        listener: "proxy".into(),
        accepted: Timestamp::now(),
        container: None,
        process: None,
    })
}

fn flow(host: &str) -> Flow {
    Flow::begin(client(), EntryKind::Connect, Scheme::Https, format!("{host}:443").parse().unwrap())
}

fn request(flow: &Flow, method: &str, path: &str) -> RequestHead {
    RequestHead {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        url: Url { scheme: flow.scheme, authority: flow.authority.clone(), path: ByteStr::from(path) },
        version: HttpVersion::Http11,
        headers: [("Host", "api.test"), ("Content-Type", "application/json; charset=utf-8")].into_iter().collect(),
        protocol: None,
    }
}

fn response(status: u16) -> ResponseHead {
    ResponseHead {
        status: StatusCode::from_u16(status).unwrap(),
        reason: Bytes::from_static(b"Fine"),
        version: HttpVersion::Http11,
        headers: Headers::from_iter([("content-type", "text/plain")]),
    }
}

/// Records one exchange with these bodies; returns the flow.
fn exchange(recorder: &dyn Recorder, host: &str, path: &str, sent: &[u8], received: &[u8]) -> Flow {
    let flow = flow(host);
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "POST", path))).unwrap();
    feed(&mut *capture, Direction::Request, sent);
    capture.response(&flow, &response(200));
    feed(&mut *capture, Direction::Response, received);
    capture.finish(&flow, FlowOutcome::Complete);
    flow
}

/// Feeds a body in pieces, as it might arrive.
fn feed(capture: &mut dyn FlowRecording, direction: Direction, body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    for at in (0..body.len()).step_by(16 << 10) {
        capture.data(direction, &body.slice(at..(at + (16 << 10)).min(body.len())));
    }
}

/// Incompressible bytes.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

/// Total size of the files in a folder, recursively. One that is deleted meanwhile counts nothing.
fn disk(dir: &std::path::Path) -> u64 {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| if e.path().is_dir() { disk(&e.path()) } else { e.metadata().map_or(0, |m| m.len()) })
        .sum()
}
