//! Prints what it costs to record flows in the shared store: CPU time per flow of the worker, of the threads that write the
//! spool and move flows from there, and of a PostgreSQL of its own.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::Bytes;
use interflow_fleet::{BoxedStream, PostgresTls, SharedAccess, SharedStore, TlsClient, TlsHandshake};
use interflow_store::{FlowStore, RecordConfig};
use interflow_testkit::{PostgresServer, cpu};
use interflow_types::{
    ByteStr, Direction, EntryKind, Flow, FlowOutcome, HttpVersion, Method, Recorder, RequestHead, ResponseHead, Scheme,
    StatusCode, Url,
};

/// The same allocator as the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FLOWS: u64 = 60_000;
const BODIES: u64 = 256;
/// The beginnings of the threads' names.
const THREADS: [&str; 3] = ["recorder", "shipper", "shared-store"];

struct NoTls;

impl TlsClient for NoTls {
    fn handshake(&self, _: &str, _: BoxedStream) -> TlsHandshake {
        Box::pin(async { Err(std::io::Error::other("the server has no TLS")) })
    }
}

fn no_tls(_: &PostgresTls) -> Result<Arc<dyn TlsClient>, String> {
    Ok(Arc::new(NoTls))
}

/// CPU time of a process and its children.
fn server_cpu(root: u32) -> u64 {
    let children = std::fs::read_to_string(format!("/proc/{root}/task/{root}/children")).unwrap_or_default();
    let below: u64 = children.split_whitespace().filter_map(|c| c.parse().ok()).map(server_cpu).sum();
    below + cpu::of_threads(&root.to_string(), "")
}

fn main() {
    let server = PostgresServer::with_settings(&PostgresServer::DURABLE).expect("PostgreSQL is installed");
    println!(
        "{:<28} {:>9} {:>9} {:>9} {:>13} {:>11} {:>9}",
        "flows", "worker us", THREADS[0], THREADS[1], THREADS[2], "PostgreSQL", "flows/s"
    );
    let noise: Vec<Bytes> = (0..BODIES)
        .map(|n| {
            let mut body = vec![0u8; 8192];
            blake3::Hasher::new().update(&n.to_le_bytes()).finalize_xof().fill(&mut body);
            body.into()
        })
        .collect();
    run(&server, "no bodies", |_| Bytes::new());
    run(&server, "100 B", |_| Bytes::from_static(&[b'x'; 100]));
    run(&server, "2 KiB of noise", |i| noise[(i % BODIES) as usize].slice(..2048));
    run(&server, "8 KiB of noise", |i| noise[(i % BODIES) as usize].clone());
    run(&server, "8 KiB of noise, each its own", |i| {
        let mut body = noise[(i % BODIES) as usize].to_vec();
        body[..8].copy_from_slice(&i.to_le_bytes());
        body.into()
    });
    let text = br#"{"role":"user","content":"what is the weather in Ulm","n":12345}"#.repeat(126);
    run(&server, "8 KiB of JSON, each its own", |i| {
        let mut body = text.clone();
        body[..8].copy_from_slice(&i.to_le_bytes());
        body.into()
    });
}

fn run(server: &Arc<PostgresServer>, name: &str, mut body: impl FnMut(u64) -> Bytes) {
    // An argument selects the rows whose names it contains.
    if std::env::args().nth(1).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let database = server.database();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let access = SharedAccess { tls: no_tls, objects: None, row_key: None };
    let url = database.url().parse().expect("a URL");
    let store = SharedStore::open(&url, access, dir.path(), &RecordConfig::default()).expect("the store opens");
    let recorder = store.spool().expect("it records").recorder().expect("it records");
    let client = interflow_testkit::client_info();
    let authority: interflow_types::Authority = "bench.test:80".parse().expect("an authority");
    let fields = [("Host", "bench.test"), ("User-Agent", "curl/8.5.0"), ("Accept", "*/*")];
    let answer = ResponseHead::new(StatusCode::OK)
        .with_header("Content-Type", "application/octet-stream")
        .with_header("Date", "Fri, 20 Nov 2026 10:00:00 GMT")
        .with_header("Server", "bench")
        .with_header("Content-Length", "8192");
    let process = server.process().expect("the server runs");
    let figures = || {
        let own = THREADS.map(|name| cpu::of_threads("self", name));
        (own, server_cpu(process), cpu::of_thread())
    };
    let (before, began) = (figures(), Instant::now());
    for i in 0..FLOWS {
        let flow = Flow::begin(client.clone(), EntryKind::Absolute, Scheme::Http, authority.clone());
        let head = RequestHead {
            method: Method::GET,
            url: Url {
                scheme: Scheme::Http,
                authority: authority.clone(),
                path: ByteStr::from(format!("/r/{}", i % BODIES)),
            },
            version: HttpVersion::Http11,
            headers: fields.into_iter().collect(),
            protocol: None,
        };
        let mut capture = recorder.begin(&flow, Some(&head)).expect("the queue waits, it does not drop");
        capture.response(&flow, &answer);
        capture.data(Direction::Response, &body(i));
        let ready = capture.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready();
        capture.finish(&flow, FlowOutcome::Complete);
        if !ready {
            store.flush().expect("the spool can be written");
        }
    }
    let after_worker = cpu::of_thread();
    store.flush_to_database().expect("the database takes flows");
    let (took, after) = (began.elapsed().as_secs_f64(), figures());
    assert_eq!(database.sql("SELECT count(*) FROM interflow.flows").trim(), FLOWS.to_string());
    let per = |ns: u64| ns as f64 / 1000.0 / FLOWS as f64;
    let own: Vec<f64> = after.0.iter().zip(before.0).map(|(after, before)| per(after - before)).collect();
    println!(
        "{name:<28} {:>9.2} {:>9.2} {:>9.2} {:>13.2} {:>11.2} {:>9.0}",
        per(after_worker - before.2),
        own[0],
        own[1],
        own[2],
        per(after.1 - before.1),
        FLOWS as f64 / took
    );
}
