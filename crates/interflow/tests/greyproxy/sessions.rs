//! Sessions and credentials over Greyproxy's API: placeholders are replaced for their hosts only.

use interflow_testkit::Origin;
use serde_json::{Value, json};

use super::{Running, drop_and_search, said, through};

const MARKER: &str = "planted-marker-5f2c";
const PLACEHOLDER: &str = "greyproxy:credential:v1:gw-7:00112233445566778899aabbccddeeff";

/// An instance with the session `gw-7`, one credential of which is bound to the origin; with the API's response.
async fn with_session() -> (Origin, Running, Value) {
    let origin = Origin::http().start().await;
    let config = "[upstream.hosts]\n'bound.test' = ['127.0.0.1']\n'other.test' = ['127.0.0.1']\n";
    let it = Running::start(config, &[]);
    let unbound = "greyproxy:credential:v1:gw-7:ff";
    let session = json!({"session_id": "gw-7", "container_name": "claude", "ttl_seconds": 60,
        "mappings": {PLACEHOLDER: MARKER, unbound: "unbound-value"},
        "labels": {PLACEHOLDER: "API", unbound: "LOST"},
        "hosts": {"API": [format!("127.0.0.1:{}", origin.port())]},
        "network_rules": [{"destination_pattern": "bound.test", "action": "allow"}]});
    let (status, made) = it.call("POST", "/api/sessions", session);
    assert_eq!(status, 200, "{made}");
    (origin, it, made)
}

fn key_field() -> String {
    format!("X-Api-Key: {PLACEHOLDER}\r\n")
}

/// Sends the placeholder in a field, and percent-encoded in the query, to the host of the credential.
fn send_to_its_host(it: &Running, origin: &Origin) -> String {
    let path = format!("/head?key={}", PLACEHOLDER.replace(':', "%3A"));
    through(it.proxy(), "127.0.0.1", origin.port(), &path, &key_field())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_session_reports_its_rules_and_unbound_credentials() {
    let (_origin, _it, made) = with_session().await;
    assert_eq!((&made["credential_count"], &made["rules_created"]), (&json!(2), &json!(1)));
    assert_eq!(made["unbound_credentials"], json!(["LOST"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn session_credentials_reach_their_host_and_are_counted() {
    let (origin, it, _) = with_session().await;
    let seen = send_to_its_host(&it, &origin);
    assert!(seen.starts_with("HTTP/1.1 200") && !seen.contains(MARKER), "what comes back holds it no more: {seen}");
    let arrived = format!("{:?}", origin.requests());
    assert!(arrived.matches(MARKER).count() >= 2, "the origin has it: {arrived}");
    let used =
        super::until("the count", || it.get("/api/sessions")[0]["substitution_count"].as_u64().filter(|n| *n > 0));
    assert_eq!(used, 2, "in a field, and in the query, percent-coded");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_hosts_receive_the_placeholder_of_a_session() {
    let (origin, it, _) = with_session().await;
    through(it.proxy(), "other.test", origin.port(), "/head", &key_field());
    assert_eq!(origin.only_request().header("x-api-key"), Some(PLACEHOLDER));
    assert_eq!(it.get("/api/sessions")[0]["substitution_count"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_prolonged_and_deleted() {
    let (_origin, it, _) = with_session().await;
    assert_eq!(it.call("POST", "/api/sessions/gw-7/heartbeat", json!({"events": []})).0, 200);
    assert_eq!(it.call("POST", "/api/sessions/nobody/heartbeat", Value::Null).0, 404);
    assert_eq!(it.call("DELETE", "/api/sessions/gw-7", Value::Null).1["deleted"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_credentials_are_not_recorded() {
    let (origin, it, _) = with_session().await;
    send_to_its_host(&it, &origin);
    let flow = it.ended("path:/head").to_string();
    assert!(flow.contains("secret:API"), "{flow}");
    for format in ["har", "jsonl", "raw"] {
        let out = said(it.command(&["flows", "export", "--format", format]));
        assert!(!out.is_empty() && !out.contains(MARKER), "{format}");
    }
    drop_and_search(it, MARKER);
}

/// Stores a credential for all sessions; returns the API's response.
fn global_credential(it: &Running) -> Value {
    let value = format!("sk-ant-{MARKER}");
    let (status, kept) = it.call("POST", "/api/credentials", json!({"label": "ANTHROPIC_API_KEY", "value": value}));
    assert_eq!(status, 200, "{kept}");
    kept
}

#[test]
fn a_global_credential_is_bound_to_the_host_of_its_kind() {
    let it = Running::start("", &[]);
    let kept = global_credential(&it);
    assert_eq!(kept["hosts"], json!(["https://api.anthropic.com:443"]));
    assert!(kept["placeholder"].as_str().unwrap().starts_with("greyproxy:credential:v1:global:"));
    assert_eq!(it.call("POST", "/api/credentials", json!({"label": "X", "value": "unknown"})).0, 400);
    drop_and_search(it, MARKER);
}

#[test]
fn a_session_gets_the_placeholders_of_global_credentials() {
    let it = Running::start("", &[]);
    let kept = global_credential(&it);
    let asked = json!({"session_id": "gw-8", "container_name": "codex", "global_credentials": ["ANTHROPIC_API_KEY"]});
    let session = it.call("POST", "/api/sessions", asked).1;
    assert_eq!(session["global_credentials"]["ANTHROPIC_API_KEY"], kept["placeholder"]);
}

#[test]
fn a_global_credential_is_deleted() {
    let it = Running::start("", &[]);
    let path = format!("/api/credentials/{}", global_credential(&it)["id"].as_str().unwrap());
    assert_eq!(it.call("DELETE", &path, Value::Null).0, 200);
}
