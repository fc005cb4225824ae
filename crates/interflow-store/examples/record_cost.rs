//! Prints the cost of recording per flow: CPU time of the producing worker thread and of the writer thread.

use std::task::{Context, Waker};

use bytes::Bytes;
use interflow_store::{FlowStore, RecordConfig, SqliteStore};
use interflow_testkit::cpu;
use interflow_types::{
    ByteStr, Direction, EntryKind, Flow, FlowOutcome, HttpVersion, Method, Recorder, RequestHead, ResponseHead, Scheme,
    StatusCode, Url,
};

/// The same allocator as the product: much of the memory that a worker allocates is freed by the writer thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FLOWS: u64 = 100_000;

/// CPU time of the store's writer thread, which must be running.
fn writer_cpu() -> u64 {
    cpu::of_threads("self", "recorder")
}

fn main() {
    println!("{:<28} {:>10} {:>10} {:>12}", "flows", "worker us", "writer us", "disk B/flow");
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
    // An argument selects the rows whose names it contains.
    if std::env::args().nth(1).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).expect("the store opens");
    let recorder = store.recorder().expect("the store is open for writing");
    let client = interflow_testkit::client_info();
    let authority: interflow_types::Authority = "bench.test:80".parse().expect("an authority");
    let fields = [
        ("Host", "bench.test"),
        ("User-Agent", "curl/8.5.0"),
        ("Accept", "*/*"),
        ("Authorization", "Bearer sk-0123456789012345678901234567890123456789"),
        ("Content-Type", "application/json"),
    ];
    let answer = ResponseHead::new(StatusCode::OK)
        .with_header("Content-Type", "application/json")
        .with_header("Date", "Fri, 20 Nov 2026 10:00:00 GMT")
        .with_header("Server", "bench")
        .with_header("Content-Length", "8192");
    // The cost of building the flow itself is measured first and subtracted.
    let mut make = |i: u64| {
        let flow = Flow::begin(client.clone(), EntryKind::Absolute, Scheme::Http, authority.clone());
        let head = RequestHead {
            method: Method::GET,
            url: Url { scheme: Scheme::Http, authority: authority.clone(), path: ByteStr::from("/v1/things?page=2") },
            version: HttpVersion::Http11,
            headers: fields.into_iter().collect(),
            protocol: None,
        };
        (flow, head, body(i))
    };
    let start = cpu::of_thread();
    for i in 0..FLOWS {
        std::hint::black_box(make(i));
    }
    let making = cpu::of_thread() - start;
    let (start, writer) = (cpu::of_thread(), writer_cpu());
    for i in 0..FLOWS {
        let (flow, head, body) = make(i);
        let mut capture = recorder.begin(&flow, Some(&head)).expect("the queue waits, it does not drop");
        capture.response(&flow, &answer);
        capture.data(Direction::Response, &body);
        let ready = capture.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready();
        capture.finish(&flow, FlowOutcome::Complete);
        if !ready {
            store.flush().expect("the store can be written");
        }
    }
    let told = (cpu::of_thread() - start).saturating_sub(making);
    store.flush().expect("the store can be written");
    let written = writer_cpu() - writer;
    let stats = store.stats().expect("the store can be read");
    assert_eq!(stats.flows, FLOWS);
    let per = |ns: u64| ns as f64 / 1000.0 / FLOWS as f64;
    let disk = (stats.segment_bytes + stats.database_bytes) / FLOWS;
    println!("{name:<28} {:>10.2} {:>10.2} {disk:>12}", per(told), per(written));
}
