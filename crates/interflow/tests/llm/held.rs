//! Held memory is counted, and released when the client disconnects.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use interflow_testkit::{Origin, Reply, Wire};

use crate::CHAT;
use crate::instance::{Home, Running};

/// Reads a metric of the instance.
async fn metric(running: &Running, name: &str) -> u64 {
    let page = running.admin("GET", "/metrics", "").await.text();
    let line = page.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    line.and_then(|v| v.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in {page}")) as u64
}

/// Small when compressed, large when decompressed, and larger still once its texts are indexed.
fn attack() -> Vec<u8> {
    let numbers = "1,".repeat(900_000);
    let body = format!(r#"{{"model":"gpt-4o","messages":[],"x":[{numbers}1]}}"#);
    let mut coder = GzEncoder::new(Vec::new(), Compression::best());
    coder.write_all(body.as_bytes()).unwrap();
    coder.finish().unwrap()
}

#[tokio::test]
async fn requests_over_the_memory_limit_are_refused_with_and_without_redaction() {
    // Inspected bodies take memory for each text; others only for the decompressed body.
    for (mode, limit, refused) in
        [("off", "1MiB", true), ("flag", "1MiB", true), ("redact", "48MiB", true), ("off", "48MiB", false)]
    {
        let home = Home::new().await;
        let config =
            format!("[limits]\nheld_bytes = \"{limit}\"\n[redact]\ngateway = \"{mode}\"\nproxied = \"{mode}\"\n");
        let running = home.start(&config);
        let body = attack();
        let ask = |gateway: bool| {
            let to = if gateway { running.gateway } else { running.proxy };
            let url = if gateway { String::new() } else { home.provider.url("") };
            let head = format!(
                "POST {url}/v1/chat/completions HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\n\
                 Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let body = body.clone();
            async move {
                // Twelve bodies of 1.8 MB are scanned at once, by a binary that may be built for debugging.
                let mut wire = Wire::connect(to).await.unwrap().patience(Some(Duration::from_secs(120)));
                wire.send([head.as_bytes(), &body].concat()).await.unwrap();
                wire.answer().await.unwrap()
            }
        };
        let answers = futures_util::future::join_all((0..12).map(|i| ask(i % 2 == 0))).await;
        assert!(answers.iter().all(|a| (a.status == 503) == refused), "{mode}: {answers:?}");
        if !refused {
            continue;
        }
        assert!(answers[0].text().contains("limits.held_bytes"), "{mode}: {answers:?}");
        assert!(metric(&running, "interflow_held_bytes_rejections_total").await >= 12);
        running.until(async || metric(&running, "interflow_held_bytes").await == 0).await;
        let small = running.post("/v1/chat/completions", "", CHAT).await;
        assert_ne!(small.status, 503, "{mode}: others are served: {small:?}");
    }
}

/// The head of a WebSocket frame of 4 MiB, and its first half.
fn half_a_message() -> Vec<u8> {
    let mut bytes = vec![0x82, 0xff];
    bytes.extend_from_slice(&(4_u64 << 20).to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.resize(bytes.len() + (2 << 20), b'x');
    bytes
}

#[tokio::test]
async fn websocket_messages_count_against_memory_and_are_uninspected_over_it() {
    for (limit, counted) in [("1GiB", true), ("1MiB", false)] {
        let home = Home::new().await;
        let running = home.start(&format!("[limits]\nheld_bytes = \"{limit}\"\n"));
        let origin = Origin::http().start().await;
        let mut wire = Wire::connect(running.proxy).await.unwrap();
        wire.send(format!(
            "GET {} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            origin.url("/ws")
        ))
        .await
        .unwrap();
        assert_eq!(wire.answer_head().await.unwrap().status, 101);
        wire.send(half_a_message()).await.unwrap();
        if counted {
            running.until(async || metric(&running, "interflow_held_bytes").await >= 2 << 20).await;
        } else {
            running.until(async || metric(&running, "interflow_held_bytes_rejections_total").await > 0).await;
            assert!(metric(&running, "interflow_held_bytes").await <= 1 << 20);
        }
        // No stage inspects the message, so all of it is relayed and echoed.
        wire.send(vec![b'x'; 2 << 20]).await.unwrap();
        assert_eq!(wire.exactly(2).await.unwrap()[0], 0x82);
        drop(wire);
        running.until(async || metric(&running, "interflow_held_bytes").await == 0).await;
    }
}

#[tokio::test]
async fn client_disconnect_releases_its_concurrency_slot() {
    let home = Home::new().await;
    let provider = Origin::http().answering(|_| Reply::ok("{}").delay(Duration::from_secs(600))).start().await;
    let quota = "[[quota.rule]]\nname = \"two\"\ncount_by = \"global\"\nallow = { concurrent = 2 }\n";
    let running = home.start(&format!("{quota}[llm.provider.openai]\nurl = \"{}\"\n", provider.url("")));
    let ask = async || {
        let mut wire = Wire::connect(running.gateway).await.unwrap();
        wire.send(format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{CHAT}",
            CHAT.len()
        ))
        .await
        .unwrap();
        wire
    };
    let first = [ask().await, ask().await];
    provider.wait_for_requests(2).await;
    assert_eq!(running.post("/v1/chat/completions", "", CHAT).await.status, 429, "both places are taken");
    drop(first);
    running.until(async || metric(&running, "interflow_llm_requests_in_flight").await == 0).await;
    let _next = [ask().await, ask().await];
    provider.wait_for_requests(4).await;
}
