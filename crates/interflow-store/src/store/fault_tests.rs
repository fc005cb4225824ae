//! A disk that fails while flows run: recording is suspended and resumed, and nothing read back is wrong.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_types::{
    ByteStr, ClientInfo, Direction, EntryKind, Flow, FlowOutcome, FlowRecording, FlowStored, Headers, HttpVersion,
    Method, Recorder, RequestHead, ResponseHead, Scheme, StatusCode, Timestamp, Url,
};

use super::store_state::{StoreState, WriterCommand};
use crate::config::RecordConfig;
use crate::error::StoreError;
use crate::model::{FlowState, MissingReason};
use crate::recorder::StoreRecorder;
use crate::store::recording::writer::StoreWriter;
use crate::store::upkeep::recover;
use crate::store::{FlowStore, SqliteStore, schema, segments_dir};

/// A writer with a disk that can be made to fail.
struct Rig {
    shared: Arc<StoreState>,
    fault: Arc<std::sync::atomic::AtomicBool>,
    recorder: StoreRecorder,
    thread: Option<std::thread::JoinHandle<bool>>,
}

impl Rig {
    fn new(dir: &Path) -> Self {
        Self::with(dir, RecordConfig::default())
    }

    fn with(dir: &Path, config: RecordConfig) -> Self {
        std::fs::create_dir_all(segments_dir(dir)).unwrap();
        let db = schema::open_writer(dir).unwrap();
        let (segments, _) = recover::recover(dir, &segments_dir(dir), &db).unwrap();
        let fault = segments.fault.clone();
        let shared = Arc::new(StoreState::new(&config));
        let recorder = StoreRecorder { queue: shared.queue.clone(), config: shared.config.clone() };
        let writer = StoreWriter::new(dir.to_owned(), shared.clone(), db, segments, config).unwrap();
        let thread = Some(std::thread::spawn(move || writer.run()));
        Self { shared, fault, recorder, thread }
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.shared.send_command(WriterCommand::Flush)
    }

    fn begin(&self, path: &str) -> (Flow, Box<dyn FlowRecording>) {
        let client = ClientInfo {
            connection: 1,
            peer: "127.0.0.1:1".parse().unwrap(),
            local: "127.0.0.1:2".parse().unwrap(),
            listener: "proxy".into(),
            accepted: Timestamp::now(),
            container: None,
            process: None,
        };
        let flow = Flow::begin(client.into(), EntryKind::Absolute, Scheme::Http, "a.test:80".parse().unwrap());
        let head = RequestHead {
            method: Method::GET,
            url: Url { scheme: Scheme::Http, authority: flow.authority.clone(), path: ByteStr::from(path) },
            version: HttpVersion::Http11,
            headers: Headers::new(),
            protocol: None,
        };
        let mut capture = self.recorder.begin(&flow, Some(&head)).unwrap();
        capture.response(&flow, &ResponseHead::new(StatusCode::OK));
        (flow, capture)
    }

    /// Repairs the disk, and waits until recording resumes.
    fn recover(&self) {
        self.fault.store(false, SeqCst);
        let start = Instant::now();
        while self.shared.suspended().is_some() {
            assert!(start.elapsed() < Duration::from_secs(20), "recording never went on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn close(mut self) {
        self.shared.closing.store(true, SeqCst);
        self.shared.queue.request_urgent_batch();
        assert!(self.thread.take().unwrap().join().unwrap());
    }
}

fn noise(len: usize, seed: u8) -> Bytes {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut out);
    out.into()
}

/// Flows that were active before, during and after an outage of the disk, in a store that was closed afterwards.
struct Outage {
    dir: tempfile::TempDir,
    /// Receives data before, during and after the outage; this is the data before it.
    stream: Flow,
    stream_start: Bytes,
    /// Receives nothing in the meantime.
    quiet: Flow,
    /// Ends during the outage.
    ending: Flow,
    /// Begins after it.
    later: Flow,
}

impl Outage {
    fn happen() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let rig = Rig::new(dir.path());
        let (quiet, quiet_capture) = rig.begin("/quiet");
        let (stream, mut capture) = rig.begin("/stream");
        let (ending, mut ending_capture) = rig.begin("/ending");
        let stream_start = noise(200_000, 1);
        capture.data(Direction::Response, &stream_start);
        rig.flush().unwrap();

        rig.fault.store(true, SeqCst);
        capture.data(Direction::Response, &noise(200_000, 2));
        ending_capture.data(Direction::Response, &noise(20_000, 3));
        ending_capture.finish(&ending, FlowOutcome::Complete);
        rig.flush().unwrap_err();
        capture.data(Direction::Response, &noise(200_000, 4));

        rig.recover();
        capture.data(Direction::Response, &noise(200_000, 5));
        capture.finish(&stream, FlowOutcome::Complete);
        quiet_capture.finish(&quiet, FlowOutcome::Complete);
        let (later, mut later_capture) = rig.begin("/later");
        later_capture.data(Direction::Response, &noise(200_000, 2));
        later_capture.finish(&later, FlowOutcome::Complete);
        rig.flush().unwrap();
        rig.close();
        Self { dir, stream, stream_start, quiet, ending, later }
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open_read(self.dir.path()).unwrap()
    }
}

fn read(store: &SqliteStore, flow: &Flow) -> Bytes {
    store.body(flow.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap()
}

#[test]
fn recording_is_suspended_while_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(dir.path());
    let (flow, mut capture) = rig.begin("/");
    rig.flush().unwrap();
    rig.fault.store(true, SeqCst);
    capture.data(Direction::Response, &noise(200_000, 2));
    assert!(matches!(rig.flush(), Err(StoreError::Suspended(_))));
    assert!(rig.shared.suspended().is_some());
    assert!(rig.recorder.begin(&flow, None).is_none(), "nothing is taken up meanwhile");
    assert_eq!(rig.shared.queue.dropped_flows.load(Relaxed), 1);
    drop(capture);
    rig.recover();
    rig.close();
}

#[test]
fn nothing_stays_queued_after_an_outage() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(dir.path());
    let (flow, mut capture) = rig.begin("/");
    rig.fault.store(true, SeqCst);
    capture.data(Direction::Response, &noise(200_000, 2));
    rig.flush().unwrap_err();
    capture.data(Direction::Response, &noise(200_000, 3));
    rig.recover();
    capture.finish(&flow, FlowOutcome::Complete);
    rig.flush().unwrap();
    assert_eq!(rig.shared.queue.depth(), (0, 0));
    rig.close();
}

#[test]
fn a_stream_active_during_an_outage_keeps_a_correct_prefix() {
    let outage = Outage::happen();
    let store = outage.store();
    let row = store.get(outage.stream.id).unwrap();
    let body = row.response.unwrap().body;
    assert_eq!((row.state, body.size, body.missing), (FlowState::Complete, 800_000, Some(MissingReason::Dropped)));
    let kept = read(&store, &outage.stream);
    assert_eq!(kept.len() as u64, body.kept);
    assert!(outage.stream_start.starts_with(&kept), "what is kept is not the beginning of what was sent");
}

#[test]
fn a_flow_that_ends_during_an_outage_is_complete_without_its_body() {
    let outage = Outage::happen();
    let row = outage.store().get(outage.ending.id).unwrap();
    assert_eq!((row.state, row.response.unwrap().body.missing), (FlowState::Complete, Some(MissingReason::Dropped)));
}

#[test]
fn flows_that_end_or_begin_after_an_outage_are_recorded_whole() {
    let outage = Outage::happen();
    let store = outage.store();
    assert_eq!(store.get(outage.quiet.id).unwrap().state, FlowState::Complete);
    assert_eq!(read(&store, &outage.later), noise(200_000, 2));
}

#[test]
fn the_store_is_sound_after_an_outage() {
    let outage = Outage::happen();
    let store = outage.store();
    assert_eq!(store.stats().unwrap().flows, 4);
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}

#[test]
fn a_disk_that_refuses_withholds_no_response() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::with(dir.path(), RecordConfig { synchronous: Some(true), ..RecordConfig::default() });
    let [mut first, mut second] = ["/first", "/second"].map(|path| {
        let (flow, mut capture) = rig.begin(path);
        let stored = capture.until_stored().unwrap();
        (flow, capture, stored)
    });
    rig.flush().unwrap();
    rig.fault.store(true, SeqCst);
    first.1.data(Direction::Response, &noise(20_000, 1));
    first.1.finish(&first.0, FlowOutcome::Complete);
    wait_for(first.2);
    assert!(rig.shared.suspended().is_some());
    second.1.data(Direction::Response, &noise(20_000, 2));
    second.1.finish(&second.0, FlowOutcome::Complete);
    wait_for(second.2);
    rig.recover();
    rig.flush().unwrap();
    rig.close();
    let store = SqliteStore::open_read(dir.path()).unwrap();
    for flow in [first.0, second.0] {
        assert_eq!(store.get(flow.id).unwrap().state, FlowState::Complete);
    }
}

/// Waits until a response is not withheld any more.
fn wait_for(stored: FlowStored) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let limit = Duration::from_secs(20);
    runtime.block_on(async { tokio::time::timeout(limit, stored).await.expect("withheld for ever") });
}
