//! Greyproxy compatibility of the real binary: its API and events, proxy and DNS ports, placeholders, and `interflow
//! import greyproxy`.

mod database;
mod endpoints;
mod repeated;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use interflow_testkit::{Origin, client};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

struct Running {
    child: Child,
    home: tempfile::TempDir,
    instance: Value,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interflow(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(args).env("INTERFLOW_DATA_DIR", home).env("NO_COLOR", "1").env_remove("INTERFLOW_CONFIG");
    command
}

#[track_caller]
fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Running {
    /// An instance with Greyproxy compatibility and this additional configuration.
    fn start(config: &str, envs: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config.toml");
        let compat = "[compat]\ngreyproxy = true\ngreyproxy_api = '127.0.0.1:0'\ngreyproxy_proxies = ['127.0.0.1:0']\n\
                      greyproxy_dns = '127.0.0.1:0'\n";
        std::fs::write(&file, format!("{compat}{config}")).unwrap();
        let any = "127.0.0.1:0";
        let args = [
            "run",
            "-c",
            file.to_str().unwrap(),
            "--listen-proxy",
            any,
            "--listen-gateway",
            any,
            "--listen-admin",
            any,
        ];
        let mut command = interflow(home.path(), &args);
        command.envs(envs.iter().copied()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = std::fs::read_to_string(home.path().join("instance.json")).unwrap_or_default();
            if let Ok(instance) = serde_json::from_str::<Value>(&text) {
                return Self { child, home, instance };
            }
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn at(&self, name: &str) -> SocketAddr {
        self.instance[name].as_str().unwrap_or_else(|| panic!("{name}: {}", self.instance)).parse().unwrap()
    }

    fn proxy(&self) -> SocketAddr {
        let all = self.instance["proxy"].as_array().unwrap();
        all.last().unwrap().as_str().unwrap().parse().unwrap()
    }

    fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.call_with(method, path, body, "")
    }

    fn call_with(&self, method: &str, path: &str, body: Value, fields: &str) -> (u16, Value) {
        let api = self.at("greyproxy");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {api}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{fields}\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = spoken(api, head.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, Value::Null);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn command(&self, args: &[&str]) -> Output {
        interflow(self.home.path(), args).output().unwrap()
    }
}

fn spoken(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A request through the proxy to a non-local host name, authenticated as `claude`.
fn through(proxy: SocketAddr, host: &str, port: u16, path: &str, field: &str) -> String {
    let head = format!(
        "GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\nProxy-Authorization: Basic Y2xhdWRlOg==\r\n\
         {field}Connection: close\r\n\r\n"
    );
    spoken(proxy, head.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn greywall_uses_its_own_api_and_events() {
    let origin = Origin::http().start().await;
    let (host, port) = ("shop.test", origin.port());
    let it = Running::start("[approvals]\nmode = 'ask'\n[upstream.hosts]\n'shop.test' = ['127.0.0.1']\n", &[]);
    let health = it.get("/api/health");
    assert_eq!((&health["status"], &health["ports"]["dashboard"]), (&json!("ok"), &json!(it.at("greyproxy").port())));
    let (mut events, _) = tokio_tungstenite::connect_async(format!("ws://{}/ws", it.at("greyproxy"))).await.unwrap();
    let mut seen: Vec<Value> = Vec::new();
    let mut next = async |kind: &str, seen: &mut Vec<Value>| -> Value {
        loop {
            let message =
                tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect(kind).unwrap().unwrap();
            let value: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
            seen.push(value.clone());
            if value["type"] == kind {
                return value;
            }
        }
    };
    next("connected", &mut seen).await;
    let proxy = it.proxy();
    let asking = std::thread::spawn(move || through(proxy, host, port, "/status/200", ""));
    let pending = next("pending_request.created", &mut seen).await["data"].clone();
    assert_eq!((&pending["container_name"], &pending["destination_host"]), (&json!("claude"), &json!(host)));
    let listed = it.get("/api/pending?container=claude");
    assert_eq!((&listed["total"], &listed["items"][0]["id"]), (&json!(1), &pending["id"]));
    assert_eq!(it.get("/api/pending/count")["count"], 1);
    let allow = json!({"scope": "exact", "duration": "1h", "notes": "a test"});
    let (status, done) = it.call("POST", &format!("/api/pending/{}/allow", pending["id"]), allow);
    assert_eq!((status, &done["pending_removed"], &done["rule"]["notes"]), (200, &json!(true), &json!("a test")));
    assert!(asking.join().unwrap().starts_with("HTTP/1.1 200"));
    let allowed = next("pending_request.allowed", &mut seen).await;
    assert_eq!(allowed["data"]["rule"]["id"], done["rule"]["id"]);
    let told = next("transaction.new", &mut seen).await["data"].clone();
    assert_eq!((&told["status_code"], &told["container_name"]), (&json!(200), &json!("claude")));
    let shown = it.get(&format!("/api/transactions/{}", told["id"]));
    assert_eq!((&shown["url"], &shown["method"]), (&json!(format!("http://{host}:{port}/status/200")), &json!("GET")));
    assert_eq!(it.get("/api/transactions?container=claude")["total"], 1);
    assert_eq!(it.get("/api/transactions?container=codex")["total"], 0);
    assert!(seen.iter().any(|e| e["type"] == "waiters.changed" && e["data"]["current_count"] == 1));

    let (status, made) = it.call(
        "POST",
        "/api/rules",
        json!({"container_pattern": "claude", "destination_pattern": "*.no.test", "action": "deny"}),
    );
    assert_eq!((status, &made["rule_type"], &made["action"]), (201, &json!("permanent"), &json!("deny")));
    assert_eq!(it.call("POST", "/api/rules", json!({"action": "deny"})).0, 400);
    assert!(through(it.proxy(), "a.no.test", 80, "/", "").starts_with("HTTP/1.1 403"));
    let (status, changed) = it.call("PUT", &format!("/api/rules/{}", made["id"]), json!({"action": "allow"}));
    assert_eq!(
        (status, &changed["action"], &changed["destination_pattern"]),
        (200, &json!("allow"), &json!("*.no.test"))
    );
    assert_eq!(it.call("DELETE", &format!("/api/rules/{}", changed["id"]), Value::Null).1["deleted"], true);
    let blocked = until("the log", || it.get("/api/logs?result=blocked")["items"].get(0).cloned());
    assert_eq!(blocked["destination_host"], "a.no.test");
    assert_eq!(it.get("/api/dashboard")["blocked"], 1);
    let ingested = it.call(
        "POST",
        "/api/rules/ingest",
        json!([{"destination_pattern": "x.test"}, {"destination_pattern": "x.test"}, {}]),
    );
    assert_eq!(ingested.1, json!({"imported": 1, "skipped": 2, "pending_cleaned": 0}));

    let silent = it.call("POST", "/api/allowall", json!({"mode": "deny", "duration": "5m"})).1;
    assert_eq!((&silent["active"], &silent["mode"]), (&json!(true), &json!("deny")));
    next("allowall.changed", &mut seen).await;
    assert!(through(it.proxy(), "any.test", 80, "/", "").starts_with("HTTP/1.1 403"), "nobody is asked");
    assert_eq!(it.call("POST", "/api/allowall", json!({"mode": "deny", "duration": "9h"})).0, 400);
    assert_eq!(it.call("DELETE", "/api/allowall", Value::Null).1["active"], false);
    for path in [
        "/api/settings",
        "/api/notifications",
        "/api/cert/status",
        "/api/conversations",
        "/api/logs/stats",
        "/api/sessions",
    ] {
        it.get(path);
    }
    events.send(Message::text(r#"{"command": "ping"}"#)).await.unwrap();
    let pong = events.next().await.unwrap().unwrap();
    assert!(pong.to_text().unwrap().contains("pong") || pong.to_text().unwrap().contains("type"));
    assert_eq!(it.call_with("GET", "/api/rules", Value::Null, "Origin: http://evil.test\r\n").0, 403);
    let loops = through(it.proxy(), "127.0.0.1", it.at("greyproxy").port(), "/api/rules", "");
    assert!(!loops.starts_with("HTTP/1.1 200"), "it is not reached through the proxy: {loops}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_credentials_reach_only_their_hosts_and_are_not_recorded() {
    const MARKER: &str = "planted-marker-5f2c";
    let origin = Origin::http().start().await;
    let config = "[upstream.hosts]\n'bound.test' = ['127.0.0.1']\n'other.test' = ['127.0.0.1']\n";
    let it = Running::start(config, &[]);
    let placeholder = "greyproxy:credential:v1:gw-7:00112233445566778899aabbccddeeff";
    let session = json!({"session_id": "gw-7", "container_name": "claude", "ttl_seconds": 60,
        "mappings": {placeholder: MARKER, "greyproxy:credential:v1:gw-7:ff": "unbound-value"},
        "labels": {placeholder: "API", "greyproxy:credential:v1:gw-7:ff": "LOST"},
        "hosts": {"API": [format!("127.0.0.1:{}", origin.port())]},
        "network_rules": [{"destination_pattern": "bound.test", "action": "allow"}]});
    let (status, made) = it.call("POST", "/api/sessions", session.clone());
    assert_eq!((status, &made["credential_count"], &made["rules_created"]), (200, &json!(2), &json!(1)));
    assert_eq!(made["unbound_credentials"], json!(["LOST"]));
    let field = format!("X-Api-Key: {placeholder}\r\n");
    let coded = placeholder.replace(':', "%3A");
    let seen = through(it.proxy(), "127.0.0.1", origin.port(), &format!("/head?key={coded}"), &field);
    assert!(seen.starts_with("HTTP/1.1 200") && !seen.contains(MARKER), "what comes back holds it no more: {seen}");
    let arrived = format!("{:?}", origin.requests());
    assert!(arrived.matches(MARKER).count() >= 2, "the origin has it: {arrived}");
    let used = until("the count", || {
        let sessions = it.get("/api/sessions");
        sessions[0]["substitution_count"].as_u64().filter(|n| *n > 0)
    });
    assert_eq!(used, 2, "in a field, and in the query, percent-coded");
    through(it.proxy(), "other.test", origin.port(), "/head", &field);
    assert_eq!(it.get("/api/sessions")[0]["substitution_count"], 2, "other hosts get the placeholder");
    assert_eq!(it.call("POST", "/api/sessions/gw-7/heartbeat", json!({"events": []})).0, 200);
    assert_eq!(it.call("POST", "/api/sessions/nobody/heartbeat", Value::Null).0, 404);
    let (status, kept) =
        it.call("POST", "/api/credentials", json!({"label": "ANTHROPIC_API_KEY", "value": format!("sk-ant-{MARKER}")}));
    assert_eq!((status, &kept["hosts"]), (200, &json!(["https://api.anthropic.com:443"])));
    assert!(kept["placeholder"].as_str().unwrap().starts_with("greyproxy:credential:v1:global:"));
    assert_eq!(it.call("POST", "/api/credentials", json!({"label": "X", "value": "unknown"})).0, 400);
    let asked = json!({"session_id": "gw-8", "container_name": "codex", "global_credentials": ["ANTHROPIC_API_KEY"]});
    assert_eq!(
        it.call("POST", "/api/sessions", asked).1["global_credentials"]["ANTHROPIC_API_KEY"],
        kept["placeholder"]
    );
    assert_eq!(it.call("DELETE", "/api/sessions/gw-7", Value::Null).1["deleted"], true);
    assert_eq!(it.call("DELETE", &format!("/api/credentials/{}", kept["id"].as_str().unwrap()), Value::Null).0, 200);
    let flows = until("the recording", || {
        let out = said(it.command(&["flows", "list", "--format", "jsonl"]));
        (out.lines().count() >= 2).then_some(out)
    });
    assert!(flows.contains("secret:API"), "{flows}");
    for format in ["har", "jsonl", "raw"] {
        let out = it.command(&["flows", "export", "--format", format]);
        assert!(!String::from_utf8_lossy(&out.stdout).contains(MARKER), "{format}");
    }
    drop_and_search(it, MARKER);
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_injected_into_bodies_and_messages_and_not_recorded() {
    const MARKER: &str = "planted-marker-\"9b1d\"";
    const PLAIN: &str = "planted-marker-";
    let origin = Origin::http().start().await;
    let it = Running::start("", &[]);
    let mut add =
        interflow(it.home.path(), &["secrets", "add", "api", "--host", &format!("127.0.0.1:{}", origin.port())]);
    let mut child = add.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(MARKER.as_bytes()).unwrap();
    let placeholder = said(child.wait_with_output().unwrap()).trim().to_owned();
    let at = format!("127.0.0.1:{}", origin.port());

    let json = json!({"key": placeholder}).to_string();
    let head = format!(
        "POST http://{at}/echo HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    );
    let whole = spoken(it.proxy(), format!("{head}Content-Length: {}\r\n\r\n{json}", json.len()).as_bytes());
    assert!(whole.starts_with("HTTP/1.1 200") && whole.contains(&json), "it comes back as it went: {whole}");
    let (first, second) = json.split_at(25);
    let pieces = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    let streamed = spoken(it.proxy(), pieces.as_bytes());
    assert!(streamed.starts_with("HTTP/1.1 200") && !streamed.contains(PLAIN), "{streamed}");
    let bodies: Vec<String> = origin.requests().iter().map(|r| format!("{r:?}")).collect();
    assert_eq!(bodies.iter().filter(|b| b.contains(PLAIN)).count(), 2, "escaped, as JSON needs it: {bodies:?}");

    let stream = tokio::net::TcpStream::connect(it.proxy()).await.unwrap();
    let request = {
        use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
        format!("ws://{at}/ws").into_client_request().unwrap()
    };
    let stream = tunnelled(stream, &at).await;
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    for text in [format!("{{\"auth\": \"{placeholder}\"}}"), format!("plain {placeholder}")] {
        socket.send(Message::text(text.clone())).await.unwrap();
        let back = tokio::time::timeout(Duration::from_secs(20), socket.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(back.to_text().unwrap(), text, "what the origin repeats is the placeholder again");
    }
    socket.close(None).await.unwrap();
    drop(socket);
    let used = || said(it.command(&["secrets", "list"]));
    until("the count", || used().contains("(4 used)").then_some(()));

    let flows = until("the recording", || {
        let out = said(it.command(&["flows", "list", "--format", "jsonl"]));
        let all: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        (all.len() >= 3 && all.iter().all(|f| f["state"] != "open")).then_some(all)
    });
    let first = flows.iter().find(|f| f["request"]["path"] == "/echo").unwrap()["id"].as_str().unwrap().to_owned();
    let before = origin.requests().len();
    said(it.command(&["flows", "replay", &first]));
    let again = format!("{:?}", origin.requests().get(before..));
    assert!(again.contains(PLAIN) && !again.contains(&placeholder), "a replay has the secret put in: {again}");
    assert!(used().contains("(5 used)"), "{}", used());
    let elsewhere = Origin::http().start().await;
    let moved = format!("http://localhost:{}/echo", elsewhere.port());
    said(it.command(&["flows", "replay", &first, "--url", &moved]));
    let moved = format!("{:?}", elsewhere.requests());
    assert!(moved.contains(&placeholder) && !moved.contains(PLAIN), "towards its hosts alone: {moved}");
    assert!(used().contains("(5 used)"), "{}", used());
    let auth = format!(
        "GET http://{at}/head HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {placeholder}\r\nConnection: close\r\n\r\n"
    );
    spoken(it.proxy(), auth.as_bytes());
    let path = "path:/head";
    let masked = until("the request", || {
        let out = said(it.command(&["flows", "list", path, "status:2xx", "--format", "jsonl"]));
        out.lines().next().map(str::to_owned)
    });
    assert!(masked.contains(&placeholder), "a placeholder is no secret and needs no mask: {masked}");
    let masked: Value = serde_json::from_str(&masked).unwrap();
    let before = origin.requests().len();
    said(it.command(&["flows", "replay", masked["id"].as_str().unwrap()]));
    let again = format!("{:?}", origin.requests().get(before..));
    assert!(again.contains(PLAIN), "nor does its field stay behind: {again}");
    said(it.command(&["approvals", "mode", "enforce"]));
    said(it.command(&["approvals", "rules", "add", "deny", "127.0.0.1"]));
    let before = origin.requests().len();
    let denied = it.command(&["flows", "replay", &first]);
    let denied = String::from_utf8_lossy(&denied.stderr).into_owned();
    assert!(denied.contains("may not be reached"), "rules hold for replays: {denied}");
    assert_eq!(origin.requests().len(), before);
    for format in ["har", "jsonl", "raw", "curl"] {
        let out = it.command(&["flows", "export", "--format", format]);
        assert!(!String::from_utf8_lossy(&out.stdout).contains(PLAIN), "{format}");
    }
    let kept = said(it.command(&["flows", "list", &format!("body:{placeholder}"), "--format", "jsonl"]));
    assert!(kept.lines().count() >= 3, "the recording has the placeholder: {kept}");
    drop_and_search(it, PLAIN);
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

/// Stops the instance and searches all its files for the marker.
fn drop_and_search(mut it: Running, marker: &str) {
    it.child.kill().unwrap();
    it.child.wait().unwrap();
    let mut folders = vec![it.home.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                let found = bytes.windows(marker.len()).any(|w| w == marker.as_bytes());
                assert!(!found, "{} holds the secret", path.display());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_to_an_address_is_matched_by_its_dns_name() {
    let origin = Origin::http().bind("127.0.0.2:0".parse().unwrap()).start().await;
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((n, peer)) = server.recv_from(&mut buffer) {
            let mut out = buffer[..n].to_vec();
            (out[2], out[7]) = (0x81, 1);
            out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 2]);
            let _ = server.send_to(&out, peer);
        }
    });
    let config = format!(
        "[dns]\nservers = ['{at}']\n[approvals]\nmode = 'enforce'\n[[approvals.rule]]\naction = 'deny'\nhosts = ['*']\n\
         [[approvals.rule]]\naction = 'allow'\nhosts = ['named.test']\n"
    );
    let it = Running::start(&config, &[]);
    let greeting = |port: u16| {
        let mut all = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 2];
        all.extend_from_slice(&port.to_be_bytes());
        all
    };
    let ask = |head: &str| spoken(it.proxy(), &[&greeting(origin.port())[..], head.as_bytes()].concat());
    let by_address = "GET /status/200 HTTP/1.1\r\nHost: 127.0.0.2\r\nConnection: close\r\n\r\n";
    assert!(!ask(by_address).contains("HTTP/1.1 200"), "the address itself is denied");
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let query = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5][..], b"named", &[4], b"test", &[0, 0, 1, 0, 1]].concat();
    client.send_to(&query, it.at("dns")).unwrap();
    let mut buffer = [0; 512];
    assert!(client.recv(&mut buffer).unwrap() > query.len());
    let answer = ask("GET /status/200 HTTP/1.1\r\nHost: named.test\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("HTTP/1.1 200"), "{answer}");
    let claim = ask("GET /status/200 HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n");
    assert!(!claim.contains("HTTP/1.1 200"), "a name that DNS never gave it out for does not count: {claim}");
}

#[test]
fn greyproxy_database_is_imported_with_a_report_of_skipped_items() {
    let folder = tempfile::tempdir().unwrap();
    database::make(folder.path());
    let home = tempfile::tempdir().unwrap();
    let db = folder.path().join("greyproxy.db");
    let args = ["import", "greyproxy", db.to_str().unwrap(), "--host", "INTERNAL=intern.test"];
    let report = said(interflow(home.path(), &args).output().unwrap());
    for line in [
        "  3 rules",
        "  3 credentials with their placeholders",
        "  7 flows of recorded traffic",
        "from 2 exchanges",
        "1 rule that had expired",
        "1 rule of a session",
        "rule 4: it applies to unknown-127.0.0.1",
        "1 conversation: Interflow rebuilds them",
        "1 pending request",
        "1 endpoint rule",
        "there is no decoder `cobol`",
        "`no host` is no host",
    ] {
        assert!(report.contains(line), "{line}: {report}");
    }
    let again = said(interflow(home.path(), &args).output().unwrap());
    assert!(again.contains("0 flows of recorded traffic (tag:greyproxy), 7 already present"), "{again}");
    assert!(
        again.contains("0 credentials with their placeholders, each bound to its hosts, 3 already present"),
        "{again}"
    );
    let show = |args: &[&str]| said(interflow(home.path(), args).output().unwrap());
    let talk = show(&["conversations", "show", "last", "--full"]);
    for words in ["What does the checkout cost?", "Nine coins.", "And with tax?", "Ten coins.", "claude-code"] {
        assert!(talk.contains(words), "{words}: {talk}");
    }
    assert_eq!(show(&["conversations", "list", "--format", "jsonl"]).lines().count(), 1);
    let list = show(&["flows", "list", "--format", "jsonl"]);
    let flows: Vec<Value> = list.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(flows.iter().filter(|f| f["kind"] == "websocket").count(), 2, "an hour later it is another one: {list}");
    assert!(list.contains("denied") && list.contains("unseen:non_http_after_tls"), "{list}");
    let rules = std::fs::read_to_string(home.path().join("approvals.json")).unwrap();
    for words in ["claude*", "*.example.com", "8000-8999", "2100-01-01T00:00:00Z", "evil.test"] {
        assert!(rules.contains(words), "{words}: {rules}");
    }
    let secrets = std::fs::read_to_string(home.path().join("secrets.json")).unwrap();
    assert!(secrets.contains("GITHUB_TOKEN") && !secrets.contains("imported"), "they are encrypted anew: {secrets}");
}

#[test]
fn undecryptable_credentials_are_skipped_and_invalid_databases_refused() {
    let folder = tempfile::tempdir().unwrap();
    database::make(folder.path());
    std::fs::write(folder.path().join("session.key"), [8; 32]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let report = said(interflow(home.path(), &["import", "greyproxy", path, "--no-traffic"]).output().unwrap());
    assert!(report.contains("3 credentials: ") && report.contains("does not decrypt them"), "{report}");
    assert!(
        report.contains("0 credentials with their placeholders") && report.contains("recorded traffic (--no-traffic)"),
        "{report}"
    );
    let other = folder.path().join("session.key");
    let out = interflow(home.path(), &["import", "greyproxy", other.to_str().unwrap()]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn desktop_notifications_name_client_and_host_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = tempfile::tempdir().unwrap();
    let (tool, told) = (bin.path().join("notify-send"), bin.path().join("told"));
    std::fs::write(&tool, format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{}'\n", told.display())).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.path().display());
    let it = Running::start("[approvals]\nmode = 'ask'\nnotify = true\ntimeout = '2s'\n", &[("PATH", &path)]);
    let proxy = it.proxy();
    let asks: Vec<_> = (0..5)
        .map(|i| std::thread::spawn(move || through(proxy, &format!("h{i}.test"), 80, "/secret-path?token=abc", "")))
        .collect();
    let first =
        until("a notification", || std::fs::read_to_string(&told).ok().filter(|t| t.contains("wants to reach")));
    assert!(first.contains("claude wants to reach h") && !first.contains("secret-path"), "{first}");
    for ask in asks {
        assert!(ask.join().unwrap().starts_with("HTTP/1.1 403"), "nobody answered");
    }
    let all = std::fs::read_to_string(&told).unwrap();
    assert!(all.lines().count() <= 2, "five questions are no five notifications: {all}");
}

#[tokio::test]
async fn compat_port_proxies_to_the_origin() {
    let origin = Origin::http().start().await;
    let it = Running::start("", &[]);
    let answer = client::get_through(it.proxy(), &origin.url("/status/204")).await.unwrap();
    assert_eq!(answer.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_requests_are_capped_and_disconnecting_clients_free_theirs() {
    const MOST: usize = 1500;
    let names: String = (0..MOST + 1).map(|n| format!("'h{n}.test' = ['127.0.0.1']\n")).collect();
    let config = format!(
        "[approvals]\nmode = 'ask'\ntimeout = '5m'\nmax_held = {MOST}\n[limits]\nconnections_per_client = 5000\n[upstream.hosts]\n{names}"
    );
    let it = Running::start(&config, &[]);
    let held = || -> usize {
        let out = said(it.command(&["pending", "list", "--json"]));
        serde_json::from_str::<Value>(&out).unwrap()["pending"].as_array().unwrap().len()
    };
    let ask = |n: usize| {
        let mut stream = std::net::TcpStream::connect(it.proxy()).unwrap();
        let host = format!("h{n}.test:80");
        stream.write_all(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let mut clients: Vec<_> = (0..MOST).map(ask).collect();
    until("all are held", || (held() == MOST).then_some(()));
    let refused =
        spoken(it.proxy(), b"GET http://h1500.test/ HTTP/1.1\r\nHost: h1500.test\r\nConnection: close\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("approvals.max_held"), "{refused}");
    clients.truncate(500);
    until("the others are gone", || (held() == 500).then_some(()));
    said(it.command(&["approvals", "mode", "enforce"]));
    until("another mode answers", || (held() == 0).then_some(()));
}
