//! Prints what recording costs: microseconds of the worker that tells, and of the whole process, per flow.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use interflow_flow::{
    ByteStr, ClientInfo, Direction, Flow, Method, Outcome, Recorder, RequestHead, ResponseHead, Scheme, StatusCode,
    Timestamp, Transport, Url, Version,
};
use interflow_record::{EmbeddedStore, RecordConfig, Store};

const FLOWS: u64 = 100_000;

/// CPU time of this process in microseconds: user and system, in ticks of 10 ms.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) * 10_000
}

fn main() {
    println!("{:<28} {:>10} {:>10} {:>12}", "flows", "worker us", "process us", "disk B/flow");
    let text = br#"{"role":"user","content":"what is the weather in Ulm","n":12345}"#.repeat(126);
    let mut random = vec![0u8; 8192];
    run("no bodies", |_| Bytes::new());
    run("100 B", |_| Bytes::from_static(&[b'x'; 100]));
    run("8 KiB, always the same", {
        let body = Bytes::from(text.clone());
        move |_| body.clone()
    });
    run("8 KiB of JSON, each its own", move |i| {
        let mut body = text.clone();
        body[..8].copy_from_slice(&i.to_le_bytes());
        body.truncate(8192);
        body.into()
    });
    blake3::Hasher::new().update(b"seed").finalize_xof().fill(&mut random);
    run("8 KiB of noise, each its own", move |i| {
        let mut body = random.clone();
        body[..8].copy_from_slice(&i.to_le_bytes());
        body.into()
    });
}

fn run(name: &str, mut body: impl FnMut(u64) -> Bytes) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = EmbeddedStore::open(dir.path(), &RecordConfig::default()).expect("the store opens");
    let recorder = store.recorder().expect("the store is open for writing");
    let client = Arc::new(ClientInfo {
        connection: 1,
        peer: "127.0.0.1:5555".parse().expect("an address"),
        local: "127.0.0.1:7070".parse().expect("an address"),
        listener: "proxy".into(),
        accepted: Timestamp::now(),
    });
    let authority: interflow_flow::Authority = "bench.test:80".parse().expect("an authority");
    let fields = [
        ("Host", "bench.test"),
        ("User-Agent", "curl/8.5.0"),
        ("Accept", "*/*"),
        ("Authorization", "Bearer sk-0123456789012345678901234567890123456789"),
        ("Content-Type", "application/json"),
    ];
    let answer = ResponseHead::new(StatusCode::OK)
        .with("Content-Type", "application/json")
        .with("Date", "Fri, 20 Nov 2026 10:00:00 GMT")
        .with("Server", "bench")
        .with("Content-Length", "8192");
    let before = cpu();
    let (mut told, mut made) = (0, 0);
    for i in 0..FLOWS {
        let start = Instant::now();
        let body = body(i);
        let flow = Flow::begin(client.clone(), Transport::Absolute, Scheme::Http, authority.clone());
        let head = RequestHead {
            method: Method::GET,
            url: Url { scheme: Scheme::Http, authority: authority.clone(), path: ByteStr::from("/v1/things?page=2") },
            version: Version::Http11,
            headers: fields.into_iter().collect(),
            protocol: None,
        };
        made += start.elapsed().as_nanos();
        let start = Instant::now();
        let Some(mut capture) = recorder.begin(&flow, Some(&head)) else { continue };
        capture.response(&flow, &answer);
        capture.data(Direction::Response, &body);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let ready = capture.poll_ready(&mut cx).is_ready();
        capture.done(&flow, Outcome::Complete);
        told += start.elapsed().as_nanos();
        if !ready {
            store.flush().expect("the store can be written");
        }
    }
    store.close();
    let stats = store.stats().expect("the store can be read");
    assert_eq!(stats.flows, FLOWS);
    let spent = (cpu() - before) as f64 - made as f64 / 1000.0;
    let per = |us: f64| us / FLOWS as f64;
    println!(
        "{name:<28} {:>10.2} {:>10.2} {:>12}",
        per(told as f64 / 1000.0),
        per(spent),
        (stats.segment_bytes + stats.database_bytes) / FLOWS
    );
}
