//! Secrets in the place of placeholders: in bodies, messages and replays, and nowhere in the recording.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use interflow_testkit::Origin;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{Running, drop_and_search, said, spoken, until};

const SECRET: &str = "planted-marker-\"9b1d\"";
/// What every encoding of the secret contains.
const MARKER: &str = "planted-marker-";

/// An instance with a secret for an origin.
struct Bound {
    origin: Origin,
    it: Running,
    placeholder: String,
    /// The authority of the origin.
    at: String,
}

impl Bound {
    async fn start() -> Self {
        let origin = Origin::http().start().await;
        let it = Running::start("", &[]);
        let placeholder = it.add_secret(SECRET, origin.port());
        let at = format!("127.0.0.1:{}", origin.port());
        Self { origin, it, placeholder, at }
    }

    /// A JSON body with the placeholder.
    fn json(&self) -> String {
        json!({"key": self.placeholder}).to_string()
    }

    /// Sends a JSON body, which the origin echoes, with these fields for its framing.
    fn echo(&self, framing: &str, body: &str) -> String {
        let at = &self.at;
        let head = format!("POST http://{at}/echo HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n");
        spoken(self.it.proxy(), format!("{head}Connection: close\r\n{framing}\r\n\r\n{body}").as_bytes())
    }

    /// Sends the JSON body with its length; returns the recorded flow.
    fn echoed_flow(&self) -> String {
        let body = self.json();
        let whole = self.echo(&format!("Content-Length: {}", body.len()), &body);
        assert!(whole.starts_with("HTTP/1.1 200") && whole.contains(&body), "it comes back as it went: {whole}");
        self.it.ended("path:/echo")["id"].as_str().unwrap().to_owned()
    }

    /// A WebSocket to the origin through the proxy.
    async fn websocket(&self) -> tokio_tungstenite::WebSocketStream<tokio::net::TcpStream> {
        let stream = tunnelled(tokio::net::TcpStream::connect(self.it.proxy()).await.unwrap(), &self.at).await;
        tokio_tungstenite::client_async(format!("ws://{}/ws", self.at), stream).await.unwrap().0
    }

    /// What arrived at the origin after so many requests.
    fn arrived_after(&self, requests: usize) -> String {
        format!("{:?}", self.origin.requests().get(requests..))
    }

    fn wait_until_used(&self, times: usize) {
        let used = format!("({times} used)");
        until(&used, || said(self.it.command(&["secrets", "list"])).contains(&used).then_some(()));
    }
}

/// A tunnel through the proxy.
async fn tunnelled(mut stream: tokio::net::TcpStream, to: &str) -> tokio::net::TcpStream {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"));
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_put_into_json_bodies_escaped_whole_and_in_chunks() {
    let bound = Bound::start().await;
    bound.echoed_flow();
    let json = bound.json();
    let (first, second) = json.split_at(25);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    let streamed = bound.echo("Transfer-Encoding: chunked", &chunks);
    assert!(streamed.starts_with("HTTP/1.1 200") && !streamed.contains(MARKER), "{streamed}");
    let bodies = bound.origin.requests();
    assert_eq!(bodies.len(), 2);
    for request in bodies {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["key"], SECRET, "escaped, as JSON needs it");
    }
    bound.wait_until_used(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_put_into_websocket_messages_and_masked_in_their_echo() {
    let bound = Bound::start().await;
    let mut socket = bound.websocket().await;
    for text in [format!("{{\"auth\": \"{}\"}}", bound.placeholder), format!("plain {}", bound.placeholder)] {
        socket.send(Message::text(text.clone())).await.unwrap();
        let back = tokio::time::timeout(Duration::from_secs(20), socket.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(back.to_text().unwrap(), text, "what the origin repeats is the placeholder again");
    }
    socket.close(None).await.unwrap();
    bound.wait_until_used(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_has_the_secret_put_in() {
    let bound = Bound::start().await;
    let flow = bound.echoed_flow();
    said(bound.it.command(&["flows", "replay", &flow]));
    let again = bound.arrived_after(1);
    assert!(again.contains(MARKER) && !again.contains(&bound.placeholder), "{again}");
    bound.wait_until_used(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_to_another_host_sends_the_placeholder() {
    let bound = Bound::start().await;
    let flow = bound.echoed_flow();
    let elsewhere = Origin::http().start().await;
    let url = format!("http://localhost:{}/echo", elsewhere.port());
    said(bound.it.command(&["flows", "replay", &flow, "--url", &url]));
    let moved = format!("{:?}", elsewhere.requests());
    assert!(moved.contains(&bound.placeholder) && !moved.contains(MARKER), "{moved}");
    bound.wait_until_used(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_in_a_secret_field_is_recorded_unmasked_and_replayed() {
    let bound = Bound::start().await;
    let Bound { at, placeholder, .. } = &bound;
    let head = format!("GET http://{at}/head HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {placeholder}\r\n");
    spoken(bound.it.proxy(), format!("{head}Connection: close\r\n\r\n").as_bytes());
    let recorded = bound.it.ended("path:/head status:2xx");
    assert!(recorded.to_string().contains(placeholder), "a placeholder is no secret and needs no mask: {recorded}");
    said(bound.it.command(&["flows", "replay", recorded["id"].as_str().unwrap()]));
    let again = bound.arrived_after(1);
    assert!(again.contains(MARKER), "nor does its field stay behind: {again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_rules_hold_for_replays() {
    let bound = Bound::start().await;
    let flow = bound.echoed_flow();
    said(bound.it.command(&["approvals", "mode", "enforce"]));
    said(bound.it.command(&["approvals", "rules", "add", "deny", "127.0.0.1"]));
    let denied = bound.it.command(&["flows", "replay", &flow]);
    let denied = String::from_utf8_lossy(&denied.stderr).into_owned();
    assert!(denied.contains("may not be reached"), "{denied}");
    assert_eq!(bound.origin.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_injected_secret_is_in_no_export_and_no_file() {
    let bound = Bound::start().await;
    bound.echoed_flow();
    let mut socket = bound.websocket().await;
    socket.send(Message::text(format!("plain {}", bound.placeholder))).await.unwrap();
    socket.next().await.unwrap().unwrap();
    socket.close(None).await.unwrap();
    drop(socket);
    bound.it.ended("path:/ws");
    for format in ["har", "jsonl", "raw", "curl"] {
        let out = bound.it.command(&["flows", "export", "--format", format]);
        assert!(!String::from_utf8_lossy(&out.stdout).contains(MARKER), "{format}");
    }
    let with_placeholder = format!("body:{}", bound.placeholder);
    let kept = said(bound.it.command(&["flows", "list", &with_placeholder, "--format", "jsonl"]));
    assert!(kept.lines().count() >= 2, "the recording has the placeholder: {kept}");
    drop_and_search(bound.it, MARKER);
}
