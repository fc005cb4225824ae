//! The response cache: what is answered from it, for whom, and what never gets into it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, Reply, llm};
use serde_json::Value;

use crate::CHAT;
use crate::instance::{Home, Running};

const PATH: &str = "/openai/v1/chat/completions";

fn config(home: &Home, cache: &str) -> String {
    let url = home.provider.url("");
    format!("[llm.provider.openai]\nurl = \"{url}\"\napi_key = \"sk-real\"\n[llm.cache]\n{cache}\n")
}

fn cached(answer: &Answer) -> &str {
    answer.header("x-interflow-cache").unwrap_or("none")
}

async fn metric(running: &Running, name: &str) -> f64 {
    let page = running.admin("GET", "/metrics", "").await.text();
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name}\n{page}")).parse().unwrap()
}

/// Waits until this many responses were stored: that happens when a flow has ended, after its client got the last byte.
async fn stored(running: &Running, n: f64) {
    running.until(async || metric(running, "interflow_llm_cache_stored_responses_total").await >= n).await;
}

#[tokio::test]
async fn a_repeated_request_is_answered_from_memory_and_costs_nothing() {
    let home = Home::new().await;
    let key = home.keys(&["add", "--id", "k1", "--requests", "4/h", "--tokens-per-day", "200"]).ok().trim().to_owned();
    let running = home.start(&format!("{}[audit]\nenabled = true\n", config(&home, "store = \"memory\"")));
    let fields = format!("Authorization: Bearer {key}\r\n");
    let first = running.post(PATH, &fields, CHAT).await;
    assert_eq!((first.status, cached(&first)), (200, "MISS"), "{first:?}");
    stored(&running, 1.0).await;
    // White space between the tokens of JSON means nothing.
    let second = running.post(PATH, &fields, &CHAT.replace("\":", "\" : ")).await;
    assert_eq!((second.status, cached(&second)), (200, "HIT"), "{second:?}");
    assert!(second.header("age").is_some() && first.header("age").is_none());
    assert_eq!(second.header("content-type"), first.header("content-type"));
    assert_eq!(second.body, first.body);
    assert_eq!(home.provider.requests().len(), 1);
    let other = running.post(PATH, &fields, &CHAT.replace("50", "51")).await;
    assert_eq!(cached(&other), "MISS", "another parameter is another request");
    // Hits count as requests, but not as tokens: three requests and the tokens of two.
    assert_eq!(cached(&running.post(PATH, &fields, CHAT).await), "HIT");
    assert_eq!(running.post(PATH, &fields, CHAT).await.status, 429);
    running.until(async || home.file("audit.jsonl").lines().count() == 5).await;
    let log = home.file("audit.jsonl");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["dollars"].as_f64() > Some(0.0), "{}", lines[0]);
    assert_eq!((lines[1]["dollars"].as_f64(), lines[1]["input_tokens"].as_u64().unwrap_or_default()), (Some(0.0), 0));
    assert_eq!(metric(&running, "interflow_llm_cache_requests_total{result=\"hit\"}").await, 2.0);
    assert_eq!(metric(&running, "interflow_llm_cache_requests_total{result=\"miss\"}").await, 2.0);
    let paid = lines[0]["dollars"].as_f64().unwrap();
    let saved = "interflow_llm_cache_saved_cost_usd_total{provider=\"openai\",model=\"gpt-4o\"}";
    assert!((metric(&running, saved).await - 2.0 * paid).abs() < 1e-6);
    let list = async || running.admin("GET", "/api/v1/flows?query=tag:cache:hit", "").await.text();
    running.until(async || list().await.matches("\"cache:hit\"").count() == 2).await;
    running.stop();
}

#[tokio::test]
async fn whole_responses_of_a_provider_with_http2_are_repeated_too() {
    let home = Home::new().await;
    let (provider, received) = llm::provider(Origin::https());
    let provider = provider.start().await;
    let ca = home.dir.path().join("provider.pem");
    std::fs::write(&ca, provider.ca().pem()).unwrap();
    let url = provider.url("");
    let running = home.start(&format!(
        "[upstream]\nextra_ca = [{ca:?}]\n[llm.provider.openai]\nurl = \"{url}\"\napi_key = \"sk-real\"\n\
         [llm.cache]\nstore = \"memory\"\n"
    ));
    let first = running.post(PATH, "", CHAT).await;
    assert_eq!((first.status, cached(&first)), (200, "MISS"), "{first:?}");
    assert!(provider.requests().iter().all(|request| request.version == "HTTP/2"), "{:?}", provider.requests());
    stored(&running, 1.0).await;
    assert_eq!(cached(&running.post(PATH, "", CHAT).await), "HIT");
    assert_eq!(received.requests(), 1);
    running.stop();
}

#[tokio::test]
async fn clients_and_configuration_decide_what_is_looked_up() {
    let home = Home::new().await;
    let running = home.start(&config(&home, "store = \"memory\"\nmodels = [\"gpt-*\"]"));
    let ask = async |fields: &str, body: &str| cached(&running.post(PATH, fields, body).await).to_owned();
    assert_eq!(ask("", CHAT).await, "MISS");
    stored(&running, 1.0).await;
    for (fields, body, expected) in [
        ("", CHAT.to_owned(), "HIT"),
        ("Cache-Control: no-store\r\n", CHAT.to_owned(), "BYPASS"),
        ("Cache-Control: no-cache\r\n", CHAT.to_owned(), "MISS"),
        ("Cache-Control: max-age=60\r\n", CHAT.to_owned(), "HIT"),
        ("OpenAI-Organization: other\r\n", CHAT.to_owned(), "MISS"),
        ("X-Amzn-Bedrock-GuardrailIdentifier: g\r\n", CHAT.to_owned(), "MISS"),
        ("X-Amzn-Bedrock-GuardrailVersion: 2\r\n", CHAT.to_owned(), "MISS"),
        ("X-Amzn-Bedrock-Trace: ENABLED\r\n", CHAT.to_owned(), "MISS"),
        ("X-Amzn-Bedrock-PerformanceConfig-Latency: optimized\r\n", CHAT.to_owned(), "MISS"),
        ("X-Amzn-Bedrock-Service-Tier: flex\r\n", CHAT.to_owned(), "MISS"),
        ("X-Policy-Id: strict\r\n", CHAT.to_owned(), "MISS"),
        ("Authorization: Bearer of-somebody\r\n", CHAT.to_owned(), "MISS"),
        (
            "",
            CHAT.replace("\"max", "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"max"),
            "BYPASS",
        ),
        ("", CHAT.replace("gpt-4o", "o3"), "none"),
        // Parsers differ in which of two members they take.
        ("", CHAT.replace("\"max", "\"tools\":[],\"tools\":[],\"max"), "BYPASS"),
        ("", format!("{},{}", CHAT.trim_end_matches('}'), &CHAT[1..]), "MISS"),
    ] {
        assert_eq!(ask(fields, &body).await, expected, "{fields}{body}");
    }
    let state = r#"{"model":"gpt-4o","input":"x","previous_response_id":"r1"}"#;
    let answer = running.post("/openai/v1/responses", "", state).await;
    assert_eq!(cached(&answer), "BYPASS", "{answer:?}");
    assert_eq!(cached(&running.ask("GET", "/openai/v1/models", "", "").await), "none");
    // With another upstream model behind the same name, the old response is not repeated.
    home.write_config(&format!(
        "{}[llm.aliases]\n\"gpt-4o\" = \"gpt-5\"\n",
        config(&home, "store = \"memory\"\nmodels = [\"gpt-*\"]")
    ));
    running.until(async || ask("", CHAT).await == "MISS").await;
    running.stop();
}

#[tokio::test]
async fn errors_and_broken_responses_are_not_repeated() {
    let home = Home::new().await;
    let failing = Origin::http().answering(|request| {
        let half = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
        let filtered = "{\"choices\":[{\"finish_reason\":\"content_filter\",\"message\":{\"content\":\"\"}}]}";
        match request.header("x-way").unwrap_or_default() {
            "cut" => Reply::ok(half).header("content-type", "text/event-stream"),
            "filtered" => Reply::ok(filtered).header("content-type", "application/json"),
            "html" => Reply::ok("<html>").header("content-type", "text/html"),
            _ => Reply::status(500),
        }
    });
    let failing = failing.start().await;
    let cache = "[llm.provider.openai]\nurl = \"URL\"\n[llm.cache]\nstore = \"memory\"\n";
    let running = home.start(&cache.replace("URL", failing.url("").trim_end_matches('/')));
    for way in ["error", "cut", "filtered", "html"] {
        for _ in 0..2 {
            let answer = running.post(PATH, &format!("X-Way: {way}\r\n"), &CHAT.replace("hello", way)).await;
            assert_eq!(cached(&answer), "MISS", "{way}: {answer:?}");
        }
    }
    assert_eq!(failing.requests().len(), 8);
    assert_eq!(metric(&running, "interflow_llm_cache_stored_responses_total").await, 0.0);
    running.stop();
}

#[tokio::test]
async fn a_stream_is_repeated_as_a_stream() {
    let home = Home::new().await;
    let running = home.start(&config(&home, "store = \"memory\""));
    let body = CHAT.replacen('{', "{\"stream\":true,", 1);
    let first = running.post(&format!("{PATH}?chunks=5"), "", &body).await;
    stored(&running, 1.0).await;
    let second = running.post(&format!("{PATH}?chunks=5"), "", &body).await;
    assert_eq!((cached(&first), cached(&second)), ("MISS", "HIT"));
    assert!(second.header("content-type").unwrap().starts_with("text/event-stream"));
    assert!(second.text().trim_end().ends_with("data: [DONE]"), "{}", second.text());
    assert_eq!(first.text(), second.text());
    assert_eq!(cached(&running.post(PATH, "", CHAT).await), "MISS", "the same request without a stream is another");
    // An Anthropic client of an OpenAI upstream gets its own format, also from the cache.
    let claude = body.replace("gpt-4o", "claude-x");
    let config = config(&home, "store = \"memory\"").replace("api_key", "format = \"openai_chat\"\napi_key");
    running.stop();
    let running = home.start(&config);
    let fields = "anthropic-version: 2023-06-01\r\n";
    let ask = async || running.post("/openai/v1/messages", fields, &claude).await;
    running.until(async || cached(&ask().await) == "HIT").await;
    let repeated = ask().await;
    assert_eq!(repeated.header("x-interflow-translated"), Some("openai_chat"), "{repeated:?}");
    assert!(repeated.text().contains("event: message_stop"), "{}", repeated.text());
    assert!(repeated.text().contains("event: content_block_delta"), "{}", repeated.text());
    running.stop();
}

#[tokio::test]
async fn personal_data_of_one_user_never_reaches_another() {
    let home = Home::new().await;
    let [ann, bob] = ["ann", "bob"].map(|id| home.keys(&["add", "--id", id, "--owner", id]).ok().trim().to_owned());
    let running = home.start(&config(&home, "store = \"memory\"\nscope = \"shared\""));
    let ask = async |key: &str, text: &str| {
        let body = CHAT.replace("hello", text);
        running.post(&format!("{PATH}?echo=1"), &format!("Authorization: Bearer {key}\r\n"), &body).await
    };
    // Without personal data they share.
    assert_eq!(cached(&ask(&ann, "add two and two").await), "MISS");
    stored(&running, 1.0).await;
    assert_eq!(cached(&ask(&bob, "add two and two").await), "HIT");
    // With personal data each gets their own, and what is stored has placeholders.
    let first = ask(&ann, "write to ann.secret@firm.test").await;
    assert!(first.text().contains("ann.secret@firm.test"), "{}", first.text());
    stored(&running, 2.0).await;
    let same = ask(&ann, "write to ann.secret@firm.test").await;
    assert_eq!(cached(&same), "HIT");
    assert!(same.text().contains("ann.secret@firm.test"), "restored from the cache: {}", same.text());
    let other = ask(&bob, "write to bob.secret@firm.test").await;
    assert!(other.text().contains("bob.secret@firm.test") && !other.text().contains("ann."), "{}", other.text());
    let sent = home.provider.requests();
    assert!(sent.iter().all(|r| !String::from_utf8_lossy(&r.body).contains("secret@firm.test")), "{sent:?}");
    running.stop();
    // By default nothing is shared between keys at all.
    let running = home.start(&config(&home, "store = \"memory\""));
    for key in [&ann, &bob] {
        let answer = running.post(PATH, &format!("Authorization: Bearer {key}\r\n"), CHAT).await;
        assert_eq!(cached(&answer), "MISS");
    }
    running.stop();
}

/// A server in its own folder; `None` if this machine has no `redis-server`.
struct Redis {
    process: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Redis {
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--appendonly", "yes"]);
        command.arg("--dir").arg(dir.path());
        let Ok(process) = command.stdout(Stdio::null()).spawn() else {
            eprintln!("LEFT OUT: redis-server cannot be started; install it, or run `make test` as root");
            return None;
        };
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { process, port, dir })
    }

    /// All that the server wrote to disk.
    fn contents(&self) -> Vec<u8> {
        let folder = self.dir.path().join("appendonlydir");
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        files.flat_map(|file| std::fs::read(file.path()).unwrap_or_default()).collect()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn processes_share_encrypted_responses_through_redis_and_do_without_it() {
    let Some(redis) = Redis::start() else { return };
    let home = Home::new().await;
    let store = format!(
        "store = \"redis\"\nredis = \"redis://127.0.0.1:{}\"\nredis_key = \"file:{}\"",
        redis.port,
        home.dir.path().join("secret").display()
    );
    std::fs::write(home.dir.path().join("secret"), "a secret of both processes").unwrap();
    let text = config(&home, &store);
    let ask = async |running: &Running| running.post(&format!("{PATH}?text=MARKER"), "", CHAT).await;
    let one = home.start(&text);
    assert_eq!(cached(&ask(&one).await), "MISS");
    one.until(async || cached(&ask(&one).await) == "HIT").await;
    one.stop();
    let two = home.start(&text);
    let answer = ask(&two).await;
    assert_eq!(cached(&answer), "HIT");
    assert!(answer.text().contains("MARKER"));
    let on_disk = String::from_utf8_lossy(&redis.contents()).into_owned();
    assert!(
        on_disk.contains("interflow:cache:") && !on_disk.contains("MARKER") && !on_disk.contains("hello"),
        "{on_disk}"
    );
    // Without the server every request is a miss, and none an error.
    drop(redis);
    let asked = home.provider.requests().len();
    for _ in 0..2 {
        let answer = ask(&two).await;
        assert_eq!((answer.status, cached(&answer)), (200, "MISS"), "{answer:?}");
    }
    assert_eq!(home.provider.requests().len(), asked + 2);
    assert!(metric(&two, "interflow_llm_cache_errors_total").await > 0.0);
    two.stop();
}

#[tokio::test]
async fn a_cache_that_cannot_work_is_reported_at_startup() {
    let home = Home::new().await;
    for (cache, says) in [
        ("store = \"redis\"", "llm.cache.redis: no server"),
        ("store = \"redis\"\nredis = \"http://x\"", "llm.cache.redis cannot be used"),
        ("store = \"redis\"\nredis = \"redis://x\"\nredis_key = \"env:NOT_SET_ANYWHERE\"", "llm.cache.redis_key"),
        ("store = \"memory\"\nmax_body = \"1GB\"", "llm.cache.max_body"),
    ] {
        let said = home.refuses_to_start(&config(&home, cache));
        assert!(said.contains(says), "{says}: {said}");
    }
}
