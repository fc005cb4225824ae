//! Secrets for placeholders: injected at the origins they are bound to, and masked in everything that these return,
//! tested from an attacker's perspective.

use std::io::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use interflow_testkit::{Reply, Request};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message as Frame;

use super::approvals::named;
use super::*;

const REAL: &str = "the-real/secret+of==the-bank";

/// An origin that records what it receives and echoes it in every possible way.
fn leaky() -> (OriginBuilder, Arc<Mutex<Vec<u8>>>) {
    let stored = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&stored);
    (Origin::http().answering(move |request| leak(request, &kept)), stored)
}

fn leak(request: &Request, stored: &Mutex<Vec<u8>>) -> Reply {
    if request.method == "POST" {
        *stored.lock().unwrap() = request.body.to_vec();
        return Reply::status(204);
    }
    let stored = stored.lock().unwrap().clone();
    let text = String::from_utf8_lossy(&stored).into_owned();
    let halves = |bytes: &[u8]| {
        let middle = bytes.len() / 2;
        vec![Bytes::copy_from_slice(&bytes[..middle]), Bytes::copy_from_slice(&bytes[middle..])]
    };
    let gzip = |bytes: &[u8]| {
        let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        w.write_all(bytes).unwrap();
        w.finish().unwrap()
    };
    let grpc = |compressed: bool, bytes: &[u8]| {
        [&[u8::from(compressed)][..], &u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    };
    match request.path() {
        "/plain" => Reply::ok(stored),
        "/gzip" => Reply::ok(gzip(&stored)).header("Content-Encoding", "gzip"),
        "/gzip-pieces" => {
            Reply::status(200).header("Content-Encoding", "gzip").pieces(halves(&gzip(&stored)), Duration::ZERO)
        }
        "/twice" => Reply::ok(gzip(&gzip(&stored))).header("Content-Encoding", "gzip, gzip"),
        "/unknown-coding" => Reply::ok(stored).header("Content-Encoding", "aes128gcm"),
        "/pieces" => Reply::status(200).pieces(halves(&stored), Duration::from_millis(5)),
        "/range" => match request.header("range").and_then(|r| r.strip_prefix("bytes=")?.split_once('-')) {
            Some((from, to)) => {
                let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
                let range = format!("bytes {from}-{to}/{}", stored.len());
                Reply::status(206).header("Content-Range", range).body(stored[from..=to].to_vec())
            }
            None => Reply::ok(stored),
        },
        "/partial" => Reply::status(206).header("Content-Range", "bytes 0-5/99").body(stored[..6].to_vec()),
        "/header" => Reply::ok("x").header("X-Back", &text).header("Location", format!("/?q={text}")),
        "/early" => Reply::ok("x").informational(103, &[("Link", &format!("</{text}>"))]),
        "/trailer" => {
            Reply::status(200).pieces(vec![Bytes::from_static(b"x")], Duration::ZERO).trailer("X-Back", &text)
        }
        "/events" => Reply::status(200)
            .header("Content-Type", "text/event-stream")
            .pieces(halves(format!("data: {text}\n\n").as_bytes()), Duration::from_millis(5)),
        "/json" => Reply::json(&json!({"back": text})),
        "/base64" => Reply::ok(base64(&format!("a{text}"))),
        "/grpc" => Reply::ok(grpc(false, &stored)).header("Content-Type", "application/grpc"),
        "/grpc-gzip" => Reply::ok(grpc(true, &gzip(&stored)))
            .header("Content-Type", "application/grpc+proto")
            .header("grpc-encoding", "gzip"),
        "/grpc-unknown" => {
            Reply::ok(grpc(true, &stored)).header("Content-Type", "application/grpc").header("grpc-encoding", "snappy")
        }
        "/grpc-web-text" => Reply::ok(base64(&text)).header("Content-Type", "application/grpc-web-text"),
        "/ws" => Reply::websocket(move |_| vec![text.clone()]),
        other => panic!("{other}"),
    }
}

/// A raw HTTP/1 response.
async fn raw(it: &Instance, url: &str, fields: &str) -> String {
    let mut wire = Wire::connect(it.engine.proxy_addresses()[0]).await.unwrap();
    let host = url.split('/').nth(2).unwrap();
    wire.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\nConnection: TE, close\r\n{fields}\r\n"))
        .await
        .unwrap();
    String::from_utf8_lossy(&wire.to_end().await.unwrap()).into_owned()
}

/// No file of the instance contains the secret.
fn assert_not_recorded(it: &Instance) {
    fn files(folder: &std::path::Path, all: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() { files(&entry.path(), all) } else { all.push(entry.path()) }
        }
    }
    let mut all = Vec::new();
    files(it._dir.path(), &mut all);
    assert!(all.iter().any(|f| f.to_string_lossy().contains("wal") || f.extension().is_some_and(|e| e == "db")));
    for file in all {
        let bytes = match std::fs::read(&file) {
            // A file that is replaced atomically has a short-lived neighbour.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.unwrap(),
        };
        assert!(!bytes.windows(REAL.len()).any(|w| w == REAL.as_bytes()), "{}", file.display());
    }
}

async fn bound(it: &Instance, host: &str) -> String {
    let made = it.post("/secrets", json!({"label": "api", "value": REAL, "hosts": [host]})).await;
    assert_eq!(made.status, 200, "{}", made.text());
    made.json()["placeholder"].as_str().unwrap().to_owned()
}

async fn plant(it: &Instance, host: &str, placeholder: &str, stored: &Mutex<Vec<u8>>) {
    let url = named(it, host, "/store");
    let mut wire = Wire::connect(it.engine.proxy_addresses()[0]).await.unwrap();
    let body = format!("key={placeholder}&");
    let n = body.len();
    wire.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {n}\r\n\r\n{body}")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 204);
    assert_eq!(*stored.lock().unwrap(), format!("key={REAL}&").as_bytes(), "the origin has it");
}

/// An instance whose origin has received a secret bound to it, and repeats it; and the secret's placeholder.
async fn planted() -> (Instance, String) {
    let (origin, stored) = leaky();
    let it = Instance::answering(origin).await;
    let placeholder = bound(&it, &named(&it, "held.test", "")).await;
    plant(&it, "held.test", &placeholder, &stored).await;
    (it, placeholder)
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_echoed_by_its_host_is_masked_in_every_part_and_coding_of_a_response() {
    let (it, placeholder) = planted().await;
    for path in [
        "/plain",
        "/gzip",
        "/gzip-pieces",
        "/twice",
        "/pieces",
        "/range",
        "/header",
        "/early",
        "/trailer",
        "/events",
        "/json",
        "/base64",
    ] {
        let answer = raw(&it, &named(&it, "held.test", path), "Accept-Encoding: gzip\r\n").await;
        assert!(!answer.contains(REAL) && !answer.contains(&base64(REAL)[4..20]), "{path}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 200") || path == "/early", "{path}: {answer}");
        assert!(answer.contains(&placeholder), "{path}: the placeholder stands there: {answer}");
    }
    it.settle().await;
    assert_not_recorded(&it);
}

#[tokio::test(flavor = "multi_thread")]
async fn adjacent_ranges_do_not_yield_a_secret_in_two_halves() {
    let (it, placeholder) = planted().await;
    for range in ["0-10", "11-31"] {
        let answer =
            raw(&it, &named(&it, "held.test", "/range"), &format!("Range: bytes={range}\r\nIf-Range: \"x\"\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&placeholder), "{answer}");
    }
    it.settle().await;
    assert_not_recorded(&it);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_in_which_a_secret_cannot_be_looked_for_are_refused() {
    let (it, _) = planted().await;
    for (path, why) in [
        ("/unknown-coding", "content coding"),
        ("/partial", "partial response"),
        ("/grpc-unknown", "snappy"),
        ("/grpc-web-text", "base64"),
    ] {
        let answer = raw(&it, &named(&it, "held.test", path), "").await;
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(why), "{path}: {answer}");
        assert!(!answer.contains("the-real"), "{path}: {answer}");
    }
    it.settle().await;
    assert_not_recorded(&it);
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_echoed_in_grpc_messages_is_masked() {
    let (it, _) = planted().await;
    for path in ["/grpc", "/grpc-gzip"] {
        let answer = raw(&it, &named(&it, "held.test", path), "").await;
        assert!(!answer.contains(REAL) && answer.contains("key=interflow-secret-"), "{path}: {answer}");
    }
    it.settle().await;
    assert_not_recorded(&it);
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_masked_for_other_ports_and_sessions_of_its_host() {
    let (origin, stored) = leaky();
    let kept = Arc::clone(&stored);
    let other = Origin::http().answering(move |request| leak(request, &kept)).start().await;
    let it = Instance::answering(origin).await;
    let session = json!({"id": "s1", "client": "127.0.0.1", "secrets": [
        {"label": "k", "value": REAL, "hosts": [named(&it, "held.test", "")], "placeholder": "a-placeholder-of-mine"}]});
    assert_eq!(it.post("/sessions", session).await.status, 200);
    plant(&it, "held.test", "a-placeholder-of-mine", &stored).await;
    let elsewhere = format!("http://held.test:{}", other.port());
    let sent = raw(&it, &format!("{elsewhere}/plain?q=a-placeholder-of-mine"), "").await;
    assert!(
        other.requests().pop().unwrap().target.ends_with("a-placeholder-of-mine"),
        "it is put in at one port alone"
    );
    assert!(!sent.contains(REAL) && sent.contains("a-placeholder-of-mine"), "{sent}");
    assert_eq!(it.call("DELETE", "/sessions/s1", &[], b"").await.status, 204);
    let later = raw(&it, &named(&it, "held.test", "/plain"), "").await;
    assert!(!later.contains(REAL) && later.contains("a-placeholder-of-mine"), "{later}");
    it.settle().await;
    assert_not_recorded(&it);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_for_this_machine_needs_a_port_and_a_known_scheme() {
    let it = Instance::start().await;
    for (host, wrong) in [("127.0.0.1", "its port"), ("localhost", "its port"), ("ftp://a.test", "scheme")] {
        let answer = it.post("/secrets", json!({"label": "x", "value": REAL, "hosts": [host]})).await;
        assert!(answer.status == 400 && answer.text().contains(wrong), "{host}: {}", answer.text());
    }
    let local = bound(&it, &it.origin.authority()).await;
    it.through(&format!("/echo?key={local}")).await;
    assert!(!it.origin.requests().pop().unwrap().target.contains(&local), "this machine, named with its port");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_bound_to_scheme_host_and_port() {
    let it = Instance::start().await;
    let port = it.origin.port();
    for (i, (bindings, put_in)) in [
        (vec!["held.test".to_owned()], false),
        (vec![format!("held.test:{port}")], false),
        (vec!["http://held.test".to_owned()], false),
        (vec![format!("http://other.test:{port}")], false),
        (vec![format!("http://held.test:{port}")], true),
    ]
    .into_iter()
    .enumerate()
    {
        let secret = json!({"label": format!("s{i}"), "value": REAL, "hosts": bindings});
        let placeholder = it.post("/secrets", secret).await.json()["placeholder"].as_str().unwrap().to_owned();
        let answer = raw(&it, &named(&it, "held.test", &format!("/echo?key={placeholder}")), "").await;
        let sent = it.origin.requests().pop().unwrap().target;
        assert_eq!(!sent.contains(&placeholder), put_in, "{bindings:?}: {sent}");
        assert!(!answer.contains(REAL));
        assert_eq!(it.call("DELETE", &format!("/secrets/s{i}"), &[], b"").await.status, 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_echoed_over_a_websocket_is_masked() {
    let (it, placeholder) = planted().await;
    let authority = format!("held.test:{}", it.origin.port());
    let wire = client::connect_tunnel(it.engine.proxy_addresses()[0], &authority, None).await.unwrap();
    let (mut socket, _) =
        tokio_tungstenite::client_async(format!("ws://{authority}/ws"), wire.patience(None)).await.unwrap();
    socket.send(Frame::text("give")).await.unwrap();
    let back = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert_eq!(back.as_str(), format!("key={placeholder}&"));
    drop(socket);
    it.settle().await;
    assert_not_recorded(&it);
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Sends a placeholder to a host in the query, two headers and the body; returns the response, and what arrived.
async fn send_placeholder(it: &Instance, host: &str, placeholder: &str) -> (Answer, Request) {
    let url = named(it, host, &format!("/echo?key={placeholder}"));
    let body = format!("{{\"key\": \"{placeholder}\"}}");
    let basic = base64(&format!("user:{placeholder}"));
    let mut wire = Wire::connect(it.engine.proxy_addresses()[0]).await.unwrap();
    let (n, head) = (body.len(), format!("X-Key: Bearer {placeholder}\r\nAuthorization: Basic {basic}\r\n"));
    wire.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {n}\r\n{head}\r\n{body}")).await.unwrap();
    let answer = wire.answer().await.unwrap();
    it.settle().await;
    (answer, it.origin.requests().pop().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_secret_is_shown_with_scheme_and_port_under_a_label_of_its_own() {
    let it = Instance::start().await;
    let secret = json!({"label": "api", "value": REAL, "hosts": [named(&it, "held.test", "")]});
    let made = it.post("/secrets", secret.clone()).await.json();
    assert_eq!(made["hosts"], json!([named(&it, "held.test", "")]), "scheme and port are shown");
    assert_eq!(it.post("/secrets", secret).await.status, 400, "the label is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_put_into_target_headers_and_body_for_its_host() {
    let it = Instance::start().await;
    let placeholder = bound(&it, &named(&it, "held.test", "")).await;
    let (_, sent) = send_placeholder(&it, "held.test", &placeholder).await;
    let coded = REAL.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
    assert_eq!(sent.target, format!("/echo?key={coded}"));
    assert_eq!(sent.header("x-key"), Some(format!("Bearer {REAL}").as_str()));
    assert_eq!(sent.header("authorization"), Some(format!("Basic {}", base64(&format!("user:{REAL}"))).as_str()));
    assert_eq!(sent.body, format!("{{\"key\": \"{REAL}\"}}").as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_reaches_neither_the_client_nor_the_recording() {
    let it = Instance::start().await;
    let placeholder = bound(&it, &named(&it, "held.test", "")).await;
    let (answer, _) = send_placeholder(&it, "held.test", &placeholder).await;
    let text = answer.text();
    assert!(!text.contains(REAL) && text.contains(&placeholder), "the echo is given back: {text}");
    let exported = it.get("/export?format=jsonl").await.text();
    assert!(!exported.contains(REAL) && exported.contains(&placeholder), "{exported}");
    assert!(exported.contains("secret:api"), "{exported}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_host_receives_the_placeholder() {
    let it = Instance::start().await;
    let placeholder = bound(&it, &named(&it, "held.test", "")).await;
    let (_, sent) = send_placeholder(&it, "other.test", &placeholder).await;
    assert!(!sent.target.contains(REAL) && sent.header("x-key").unwrap().contains(&placeholder));
}

#[tokio::test(flavor = "multi_thread")]
async fn uses_of_a_secret_are_counted_and_its_value_is_not_listed() {
    let it = Instance::start().await;
    let placeholder = bound(&it, &named(&it, "held.test", "")).await;
    send_placeholder(&it, "held.test", &placeholder).await;
    send_placeholder(&it, "other.test", &placeholder).await;
    let all = it.json("/secrets").await;
    assert_eq!((&all["secrets"][0]["used"], all.to_string().contains(REAL)), (&json!(4), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_secret_is_no_longer_put_in() {
    let it = Instance::start().await;
    let placeholder = bound(&it, &named(&it, "held.test", "")).await;
    assert_eq!(it.call("DELETE", "/secrets/api", &[], b"").await.status, 204);
    assert!(send_placeholder(&it, "held.test", &placeholder).await.1.target.contains(&placeholder));
}
