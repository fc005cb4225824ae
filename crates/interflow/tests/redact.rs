//! The command `interflow redact`, as a user runs it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn redact(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_interflow"))
        .arg("redact")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn private_text_is_removed() {
    let out = redact(&[], "Mail anna@firm.com, card 4111 1111 1111 1111.\n");
    assert!(out.status.success());
    let shown = text(&out.stdout);
    assert!(!shown.contains("anna@") && !shown.contains("4111"), "{shown}");
    assert!(shown.starts_with("Mail ") && shown.ends_with(".\n"), "{shown}");
}

#[test]
fn json_is_unchanged_outside_redacted_strings() {
    let out = redact(&["-"], "{ \"n\": 1.0,\"mail\":\"anna@firm.com\" ,\"x\":[null ]}");
    let shown = text(&out.stdout);
    assert!(shown.starts_with("{ \"n\": 1.0,\"mail\":\"") && shown.ends_with("\" ,\"x\":[null ]}"), "{shown}");
    assert!(!shown.contains("anna"));
}

#[test]
fn explain_reports_kinds_and_positions_without_originals() {
    let out = redact(&["--explain"], "mail anna@firm.com");
    let shown = text(&out.stdout);
    assert!(shown.contains("\"email-address\"") && !shown.contains("anna"), "{shown}");
}

#[test]
fn explain_lists_the_features_of_a_name_and_their_weights() {
    let out = redact(&["--explain"], "We met Dr. Wojciechowska there");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let spans = json["spans"].as_array().expect("spans");
    let parts = spans.last().and_then(|s| s["contributions"].as_array()).expect("contributions");
    assert!(parts.iter().any(|p| p["feature"] == "honorific" && p["weight"].as_i64() > Some(0)), "{json}");
    assert!(!text(&out.stdout).contains("Wojciechowska"));
}

#[test]
fn invalid_policy_is_reported_and_produces_no_output() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("policy.toml");
    std::fs::write(&path, "nonsense = 1\n").expect("written");
    let out = redact(&["--policy", path.to_str().expect("a path")], "mail anna@firm.com");
    assert_eq!(out.status.code(), Some(2));
    assert!(out.stdout.is_empty());
    assert!(
        text(&out.stderr).contains("policy.toml") && text(&out.stderr).contains("nonsense"),
        "{}",
        text(&out.stderr)
    );
}
