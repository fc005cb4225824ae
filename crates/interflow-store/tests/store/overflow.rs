//! Behaviour when the disk is slower than the traffic, or full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use interflow_store::*;
use interflow_types::Direction;
use interflow_types::units::ByteSize;

use super::*;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn tight(overflow: OverflowPolicy) -> RecordConfig {
    RecordConfig { queue_bytes: ByteSize(100_000), overflow, ..RecordConfig::default() }
}

#[test]
fn capture_waits_for_a_full_queue_and_is_woken() {
    let (_dir, store) = store(&tight(OverflowPolicy::Wait));
    let recorder = store.recorder().unwrap();
    let flow = flow("a.test");
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(capture.poll_ready(&mut cx).is_ready());
    capture.response(&flow, &response(200));
    let mut sent = Vec::new();
    // The writer may keep up for a while: push until it does not.
    let start = Instant::now();
    loop {
        let piece = Bytes::from(noise(60_000, sent.len() as u64));
        sent.extend_from_slice(&piece);
        capture.data(Direction::Response, &piece);
        if sent.len() > 200_000 && capture.poll_ready(&mut cx).is_pending() {
            break;
        }
        while capture.poll_ready(&mut cx).is_pending() {
            std::thread::yield_now();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the queue never filled");
        if sent.len() > 20 << 20 {
            panic!("the queue never filled");
        }
    }
    let start = Instant::now();
    while count.0.load(Ordering::SeqCst) == 0 || capture.poll_ready(&mut cx).is_pending() {
        assert!(start.elapsed() < Duration::from_secs(30), "nobody was woken");
        std::thread::sleep(Duration::from_millis(1));
    }
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    let back = store.body(flow.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap();
    assert_eq!(back, sent);
    let stats = store.stats().unwrap();
    assert!(stats.waits > 0 && stats.dropped_bytes == 0 && stats.queue_bytes == 0, "{stats:?}");
    assert!(stats.backpressure_micros > 0, "{stats:?}");
    assert_eq!(store.stats().unwrap().backpressure_micros, stats.backpressure_micros, "nobody waits any more");
}

#[test]
fn drop_policy_discards_and_counts_overflowing_captures() {
    let (_dir, store) = store(&tight(OverflowPolicy::Drop));
    let recorder = store.recorder().unwrap();
    let flow = flow("a.test");
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    capture.response(&flow, &response(200));
    capture.data(Direction::Response, &noise(500_000, 1).into());
    let refused = (0..1000).filter(|_| recorder.begin(&flow, None).is_none()).count() as u64;
    capture.data(Direction::Response, &noise(500_000, 2).into());
    assert!(capture.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    let stats = store.stats().unwrap();
    assert_eq!(stats.dropped_flows, refused);
    let body = store.get(flow.id).unwrap().response.unwrap().body;
    assert_eq!(body.size, 1_000_000);
    assert_eq!(body.size - body.kept, stats.dropped_bytes);
    assert_eq!(body.missing, (stats.dropped_bytes > 0).then_some(MissingReason::Dropped));
    assert_eq!(stats.queue_bytes, 0);
}
