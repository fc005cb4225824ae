//! Records flows into the given folder until it is killed; prints the number of each flow that was written durably. The
//! crash tests run it as a child process.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use interflow_store::{FlowStore, RecordConfig, SqliteStore};
use interflow_types::{
    ByteStr, Direction, EntryKind, Flow, FlowOutcome, Headers, HttpVersion, Method, Recorder, RequestHead,
    ResponseHead, Scheme, StatusCode, Url,
};

/// The body of flow number `i`: all bodies share a prefix, as chat histories do.
fn body(i: u64) -> Vec<u8> {
    let mut out = b"the same beginning of every body, again and again. ".repeat(600);
    let mut own = vec![0; 2_000 + (i % 50) as usize * 700];
    blake3::Hasher::new().update(&i.to_le_bytes()).finalize_xof().fill(&mut own);
    out.extend(own);
    out
}

fn main() {
    let dir = std::env::args().nth(1).expect("the folder of the store");
    let mut config = RecordConfig::default();
    config.segment_bytes.0 = 2 << 20;
    let store = SqliteStore::open(Path::new(&dir), &config).expect("the store opens");
    let recorder = store.recorder().expect("the store is open for writing");
    let client = interflow_testkit::client_info();
    let mut out = std::io::stdout();
    for i in 0u64.. {
        let authority = "crash.test:80".parse().expect("an authority");
        let flow = Flow::begin(client.clone(), EntryKind::Absolute, Scheme::Http, authority);
        let path = ByteStr::from(format!("/{i}"));
        let head = RequestHead {
            method: Method::GET,
            url: Url { scheme: Scheme::Http, authority: flow.authority.clone(), path },
            version: HttpVersion::Http11,
            headers: Headers::new(),
            protocol: None,
        };
        let written = match recorder.begin(&flow, Some(&head)) {
            None => false,
            Some(mut capture) => {
                capture.response(&flow, &ResponseHead::new(StatusCode::OK));
                capture.data(Direction::Response, &Bytes::from(body(i)));
                capture.finish(&flow, FlowOutcome::Complete);
                i % 50 == 0 && store.flush().is_ok()
            }
        };
        let suspended = store.stats().map_or_else(|e| Some(e.to_string()), |s| s.suspended);
        let line = match suspended {
            Some(why) => {
                std::thread::sleep(Duration::from_millis(5));
                format!("suspended {why}\n")
            }
            None if written => format!("written {i}\n"),
            None => continue,
        };
        if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
