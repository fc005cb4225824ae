//! Fills a store with many typical flows: `record_many FOLDER COUNT`. The web UI benchmark (`make ui-million`) reads
//! such a store.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use interflow_store::{FlowStore, RecordConfig, SqliteStore};
use interflow_types::{
    ByteStr, ClientInfo, Direction, EntryKind, Flow, FlowOutcome, Headers, HttpVersion, Method, Recorder, RequestHead,
    ResponseHead, Scheme, StatusCode, Url,
};

/// Flows recorded between two flushes.
const BATCH: u64 = 5_000;

/// A small deterministic generator: every run records the same flows.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("the folder of the store")?;
    let count: u64 = args.next().ok_or("how many flows")?.parse()?;
    let store = SqliteStore::open(Path::new(&dir), &RecordConfig::default())?;
    let recorder = store.recorder().ok_or("the store is open for reading only")?;
    let client = interflow_testkit::client_info();
    let mut dice = Dice(7);
    for i in 0..count {
        one(&recorder, &client, &mut dice)?;
        if i % BATCH == BATCH - 1 {
            store.flush()?;
        }
    }
    store.flush()?;
    println!("{} flows in {dir}", store.stats()?.flows);
    Ok(())
}

fn one(recorder: &impl Recorder, client: &Arc<ClientInfo>, dice: &mut Dice) -> Result<(), Box<dyn std::error::Error>> {
    let host = format!("host-{}.test:443", dice.below(50));
    let flow = Flow::begin(Arc::clone(client), EntryKind::Connect, Scheme::Https, host.parse()?);
    let path = match dice.below(6) {
        0 => "/".to_owned(),
        1 => format!("/assets/app.{:08x}.js", dice.below(1 << 32)),
        n => format!("/v{n}/items/{}?page={}", dice.below(100_000), dice.below(30)),
    };
    let head = RequestHead {
        method: if dice.below(5) == 0 { Method::POST } else { Method::GET },
        url: Url { scheme: flow.scheme, authority: flow.authority.clone(), path: ByteStr::from(path) },
        version: HttpVersion::Http11,
        headers: [("User-Agent", "record-many"), ("Accept", "*/*")].into_iter().collect::<Headers>(),
        protocol: None,
    };
    let Some(mut capture) = recorder.begin(&flow, Some(&head)) else { return Ok(()) };
    let status = [200u16, 200, 200, 200, 201, 204, 302, 304, 404, 500][dice.below(10) as usize];
    let answer = ResponseHead {
        headers: [("Content-Type", "application/json")].into_iter().collect(),
        ..ResponseHead::new(StatusCode::try_from(status)?)
    };
    capture.response(&flow, &answer);
    let body = format!("{{\"id\":{},\"pad\":\"{}\"}}", dice.below(1 << 40), "x".repeat(dice.below(200) as usize));
    capture.data(Direction::Response, &Bytes::from(body));
    capture.finish(&flow, FlowOutcome::Complete);
    Ok(())
}
