//! Repeated content is stored once, and many flows use bounded memory.

use interflow_store::*;
use interflow_types::Direction;

use super::*;

/// A conversation as an LLM client sends it: the whole history plus one more turn.
fn history(turns: u64) -> String {
    let mut body = String::from(r#"{"model":"m","max_tokens":1024,"messages":["#);
    for turn in 0..turns {
        let words: Vec<String> =
            noise(1200, turn).chunks(3).map(|c| format!("w{:02x}{:02x}{:02x}", c[0], c[1], c[2])).collect();
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        body.push_str(&format!(r#"{{"role":"{role}","content":"{}"}},"#, words.join(" ")));
    }
    body.push_str("]}");
    body
}

#[test]
fn growing_chat_histories_are_deduplicated_to_a_tenth() {
    let (dir, store) = store(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let mut raw = 0;
    let mut last = None;
    for turns in 1..=200 {
        let body = history(turns);
        raw += body.len() as u64;
        last = Some((exchange(&recorder, "llm.test", "/v1/messages", body.as_bytes(), b"ok"), body));
    }
    store.flush().unwrap();
    let (flow, body) = last.unwrap();
    let back = store.body(flow.id, Direction::Request, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap();
    assert_eq!(back, body.as_bytes());
    let stats = store.stats().unwrap();
    let taken = stats.segment_bytes + stats.database_bytes;
    println!("{taken} of {raw} bytes: {:.1} %", taken as f64 * 100.0 / raw as f64);
    assert!(taken * 100 < raw * 10, "{taken} of {raw}");
    assert!(disk(dir.path()) >= taken);
}

#[test]
fn a_hundred_thousand_flows_take_bounded_memory() {
    let (_dir, store) = store(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let resident = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find(|l| l.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    let mut last = None;
    let mut settled = 0;
    for i in 0..100_000u64 {
        let flow = flow("many.test");
        let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/path"))).unwrap();
        // Like the request pipeline: wait while the recorder is behind.
        while capture.poll_ready(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
        capture.response(&flow, &response(200));
        capture.data(Direction::Response, &Bytes::from(i.to_string()));
        capture.finish(&flow, FlowOutcome::Complete);
        last = Some(flow.id);
        if i == 20_000 {
            store.flush().unwrap();
            settled = resident();
        }
    }
    store.flush().unwrap();
    let grown = resident().saturating_sub(settled);
    assert_eq!(store.stats().unwrap().flows, 100_000);
    assert_eq!(store.stats().unwrap().recorded_flows, 100_000);
    assert!(store.get(last.unwrap()).is_ok());
    assert!(grown < 200 << 20, "{} MiB more than after 20,000 flows", grown >> 20);
}
