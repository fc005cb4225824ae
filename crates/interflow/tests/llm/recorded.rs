//! Malformed LLM traffic and a stalled viewer: everything is recorded, conversations are the same live, rebuilt and after
//! a crash, and memory does not grow.

use std::time::Duration;

use interflow_testkit::{Ending, Origin, Reply, Request, Wire};
use serde_json::{Value, json};

use crate::instance::{Home, Running};

/// The start of an Anthropic stream: one complete event and half of the next.
const HALF: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m1\",\"role\":\"assistant\",\
    \"model\":\"claude-x\",\"content\":[],\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n\
    event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\
    \"text\":\"as far as it came\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_blo";

fn answer(request: &Request) -> Reply {
    let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    match request.header("x-answer") {
        Some("half") => Reply::ok(HALF)
            .header("Content-Type", "text/event-stream")
            .claim_length(HALF.len() as u64 + 500)
            .ending(Ending::Cut),
        Some("page") => Reply::ok("<html>down</html>").header("Content-Type", "application/json"),
        Some("binary") => Reply::ok(every_byte).header("Content-Type", "text/event-stream"),
        Some("text") => Reply::ok(every_byte).header("Content-Type", "text/plain; charset=utf-8"),
        _ => Reply::json(&json!({"id": "m2", "type": "message", "role": "assistant", "model": "claude-x",
            "content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 5, "output_tokens": 1}})),
    }
}

fn question(words: &str) -> Vec<u8> {
    json!({"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": words}]})
        .to_string()
        .into_bytes()
}

async fn post(running: &Running, to: &Origin, wanted: &str, body: &[u8]) {
    let url = to.url("/v1/messages");
    let head = format!(
        "POST {url} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAnthropic-Version: 1\r\nX-Answer: {wanted}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        to.authority(),
        body.len()
    );
    let mut wire = Wire::connect(running.proxy).await.unwrap().patience(Some(Duration::from_secs(120)));
    wire.send([head.as_bytes(), body].concat()).await.unwrap();
    let head = wire.answer_head().await.unwrap();
    assert_eq!(head.status, 200, "{wanted}");
    let _ = wire.to_end().await;
}

/// The texts of all conversations, once `n` exchanges have been indexed.
async fn conversations(home: &Home, n: usize) -> String {
    for _ in 0..100 {
        let all = home.say(&["conversations", "export", "--format", "jsonl"]).ok();
        if all.lines().filter(|l| l.contains("\"exchange\":{")).count() == n {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{n} exchanges: {}", home.say(&["conversations", "list", "--all"]).ok());
}

#[tokio::test]
async fn malformed_llm_traffic_is_recorded_whole_without_errors() {
    let home = Home::new().await;
    let provider = Origin::http().answering(answer).start().await;
    let running = home.start("");
    let lines: String = (0..1_000_000).map(|i| if i % 2 == 0 { "a\n" } else { "b\n" }).collect();
    let deep = [vec![b'['; 200_000], vec![b']'; 200_000]].concat();
    let shapes = json!({"model": {}, "messages": [1, null, {"role": 5, "content": {"text": []}}], "tools": "none"});
    let bodies: [(&str, Vec<u8>); 12] = [
        ("half", question("half a stream")),
        ("page", question("a page in place of JSON")),
        ("binary", question("binary as events")),
        ("text", question("binary as text")),
        ("fine", question(&lines)),
        ("fine", b"this is not JSON at all".to_vec()),
        ("fine", question("cut in the middle")[..40].to_vec()),
        ("fine", (0..=255).cycle().take(5000).collect()),
        ("fine", deep),
        ("fine", shapes.to_string().into_bytes()),
        ("fine", b"null".to_vec()),
        ("fine", question("sense again")),
    ];
    for (wanted, body) in &bodies {
        post(&running, &provider, wanted, body).await;
    }
    // Six are LLM requests; the malformed one contains no messages.
    let live = conversations(&home, 6).await;
    for words in
        ["half a stream", "as far as it came", "a page in place of JSON", "binary as events", "sense again", "b\\na\\n"]
    {
        assert!(live.contains(words), "{words}");
    }
    let cut = live.lines().find(|l| l.contains("\"exchange\":{") && l.contains("\"error\"")).expect("the cut is told");
    assert!(cut.contains("cut"), "{cut}");
    let flows = home.say(&["flows", "list", "--format", "jsonl"]).ok();
    let sizes: Vec<u64> = flows
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap())
        .map(|f| f["request"]["body"]["kept"].as_u64().unwrap())
        .collect();
    let sent: Vec<u64> = bodies.iter().map(|(_, b)| b.len() as u64).collect();
    let (mut sizes, mut sent) = (sizes, sent);
    sizes.sort_unstable();
    sent.sort_unstable();
    assert_eq!(sizes, sent, "nothing that was sent is lost");
    home.say(&["conversations", "rebuild"]).ok();
    assert_eq!(conversations(&home, 6).await, live, "a rebuild gives the same result");
    running.kill();
    let again = home.start("");
    assert_eq!(conversations(&home, 6).await, live, "after a crash it is the same");
    again.stop();
}

/// Resident memory of a process in KiB: `VmRSS` total, `RssFile` file-backed.
#[cfg(target_os = "linux")]
fn resident(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(what)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends this many requests sequentially on one connection.
#[cfg(target_os = "linux")]
async fn requests(proxy: std::net::SocketAddr, authority: String, n: usize) {
    let mut wire = Wire::connect(proxy).await.unwrap();
    let head = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    for _ in 0..n {
        wire.send(&head).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_client_that_never_reads_is_disconnected_with_bounded_memory() {
    const ROUND: usize = 4000;
    let home = Home::new().await;
    let origin = Origin::http().unrecorded().answering(|_| Reply::ok("ok")).start().await;
    let running = home.start_with_log("");
    let mut viewers = Vec::new();
    for _ in 0..4 {
        let mut wire = Wire::connect(running.admin).await.unwrap();
        let head = format!(
            "GET /api/v1/events?query= HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            running.admin, running.token
        );
        wire.send(head).await.unwrap();
        assert_eq!(wire.answer_head().await.unwrap().status, 101);
        viewers.push(wire);
    }
    let mut held = Vec::new();
    for _ in 0..5 {
        let asked = (0..4).map(|_| tokio::spawn(requests(running.proxy, origin.authority(), ROUND / 4)));
        for one in asked.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        held.push(resident(running.pid(), "VmRSS"));
    }
    running.until(async || home.file("log").matches("event client timed out").count() == 4).await;
    assert!(held[4] < held[0] + (48 << 10), "memory in KiB after each round: {held:?}");
    let count = running.admin("GET", "/api/v1/flows/count", "").await.text();
    assert!(count.contains(&(5 * ROUND).to_string()), "{count}");
    running.stop();
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn startup_code_pages_are_released_and_reloaded_on_demand() {
    let home = Home::new().await;
    let origin = Origin::http().answering(|_| Reply::ok("ok")).start().await;
    let running = home.start("");
    let started = resident(running.pid(), "RssFile");
    running.until(async || resident(running.pid(), "RssFile") < started / 2).await;
    requests(running.proxy, origin.authority(), 10).await;
    running.stop();
}
