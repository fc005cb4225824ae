//! The API and the event socket of Greyproxy, as Greywall uses them.

use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use interflow_testkit::Origin;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{Running, spoken, through, until};

const HOST: &str = "shop.test";

/// An instance that asks before it lets a request through, and an origin, which it knows as [`HOST`].
async fn asking() -> (Origin, Running) {
    let origin = Origin::http().start().await;
    let it = Running::start("[approvals]\nmode = 'ask'\n[upstream.hosts]\n'shop.test' = ['127.0.0.1']\n", &[]);
    (origin, it)
}

/// The event socket, and the events that it has sent.
struct Events {
    socket: tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>,
    seen: Vec<Value>,
}

impl Events {
    async fn connect(it: &Running) -> Self {
        let url = format!("ws://{}/ws", it.at("greyproxy"));
        let mut events = Self { socket: tokio_tungstenite::connect_async(url).await.unwrap().0, seen: Vec::new() };
        events.next("connected").await;
        events
    }

    /// The first event of this kind, past or future.
    async fn next(&mut self, kind: &str) -> Value {
        self.find(kind, |_| true).await
    }

    async fn find(&mut self, kind: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut at = 0;
        loop {
            while let Some(event) = self.seen.get(at) {
                if event["type"] == kind && wanted(event) {
                    return event.clone();
                }
                at += 1;
            }
            let message = tokio::time::timeout(Duration::from_secs(20), self.socket.next()).await.expect(kind);
            self.seen.push(serde_json::from_str(message.unwrap().unwrap().to_text().unwrap()).unwrap());
        }
    }
}

/// A held request to the origin, with the event that announced it.
struct Held {
    asking: JoinHandle<String>,
    pending: Value,
}

impl Held {
    async fn new(it: &Running, origin: &Origin, events: &mut Events) -> Self {
        let (proxy, port) = (it.proxy(), origin.port());
        let asking = std::thread::spawn(move || through(proxy, HOST, port, "/status/200", ""));
        let pending = events.next("pending_request.created").await["data"].clone();
        Self { asking, pending }
    }

    /// Allows the request for an hour and waits for its response; returns the response of the API.
    fn allow(self, it: &Running) -> Value {
        let allow = json!({"scope": "exact", "duration": "1h", "notes": "a test"});
        let (status, done) = it.call("POST", &format!("/api/pending/{}/allow", self.pending["id"]), allow);
        assert_eq!(status, 200, "{done}");
        assert!(self.asking.join().unwrap().starts_with("HTTP/1.1 200"));
        done
    }
}

#[test]
fn health_names_the_port_of_the_dashboard() {
    let it = Running::start("", &[]);
    let health = it.get("/api/health");
    assert_eq!((&health["status"], &health["ports"]["dashboard"]), (&json!("ok"), &json!(it.at("greyproxy").port())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_request_is_announced_and_listed_for_its_container() {
    let (origin, it) = asking().await;
    let mut events = Events::connect(&it).await;
    let held = Held::new(&it, &origin, &mut events).await;
    let pending = &held.pending;
    assert_eq!((&pending["container_name"], &pending["destination_host"]), (&json!("claude"), &json!(HOST)));
    let listed = it.get("/api/pending?container=claude");
    assert_eq!((&listed["total"], &listed["items"][0]["id"]), (&json!(1), &pending["id"]));
    assert_eq!(it.get("/api/pending/count")["count"], 1);
    events.find("waiters.changed", |e| e["data"]["current_count"] == 1).await;
    held.allow(&it);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_request_goes_on_and_leaves_a_rule() {
    let (origin, it) = asking().await;
    let mut events = Events::connect(&it).await;
    let done = Held::new(&it, &origin, &mut events).await.allow(&it);
    assert_eq!((&done["pending_removed"], &done["rule"]["notes"]), (&json!(true), &json!("a test")));
    assert_eq!(events.next("pending_request.allowed").await["data"]["rule"]["id"], done["rule"]["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_announced_and_listed_for_its_container() {
    let (origin, it) = asking().await;
    let mut events = Events::connect(&it).await;
    Held::new(&it, &origin, &mut events).await.allow(&it);
    let told = events.next("transaction.new").await["data"].clone();
    assert_eq!((&told["status_code"], &told["container_name"]), (&json!(200), &json!("claude")));
    let shown = it.get(&format!("/api/transactions/{}", told["id"]));
    let url = format!("http://{HOST}:{}/status/200", origin.port());
    assert_eq!((&shown["url"], &shown["method"]), (&json!(url), &json!("GET")));
    assert_eq!(it.get("/api/transactions?container=claude")["total"], 1);
    assert_eq!(it.get("/api/transactions?container=codex")["total"], 0);
}

/// Creates a rule that denies the hosts below `no.test`.
fn deny_rule(it: &Running) -> Value {
    let rule = json!({"container_pattern": "claude", "destination_pattern": "*.no.test", "action": "deny"});
    let (status, made) = it.call("POST", "/api/rules", rule);
    assert_eq!(status, 201, "{made}");
    made
}

#[test]
fn rules_are_created_changed_in_part_and_deleted() {
    let it = Running::start("", &[]);
    let made = deny_rule(&it);
    assert_eq!((&made["rule_type"], &made["action"]), (&json!("permanent"), &json!("deny")));
    let (status, changed) = it.call("PUT", &format!("/api/rules/{}", made["id"]), json!({"action": "allow"}));
    assert_eq!(
        (status, &changed["action"], &changed["destination_pattern"]),
        (200, &json!("allow"), &json!("*.no.test"))
    );
    assert_eq!(it.call("DELETE", &format!("/api/rules/{}", changed["id"]), Value::Null).1["deleted"], true);
}

#[test]
fn a_rule_without_a_destination_is_refused() {
    let it = Running::start("", &[]);
    assert_eq!(it.call("POST", "/api/rules", json!({"action": "deny"})).0, 400);
}

#[test]
fn a_request_that_a_rule_denies_is_logged_and_counted_as_blocked() {
    let it = Running::start("[approvals]\nmode = 'ask'\n", &[]);
    deny_rule(&it);
    assert!(through(it.proxy(), "a.no.test", 80, "/", "").starts_with("HTTP/1.1 403"));
    let blocked = until("the log", || it.get("/api/logs?result=blocked")["items"].get(0).cloned());
    assert_eq!(blocked["destination_host"], "a.no.test");
    assert_eq!(it.get("/api/dashboard")["blocked"], 1);
}

#[test]
fn ingestion_skips_invalid_and_repeated_rules() {
    let it = Running::start("", &[]);
    let rules = json!([{"destination_pattern": "x.test"}, {"destination_pattern": "x.test"}, {}]);
    let ingested = it.call("POST", "/api/rules/ingest", rules).1;
    assert_eq!(ingested, json!({"imported": 1, "skipped": 2, "pending_cleaned": 0}));
}

#[tokio::test(flavor = "multi_thread")]
async fn denying_all_asks_nobody_and_is_announced() {
    let (_origin, it) = asking().await;
    let mut events = Events::connect(&it).await;
    let silent = it.call("POST", "/api/allowall", json!({"mode": "deny", "duration": "5m"})).1;
    assert_eq!((&silent["active"], &silent["mode"]), (&json!(true), &json!("deny")));
    events.next("allowall.changed").await;
    assert!(through(it.proxy(), "any.test", 80, "/", "").starts_with("HTTP/1.1 403"), "nobody is asked");
    assert_eq!(it.call("DELETE", "/api/allowall", Value::Null).1["active"], false);
}

#[test]
fn denying_all_has_a_longest_duration() {
    let it = Running::start("", &[]);
    assert_eq!(it.call("POST", "/api/allowall", json!({"mode": "deny", "duration": "9h"})).0, 400);
}

#[test]
fn every_page_of_the_dashboard_has_its_data() {
    let it = Running::start("", &[]);
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
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_socket_answers_a_ping() {
    let it = Running::start("", &[]);
    let mut events = Events::connect(&it).await;
    events.socket.send(Message::text(r#"{"command": "ping"}"#)).await.unwrap();
    events.next("pong").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_reached_neither_from_other_origins_nor_through_the_proxy() {
    let (_origin, it) = asking().await;
    assert_eq!(it.call_with("GET", "/api/rules", Value::Null, "Origin: http://evil.test\r\n").0, 403);
    let loops = through(it.proxy(), "127.0.0.1", it.at("greyproxy").port(), "/api/rules", "");
    assert!(!loops.starts_with("HTTP/1.1 200"), "{loops}");
}

#[test]
fn a_browser_is_sent_to_the_web_ui_and_programs_are_told_where_it_is() {
    let it = Running::start("", &[]);
    let (api, ui) = (it.at("greyproxy"), it.at("admin"));
    let page = |path: &str, accept: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {api}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        spoken(api, head.as_bytes())
    };
    let html = "text/html,application/xhtml+xml,*/*;q=0.8";
    for path in ["/", "/activity?x=1"] {
        let answer = page(path, html).to_ascii_lowercase();
        assert!(
            answer.starts_with("http/1.1 307 ") && answer.contains(&format!("location: http://{ui}/\r\n")),
            "{answer}"
        );
    }
    for (path, accept) in [("/", "*/*"), ("/api/nothing", html)] {
        let answer = page(path, accept);
        assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains(&format!("http://{ui}/")), "{answer}");
    }
}
