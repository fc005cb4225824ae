//! What passes is what is charged: streams without usage, cut and abandoned requests, and budgets under parallel requests.

use std::time::Duration;

use bytes::Bytes;
use interflow_testkit::{Ending, Origin, Reply, Wire};
use serde_json::json;

use crate::instance::{Home, Running};

/// $1 per million input tokens, $10 per million output tokens.
const PRICES: &str = r#"{"prices": {"m": {"input": 1, "output": 10}}}"#;

/// Starts an instance with a provider at this URL, and a key with this daily budget in dollars.
async fn start(home: &Home, url: &str, more: &str, budget: f64) -> (Running, String) {
    start_with(home, url, more, &["--money-per-day", &budget.to_string()]).await
}

/// Starts an instance with a provider at this URL, and a key with these limits.
async fn start_with(home: &Home, url: &str, more: &str, limits: &[&str]) -> (Running, String) {
    let key = home.keys(&[&["add", "--id", "k"], limits].concat()).ok().trim().to_owned();
    std::fs::write(home.dir.path().join("prices.json"), PRICES).unwrap();
    let url = url.trim_end_matches('/');
    let config = format!(
        "[quota]\nprices = \"prices.json\"\n[keys]\nrequire_virtual_key = true\n\
         [llm.provider.openai]\nurl = \"{url}\"\napi_key = \"sk-real\"\n{more}\
         [llm.provider.anthropic]\nurl = \"{url}\"\napi_key = \"sk-real\"\n"
    );
    (home.start(&config), format!("Authorization: Bearer {key}\r\n"))
}

/// Dollars, or tokens, of the key's budget that are used.
async fn used(running: &Running) -> f64 {
    let limits = running.admin("GET", "/api/v1/limits", "").await.json();
    let counters = limits["counters"].as_array().unwrap();
    let is_budget = |name: &str| name.ends_with("_per_day");
    counters.iter().find(|c| c["counter"].as_str().is_some_and(is_budget)).map_or(0.0, |c| c["used"].as_f64().unwrap())
}

/// Waits until the budget's use is as expected: requests are settled after their last byte.
async fn until_used(running: &Running, from: f64, to: f64) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let now = used(running).await;
        if (from..=to).contains(&now) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{now} is not from {from} to {to}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until conversations show this many output tokens.
async fn until_output(running: &Running, tokens: u64) {
    let totals = async || running.admin("GET", "/api/v1/conversations/totals", "").await.json()["totals"].clone();
    running.until(async || totals().await[0]["used"]["output"] == tokens).await;
}

fn ask(stream: bool, most: u64) -> String {
    json!({ "model": "m", "max_tokens": most, "stream": stream, "messages": [{ "role": "user", "content": "hello" }] })
        .to_string()
}

/// Sends a request and leaves when this was read of the response.
async fn leave(running: &Running, path: &str, fields: &str, body: &str, after: Option<&str>) {
    let mut wire = Wire::connect(running.gateway).await.unwrap();
    let n = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: {n}\r\n{fields}\r\n"
    );
    wire.send(format!("{head}{body}")).await.unwrap();
    let mut read = String::new();
    while after.is_some_and(|mark| !read.contains(mark)) {
        read += &String::from_utf8_lossy(&wire.some().await.unwrap());
    }
    if after.is_none() {
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn usage_of_a_stream_is_asked_for_and_hidden_from_a_client_that_did_not_ask() {
    let home = Home::new().await;
    let (running, key) = start(&home, &home.provider.url(""), "", 100.0).await;
    // 40,000 output tokens at $10 per million.
    let path = "/v1/chat/completions?size=160000&chunks=20";
    let answer = running.post(path, &key, &ask(true, 50_000)).await;
    let text = answer.text();
    assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("prompt_tokens"), "{}", &text[text.len() - 500..]);
    assert!(String::from_utf8_lossy(&home.provider.only_request().body).contains(r#""include_usage":true"#));
    until_used(&running, 0.4, 0.4001).await;
    let asking =
        ask(true, 50_000).replace("\"stream\":true", "\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    let answer = running.post(path, &key, &asking).await;
    assert!(answer.text().contains("prompt_tokens"));
    until_used(&running, 0.8, 0.8002).await;
    // The record has the report, whether or not the client asked for it.
    until_output(&running, 80_000).await;
    running.stop();
}

#[tokio::test]
async fn a_stream_that_is_asked_for_without_limits_and_keys_is_not_changed() {
    let home = Home::new().await;
    let running = home.start(&format!("[llm.provider.openai]\nurl = \"{}\"\n", home.provider.url("")));
    running.post("/v1/chat/completions", "Authorization: Bearer sk\r\n", &ask(true, 9)).await;
    assert_eq!(String::from_utf8_lossy(&home.provider.only_request().body), ask(true, 9));
    running.stop();
}

#[tokio::test]
async fn a_provider_that_reports_no_usage_is_paid_for_what_it_sent() {
    let home = Home::new().await;
    // 8,000 words, as one delta and as a whole reply.
    let words = "words ".repeat(8_000);
    let stream =
        format!("data: {}\n\ndata: [DONE]\n\n", json!({ "choices": [{ "index": 0, "delta": { "content": words } }] }));
    let whole = json!({ "choices": [{ "message": { "role": "assistant", "content": words } }] });
    let provider = Origin::http().answering(move |request| {
        match String::from_utf8_lossy(&request.body).contains("\"stream\":true") {
            true => Reply::ok(stream.clone()).header("Content-Type", "text/event-stream"),
            false => Reply::json(&whole),
        }
    });
    let provider = provider.start().await;
    let (running, key) = start(&home, &provider.url(""), "", 100.0).await;
    // 48,000 bytes: about 12,000 tokens.
    for (n, is_stream) in [(1.0, true), (2.0, false)] {
        assert_eq!(running.post("/v1/chat/completions", &key, &ask(is_stream, 50_000)).await.status, 200);
        until_used(&running, n * 0.12, n * 0.1201).await;
    }
    until_output(&running, 24_000).await;
    running.stop();
}

#[tokio::test]
async fn a_report_that_no_call_can_have_is_not_believed() {
    let home = Home::new().await;
    let whole = json!({ "choices": [{ "message": { "role": "assistant", "content": "words ".repeat(8_000) } }],
        "usage": { "prompt_tokens": 100, "completion_tokens": i64::MAX } });
    let provider = Origin::http().answering(move |_| Reply::json(&whole)).start().await;
    let (running, key) = start(&home, &provider.url(""), "", 100.0).await;
    for n in [1.0, 2.0] {
        assert_eq!(running.post("/v1/chat/completions", &key, &ask(false, 50_000)).await.status, 200);
        until_used(&running, n * 0.12, n * 0.1201).await;
    }
    running.stop();
}

#[tokio::test]
async fn cut_streams_are_charged_for_what_was_delivered() {
    let home = Home::new().await;
    let (running, key) = start(&home, &home.provider.url(""), "", 100.0).await;
    // Twenty pieces of 2,000 tokens, of which the client reads the first ones: Anthropic's first event says one token.
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let before = used(&running).await;
        let path = format!("{path}?size=160000&chunks=20&gap=300");
        let fields = match path.contains("messages") {
            true => format!("{}anthropic-version: 2023-06-01\r\n", key.replace("Authorization: Bearer", "x-api-key:")),
            false => key.clone(),
        };
        leave(&running, &path, &fields, &ask(true, 50_000), Some("lazy dog")).await;
        until_used(&running, before + 0.02, before + 0.2).await;
    }
    running.stop();
}

#[tokio::test]
async fn a_stream_that_the_provider_cuts_is_charged_for_what_it_sent() {
    let home = Home::new().await;
    let start_event = json!({ "type": "message_start", "message": { "id": "i", "model": "m", "usage": { "input_tokens": 9, "output_tokens": 1 } } });
    let delta = json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "words ".repeat(8_000) } });
    let events = format!("event: message_start\ndata: {start_event}\n\nevent: content_block_delta\ndata: {delta}\n\n");
    let provider = Origin::http().answering(move |_| {
        let pieces = vec![Bytes::from(events.clone()), Bytes::from_static(b"event: ping\n")];
        let reply = Reply::status(200).pieces(pieces, Duration::ZERO);
        reply.header("Content-Type", "text/event-stream").ending(Ending::Cut)
    });
    let provider = provider.start().await;
    let (running, key) = start(&home, &provider.url(""), "", 100.0).await;
    let fields = key.replace("Authorization: Bearer", "x-api-key:");
    leave(&running, "/v1/messages", &fields, &ask(true, 50_000), Some("words words")).await;
    until_used(&running, 0.12, 0.1201).await;
    running.stop();
}

#[tokio::test]
async fn clients_that_leave_before_the_answer_pay_for_what_reached_the_provider() {
    // The same requests are sent by the proxy itself, and by the gateway, which may have to repeat them.
    for more in ["", "attempts = 2\n"] {
        let home = Home::new().await;
        let (running, key) = start(&home, &home.provider.url(""), more, 100.0).await;
        let path = "/v1/chat/completions?delay=60000";
        // A whole reply is generated though its client left: its maximum is charged.
        leave(&running, path, &key, &ask(false, 20_000), None).await;
        until_used(&running, 0.2, 0.201).await;
        // Of a stream nothing was generated yet: the input is charged.
        let before = used(&running).await;
        leave(&running, path, &key, &ask(true, 20_000), None).await;
        home.provider.wait_for_requests(2).await;
        until_used(&running, before + 0.000_001, before + 0.001).await;
        running.stop();
    }
}

#[tokio::test]
async fn requests_that_reach_no_provider_cost_nothing() {
    for more in ["", "attempts = 2\n"] {
        let home = Home::new().await;
        let nobody = Origin::nobody().await;
        let (running, key) = start(&home, &format!("http://{nobody}"), more, 100.0).await;
        for stream in [true, false] {
            let answer = running.post("/v1/chat/completions", &key, &ask(stream, 20_000)).await;
            assert!(answer.status >= 500, "{answer:?}");
        }
        let counted = running
            .post("/v1/messages/count_tokens", &key.replace("Authorization: Bearer", "x-api-key:"), &ask(false, 9))
            .await;
        assert!(counted.status >= 500, "{counted:?}");
        until_used(&running, 0.0, 0.0).await;
        running.stop();
    }
}

#[tokio::test]
async fn a_hundred_parallel_requests_do_not_exceed_a_budget() {
    let home = Home::new().await;
    // Each has at most 30,000 output tokens, and uses them all: $0.30. The budget covers three.
    let (running, key) = start(&home, &home.provider.url(""), "", 1.0).await;
    let path = "/v1/chat/completions?size=120000&chunks=4&gap=50";
    let bodies: Vec<String> = (0..100).map(|n| ask(n % 2 == 0, 30_000)).collect();
    let requests = bodies.iter().map(|body| running.post(path, &key, body));
    let answers = futures_util::future::join_all(requests).await;
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    let refused = answers.iter().filter(|answer| answer.status == 429).count();
    assert_eq!((admitted, refused), (3, 97));
    assert_eq!(home.provider.requests().len(), 3);
    until_used(&running, 0.9, 0.901).await;
    // Choices multiply: three of 20,000 tokens are more than is left of the budget, and more than all of it.
    for body in [ask(false, 20_000), ask(false, 9).replacen('{', "{\"n\":9000,", 1)] {
        let answer = running.post(path, &key, &body).await;
        assert_eq!(answer.status, 429, "{answer:?}");
        assert!(answer.text().contains("less of it is left"), "{answer:?}");
    }
    assert_eq!(running.post("/v1/chat/completions?size=40", &key, &ask(false, 100)).await.status, 200);
    running.stop();
}

#[tokio::test]
async fn requests_without_a_maximum_exceed_no_budget_in_parallel_and_use_it_up_one_by_one() {
    // 8,000 output tokens each: $0.08.
    let path = "/v1/chat/completions?size=32000";
    let body = |n: usize| {
        let message = json!({ "role": "user", "content": "hello" });
        json!({ "model": "m", "stream": n.is_multiple_of(2), "messages": [message] }).to_string()
    };
    for (limit, budget, each) in [
        (["--money-per-day", "1"], 1.0, 0.08),
        (["--tokens-per-day", "100000"], 100_000.0, 8_000.0),
        // Less than one request uses.
        (["--money-per-day", "0.05"], 0.05, 0.08),
    ] {
        let home = Home::new().await;
        let (running, key) = start_with(&home, &home.provider.url(""), "", &limit).await;
        let (slow, bodies) = (format!("{path}&delay=1000"), (0..100).map(body).collect::<Vec<_>>());
        let answers = futures_util::future::join_all(bodies.iter().map(|body| running.post(&slow, &key, body))).await;
        let (admitted, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
        let by_reservation = |text: &str| text.contains("is reserved by requests in progress");
        for answer in &refused {
            assert_eq!(answer.status, 429, "{answer:?}");
            let is_retried = answer.header("x-should-retry").is_none() && answer.header("retry-after") == Some("1");
            assert_eq!(is_retried, by_reservation(&answer.text()), "{answer:?}");
        }
        let example = refused.iter().find(|answer| by_reservation(&answer.text())).unwrap().text();
        assert!(example.contains("max_tokens") && example.contains("daily budget of"), "{example}");
        let mut spent = admitted.len() as f64 * each;
        assert!(spent > 0.0 && spent < budget + each, "{} admitted", admitted.len());
        until_used(&running, spent, spent * 1.01).await;
        let last = loop {
            let answer = running.post(path, &key, &body(1)).await;
            if answer.status != 200 {
                break answer;
            }
            spent += each;
            until_used(&running, spent, spent * 1.01).await;
        };
        assert_eq!((last.status, last.header("x-should-retry")), (429, Some("false")), "{last:?}");
        // A thousand tokens are left at most.
        assert!(spent > budget - each / 8.0 && spent < budget + each, "{spent}");
        running.stop();
    }
}
